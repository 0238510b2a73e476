//! A TLS server, with the crypto provider of the features and with that of the program.
//!
//! By ring in `cargo test`, and by aws-lc-rs in `cargo xtask test`, each with
//! `cargo test -p docent-session --features tls-aws-lc-rs --test tls_providers`. With `tls-no-provider` there is none.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows test functions, but not the functions that they call"
)]

use std::sync::atomic::{AtomicBool, Ordering};

use docent_session::{Config, ErrorKind, tls::TlsOptions};
use docent_testing::{TestingServer, server};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, ring};

/// The roots in PEM, and a server with a certificate that they have signed.
fn certificates() -> (String, server::Tls) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let roots = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let chain = params.signed_by(&key, &issuer).unwrap().pem();
    (roots, server::Tls::new(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap())
}

/// The randomness of the program's provider.
#[derive(Debug)]
struct Observed;

static IS_USED: AtomicBool = AtomicBool::new(false);

impl SecureRandom for Observed {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        IS_USED.store(true, Ordering::Relaxed);
        ring::default_provider().secure_random.fill(bytes)
    }
}

async fn speaks(server: &TestingServer, options: &TlsOptions) {
    let config = Config::new(&server.connect_string()).unwrap();
    let tls = options.clone().build().unwrap();
    let client = config.with_transport(tls).connect().await.unwrap();
    assert!(client.exists("/").await.unwrap().is_some());
    client.close().await.unwrap();
}

/// The program's provider is preferred, and needed where the features have none. The embedded server has its own.
#[tokio::test]
async fn a_server_is_spoken_to_by_the_provider_of_the_features_or_of_the_program() {
    let (roots, tls) = certificates();
    let config = server::Config { tls: Some(tls), ..server::Config::default() };
    let server = TestingServer::start_with(config).await.unwrap();
    let options = TlsOptions::new().with_roots(roots.as_bytes());
    if cfg!(any(feature = "tls", feature = "tls-aws-lc-rs")) {
        speaks(&server, &options).await;
    } else {
        let error = options.clone().build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().contains("there is no crypto provider: enable"), "{error}");
    }
    let provider = CryptoProvider { secure_random: &Observed, ..ring::default_provider() };
    CryptoProvider::install_default(provider).unwrap();
    speaks(&server, &options).await;
    assert!(IS_USED.load(Ordering::Relaxed));
}
