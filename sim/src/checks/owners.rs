//! Objects of recipes that own nodes: after its close an object creates no node, and none of its nodes stays; an open one has
//! its node in peace.

use std::collections::{BTreeMap, BTreeSet};

use docent::Client;

use super::{ORPHAN_AFTER, REQUEST_ARRIVES_WITHIN};
use crate::world::{
    check::Findings,
    core::Core,
    time::{Nanos, Pid, SECOND},
};

/// The longest time without the node, or with older data, after the peace or the last change, beyond the session timeout. The
/// pauses of retries are up to 10 s.
pub(crate) const OWNED_WITHIN: Nanos = 20 * SECOND;

/// The objects whose close has begun, by the names that their nodes carry.
#[derive(Default)]
pub(crate) struct Closed {
    /// With the session in which the close returned without an error.
    objects: BTreeMap<String, (Closing, Option<i64>)>,
    reported: BTreeSet<String>,
}

/// A close that begins.
pub(crate) struct Closing {
    pub(crate) pid: Pid,
    pub(crate) at: Nanos,
    /// Whether the object leaves its node.
    pub(crate) leaves: bool,
    /// The sessions that its nodes belong to; `None`: any.
    pub(crate) sessions: Option<BTreeSet<i64>>,
}

/// A node of an object on the servers.
pub(crate) struct Owned<'a> {
    pub(crate) path: &'a str,
    /// The session that owns it; 0 and less: it belongs to no session.
    pub(crate) owner: i64,
    /// Whether the object has created it, and not only written it.
    pub(crate) is_creator: bool,
}

impl Closed {
    /// The close of an object begins.
    pub(crate) fn begin(&mut self, id: &str, closing: Closing) {
        self.objects.insert(id.to_owned(), (closing, None));
    }

    /// The close of an object has returned without an error: it has no node in this session.
    pub(crate) fn returned(&mut self, id: &str, session: Option<i64>) {
        if let Some((_, returned)) = self.objects.get_mut(id) {
            *returned = session;
        }
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.objects.contains_key(id)
    }

    /// Judges the create of a node by an object.
    pub(crate) fn judge_create(
        &self,
        core: &Core,
        now: Nanos,
        id: &str,
        path: &str,
        found: &mut Findings,
    ) {
        let Some((object, _)) = self.objects.get(id) else { return };
        let from = object.at.max(core.undisturbed_since(object.pid));
        if now > from + REQUEST_ARRIVES_WITHIN {
            found.violation(format!("{id} creates {path} after its close"));
        }
    }

    /// Judges a node that is there.
    pub(crate) fn judge_node(
        &mut self,
        core: &Core,
        now: Nanos,
        id: &str,
        node: &Owned<'_>,
        found: &mut Findings,
    ) {
        let Some((object, returned)) = self.objects.get(id) else { return };
        let Owned { path, owner, is_creator } = *node;
        let is_concerned =
            object.sessions.as_ref().map_or(owner != 0, |sessions| sessions.contains(&owner));
        let is_left = is_concerned
            && core.is_active(object.pid)
            && now > object.at.max(core.disturbed_until(object.pid)) + ORPHAN_AFTER;
        let is_refuted =
            returned.is_some_and(|session| session == owner || owner <= 0 && is_creator);
        if (is_left || is_refuted) && !object.leaves && self.reported.insert(path.to_owned()) {
            found.violation(format!("{id} is closed, not {path}"));
        }
    }
}

/// The start of the time in which the node of an open object has been wrong in peace.
#[derive(Default)]
pub(crate) struct WrongSince(Option<Nanos>);

impl WrongSince {
    /// Notes whether the node is wrong now. Returns whether that has lasted for too long, also after `wanted_at`.
    pub(crate) fn is_overdue(
        &mut self,
        core: &Core,
        now: Nanos,
        (pid, client): (Pid, &Client),
        wanted_at: Nanos,
        is_wrong: bool,
    ) -> bool {
        let disturbances = &core.disturbances;
        let is_judged = now >= disturbances.peace_at
            && core.process(pid).is_running()
            && client.ended().is_none();
        if !is_wrong || !is_judged {
            self.0 = None;
            return false;
        }
        let since = *self.0.get_or_insert(now);
        let from = since.max(wanted_at).max(core.disturbed_until(pid));
        now > from + disturbances.longest_timeout + OWNED_WITHIN
    }
}
