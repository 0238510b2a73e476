//! The stage for the scenes of the guide: an embedded server behind a tap, and clients with names.

use std::{collections::BTreeSet, fmt::Debug, future::Future, sync::Arc, time::Duration};

use docent::{Client, Config, CreateMode, locks::LockOptions, retry::RetryNTimes};
use docent_testing::{
    TestingServer,
    tap::{Record, Tap, TapClient, What},
};

use super::{diagram::Diagram, steps};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) server: TestingServer,
    pub(crate) tap: Arc<Tap>,
    clients: Vec<(TapClient, Client)>,
    pub(crate) diagram: Diagram,
    /// The first record of the next step.
    next: u64,
}

impl Stage {
    pub(crate) async fn new(name: &'static str, title: &'static str) -> Self {
        let diagram = Diagram::new(name, title);
        let server = TestingServer::start().await.unwrap();
        let tap = Arc::new(server.tap().await.unwrap());
        steps::trace_beside(&tap);
        Self { server, tap, clients: Vec::new(), diagram, next: 0 }
    }

    /// Starts a client; the frames of its start belong to no step.
    pub(crate) async fn client(&mut self, label: &str) -> Client {
        let tap_client = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap_client.connect_string()).unwrap();
        self.diagram.client(label);
        let client = config.connect().await.unwrap();
        let trace = self.tap.trace();
        let timeouts = trace.iter().filter_map(|record| match record.what {
            What::Connected { time_out, .. } => u64::try_from(time_out).ok(),
            _ => None,
        });
        self.diagram.session_timeout = Duration::from_millis(timeouts.last().unwrap());
        self.clients.push((tap_client, client.clone()));
        self.next = self.tap.len();
        client
    }

    /// The clients A, B, C...
    pub(crate) async fn clients<const N: usize>(&mut self) -> [Client; N] {
        let mut clients = Vec::new();
        for label in ["A", "B", "C", "D", "E", "F"].into_iter().take(N) {
            clients.push(self.client(label).await);
        }
        clients.try_into().unwrap()
    }

    /// The clients A, B, C..., on a tree with these nodes.
    pub(crate) async fn clients_and<const N: usize>(&mut self, nodes: &[&str]) -> [Client; N] {
        let clients = self.clients().await;
        for path in nodes {
            self.unrecorded(clients[0].create(path, b"", CreateMode::Container)).await.unwrap();
        }
        clients
    }

    /// Like [`client`](Self::client), but its first frames are a step.
    pub(crate) async fn client_seen(&mut self, label: &str, note: &str) -> Client {
        let from = self.next;
        let client = self.client(label).await;
        self.next = from;
        self.show(label, note).await;
        client
    }

    /// The connection of a client, to break it.
    pub(crate) fn tap_client(&self, label: &str) -> &TapClient {
        self.clients
            .iter()
            .map(|(tap_client, _)| tap_client)
            .find(|tap_client| tap_client.label() == label)
            .unwrap()
    }

    /// Removes a client: its connection breaks, and it gets no new one.
    pub(crate) fn vanish(&mut self, label: &str) {
        self.clients.retain(|(tap_client, _)| tap_client.label() != label);
        self.diagram.forget(label);
    }

    /// Runs an action without showing it.
    pub(crate) async fn unrecorded<T>(&mut self, done: impl Future<Output = T>) -> T {
        let value = done.await;
        self.settle().await;
        self.next = self.tap.len();
        drop(steps::take_traced());
        value
    }

    /// One step of the scene: a note on the action of a client, then its frames.
    pub(crate) async fn step<T, E: Debug>(
        &mut self,
        who: &str,
        note: &str,
        done: impl Future<Output = Result<T, E>>,
    ) -> T {
        let value = tokio::time::timeout(DEADLINE, done).await.expect(note).unwrap();
        self.show(who, note).await;
        value
    }

    /// A step whose action continues: it is shown once a `wanted` record has been seen.
    pub(crate) async fn until(
        &mut self,
        who: &str,
        note: &str,
        wanted: impl FnMut(&Record) -> bool,
    ) {
        self.tap.subscribe_from(self.next).until(DEADLINE, wanted).await.unwrap();
        self.show(who, note).await;
    }

    /// Runs an action before the scene. It is not shown, but the diagram knows its locks and their holders.
    pub(crate) async fn hidden_step<T, E: Debug>(
        &mut self,
        who: &str,
        done: impl Future<Output = Result<T, E>>,
    ) -> T {
        let start = self.diagram.len();
        let value = self.step(who, "not shown", done).await;
        self.diagram.hide_frames_from(start);
        value
    }

    /// Like [`until`](Self::until), but not shown.
    pub(crate) async fn hidden_until(&mut self, who: &str, wanted: impl FnMut(&Record) -> bool) {
        let start = self.diagram.len();
        self.until(who, "not shown", wanted).await;
        self.diagram.hide_frames_from(start);
    }

    async fn show(&mut self, who: &str, note: &str) {
        self.settle().await;
        self.diagram.note(note);
        let trace = self.tap.trace().since(self.next);
        self.next = self.tap.len();
        let mut barriers = BTreeSet::new();
        let shown = trace.filter(|record| match record.what {
            What::Request { xid, .. } if record.path() == Some(BARRIER) => {
                barriers.insert((record.connection, xid));
                false
            }
            What::Reply { xid, .. } => !barriers.contains(&(record.connection, xid)),
            _ => true,
        });
        self.diagram.frames(who, shown.iter(), &steps::take_traced());
    }

    /// Waits until all events of the server have arrived: they come before the reply to a request that is sent after
    /// them. A client without a session receives no more frames.
    async fn settle(&self) {
        for (_, client) in &self.clients {
            let asked = tokio::time::timeout(DEADLINE, client.exists(BARRIER)).await;
            assert!(asked.expect("a barrier").is_ok_and(|stat| stat.is_none()));
        }
    }
}

/// A node that never exists.
const BARRIER: &str = "/barrier";

/// The options of the scenes' locks: retries with pauses too short for a reader to notice.
pub(crate) fn options() -> LockOptions {
    LockOptions::default()
        .with_data("")
        .with_retry_policy(RetryNTimes::new(3, Duration::from_millis(10)))
}
