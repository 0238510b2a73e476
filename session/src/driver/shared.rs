//! The state that the clients share with the driver's task: the locked machine, the clock, and the connection states.
//!
//! Only plain computation happens under the machine's lock: no callback, no await. A slot's lock may be taken under it;
//! nothing is locked under a slot's lock. No waker is called or dropped under a lock, because both may run code of the
//! caller. One place locks for clients (`Shared::with`, and `Shared::submit` for the hot
//! path), one for the task (`turn`).

use std::{
    sync::{Arc, PoisonError, Weak},
    task::Waker,
    time::Duration,
};

use docent_protocol::operation::ApplicationOperation;
use tokio::sync::{Notify, broadcast, watch};

use super::{
    clock::Clock,
    last_connection::LastConnection,
    notifier::Notifier,
    preference::Costs,
    reply_slot::{Limiter, PendingReply, ReplySlots, Token, Wakeups},
    settings::Settings,
};
use crate::{
    ConnectionState, ErrorKind, SessionToken,
    config::Host,
    machine::{Registration, Session},
    sync::{Mutex, MutexGuard},
    time::Instant,
};

pub(crate) type Machine = Session<Token, Notifier, ReplySlots>;

/// The number of states that are buffered for a slow listener; beyond it, the listener misses the oldest.
///
/// Source: Curator's `ConnectionStateManager` keeps 25.
const STATES_KEPT: usize = 32;

/// The state that the clients share with the driver's task.
#[derive(Debug)]
pub(crate) struct Shared {
    locked: Mutex<Locked>,
    pub(super) clock: Clock,
    /// The number of events that a watcher buffers.
    pub(super) max_watch_events: usize,
    /// The costs of the servers, if the application has a preference.
    costs: Option<Costs>,
    /// Notified when the attempts with all servers have failed because of TLS.
    pub(crate) tls_mismatch: Notify,
    /// The name of servers that the client was started with.
    pub(super) name: Option<Host>,
    /// Notified when the servers of a name are to be looked up now.
    pub(super) look_up: Notify,
    /// Locked while a state is published and while a listener is added, so that each listener receives each state once.
    states: Mutex<States>,
}

/// The states of the connection: the current one, and a queue of all. Their receivers end with the client.
#[derive(Debug)]
pub(super) struct States {
    /// `None` once the client has ended.
    senders: Option<StateSenders>,
    /// The current state, once the client has ended.
    last: Option<ConnectionState>,
}

#[derive(Debug)]
struct StateSenders {
    current: watch::Sender<Option<ConnectionState>>,
    /// Made for the first listener: its memory is an eighth of that of an idle session.
    each: Option<broadcast::Sender<ConnectionState>>,
}

impl States {
    fn new() -> Self {
        let senders = StateSenders { current: watch::Sender::new(None), each: None };
        Self { senders: Some(senders), last: None }
    }

    pub(super) fn publish(&self, state: ConnectionState) {
        if let Some(StateSenders { current, each }) = &self.senders {
            current.send_replace(Some(state));
            if let Some(each) = each {
                // An error means that there are no listeners.
                let _ = each.send(state);
            }
        }
    }

    /// Ends the states. A closed client has no current state any more.
    pub(super) fn end(&mut self, kind: ErrorKind) {
        let Some(StateSenders { current, .. }) = self.senders.take() else { return };
        if kind == ErrorKind::Closed {
            current.send_replace(None);
        }
        self.last = *current.borrow();
    }
}

#[derive(Debug)]
pub(super) struct Locked {
    pub(super) machine: Machine,
    /// The waker of the task; `None` once it was used.
    pub(super) waker: Option<Waker>,
    /// Whether the socket has not accepted all bytes yet, so that the task takes new requests by itself once it has.
    pub(super) writing: bool,
    /// When the task wakes up by itself.
    pub(super) alarm: Option<Instant>,
    /// When the task tries the next server, if it waits for that.
    pub(super) connects_at: Option<Instant>,
    /// Whether the program has set the server list, in place of the servers of a name.
    has_own_servers: bool,
    /// The connection for the last drop of the client, if the task was dropped earlier.
    pub(super) last_connection: Option<LastConnection>,
}

impl Locked {
    /// The waker of the task, if the machine has work that the task does not wait for already, and the task was not
    /// woken yet.
    fn due(&mut self) -> Option<Waker> {
        self.waker.as_ref()?;
        let due = (!self.writing && self.machine.wants_write())
            || self.machine.is_broken()
            || self.machine.has_events()
            || self.machine.connects_at() != self.connects_at
            || match (self.machine.poll_timeout(), self.alarm) {
                (Some(new), Some(old)) => new < old,
                (Some(_), None) => true,
                (None, _) => false,
            };
        if due { self.waker.take() } else { None }
    }
}

impl Shared {
    pub(crate) fn new(machine: Machine, clock: Clock, settings: &Settings) -> Arc<Self> {
        Arc::new_cyclic(|shared: &Weak<Self>| Self::with_limiter(shared, machine, clock, settings))
    }

    fn with_limiter(
        limiter: &Weak<Self>,
        mut machine: Machine,
        clock: Clock,
        settings: &Settings,
    ) -> Self {
        // A clone in a variable: it becomes that of a trait object.
        let limiter = Weak::clone(limiter);
        machine.answer_sink().set_limiter(limiter);
        let name = machine.servers().iter().find(|host| host.is_dns_srv()).cloned();
        Self {
            locked: Mutex::new(Locked {
                machine,
                waker: None,
                writing: false,
                alarm: None,
                connects_at: None,
                has_own_servers: false,
                last_connection: None,
            }),
            clock,
            max_watch_events: settings.max_watch_events,
            costs: settings.preference.clone().map(Costs::new),
            tls_mismatch: Notify::new(),
            name,
            look_up: Notify::new(),
            states: Mutex::new(States::new()),
        }
    }

    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Computes the costs of the servers anew.
    pub(crate) fn rank_servers(&self) {
        let Some(costs) = &self.costs else { return };
        loop {
            let servers = self.with(|machine| machine.servers().to_vec());
            // The name of `dns-srv://name` is no server.
            if servers.iter().any(Host::is_dns_srv) {
                return;
            }
            let Some(costs) = costs.compute(&servers) else { return };
            // The list may have been replaced meanwhile, with the costs of its servers.
            let is_current = self.with(|machine| {
                let is_current = are_same(machine.servers(), &servers);
                if is_current {
                    machine.set_costs(costs);
                }
                is_current
            });
            if is_current {
                return;
            }
        }
    }

    /// Records how long a connection to a server took to open.
    pub(super) fn note_connect_time(&self, host: &Host, took: Duration) {
        if let Some(costs) = &self.costs {
            costs.note_connect_time(host, took);
            self.rank_servers();
        }
    }

    /// Replaces the server list, also that of a name, until [`follow_name`](Self::follow_name).
    pub(crate) fn update_server_list(&self, hosts: &[Host]) {
        self.lock().has_own_servers = true;
        self.replace_servers(hosts, |_| true, |machine| machine.update_server_list(hosts));
    }

    /// Uses the servers of the name that the client was started with, as soon as they are looked up.
    pub(crate) fn follow_name(&self) {
        self.lock().has_own_servers = false;
        self.look_up.notify_one();
    }

    /// Uses the servers that the first lookup of a name has found, unless the program has set a list: then it returns false,
    /// and the attempt to connect goes on.
    pub(super) fn use_servers_of_name(&self, hosts: &[Host]) -> bool {
        let is_wanted = |locked: &Locked| !locked.has_own_servers;
        self.replace_servers(hosts, is_wanted, |machine| machine.handle_servers(hosts))
    }

    /// As [`use_servers_of_name`](Self::use_servers_of_name), for a later lookup: no connection ends, and nothing changes
    /// during a move, whose server is chosen. Returns whether the servers are others than before.
    pub(super) fn follow_servers(&self, hosts: &[Host]) -> bool {
        let is_wanted = |locked: &Locked| {
            !locked.has_own_servers
                && !locked.machine.is_moving()
                && !are_same(locked.machine.servers(), hosts)
        };
        // The costs of other servers are not computed: what is known of the present ones would be forgotten.
        is_wanted(&self.lock())
            && self.replace_servers(hosts, is_wanted, |machine| machine.follow_servers(hosts))
    }

    /// Computes the costs of these servers, and replaces the server list and the costs together, if that is still wanted.
    fn replace_servers(
        &self,
        hosts: &[Host],
        is_wanted: impl Fn(&Locked) -> bool,
        replace: impl FnOnce(&mut Machine),
    ) -> bool {
        let costs = self.costs.as_ref().and_then(|costs| costs.compute(hosts));
        self.with_locked(|locked| {
            let is_wanted = is_wanted(locked);
            if is_wanted {
                if let Some(costs) = costs {
                    locked.machine.set_costs(costs);
                }
                replace(&mut locked.machine);
            }
            is_wanted
        })
    }

    /// Runs `f` on the locked machine, then wakes the task if there is work for it, and the callers whose replies are
    /// ready.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Machine) -> R) -> R {
        self.with_locked(|locked| f(&mut locked.machine))
    }

    fn with_locked<R>(&self, f: impl FnOnce(&mut Locked) -> R) -> R {
        let mut locked = self.lock();
        let result = f(&mut locked);
        self.unlock(locked);
        result
    }

    /// Wakes the task if there is work for it, and the callers whose replies are ready.
    #[inline(always)] // 64 more instructions a getData without `unlock`, `prefix`, `Field::take`.
    fn unlock(&self, mut locked: MutexGuard<'_, Locked>) {
        let waker = if locked.waker.is_some() { locked.due() } else { None };
        if locked.machine.has_answers() {
            self.wake_callers(locked);
        } else {
            drop(locked);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the callers of replies that the machine made itself, mostly refusals. Deferred replies and events are left
    /// to the task.
    #[cold]
    fn wake_callers(&self, mut locked: MutexGuard<'_, Locked>) {
        let mut wakeups = Wakeups::default();
        wakeups.collect_wakers(locked.machine.answers_mut());
        drop(locked);
        wakeups.wake();
    }

    /// As [`with`](Self::with), for a request; `path` is the caller's, for the errors of its reply.
    pub(crate) fn request(&self, path: &str, f: impl FnOnce(&mut Machine, Token)) -> PendingReply {
        let (mut locked, token, reply) = self.begin(path);
        f(&mut locked.machine, token);
        self.unlock(locked);
        reply
    }

    /// Submits an operation; `path` is the caller's, for the errors of its reply.
    // Not by `request`, whose closure copies its captures: 6 instructions a request.
    #[inline]
    pub(crate) fn submit(
        &self,
        path: &str,
        operation: &impl ApplicationOperation,
        watch: Option<Registration<Notifier>>,
    ) -> PendingReply {
        let (mut locked, token, reply) = self.begin(path);
        locked.machine.submit(operation, token, watch, || self.clock.now());
        self.unlock(locked);
        reply
    }

    /// Locks the machine, and takes a slot for the reply to a request.
    #[inline(always)] // 34 more instructions a getData with `inline`.
    fn begin(&self, path: &str) -> (MutexGuard<'_, Locked>, Token, PendingReply) {
        let mut locked = self.lock();
        let (token, reply) = locked.machine.answer_sink().take_slot(path);
        (locked, token, reply)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        // No method of the machine panics, so a poisoned machine is consistent.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self, within: Duration) -> PendingReply {
        let until = self.clock.now() + within;
        let reply = self.request("", |machine, token| machine.close(Some(token), until));
        self.close_last_connection();
        reply
    }

    /// As [`close`](Self::close), for the last drop of the client: the confirmation has no waiter.
    pub(crate) fn close_in_background(&self, within: Duration) {
        let until = self.clock.now() + within;
        self.with(|machine| machine.close(None, until));
        self.close_last_connection();
    }

    /// Writes closeSession if the task left it to the client, because its runtime had dropped it.
    fn close_last_connection(&self) {
        let last_connection = self.lock().last_connection.take();
        if let Some(last_connection) = last_connection {
            last_connection.close();
        }
    }

    pub(crate) fn detach(&self) -> Option<SessionToken> {
        let (token, _dropped) = self.with_locked(|locked| {
            let token = locked.machine.session_token();
            locked.machine.abandon_because("its session was detached");
            (token, locked.last_connection.take())
        });
        token
    }

    pub(crate) fn state(&self) -> watch::Receiver<Option<ConnectionState>> {
        let states = self.lock_states();
        match &states.senders {
            Some(StateSenders { current, .. }) => current.subscribe(),
            None => watch::channel(states.last).1,
        }
    }

    /// The current state, and the later ones.
    pub(crate) fn states(&self) -> (Option<ConnectionState>, broadcast::Receiver<ConnectionState>) {
        let mut states = self.lock_states();
        match &mut states.senders {
            Some(StateSenders { current, each }) => {
                let each = each.get_or_insert_with(|| broadcast::Sender::new(STATES_KEPT));
                (*current.borrow(), each.subscribe())
            }
            None => (states.last, broadcast::channel(1).1),
        }
    }

    pub(super) fn lock_states(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two lists have the same servers, in whatever order.
fn are_same(one: &[Host], other: &[Host]) -> bool {
    one.len() == other.len() && one.iter().all(|host| other.contains(host))
}

impl Limiter for Shared {
    fn limit(&self, xid: i32, time: Duration) {
        let now = self.clock.now();
        self.with(|machine| machine.limit(xid, now, time));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::Config;

    // Case (Found in docent itself): costs that were computed while the server list was replaced took the place of those of
    // the new servers.
    #[test]
    fn costs_are_those_of_the_servers_that_are_listed() {
        let host = |name: &str| Host { name: name.into(), port: 1 };
        let shared: Arc<OnceLock<Weak<Shared>>> = Arc::default();
        let (listed, is_replaced) = (Arc::clone(&shared), AtomicBool::new(false));
        let config = Config::new("one:1,two:1").unwrap().with_server_preference(move |server| {
            if let Some(shared) = listed.get()
                && !is_replaced.swap(true, Ordering::Relaxed)
            {
                let new = ["three", "four"].map(|name| Host { name: name.into(), port: 1 });
                shared.upgrade().unwrap().update_server_list(&new);
            }
            server.host().name.len() as u64
        });
        let machine = Session::with_answers(config.clone(), 1, ReplySlots::default());
        let client = Shared::new(machine, Clock::system(), &config.driver);
        shared.set(Arc::downgrade(&client)).unwrap();
        client.rank_servers();
        let costs =
            ["three", "four", "one"].map(|name| client.with(|machine| machine.cost(&host(name))));
        assert_eq!(costs, [5, 4, u64::MAX]);
    }
}
