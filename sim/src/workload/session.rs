//! Sessions: clients that come and go, closes at any moment, changes of the server list, and the order of states.

use std::{
    collections::BTreeSet, future::poll_fn, sync::atomic::Ordering, task::Poll, time::Duration,
};

use docent::{Client, ConnectionState, ErrorKind, Instant, States, WeakClient};

use super::{Worker, config};
use crate::{
    history::What,
    plan::{ClientStep, VisitEnd, VisitStep},
    process::Pid,
    world::World,
};

/// By how much a close may be late, with polls put off.
const LATE: Duration = Duration::from_millis(1_500);

/// Does something with the client of the process.
pub(crate) async fn run(worker: &Worker, step: &ClientStep) {
    match step {
        ClientStep::UpdateServerList(members) => {
            let members: Vec<_> = members.iter().map(|at| format!("s{at}:2181")).collect();
            let list = members.join(",");
            let updated = worker.client.update_server_list(&list);
            worker.say(format!("updates its servers to {list}: {updated:?}"));
        }
        ClientStep::Close => close(&worker.world, worker.pid, &worker.client).await,
        ClientStep::Detach => {
            let token = worker.client.detach();
            worker.say(format!("detaches: {}", token.is_some()));
        }
    }
}

/// Starts another client, and ends it.
pub(crate) async fn visit(worker: &Worker, step: &VisitStep) {
    let client = config(&worker.world, worker.pid, &step.client).start();
    follow(&worker.world, worker.pid, &client);
    let visitor = worker.with_client(client, step.client.waits_when_full);
    // Boxed, for a visitor may have steps of any kind.
    Box::pin(visitor.steps(step.steps.clone())).await;
    visitor.finish().await;
    let client = visitor.client;
    let (world, pid) = (&worker.world, worker.pid);
    match step.end {
        VisitEnd::Close => close(world, pid, &client).await,
        VisitEnd::CloseTwice => {
            let other = client.clone();
            tokio::join!(close(world, pid, &client), close(world, pid, &other));
        }
        VisitEnd::CancelledClose => {
            let mut closing = Box::pin(client.close());
            poll_fn(|cx| {
                let _ = closing.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
        }
        VisitEnd::Drop => drop(client),
        VisitEnd::Resume => {
            let Some(token) = client.detach() else { return close(world, pid, &client).await };
            let again = config(world, pid, &step.client).with_session(token).start();
            follow(world, pid, &again);
            let again = worker.with_client(again, step.client.waits_when_full);
            Box::pin(again.steps(step.steps.clone())).await;
            again.finish().await;
            close(world, pid, &again.client).await;
        }
    }
}

/// Closes a client, which takes no longer than promised, and ends the session.
pub(crate) async fn close(world: &World, pid: Pid, client: &Client) {
    let stops = world.core().process(pid).stops;
    let (began_at, started, token) = (world.now(), client.now(), client.session_token());
    let was_ended = client.ended().is_some();
    let closed = client.close().await;
    let took = client.now() - started;
    let text =
        format!("close: {:?} after {took:?}", closed.as_ref().err().map(|error| error.kind()));
    world.record(What::State(pid, text));
    let bad = |text: String| world.record(What::Violation(format!("p{pid}: {text}")));
    if took > client.config().connection_timeout() + LATE
        && world.core().process(pid).stops == stops
    {
        bad(format!("a close took {took:?}"));
    }
    match &closed {
        Ok(()) => {
            let session = token.map(|token| token.session_id());
            let left =
                session.filter(|id| world.core().servers.ensemble.session_ids().contains(id));
            if let Some(session) = left.filter(|_| !was_ended) {
                let text = format!("p{pid}: session {session:#x} is closed, and still there");
                // A leader that was paused says that a session has expired, before it knows that it leads no more. A process
                // that was stopped reads it later.
                let now = world.now();
                let is_during = |(from, to): &(_, _)| *from <= now && began_at <= *to;
                let is_cut = world.core().cuts.iter().any(is_during);
                world.record(if is_cut { What::Counted(text) } else { What::Violation(text) });
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
}

async fn follow_states(world: World, pid: Pid, mut states: States) {
    use ConnectionState::{Connected, Lost, ReadOnly, Reconnected, Suspended};
    let (mut current, mut was_connected) = (None, false);
    while let Some(state) = states.next().await {
        let is_legal = match (current, state) {
            (Some(current), state) if current == state => false,
            (_, Connected) => !was_connected,
            (_, Reconnected) => was_connected,
            (Some(Lost), Suspended) => false,
            (None | Some(_), Suspended | Lost | ReadOnly) => true,
        };
        if !is_legal {
            let text = format!("p{pid}: the state {state:?} follows {current:?}");
            world.record(What::Violation(text));
        }
        was_connected |= matches!(state, Connected | Reconnected);
        current = Some(state);
    }
}

/// A session is LOST once the deadline of its lease has passed.
async fn follow_lease(world: World, pid: Pid, client: WeakClient) {
    // A session that only a read-only server knows has nothing to lose.
    let mut of_quorum = BTreeSet::new();
    let mut overdue = |client: &Client, continued_at: Instant| {
        let lease = client.session()?;
        let state = (*client.state().borrow())?;
        if matches!(state, ConnectionState::Connected | ConnectionState::Reconnected) {
            of_quorum.insert(lease.session_id());
        }
        // A late answer to an old request keeps the connection for a while, and does not renew the lease.
        let slack = match state {
            ConnectionState::Connected | ConnectionState::Reconnected => client.session_timeout(),
            _ => Duration::from_millis(300),
        };
        let from = lease.deadline().max(continued_at);
        // A close ends the lease at once, and the state when it is answered.
        let is_over =
            client.now() > from + slack && state != ConnectionState::Lost && !lease.is_lost();
        (is_over && of_quorum.contains(&lease.session_id())).then_some((lease.session_id(), state))
    };
    // What has arrived while the process was stopped is a late answer.
    let (mut seen_stops, mut continued_at) = (0, Instant::ZERO);
    loop {
        let stops = world.core().process(pid).stops;
        let Some(before) = client.upgrade() else { return };
        if before.ended().is_some() {
            return;
        }
        if std::mem::replace(&mut seen_stops, stops) != stops {
            continued_at = before.now();
        }
        let first = overdue(&before, continued_at);
        drop(before);
        world.sleep(pid, Duration::from_millis(700)).await;
        let Some(after) = client.upgrade() else { return };
        let second = overdue(&after, continued_at);
        // Timers do not know of a jump of the clock: the state follows later then.
        let has_jumped = world.core().process(pid).jumped.load(Ordering::Relaxed) > 0;
        let is_same = first == second && world.core().process(pid).stops == stops;
        if first.is_some() && is_same && !has_jumped {
            let text = format!("p{pid}: the lease is over, but the state is {first:?}");
            world.record(What::Violation(text));
        }
    }
}
