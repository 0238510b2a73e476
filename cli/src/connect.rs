//! Which servers, for how long, as whom: from options, the environment, a file, in that order.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use docent::{
    Client, Config,
    session::{Backoff, TlsOptions},
};
use serde::Deserialize;

use crate::{
    duration,
    exit::{self, Failure},
};

/// The servers, when nobody names them.
const DEFAULT_CONNECT: &str = "127.0.0.1:2181";
/// Short: a holder that dies keeps others waiting for as long.
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(15);
/// Somebody may be watching.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which server, and as whom. In each case the option comes first, then the variable, then the file.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ServerArgs {
    /// HOST:PORT,HOST:PORT/CHROOT [default: 127.0.0.1:2181]
    #[arg(
        long,
        visible_alias = "server",
        value_name = "SERVERS",
        env = "DOCENT_CONNECT",
        hide_env_values = true
    )]
    connect: Option<String>,
    /// How long the session outlives its connection, if servers agree [default: 15s]
    #[arg(long, value_name = "TIME", env = "DOCENT_SESSION_TIMEOUT", hide_env_values = true,
        value_parser = duration::positive)]
    session_timeout: Option<Duration>,
    /// How long to look for a server [default: 5s]
    #[arg(long, value_name = "TIME", env = "DOCENT_CONNECT_TIMEOUT", hide_env_values = true,
        value_parser = duration::positive)]
    connect_timeout: Option<Duration>,
    /// SCHEME:CREDENTIALS, as digest:USER:PASSWORD; better in the variable or the file
    #[arg(long, value_name = "AUTH", env = "DOCENT_AUTH", hide_env_values = true)]
    auth: Vec<String>,
    /// Connect by TLS, and trust the certificates in this PEM file
    #[arg(long, value_name = "FILE", env = "DOCENT_TLS_CA", hide_env_values = true)]
    tls_ca: Option<PathBuf>,
    /// The certificate to show, PEM
    #[arg(long, value_name = "FILE", env = "DOCENT_TLS_CERT", hide_env_values = true)]
    tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", env = "DOCENT_TLS_KEY", hide_env_values = true)]
    tls_key: Option<PathBuf>,
    /// The name that servers' certificates are for, if not their own
    #[arg(long, value_name = "NAME", env = "DOCENT_TLS_SERVER_NAME", hide_env_values = true)]
    tls_server_name: Option<String>,
    /// The configuration file [default: ~/.config/docent/config.toml]
    #[arg(long, value_name = "FILE", env = "DOCENT_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
}

/// The configuration file.
#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct File {
    connect: Option<String>,
    session_timeout: Option<String>,
    connect_timeout: Option<String>,
    auth: Vec<String>,
    tls: Tls,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Tls {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
}

impl ServerArgs {
    /// Everything but the connection itself: what is wrong is said before anything is done.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let file = self.file()?;
        let from_file = |name: &str, text: Option<String>| {
            text.map(|text| duration::positive(&text)).transpose().map_err(|why| {
                Failure::new(exit::CONFIG, format_args!("the configuration's {name} {why}"))
            })
        };
        let connect = non_empty(self.connect.clone()).or(file.connect);
        let connect = connect.unwrap_or_else(|| DEFAULT_CONNECT.to_owned());
        let mut config = Config::new(&connect).map_err(|error| {
            let why = error.detail().unwrap_or_default();
            Failure::usage(format_args!(
                "{why}; --connect (or DOCENT_CONNECT) wants HOST:PORT,HOST:PORT/CHROOT"
            ))
        })?;
        config.session_timeout = self
            .session_timeout
            .or(from_file("session-timeout", file.session_timeout)?)
            .unwrap_or(DEFAULT_SESSION_TIMEOUT);
        config.connection_timeout = self
            .connect_timeout
            .or(from_file("connect-timeout", file.connect_timeout)?)
            .unwrap_or(DEFAULT_CONNECT_TIMEOUT);
        config.backoff = Backoff { first: Duration::from_millis(20), max: Duration::from_secs(1) };
        let given: Vec<_> = self.auth.iter().filter(|auth| !auth.is_empty()).cloned().collect();
        for auth in if given.is_empty() { file.auth } else { given } {
            // What is wrong with it is not shown: it may be a password.
            let (scheme, proof) = auth.split_once(':').ok_or_else(|| {
                Failure::usage("--auth (or DOCENT_AUTH) is not SCHEME:CREDENTIALS, such as digest:USER:PASSWORD")
            })?;
            config = config.with_auth(scheme, proof.as_bytes());
        }
        let tls = tls(&Tls {
            ca: self.tls_ca.clone().or(file.tls.ca),
            cert: self.tls_cert.clone().or(file.tls.cert),
            key: self.tls_key.clone().or(file.tls.key),
            server_name: self.tls_server_name.clone().or(file.tls.server_name),
        })?;
        Ok(Settings { config, tls, connect })
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        self.settings()?.connect().await
    }

    fn file(&self) -> Result<File, Failure> {
        let (path, asked_for) =
            match self.config.clone().filter(|path| !path.as_os_str().is_empty()) {
                Some(path) => (path, true),
                None => match default_file() {
                    Some(path) => (path, false),
                    None => return Ok(File::default()),
                },
            };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !asked_for => {
                return Ok(File::default());
            }
            Err(error) => {
                let text = format!("cannot read the configuration {}: {error}", path.display());
                return Err(Failure::new(exit::CONFIG, text));
            }
        };
        toml::from_str(&text).map_err(|error| {
            let line = error.span().and_then(|span| text.get(..span.start));
            let line = line.map_or(1, |before| before.matches('\n').count() + 1);
            let text = format!("{}:{line}: {}", path.display(), error.message());
            Failure::new(exit::CONFIG, text)
        })
    }
}

fn default_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory =
        set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("docent").join("config.toml"))
}

/// A variable that is set to nothing is not set.
fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn tls(tls: &Tls) -> Result<Option<docent::session::Tls>, Failure> {
    let Some(ca) = &tls.ca else {
        return match tls {
            Tls { cert: None, key: None, server_name: None, .. } => Ok(None),
            _ => Err(Failure::usage(
                "TLS needs to know whom to trust: --tls-ca FILE (or DOCENT_TLS_CA)",
            )),
        };
    };
    let mut options = TlsOptions::new().with_roots(&pem(ca)?);
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            options = options.with_client_certificate(&pem(cert)?, &pem(key)?);
        }
        (None, None) => {}
        _ => return Err(Failure::usage("--tls-cert and --tls-key belong together")),
    }
    if let Some(name) = &tls.server_name {
        options = options.with_server_name(name);
    }
    Ok(Some(options.build()?))
}

fn pem(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        Failure::new(exit::IO, format_args!("cannot read {}: {error}", path.display()))
    })
}

/// All that is needed to connect.
pub(crate) struct Settings {
    pub(crate) config: Config,
    tls: Option<docent::session::Tls>,
    /// The connect string as it was given.
    pub(crate) connect: String,
}

impl Settings {
    /// Connects.
    pub(crate) async fn connect(self) -> Result<Client, Failure> {
        Ok(match self.tls {
            Some(tls) => Client::connect_by(self.config, tls).await?,
            None => Client::connect_with(self.config).await?,
        })
    }
}
