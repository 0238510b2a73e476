//! Watches of all kinds, on registers.
//!
//! * One-shot: if a read shows a change after the state at which the watch was set, the event must have been delivered.
//!   A watch that is kept until the end has fired if its node has changed.
//! * Persistent: the events are the changes that the servers have applied, in their order, without a gap, until a
//!   resync. A read that shows a change must find its event delivered. A watch that is kept until the end has delivered
//!   all changes.

use std::sync::Arc;

use docent::{AddWatchMode, ErrorKind, EventType, WatchedEvent, Watcher, session::SessionLease};
use docent_testing::server::Version;

use super::{
    run,
    steps::{WatchEnd, WatchStep, WatchTarget},
};
use crate::{
    recipes::worker::Worker,
    world::{
        time::{MILLISECOND, Nanos, SECOND},
        truth::Applied,
    },
};

/// The longest time from the peace until a change is noticed.
const SETTLES: Nanos = 30 * SECOND;

/// A watch, with the events and reads so far.
struct Watch {
    target: WatchTarget,
    path: String,
    watcher: Watcher,
    lease: Option<Arc<SessionLease>>,
    /// The zxid of the state that was read as a one-shot watch was set; `None`: there was no node.
    state: Option<i64>,
    /// The events of a persistent watch, and the reads in between.
    seen: Vec<Seen>,
    /// Whether it has ended.
    is_over: bool,
}

#[derive(Debug)]
enum Seen {
    Event(WatchedEvent),
    /// The node was read at this time, with this zxid.
    Read(Nanos, i64),
}

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: &WatchStep) {
    let Some(mut watch) = set(worker, step.target).await else { return };
    let until = worker.world.now() + step.for_ms * MILLISECOND;
    if watch.is_persistent() {
        watch.read(worker).await;
    }
    while !watch.is_over && worker.world.now() < until {
        let left = (until - worker.world.now()) / MILLISECOND + 1;
        let event = worker.within(left, watch.watcher.next()).await;
        let Some(Some(event)) = event else { break };
        watch.take(worker, event);
        if watch.is_persistent() && watch.needs_read() {
            watch.read(worker).await;
        }
    }
    watch.read(worker).await;
    watch.judge(worker, None);
    match step.end {
        WatchEnd::Drop => drop(watch),
        WatchEnd::Forget => watch.watcher.forget(),
        WatchEnd::Remove => {
            let removed = watch.watcher.remove().await;
            worker.say(format!("removes its watch: {:?}", removed.err().map(|error| error.kind())));
        }
        WatchEnd::Keep if watch.is_over => {}
        WatchEnd::Keep => worker.judge_later(watch),
    }
}

/// Judges the watches that were kept, a while after the peace.
pub(crate) async fn judge_kept(worker: &Worker) {
    let kept: Vec<Watch> = worker.memory.take();
    if kept.is_empty() {
        return;
    }
    worker.settle(SETTLES).await;
    for mut watch in kept {
        watch.drain(worker);
        let limit = worker.world.now() - SETTLES / 2;
        watch.judge(worker, Some(limit));
    }
}

async fn set(worker: &Worker, target: WatchTarget) -> Option<Watch> {
    let is_persistent = matches!(target, WatchTarget::Persistent(_) | WatchTarget::Recursive);
    if is_persistent && matches!(worker.world.core().servers.version, Version::V3_6 | Version::V3_8)
    {
        // Events are matched with changes by their zxid, which only 3.9 sends.
        return None;
    }
    let client = &worker.client;
    let lease = client.session();
    let path = match target {
        WatchTarget::Data(node) | WatchTarget::Exists(node) | WatchTarget::Persistent(node) => {
            run::path(node)
        }
        WatchTarget::Children | WatchTarget::Recursive => "/r".to_owned(),
    };
    let set = match target {
        WatchTarget::Data(_) => {
            let read = client.get_data_and_watch(&path).await;
            read.map(|(node, watcher)| (Some(node.stat.mzxid), watcher))
        }
        WatchTarget::Exists(_) => {
            let read = client.exists_and_watch(&path).await;
            read.map(|(stat, watcher)| (stat.map(|stat| stat.mzxid), watcher))
        }
        WatchTarget::Children => {
            let read = client.get_children_with_stat_and_watch(&path).await;
            read.map(|((_, stat), watcher)| (Some(stat.pzxid), watcher))
        }
        WatchTarget::Persistent(_) => {
            client.add_watch(&path, AddWatchMode::Persistent).await.map(|watcher| (None, watcher))
        }
        WatchTarget::Recursive => {
            let added = client.add_watch(&path, AddWatchMode::PersistentRecursive).await;
            added.map(|watcher| (None, watcher))
        }
    };
    match set {
        Ok((state, watcher)) => {
            worker.say(format!("watches {target:?} at {state:x?}"));
            Some(Watch { target, path, watcher, lease, state, seen: Vec::new(), is_over: false })
        }
        Err(error) => {
            worker.fails(format_args!("does not watch {target:?}"), &error);
            None
        }
    }
}

/// Whether servers may have refused a setWatches, so that events and resyncs come late.
fn refuses(worker: &Worker) -> bool {
    let now = worker.world.now();
    worker.world.core().disturbances.refuses(now)
}

impl Watch {
    const fn is_persistent(&self) -> bool {
        matches!(self.target, WatchTarget::Persistent(_) | WatchTarget::Recursive)
    }

    /// Whether the session in which it was set is still the client's.
    fn is_current(&self, worker: &Worker) -> bool {
        let id = self.lease.as_ref().map(|lease| lease.session_id());
        let is_lost = self.lease.as_ref().is_none_or(|lease| lease.is_lost());
        !is_lost && worker.session_id() == id && worker.client.ended().is_none()
    }

    fn take(&mut self, worker: &Worker, event: WatchedEvent) {
        let target = self.target;
        worker.say(format!("{target:?}: {:?} {} {:x?}", event.event_type, event.path, event.zxid));
        if event.is_end() {
            // A member that is not upgraded yet knows no persistent watches, and docent ends them there, as documented.
            let is_old = worker.world.core().servers.version == Version::V3_5;
            let is_unknown = is_old && event.event_type == EventType::PersistentWatchRemoved;
            if !is_unknown
                && self.lease.as_ref().is_some_and(|lease| !lease.is_lost())
                && worker.client.ended().is_none()
            {
                worker.violation(&format!("{target:?} ended in a living session: {event:?}"));
            }
            self.is_over = true;
        } else if self.is_over {
            worker.violation(&format!("{target:?}: {event:?} behind the end"));
        } else if !self.is_persistent() {
            self.is_over = true;
            self.judge_only(worker, &event);
        }
        self.seen.push(Seen::Event(event));
    }

    fn drain(&mut self, worker: &Worker) {
        while let Some(event) = self.watcher.try_next() {
            self.take(worker, event);
        }
    }

    /// Whether a resync has come since the last read.
    fn needs_read(&self) -> bool {
        let last = self.seen.iter().rev().take_while(|seen| matches!(seen, Seen::Event(_)));
        last.into_iter().any(|seen| matches!(seen, Seen::Event(event) if event.is_resync()))
    }

    /// Reads the node. The events that arrived before the reply have then been delivered.
    async fn read(&mut self, worker: &Worker) {
        if self.is_over || !self.is_current(worker) {
            return self.drain(worker);
        }
        let client = &worker.client;
        let read = match self.target {
            WatchTarget::Children => {
                client.get_children_with_stat(&self.path).await.map(|(_, stat)| Some(stat.pzxid))
            }
            // The events of a recursive watch are about the nodes below its path.
            WatchTarget::Recursive => client.exists("/r/0").await.map(|stat| stat.map(|s| s.mzxid)),
            _ => client.exists(&self.path).await.map(|stat| stat.map(|stat| stat.mzxid)),
        };
        self.drain(worker);
        let read = match read {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NoNode => None,
            Err(_) => return,
        };
        if !self.is_current(worker) {
            return;
        }
        if self.is_persistent() {
            let now = worker.world.now();
            self.seen.extend(read.map(|zxid| Seen::Read(now, zxid)));
        } else if read != self.state && !self.is_over && !refuses(worker) {
            let (target, state) = (self.target, self.state);
            worker.violation(&format!(
                "{target:?}: a read shows {read:x?} instead of {state:x?}, but no event came"
            ));
        }
    }

    /// Judges the event of a one-shot watch.
    fn judge_only(&self, worker: &Worker, event: &WatchedEvent) {
        let (target, state) = (self.target, self.state);
        if event.is_resync() {
            return;
        }
        use EventType::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
        let fits = match (target, state) {
            // The creation may have been missed, and the event be meant for another watch on the path, as in the Java
            // client.
            (WatchTarget::Exists(_), None) => {
                matches!(event.event_type, NodeCreated | NodeDataChanged | NodeDeleted)
            }
            // While a setWatches is refused, the deletion may be missed, and the event be meant for another watch.
            (WatchTarget::Data(_) | WatchTarget::Exists(_), _) => {
                matches!(event.event_type, NodeDataChanged | NodeDeleted)
                    || event.event_type == NodeCreated
                        && !worker.world.core().disturbances.throttled.is_empty()
            }
            _ => matches!(event.event_type, NodeChildrenChanged | NodeDeleted),
        };
        if !fits || *event.path != *self.path {
            worker.violation(&format!("{target:?} at {state:x?} got {event:?}"));
        }
        // Only with a zxid: a setWatches that is repeated names older states too, and finds changes that were already
        // read.
        if event.zxid.is_some() && !self.changes(worker).any(|_| true) {
            worker.violation(&format!("{target:?} at {state:x?} got {event:?}, but no change was"));
        }
    }

    /// The changes after the state of a one-shot watch.
    fn changes(&self, worker: &Worker) -> impl Iterator<Item = (i64, Nanos)> + use<> {
        let is_of_children = self.target == WatchTarget::Children;
        let events = worker.world.core().servers.truth.events(&self.path, false);
        let state = self.state.unwrap_or(0);
        events
            .into_iter()
            .filter(move |(.., of)| (*of == EventType::NodeChildrenChanged) == is_of_children)
            .filter(move |(zxid, ..)| *zxid > state)
            .map(|(zxid, at, ..)| (zxid, at))
    }

    /// Compares the events with the applied changes. `limit`: earlier changes must have been delivered.
    fn judge(&self, worker: &Worker, limit: Option<Nanos>) {
        if self.is_persistent() {
            return self.judge_events(worker, limit);
        }
        let Some(limit) = limit.filter(|_| !self.is_over) else { return };
        if !self.is_current(worker) {
            return;
        }
        let target = self.target;
        let missed: Vec<_> = self.changes(worker).filter(|(_, at)| *at < limit).collect();
        if missed.is_empty() {
            return;
        }
        // An exists watch does not fire for a node that was created and deleted while the client was away.
        let core = worker.world.core();
        let of_existence =
            |applied: &&Applied| applied.change.event_type != EventType::NodeDataChanged;
        let last = core.servers.truth.of(&self.path).rfind(of_existence);
        let is_there = last.is_some_and(|last| last.change.node.is_some() && last.at < limit);
        drop(core);
        if self.state.is_some() || is_there {
            let state = self.state;
            worker.violation(&format!("{target:?} at {state:x?} is silent: missed {missed:x?}"));
        }
    }

    fn judge_events(&self, worker: &Worker, limit: Option<Nanos>) {
        let is_recursive = self.target == WatchTarget::Recursive;
        let truth = worker.world.core().servers.truth.events(&self.path, is_recursive);
        let read_path = if is_recursive { "/r/0" } else { self.path.as_str() };
        let of_read = |(_, _, path, of): &&(i64, Nanos, String, EventType)| {
            path == read_path && *of != EventType::NodeChildrenChanged
        };
        // The place in the truth behind the last event since a resync, and the zxid of the last read.
        let (mut next, mut read): (Option<usize>, Option<i64>) = (None, None);
        let bad = |text: String| worker.violation(&format!("{:?}: {text}", self.target));
        let mut is_over = false;
        // The events that are missing in front of one that came. A resync may still follow, from another setWatches.
        let mut gap = None;
        let is_refused = |at: Nanos| worker.world.core().disturbances.refuses(at);
        for seen in &self.seen {
            match seen {
                Seen::Event(event) if event.is_resync() => (next, read, gap) = (None, None, None),
                Seen::Event(event) if event.is_end() => is_over = true,
                // The event of a change that a setWatches has found.
                Seen::Event(event) if event.zxid.is_none() => {}
                Seen::Event(event) => {
                    let is_it = |(zxid, _, path, of): &(i64, Nanos, String, EventType)| {
                        event.zxid == Some(*zxid)
                            && **path == *event.path
                            && *of == event.event_type
                    };
                    let Some(at) = truth.iter().position(is_it) else {
                        return bad(format!("{event:?} is no change"));
                    };
                    if let Some(next) = next.filter(|next| *next != at) {
                        let between = truth.get(next..at);
                        gap = Some(format!("{event:?} came without {between:x?}"));
                        if next > at {
                            return bad(format!("{event:?} came again or late"));
                        }
                    }
                    if next.is_none()
                        && let Some(read) = read
                        && let Some(missed) =
                            truth[..at].iter().filter(of_read).find(|change| change.0 > read)
                    {
                        gap = Some(format!("{event:?} came without {missed:x?}"));
                    }
                    next = Some(at + 1);
                }
                // The event of the change that this read shows may come only with the resync.
                Seen::Read(at, _) if is_refused(*at) => (next, read) = (None, None),
                Seen::Read(_, zxid) => {
                    if let Some(gap) = gap {
                        return bad(gap);
                    }
                    let before = read.replace(*zxid);
                    let from = next.unwrap_or(0);
                    let missed = truth[from..].iter().filter(of_read).find(|change| {
                        let after =
                            next.is_some() || before.is_some_and(|before| change.0 > before);
                        after && change.0 <= *zxid
                    });
                    if let Some(missed) = missed {
                        return bad(format!(
                            "a read shows {zxid:#x}, but {missed:x?} did not come"
                        ));
                    }
                }
            }
        }
        // The end of the session excuses a gap, and so does a resync that is still to come.
        if let Some(gap) = gap.filter(|_| !is_over && !refuses(worker)) {
            return bad(gap);
        }
        let Some(limit) = limit.filter(|_| !is_over && self.is_current(worker)) else { return };
        let from = next.unwrap_or(0);
        let after = |change: &&(i64, Nanos, String, EventType)| match next {
            Some(_) => true,
            None => read.is_some_and(|read| change.0 > read) && of_read(change),
        };
        let missed = truth[from..].iter().filter(after).find(|change| change.1 < limit);
        if let Some(missed) = missed {
            bad(format!("is silent: {missed:x?} did not come"));
        }
    }
}
