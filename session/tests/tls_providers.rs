//! A TLS server, with the crypto provider of the features and with that of the program.
//!
//! By ring in `cargo test`, and by aws-lc-rs in `cargo xtask test`, each with `cargo test -p docent-session --features
//! tls-aws-lc-rs,docent-testing/tls-aws-lc-rs --test tls_providers`. With `tls-no-provider` there is none. With
//! `tokio-rustls/fips` as well, it is the build for FIPS 140-3, which takes cmake, Go and some minutes.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows test functions, but not the functions that they call"
)]

use std::{
    fs, io,
    sync::atomic::{AtomicBool, Ordering},
};

use docent_session::{
    Config,
    tls::{Tls, TlsOptions},
};
use docent_testing::{TestingServer, server};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, ring};

/// Certificates in PEM, and the key of the second one.
struct Certificates {
    roots: String,
    chain: String,
    key: String,
}

impl Certificates {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let roots = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let chain = params.signed_by(&key, &issuer).unwrap().pem();
        Self { roots, chain, key: key.serialize_pem() }
    }

    fn of_server(&self) -> io::Result<server::Tls> {
        server::Tls::new(self.chain.as_bytes(), self.key.as_bytes())
    }
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

async fn speaks(server: &TestingServer, tls: Tls) {
    let config = Config::new(&server.connect_string()).unwrap();
    let client = config.with_transport(tls).connect().await.unwrap();
    assert!(client.exists("/").await.unwrap().is_some());
    client.close().await.unwrap();
}

async fn serve(tls: server::Tls) -> TestingServer {
    let config = server::Config { tls: Some(tls), ..server::Config::default() };
    TestingServer::start_with(config).await.unwrap()
}

/// With `tokio-rustls/fips` as well, it is the build that is validated for FIPS 140-3.
fn is_fips_by_features() -> bool {
    #[cfg(feature = "tls-aws-lc-rs")]
    return tokio_rustls::rustls::crypto::aws_lc_rs::default_provider().fips();
    #[cfg(not(feature = "tls-aws-lc-rs"))]
    false
}

/// The program's provider is preferred, and needed where the features have none; by the embedded server, too.
// Case (Found in docent itself): a client took another provider when its files of TLS were renewed, and the embedded server
// always had ring.
#[tokio::test]
async fn a_server_is_spoken_to_by_the_provider_of_the_features_or_of_the_program() {
    let certificates = Certificates::new();
    let file = std::env::temp_dir().join(format!("docent-roots-{}.pem", std::process::id()));
    fs::write(&file, &certificates.roots).unwrap();
    let options = TlsOptions::new().with_roots_file(&file);
    let mut earlier = None;
    match (options.clone().build(), certificates.of_server()) {
        (Ok(tls), Ok(server)) => {
            assert_eq!(tls.is_fips(), is_fips_by_features());
            let server = serve(server).await;
            speaks(&server, tls.clone()).await;
            earlier = Some((server, tls));
        }
        // The features of the embedded server are others.
        (client, server) => {
            let client = client.err().map(|error| error.to_string());
            assert_eq!(client.is_none(), cfg!(any(feature = "tls", feature = "tls-aws-lc-rs")));
            let server = server.err().map(|error| error.to_string());
            for error in [client, server].into_iter().flatten() {
                assert!(error.contains("there is no crypto provider: enable"), "{error}");
            }
        }
    }
    let provider = CryptoProvider { secure_random: &Observed, ..ring::default_provider() };
    CryptoProvider::install_default(provider).unwrap();
    if let Some((server, tls)) = earlier {
        fs::write(&file, format!("# Renewed.\n{}", certificates.roots)).unwrap();
        speaks(&server, tls).await;
        assert!(!IS_USED.load(Ordering::Relaxed), "another provider after a renewal");
    }
    let tls = options.build().unwrap();
    assert!(!tls.is_fips());
    speaks(&serve(certificates.of_server().unwrap()).await, tls).await;
    assert!(IS_USED.load(Ordering::Relaxed));
    fs::remove_file(&file).unwrap();
}
