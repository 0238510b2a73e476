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
use std::time::Duration;

use docent_testing::{TestingServer, server};
use tokio::sync::{Semaphore, SemaphorePermit};
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
    // No empty container is removed: the removal, once a minute, would disturb the tests.
    let container_check_interval = Duration::from_secs(24 * 3600);
    let config = server::Config { container_check_interval, ..Default::default() };
    match env::var("DOCENT_TEST_CONNECT") {
        Ok(connect) => connect,
        Err(_) => EMBEDDED.get_or_init(|| start_embedded(config)).clone(),
    }
}

/// Whether [`server`] is a real one.
pub fn is_real() -> bool {
    env::var_os("DOCENT_TEST_CONNECT").is_some()
}

/// Starts an embedded server that ends with the process, and returns its connect string.
///
/// It has a thread of its own: it must outlive the runtime of the test that needed it first.
pub fn start_embedded(config: server::Config) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = TestingServer::start_with(config).await.unwrap();
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

/// Settings of a server: lines of its configuration, and Java properties.
pub fn settings(config: &[(&str, &str)], properties: &[(&str, &str)]) -> Settings {
    let owned = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let (config, properties) = (owned(config), owned(properties));
    Settings { config, properties, ..Settings::default() }
}

/// A process that is changed on a thread for blocking work, because the pipes of the peers must be read meanwhile.
struct Process<T>(Option<T>);

impl<T: Send + 'static> Process<T> {
    /// Starts it on a thread for blocking work.
    async fn start(start: impl FnOnce() -> xtask::Result<T> + Send + 'static) -> Self {
        Self(Some(spawn_blocking(start).await.unwrap().expect("a private ZooKeeper")))
    }

    fn get(&self) -> &T {
        self.0.as_ref().expect("a call on this server was dropped while it ran")
    }

    async fn with(&mut self, action: impl FnOnce(&mut T) -> xtask::Result<()> + Send + 'static) {
        let mut process = self.0.take().expect("a call on this server was dropped while it ran");
        let work = move || (action(&mut process), process);
        let (outcome, process) = spawn_blocking(work).await.unwrap();
        self.0 = Some(process);
        outcome.expect("a private ZooKeeper");
    }
}

/// A private ZooKeeper, to be stopped, killed and started again. Dropping it ends it.
pub struct RealServer(Process<Server>);

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
            Some(Self(Process::start(move || Server::start(&java, settings)).await))
        }
    }

    /// `127.0.0.1:PORT`, the same after every restart.
    pub fn connect(&self) -> String {
        self.0.get().address().to_string()
    }

    /// Kills it. Data stay: acknowledged writes were passed to the operating system.
    pub async fn kill(&mut self) {
        self.0.with(Server::kill).await;
    }

    /// Starts it again on the same port and data, and waits until it answers.
    pub async fn start_again(&mut self) {
        self.0.with(Server::start_again).await;
    }

    /// Stops it and starts it again; clients see their connections close.
    pub async fn restart(&mut self) {
        self.0.with(Server::stop).await;
        self.start_again().await;
    }
}

/// A server that can be stopped and started again with its nodes and sessions: a real one is killed.
pub enum Restartable {
    Embedded(TestingServer),
    Real(Box<RealServer>),
}

impl Restartable {
    pub fn connect(&self) -> String {
        match self {
            Self::Embedded(server) => server.connect_string(),
            Self::Real(server) => server.connect(),
        }
    }

    pub async fn stop(&mut self) {
        match self {
            Self::Embedded(server) => server.stop(),
            Self::Real(server) => server.kill().await,
        }
    }

    pub async fn restart(&mut self) {
        match self {
            Self::Embedded(server) => server.restart().await.unwrap(),
            Self::Real(server) => server.start_again().await,
        }
    }
}

/// A private ensemble, whose members can be killed and started again. Dropping it ends it.
pub struct RealEnsemble(Process<Ensemble>, #[expect(dead_code)] SemaphorePermit<'static>);

/// The ensembles of a test program that run at once: of more, busy members would lose their leaders.
static ENSEMBLES: Semaphore = Semaphore::const_new(2);

impl RealEnsemble {
    /// A serving ensemble of three; `None` (and a counted skip) without Java.
    #[track_caller]
    pub fn start() -> impl Future<Output = Option<Self>> {
        Self::start_of(3, Settings::default())
    }

    /// An ensemble of another size, whose members have additional configuration and properties.
    #[track_caller]
    pub fn start_of(size: usize, more: Settings) -> impl Future<Output = Option<Self>> {
        let java = java();
        async move {
            let java = java?;
            let permit = ENSEMBLES.acquire().await.unwrap();
            let start = move || Ensemble::start_with(&java, size, &more);
            Some(Self(Process::start(start).await, permit))
        }
    }

    /// `127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT`.
    pub fn connect(&self) -> String {
        self.0.get().connect()
    }

    /// `127.0.0.1:PORT` of one member; they are numbered from 0.
    pub fn connect_to(&self, member: usize) -> String {
        self.0.get().member(member).address().to_string()
    }

    /// The process id of a running member: for tests that freeze it.
    pub fn process_id(&self, member: usize) -> Option<u32> {
        self.0.get().member(member).process_id()
    }

    /// The role that a member reports; `None` while it serves no clients.
    pub async fn role(&self, member: usize) -> Option<Role> {
        let address = self.0.get().member(member).address();
        spawn_blocking(move || Role::of(address)).await.unwrap()
    }

    /// The member that leads, once there is one that also serves.
    pub async fn leader(&self) -> usize {
        eventually("a leader", async || {
            for member in 0..self.0.get().size() {
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
        self.0.with(move |ensemble| ensemble.member_mut(member).kill()).await;
    }

    /// Starts a member again and waits until it serves, which takes a majority.
    pub async fn start_again(&mut self, member: usize) {
        self.0.with(move |ensemble| ensemble.member_mut(member).start_again()).await;
    }
}
