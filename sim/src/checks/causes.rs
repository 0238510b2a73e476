//! Causes: a hold, a leadership or a connection ends only for a reason that this file names.

use docent::Client;

use crate::world::{
    core::Core,
    time::{Nanos, Pid},
};

/// The longest time until a free lock, election or barrier is granted, once no fault has an effect any more. A
/// contender whose nodes were deleted pauses for up to 5 s.
pub(crate) const GRANTED_WITHIN: Nanos = 8 * crate::world::time::SECOND;

/// What a hold or a leadership needs to go on.
#[derive(Clone, Copy)]
pub(crate) enum RestsOn {
    /// The connection: its state ends a leadership, and only writes renew a strict hold.
    Connection,
    Session,
}

/// Why a hold or a leadership of a process has ended, if its holder has not given it up. `nodes`: its nodes, and the
/// nodes that it depends on, with the time since when it does. `None`: it was lost without a cause.
pub(crate) fn cause_of_end<'a>(
    core: &Core,
    now: Nanos,
    (pid, client): (Pid, &Client),
    (session, rests_on): (i64, RestsOn),
    nodes: impl IntoIterator<Item = (&'a str, Nanos)>,
) -> Option<&'static str> {
    let may_end = match rests_on {
        RestsOn::Connection => core.may_lose_connection(pid, now),
        RestsOn::Session => core.may_lose_session(pid, now),
    };
    if may_end {
        return Some("a fault");
    }
    cause_of_deletion(core, (pid, client), session, nodes)
}

/// Why the node of a hold is gone although its session is open.
pub(crate) fn cause_of_deletion<'a>(
    core: &Core,
    (pid, client): (Pid, &Client),
    session: i64,
    nodes: impl IntoIterator<Item = (&'a str, Nanos)>,
) -> Option<&'static str> {
    let mut nodes = nodes.into_iter();
    let resumed = |of: &crate::world::process::Process| of.resumed == Some(session);
    if client.ended().is_some() || core.process(pid).is_closing {
        Some("the client has ended")
    } else if nodes.any(|(path, since)| core.disturbances.is_invalidated_since(path, since)) {
        Some("another client")
    } else if core.processes.iter().any(resumed) {
        Some("another client of the session")
    } else {
        None
    }
}

/// Whether all nodes of a queue belong to the sessions of these processes, so that no node of a session that is about
/// to end is in their way.
pub(crate) fn is_queue_of(
    core: &Core,
    queue: &str,
    mut pids: impl Iterator<Item = Pid> + Clone,
) -> bool {
    let mut paths = core.ensemble().child_paths(queue);
    while let Some(path) = paths.pop() {
        let owner = core.ensemble().node(&path).map_or(0, |(_, stat)| stat.ephemeral_owner);
        let is_ours = || pids.clone().any(|pid| core.process(pid).session == Some(owner));
        if owner > 0 && !is_ours() {
            return false;
        }
        if owner <= 0 {
            paths.extend(core.ensemble().child_paths(&path));
        }
    }
    pids.next().is_some()
}
