//! TLS and mutual TLS, with a real server and with the embedded one.

use docent::{EnsembleTracker, ensemble::Reconfig, tls::Tls};
use rcgen::{BasicConstraints, IsCa};
use std::collections::BTreeSet;
use xtask::KeptPort;

use super::*;
use crate::support::ensemble::{self, configured, servers};

/// A server that speaks TLS, and its certificate authority.
pub(crate) struct Fixture {
    server: RealServer,
    _port: KeptPort,
    _files: TemporaryDirectory,
    pub(crate) authority: Authority,
    pub(crate) connect: String,
}

impl Fixture {
    /// `client_auth` is ZooKeeper's: `none`, `want`, `need`. `None` if there is no server, which is then reported.
    #[track_caller]
    pub(crate) fn start(client_auth: &str) -> impl Future<Output = Option<Self>> {
        let authority = Authority::named("tests of docent");
        let server = authority.identify("server", &["127.0.0.1"]);
        let files = TemporaryDirectory::new("tls").unwrap();
        let of_server = format!("{}{}", server.key, server.certificate);
        let key_store = files.write("server.pem", of_server).unwrap();
        let trust_store = files.write("ca.pem", &authority.pem).unwrap();
        let port = KeptPort::free().unwrap();
        let server = RealServer::start_with(settings(
            &[
                ("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
                ("secureClientPort", &port.address().port().to_string()),
                ("secureClientPortAddress", "127.0.0.1"),
                ("ssl.keyStore.location", key_store.to_str().unwrap()),
                ("ssl.keyStore.type", "PEM"),
                ("ssl.trustStore.location", trust_store.to_str().unwrap()),
                ("ssl.trustStore.type", "PEM"),
                ("ssl.clientAuth", client_auth),
                (
                    "authProvider.x509",
                    "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                ),
            ],
            &[],
        ));
        async move {
            let connect = port.address().to_string();
            Some(Self { server: server.await?, _port: port, _files: files, authority, connect })
        }
    }

    fn options(&self) -> TlsOptions {
        trust(&self.authority)
    }

    fn config(&self, tls: Tls) -> Config {
        Config::new(&self.connect).unwrap().with_transport(tls)
    }

    async fn connect(&self, tls: Tls) -> Result<Client, Error> {
        let config = self.config(tls).with_connection_timeout(crate::support::DEADLINE);
        within_deadline("a client", config.connect()).await
    }

    async fn refusal(&self, tls: Tls) -> String {
        refused(self.config(tls)).await.to_string()
    }
}

/// The error of a connection that the server has answered: a busy one answers none of the first attempts.
async fn refused(config: Config) -> Error {
    let config = config.with_connection_timeout(Duration::from_secs(4));
    eventually("a refusal", async || {
        let error = within_deadline("an error", config.clone().connect()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
        (!error.to_string().contains("the attempt timed out")).then_some(error)
    })
    .await
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_is_spoken_to() {
    let Some(fixture) = Fixture::start("none").await else { return };
    let client = fixture.connect(fixture.options().build().unwrap()).await.unwrap();
    // More than one TLS record each way.
    let large = vec![7; 200_000];
    client.create("/large", &large, CreateMode::Ephemeral).await.unwrap();
    assert_eq!(client.get_data("/large").await.unwrap().data, large);
    client.close().await.unwrap();

    let stranger = trust(&Authority::named("a stranger")).build().unwrap();
    let refusal = fixture.refusal(stranger).await;
    assert!(refusal.contains("UnknownIssuer"), "{refusal}");

    let error = refused(Config::new(&fixture.connect).unwrap()).await;
    let text = error.to_string();
    assert!(text.contains("does the port require TLS?") || error.is_tls_mismatch(), "{text}");

    let tls = fixture.options().build().unwrap();
    let wrong = Config::new(&fixture.server.connect()).unwrap().with_transport(tls);
    let text = refused(wrong).await.to_string();
    assert!(text.contains("TLS: ") && text.contains("is it a port without TLS?"), "{text}");
    assert!(!text.contains("serving"), "{text}");
}

// Case (Found in docent itself): a certificate that was not trusted was reported after the
// connection timeout, 15 s, and the text did not say what to do.
#[tokio::test]
async fn a_certificate_must_be_for_the_server_unless_one_says_otherwise() {
    let authority = Authority::named("tests of docent");
    let tls = certificate_of(&authority.identify("server", &["zk.example"]));
    let server = embedded_with(&tls).await;
    let config =
        |tls: TlsOptions| patient(&server.connect_string()).with_transport(tls.build().unwrap());
    let refusal = mismatch(config(trust(&authority))).await;
    assert!(refusal.contains("not valid for name"), "{refusal}");
    assert!(refusal.contains("set the name"), "{refusal}");
    config(trust(&authority).with_server_name("zk.example")).connect().await.unwrap();
    config(trust(&authority).without_name_verification()).connect().await.unwrap();
    // Every host name is accepted, but only certificates of a trusted authority.
    let stranger = trust(&Authority::named("a stranger")).without_name_verification();
    let refusal = mismatch(config(stranger)).await;
    let reason = "UnknownIssuer: the server's certificate is signed by none of the trusted roots";
    let roots = "(the trusted roots: those in PEM)";
    assert!(refusal.contains(&format!("{reason} {roots}")), "{refusal}");
}

#[tokio::test]
async fn a_client_certificate_is_an_identity() {
    let Some(fixture) = Fixture::start("need").await else { return };
    let refusal = fixture.refusal(fixture.options().build().unwrap()).await;
    assert!(refusal.contains("TLS: ") && !refusal.contains("serving"), "{refusal}");

    let alice = fixture.authority.identify("alice", &[]);
    let client = fixture.connect(trust_as(&fixture.authority, &alice)).await.unwrap();
    let ids = client.who_am_i().await.unwrap();
    assert!(ids.iter().any(|id| id.auth_scheme == "x509" && id.user == "CN=alice"), "{ids:?}");
    // The program of the cookbook and the operator that was ported to docent, run as users run them.
    examples_are_alice(&fixture.connect, &fixture.authority).await;
}

#[tokio::test]
async fn the_examples_speak_tls_with_the_embedded_server() {
    let (authority, server) = embedded_for_clients().await;
    examples_are_alice(&server.connect_string(), &authority).await;
}

async fn examples_are_alice(connect: &str, authority: &Authority) {
    let files = TemporaryDirectory::new("tls").unwrap();
    let alice = authority.identify("alice", &[]);
    let file = |name: &str, text: &str| files.write(name, text).unwrap();
    for (name, expected) in [
        ("tls", "the server knows this client as CN=alice\na node for this client alone: true\n"),
        ("znode_operator", "deleted 2: still there: false\n"),
    ] {
        let mut example = tokio::process::Command::new(xtask::example(name).unwrap());
        example
            .env("DOCENT_CONNECT", connect)
            .env("DOCENT_TLS_CA", file("roots.pem", &authority.pem))
            .env("DOCENT_TLS_CERT", file("alice.pem", &alice.certificate))
            .env("DOCENT_TLS_KEY", file("alice.key", &alice.key));
        let output = example.kill_on_drop(true).output();
        let output = within_deadline("the example", output).await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(text.ends_with(expected), "{name}: {text}{error}");
    }
}

pub(crate) async fn embedded_with(tls: &server::Tls) -> TestingServer {
    let tls = Some(tls.clone());
    TestingServer::start_with(server::Config { tls, ..server::Config::default() }).await.unwrap()
}

/// An authority, and an embedded server with a certificate of it.
pub(crate) async fn embedded() -> (Authority, TestingServer) {
    let authority = Authority::named("tests of docent");
    let server = embedded_with(&certificate_of(&authority.identify_server())).await;
    (authority, server)
}

/// An authority, and an embedded server with a certificate of it that requires such certificates of its clients.
pub(crate) async fn embedded_for_clients() -> (Authority, TestingServer) {
    let authority = Authority::named("tests of docent");
    let tls = with_client_roots(&authority, &authority.identify_server());
    let server = embedded_with(&tls).await;
    (authority, server)
}

pub(crate) fn certificate_of(identity: &Identity) -> server::Tls {
    server::Tls::new(identity.certificate.as_bytes(), identity.key.as_bytes()).unwrap()
}

pub(crate) fn with_client_roots(authority: &Authority, identity: &Identity) -> server::Tls {
    let (chain, key) = (identity.certificate.as_bytes(), identity.key.as_bytes());
    server::Tls::with_client_roots(chain, key, authority.pem.as_bytes()).unwrap()
}

pub(crate) fn trust(authority: &Authority) -> TlsOptions {
    TlsOptions::new().with_roots(authority.pem.as_bytes())
}

/// A client with a certificate that trusts an authority.
pub(crate) fn trust_as(authority: &Authority, identity: &Identity) -> Tls {
    let (chain, key) = (identity.certificate.as_bytes(), identity.key.as_bytes());
    trust(authority).with_client_certificate(chain, key).build().unwrap()
}

/// With a connection timeout far beyond any test's duration: errors of configuration must be reported at once.
pub(crate) fn patient(connect: &str) -> Config {
    Config::new(connect).unwrap().with_connection_timeout(Duration::from_secs(3600))
}

pub(crate) async fn mismatch(config: Config) -> String {
    let error = within_deadline("an error", config.connect()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    assert!(error.is_tls_mismatch() && error.is_retryable(), "{error}");
    assert!(!error.to_string().contains("serving"), "a question about another cause: {error}");
    let source = std::error::Error::source(&error);
    assert!(source.is_none_or(|source| source.is::<std::io::Error>()), "{source:?}");
    error.to_string()
}

#[tokio::test]
async fn the_embedded_server_speaks_tls() {
    let (authority, server) = embedded().await;
    let config = patient(&server.connect_string());
    let client = config.with_transport(trust(&authority).build().unwrap()).connect().await.unwrap();
    // More than one TLS record each way, and more than the buffers of a socket.
    let large = vec![7; 900_000];
    client.create("/large", &large, CreateMode::Ephemeral).await.unwrap();
    let reads = (0..8).map(|_| client.get_data("/large")).collect::<Vec<_>>();
    for read in reads {
        assert_eq!(within_deadline("the data", read).await.unwrap().data, large);
    }
    server.stop();
    server.restart().await.unwrap();
    client.wait_until_connected(Duration::from_secs(20)).await.unwrap();
    assert!(client.exists("/large").await.unwrap().is_some());
    client.close().await.unwrap();
    assert!(server.session_ids().is_empty());
}

#[tokio::test]
async fn a_stalled_server_continues_no_handshake() {
    let (authority, server) = embedded().await;
    server.stall();
    let tls = trust(&authority).build().unwrap();
    let config = Config::new(&server.connect_string()).unwrap();
    let config = config.with_transport(tls).with_connection_timeout(Duration::from_millis(100));
    let error = within_deadline("a timeout", config.clone().connect()).await.unwrap_err();
    assert!(!error.is_tls_mismatch(), "{error}");
    server.resume();
    config.with_connection_timeout(Duration::from_secs(20)).connect().await.unwrap();
}

#[tokio::test]
async fn the_embedded_server_requires_a_client_certificate_if_it_has_roots_for_them() {
    let (authority, server) = embedded_for_clients().await;
    let config = || patient(&server.connect_string());
    let with = |owner: &Authority| trust_as(&authority, &owner.identify("alice", &[]));
    config().with_transport(with(&authority)).connect().await.unwrap();
    let text = mismatch(config().with_transport(trust(&authority).build().unwrap())).await;
    assert!(text.contains("the server requires a client certificate"), "{text}");
    let stranger = with(&Authority::named("a stranger"));
    let text = mismatch(config().with_transport(stranger)).await;
    assert!(text.contains("the server requires a client certificate that it trusts"), "{text}");
}

/// `openssl req -x509` makes CA certificates by default.
#[tokio::test]
async fn a_ca_certificate_as_that_of_a_server_is_named() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let tls = server::Tls::new(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let server = embedded_with(&tls).await;
    let tls = TlsOptions::new().with_roots(pem.as_bytes()).build().unwrap();
    let text = mismatch(patient(&server.connect_string()).with_transport(tls)).await;
    assert!(text.contains("the server uses a CA's certificate"), "{text}");
}

/// Another server of the list has a valid certificate, or is not reachable yet.
#[tokio::test]
async fn one_bad_certificate_does_not_fail_a_client_with_other_servers() {
    let ((authority, good), (_, bad)) = (embedded().await, embedded().await);
    let servers = format!("{},{}", bad.connect_string(), good.connect_string());
    let config = || patient(&servers).with_transport(trust(&authority).build().unwrap());
    for seed in 0..4 {
        config().with_seed(seed).connect().await.unwrap();
    }
    good.stop();
    let waiting = tokio::spawn(config().connect());
    let tried = config().start().unwrap();
    until("attempts", async || tried.metrics().attempts > 3).await;
    assert!(!waiting.is_finished());
    good.restart().await.unwrap();
    within_deadline("a client", waiting).await.unwrap().unwrap();
}

/// A client that was connected before keeps trying: a certificate may be renewed.
#[tokio::test]
async fn a_certificate_that_is_replaced_ends_neither_sessions_nor_attempts() {
    let authority = Authority::named("tests of docent");
    let tls = certificate_of(&authority.identify_server());
    let server = embedded_with(&tls).await;
    let config = patient(&server.connect_string());
    let client = config.with_transport(trust(&authority).build().unwrap()).connect().await.unwrap();
    let session = session_id(&client);
    tls.replace(&certificate_of(&Authority::named("a stranger").identify_server()));
    client.get_data("/").await.unwrap();
    server.cut_connections();
    until("failed attempts", async || client.metrics().attempts > 3).await;
    tls.replace(&certificate_of(&authority.identify_server()));
    client.wait_until_connected(Duration::from_secs(20)).await.unwrap();
    assert_eq!(session_id(&client), session);
}

// Case (Found in docent itself): TLS on a port without it, and no TLS on a port with it, were "the
// server closed the connection".
// Case (Found in docent itself): the error of a connection of which one side alone speaks TLS, or whose client certificate
// is refused, asked whether the server does not serve.
#[tokio::test]
async fn a_port_with_or_without_tls_is_named() {
    let (authority, server) = embedded().await;
    let text = mismatch(patient(&server.connect_string())).await;
    assert!(text.contains("the server speaks TLS, and this client connects without TLS"), "{text}");

    let plain = TestingServer::start().await.unwrap();
    let config = Config::new(&plain.connect_string()).unwrap();
    let config = config.with_connection_timeout(Duration::from_secs(4));
    let tls = trust(&authority).build().unwrap();
    let error = config.with_transport(tls).connect().await.unwrap_err().to_string();
    assert!(error.contains("is it a port without TLS?"), "{error}");
}

/// Three members with TLS that may be changed.
async fn changeable(authority: &Authority, version: Version) -> TestingCluster {
    let tls = Some(certificate_of(&authority.identify_server()));
    let config = server::Config { tls, version, ..ensemble::changeable(3) };
    TestingCluster::start_with(config).await.unwrap()
}

/// An administrator that knows the leader alone, and its tracker.
async fn tracked(cluster: &TestingCluster, authority: &Authority) -> (Client, EnsembleTracker) {
    let leader = cluster.leader().unwrap();
    let config = patient(&ensemble::address(cluster, leader));
    let client = config.with_transport(trust(authority).build().unwrap()).connect().await.unwrap();
    client.add_auth("digest", b"super:test").await.unwrap();
    let tracker = EnsembleTracker::new(&client);
    (client, tracker)
}

// Case (Ensembles that change): an ensemble for TLS alone, whose addresses are those of the secure ports (ZOOKEEPER-4276).
#[tokio::test]
async fn a_tracker_with_tls_follows_the_secure_addresses() {
    let authority = Authority::named("tests of docent");
    let cluster = changeable(&authority, Version::V3_10).await;
    let leader = cluster.leader().unwrap();
    let (client, tracker) = tracked(&cluster, &authority).await;
    let addresses = |members: &[usize]| ensemble::addresses(&cluster, members);
    configured(&tracker, 0).await;
    assert_eq!(servers(&client), addresses(&[0, 1, 2]));

    let text = client.get_config().await.unwrap().data;
    let text = String::from_utf8_lossy(&text).into_owned();
    let other = (leader + 1) % 3;
    let line = text.lines().nth(other).unwrap();
    assert!(line.contains(":participant;;127.0.0.1:"), "no secure address alone: {text}");
    let id = (other + 1).to_string();
    let leaving = Reconfig::Incremental { joining: None, leaving: Some(&id) };
    configured(&tracker, client.reconfig(leaving, None).await.unwrap().stat.mzxid).await;
    assert_eq!(servers(&client), addresses(&[leader, (leader + 2) % 3]));
    let joining = Reconfig::Incremental { joining: Some(line), leaving: None };
    configured(&tracker, client.reconfig(joining, None).await.unwrap().stat.mzxid).await;
    assert_eq!(servers(&client), addresses(&[0, 1, 2]));
}

// Case (Found in docent itself): where a configuration had no secure address, as before 3.10, a tracker moved a client with TLS
// to the plain ports, where no server speaks TLS, and the client lost its session.
#[tokio::test]
async fn a_tracker_with_tls_follows_plain_addresses_only_if_their_port_is_in_use() {
    let authority = Authority::named("tests of docent");
    let cluster = changeable(&authority, Version::V3_9).await;
    let (client, tracker) = tracked(&cluster, &authority).await;
    // As with client.portUnification: the port of the client is that of the configuration.
    configured(&tracker, 0).await;
    let all: BTreeSet<_> = cluster.connect_string().split(',').map(ToOwned::to_owned).collect();
    assert_eq!(servers(&client), all);

    let text = client.get_config().await.unwrap().data;
    let text = String::from_utf8_lossy(&text).into_owned();
    let members = text.lines().filter_map(|line| line.split_once(';'));
    let plain: Vec<_> = members.map(|(server, _)| format!("{server};127.0.0.1:1")).collect();
    client.reconfig(Reconfig::Members(&plain.join(",")), None).await.unwrap();
    until("the tracker's next read", async || {
        let metrics = client.metrics();
        metrics.watches == 1 && metrics.pending == 0
    })
    .await;
    client.exists("/").await.unwrap();
    assert_eq!(servers(&client), all);
}

#[test]
fn bad_pem_is_named() {
    let authority = Authority::named("tests of docent");
    let roots = || trust(&authority);
    let alice = authority.identify("alice", &[]);
    let bob = authority.identify("bob", &[]);
    let chain = alice.certificate.as_bytes();
    for (options, part) in [
        (TlsOptions::new(), "the trusted roots: there is no certificate"),
        (TlsOptions::new().with_roots(b"rubbish"), "the trusted roots: there is no certificate"),
        (roots().with_client_certificate(b"", alice.key.as_bytes()), "the client certificate"),
        (roots().with_client_certificate(chain, b"rubbish"), "the client's private key"),
        (roots().with_client_certificate(chain, bob.key.as_bytes()), "the client certificate"),
        (roots().with_server_name("not a name"), "the server name \"not a name\""),
    ] {
        let error = options.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let authority = Authority::named("tests of docent");
    let alice = authority.identify("alice", &[]);
    let (chain, key) = (alice.certificate.as_bytes(), alice.key.as_bytes());
    let options = trust(&authority).with_client_certificate(chain, key);
    let shown = format!("{options:?} {:?}", options.clone().build().unwrap());
    assert!(!shown.contains("PRIVATE") && shown.len() < 300, "{shown}");
}
