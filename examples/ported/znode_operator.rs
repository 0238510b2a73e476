//! The znode part of a Kubernetes operator: each claim has a node of its own, in a ZooKeeper that speaks only TLS.
//!
//! On the TLS port in `DOCENT_CONNECT` (host:port,…), with the PEM files in `DOCENT_TLS_CA`, `DOCENT_TLS_CERT` and
//! `DOCENT_TLS_KEY`, or else on an embedded server with certificates that are made here.

use std::{env, error::Error, fs};

use docent::tls::TlsOptions;
use docent::{Acl, Client, Config, CreateMode, CreateOptions, ErrorKind, Perms};
use docent_testing::{TestingServer, server};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// The user of a claim, by its client certificate. In the cluster: a field of the custom resource.
const USER: &str = "CN=hbase";

/// Creates the node of a claim, or gives an existing one its access list again. May be repeated after any error: a
/// reconciliation that fails is queued again.
async fn ensure_exists(client: &Client, path: &str, acl: &[Acl<'_>]) -> Result<(), docent::Error> {
    let options = CreateOptions::new(CreateMode::Persistent).with_acl(acl);
    let create = client.create(path, b"", options);
    if create.allow(ErrorKind::NodeExists).await?.is_none() {
        client.set_acl(path, acl, None).await?;
    }
    Ok(())
}

/// Deletes the node of a claim with all that its user has left below it. May be repeated after any error.
async fn ensure_missing(client: &Client, path: &str) -> Result<(), docent::Error> {
    client.delete_recursive(path).allow(ErrorKind::NoNode).await.map(drop)
}

async fn reconcile(client: Client) -> Result<(), Box<dyn Error>> {
    let ids = client.who_am_i().await?;
    let own = ids.iter().find(|id| id.auth_scheme == "x509");
    let own = &own.ok_or("the server does not identify clients by their certificates")?.user;
    // The user works below its node; only the operator changes who may.
    let work = Perms::CREATE | Perms::DELETE | Perms::READ | Perms::WRITE;
    let acl = [Acl::new(Perms::ALL, "x509", own), Acl::new(work, "x509", USER)];
    // Named by the UID that the cluster gave the claim: nobody can claim the node of another user by its name.
    let path = "/znode-6e1f7c52";

    for round in 1..=2 {
        ensure_exists(&client, path, &acl).await?;
        let (entries, _) = client.get_acl(path).await?;
        println!("reconciled {round}: {} may use {path}", entries.iter().count());
        // Somebody opens the node to everyone; the next reconciliation closes it again.
        client.set_acl(path, docent::acl::OPEN_ACL_UNSAFE, None).await?;
    }
    client.ensure_path(&format!("{path}/hbase/meta"), CreateMode::Persistent).await?;
    for round in 1..=2 {
        ensure_missing(&client, path).await?;
        println!("deleted {round}: still there: {}", client.exists(path).await?.is_some());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stands_in = stand_in().await?;
    let (connect, tls) = match env::var("DOCENT_CONNECT") {
        Err(_) => (stands_in.0.connect_string(), stands_in.1),
        Ok(connect) => {
            let tls = TlsOptions::new().with_roots(&file("DOCENT_TLS_CA")?);
            let (chain, key) = (file("DOCENT_TLS_CERT")?, file("DOCENT_TLS_KEY")?);
            (connect, tls.with_client_certificate(&chain, &key))
        }
    };
    let client = Config::new(&connect)?.with_transport(tls.build()?).connect().await?;
    client.run(reconcile).await
}

fn file(variable: &str) -> Result<Vec<u8>, String> {
    let path = env::var(variable).map_err(|error| format!("{variable}: {error}"))?;
    fs::read(&path).map_err(|error| format!("{variable}: {path}: {error}"))
}

/// A server that requires client certificates, and the options of a client that has one.
async fn stand_in() -> Result<(TestingServer, TlsOptions), Box<dyn Error>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let roots = params.self_signed(&key)?.pem();
    let authority = Issuer::new(params, key);
    let identity = |name: &str, hosts: &[String]| -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, name);
        Ok((params.signed_by(&key, &authority)?.pem(), key.serialize_pem()))
    };
    let (chain, key) = identity("server", &["127.0.0.1".to_owned()])?;
    let (chain, key) = (chain.as_bytes(), key.as_bytes());
    let tls = server::Tls::with_client_roots(chain, key, roots.as_bytes())?;
    let config = server::Config { tls: Some(tls), ..server::Config::default() };
    let (chain, key) = identity("znode-operator", &[])?;
    let options = TlsOptions::new().with_roots(roots.as_bytes());
    let options = options.with_client_certificate(chain.as_bytes(), key.as_bytes());
    Ok((TestingServer::start_with(config).await?, options))
}
