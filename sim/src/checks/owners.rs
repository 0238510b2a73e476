//! Objects of recipes that own nodes: after its close an object creates no node, and none of its nodes stays; an open
//! one has its node in peace.

use std::{
    collections::{BTreeMap, BTreeSet},
    marker::PhantomData,
};

use docent::Client;
use docent_testing::server::AppliedChange;

use super::{ORPHAN_AFTER, REQUEST_ARRIVES_WITHIN};
use crate::world::{
    Using, World,
    check::{Check, Findings, Leftovers, View},
    core::Core,
    time::{Nanos, Pid, SECOND},
};

/// The longest time without the node, or with older data, after the peace or the last change, beyond the session
/// timeout. The pauses of retries are up to 10 s.
pub(crate) const OWNED_WITHIN: Nanos = 20 * SECOND;

/// The interval at which open objects are looked at.
const LOOKS_EVERY: Nanos = SECOND;

/// The objects whose close has begun, by the names that their nodes carry.
#[derive(Default)]
pub(crate) struct Closed {
    /// Each with the session in which its close returned without an error.
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
pub(crate) struct ServerNode<'a> {
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
        created: &AppliedChange,
        found: &mut Findings,
    ) {
        let Some((object, _)) = self.objects.get(id) else { return };
        // A request that was queued without a connection is sent once a member grants the session, which a task that is
        // polled late has not noted yet.
        let sent_at = core.disturbances.granted_at(created.session_id);
        let from = object.at.max(core.undisturbed_since(object.pid)).max(sent_at);
        if now > from + REQUEST_ARRIVES_WITHIN {
            found.violation(format!("{id} creates {} after its close", created.path));
        }
    }

    /// Judges a node that is there.
    pub(crate) fn judge_node(
        &mut self,
        core: &Core,
        now: Nanos,
        id: &str,
        node: &ServerNode<'_>,
        found: &mut Findings,
    ) {
        let Some((object, returned)) = self.objects.get(id) else { return };
        let ServerNode { path, owner, is_creator } = *node;
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

/// An object that has not been closed.
pub(crate) struct Open<T> {
    pub(crate) pid: Pid,
    pub(crate) worker: usize,
    pub(crate) client: Client,
    /// When it last wanted a change of its node.
    pub(crate) wanted_at: Nanos,
    /// Whether it is judged: it can have a node, and nothing was reported yet.
    is_judged: bool,
    /// Since when its node has been wrong in peace.
    wrong_since: Option<Nanos>,
    pub(crate) of: T,
}

/// What is wrong about the node of an open object.
pub(crate) struct Wrong {
    /// The name of the object.
    pub(crate) name: String,
    pub(crate) what: &'static str,
    /// The paths that the object writes to.
    pub(crate) paths: Vec<String>,
}

/// The objects of a recipe, by the names that their nodes carry.
pub(crate) struct NodeOwners<T> {
    pub(crate) open: BTreeMap<String, Open<T>>,
    pub(crate) closed: Closed,
    next_look: Nanos,
}

impl<T> Default for NodeOwners<T> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), closed: Closed::default(), next_look: 0 }
    }
}

impl<T: Send + 'static> NodeOwners<T> {
    /// Reports the open objects whose nodes are wrong for too long in peace, unless their last write may have been
    /// refused: an object writes again with its next change, and at the next reconnect.
    pub(crate) fn judge(
        &mut self,
        view: &View<'_>,
        found: &mut Findings,
        wrong: impl Fn(&str, &T) -> Option<Wrong>,
    ) {
        let now = view.now;
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOKS_EVERY;
        let core = view.core();
        let disturbances = &core.disturbances;
        for (id, open) in self.open.iter_mut().filter(|(_, open)| open.is_judged) {
            let is_peace = now >= disturbances.peace_at
                && core.process(open.pid).is_running()
                && open.client.ended().is_none();
            // A starved task notes a new state late, and a planned reconnect is none.
            let session = open.client.session_token().map_or(0, |token| token.session_id());
            let state_changed_at = core.process(open.pid).state_changed_at;
            let reconnected_at = state_changed_at.min(disturbances.granted_at(session));
            let wrote_at = open.wanted_at.max(reconnected_at);
            let is_refused = |wrong: &Wrong| {
                wrong.paths.iter().any(|path| wrote_at <= disturbances.denied_until(path))
            };
            let wrong = if is_peace { wrong(id, &open.of) } else { None };
            let Some(wrong) = wrong.filter(|wrong| !is_refused(wrong)) else {
                open.wrong_since = None;
                continue;
            };
            let since = *open.wrong_since.get_or_insert(now);
            let from = since.max(open.wanted_at).max(core.disturbed_until(open.pid));
            if now > from + disturbances.longest_timeout + OWNED_WITHIN {
                let Wrong { name, what, .. } = wrong;
                found.violation(format!("{name} of p{}.{} ({id}) {what}", open.pid, open.worker));
                open.is_judged = false;
            }
        }
    }

    /// Forgets the objects of a process that ends.
    pub(crate) fn process_ends(&mut self, pid: Pid) -> Leftovers {
        Box::new(self.open.extract_if(.., |_, open| open.pid == pid).collect::<Vec<_>>())
    }
}

/// A check of objects that own nodes.
pub(crate) trait OwnerCheck: Check {
    /// What the check knows of an open object.
    type Object: Send + 'static;

    fn owners(&mut self) -> &mut NodeOwners<Self::Object>;

    /// The close of an object begins. Returns the sessions that its nodes belong to; `None`: any.
    fn closes(&mut self, id: &str, open: &Open<Self::Object>) -> Option<BTreeSet<i64>>;
}

/// An object that owns nodes, compared with the servers' data until this is dropped.
pub(crate) struct TrackedObject<C: OwnerCheck> {
    world: World,
    pub(crate) id: String,
    leaves: bool,
    _using: Using,
    _check: PhantomData<fn() -> C>,
}

impl<C: OwnerCheck> TrackedObject<C> {
    /// Begins to compare an object, which may have nodes at or below `path`. `leaves`: its node stays when the object
    /// is dropped.
    pub(crate) fn begin(
        world: &World,
        (pid, worker, client): (Pid, usize, &Client),
        (id, path): (&str, &str),
        (leaves, is_judged): (bool, bool),
        of: C::Object,
    ) -> Self {
        let using = world.use_path(pid, path);
        let (client, wanted_at) = (client.clone(), world.now());
        let open = Open { pid, worker, client, wanted_at, is_judged, wrong_since: None, of };
        world.check::<C>().owners().open.insert(id.to_owned(), open);
        Self { world: world.clone(), id: id.to_owned(), leaves, _using: using, _check: PhantomData }
    }

    /// Calls `using` with what the check knows of the object; `None` if it is closed or its process has ended.
    pub(crate) fn with<R>(&self, using: impl FnOnce(&mut Open<C::Object>) -> R) -> Option<R> {
        self.world.check::<C>().owners().open.get_mut(&self.id).map(using)
    }

    /// The close of the object begins. `leaves`: its node stays.
    pub(crate) fn close(&self, leaves: bool) {
        let at = self.world.now();
        let mut check = self.world.check::<C>();
        let gone = check.owners().open.remove(&self.id);
        if let Some(open) = &gone {
            let sessions = check.closes(&self.id, open);
            let closing = Closing { pid: open.pid, at, leaves, sessions };
            check.owners().closed.begin(&self.id, closing);
        }
        drop(check);
        drop(gone);
    }

    /// The close of the object has returned without an error.
    pub(crate) fn is_closed(&self, session: Option<i64>) {
        self.world.check::<C>().owners().closed.returned(&self.id, session);
    }
}

impl<C: OwnerCheck> Drop for TrackedObject<C> {
    fn drop(&mut self) {
        self.close(self.leaves);
    }
}
