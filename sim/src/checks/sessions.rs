//! Sessions of all clients: the order of their states, the end of a lease, and closes.

use std::{collections::BTreeSet, time::Duration};

use docent::{
    Client, ConnectionState, ErrorKind, Events, client::WeakClient, runtime::Instant,
    session::StateEvent,
};

use crate::world::{World, disturbances::CONNECTED_WITHIN, history::What, time::Pid};

/// The delay of a ping and of its reply, with polls put off and a slow delivery.
const PING_SLACK: Duration = Duration::from_millis(1_200);

/// How long after its limit a call may return: one second for a request in progress, and polls that are put off.
const BEHIND_LIMIT: Duration = Duration::from_millis(2_500);

/// The excuse of [`Disturbances::has_moved`](crate::world::disturbances::Disturbances::has_moved).
pub(crate) const MOVED: &str = "a session that a late request has moved";

/// Awaits a call, and reports one that takes longer than its limit, by the clock of its process.
pub(crate) async fn limited<F: Future>(
    world: &World,
    (pid, client): (Pid, &Client),
    what: &str,
    limit: Option<Duration>,
    call: F,
) -> F::Output {
    let interruptions = || world.core().process(pid).interruptions;
    let (before, started) = (interruptions(), client.now());
    let output = call.await;
    let took = client.now() - started;
    if limit.is_some_and(|limit| took > limit + BEHIND_LIMIT) && interruptions() == before {
        world.record(What::Violation(format!("{what} within {limit:?} took {took:?}")));
    }
    output
}

/// Closes a client, and checks that this takes no longer than promised and ends the session.
pub(crate) async fn close(world: &World, pid: Pid, client: &Client) {
    let (began_at, token) = (world.now(), client.session_token());
    let was_ended = client.ended().is_some();
    world.core().process_mut(pid).is_closing = true;
    let (limit, what) = (client.config().connection_timeout(), format!("p{pid}: a close"));
    let closed = limited(world, (pid, client), &what, Some(limit), client.close()).await;
    let text = format!("close: {:?}", closed.as_ref().err().map(|error| error.kind()));
    world.record(What::State(pid, text));
    let bad = |text: String| world.record(What::Violation(format!("p{pid}: {text}")));
    match &closed {
        Ok(()) => {
            let session = token.map(|token| token.session_id());
            let left = session.filter(|id| world.core().ensemble().session_ids().contains(id));
            if let Some(session) = left.filter(|_| !was_ended) {
                let text = format!("p{pid}: session {session:#x} is closed, and still there");
                // A leader that was paused may reply that a session has expired before it knows that it no longer
                // leads. A process that was stopped reads that reply later.
                let now = world.now();
                let is_during = |(from, to): &(_, _)| *from <= now && began_at <= *to;
                let is_cut = world.core().disturbances.cuts.iter().any(is_during);
                let excuse = "a close answered by a deposed leader";
                world.record(if is_cut {
                    What::Counted { excuse, text }
                } else {
                    What::Violation(text)
                });
            }
        }
        Err(error) => {
            let kinds = [ErrorKind::OperationTimeout, ErrorKind::ConnectionLoss, ErrorKind::Closed];
            if !kinds.contains(&error.kind()) {
                bad(format!("a close failed with {error}"));
            }
        }
    }
    if client.ended().is_none() {
        bad("a closed client has not ended".to_owned());
    }
}

/// Watches the states of a client.
pub(crate) fn follow(world: &World, pid: Pid, client: &Client) {
    world.spawn(pid, follow_states(world.clone(), pid, client.states()));
    world.spawn(pid, follow_lease(world.clone(), pid, client.downgrade()));
    world.core().process_mut(pid).clients += 1;
    world.spawn(pid, follow_connection(world.clone(), pid, client.downgrade()));
}

async fn follow_states(world: World, pid: Pid, mut states: Events<StateEvent>) {
    use ConnectionState::{Connected, Lost, ReadOnly, Reconnected, Suspended};
    // `None`: a state that was missed may have been the first connection.
    let (mut current, mut was_connected) = (None, Some(false));
    let mut read_at = world.now();
    while let Some(event) = states.next().await {
        let before = std::mem::replace(&mut read_at, world.now());
        let Some(state) = event.state() else {
            let text = format!("p{pid}: states are missing: {event:?}");
            if world.core().process(pid).starved_until <= before {
                return world.record(What::Violation(text));
            }
            world.record(What::Counted { excuse: "states that a starved task has missed", text });
            (current, was_connected) = (None, was_connected.filter(|was| *was));
            continue;
        };
        let is_legal = match (current, state) {
            (Some(current), state) if current == state => false,
            (_, Connected) => was_connected != Some(true),
            (_, Reconnected) => was_connected != Some(false),
            (Some(Lost), Suspended) => false,
            (None | Some(_), Suspended | Lost | ReadOnly) => true,
        };
        if !is_legal {
            let text = format!("p{pid}: the state {state:?} follows {current:?}");
            world.record(What::Violation(text));
        }
        if matches!(state, Connected | Reconnected) {
            was_connected = Some(true);
        }
        current = Some(state);
    }
}

/// Without a fault, a client is connected, keeps its connection, and pings in time: a reply to each ping renews its
/// lease.
async fn follow_connection(world: World, pid: Pid, client: WeakClient) {
    let (mut before, mut settled_since) = (None, None);
    let mut sessions = SessionsOf::default();
    loop {
        let Some(client) = client.upgrade().filter(|client| client.ended().is_none()) else {
            return;
        };
        let (now, state, metrics) = (world.now(), client.state().get(), client.metrics());
        let (timeout, lease) = (client.session_timeout(), client.session());
        let left = lease.as_ref().map(|lease| lease.deadline().duration_since(client.now()));
        let list_of_servers: BTreeSet<_> =
            client.servers().iter().map(ToString::to_string).collect();
        let (is_judged, reconnects) = {
            let core = world.core();
            (core.is_settled(pid, now) && core.keeps_session(pid), core.may_reconnect(pid))
        };
        sessions.look(&world, pid, &client);
        let since = *settled_since.get_or_insert(now);
        if !is_judged {
            settled_since = None;
        } else if now > since + CONNECTED_WITHIN && lease.as_ref().is_some_and(|of| !of.is_lost()) {
            let bad = |text: String| world.record(What::Violation(format!("p{pid}: {text}")));
            let is_connected = state.is_some_and(ConnectionState::is_connected);
            if !is_connected && !reconnects {
                bad(format!("is {state:?} without a cause"));
            }
            if let Some((connections, servers)) = &before
                && *connections != metrics.connections
                && !reconnects
                // Other servers are a reason to move.
                && *servers == list_of_servers
            {
                let text = format!("p{pid}: has lost its connection without a cause");
                let session = lease.as_ref().map_or(0, |of| of.session_id());
                world.record(if world.core().disturbances.has_moved(session, now) {
                    What::Counted { excuse: MOVED, text }
                } else {
                    What::Violation(text)
                });
            }
            // The lease ends a twentieth of the timeout early, and a ping is sent every third of it.
            let least = timeout.mul_f64(0.95 - 1.0 / 3.0).saturating_sub(PING_SLACK);
            if is_connected && left.is_some_and(|left| left < least) {
                bad(format!("has a lease of {left:?} left, of {timeout:?}"));
            }
        }
        before = Some((metrics.connections, list_of_servers));
        drop((client, lease));
        world.sleep(pid, Duration::from_secs(1)).await;
    }
}

/// The sessions of a client: one ends only if no member served the client for long enough.
#[derive(Default)]
struct SessionsOf {
    /// The number of sessions so far, whether the last one is over, and whether a fault may have ended it.
    last: Option<(u64, bool, bool)>,
}

impl SessionsOf {
    fn look(&mut self, world: &World, pid: Pid, client: &Client) {
        let count = client.metrics().sessions;
        // Not the lease, which a close ends too.
        let is_over = client.state().get() == Some(ConnectionState::Lost);
        let (may_end, moves_on) = {
            let core = world.core();
            let may_end = core.may_lose_session(pid, world.now()) || !core.keeps_session(pid);
            // With a connection goes a local session, which the next member does not know.
            (may_end, core.servers.has_local_sessions && core.may_reconnect(pid))
        };
        let Some((last, was_over, might_end)) = self.last.replace((count, is_over, may_end)) else {
            return;
        };
        let has_ended = last > 0 && !was_over && (is_over || last != count);
        if has_ended && !might_end && !may_end {
            let text = format!("p{pid}: has lost its session without a cause");
            world.record(if moves_on {
                What::Counted { excuse: "a local session that has left its member", text }
            } else {
                What::Violation(text)
            });
        }
    }
}

/// A session is LOST once the deadline of its lease has passed.
async fn follow_lease(world: World, pid: Pid, client: WeakClient) {
    // A session that only a read-only server knows has nothing to lose.
    let mut of_quorum = BTreeSet::new();
    let mut overdue = |client: &Client, continued_at: Instant, late_by: Duration| {
        let lease = client.session()?;
        let state = client.state().get()?;
        if matches!(state, ConnectionState::Connected | ConnectionState::Reconnected) {
            of_quorum.insert(lease.session_id());
        }
        // A late answer to an old request keeps the connection for a while, and does not renew the lease.
        let slack = match state {
            ConnectionState::Connected | ConnectionState::Reconnected => client.session_timeout(),
            _ => Duration::from_millis(300),
        };
        let from = lease.deadline().max(continued_at) + late_by;
        // A close ends the lease at once, but the state changes only when it is answered.
        let is_over =
            client.now() > from + slack && state != ConnectionState::Lost && !lease.is_lost();
        (is_over && of_quorum.contains(&lease.session_id())).then_some((lease.session_id(), state))
    };
    // A process that was stopped reads late replies when it continues.
    let (mut seen, mut continued_at) = (0, Instant::ZERO);
    // Timers that were set before a jump of the clock are late by the length of the jump.
    let (mut jumped, mut felt_until) = (Duration::ZERO, 0);
    loop {
        let interruptions = world.core().process(pid).interruptions;
        let Some(before) = client.upgrade() else { return };
        if before.ended().is_some() {
            return;
        }
        let is_starved = world.core().process(pid).starved_until > world.now();
        if std::mem::replace(&mut seen, interruptions) != interruptions || is_starved {
            continued_at = before.now();
            let core = world.core();
            let late_by = core.process(pid).timers_late_at(world.now());
            jumped = Duration::from_nanos(late_by);
            felt_until = world.now() + core.disturbances.longest_timeout + late_by;
        }
        let late_by = if world.now() < felt_until { jumped } else { Duration::ZERO };
        let first = overdue(&before, continued_at, late_by);
        drop(before);
        world.sleep(pid, Duration::from_millis(700)).await;
        let Some(after) = client.upgrade() else { return };
        let second = overdue(&after, continued_at, late_by);
        let is_same = first == second && world.core().process(pid).interruptions == interruptions;
        if first.is_some() && is_same {
            let text = format!("p{pid}: the lease is over, but the state is {first:?}");
            world.record(What::Violation(text));
        }
    }
}

/// Notes the states of the client of a process, and its session.
pub(crate) fn note_states(
    world: World,
    pid: Pid,
    client: &Client,
) -> impl Future<Output = ()> + use<> {
    let (mut states, client) = (client.state(), client.downgrade());
    async move {
        while let Some(state) = states.next().await {
            let text = state.map_or("ended".to_owned(), |state| format!("{state:?}"));
            world.record(What::State(pid, text));
            let now = world.now();
            world.core().process_mut(pid).state_changed_at = now;
            let session = client.upgrade().and_then(|client| client.session_token());
            if let Some(session) = session {
                let mut core = world.core();
                core.process_mut(pid).session = Some(session.session_id());
                core.process_mut(pid).token = Some(session);
            }
        }
    }
}
