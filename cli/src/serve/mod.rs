//! `docent serve`: runs the embedded servers.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use docent_testing::{
    TestingCluster,
    server::{Config, Tls},
};

use crate::{
    duration,
    exit::{self, CommandResult, Failure},
    file,
    output::{print, report},
    prompt::{self, Prompt},
};

mod console;

/// Run an in-memory ZooKeeper server or ensemble for tests, without persistence
///
/// The first line of the output is `listening on ADDR`, with several servers `listening on ADDR,ADDR,ADDR`. Runs until
/// it is killed, or until `quit` on standard input; a closed standard input does not end it.
#[derive(Clone, Args)]
#[command(after_long_help = help())]
pub(crate) struct Serve {
    /// Address to listen on; port 0 selects a free port. Further servers have the ports behind it
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:2181", value_parser = address)]
    listen: SocketAddr,
    /// Number of servers, which form an ensemble; they are numbered from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=99))]
    servers: u8,
    /// Serve reads only, as a server without a quorum does
    #[arg(long, conflicts_with = "servers")]
    read_only: bool,
    /// Version to emulate: ZooKeeper 3.4, 3.5, 3.6, 3.8, 3.9 or 3.10, or ClickHouse keeper-24.8, keeper-26.1,
    /// keeper-26.3 or keeper-26.6
    #[arg(long, default_value = "3.9", value_parser = |text: &str| checked("version", text))]
    version: String,
    /// Shortest and longest session timeout: MIN..MAX, such as 500ms..2m; a number without a unit is seconds [default:
    /// 1s..60s]
    #[arg(long, value_name = "MIN..MAX", value_parser = timeouts)]
    session_timeout: Option<(Duration, Duration)>,
    /// Set any setting of the servers, by its name in ZooKeeper's configuration, over other options; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    config: Vec<(String, String)>,
    /// Seed of the session IDs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Digest of the superuser: USER:HASH, as in zookeeper.DigestAuthenticationProvider.superDigest
    #[arg(long, value_name = "USER:HASH", value_parser = |text: &str| checked(SUPER_DIGEST, text))]
    super_digest: Option<String>,
    /// File with the users of SASL DIGEST-MD5, one USER:PASSWORD a line
    #[arg(long, value_name = "FILE")]
    sasl: Option<PathBuf>,
    /// Refuse clients without SASL, as sessionRequireClientSASLAuth does
    #[arg(long, requires = "sasl")]
    sasl_required: bool,
    /// Serve TLS only, with the certificate (and its chain) in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Refuse clients without a certificate that is signed by one of those in this PEM file; the subject of the
    /// certificate is the client's identity, x509:SUBJECT
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

/// Resolves an address. IPv4 is preferred: `localhost` is 127.0.0.1 for most clients.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs().map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => "is not HOST:PORT, such as 127.0.0.1:2181".to_owned(),
        _ => error.to_string(),
    })?;
    let addresses: Vec<_> = addresses.collect();
    let preferred =
        addresses.iter().find(|address| address.is_ipv4()).or_else(|| addresses.first());
    preferred.copied().ok_or_else(|| "has no address".to_owned())
}

const SUPER_DIGEST: &str = "DigestAuthenticationProvider.superDigest";

/// Checks the value of a setting.
fn checked(name: &str, value: &str) -> Result<String, String> {
    Config::default().set(name, value).map(|()| value.to_owned())
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("is not NAME=VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    Ok((name.to_owned(), checked(name, value)?))
}

fn help() -> String {
    let settings = Config::settings().map(|(name, value)| format!("  {name:<40}  {value}\n"));
    let settings: String = settings.collect();
    format!(
        "{}\n\nSettings of --config NAME=VALUE, such as tickTime=2000:\n{settings}",
        console::HELP
    )
}

fn timeouts(text: &str) -> Result<(Duration, Duration), String> {
    let (min, max) = text.split_once("..").ok_or("is not MIN..MAX")?;
    let parse = |text: &str| duration::parse(text).map_err(|reason| format!("\"{text}\" {reason}"));
    let (min, max) = (parse(min)?, parse(max)?);
    if min < Duration::from_millis(1) || min > max {
        return Err("must have a MIN from 1ms to MAX".to_owned());
    }
    Ok((min, max))
}

impl Serve {
    pub(crate) fn run(self) -> CommandResult {
        let config = self.config()?;
        let runtime = crate::runtime().map_err(crate::no_runtime)?;
        runtime.block_on(self.serve(config))
    }

    async fn serve(&self, config: Config) -> CommandResult {
        let (tls, version) = (config.tls.clone(), config.version);
        // The error names the address.
        let cluster = TestingCluster::listen(self.listen, config)
            .await
            .map_err(|error| Failure::new(exit::OS, error))?;
        print(&format!("listening on {}\n", cluster.connect_string()))?;
        let of = if version.number().starts_with("keeper") { "ClickHouse" } else { "ZooKeeper" };
        report(format_args!("emulating {of} {version} for tests: no persistence, no replication"));
        if let Some(tls) = tls {
            let options = self.clone();
            // In a separate thread, because a file system may not respond.
            std::thread::spawn(move || options.renew(&tls));
        }
        let mut prompt = Prompt::start();
        let mut console = console::Console::new(&cluster);
        loop {
            prompt::show();
            let Some(line) = prompt.line().await else {
                // Standard input was closed.
                return std::future::pending().await;
            };
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    report(error);
                    continue;
                }
            };
            match console.execute(&line).await {
                Ok(console::Reply::Quit) => return Ok(0),
                Ok(console::Reply::Nothing) => {}
                Ok(console::Reply::Text(text)) => {
                    // The servers continue even if the output is closed.
                    let _ = writeln!(io::stdout(), "{text}");
                }
                Err(error) => report(format_args!("{line}: {error}")),
            }
        }
    }

    fn config(&self) -> Result<Config, Failure> {
        let mut config = Config {
            read_only: self.read_only,
            sasl_users: match &self.sasl {
                None => BTreeMap::new(),
                Some(path) => file::read_users(path)?.into_iter().collect(),
            },
            sasl_required: self.sasl_required,
            tls: self.tls_files()?.map(|files| files.tls()).transpose()?,
            servers: self.servers.into(),
            seed: self.seed,
            ..Config::default()
        };
        if let Some((min, max)) = self.session_timeout {
            (config.min_session_timeout, config.max_session_timeout) = (Some(min), max);
            // A session may expire late, but at most by half of the shortest timeout.
            config.tick_time = (min / 2).clamp(Duration::from_millis(1), Duration::from_secs(2));
        }
        let super_digest = self.super_digest.as_ref().map(|value| (SUPER_DIGEST, value));
        let settings = self.config.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in
            [("version", &self.version)].into_iter().chain(super_digest).chain(settings)
        {
            config.set(name, value).map_err(Failure::usage)?;
        }
        let min = config.min_session_timeout.unwrap_or(config.tick_time * 2);
        if min > config.max_session_timeout {
            return Err(Failure::usage(format_args!(
                "minSessionTimeout ({min:?}) is above maxSessionTimeout ({:?})",
                config.max_session_timeout
            )));
        }
        if config.sasl_required && config.sasl_users.is_empty() {
            return Err(Failure::usage(
                "sessionRequireClientSASLAuth refuses all clients without users of SASL: give them with --sasl FILE",
            ));
        }
        if config.read_only && config.servers > 1 {
            return Err(Failure::usage("readOnly is for one server; leave out servers"));
        }
        Ok(config)
    }

    /// Reads the TLS files.
    fn tls_files(&self) -> Result<Option<TlsFiles>, Failure> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let client_ca = self.tls_client_ca.as_deref().map(file::read).transpose()?;
        let mut names = format!("--tls-cert {}, --tls-key {}", cert.display(), key.display());
        if let Some(client_ca) = &self.tls_client_ca {
            names += &format!(", --tls-client-ca {}", client_ca.display());
        }
        Ok(Some(TlsFiles { names, cert: file::read(cert)?, key: file::read(key)?, client_ca }))
    }

    /// Uses renewed files for new connections. Files that cannot be used are refused until they change again, because
    /// certificate and key may be replaced one after the other.
    fn renew(&self, tls: &Tls) {
        let (mut current, mut refused) = (self.tls_files().ok().flatten(), None);
        loop {
            std::thread::sleep(RENEWAL_INTERVAL);
            let Ok(Some(files)) = self.tls_files() else { continue };
            if current.as_ref() == Some(&files) || refused.as_ref() == Some(&files) {
                continue;
            }
            match files.tls() {
                Ok(renewed) => {
                    tls.replace(&renewed);
                    report("the files of TLS have changed: new connections use them");
                    (current, refused) = (Some(files), None);
                }
                Err(error) => {
                    report(format_args!(
                        "the files of TLS have changed, but cannot be used: {error}"
                    ));
                    refused = Some(files);
                }
            }
        }
    }
}

/// How often the TLS files are read.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// The contents of the TLS files.
#[derive(PartialEq, Eq)]
struct TlsFiles {
    /// The options with the paths, for errors.
    names: String,
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsFiles {
    fn tls(&self) -> Result<Tls, Failure> {
        let tls = match &self.client_ca {
            None => Tls::new(&self.cert, &self.key),
            Some(roots) => Tls::with_client_roots(&self.cert, &self.key, roots),
        };
        tls.map_err(|error| Failure::usage(format_args!("{error} ({})", self.names)))
    }
}
