//! Real ZooKeeper servers: the one of this test run, and private ones that tests stop and kill.
//!
//! `cargo xtask test` sets the environment. Without it, a test that needs a server receives `None`, which is reported
//! and counted as a skip (`DOCENT_TEST_SKIPS`): the test must then return.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::env;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher};
use std::io::Write as _;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use tokio::task::spawn_blocking;
use xtask::{Ensemble, Java, Role, Server, Settings};

use super::eventually;

/// The connect string of the server of this test run, shared with every other test.
#[track_caller]
pub fn real_server() -> Option<String> {
    match env::var("DOCENT_TEST_CONNECT") {
        Ok(connect) => Some(connect),
        Err(_) => {
            skip("no real ZooKeeper (DOCENT_TEST_CONNECT; `cargo xtask test` sets it)");
            None
        }
    }
}

/// The connect string of a server: the real one of this run, or else one embedded in this test program,
/// shared by its tests. Tests that use it run with both.
pub fn server() -> String {
    static EMBEDDED: OnceLock<String> = OnceLock::new();
    match env::var("DOCENT_TEST_CONNECT") {
        Ok(connect) => connect,
        Err(_) => EMBEDDED.get_or_init(start_embedded).clone(),
    }
}

/// Whether [`server`] is a real one.
pub fn is_real() -> bool {
    env::var_os("DOCENT_TEST_CONNECT").is_some()
}

/// Runs on a thread of its own: the server must outlive the runtime of the test that needed it first.
fn start_embedded() -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // No empty container is removed: the removal, once a minute, would disturb the tests.
            let container_check_interval = std::time::Duration::from_secs(24 * 3600);
            let config =
                docent_testing::server::Config { container_check_interval, ..Default::default() };
            let server = docent_testing::TestingServer::start_with(config).await.unwrap();
            sender.send(server.connect_string()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().unwrap()
}

/// Java with Curator, for Java peers and private servers.
#[track_caller]
pub fn java() -> Option<Java> {
    match env::var_os("DOCENT_TEST_CURATOR_CLASSPATH") {
        Some(class_path) => Some(Java::with_class_path(class_path).expect("an installed JDK")),
        None => {
            skip("no Curator (DOCENT_TEST_CURATOR_CLASSPATH; `cargo xtask test` sets it)");
            None
        }
    }
}

/// Reports and counts that the current test is skipped.
#[track_caller]
pub fn skip(reason: &str) {
    /// A test that lacks two requirements is counted as one skipped test.
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

    let test = current_test();
    if !REPORTED.lock().unwrap().insert(test.clone()) {
        return;
    }
    // Not eprintln!, which is captured and dropped when a test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(file) = env::var_os("DOCENT_TEST_SKIPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        // One write, so that the lines of test programs that run at once stay whole.
        file.write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
    }
}

/// A path that no other test, run or machine uses: `/docent-test-…/STEM`.
///
/// Its parent is a separate node as well, so that a test can list the nodes left below it.
pub fn unique_path(stem: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);

    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().build_hasher().finish();
    format!("/docent-test-{}-{number}-{random:016x}/{stem}", std::process::id())
}

/// libtest names a test's thread after the test, unless it runs all tests in the main thread (`--test-threads=1`). Then
/// the name is the location of the call, which tests made by one macro share.
#[track_caller]
fn current_test() -> String {
    let program = env::args().next().unwrap_or_default();
    let program = program.rsplit(['/', '\\']).next().unwrap_or_default();
    let program = program.rsplit_once('-').map_or(program, |(name, _hash)| name);
    match thread::current().name() {
        Some(name) if name != "main" => format!("{program} {name}"),
        _ => format!("{program} {}", Location::caller()),
    }
}

/// The reply of a member to a four-letter word.
pub async fn four_letter_word(address: &str, word: &'static str) -> std::io::Result<String> {
    let address = address.parse().unwrap();
    spawn_blocking(move || xtask::four_letter_word(address, word)).await.unwrap()
}

/// A private ZooKeeper, to be stopped, killed and started again. Dropping it ends it.
pub struct RealServer {
    /// Absent only while another thread works on it.
    server: Option<Server>,
}

impl RealServer {
    /// A server with the usual settings; `None` (and a counted skip) without Java.
    #[track_caller]
    pub fn start() -> impl Future<Output = Option<Self>> {
        Self::start_with(Settings::default())
    }

    /// A server with other ticks, configuration or properties.
    #[track_caller]
    pub fn start_with(settings: Settings) -> impl Future<Output = Option<Self>> {
        let java = java();
        async move {
            let java = java?;
            let server = spawn_blocking(move || Server::start(&java, settings)).await.unwrap();
            Some(Self { server: Some(server.expect("a private ZooKeeper")) })
        }
    }

    /// `127.0.0.1:PORT`, the same after every restart.
    pub fn connect(&self) -> String {
        self.server().address().to_string()
    }

    /// The process id while it runs: for tests that freeze it.
    pub fn process_id(&self) -> Option<u32> {
        self.server().process_id()
    }

    /// Stops it; clients see their connections close. Data stay.
    pub async fn stop(&mut self) {
        self.with(Server::stop).await;
    }

    /// Kills it. Data stay: acknowledged writes were passed to the operating system.
    pub async fn kill(&mut self) {
        self.with(Server::kill).await;
    }

    /// Starts it again on the same port and data, and waits until it answers.
    pub async fn start_again(&mut self) {
        self.with(Server::start_again).await;
    }

    /// Stops it and starts it again.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    /// The reply to a four-letter word such as `ruok`, `srvr`, `cons` or `dump`.
    pub async fn four_letter_word(&self, word: &'static str) -> std::io::Result<String> {
        four_letter_word(&self.server().address().to_string(), word).await
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("a call on this server was dropped while it ran")
    }

    /// Runs an action on a thread for blocking work, because the peers' pipes must be read meanwhile.
    async fn with(&mut self, action: fn(&mut Server) -> xtask::Result<()>) {
        let mut server = self.server.take().expect("a call on this server was dropped");
        let (server, outcome) = spawn_blocking(move || {
            let outcome = action(&mut server);
            (server, outcome)
        })
        .await
        .unwrap();
        self.server = Some(server);
        outcome.expect("a private ZooKeeper");
    }
}

/// A private ensemble, whose members can be killed and started again. Dropping it ends it.
pub struct RealEnsemble {
    /// Absent only while another thread works on it.
    ensemble: Option<Ensemble>,
}

impl RealEnsemble {
    /// A serving ensemble of three; `None` (and a counted skip) without Java.
    #[track_caller]
    pub fn start() -> impl Future<Output = Option<Self>> {
        Self::start_with(Settings::default())
    }

    /// An ensemble whose members have additional configuration and properties.
    #[track_caller]
    pub fn start_with(more: Settings) -> impl Future<Output = Option<Self>> {
        Self::start_of(3, more)
    }

    /// An ensemble of another size.
    #[track_caller]
    pub fn start_of(size: usize, more: Settings) -> impl Future<Output = Option<Self>> {
        let java = java();
        async move {
            let java = java?;
            let start = move || Ensemble::start_with(&java, size, &more);
            let ensemble = spawn_blocking(start).await.unwrap();
            Some(Self { ensemble: Some(ensemble.expect("a private ensemble")) })
        }
    }

    /// `127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT`.
    pub fn connect(&self) -> String {
        self.ensemble().connect()
    }

    /// `127.0.0.1:PORT` of one member; they are numbered from 0.
    pub fn connect_to(&self, member: usize) -> String {
        self.ensemble().member(member).address().to_string()
    }

    /// The process id of a running member: for tests that freeze it.
    pub fn process_id(&self, member: usize) -> Option<u32> {
        self.ensemble().member(member).process_id()
    }

    /// The role that a member reports; `None` while it serves no clients.
    pub async fn role(&self, member: usize) -> Option<Role> {
        let address = self.ensemble().member(member).address();
        spawn_blocking(move || Role::of(address)).await.unwrap()
    }

    /// The member that leads, once there is one that also serves.
    pub async fn leader(&self) -> usize {
        eventually("a leader", async || {
            for member in 0..self.ensemble().size() {
                if self.role(member).await == Some(Role::Leader) {
                    return Some(member);
                }
            }
            None
        })
        .await
    }

    /// Kills a member.
    pub async fn kill(&mut self, member: usize) {
        self.with(move |ensemble| ensemble.member_mut(member).kill()).await;
    }

    /// Starts a member again and waits until it serves, which takes a majority.
    pub async fn start_again(&mut self, member: usize) {
        self.with(move |ensemble| ensemble.member_mut(member).start_again()).await;
    }

    fn ensemble(&self) -> &Ensemble {
        self.ensemble.as_ref().expect("a call on this ensemble was dropped while it ran")
    }

    async fn with(
        &mut self,
        action: impl FnOnce(&mut Ensemble) -> xtask::Result<()> + Send + 'static,
    ) {
        let mut ensemble = self.ensemble.take().expect("a call on this ensemble was dropped");
        let (ensemble, outcome) = spawn_blocking(move || {
            let outcome = action(&mut ensemble);
            (ensemble, outcome)
        })
        .await
        .unwrap();
        self.ensemble = Some(ensemble);
        outcome.expect("a private ensemble");
    }
}
