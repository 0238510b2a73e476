//! `docent serve`: runs the embedded server.

use std::{io, net::SocketAddr, time::Duration};

use clap::Args;
use docent_testing::{
    TestingServer,
    server::{Config, Version},
};

use crate::{
    duration,
    exit::{CommandResult, Failure},
};

/// Run an in-memory ZooKeeper server for tests, without persistence and replication
///
/// The first line of the output is `listening on ADDR`. Runs until it is killed.
#[derive(Args)]
pub(crate) struct Serve {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:2181")]
    listen: SocketAddr,
    /// Serve reads only, as a server without a quorum does
    #[arg(long)]
    read_only: bool,
    /// ZooKeeper version to emulate: 3.4, 3.6, 3.8 or 3.9
    #[arg(long, default_value = "3.9", value_parser = version)]
    version: Version,
    /// Shortest and longest session timeout: MIN..MAX, such as 500ms..2m; a number without a unit is seconds
    #[arg(long, value_name = "MIN..MAX", default_value = "1s..60s", value_parser = timeouts)]
    session_timeout: (Duration, Duration),
    /// Seed of the session IDs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Digest of the superuser: USER:BASE64, as in zookeeper.DigestAuthenticationProvider.superDigest
    #[arg(long)]
    super_digest: Option<String>,
}

fn version(text: &str) -> Result<Version, String> {
    Version::from_number(text).ok_or_else(|| "is not one of 3.4, 3.6, 3.8, 3.9".to_owned())
}

fn timeouts(text: &str) -> Result<(Duration, Duration), String> {
    let (min, max) = text.split_once("..").ok_or("is not MIN..MAX")?;
    let parse = |text: &str| duration::parse(text).map_err(|reason| format!("{text:?} {reason}"));
    let (min, max) = (parse(min)?, parse(max)?);
    if min < Duration::from_millis(1) || min > max {
        return Err("must have a MIN from 1ms to MAX".to_owned());
    }
    Ok((min, max))
}

impl Serve {
    pub(crate) fn run(self) -> CommandResult {
        let listen = self.listen;
        self.serve().map(|()| 0).map_err(|error| Failure::os(listen, error))
    }

    fn serve(&self) -> io::Result<()> {
        let (min, max) = self.session_timeout;
        let config = Config {
            version: self.version,
            min_session_timeout: Some(min),
            max_session_timeout: max,
            // A session expires at most half of the shortest timeout late.
            tick_time: (min / 2).clamp(Duration::from_millis(1), Duration::from_secs(2)),
            read_only: self.read_only,
            super_digest: self.super_digest.clone(),
            seed: self.seed,
            ..Config::default()
        };
        crate::runtime()?.block_on(async {
            let server = TestingServer::listen(self.listen, config).await?;
            println!("listening on {}", server.addr());
            eprintln!(
                "emulating ZooKeeper {} for tests: no persistence, no replication",
                self.version
            );
            std::future::pending().await
        })
    }
}
