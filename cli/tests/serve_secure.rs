//! `docent serve` with TLS and SASL, and commands that connect to it, with the text of each error.

use docent_tests::certificates::Authority;
use xtask::TemporaryDirectory;

use super::*;
use crate::{serve::serve, sessions::Typed};

/// A certificate of X.509 version 1, created by `openssl x509 -req -in csr.pem -signkey key.pem`.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBFTCBvQIUKwWjpAcenAbiNiLkMVneFrzOiXEwCgYIKoZIzj0EAwIwDTELMAkG\n\
A1UEAwwCdjEwIBcNMjYxMTIzMjEwNTQ1WhgPMjEyNjEwMzAyMTA1NDVaMA0xCzAJ\n\
BgNVBAMMAnYxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEXZkS3nebZly+mMVq\n\
jKKS4aHTcA/vPce97pPxUfHh4sNL8BxMq1Qrw5OG8e9gSttB0VZNyp7MDtm2Ls31\n\
ZXWDpTAKBggqhkjOPQQDAgNHADBEAiAf4GNz4jV12bCBp1fiBKzVQhdSrnVn7Xnp\n\
mLwxUrOBkwIgXGoAZr4W18sQWYlOJSeAKlOXUBNzgsrYEu+/9TgoUaQ=\n\
-----END CERTIFICATE-----\n";

/// A directory with `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`, `other.pem`, `other.key` and
/// `stranger.pem`, which is the root of another authority.
struct Files(TemporaryDirectory);

impl Files {
    fn new() -> Self {
        let files = Self(TemporaryDirectory::new("serve").unwrap());
        let authority = Authority::named("ca");
        files.write("ca.pem", &authority.pem);
        files.write("stranger.pem", &Authority::named("stranger").pem);
        for (name, names) in [("server", &["127.0.0.1"][..]), ("client", &[]), ("other", &[])] {
            let identity = authority.identify(name, names);
            files.write(&format!("{name}.pem"), &identity.certificate);
            files.write(&format!("{name}.key"), &identity.key);
        }
        files
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.path().join(name), text).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

/// A running `docent serve`, ended on drop.
struct Server {
    _running: Typed,
    connect: String,
}

impl Server {
    async fn start(options: &[&str]) -> Self {
        let (running, connect) = serve(options).await;
        Self { _running: running, connect }
    }

    /// Runs `docent get` with these options. Its connection timeout is longer than any test, so an error must end it.
    async fn get(&self, options: &[&str]) -> Ran {
        let all = [&["get", "--connect-timeout", "1h"], options, &["/"]].concat();
        run(&self.connect, &all).await
    }
}

/// A certificate is renewed while the server runs. As long as it does not match its key, it is not used.
#[tokio::test]
async fn renewed_certificates_are_served() {
    let (old, new) = (Files::new(), Files::new());
    let (cert, key) = (old.path("server.pem"), old.path("server.key"));
    let (old_ca, new_ca) = (old.path("ca.pem"), new.path("ca.pem"));
    let server = Server::start(&["--tls-cert", &cert, "--tls-key", &key]).await;
    server.get(&["--tls-ca", &old_ca]).await.ok();
    fs::copy(new.path("server.pem"), &cert).unwrap();
    server.get(&["--tls-ca", &old_ca]).await.ok();
    fs::copy(new.path("server.key"), &key).unwrap();
    let renewed = async { while server.get(&["--tls-ca", &new_ca]).await.code != Some(0) {} };
    within_deadline("the renewed certificate", renewed).await;
}

#[tokio::test]
async fn tls_is_served_and_each_mismatch_is_reported_at_once_with_its_remedy() {
    let files = Files::new();
    let (cert, key, ca) =
        (files.path("server.pem"), files.path("server.key"), files.path("ca.pem"));
    let server = Server::start(&["--servers", "3", "--tls-cert", &cert, "--tls-key", &key]).await;
    assert_eq!(server.connect.split(',').count(), 3);
    server.get(&["--tls-ca", &ca]).await.ok();
    server.get(&["--tls-ca", &files.path("stranger.pem")]).await.failed(69, "check --tls-ca");
    let other_name = ["--tls-ca", &ca, "--tls-server-name", "zk.example"];
    server.get(&other_name).await.failed(69, "--tls-server-name");
    server.get(&[]).await.failed(69, "connect with --tls-ca FILE");
    let locked = ["lock", "--connect-timeout", "1h", "/l", "--", "true"];
    run(&server.connect, &locked).await.failed(69, "connect with --tls-ca FILE");

    let plain = Server::start(&[]).await;
    let tls = ["get", "--connect-timeout", "4s", "--tls-ca", &ca, "/"];
    run(&plain.connect, &tls).await.failed(69, "is it a port without TLS?");
}

#[tokio::test]
async fn a_client_certificate_can_be_required() {
    let files = Files::new();
    let (cert, key, ca) =
        (files.path("server.pem"), files.path("server.key"), files.path("ca.pem"));
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let server = Server::start(&tls).await;
    let (client, client_key) = (files.path("client.pem"), files.path("client.key"));
    let options = ["--tls-ca", &ca, "--tls-cert", &client, "--tls-key", &client_key];
    server.get(&options).await.ok();
    server.get(&["--tls-ca", &ca]).await.failed(69, "requires a client certificate");

    // The certificate is the identity of the client.
    let (other, other_key) = (files.path("other.pem"), files.path("other.key"));
    let other = ["--tls-ca", &ca, "--tls-cert", &other, "--tls-key", &other_key];
    for acl in ["auth::cdrwa", "x509:CN=client:cdrwa"] {
        let create = [&["create", "--acl", acl], &options[..], &["/mine", "secret"]].concat();
        run(&server.connect, &create).await.ok();
        let get = async |options: &[&str]| {
            run(&server.connect, &[&["get"], options, &["/mine"]].concat()).await
        };
        assert_eq!(get(&options).await.ok(), "secret");
        get(&other).await.failed(77, "/mine");
        run(&server.connect, &[&["delete"], &options[..], &["/mine"]].concat()).await.ok();
    }
}

#[tokio::test]
async fn certificates_come_from_options_variables_or_the_file() {
    let files = Files::new();
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| files.path(name));
    let (server_cert, server_key) = (files.path("server.pem"), files.path("server.key"));
    let tls = ["--tls-cert", &server_cert, "--tls-key", &server_key, "--tls-client-ca", &ca];
    let server = Server::start(&tls).await;
    let options = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let named = [&options[..], &["--tls-server-name", "127.0.0.1"]].concat();
    server.get(&named).await.ok();
    let lock = [&["lock"], &named[..], &["/l", "--", "sh", "-c", "exit 3"]].concat();
    run(&server.connect, &lock).await.exited(3);
    let by_variables = docent(&server.connect, &["get", "/"])
        .env("DOCENT_TLS_CA", &ca)
        .env("DOCENT_TLS_CERT", &cert)
        .env("DOCENT_TLS_KEY", &key)
        .env("DOCENT_TLS_SERVER_NAME", "127.0.0.1")
        .output();
    Ran::from(within_deadline("get", by_variables).await.unwrap()).ok();
    let lines = format!(
        "connect = {:?}\n[tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}\nserver-name = '127.0.0.1'\n",
        server.connect
    );
    let config = files.write("config.toml", &lines);
    run("", &["get", "--config", &config, "/"]).await.ok();

    for (options, code, text) in [
        (&["--tls-ca", &key][..], 64, "no certificate in the PEM text"),
        (&["--tls-ca", &ca, "--tls-cert", &cert], 64, "must be given together"),
        (&["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &ca], 64, "private key"),
        (&["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", "/no/such"], 74, "/no/such"),
    ] {
        server.get(options).await.failed(code, text);
    }
}

/// On Linux, `SSL_CERT_FILE` replaces the platform's roots.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_roots_of_the_platform_are_trusted_if_asked() {
    let files = Files::new();
    let (cert, key) = (files.path("server.pem"), files.path("server.key"));
    let server = Server::start(&["--tls-cert", &cert, "--tls-key", &key]).await;
    let get_with = async |options: &[&str], roots: &str| -> Ran {
        let all = [&["get", "--tls-platform-roots"], options, &["/"]].concat();
        let mut command = docent(&server.connect, &all);
        command.env("SSL_CERT_FILE", files.path(roots)).env_remove("SSL_CERT_DIR");
        within_deadline("get", command.output()).await.unwrap().into()
    };
    let get = async |roots: &str| get_with(&[], roots).await;
    get("ca.pem").await.ok();
    get("stranger.pem").await.failed(69, "(the trusted roots: those of the platform)");
    // Only what has been loaded is named.
    files.write("none.pem", "");
    get("none.pem").await.failed(64, "the roots of the platform: ");
    let stranger = files.path("stranger.pem");
    let own = get_with(&["--tls-ca", &stranger], "none.pem").await;
    own.failed(69, &format!("those in {stranger}; the platform has none)"));
    get_with(&["--tls-ca", &stranger], "ca.pem").await.ok();
}

#[tokio::test]
async fn a_sasl_login_is_refused_with_its_remedy() {
    let files = Files::new();
    let users = files.write("users", "bob:bob's:password\n\neve:evepw\n");
    let server = Server::start(&["--sasl", &users, "--sasl-required"]).await;
    let bob = files.write("bob", "bob:bob's:password\n");
    server.get(&["--sasl", &bob]).await.ok();
    let wrong = files.write("wrong", "bob:other");
    let refused = server.get(&["--sasl", &wrong]).await;
    assert!(!refused.err.contains("other"), "{refused:?}");
    refused.failed(77, "check --sasl (or DOCENT_SASL)");
    server.get(&[]).await.failed(77, "check --sasl (or DOCENT_SASL)");
    // Set by the variable, and by the configuration file.
    let get = docent(&server.connect, &["get", "/"]).env("DOCENT_SASL", &bob).output();
    Ran::from(within_deadline("get", get).await.unwrap()).ok();
    let config = files.write("config.toml", "sasl = \"bob:bob's:password\"\n");
    server.get(&["--config", &config]).await.ok();
    // The file has more than one user, or none, or does not exist.
    server.get(&["--sasl", &users]).await.failed(64, "must have one USER:PASSWORD");
    let bad = files.write("bad", "bob\n");
    let refused = server.get(&["--sasl", &bad]).await;
    refused.failed(64, "bad:1: is not USER:PASSWORD");
    server.get(&["--sasl", "/no/such"]).await.failed(74, "/no/such");

    // If the server has no SASL, the client does not continue unauthenticated.
    let plain = Server::start(&[]).await;
    let with_sasl = ["get", "--connect-timeout", "4s", "--sasl", &bob, "/"];
    let refused = run(&plain.connect, &with_sasl).await;
    assert!(refused.code.is_some_and(|code| code >= 64), "{refused:?}");
    assert!(refused.err.contains("check --sasl (or DOCENT_SASL)"), "{refused:?}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_before_the_start() {
    let files = Files::new();
    let (cert, key) = (files.path("server.pem"), files.path("server.key"));
    let empty = files.write("empty", "\n");
    let old = files.write("old.pem", VERSION_1);
    let get = ["get", "--connect", "localhost", "--tls-ca", &cert, "/"];
    run("", &[&get[..], &["--tls-cert", &old, "--tls-key", &key]].concat()).await.failed(
        64,
        "X.509 version 1, which TLS does not accept; issue it again as version 3, by `openssl",
    );
    for (options, code, text) in [
        (&["--tls-cert", &old, "--tls-key", &key][..], 64, "X.509 version 1"),
        (&["--tls-cert", &cert], 64, "--tls-key"),
        (&["--tls-client-ca", &cert], 64, "--tls-cert"),
        (&["--tls-cert", &key, "--tls-key", &key], 64, "no certificate in the PEM text"),
        (&["--tls-cert", &cert, "--tls-key", &cert], 64, "the private key"),
        (&["--tls-cert", &cert, "--tls-key", &cert], 64, &format!("--tls-key {cert})")),
        (&["--tls-cert", "/no/such", "--tls-key", &key], 74, "/no/such"),
        (&["--sasl", "/no/such"], 74, "/no/such"),
        (&["--sasl", &empty], 64, "there is no USER:PASSWORD"),
        (&["--sasl-required"], 64, "--sasl"),
        (&["--servers", "0"], 64, "0"),
        (&["--servers", "3", "--read-only"], 64, "--read-only"),
        (&["--servers", "3", "--listen", "127.0.0.1:65534"], 71, ""),
    ] {
        run("", &[&["serve"], options].concat()).await.failed(code, text);
    }
}
