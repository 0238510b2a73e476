//! A session on an ensemble whose members are killed, stopped and restarted under load: the session
//! survives, every request is answered once, no watch is lost.

use std::process::Command;
use xtask::Role;

use super::*;
use crate::support::LONG_SESSION;

/// The number of writers, each with one request in flight.
const WRITERS: usize = 8;

async fn client(connect: &str) -> Client {
    let config = Config::new(connect).unwrap().with_session_timeout(LONG_SESSION);
    config.connect().await.unwrap()
}

/// The outcomes of one writer's requests.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    applied: i32,
    unknown: i32,
}

/// Writers that write until they are stopped, and watchers of their nodes.
struct Load {
    client: Client,
    session: i64,
    paths: Vec<String>,
    stop: Arc<AtomicBool>,
    writers: Vec<tokio::task::JoinHandle<Tally>>,
    /// Each reads its node again after each event of a one-shot watch.
    followers: Vec<tokio::task::JoinHandle<i32>>,
    /// A node that is changed once, after all faults.
    final_node: String,
    final_watch: docent::Watcher,
    ephemeral: String,
}

impl Load {
    async fn start(connect: &str) -> Self {
        let client = client(connect).await;
        let base = unique_path("load");
        client.ensure_path(&base, CreateMode::Persistent).await.unwrap();
        let final_node = format!("{base}/final");
        let ephemeral = format!("{base}/ephemeral");
        client.create(&final_node, b"", CreateMode::Persistent).await.unwrap();
        client.create(&ephemeral, b"", CreateMode::Ephemeral).await.unwrap();
        let (_, final_watch) = client.get_data_and_watch(&final_node).await.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (mut paths, mut writers, mut followers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..WRITERS {
            let path = format!("{base}/{number}");
            client.create(&path, b"", CreateMode::Persistent).await.unwrap();
            writers.push(tokio::spawn(write(client.clone(), path.clone(), Arc::clone(&stop))));
            followers.push(tokio::spawn(follow(client.clone(), path.clone())));
            paths.push(path);
        }
        let session = session_id(&client);
        Self {
            client,
            session,
            paths,
            stop,
            writers,
            followers,
            final_node,
            final_watch,
            ephemeral,
        }
    }

    /// Waits until a write succeeds again.
    async fn works(&self) {
        until("a write", async || self.client.set_data(&self.ephemeral, b"", None).await.is_ok())
            .await;
    }

    /// Ends the load and checks its results.
    async fn check(mut self) {
        self.works().await;
        self.stop.store(true, Ordering::Relaxed);
        let mut applied = 0;
        for (path, writer) in self.paths.iter().zip(self.writers) {
            let tally = within_deadline("a writer's last answer", writer).await.unwrap();
            let version = self.client.exists(path).await.unwrap().unwrap().version;
            // Each reported outcome is correct: applied once, not applied, or unknown.
            assert!(
                (tally.applied..=tally.applied + tally.unknown).contains(&version),
                "{tally:?}, and the version is {version}"
            );
            applied += tally.applied;
            // Marks the last write for the follower.
            self.client.set_data(path, b"end", None).await.unwrap();
        }
        assert!(applied > 0);
        for (path, follower) in self.paths.iter().zip(self.followers) {
            let seen = within_deadline("a follower to see the end", follower).await.unwrap();
            let stat = self.client.exists(path).await.unwrap().unwrap();
            assert_eq!(seen, stat.version, "a watch was lost");
        }
        assert_eq!(self.final_watch.try_next(), None, "an event before the final change");
        self.client.set_data(&self.final_node, b"", None).await.unwrap();
        let event = within_deadline("the final event", self.final_watch.next()).await.unwrap();
        let metrics = self.client.metrics();
        assert_eq!(event.event_type, EventType::NodeDataChanged, "{metrics:?}");
        assert_eq!(session_id(&self.client), self.session);
        let stat = self.client.exists(&self.ephemeral).await.unwrap().unwrap();
        assert_eq!(stat.ephemeral_owner, self.session, "the session lived on");
        within_deadline("close", self.client.close()).await.unwrap();
    }
}

/// Writes until stopped, one write at a time.
async fn write(client: Client, path: String, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    while !stop.load(Ordering::Relaxed) {
        match within_deadline("an answer", client.set_data(&path, b"more", None)).await {
            Ok(_) => tally.applied += 1,
            Err(error) if error.outcome() == Outcome::Unknown => tally.unknown += 1,
            Err(_) => {}
        }
    }
    tally
}

/// Reads again after each event until it reads `end`; returns the version of that read.
async fn follow(client: Client, path: String) -> i32 {
    loop {
        // A read that failed with its connection left no watch.
        let Ok((node, mut watcher)) = client.get_data_and_watch(&path).await else { continue };
        if node.data == "end" {
            return node.stat.version;
        }
        watcher.next().await;
    }
}

/// The leader dies.
// Case (Failure cases, 13): a change while there was no connection.
// Case (Failure cases, 14): the reply of a watching read is lost.
// Case (Failure cases, 34): leader killed, follower frozen, rolling restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_costs_no_session_no_reply_and_no_watch() {
    let Some(mut ensemble) = RealEnsemble::start().await else { return };
    let load = Load::start(&ensemble.connect()).await;
    for _ in 0..2 {
        let leader = ensemble.leader().await;
        ensemble.kill(leader).await;
        load.works().await;
        ensemble.start_again(leader).await;
    }
    load.check().await;
}

/// A client that knows all members, and the follower that it is connected to.
async fn client_of_a_follower(ensemble: &RealEnsemble) -> (Client, usize) {
    // A connection is given up after 8 s, which leaves 4 s to find another member, enough on a busy machine.
    let config =
        Config::new(&ensemble.connect()).unwrap().with_session_timeout(Duration::from_secs(12));
    eventually("a connection to a follower", async || {
        let client = config.clone().connect().await.unwrap();
        let server = client.server()?.to_string();
        let member = (0..3).find(|member| ensemble.connect_to(*member) == server).unwrap();
        if ensemble.role(member).await == Some(Role::Follower) {
            return Some((client, member));
        }
        client.close().await.unwrap();
        None
    })
    .await
}

/// A follower that is frozen, not killed: the connection is silent until the client gives it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_follower_costs_no_session_no_reply_and_no_watch() {
    let Some(ensemble) = RealEnsemble::start().await else { return };
    let (client, follower) = client_of_a_follower(&ensemble).await;
    let path = unique_path("frozen");
    let parent = path.rsplit_once('/').unwrap().0.to_owned();
    client.create(&parent, b"", CreateMode::Persistent).await.unwrap();
    client.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
    let (_, mut data) = client.get_data_and_watch(&path).await.unwrap();
    let mut stays = client.add_watch(&parent, AddWatchMode::PersistentRecursive).await.unwrap();
    let session = session_id(&client);

    let frozen = Frozen::new(ensemble.process_id(follower).unwrap());
    let written = async || client.set_data(&path, b"changed", None).await.is_ok();
    until("a write through another member", written).await;
    let event = within_deadline("the data watch", data.next()).await.unwrap();
    assert_eq!(event.event_type, EventType::NodeDataChanged);
    // Either the watch reported the change, or it reported that it may have missed one.
    let event = within_deadline("the recursive watch", stays.next()).await.unwrap();
    assert!(event.is_resync() || event.event_type == EventType::NodeDataChanged, "{event:?}");
    assert_eq!(session_id(&client), session);
    drop(frozen);
    let serves = async || ensemble.role(follower).await == Some(Role::Follower);
    until("the follower to serve again", serves).await;
    client.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_costs_no_session_no_reply_and_no_watch() {
    let Some(mut ensemble) = RealEnsemble::start().await else { return };
    let load = Load::start(&ensemble.connect()).await;
    let mut state = load.client.state();
    for member in 0..3 {
        ensemble.kill(member).await;
        load.works().await;
        ensemble.start_again(member).await;
    }
    assert_ne!(state.get(), Some(ConnectionState::Lost));
    load.check().await;
}

/// A process that is stopped while this value lives. The test must have started it.
pub(crate) struct Frozen(u32);

impl Frozen {
    /// Returns when the process is stopped.
    pub(crate) fn new(process_id: u32) -> Self {
        signal("-STOP", process_id);
        let since = Instant::now();
        while !is_stopped(process_id) {
            assert!(since.elapsed() < Duration::from_secs(30), "{process_id} does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(process_id)
    }
}

/// A signal stops the threads of a process one after the other, each when it gets a processor: on a loaded machine, a
/// server acknowledged a proposal after `kill` had returned. Without `/proc`, it is taken as stopped.
fn is_stopped(process_id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process_id}/task")) else { return true };
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().find(|line| line.starts_with("State:")).is_none_or(|line| line.contains('T'))
    })
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

fn signal(name: &str, process_id: u32) {
    let status = Command::new("kill").args([name, &process_id.to_string()]).status().unwrap();
    assert!(status.success());
}
