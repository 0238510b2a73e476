//! What docent's locks send is what Curator sends: the same operations, paths, flags, data and watches, in the
//! same order; and where they differ by design, they differ by just what is said here.
//!
//! `../data/curator-traces.txt` was recorded from real Curator behind a proxy. Each scene is played here with
//! `lock_peer`, or with locks in this process, behind a proxy of ours, faults included, and compared client by
//! client.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy knows test functions, not what they call"
)]

#[path = "../support/mod.rs"]
mod support;

mod differs;
mod equal;
mod equal_faults;
mod equal_sessions;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use docent::{
    Client, Config, ConnectionState,
    protocol::{EventType, OpCode},
    recipes::locks::{InterProcessMutex, InterProcessSemaphoreV2, LockOptions},
    session::retry::RetryNTimes,
};
use docent_testing::{
    TestingServer,
    tap::{CompareOptions, Difference, Record, Tap, TapClient, compare},
};
use support::{
    DEADLINE, eventually,
    peer::{Peer, Side, docent_program},
    real::{RealServer, is_real, server, unique_path},
    within_deadline,
};
use tokio::{process::Command, sync::Mutex};
use xtask::Settings;

const TRACES: &str = include_str!("../data/curator-traces.txt");

/// Tells each scene: its title, what became of it, on which server it is played, and how.
macro_rules! scenes {
    ($($title:literal, $verdict:literal, $server:ident, $module:ident :: $scene:ident;)*) => {
        /// What became of each recorded scene. `docs/CURATOR.md` has the same table.
        const TABLE: &[(&str, &str)] = &[$(($title, $verdict)),*];

        $(
            #[tokio::test]
            async fn $scene() {
                if let Some(scene) = Scene::start($title, Stage::$server).await {
                    $module::$scene(scene).await;
                }
            }
        )*
    };
}

scenes! {
    "01-uncontended-missing-parents", "equal", Usual, equal::scene_01_missing_parents;
    "02-contended", "equal", Usual, equal::scene_02_contended;
    "03-timeout", "equal", Usual, equal::scene_03_timeouts;
    "04-same-instance-two-threads", "equal", Usual, equal::scene_04_two_owners_of_one_object;
    "05-create-reply-lost", "equal", Usual, equal_faults::scene_05_the_reply_of_a_create_is_lost;
    "07-create-lost-twice", "differs by design: N1", Usual, differs::scene_07_a_create_is_lost_twice;
    "08-retries-exhausted", "equal", Usual, equal_faults::scene_08_a_create_fails_for_good;
    "09-session-expired-during-create", "equal", Usual,
        equal_sessions::scene_09_the_session_ends_during_a_create;
    "10-our-node-deleted-while-waiting", "equal", Usual,
        equal_faults::scene_10_our_node_is_deleted_while_waiting;
    "11-nonode-policy-exhausted", "equal", Usual, equal_faults::scene_11_our_node_is_gone_and_no_retries;
    "12-interrupt-while-waiting", "differs by design: one delete, not two", Usual,
        differs::scene_12_a_waiter_gives_up;
    "13-revoke", "equal", Usual, equal::scene_13_a_revocation;
    "14-rw-downgrade", "equal", Usual, equal::scene_14_a_downgrade;
    "16-semaphore", "equal", Usual, equal::scene_16_a_semaphore;
    "17-release-while-down", "equal", Usual, equal_faults::scene_17_deletes_are_lost;
    "19-session-change-in-protected-find-namespace", "differs by design: N3", Kept,
        differs::scene_19_a_node_of_another_session_in_a_namespace;
    "20-multilock", "differs by design: N5", Usual, differs::scene_20_a_multi_lock;
    "21-session-expires-while-holding", "equal", Kept,
        equal_sessions::scene_21_the_session_ends_while_holding;
    "22-session-expires-while-waiting", "differs by design: N2", Kept,
        differs::scene_22_the_session_ends_while_waiting;
    "24-parent-vanishes-between-mkdirs-and-create", "equal", Usual,
        equal_faults::scene_24_the_parent_vanishes_before_the_second_create;
    "25-close-while-waiting", "equal", Usual, equal_sessions::scene_25_a_client_closes_while_it_waits;
    "26-create-nonode-then-loss-in-mkdirs", "equal", Usual,
        equal_faults::scene_26_the_reply_of_a_container_is_lost;
    "29-find-then-loss-before-connected", "equal", Usual, equal_faults::scene_29_the_search_is_lost_too;
    "30-revocable-data", "equal", Usual, equal::scene_30_the_data_of_a_revocable_lock;
    "32-close-while-waiting-untimed", "equal", Usual,
        equal_sessions::scene_32_a_client_closes_while_it_waits_without_end;
    "34-no-containers", "equal", Usual, equal::scene_34_no_containers;
    "35-server-side-expiry-while-holding-then-contend", "equal", Usual,
        equal_sessions::scene_35_the_server_ends_the_holders_session;
    "36-semaphore-interrupt", "differs by design: a checkWatches more", Usual,
        differs::scene_36_a_waiter_for_a_lease_gives_up;
    "37-create-session-expired-retries-exhausted", "equal", Usual,
        equal_sessions::scene_37_the_server_ends_the_session_of_a_create;
    "38-contended-create-lost-then-other-holder", "differs by design: N1", Usual,
        differs::scene_38_a_create_is_lost_twice_and_somebody_waits;
    "40-upgrade", "equal", Usual, equal::scene_40_an_upgrade;
    "41-timeout-then-release-by-other-thread-removes-watch", "equal", Usual,
        equal::scene_41_a_watch_that_nobody_waits_for;
    "43-fresh-client-first-create-session0", "equal", Usual,
        equal_sessions::scene_43_the_first_create_of_a_client;
    "45-three-threads-same-instance", "equal", Usual, equal::scene_45_three_owners_of_one_object;
    "46-event-types", "equal", Usual, equal::scene_46_a_watch_that_is_asked_about;
    "47-semaphore-lease-create-lost-twice", "differs by design: N1", Usual,
        differs::scene_47_the_create_of_a_lease_is_lost_twice;
    "48-foreign-child", "differs by design: N7", Usual, differs::scene_48_foreign_children;
    "50-timed-acquire-during-disconnect", "differs by design: N8", Usual,
        differs::scene_50_a_timed_acquire_without_a_connection;
    "51-release-by-other-thread", "equal", Usual, equal::scene_51_a_release_by_who_does_not_hold;
    "53-double-hold-old-session-node", "differs by design: N2", Kept,
        differs::scene_53_two_holders_after_an_expiry;
    "54-simulated-expiry-timer", "equal", Usual, equal_sessions::scene_54_the_client_gives_its_session_up;
    "55-root-path", "differs by design: N10", Usual, differs::scene_55_the_root;
    "57-guaranteed-delete-norwait-policy0", "equal", Usual,
        equal_faults::scene_57_deletes_are_lost_without_retries;
    "58-interrupt-during-create", "equal", Usual, equal_faults::scene_58_given_up_during_the_create;
}

#[test]
fn every_recorded_scene_is_accounted_for() {
    let recorded: Vec<_> = TRACES.lines().filter_map(|line| line.strip_prefix("=== ")).collect();
    let told: Vec<_> = TABLE.iter().map(|(scene, _)| *scene).collect();
    assert_eq!(told, recorded);
    let docs = include_str!("../../docs/CURATOR.md");
    for (scene, verdict) in TABLE {
        println!("{scene:<60} {verdict}");
        assert!(docs.contains(&format!("| {scene} | {verdict} |")), "not in CURATOR.md: {scene}");
    }
}

/// Where a scene is played.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// On a server of the run's kind that lets empty containers be: the real one of other tests removes them at
    /// once, and on a busy machine any scene has a pause in it.
    Usual,
    /// On an embedded server that ends no session by itself: the client gives up one that the server keeps.
    Kept,
}

/// A scene: clients behind a tap, and the path that stands for the trace's.
struct Scene {
    tap: Tap,
    server: String,
    expected: String,
    expected_root: String,
    root: String,
    /// They live as long as the scene.
    _real: Option<Arc<RealServer>>,
    embedded: Option<TestingServer>,
}

/// A lock peer and its side of the tap, and the lock that it is asked for.
struct Actor {
    peer: Peer,
    handle: String,
    /// The peer's port: closed when this is dropped.
    tap: TapClient,
}

/// A real server that lets empty containers be: one for all scenes that are played at the same time.
async fn unreaped() -> Option<Arc<RealServer>> {
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

impl Scene {
    /// `None` if something is missing, which is then told and counted.
    #[track_caller]
    fn start(title: &'static str, stage: Stage) -> impl Future<Output = Option<Self>> {
        let available = Side::Docent.is_available();
        async move {
            let (mut real, mut embedded) = (None, None);
            let server = match stage {
                Stage::Usual if is_real() => {
                    real = Some(unreaped().await?);
                    real.as_ref().map(|server| server.connect())?
                }
                Stage::Usual => server(),
                Stage::Kept => {
                    let config = docent_testing::server::Config {
                        // Sessions end at multiples of it.
                        tick_time: Duration::from_secs(3600),
                        min_session_timeout: Some(Duration::from_secs(1)),
                        ..Default::default()
                    };
                    embedded = Some(TestingServer::start_with(config).await.unwrap());
                    embedded.as_ref().map(TestingServer::connect_string)?
                }
            };
            let number = title.split('-').next().filter(|_| available)?;
            Some(Self {
                tap: Tap::start(&server).await.unwrap(),
                server,
                expected: section(title),
                expected_root: format!("/s{number}"),
                // One component, as in the traces: how many parents are missing is part of the scene.
                root: unique_path(number).replace('/', "-").replacen('-', "/", 1),
                _real: real,
                embedded,
            })
        }
    }

    // Who plays.

    async fn actors<const N: usize>(&self, labels: [&str; N]) -> [Actor; N] {
        let mut actors = Vec::new();
        for label in labels {
            actors.push(self.actor_with(label, 3, &[]).await);
        }
        actors.try_into().unwrap_or_else(|_| unreachable!("as many as there are labels"))
    }

    /// With so many retries, and things in its environment.
    async fn actor_with(&self, label: &str, retries: u32, env: &[(&str, &str)]) -> Actor {
        let client = self.tap.client(label).await.unwrap();
        let mut command = Command::new(docent_program().unwrap());
        command.env("LOCK_PEER_DATA", "10.0.0.1").envs(env.iter().copied()).args([
            client.connect_string().as_str(),
            "20000",
            &retries.to_string(),
        ]);
        let peer = Peer::spawn(label, command);
        peer.event("ready").await;
        Actor { peer, handle: format!("mutex:{}", self.root), tap: client }
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
        (Client::connect_with(config).await.unwrap(), tap)
    }

    /// A client that nobody records.
    async fn operator(&self) -> Client {
        Client::connect(&self.server).await.unwrap()
    }

    fn mutex(&self, client: &Client) -> InterProcessMutex {
        InterProcessMutex::with_options(client, &self.root, options()).unwrap()
    }

    fn semaphore(&self, client: &Client, leases: usize) -> InterProcessSemaphoreV2 {
        InterProcessSemaphoreV2::with_options(client, &self.root, leases, options()).unwrap()
    }

    // What happens to them.

    async fn operator_deletes_the_youngest(&self) {
        let operator = self.operator().await;
        let children = operator.get_children(&self.root).await.unwrap().to_vec();
        let number = |name: &&String| name.rsplit('-').next().map(str::to_owned);
        let youngest = children.iter().max_by_key(number).unwrap();
        operator.delete(&format!("{}/{youngest}", self.root), None).await.unwrap();
        operator.close().await.unwrap();
    }

    /// Keeps the client off until it has given its session up by its own clock. The server may still have it.
    async fn gives_up_its_session(&self, client: &Client, tap: &TapClient) {
        tap.refuse().await.unwrap();
        tap.cut();
        self.has_given_up(client, tap).await;
    }

    /// As [`gives_up_its_session`](Self::gives_up_its_session), where its port is closed already and something
    /// else cuts its connection.
    async fn has_given_up(&self, client: &Client, tap: &TapClient) {
        let mut state = client.state();
        let lost = state.wait_for(|state| *state == Some(ConnectionState::Lost));
        within_deadline("the loss", lost).await.unwrap();
        tap.accept().await.unwrap();
    }

    // What is waited for.

    async fn seen(&self, wanted: impl FnMut(&Record) -> bool + Send) {
        self.tap.wait_for(DEADLINE, wanted).await.unwrap();
    }

    /// Waits for the `nth` such record; 1 is the first.
    async fn seen_nth(&self, nth: usize, mut wanted: impl FnMut(&Record) -> bool + Send) {
        let mut left = nth;
        let counted = |record: &Record| {
            left -= usize::from(wanted(record));
            left == 0
        };
        self.tap.wait_for(DEADLINE, counted).await.unwrap();
    }

    /// Waits for the `nth` answer to somebody's operation.
    async fn answered(&self, label: &str, nth: usize, op: OpCode) {
        self.seen_nth(nth, |record| &*record.client == label && record.is_reply(op)).await;
    }

    /// Waits until somebody watches the node ahead.
    async fn waits(&self, label: &str) {
        self.answered(label, 1, OpCode::GetData).await;
    }

    /// Waits until a client has no request under way and so many watches: the tap sees an answer before the
    /// client does, and the client before the task that waits for it.
    async fn settled(&self, client: &Client, watches: usize) {
        let settled = async || (client.load() == (0, watches)).then_some(());
        eventually("no request, and so many watches", settled).await;
        // The task was woken before this one.
        tokio::task::yield_now().await;
    }

    // How it ends.

    async fn close<const N: usize>(&self, actors: [Actor; N]) {
        for actor in actors {
            actor.peer.close().await;
        }
    }

    fn compare_with(&self, expected: &str) -> Result<(), Difference> {
        let options = CompareOptions::default().roots(&self.expected_root, &self.root);
        compare(expected, &self.tap.trace().text(), &options)
    }

    fn assert_equal(&self) {
        if let Err(difference) = self.compare_with(&self.expected) {
            panic!("{difference}\n\nactual trace:\n{}", self.tap.trace().text());
        }
    }

    /// That the trace is Curator's but for these places: what is there, and what is here in its stead.
    fn assert_differs(mut self, places: &[(&str, &str)]) {
        assert!(self.compare_with(&self.expected).is_err(), "there is no difference");
        for (curators, ours) in places {
            self.instead_of(curators, ours);
        }
        self.assert_equal();
    }

    /// Puts something in the place of lines that occur once. Comments do not count.
    fn instead_of(&mut self, curators: &str, ours: &str) {
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
    fn cut(&mut self, after: &str, before: &str) {
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

impl Actor {
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

    /// Asks for the lock, which somebody else has.
    fn queues(&self) -> support::peer::Answer {
        self.peer.send(format!("acquire {}", self.handle))
    }
}

/// One scene of the recording.
fn section(title: &str) -> String {
    let start = format!("=== {title}\n");
    let (_, rest) = TRACES.split_once(&start).unwrap_or_else(|| panic!("no scene {title}"));
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

/// A time that is up only after what is to be seen before, however busy the machine.
const A_WHILE: Duration = Duration::from_secs(2);
