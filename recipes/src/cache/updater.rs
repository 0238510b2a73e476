//! The task of a cache: it owns the watch and the reads in flight, and nothing else changes the cache.
//!
//! | step | frames | Curator |
//! |---|---|---|
//! | 1. wait for a connection | – | – |
//! | 2. set the watch | addWatch (106), mode 1, for a single node mode 0 | `PersistentWatcher.reset` |
//! | 3. it is not supported: one-shot watches, for the rest of the session | the reads of step 4 with watch | `TreeCache`, by `CuratorCacheBridge` |
//! | 4. read what the [engine](super::engine) wants, a limited number at a time | getData (4), getChildren2 (12) | `CuratorCacheImpl` |
//! | 5. reconnected | the session sets the watch again; step 4 with a new round | `PersistentWatcher.connectionStateListener` |
//! | 6. a new session | steps 2 to 4 | the same |
//! | 7. close | removeWatches (18) | checkWatches (17), which leaves the watch (C7) |

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use docent_protocol::{AddWatchMode, OpCode, Stat};
use docent_session::{
    Children, Client, ConnectionState, Error, Events, Node, WatchedEvent, Watcher,
    client::{Response, TransactionResponse, WatchResponse},
    session::StateEvent,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::debug;

use super::{
    engine::{Engine, Mode},
    one_shot::OneShotWatches,
    reads::{Kind, Read},
};
use crate::{
    persistent_retry::pause,
    planted,
    select::{Either, select},
};

/// The number of replies that are handled before other tasks have a turn.
const TURN: usize = 256;

/// The first and the longest pause before refused nodes are read again: servers report no change of an ACL, and none of
/// the size of a listing.
const REFUSED_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

pub(super) struct Updater {
    pub(super) client: Client,
    pub(super) root: Arc<str>,
    pub(super) engine: Engine,
    pub(super) single: bool,
    pub(super) max_reads: usize,
    pub(super) closing: CancellationToken,
}

/// The watches of the cache on the server.
enum Watches {
    Persistent(Watcher),
    OneShot(OneShotWatches),
}

impl Watches {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchedEvent>> {
        match self {
            Self::Persistent(watcher) => watcher.poll_next(cx),
            Self::OneShot(watches) => watches.poll(cx),
        }
    }
}

/// A read in flight.
enum Reply {
    Data(Response<Node>),
    DataAndWatch(WatchResponse<Node>),
    Children(Response<(Children, Stat)>),
    ChildrenAndWatch(WatchResponse<(Children, Stat)>),
    ExistsAndWatch(WatchResponse<Option<Stat>>),
    Settle(TransactionResponse),
}

/// The result of a read, and its one-shot watch.
enum Answer {
    Data(Result<Node, Error>),
    Children(Result<(Children, Stat), Error>),
    Exists(Result<Option<Stat>, Error>),
    Settle(Result<(), Error>),
}

impl Reply {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Answer, Option<Watcher>)> {
        fn split<T>(reply: Result<(T, Watcher), Error>) -> (Result<T, Error>, Option<Watcher>) {
            match reply {
                Ok((value, watcher)) => (Ok(value), Some(watcher)),
                Err(error) => (Err(error), None),
            }
        }
        match self {
            Self::Data(reply) => Pin::new(reply).poll(cx).map(|reply| (Answer::Data(reply), None)),
            Self::Children(reply) => {
                Pin::new(reply).poll(cx).map(|reply| (Answer::Children(reply), None))
            }
            Self::DataAndWatch(reply) => Pin::new(reply).poll(cx).map(|reply| {
                let (reply, watcher) = split(reply);
                (Answer::Data(reply), watcher)
            }),
            Self::ChildrenAndWatch(reply) => Pin::new(reply).poll(cx).map(|reply| {
                let (reply, watcher) = split(reply);
                (Answer::Children(reply), watcher)
            }),
            Self::ExistsAndWatch(reply) => Pin::new(reply).poll(cx).map(|reply| {
                let (reply, watcher) = split(reply);
                (Answer::Exists(reply), watcher)
            }),
            Self::Settle(reply) => {
                Pin::new(reply).poll(cx).map(|reply| (Answer::Settle(reply.map(drop)), None))
            }
        }
    }
}

/// Why following the watches ended.
enum End {
    Closed,
    /// The watches are gone, or are of no use.
    SetAgain,
}

/// A delay that grows each time it is used, until its count is set back.
#[derive(Default)]
struct Delay {
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    count: u32,
}

impl Delay {
    /// Whether the delay is over, while it is needed.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &Client,
        needed: bool,
        pause: impl Fn(u32) -> Duration,
    ) -> bool {
        if !needed {
            self.timer = None;
            return false;
        }
        let count = self.count;
        let timer = self.timer.get_or_insert_with(|| client.runtime().timer(pause(count)));
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        self.count = count.saturating_add(1);
        true
    }
}

/// The state of the task beside the engine.
struct Following {
    watches: Watches,
    states: Events<StateEvent>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    in_flight: VecDeque<(Read, Reply)>,
    is_connected: bool,
    /// Before failed reads are sent again.
    retry: Delay,
    /// Before refused nodes are read again.
    refused: Delay,
    /// No listing that was too large has become smaller between the last two retries: the next one that does is
    /// repeated after the first pause. While it becomes smaller and smaller, the pauses grow.
    is_quiet: bool,
}

impl Updater {
    pub(super) async fn run(mut self) {
        let mut attempts = 0;
        loop {
            let closing = self.closing.clone();
            let watches = match select(closing.cancelled(), self.set_watches(&mut attempts)).await {
                Either::Right(Some(watches)) => watches,
                Either::Left(()) | Either::Right(None) => break,
            };
            self.engine.new_watch(match watches {
                Watches::Persistent(_) => Mode::Persistent,
                Watches::OneShot(_) => Mode::OneShot,
            });
            self.engine.connected();
            self.engine.begin_round();
            let mut following = Following {
                watches,
                states: self.client.states(),
                closing: Box::pin(closing.cancelled_owned()),
                in_flight: VecDeque::new(),
                is_connected: true,
                retry: Delay::default(),
                refused: Delay::default(),
                is_quiet: false,
            };
            let end = poll_fn(|cx| self.follow(&mut following, cx)).await;
            if let End::Closed = end {
                self.remove(following.watches).await;
                break;
            }
            self.engine.set_stale();
        }
    }

    /// Sets the watch; `None` if the client has ended.
    async fn set_watches(&self, attempts: &mut u32) -> Option<Watches> {
        let mode =
            if self.single { AddWatchMode::Persistent } else { AddWatchMode::PersistentRecursive };
        loop {
            let mut state = self.client.state();
            state.wait_for(|state| state.is_some_and(ConnectionState::is_connected)).await?;
            let lease = self.client.session();
            if lease.as_ref().is_some_and(|lease| lease.lacks(OpCode::AddWatch)) {
                // A refusal in each session is no reason for longer pauses.
                *attempts = 0;
                return Some(Watches::OneShot(OneShotWatches::default()));
            }
            match self.client.add_watch(&self.root, mode).await {
                Ok(watcher) => {
                    *attempts = 0;
                    return Some(Watches::Persistent(watcher));
                }
                Err(_) if self.client.ended().is_some() => return None,
                Err(error) => {
                    debug!(path = %self.root, %error, "watch of a cache not set; retrying");
                    self.client.runtime().timer(pause(*attempts)).await;
                    *attempts = attempts.saturating_add(1);
                }
            }
        }
    }

    /// Follows the watches until they end. Events are handled before the replies that arrived behind them.
    fn follow(&mut self, on: &mut Following, cx: &mut Context<'_>) -> Poll<End> {
        for _ in 0..TURN {
            if on.closing.as_mut().poll(cx).is_ready() || self.client.ended().is_some() {
                return Poll::Ready(End::Closed);
            }
            if let Some(end) = self.take_events(on, cx) {
                return Poll::Ready(end);
            }
            if on.is_connected {
                self.end_pauses(on, cx);
                self.send(on);
            }
            let Some((read, reply)) = on.in_flight.front_mut() else { return Poll::Pending };
            let Poll::Ready((answer, watcher)) = reply.poll(cx) else { return Poll::Pending };
            let has_answer = matches!(answer, Answer::Data(Ok(_)) | Answer::Children(Ok(_)));
            let relies_on_watch = has_answer
                && matches!(reply, Reply::Data(_) | Reply::Children(_))
                || planted::is("missing-node-read-again");
            let read = read.clone();
            on.in_flight.pop_front();
            // Those that arrived before the reply.
            if let Some(end) = self.take_events(on, cx) {
                return Poll::Ready(end);
            }
            if let Watches::OneShot(watches) = &mut on.watches {
                match watcher {
                    Some(watcher) => watches.add(read.kind, &read.path, watcher),
                    None if relies_on_watch && !watches.is_set(read.kind, &read.path) => {
                        self.engine.watch_has_fired(&read);
                    }
                    None => {}
                }
            }
            let put_off = self.engine.put_off();
            match answer {
                Answer::Data(reply) => self.engine.on_data(&read, reply),
                Answer::Children(reply) => self.engine.on_children(&read, reply),
                Answer::Exists(reply) => self.engine.on_exists(&read, reply),
                Answer::Settle(reply) => self.engine.on_settle(&read, reply),
            }
            if read.kind != Kind::Settle && self.engine.put_off() == put_off {
                // The pauses grow while nothing is read.
                on.retry.count = 0;
            }
            if self.engine.has_wrong_paths() {
                debug!(path = %self.root, "events have the path of the watch; using one-shot watches");
                if let Some(lease) = self.client.session() {
                    lease.note_unusable(OpCode::AddWatch);
                }
                return Poll::Ready(End::SetAgain);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Repeats the reads whose pause is over.
    fn end_pauses(&mut self, on: &mut Following, cx: &mut Context<'_>) {
        let retries = self.engine.is_waiting();
        if on.retry.poll(cx, &self.client, retries, pause) {
            self.engine.resume();
        }
        let refused = self.engine.has_refused();
        if !refused || (on.is_quiet && self.engine.has_shrunk()) {
            (on.refused, on.is_quiet) = (Delay::default(), false);
        }
        if on.refused.poll(cx, &self.client, refused, refused_pause) {
            on.is_quiet = !self.engine.has_shrunk();
            self.engine.retry_refused();
        }
    }

    /// Handles all events and changes of the connection.
    fn take_events(&mut self, on: &mut Following, cx: &mut Context<'_>) -> Option<End> {
        // First the connections, then the events: those of a connection need the round that it begins.
        while let Poll::Ready(event) = on.states.poll_next(cx) {
            let Some(event) = event else { return Some(End::Closed) };
            // After a lag, the session may be another one.
            let Some(state) = event.state() else { return Some(End::SetAgain) };
            let was_connected = std::mem::replace(&mut on.is_connected, state.is_connected());
            if !on.is_connected {
                self.engine.disconnected();
            } else {
                self.engine.connected();
                if !was_connected && self.engine.mode == Mode::OneShot {
                    self.engine.begin_short_round();
                }
            }
            if state == ConnectionState::Lost && self.engine.mode == Mode::OneShot {
                return Some(End::SetAgain);
            }
        }
        while let Poll::Ready(event) = on.watches.poll(cx) {
            let Some(event) = event.filter(|event| !event.is_end()) else {
                return Some(End::SetAgain);
            };
            let path = event.path.clone().into();
            match &mut on.watches {
                Watches::Persistent(_)
                    if event.is_resync() && planted::is("cache-resync-ignored") => {}
                Watches::Persistent(_) if event.is_resync() => {
                    self.engine.set_stale();
                    self.engine.begin_round();
                }
                Watches::OneShot(_) if event.is_resync() => {
                    let created = docent_protocol::EventType::NodeCreated;
                    self.engine.on_event(created, &path, None);
                }
                _ => self.engine.on_event(event.event_type, &path, event.zxid),
            }
        }
        None
    }

    /// Sends reads, up to the limit.
    fn send(&mut self, on: &mut Following) {
        while on.in_flight.len() < self.max_reads
            && let Some(read) = self.engine.next_read()
        {
            let (client, path) = (&self.client, &*read.path);
            let watch = match &on.watches {
                Watches::Persistent(_) => false,
                Watches::OneShot(watches) => !watches.is_set(read.kind, &read.path),
            };
            let reply = match (read.kind, watch) {
                (Kind::Data, false) => Reply::Data(client.get_data(path)),
                (Kind::Data, true) => Reply::DataAndWatch(client.get_data_and_watch(path)),
                (Kind::Children, false) => Reply::Children(client.get_children_with_stat(path)),
                (Kind::Children, true) => {
                    Reply::ChildrenAndWatch(client.get_children_with_stat_and_watch(path))
                }
                (Kind::Settle, _) => {
                    // No node has this version.
                    Reply::Settle(client.transaction().check(path, Some(i32::MAX)).commit())
                }
                (Kind::Exists, _) => Reply::ExistsAndWatch(client.exists_and_watch(path)),
            };
            on.in_flight.push_back((read, reply));
        }
    }

    /// Removes the watch from the server. One-shot watches stay until they fire: servers without addWatch may not know
    /// removeWatches either, and would close the connection.
    async fn remove(&self, watches: Watches) {
        if let Watches::Persistent(watcher) = watches {
            if planted::is("cache-watch-left") {
                return watcher.forget();
            }
            let removed = watcher.remove();
            let limit = self.client.runtime().timer(self.client.config().connection_timeout());
            if let Either::Left(Err(error)) = select(removed, limit).await {
                debug!(path = %self.root, %error, "watch of a closed cache not removed");
            }
        }
    }
}

fn refused_pause(count: u32) -> Duration {
    REFUSED_PAUSES.0.saturating_mul(1 << count.min(6)).min(REFUSED_PAUSES.1)
}
