//! Serves until standard input ends; prints its address.

use std::io::Read as _;

use docent_testing::{
    TestingServer,
    server::{Config, Version},
};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let version = std::env::args().nth(1).and_then(|v| Version::from_number(&v));
    let config = Config {
        version: version.unwrap_or_default(),
        super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
        ..Config::default()
    };
    let server = TestingServer::start_with(config).await?;
    println!("{}", server.connect_string());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}
