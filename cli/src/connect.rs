//! Connection settings, from options, environment variables and the configuration file, in this order.

use std::{fs, path::PathBuf, time::Duration};

use clap::Args;
use docent::{Client, Config, config::Backoff, tls::TlsOptions};
use serde::Deserialize;

use crate::{
    duration,
    exit::{self, Failure},
    file,
};

const DEFAULT_CONNECT: &str = "127.0.0.1:2181";
/// Short, because waiters wait this long after a lock holder dies.
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(15);
/// Short, because commands are often run by hand.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

// The connection options. An option overrides its variable, which overrides the file. A doc comment here would become
// the description of each command.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ServerArgs {
    /// Servers and chroot: HOST:PORT,HOST:PORT/CHROOT [default: 127.0.0.1:2181; none for lock and lead]
    #[arg(
        long,
        visible_alias = "server",
        value_name = "SERVERS",
        env = "DOCENT_CONNECT",
        hide_env_values = true
    )]
    connect: Option<String>,
    /// Session timeout to request from the servers [default: 15s]
    #[arg(long, value_name = "TIME", env = "DOCENT_SESSION_TIMEOUT", hide_env_values = true,
        value_parser = duration::parse_positive)]
    session_timeout: Option<Duration>,
    /// Longest time to wait for a connection [default: 5s]
    #[arg(long, value_name = "TIME", env = "DOCENT_CONNECT_TIMEOUT", hide_env_values = true,
        value_parser = duration::parse_positive)]
    connect_timeout: Option<Duration>,
    /// Longest time to wait for the reply to a request [default: twice the session timeout; none for lock and lead]
    #[arg(long, value_name = "TIME", env = "DOCENT_REQUEST_TIMEOUT", hide_env_values = true,
        value_parser = duration::parse_positive)]
    request_timeout: Option<Duration>,
    /// Credentials as SCHEME:CREDENTIALS, such as digest:USER:PASSWORD; safer in the variable or the file
    #[arg(long, value_name = "AUTH", env = "DOCENT_AUTH", hide_env_values = true)]
    auth: Vec<String>,
    /// File with USER:PASSWORD for SASL DIGEST-MD5
    #[arg(long, value_name = "FILE", env = "DOCENT_SASL", hide_env_values = true)]
    sasl: Option<PathBuf>,
    /// Connect with TLS and trust the certificates in this PEM file
    #[arg(long, value_name = "FILE", env = "DOCENT_TLS_CA", hide_env_values = true)]
    tls_ca: Option<PathBuf>,
    /// Connect with TLS and trust the certificates that this platform trusts, beside those of --tls-ca
    #[arg(long, env = "DOCENT_TLS_PLATFORM_ROOTS", hide_env_values = true)]
    tls_platform_roots: bool,
    /// PEM file with the client certificate
    #[arg(long, value_name = "FILE", env = "DOCENT_TLS_CERT", hide_env_values = true)]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate
    #[arg(long, value_name = "FILE", env = "DOCENT_TLS_KEY", hide_env_values = true)]
    tls_key: Option<PathBuf>,
    /// Name to verify in the certificates of the servers, instead of their host names
    #[arg(long, value_name = "NAME", env = "DOCENT_TLS_SERVER_NAME", hide_env_values = true)]
    tls_server_name: Option<String>,
    /// Configuration file [default: ~/.config/docent/config.toml]
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
    request_timeout: Option<String>,
    auth: Vec<String>,
    sasl: Option<String>,
    tls: Tls,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Tls {
    ca: Option<PathBuf>,
    platform_roots: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
}

impl ServerArgs {
    /// Replaces the servers.
    pub(crate) fn with_servers(mut self, servers: Option<String>) -> Self {
        self.connect = servers.or(self.connect);
        self
    }

    /// Validates the settings, without connecting.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        self.settings_for(false)
    }

    /// Like [`settings`](Self::settings), for a command that guards another one. There are no default servers,
    /// because with the wrong servers it would guard nothing. Its requests wait for as long as its lock does.
    #[cfg(unix)]
    pub(crate) fn settings_of_a_guard(&self) -> Result<Settings, Failure> {
        self.settings_for(true)
    }

    fn settings_for(&self, is_guard: bool) -> Result<Settings, Failure> {
        self.refuse_empty()?;
        let file = self.file()?;
        let from_file = |name: &str, text: Option<String>| {
            text.map(|text| duration::parse_positive(&text)).transpose().map_err(|reason| {
                Failure::new(exit::CONFIG, format_args!("configuration: {name} {reason}"))
            })
        };
        let connect = self.connect.clone().or(file.connect);
        let default_connect = (!is_guard).then(|| DEFAULT_CONNECT.to_owned());
        let connect = connect.or(default_connect).ok_or_else(|| {
            Failure::usage(
                "no servers given: --connect HOST:PORT,HOST:PORT/CHROOT (or DOCENT_CONNECT)",
            )
        })?;
        let mut config = Config::new(&connect).map_err(|error| {
            let reason = error.detail().unwrap_or_default();
            Failure::usage(format_args!(
                "{reason}; --connect (or DOCENT_CONNECT) must be HOST:PORT,HOST:PORT/CHROOT"
            ))
        })?;
        let session_timeout = self
            .session_timeout
            .or(from_file("session-timeout", file.session_timeout)?)
            .unwrap_or(DEFAULT_SESSION_TIMEOUT);
        let connection_timeout = self
            .connect_timeout
            .or(from_file("connect-timeout", file.connect_timeout)?)
            .unwrap_or(DEFAULT_CONNECT_TIMEOUT);
        let request_timeout = self
            .request_timeout
            .or(from_file("request-timeout", file.request_timeout)?)
            .or_else(|| (!is_guard).then_some(session_timeout * 2));
        config = config
            .with_session_timeout(session_timeout)
            .with_connection_timeout(connection_timeout)
            .with_request_timeout(request_timeout)
            .with_backoff(Backoff::new(Duration::from_millis(20), Duration::from_secs(1)));
        for auth in if self.auth.is_empty() { file.auth } else { self.auth.clone() } {
            // The message does not show the value, which may be a password.
            let (scheme, credentials) = auth.split_once(':').ok_or_else(|| {
                Failure::usage("--auth (or DOCENT_AUTH) must be SCHEME:CREDENTIALS, such as digest:USER:PASSWORD")
            })?;
            config = config.with_auth(scheme, credentials.as_bytes());
        }
        if let Some((user, password)) = self.sasl(file.sasl.as_deref())? {
            config = config.with_sasl(&user, &password);
        }
        let tls = tls(&Tls {
            ca: self.tls_ca.clone().or(file.tls.ca),
            platform_roots: self.tls_platform_roots || file.tls.platform_roots,
            cert: self.tls_cert.clone().or(file.tls.cert),
            key: self.tls_key.clone().or(file.tls.key),
            server_name: self.tls_server_name.clone().or(file.tls.server_name),
        })?;
        if let Some(tls) = tls {
            config = config.with_transport(tls);
        }
        config.validate().map_err(|error| Failure::usage(error.detail().unwrap_or_default()))?;
        Ok(Settings { config, connect })
    }

    /// The user and password for SASL.
    fn sasl(&self, from_file: Option<&str>) -> Result<Option<(String, String)>, Failure> {
        if let Some(path) = &self.sasl {
            let users = file::read_users(path)?;
            return match <[_; 1]>::try_from(users) {
                Ok([user]) => Ok(Some(user)),
                Err(_) => Err(Failure::usage(format_args!(
                    "{}: --sasl (or DOCENT_SASL) must have one USER:PASSWORD",
                    path.display()
                ))),
            };
        }
        let Some(text) = from_file else { return Ok(None) };
        let invalid = || Failure::new(exit::CONFIG, "configuration: sasl is not USER:PASSWORD");
        file::user(text).map(Some).ok_or_else(invalid)
    }

    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        self.settings()?.connect().await
    }

    /// Whether the connection is authenticated: by credentials, by SASL, or by a certificate.
    pub(crate) fn is_authenticated(&self) -> Result<bool, Failure> {
        let file = self.file()?;
        Ok(!self.auth.is_empty()
            || !file.auth.is_empty()
            || self.sasl.is_some()
            || file.sasl.is_some()
            || self.tls_cert.is_some()
            || file.tls.cert.is_some())
    }

    /// Refuses empty values: they come from unset variables of scripts, and would silently leave out servers or
    /// credentials.
    fn refuse_empty(&self) -> Result<(), Failure> {
        let is_empty =
            |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str().is_empty());
        let is_blank = |text: &String| text.trim().is_empty();
        let settings = [
            (self.connect.as_ref().is_some_and(is_blank), "--connect", "CONNECT"),
            (self.auth.iter().any(is_blank), "--auth", "AUTH"),
            (is_empty(&self.sasl), "--sasl", "SASL"),
            (is_empty(&self.tls_ca), "--tls-ca", "TLS_CA"),
            (is_empty(&self.tls_cert), "--tls-cert", "TLS_CERT"),
            (is_empty(&self.tls_key), "--tls-key", "TLS_KEY"),
            (
                self.tls_server_name.as_ref().is_some_and(is_blank),
                "--tls-server-name",
                "TLS_SERVER_NAME",
            ),
        ];
        match settings.into_iter().find(|(is_empty, ..)| *is_empty) {
            None => Ok(()),
            Some((_, option, variable)) => Err(Failure::usage(format_args!(
                "{option} (or DOCENT_{variable}) is empty; give a value, or leave it out"
            ))),
        }
    }

    fn file(&self) -> Result<File, Failure> {
        let (path, is_explicit) =
            match self.config.clone().filter(|path| !path.as_os_str().is_empty()) {
                Some(path) => (path, true),
                None => match default_file() {
                    Some(path) => (path, false),
                    None => return Ok(File::default()),
                },
            };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_explicit => {
                return Ok(File::default());
            }
            Err(error) => {
                let text =
                    format!("cannot read the configuration file {}: {error}", path.display());
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
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = variable("XDG_CONFIG_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("docent").join("config.toml"))
}

fn tls(tls: &Tls) -> Result<Option<docent::tls::Tls>, Failure> {
    if tls.ca.is_none() && !tls.platform_roots {
        return match tls {
            Tls { cert: None, key: None, server_name: None, .. } => Ok(None),
            _ => Err(Failure::usage(
                "TLS requires trusted certificates: --tls-ca FILE (or DOCENT_TLS_CA), or --tls-platform-roots",
            )),
        };
    }
    let mut options = TlsOptions::new();
    if let Some(ca) = &tls.ca {
        // A long-running command reads renewed files again. This first read reports a missing file as such.
        file::read(ca)?;
        options = options.with_roots_file(ca);
    }
    if tls.platform_roots {
        options = options.with_platform_roots();
    }
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            file::read(cert)?;
            file::read(key)?;
            options = options.with_client_certificate_files(cert, key);
        }
        (None, None) => {}
        _ => return Err(Failure::usage("--tls-cert and --tls-key must be given together")),
    }
    if let Some(name) = &tls.server_name {
        options = options.with_server_name(name);
    }
    Ok(Some(options.build()?))
}

/// Validated connection settings.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The connect string as given by the user.
    #[cfg_attr(not(unix), allow(dead_code, reason = "docent lock and docent lead use it"))]
    pub(crate) connect: String,
}

impl Settings {
    pub(crate) async fn connect(self) -> Result<Client, Failure> {
        Ok(self.config.connect().await?)
    }
}
