//! TLS, with a client certificate: the server knows the client by the name in its certificate.
//!
//! `DOCENT_CONNECT` is a server's TLS port (`secureClientPort`). `DOCENT_TLS_CA`, `DOCENT_TLS_CERT` and `DOCENT_TLS_KEY`
//! are PEM files: the authority that signed the servers' certificates, the client's certificate, and its private key.

use std::{env, error::Error, fs};

use docent::{Config, CreateMode, CreateOptions, acl::CREATOR_ALL_ACL, tls::TlsOptions};

fn file(variable: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let path = env::var(variable).map_err(|error| format!("{variable}: {error}"))?;
    Ok(fs::read(&path).map_err(|error| format!("{path}: {error}"))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Nothing is trusted by default, not even the authorities of the operating system.
    let tls = TlsOptions::new()
        .with_roots(&file("DOCENT_TLS_CA")?)
        .with_client_certificate(&file("DOCENT_TLS_CERT")?, &file("DOCENT_TLS_KEY")?)
        .build()?;
    // The names in the connect string are those that the servers' certificates must have.
    let client = Config::new(&env::var("DOCENT_CONNECT")?)?.with_transport(tls).connect().await?;
    for id in client.who_am_i().await?.iter().filter(|id| id.auth_scheme == "x509") {
        println!("the server knows this client as {}", id.user);
    }
    // Only clients with this name in their certificate may read or write the node.
    client
        .create_with_stat(
            "/only-mine",
            b"",
            CreateOptions::new(CreateMode::Ephemeral).with_acl(CREATOR_ALL_ACL),
        )
        .await?;
    println!("a node for this client alone: {}", client.get_data("/only-mine").await.is_ok());
    Ok(client.close().await?)
}
