//! TLS of long-lived clients: renewed files, revoked certificates, an application's own configuration, a transport
//! below TLS.

use docent::runtime::{Tcp, TcpOptions};
use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use super::*;
use crate::tls::{embedded_with, mismatch, with_client_roots};

/// Waits until the client has tried to connect several times.
async fn several_attempts(client: &Client) {
    let before = client.metrics().attempts;
    until("attempts", async || client.metrics().attempts > before + 2).await;
}

/// Cuts the connection and waits for the next one. With `renew`, attempts fail until it has been called.
async fn reconnect(server: &TestingServer, client: &Client, renew: Option<&dyn Fn()>) {
    let before = client.metrics().connections;
    server.cut_connections();
    if let Some(renew) = renew {
        several_attempts(client).await;
        assert_eq!(client.metrics().connections, before);
        renew();
    }
    until("a connection", async || client.metrics().connections > before).await;
    client.get_data("/").await.unwrap();
}

/// The trusted roots are replaced on the disk, then the client's certificate.
#[tokio::test]
async fn renewed_files_are_used_by_the_next_connection_of_the_same_session() {
    let (old, new) = (Authority::named("the old CA"), Authority::named("the new CA"));
    let files = TemporaryDirectory::new("tls").unwrap();
    let write = |name: &str, text: &str| files.write(name, text).unwrap();
    let write_client = |authority: &Authority| {
        let alice = authority.identify("alice", &[]);
        (write("client.pem", &alice.certificate), write("client.key", &alice.key))
    };
    // The server's certificate, and the roots that it trusts for its clients.
    let tls_of = |authority: &Authority, clients: &Authority| {
        with_client_roots(clients, &authority.identify_server())
    };
    let tls = tls_of(&old, &old);
    let server = embedded_with(&tls).await;
    let roots = write("ca.pem", &old.pem);
    let (chain, key) = write_client(&old);
    let options = TlsOptions::new()
        .with_roots_file(&roots)
        .with_client_certificate_files(chain, key)
        .build()
        .unwrap();
    let client = patient(&server.connect_string()).with_transport(options).connect().await.unwrap();
    let session = session_id(&client);

    tls.replace(&tls_of(&new, &old));
    reconnect(&server, &client, Some(&|| drop(write("ca.pem", &new.pem)))).await;

    tls.replace(&tls_of(&new, &new));
    reconnect(&server, &client, Some(&|| drop(write_client(&new)))).await;

    // While a file is half written or missing, the last valid text stays in use.
    write("ca.pem", "-----BEGIN CERTIFICATE-----\n");
    reconnect(&server, &client, None).await;
    fs::remove_file(roots).unwrap();
    reconnect(&server, &client, None).await;
    assert_eq!(session_id(&client), session);
    client.close().await.unwrap();
}

/// The number of threads that read TLS files.
#[cfg(target_os = "linux")]
fn readers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "docent-tls").count()
}

/// A file system that does not respond costs one attempt, and one thread.
// Case (Found in docent itself): a file of certificates that blocked (a hung mount) stopped the
// runtime's thread at each attempt, and cost the session.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_blocks_holds_up_neither_the_runtime_nor_the_session() {
    let (authority, server) = embedded().await;
    let files = TemporaryDirectory::new("tls").unwrap();
    let roots = files.write("ca.pem", &authority.pem).unwrap();
    let tls = TlsOptions::new().with_roots_file(&roots).build().unwrap();
    let config = Config::new(&server.connect_string()).unwrap();
    let config = config.with_session_timeout(Duration::from_secs(60)).with_transport(tls);
    let client = config.with_connection_timeout(Duration::from_secs(6)).connect().await.unwrap();
    let session = session_id(&client);

    fs::remove_file(&roots).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(&roots).status().unwrap();
    assert!(fifo.success());
    // The server is a task of this thread too, so a blocked thread would stop it. Not even the first attempt fails.
    let attempts = client.metrics().attempts;
    for _ in 0..3 {
        reconnect(&server, &client, None).await;
    }
    assert_eq!(client.metrics().attempts, attempts + 3);
    assert_eq!(session_id(&client), session);
    // Other tests read files too, but only briefly.
    until("one reader", async || readers() == 1).await;

    // Once the blocked read ends, the next connection uses its result.
    let other = Authority::named("another CA");
    let pem = other.pem.clone();
    tokio::task::spawn_blocking(move || fs::write(&roots, pem)).await.unwrap().unwrap();
    until("no reader", async || readers() == 0).await;
    let (attempts, connections) = (client.metrics().attempts, client.metrics().connections);
    server.cut_connections();
    until("attempts", async || client.metrics().attempts > attempts + 1).await;
    assert_eq!(client.metrics().connections, connections);
}

/// The revocation list of an authority, with these serial numbers.
fn crl(authority: &Authority, serials: &[u64]) -> String {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2020, 2, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(&authority.issuer).unwrap().pem().unwrap()
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_and_so_is_one_without_a_list() {
    let authority = Authority::named("tests of docent");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(42));
    let certificate = params.signed_by(&key, &authority.issuer).unwrap().pem();
    let tls = server::Tls::new(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let config = server::Config { tls: Some(tls), ..server::Config::default() };
    let server = TestingServer::start_with(config).await.unwrap();
    let with = |list: &str| {
        let tls = trust(&authority).with_crl(list.as_bytes()).build().unwrap();
        patient(&server.connect_string()).with_transport(tls)
    };
    with(&crl(&authority, &[41, 43])).connect().await.unwrap();
    let text = mismatch(with(&crl(&authority, &[41, 42]))).await;
    assert!(text.contains("the server's certificate is revoked"), "{text}");
    let text = mismatch(with(&crl(&Authority::named("a stranger"), &[]))).await;
    assert!(text.contains("no list of revoked certificates"), "{text}");

    // A revocation list that is replaced on the disk applies to the next connection.
    let files = TemporaryDirectory::new("tls").unwrap();
    let path = files.write("crl.pem", crl(&authority, &[])).unwrap();
    let tls = trust(&authority).with_crl_file(&path).build().unwrap();
    let config = patient(&server.connect_string()).with_transport(tls);
    let client = config.clone().connect().await.unwrap();
    fs::write(&path, crl(&authority, &[42])).unwrap();
    let text = mismatch(config).await;
    assert!(text.contains("the server's certificate is revoked"), "{text}");
    // An existing connection is kept.
    client.get_data("/").await.unwrap();
}

/// TLS with the program's own rustls configuration.
struct OwnTls(TlsConnector);

impl fmt::Debug for OwnTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnTls")
    }
}

impl Transport for OwnTls {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let name = ServerName::try_from("zk.example").unwrap();
            let stream = Tcp.connect(host, within).await?;
            Ok(Box::new(self.0.connect(name, stream).await?) as Box<dyn ByteStream>)
        })
    }
}

#[tokio::test]
async fn a_configuration_of_the_application_decides() {
    let authority = Authority::named("tests of docent");
    let identity = authority.identify("server", &["zk.example"]);
    let server = embedded_with(&certificate_of(&identity)).await;
    let trusting = |pem: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        patient(&server.connect_string())
            .with_transport(OwnTls(TlsConnector::from(Arc::new(config))))
    };
    trusting(&authority.pem).connect().await.unwrap();
    let other = Authority::named("others");
    let text = mismatch(trusting(&other.pem)).await;
    assert!(text.contains("UnknownIssuer"), "{text}");
}

/// A transport that counts its connections.
#[derive(Debug, Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Transport for Counted {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Tcp.connect(host, within)
    }
}

#[tokio::test]
async fn tls_runs_over_another_transport() {
    let (authority, server) = embedded().await;
    let counted = Counted::default();
    let tls = trust(&authority).with_transport(counted.clone()).build().unwrap();
    patient(&server.connect_string()).with_transport(tls).connect().await.unwrap();
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    let seconds = Duration::from_secs;
    let with_probes = |probes| {
        let tcp = TcpOptions::new().with_keepalive(seconds(15), seconds(5), probes);
        trust(&authority).with_transport(tcp).build().unwrap()
    };
    let refused = patient(&server.connect_string()).with_transport(with_probes(0)).connect().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidConfig);
    let tls = with_probes(3);
    patient(&server.connect_string()).with_transport(tls).connect().await.unwrap();
}
