//! docent's locks send the same requests as Curator: the same operations, paths, flags, data and watches, in the
//! same order. Where they differ by design, the test states each difference.
//!
//! `../../data/curator-traces.txt` was recorded from Curator behind a proxy. Each scenario runs here with `lock_peer`,
//! or with locks in this process, behind the tap of `docent-testing`, with the same faults. The traces are compared
//! client by client.

mod differs;
mod equal;
mod equal_faults;
mod equal_sessions;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use crate::support::{
    DEADLINE, eventually,
    given_up_session::config_without_expiry,
    peer::{Peer, docent_program},
    pending_and_watches,
    real::{RealServer, is_real, server, unique_path},
};
use docent::{
    Client, Config,
    protocol::{EventType, OpCode},
    recipes::locks::{InterProcessMutex, InterProcessSemaphoreV2, LockOptions},
    session::retry::RetryNTimes,
};
use docent_testing::{
    TestingServer,
    tap::{CompareOptions, Difference, Record, Tap, TapClient, What, compare},
};
use tokio::{process::Command, sync::Mutex};
use xtask::Settings;

const TRACES: &str = include_str!("../../data/curator-traces.txt");

/// Defines the test of each scenario: its title, the verdict, the server, and the test function.
macro_rules! scenarios {
    ($($title:literal, $verdict:literal, $server:ident, $module:ident :: $scenario:ident;)*) => {
        /// The verdict on each recorded scenario. `docs/CURATOR.md` has the same table.
        const TABLE: &[(&str, &str)] = &[$(($title, $verdict)),*];

        $(
            #[tokio::test]
            async fn $scenario() {
                if let Some(scenario) = Scenario::start($title, ServerKind::$server).await {
                    $module::$scenario(scenario).await;
                }
            }
        )*
    };
}

scenarios! {
    "01-uncontended-missing-parents", "equal", Default, equal::scenario_01_missing_parents;
    "02-contended", "equal", Default, equal::scenario_02_contended;
    "03-timeout", "equal", Default, equal::scenario_03_timeouts;
    "04-same-instance-two-threads", "equal", Default, equal::scenario_04_two_owners_of_one_object;
    "05-create-reply-lost", "differs by design: a sync before a search", Default, equal_faults::scenario_05_the_reply_of_a_create_is_lost;
    "07-create-lost-twice", "differs by design: N1, a sync before a search", Default, differs::scenario_07_a_create_is_lost_twice;
    "08-retries-exhausted", "differs by design: a sync before a search", Default, equal_faults::scenario_08_the_retries_of_a_create_are_exhausted;
    "09-session-expired-during-create", "differs by design: a sync before a search", Default,
        equal_sessions::scenario_09_the_session_ends_during_a_create;
    "10-our-node-deleted-while-waiting", "equal", Default,
        equal_faults::scenario_10_our_node_is_deleted_while_waiting;
    "11-nonode-policy-exhausted", "equal", Default, equal_faults::scenario_11_our_node_is_gone_and_no_retries;
    "12-interrupt-while-waiting", "differs by design: one delete, not two", Default,
        differs::scenario_12_a_waiter_is_cancelled;
    "13-revoke", "equal", Default, equal::scenario_13_a_revocation;
    "14-rw-downgrade", "equal", Default, equal::scenario_14_a_downgrade;
    "16-semaphore", "equal", Default, equal::scenario_16_a_semaphore;
    "17-release-while-down", "equal", Default, equal_faults::scenario_17_deletes_are_lost;
    "19-session-change-in-protected-find-namespace", "differs by design: N3, a sync before a search", NoExpiry,
        differs::scenario_19_a_node_of_another_session_in_a_namespace;
    "20-multilock", "differs by design: N5", Default, differs::scenario_20_a_multi_lock;
    "21-session-expires-while-holding", "equal", NoExpiry,
        equal_sessions::scenario_21_the_session_ends_while_holding;
    "22-session-expires-while-waiting", "differs by design: N2", NoExpiry,
        differs::scenario_22_the_session_ends_while_waiting;
    "24-parent-vanishes-between-mkdirs-and-create", "equal", Default,
        equal_faults::scenario_24_the_parent_vanishes_before_the_second_create;
    "25-close-while-waiting", "equal", Default, equal_sessions::scenario_25_a_client_closes_during_a_timed_wait;
    "26-create-nonode-then-loss-in-mkdirs", "differs by design: a sync before a search", Default,
        equal_faults::scenario_26_the_reply_of_a_container_is_lost;
    "29-find-then-loss-before-connected", "differs by design: a sync before a search", Default, equal_faults::scenario_29_the_search_is_lost_too;
    "30-revocable-data", "equal", Default, equal::scenario_30_the_data_of_a_revocable_lock;
    "32-close-while-waiting-untimed", "equal", Default,
        equal_sessions::scenario_32_a_client_closes_during_an_untimed_wait;
    "34-no-containers", "equal", Default, equal::scenario_34_no_containers;
    "35-server-side-expiry-while-holding-then-contend", "equal", Default,
        equal_sessions::scenario_35_the_server_ends_the_holders_session;
    "36-semaphore-interrupt", "differs by design: a checkWatches more", Default,
        differs::scenario_36_a_waiter_for_a_lease_is_cancelled;
    "37-create-session-expired-retries-exhausted", "differs by design: a sync before a search", Default,
        equal_sessions::scenario_37_the_server_ends_the_session_of_a_create;
    "38-contended-create-lost-then-other-holder", "differs by design: N1, a sync before a search", Default,
        differs::scenario_38_a_create_is_lost_twice_before_a_waiter;
    "40-upgrade", "equal", Default, equal::scenario_40_an_upgrade;
    "41-timeout-then-release-by-other-thread-removes-watch", "equal", Default,
        equal::scenario_41_an_abandoned_watch;
    "43-fresh-client-first-create-session0", "equal", Default,
        equal_sessions::scenario_43_the_first_create_of_a_client;
    "45-three-threads-same-instance", "equal", Default, equal::scenario_45_three_owners_of_one_object;
    "46-event-types", "equal", Default, equal::scenario_46_check_watches;
    "47-semaphore-lease-create-lost-twice", "differs by design: N1, a sync before a search", Default,
        differs::scenario_47_the_create_of_a_lease_is_lost_twice;
    "48-foreign-child", "differs by design: N7", Default, differs::scenario_48_foreign_children;
    "50-timed-acquire-during-disconnect", "differs by design: N8, a sync before a search", Default,
        differs::scenario_50_a_timed_acquire_without_a_connection;
    "51-release-by-other-thread", "equal", Default, equal::scenario_51_a_release_without_the_lock;
    "53-double-hold-old-session-node", "differs by design: N2", NoExpiry,
        differs::scenario_53_two_holders_after_an_expiry;
    "54-simulated-expiry-timer", "equal", Default, equal_sessions::scenario_54_the_client_gives_up_its_session;
    "55-root-path", "differs by design: N10", Default, differs::scenario_55_the_root;
    "57-guaranteed-delete-norwait-policy0", "equal", Default,
        equal_faults::scenario_57_deletes_are_lost_without_retries;
    "58-interrupt-during-create", "differs by design: a sync before a search", Default, equal_faults::scenario_58_cancelled_during_the_create;
}

#[test]
fn every_recorded_scenario_has_a_test() {
    let recorded: Vec<_> = TRACES.lines().filter_map(|line| line.strip_prefix("=== ")).collect();
    let tested: Vec<_> = TABLE.iter().map(|(scenario, _)| *scenario).collect();
    assert_eq!(tested, recorded);
    let docs = include_str!("../../../docs/CURATOR.md");
    for (scenario, verdict) in TABLE {
        println!("{scenario:<60} {verdict}");
        assert!(
            docs.contains(&format!("| {scenario} | {verdict} |")),
            "not in CURATOR.md: {scenario}"
        );
    }
}

/// The server of a scenario.
#[derive(Debug, Clone, Copy)]
enum ServerKind {
    /// The embedded or real server of this run, which does not remove empty containers. The real server of other tests
    /// removes them at once, which on a busy machine can happen during a scenario.
    Default,
    /// An embedded server that expires no session by itself: the client gives up a session that the server keeps.
    NoExpiry,
}

/// A scenario: the tap of its clients, and the path that replaces the recorded one.
struct Scenario {
    tap: Tap,
    server: String,
    expected: String,
    expected_root: String,
    root: String,
    /// Whether it contains searches by GUID. A `sync` precedes each, which Curator does not send.
    searches: bool,
    /// Kept alive with the scenario.
    _real: Option<Arc<RealServer>>,
    embedded: Option<TestingServer>,
}

/// A lock peer, its client of the tap, and the handle of its lock.
struct TappedPeer {
    peer: Peer,
    handle: String,
    /// The peer's port: closed when this is dropped.
    tap: TapClient,
}

/// A real server that does not remove empty containers, shared by all concurrent scenarios.
async fn server_without_reaper() -> Option<Arc<RealServer>> {
    static SHARED: Mutex<Weak<RealServer>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let never = ("znode.container.checkIntervalMs".into(), "3600000".into());
    let settings = Settings { properties: vec![never], ..Settings::default() };
    let server = Arc::new(RealServer::start_with(settings).await?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

impl Scenario {
    /// `None` if a prerequisite is missing; the test is then counted as skipped.
    async fn start(title: &'static str, stage: ServerKind) -> Option<Self> {
        let (mut real, mut embedded) = (None, None);
        let server = match stage {
            ServerKind::Default if is_real() => {
                real = Some(server_without_reaper().await?);
                real.as_ref().map(|server| server.connect())?
            }
            ServerKind::Default => server(),
            ServerKind::NoExpiry => {
                let config = config_without_expiry();
                embedded = Some(TestingServer::start_with(config).await.unwrap());
                embedded.as_ref().map(TestingServer::connect_string)?
            }
        };
        let number = title.split('-').next()?;
        Some(Self {
            tap: Tap::start(&server).await.unwrap(),
            server,
            expected: section(title),
            expected_root: format!("/s{number}"),
            // One component, as in the traces: the number of missing parents is part of the scenario.
            root: unique_path(number).replace('/', "-").replacen('-', "/", 1),
            searches: false,
            _real: real,
            embedded,
        })
    }

    async fn peers<const N: usize>(&self, labels: [&str; N]) -> [TappedPeer; N] {
        let mut peers = Vec::new();
        for label in labels {
            peers.push(self.peer_with(label, 3, &[]).await);
        }
        peers.try_into().unwrap_or_else(|_| unreachable!("as many as there are labels"))
    }

    /// A peer with this number of retries and these environment variables.
    async fn peer_with(&self, label: &str, retries: u32, env: &[(&str, &str)]) -> TappedPeer {
        let client = self.tap.client(label).await.unwrap();
        let mut command = Command::new(docent_program());
        command.envs(env.iter().copied()).args([
            client.connect_string().as_str(),
            "20000",
            &retries.to_string(),
        ]);
        let peer = Peer::spawn(label, command);
        peer.event("ready").await;
        TappedPeer { peer, handle: format!("mutex:{}", self.root), tap: client }
    }

    /// A client in this process.
    async fn client(&self, label: &str) -> (Client, TapClient) {
        self.client_with(label, Duration::from_secs(20)).await
    }

    async fn client_with(&self, label: &str, session_timeout: Duration) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap.connect_string())
            .unwrap()
            .with_session_timeout(session_timeout)
            .with_connection_timeout(DEADLINE);
        (config.connect().await.unwrap(), tap)
    }

    /// A client that the tap does not record.
    async fn operator(&self) -> Client {
        Client::connect(&self.server).await.unwrap()
    }

    fn mutex(&self, client: &Client) -> InterProcessMutex {
        InterProcessMutex::with_options(client, &self.root, options()).unwrap()
    }

    fn semaphore(&self, client: &Client, leases: usize) -> InterProcessSemaphoreV2 {
        InterProcessSemaphoreV2::with_options(client, &self.root, leases, options()).unwrap()
    }

    async fn operator_deletes_the_youngest(&self) {
        let operator = self.operator().await;
        let children = operator.get_children(&self.root).await.unwrap().to_vec();
        let number = |name: &&String| name.rsplit('-').next().map(str::to_owned);
        let youngest = children.iter().max_by_key(number).unwrap();
        operator.delete(&format!("{}/{youngest}", self.root), None).await.unwrap();
        operator.close().await.unwrap();
    }

    async fn wait_for(&self, wanted: impl FnMut(&Record) -> bool + Send) {
        self.tap.wait_for(DEADLINE, wanted).await.unwrap();
    }

    /// Waits for the `nth` matching record; 1 is the first.
    async fn wait_for_nth(&self, nth: usize, mut wanted: impl FnMut(&Record) -> bool + Send) {
        let mut left = nth;
        let counted = |record: &Record| {
            left -= usize::from(wanted(record));
            left == 0
        };
        self.tap.wait_for(DEADLINE, counted).await.unwrap();
    }

    /// Waits for the `nth` reply to an operation of this client.
    async fn wait_for_reply(&self, label: &str, nth: usize, op: OpCode) {
        self.wait_for_nth(nth, |record| &*record.client == label && record.is_reply(op)).await;
    }

    /// Waits until this client has deleted `nth` nodes.
    async fn wait_for_deleted(&self, label: &str, nth: usize) {
        let is_done =
            |record: &Record| matches!(record.what, What::Reply { err, .. } if err.is_ok());
        let wanted = |r: &Record| &*r.client == label && r.is_reply(OpCode::Delete) && is_done(r);
        self.wait_for_nth(nth, wanted).await;
    }

    /// Waits until this client watches the node ahead.
    async fn wait_for_waiter(&self, label: &str) {
        self.wait_for_reply(label, 1, OpCode::GetData).await;
    }

    /// Waits until a client has no pending request and this number of watches: the tap sees a reply before the client,
    /// and the client before the task that waits for it.
    async fn wait_until_settled(&self, client: &Client, watches: usize) {
        let settled = async || (pending_and_watches(client) == (0, watches)).then_some(());
        eventually("no request, and the expected number of watches", settled).await;
        // The task was woken before this one.
        tokio::task::yield_now().await;
    }

    async fn close<const N: usize>(&self, peers: [TappedPeer; N]) {
        for peer in peers {
            peer.peer.close().await;
        }
    }

    fn compare_with(&self, expected: &str) -> Result<(), Difference> {
        let mut options = CompareOptions::default().roots(&self.expected_root, &self.root);
        let mut actual = self.tap.trace().text();
        if self.searches {
            options = options.without("sync");
            actual = without_settling_deletes(&actual);
        }
        compare(expected, &actual, &options)
    }

    /// Checks that a `sync` precedes each search by GUID in the foreground, and ignores it in the comparison, as well as
    /// the write before a search in the background: the recording has neither.
    fn with_synced_searches(mut self) -> Self {
        let (mut before, mut syncs) = (None, 0);
        for record in self.tap.trace().iter().filter(|record| record.op().is_some()) {
            let sync = record.is_request(OpCode::Sync).then(|| record.client.clone());
            syncs += usize::from(sync.is_some());
            // A search in the foreground is getChildren, which no other step sends.
            if record.is_request(OpCode::GetChildren) {
                assert_eq!(before, Some(record.client.clone()), "{}", self.tap.trace().text());
            }
            before = sync;
        }
        let settling =
            self.tap.trace().text() != without_settling_deletes(&self.tap.trace().text());
        assert!(syncs > 0 || settling, "no search");
        self.searches = true;
        self
    }

    fn assert_equal(&self) {
        if let Err(difference) = self.compare_with(&self.expected) {
            panic!("{difference}\n\nactual trace:\n{}", self.tap.trace().text());
        }
    }

    /// Checks that the trace is Curator's except for these differences: Curator's lines, and the lines that replace them.
    fn assert_differs(mut self, differences: &[(&str, &str)]) {
        assert!(self.compare_with(&self.expected).is_err(), "no difference");
        for (curators, ours) in differences {
            self.replace_lines(curators, ours);
        }
        self.assert_equal();
    }

    /// Replaces lines that occur once. Comments are ignored.
    fn replace_lines(&mut self, curators: &str, ours: &str) {
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            lines.filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        let (mut trace, curators) = (lines(&self.expected), lines(curators));
        let same = |at: &usize| trace.iter().skip(*at).zip(&curators).all(|(a, b)| a == b);
        let places: Vec<_> = (0..=trace.len() - curators.len()).filter(same).collect();
        let [at] = places.as_slice() else { panic!("{places:?}: {curators:?}") };
        trace.splice(*at..at + curators.len(), lines(ours));
        self.expected = trace.join("\n");
    }

    /// Cuts the lines between the first that contains `after` and the next that contains `before`.
    fn cut_lines(&mut self, after: &str, before: &str) {
        let mut lines = self.expected.lines();
        let mut kept: Vec<&str> = Vec::new();
        for line in lines.by_ref() {
            kept.push(line);
            if line.contains(after) {
                break;
            }
        }
        kept.extend(lines.skip_while(|line| !line.contains(before)));
        self.expected = kept.join("\n");
    }
}

/// Removes the deletes of a GUID without a name, and their replies: the write before a search in the background.
fn without_settling_deletes(trace: &str) -> String {
    let (mut kept, mut unanswered) = (Vec::new(), Vec::new());
    for line in trace.lines() {
        let client = line.split(' ').next().unwrap_or_default();
        let settles = line.contains(" -> delete(2) ") && line.ends_with("- v=-1");
        if settles {
            unanswered.push(client);
            continue;
        }
        let answered = line.ends_with(" <- delete NONODE");
        if answered && let Some(at) = unanswered.iter().position(|of| *of == client) {
            unanswered.swap_remove(at);
            continue;
        }
        kept.push(line);
    }
    kept.join("\n")
}

impl TappedPeer {
    async fn acquire(&self) {
        self.acquire_at(&self.handle).await;
    }

    async fn release(&self) {
        self.release_at(&self.handle).await;
    }

    async fn acquire_at(&self, handle: &str) {
        self.peer.ask(format!("acquire {handle}")).await.ok();
    }

    async fn release_at(&self, handle: &str) {
        self.peer.ask(format!("release {handle}")).await.ok();
    }

    /// Starts to acquire the lock, which another client holds.
    fn send_acquire(&self) -> crate::support::peer::Answer {
        self.peer.send(format!("acquire {}", self.handle))
    }
}

/// One scenario of the recording.
fn section(title: &str) -> String {
    let start = format!("=== {title}\n");
    let (_, rest) = TRACES.split_once(&start).unwrap_or_else(|| panic!("no scenario {title}"));
    rest.split("\n=== ").next().unwrap_or_default().to_owned()
}

fn is_event(record: &Record, wanted: EventType) -> bool {
    record.path().is_some_and(|path| record.is_event(wanted, path))
}

fn policy() -> RetryNTimes {
    RetryNTimes::new(3, Duration::from_millis(100))
}

fn options() -> LockOptions {
    LockOptions::default().with_retry_policy(policy()).with_default_data("10.0.0.1")
}

/// A timeout that elapses only after the expected records, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
