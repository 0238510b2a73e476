//! What the errors of TLS say: which file, which command converts it, which side is wrong.

use ::tracing::Level;
use std::{path::Path, process::Command};

use super::*;
use crate::{
    support::traced::{Fields, Traced},
    tls::{embedded_with, mismatch},
};

/// Certificates and keys as files.
struct Files {
    directory: TemporaryDirectory,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            directory: TemporaryDirectory::new("tls").unwrap(),
            authority: Authority::named("tests of docent"),
        };
        let alice = files.authority.identify("alice", &["127.0.0.1"]);
        files.write("ca.pem", files.authority.pem.as_bytes());
        files.write("alice.pem", alice.certificate.as_bytes());
        files.write("alice.key", alice.key.as_bytes());
        files.write("bob.key", files.authority.identify("bob", &[]).key.as_bytes());
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        self.directory.write(name, bytes).unwrap()
    }

    /// Runs a command line in the directory.
    fn run(&self, line: &str) {
        let shell = ["-c", line];
        let output =
            Command::new("sh").args(shell).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn roots(&self) -> TlsOptions {
        TlsOptions::new().with_roots_file(self.path("ca.pem"))
    }

    fn client(&self, chain: &str, key: &str) -> TlsOptions {
        self.roots().with_client_certificate_files(self.path(chain), self.path(key))
    }

    /// The command in the error, with passwords for its questions.
    fn command(error: &str) -> String {
        let (_, rest) = error.split_once(", by `").unwrap_or_else(|| panic!("{error}"));
        let (command, _) = rest.split_once('`').unwrap();
        command.replace("NEW", "new.pem")
    }
}

fn error_of(options: TlsOptions) -> String {
    let error = options.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    error.to_string()
}

fn names(error: &str, path: &Path) {
    assert!(error.contains(path.to_str().unwrap()), "{error}");
}

/// PEM around bytes that are no certificate, list or key.
fn pem_of_rubbish(label: &str) -> String {
    format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n")
}

// Case (Found in docent itself): an invalid trusted root, an invalid list of revoked certificates, and a key of another
// certificate were reported without their files.
#[test]
fn an_error_of_a_file_has_its_name() {
    let files = Files::new();
    let root = files.write("root.pem", pem_of_rubbish("CERTIFICATE").as_bytes());
    let list = files.write("list.pem", pem_of_rubbish("X509 CRL").as_bytes());
    let key = files.write("rubbish.key", pem_of_rubbish("PRIVATE KEY").as_bytes());
    names(&error_of(TlsOptions::new().with_roots_file(&root)), &root);
    names(&error_of(files.roots().with_roots_file(&root)), &root);
    names(&error_of(files.roots().with_crl_file(&list)), &list);
    names(&error_of(files.client("alice.pem", "rubbish.key")), &key);
    let error = error_of(files.client("alice.pem", "bob.key"));
    names(&error, &files.path("alice.pem"));
    names(&error, &files.path("bob.key"));
    assert!(error.contains("does not belong to the client certificate"), "{error}");
}

/// The command in each error makes a file that is accepted. Needs openssl.
#[test]
fn a_file_in_another_format_is_converted_by_the_command_in_the_error() {
    if Command::new("openssl").arg("version").output().is_err() {
        return support::real::skip("openssl");
    }
    let files = Files::new();
    files.run("openssl pkcs8 -topk8 -in alice.key -passout pass:pw -out encrypted.key");
    let p12 =
        "openssl pkcs12 -export -in alice.pem -inkey alice.key -passout pass:pw -out alice.p12";
    files.run(p12);
    files.run("openssl x509 -in ca.pem -outform DER -out ca.der");
    files.run("openssl pkey -in alice.key -outform DER -out key.der");
    for (options, converted, password) in [
        (files.client("alice.pem", "encrypted.key"), files.client("alice.pem", "new.pem"), true),
        (files.client("alice.p12", "alice.p12"), files.client("new.pem", "new.pem"), true),
        (files.client("alice.pem", "key.der"), files.client("alice.pem", "new.pem"), false),
        (
            TlsOptions::new().with_roots_file(files.path("ca.der")),
            TlsOptions::new().with_roots_file(files.path("new.pem")),
            false,
        ),
    ] {
        let error = error_of(options);
        let password = if password { " -passin pass:pw" } else { "" };
        files.run(&format!("{}{password}", Files::command(&error)));
        converted.build().unwrap_or_else(|refused| panic!("{error}\n{refused}"));
    }
    files.write("alice.jks", b"\xFE\xED\xFE\xED\0\0\0\x02\0\0\0\0");
    let error = error_of(files.client("alice.jks", "alice.jks"));
    assert!(error.contains("keytool -importkeystore -srckeystore /"), "{error}");
}

// Case (Found in docent itself): a host whose name no certificate can have was tried until the time was up.
#[tokio::test]
async fn a_host_that_no_certificate_can_be_for_is_reported_at_once() {
    let authority = Authority::named("tests of docent");
    let config = patient("zk..example:2281").with_transport(trust(&authority).build().unwrap());
    let text = mismatch(config).await;
    assert!(text.contains("TLS: the host name \"zk..example\" is invalid in a cert"), "{text}");
    assert!(text.contains("set the name that the server's certificate is for"), "{text}");
}

/// Servers that close what they do not understand: Netty and NIO of ZooKeeper.
#[tokio::test]
async fn a_close_without_a_reply_is_asked_about_tls_in_both_directions() {
    let authority = Authority::named("tests of docent");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = listener.local_addr().unwrap().to_string();
    let closing = tokio::spawn(async move {
        loop {
            // Unread bytes make the system reset the connection, which a client sees as often as its end.
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
        }
    });
    let config = || Config::new(&connect).unwrap().with_connection_timeout(Duration::from_secs(1));
    let text = config().connect().await.unwrap_err().to_string();
    assert!(text.contains("does the port require TLS?"), "{text}");
    let tls = trust(&authority).build().unwrap();
    let text = config().with_transport(tls).connect().await.unwrap_err().to_string();
    assert!(text.contains("TLS: ") && text.contains("is it a port without TLS?"), "{text}");
    assert!(!text.contains("serving"), "{text}");
    closing.abort();
}

// Case (Found in docent itself): a server whose renewed certificate is not accepted was in the log at DEBUG alone.
#[tokio::test]
async fn a_certificate_that_is_refused_later_is_one_warning_for_each_outage() {
    let (warnings, _guard) = Traced::start(Level::WARN, "docent");
    let (authority, other) = (Authority::named("tests of docent"), Authority::named("others"));
    let certificate = |authority: &Authority| certificate_of(&authority.identify_server());
    let tls = certificate(&authority);
    let server = embedded_with(&tls).await;
    let config = patient(&server.connect_string()).with_session_timeout(Duration::from_secs(60));
    let config = config.with_transport(trust(&authority).build().unwrap());
    let client = config.connect().await.unwrap();
    for _ in ["the first outage", "the second"] {
        tls.replace(&certificate(&other));
        let (attempts, connections) = (client.metrics().attempts, client.metrics().connections);
        server.cut_connections();
        until("attempts", async || client.metrics().attempts > attempts + 3).await;
        let mut warnings = warnings.take();
        warnings.retain(|fields| fields.0.values().any(|text| text.contains("TLS: ")));
        let [Fields(warning)] = &warnings[..] else { panic!("{} warnings", warnings.len()) };
        assert!(warning.values().any(|text| text.contains("UnknownIssuer")), "{warning:?}");
        assert!(warning.contains_key("host"), "{warning:?}");
        tls.replace(&certificate(&authority));
        until("a connection", async || client.metrics().connections > connections).await;
    }
}
