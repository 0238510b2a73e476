//! The steps of `LockInternals`: each request that the servers apply, each end of a session and each grant.

use std::collections::{BTreeMap, BTreeSet};

use docent::EventType;
use docent_spec::{
    Trace,
    lock_internals::{Action, Change, Guid, LockInternals, Node, State, Step},
};

use super::steps::{Steps, digest, shown};
use crate::world::{
    history::{Record, What},
    time::Pid,
};

/// The path of the lock in the plans that are compared.
const LOCK: &str = "/mutex-0";

/// What a history does not show, and what only leads on: an attempt hears a reply, and is woken. The other hidden actions are
/// tried where a record may need them: late is soon enough, for they only allow more.
fn is_hidden(state: &State, action: &Action) -> bool {
    // To try an action copies the state, so those that are not possible are left out before.
    match action {
        Action::Hear(guid) => state.attempts.get(guid).is_some_and(|of| of.reply.is_some()),
        Action::Woken(guid) => {
            state.attempts.get(guid).is_some_and(|of| matches!(of.step, Step::Wait(_)))
        }
        _ => false,
    }
}

pub(super) struct LockSteps {
    trace: Trace<LockInternals>,
    /// The number of each session.
    sessions: BTreeMap<String, (Pid, u8)>,
    /// The GUIDs of all creates that were applied.
    guids: BTreeSet<String>,
    /// The processes that have created the lock nodes.
    creators: BTreeMap<Node, Pid>,
    /// The processes that have connected.
    connected: BTreeSet<Pid>,
    /// The processes that end without a close of their clients, or whose runtime is dropped.
    shut_down: BTreeSet<Pid>,
    /// The changes that belong to a request.
    applied: BTreeSet<String>,
}

impl LockSteps {
    pub(super) fn new(clients: usize, mistake: &'static str) -> Self {
        let (attempts, cuts, renewals) = (u8::MAX, u8::MAX, u8::MAX);
        let model = LockInternals { clients, attempts, cuts, renewals, is_cut: false, mistake };
        Self {
            trace: Trace::new(model, is_hidden),
            sessions: BTreeMap::new(),
            guids: BTreeSet::new(),
            creators: BTreeMap::new(),
            connected: BTreeSet::new(),
            shut_down: BTreeSet::new(),
            applied: BTreeSet::new(),
        }
    }
}

impl Steps for LockSteps {
    fn take(&mut self, record: &Record, next: &[Record]) -> bool {
        match &record.what {
            What::Frame { pid, to_server: true, text, .. } => self.request(*pid, text, next),
            What::Frame { pid, text, .. } => self.reply(*pid, text),
            What::Applied { path, event: EventType::NodeDeleted, .. } => {
                self.applied.remove(&record.what.to_string()) || self.deleted(path)
            }
            What::Worker { pid, text, .. } => self.says(*pid, text),
            What::Fault(text) => {
                self.shut_down.extend(killed(text));
                // From then on, a session may end although its client believes that it lives.
                self.trace.model.is_cut |= text.starts_with("Expire");
                true
            }
            _ => true,
        }
    }

    fn digest(&self) -> u64 {
        let seen = (&self.sessions, &self.guids, &self.creators, &self.connected);
        digest(&self.trace.states, (seen, &self.shut_down, &self.applied))
    }

    fn shown(&self) -> String {
        shown(&self.trace.states)
    }
}

impl LockSteps {
    fn request(&mut self, pid: Pid, text: &str, next: &[Record]) -> bool {
        if text.starts_with("connect ") {
            if self.connected.insert(pid) {
                return true;
            }
            // The create of an attempt may have been lost on the connection that broke.
            self.may_begin(|action| *action == Action::Acquire(pid));
            self.lease_may_end(pid);
            return self.happens(|change| change == Change::Disconnect(pid), |_| false);
        }
        let mut words = text.split(' ').skip(1);
        let (operation, path) =
            (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if matches!(operation, "closeSession" | "create2" | "create" | "getChildren2" | "delete") {
            self.may_end(pid);
        }
        // Requests that arrive together are applied behind the last of them.
        let together = next.iter().take_while(|record| match &record.what {
            What::Frame { pid: of, to_server, .. } => *to_server && *of == pid,
            What::Applied { .. } => true,
            _ => false,
        });
        let applied = |event| {
            let of = |what: &What| matches!(what, What::Applied { path: of, event: is, .. } if *is == event && of.starts_with(path));
            together.map(|record| &record.what).find(|what| of(what)).map(What::to_string)
        };
        match operation {
            "closeSession" => {
                let is_shut_down = self.shut_down.contains(&pid);
                self.happens(
                    |change| match change {
                        Change::Close(of) => of == pid,
                        Change::SessionEnds((of, _)) => is_shut_down && of == pid,
                        _ => false,
                    },
                    |state| is_shut_down || !state.zookeeper.serves(pid),
                )
            }
            "createContainer" if path == LOCK => {
                self.serve(pid, |_, _, step| step == Step::CreateParents, |_| true)
            }
            "create2" | "create" if path.starts_with(LOCK) && path.contains("/_c_") => {
                self.may_begin(|action| *action == Action::Acquire(pid));
                let Some(applied) = applied(EventType::NodeCreated) else {
                    return self.serve(
                        pid,
                        |state, _, step| step == Step::Create && !state.zookeeper.has_parents,
                        |_| true,
                    );
                };
                self.creators.extend(number(&applied).map(|node| (node, pid)));
                let is_new = self.guids.insert(path.to_owned());
                let is_create = |state: &State, guid, step| {
                    step == Step::Create
                        && state.attempts.get(&guid).is_some_and(|of| of.is_created != is_new)
                };
                self.serve(pid, is_create, |_| false)
                    && self.trace.see(|state| {
                        state
                            .zookeeper
                            .queue
                            .last()
                            .is_some_and(|last| Some(last.0) == number(&applied))
                    })
            }
            "getChildren" | "getChildren2" if path == LOCK => {
                let lists = operation == "getChildren2";
                self.serve(
                    pid,
                    |_, _, step| step == Step::Search || lists && step == Step::List,
                    |state| is_idle(state, pid),
                )
            }
            "getData" if path.starts_with(LOCK) && text.ends_with(" watch") => {
                let ahead = number(path);
                // A holder watches its own node, which may be gone.
                if ahead.is_some_and(|node| self.creators.get(&node) == Some(&pid)) {
                    return true;
                }
                let is_watch =
                    |_: &State, _, step| matches!(step, Step::Watch(node) if Some(node) == ahead);
                self.serve(pid, is_watch, |state| is_idle(state, pid))
            }
            "delete" if path.starts_with(LOCK) => {
                // Of two deletes of one node that arrive together, the first one is applied.
                let applied = applied(EventType::NodeDeleted)
                    .filter(|of| of.ends_with(path) && !self.applied.contains(of));
                let is_applied = applied.is_some();
                self.applied.extend(applied);
                let has_node =
                    |state: &State| number(path).is_some_and(|node| state.zookeeper.has_node(node));
                let is_delete = |state: &State, guid, step| {
                    let place =
                        state.zookeeper.place(guid).map(|place| state.zookeeper.queue[place].0);
                    matches!(step, Step::Leave | Step::Release)
                        && place == number(path).filter(|_| is_applied)
                };
                self.serve(pid, is_delete, |_| !is_applied)
                    && self.trace.see(|state| !is_applied || !has_node(state))
            }
            _ => true,
        }
    }

    fn reply(&mut self, pid: Pid, text: &str) -> bool {
        let session = text.split(' ').find_map(|word| word.strip_prefix("sessionId=0x"));
        let Some(session) = session.filter(|id| *id != "0") else { return true };
        if self.sessions.contains_key(session) {
            return true;
        }
        let number = self.sessions.values().filter(|of| of.0 == pid).count();
        self.sessions.insert(session.to_owned(), (pid, u8::try_from(number).unwrap_or(u8::MAX)));
        self.lease_may_end(pid);
        number == 0 || self.happens(|change| change == Change::NewSession(pid), |_| false)
    }

    /// A node was deleted, and by no request: its session has ended.
    fn deleted(&mut self, path: &str) -> bool {
        let Some(node) = number(path).filter(|_| path.starts_with(LOCK)) else { return true };
        let is_gone = |state: &State| !state.zookeeper.has_node(node);
        self.may_begin(|action| matches!(action, Action::Happens(Change::LeaseEnds(_))));
        self.happens(|change| matches!(change, Change::SessionEnds(_)), is_gone)
            && self.trace.see(is_gone)
    }

    fn says(&mut self, pid: Pid, text: &str) -> bool {
        let holds = |state: &State| {
            state.attempts.iter().any(|(guid, of)| guid.0 == pid && of.step == Step::Held)
        };
        match text.split_once(LOCK) {
            Some(("holds ", path)) => {
                let node = number(path);
                let is_it = |state: &State, guid: &Guid| {
                    state
                        .zookeeper
                        .place(*guid)
                        .is_none_or(|at| Some(state.zookeeper.queue[at].0) == node)
                };
                self.trace.see(|state| {
                    state.attempts.iter().any(|(guid, of)| {
                        guid.0 == pid && of.step == Step::Held && is_it(state, guid)
                    })
                })
            }
            Some(("has released " | "drops " | "does not get " | "gives ", _)) => {
                self.trace.see(|state| !holds(state))
            }
            _ => true,
        }
    }

    fn may_begin(&mut self, is_it: impl Fn(&Action) -> bool) {
        self.trace.may_begin(is_it);
    }

    /// An acquire of a process may have been given up, or its hold, before this.
    fn may_end(&mut self, pid: Pid) {
        let ends = |action: &Action| matches!(action, Action::GiveUp(guid) | Action::LetGo(guid) if guid.0 == pid);
        self.may_begin(ends);
    }

    fn lease_may_end(&mut self, pid: Pid) {
        self.may_begin(|action| *action == Action::Happens(Change::LeaseEnds(pid)));
    }

    fn serve(
        &mut self,
        pid: Pid,
        is_it: impl Fn(&State, Guid, Step) -> bool,
        is_none: impl Fn(&State) -> bool,
    ) -> bool {
        let is_seen = |state: &State, action: &Action| matches!(action, Action::Serve(guid, step) if guid.0 == pid && is_it(state, *guid, *step));
        self.trace.step(is_seen, is_none)
    }

    fn happens(
        &mut self,
        is_it: impl Fn(Change) -> bool,
        is_none: impl Fn(&State) -> bool,
    ) -> bool {
        self.trace
            .step(|_, action| matches!(action, Action::Happens(change) if is_it(*change)), is_none)
    }
}

/// Whether a process has no acquire in progress: its reads may be those of one that was given up.
fn is_idle(state: &State, pid: Pid) -> bool {
    state.attempts.iter().all(|(guid, of)| guid.0 != pid || of.is_given_up)
}

/// The number at the end of a lock node's path.
fn number(path: &str) -> Option<Node> {
    path.rsplit_once('-')?.1.parse().ok()
}

/// The process that a fault ends.
fn killed(fault: &str) -> Option<Pid> {
    fault.strip_prefix("Kill { process: ")?.split(',').next()?.parse().ok()
}
