//! The environment of the tests. Each has a separate realm and a separate process, because the
//! Kerberos library takes its settings from environment variables.

use std::{
    env, fs,
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use docent_gssapi::{Gssapi, GssapiError, GssapiErrorKind};
use docent_session::{Client, Config, Error};
use docent_tests::real;
pub(crate) use docent_tests::{DEADLINE, eventually, within_deadline};
use tokio::task::spawn_blocking;
use xtask::{Java, Kdc, REALM, Server, Settings, TemporaryDirectory};

/// The variable with the directory of the realm, set in the process of a test.
const DIRECTORY: &str = "DOCENT_KERBEROS_DIRECTORY";

/// Defines tests. Each runs in a separate process with the environment of its realm and this kind of
/// credential cache: `FILE` for one principal, `DIR` for several.
macro_rules! in_realms {
    ($cache:literal; $($(#[$attribute:meta])* async fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            let test = concat!(module_path!(), "::", stringify!($name));
            crate::support::run(test, $cache, async |$place: crate::support::Place| $body);
        }
    )*};
}
pub(crate) use in_realms;

/// Runs a test: here, if this process was started for it, or else in a new process.
pub(crate) fn run(test: &str, cache: &str, body: impl AsyncFnOnce(Place)) {
    if let Some(directory) = env::var_os(DIRECTORY) {
        thread::spawn(end_with_parent);
        // A single thread, so that a call that blocks it is noticed: it would hold up everything.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(body(Place(directory.into())));
        drop(runtime);
        return wait_for_steps();
    }
    let (_, name) = test.split_once("::").unwrap();
    let java = env::var_os("DOCENT_TEST_CURATOR_CLASSPATH");
    let missing = match (Kdc::find(), java) {
        (Ok(()), Some(_)) => None,
        (Err(missing), _) => Some(missing.to_string()),
        (Ok(()), None) => Some("DOCENT_TEST_CURATOR_CLASSPATH not set".to_owned()),
    };
    if let Some(missing) = missing {
        return real::skip(&format!("no Kerberos: {missing} (`cargo xtask test` provides it)"));
    }
    let directory = TemporaryDirectory::new("kerberos").unwrap();
    let child = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory.path())
        .envs(Kdc::environment(directory.path()))
        .env("KRB5CCNAME", format!("{cache}:{}", directory.path().join("cache").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = wait(child);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "the process has run no test {name}:\n{out}");
}

/// Like `wait_with_output`, but keeps the process's standard input open, which is how it notices the end of its parent.
fn wait(mut child: std::process::Child) -> std::process::Output {
    let _input = child.stdin.take();
    child.wait_with_output().unwrap()
}

/// Waits for the steps in progress on other threads. When the process exits, the locks of the Kerberos library are
/// destroyed, and a step that takes one of them would abort the process.
fn wait_for_steps() {
    let is_step = |task: fs::DirEntry| {
        // A thread that has just ended has no name.
        fs::read_to_string(task.path().join("comm"))
            .is_ok_and(|name| name.trim() == "docent-blocking")
    };
    let begin = Instant::now();
    while fs::read_dir("/proc/self/task").unwrap().flatten().any(is_step) {
        assert!(begin.elapsed() < DEADLINE, "a step of Kerberos does not end");
        // Its time belongs to other tests.
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends this process when its parent ends.
fn end_with_parent() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(1);
}

/// The directory in which a realm can be created.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A realm with the principals `app` (in the client's keytab) and `zookeeper/localhost`.
    pub(crate) fn realm(self) -> Realm {
        self.realm_behind(None)
    }

    /// A realm whose clients, but not its servers, reach the KDC at another address.
    pub(crate) fn realm_behind(self, relay: Option<SocketAddr>) -> Realm {
        let kdc = Kdc::start(&self.0, relay).unwrap();
        kdc.add_principal("app", "client.keytab").unwrap();
        kdc.add_principal("zookeeper/localhost", "server.keytab").unwrap();
        Realm { kdc }
    }
}

/// A realm with its KDC.
pub(crate) struct Realm {
    pub(crate) kdc: Kdc,
}

impl Realm {
    /// A ZooKeeper server that accepts tickets of the realm.
    pub(crate) async fn server(&self) -> Server {
        let directory = self.kdc.directory();
        let login = format!(
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \
             useTicketCache=false keyTab=\"{}\" principal=\"zookeeper/localhost@{REALM}\"",
            directory.join("server.keytab").display()
        );
        self.server_with(&login).await
    }

    /// A ZooKeeper server with this login module.
    pub(crate) async fn server_with(&self, login: &str) -> Server {
        let directory = self.kdc.directory();
        let jaas = directory.join("server.jaas");
        fs::write(&jaas, format!("Server {{\n  {login};\n}};\n")).unwrap();
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        start_server(Settings {
            config: vec![line("authProvider.1", provider)],
            properties: vec![
                line("java.security.auth.login.config", &jaas.display().to_string()),
                line(
                    "java.security.krb5.conf",
                    &directory.join("server.conf").display().to_string(),
                ),
            ],
            ..Settings::default()
        })
        .await
    }

    /// Waits until the ticket in the client's credential cache has expired.
    pub(crate) async fn expiry(&self) {
        let is_valid = || self.kdc.run("klist", &["-s"]).is_ok();
        assert!(is_valid(), "no ticket");
        eventually("the expiry of the ticket", async || (!is_valid()).then_some(())).await;
    }
}

pub(crate) async fn start_server(settings: Settings) -> Server {
    let java = env::var_os("DOCENT_TEST_CURATOR_CLASSPATH").unwrap();
    let java = Java::with_class_path(java).unwrap();
    spawn_blocking(move || Server::start(&java, settings)).await.unwrap().unwrap()
}

/// Runs a blocking action on a server without blocking this thread.
pub(crate) async fn with_server(
    mut server: Server,
    action: fn(&mut Server) -> xtask::Result<()>,
) -> Server {
    spawn_blocking(move || {
        action(&mut server).unwrap();
        server
    })
    .await
    .unwrap()
}

pub(crate) async fn restart(server: Server) -> Server {
    with_server(with_server(server, Server::stop).await, Server::start_again).await
}

/// The configuration of a client that reaches its server by the name `localhost`.
pub(crate) fn config(address: SocketAddr) -> Config {
    Config::new(&format!("localhost:{}", address.port()))
        .unwrap()
        .with_session_timeout(DEADLINE)
        .with_connection_timeout(DEADLINE)
}

pub(crate) async fn connect(server: &Server, kerberos: Gssapi) -> Result<Client, Error> {
    let config = config(server.address()).with_sasl_mechanism(kerberos);
    within_deadline("a client", config.connect()).await
}

/// The user that the server has for the scheme `sasl` on a client's connection.
pub(crate) async fn sasl_user(client: &Client) -> Option<String> {
    let ids = within_deadline("the ids", client.who_am_i()).await.unwrap();
    ids.iter().find(|id| &*id.auth_scheme == "sasl").map(|id| id.user.to_string())
}

/// The kind of the Kerberos error that caused this error, with the text of both.
pub(crate) fn kind_of(error: &Error) -> (Option<GssapiErrorKind>, String) {
    let cause = GssapiError::of(error);
    (cause.map(GssapiError::kind), format!("{error} / {cause:?}"))
}
