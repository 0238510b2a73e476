//! TLS from the command line, with a real server that requires client certificates.

use std::fs;

use crate::support::{Ran, docent, real::RealServer, run, within_deadline};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use xtask::{KeptPort, Settings, TemporaryDirectory};

/// A TLS server, with the certificates and keys to connect to it.
struct TlsServer {
    _server: RealServer,
    _port: KeptPort,
    files: TemporaryDirectory,
    connect: String,
}

impl TlsServer {
    /// Starts the server. Returns `None` and records a skip if there is no ZooKeeper.
    #[track_caller]
    fn start() -> impl Future<Output = Option<Self>> {
        let files = TemporaryDirectory::new("tls").unwrap();
        let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "tests of docent");
        write("ca.pem", &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["zk.example".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &issuer).unwrap().pem();
            write(&format!("{name}.pem"), &certificate);
            write(&format!("{name}.key"), &key.serialize_pem());
            write(&format!("{name}-both.pem"), &format!("{}{certificate}", key.serialize_pem()));
        }
        let port = KeptPort::free().unwrap();
        let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
        let config = [
            ("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned()),
            ("secureClientPort", port.address().port().to_string()),
            ("secureClientPortAddress", "127.0.0.1".to_owned()),
            ("ssl.keyStore.location", path("server-both.pem")),
            ("ssl.keyStore.type", "PEM".to_owned()),
            ("ssl.trustStore.location", path("ca.pem")),
            ("ssl.trustStore.type", "PEM".to_owned()),
            ("ssl.clientAuth", "need".to_owned()),
            (
                "authProvider.x509",
                "org.apache.zookeeper.server.auth.X509AuthenticationProvider".to_owned(),
            ),
        ];
        let config = config.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let server = RealServer::start_with(Settings { config, ..Settings::default() });
        async move {
            let connect = port.address().to_string();
            Some(Self { _server: server.await?, _port: port, files, connect })
        }
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).to_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn certificates_come_from_options_variables_or_the_file() {
    let Some(server) = TlsServer::start().await else { return };
    let (ca, cert, key) =
        (server.file("ca.pem"), server.file("client.pem"), server.file("client.key"));
    let options = [
        "--tls-ca",
        &ca,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-server-name",
        "zk.example",
    ];
    let with = |head: &[&str], tail: &[&str]| -> Vec<String> {
        let all = head.iter().chain(&options).chain(tail);
        all.map(|word| (*word).to_owned()).collect()
    };
    run(&server.connect, &with(&["create"], &["/a", "x"])).await.ok();
    let locked = run(&server.connect, &with(&["lock"], &["/l", "--", "sh", "-c", "exit 3"])).await;
    assert_eq!((locked.code, locked.err.as_str()), (Some(3), ""));
    let by_variables = docent(&server.connect, &["get", "/a"])
        .env("DOCENT_TLS_CA", &ca)
        .env("DOCENT_TLS_CERT", &cert)
        .env("DOCENT_TLS_KEY", &key)
        .env("DOCENT_TLS_SERVER_NAME", "zk.example")
        .output();
    let by_variables: Ran = within_deadline("get", by_variables).await.unwrap().into();
    assert_eq!(by_variables.ok(), "x");
    let config = server.file("config.toml");
    let text = format!(
        "connect = {:?}\n[tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}\nserver-name = 'zk.example'\n",
        server.connect
    );
    fs::write(&config, text).unwrap();
    assert_eq!(run("", &["get", "--config", &config, "/a"]).await.ok(), "x");
}

#[tokio::test]
async fn tls_errors_are_one_line() {
    let Some(server) = TlsServer::start().await else { return };
    let (ca, cert, key) =
        (server.file("ca.pem"), server.file("client.pem"), server.file("client.key"));
    let get = async |options: &[&str]| {
        let all: Vec<_> = ["get", "--connect-timeout", "4s"]
            .iter()
            .chain(options)
            .chain(&["/"])
            .copied()
            .collect();
        run(&server.connect, &all).await
    };
    // No client certificate, or the wrong server name.
    get(&["--tls-ca", &ca, "--tls-server-name", "zk.example"]).await.failed(69, &server.connect);
    let trusted = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    get(&trusted).await.failed(69, "not valid for name");
    // Invalid files.
    get(&["--tls-ca", &key]).await.failed(64, "no certificate in the PEM text");
    get(&["--tls-ca", &ca, "--tls-cert", &cert]).await.failed(64, "must be given together");
    get(&["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &ca]).await.failed(64, "private key");
    get(&["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", "/no/such"])
        .await
        .failed(74, "/no/such");
}

/// On Linux, the platform's roots are those of `SSL_CERT_FILE`, if that is set.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_roots_of_the_platform_are_trusted_if_asked() {
    let Some(server) = TlsServer::start().await else { return };
    let get = async |roots: &str| -> Ran {
        let words = ["get", "--tls-platform-roots", "--tls-server-name", "zk.example", "-s", "/"];
        let mut command = docent(&server.connect, &words);
        command.env("DOCENT_TLS_CERT", server.file("client.pem"));
        command.env("DOCENT_TLS_KEY", server.file("client.key"));
        command.env("SSL_CERT_FILE", server.file(roots)).env_remove("SSL_CERT_DIR");
        within_deadline("get", command.output()).await.unwrap().into()
    };
    assert!(get("ca.pem").await.ok().contains("cZxid"));
    // The authority is not among them.
    get("client.pem").await.failed(69, "(the trusted roots: those of the platform)");
}
