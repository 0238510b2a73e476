//! Kept nodes and groups: there while they are open, written once for each change, and gone after the close.
//!
//! The data of a node name the object that wrote it, so the servers' changes show whose node is where.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use docent::{
    Error, Events, GroupMember, PersistentNode, PersistentTtlNode, Stat, nodes::NodeEvent,
};

use crate::{
    checks::{
        REQUEST_ARRIVES_WITHIN,
        owners::{NodeOwners, Open, OwnerCheck, ServerNode, TrackedObject, Wrong},
    },
    recipes::common::now_or_never,
    world::{
        check::{Check, Findings, Leftovers, View},
        process::Death,
        time::{Nanos, Pid},
    },
};

/// An object that keeps a node.
#[derive(Clone)]
pub(super) enum Keeper {
    Node(PersistentNode),
    Ttl(PersistentTtlNode),
    Member(Box<GroupMember>),
}

impl Keeper {
    pub(super) fn set_data(&self, data: Bytes) {
        match self {
            Self::Node(node) => node.set_data(data),
            Self::Ttl(node) => node.set_data(data),
            Self::Member(member) => member.set_this_data(data),
        }
    }

    pub(super) fn events(&self) -> Events<NodeEvent> {
        match self {
            Self::Node(node) => node.events(),
            Self::Ttl(node) => node.events(),
            Self::Member(member) => member.events(),
        }
    }

    pub(super) async fn created(&self) -> Result<(), Error> {
        match self {
            Self::Node(node) => node.created().await.map(drop),
            Self::Ttl(node) => node.created().await.map(drop),
            Self::Member(member) => member.joined().await,
        }
    }

    /// The `czxid` of its node, as far as the object knows.
    fn czxid(&self) -> Option<i64> {
        match self {
            Self::Node(node) => node.czxid(),
            Self::Ttl(_) | Self::Member(_) => None,
        }
    }

    /// Whether the wanted data are written, as far as the object knows; `None` if it does not say.
    fn is_written(&self) -> Option<bool> {
        let written = match self {
            Self::Node(node) => now_or_never(node.written()),
            Self::Ttl(node) => now_or_never(node.written()),
            Self::Member(_) => return None,
        };
        Some(matches!(written, Some(Ok(()))))
    }
}

/// An object that keeps a node.
pub(super) struct Kept {
    pub(super) path: String,
    pub(super) keeper: Keeper,
    /// Whether the node's path is not known in advance.
    pub(super) is_renamed: bool,
    /// The number of the data that it wants to write.
    wanted: u64,
    known: Known,
    /// The sessions of its client so far.
    sessions: BTreeSet<i64>,
    /// Whether its data were known to be written when last looked at.
    is_written: bool,
}

impl Kept {
    /// An object whose first data have the number 1.
    pub(super) fn new(path: &str, keeper: Keeper, is_renamed: bool) -> Self {
        let known = match keeper {
            Keeper::Node(_) => Some(Own::default()),
            Keeper::Member(_) => Some(Own { sessions: Some(BTreeSet::new()), ..Own::default() }),
            Keeper::Ttl(_) => None,
        };
        let path = path.to_owned();
        let sessions = BTreeSet::new();
        Self { path, keeper, is_renamed, wanted: 1, known, sessions, is_written: false }
    }
}

/// The nodes that an object takes for its own; `None` if it does not report them.
type Known = Option<Own>;

/// The nodes that an object takes for its own.
#[derive(Clone, Default)]
struct Own {
    /// The nodes, by their `czxid`.
    nodes: BTreeSet<i64>,
    /// For a member of a group, which does not report its nodes: the sessions of its client, all of whose nodes count
    /// as its own.
    sessions: Option<BTreeSet<i64>>,
}

/// All kept nodes.
#[derive(Default)]
pub(super) struct AllKept {
    owners: NodeOwners<Kept>,
    /// The nodes that closed objects took for their own.
    known_of_closed: BTreeMap<String, (Pid, Known)>,
    /// The nodes on the servers: the object that has written each, its data, and the session that owns it. The object
    /// is empty if it wrote to the node of another one.
    nodes: BTreeMap<String, (String, Bytes, i64)>,
    /// When each node was created.
    created: BTreeMap<String, Nanos>,
    /// The time of the last change below each group.
    pub(super) changed: BTreeMap<String, Nanos>,
    seen: usize,
}

impl AllKept {
    fn known(&mut self, id: &str) -> Option<(Pid, &mut Own)> {
        let (pid, known) = match self.owners.open.get_mut(id) {
            Some(open) => (open.pid, &mut open.of.known),
            None => self.known_of_closed.get_mut(id).map(|(pid, known)| (*pid, known))?,
        };
        Some((pid, known.as_mut()?))
    }

    /// An object has created a node.
    fn note_created(&mut self, id: &str, czxid: i64) {
        if let Some((_, known)) = self.known(id) {
            known.nodes.insert(czxid);
        }
    }

    /// The process of the object, if it never took this node for its own.
    fn strayed(&mut self, id: &str, stat: &Stat) -> Option<Pid> {
        let (pid, known) = self.known(id)?;
        let of_session = known.sessions.as_ref();
        let is_own = known.nodes.contains(&stat.czxid)
            || of_session.is_some_and(|sessions| sessions.contains(&stat.ephemeral_owner));
        (!is_own).then_some(pid)
    }

    /// The nodes on the servers that are children of this one, with their data.
    pub(super) fn children(&self, parent: &str) -> BTreeMap<String, Bytes> {
        let nodes = self.nodes.iter().filter_map(|(path, (_, data, _))| {
            let name = path.strip_prefix(parent)?.strip_prefix('/')?;
            Some((name.to_owned(), data.clone()))
        });
        nodes.collect()
    }
}

/// An object that keeps a node, compared with the servers' data until this is dropped.
pub(super) type Keeping = TrackedObject<AllKept>;

impl Keeping {
    /// The data that are about to be set.
    pub(super) fn next_data(&self, now: Nanos) -> Bytes {
        let next = self.with(|open| {
            (open.of.wanted, open.wanted_at) = (open.of.wanted + 1, now);
            open.of.is_written = false;
            data(&self.id, open.of.wanted)
        });
        next.unwrap_or_default()
    }
}

/// The data of an object.
pub(super) fn data(id: &str, number: u64) -> Bytes {
    format!("{id}={number}").into()
}

impl OwnerCheck for AllKept {
    type Object = Kept;

    fn owners(&mut self) -> &mut NodeOwners<Kept> {
        &mut self.owners
    }

    fn closes(&mut self, id: &str, open: &Open<Kept>) -> Option<BTreeSet<i64>> {
        self.known_of_closed.insert(id.to_owned(), (open.pid, open.of.known.clone()));
        None
    }
}

impl Check for AllKept {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        self.follow(view, found);
        for open in self.owners.open.values_mut().filter(|open| view.is_running(open.pid)) {
            open.of.is_written = open.of.keeper.is_written() == Some(true);
            let session = open.client.session_token().map(|token| token.session_id());
            open.of.sessions.extend(session);
            if let Some(known) = &mut open.of.known {
                known.nodes.extend(open.of.keeper.czxid());
                if let Some(sessions) = &mut known.sessions {
                    sessions.extend(session);
                }
            }
        }
        let nodes = &self.nodes;
        self.owners.judge(view, found, |id, of| {
            let mut ours = nodes.iter().filter(|(_, (other, ..))| other == id);
            let is_taken = !of.is_renamed && nodes.contains_key(&of.path);
            let (first, second) = (ours.next(), ours.next());
            let what = match (first, second) {
                (None, _) if is_taken => return None,
                (None, _) => "is not there",
                (_, Some(_)) => "is there twice",
                (Some((_, (_, found, _))), None) if *found == data(id, of.wanted) => return None,
                _ => "has older data",
            };
            let own = first.map(|(path, _)| path.clone());
            let paths = own.into_iter().chain([of.path.clone()]).collect();
            Some(Wrong { name: of.path.clone(), what, paths })
        });
    }

    fn process_ends(&mut self, pid: Pid, _death: Death) -> Leftovers {
        self.owners.process_ends(pid)
    }
}

impl AllKept {
    /// Looks at the changes of all nodes.
    fn follow(&mut self, view: &View<'_>, found: &mut Findings) {
        let (now, core) = (view.now, view.core());
        let changes = &core.servers.truth.changes;
        for applied in changes.get(self.seen..).unwrap_or_default() {
            let path = &applied.change.path;
            if let Some((parent, _)) = path.rsplit_once('/')
                && let Some(changed) = self.changed.get_mut(parent)
            {
                *changed = now;
            }
            let Some((data, stat)) = &applied.change.node else {
                self.nodes.remove(path);
                continue;
            };
            let Some((id, _)) = std::str::from_utf8(data).ok().and_then(|t| t.split_once('='))
            else {
                continue;
            };
            if !id.starts_with("keeper-") {
                continue;
            }
            if stat.version == 0 {
                self.owners.closed.judge_create(&core, now, id, &applied.change, found);
                self.created.insert(path.clone(), now);
                self.note_created(id, stat.czxid);
            }
            let mut writer = id.to_owned();
            if let Some(pid) = self.strayed(id, stat) {
                // The node is another object's: setData has no check of the owner.
                writer.clear();
                let created = self.created.get(path).copied().unwrap_or_default();
                let is_late =
                    now > created.max(core.undisturbed_since(pid)) + REQUEST_ARRIVES_WITHIN;
                let text = format!("{id} writes to {path} of another object");
                if is_late {
                    found.violation(text);
                } else {
                    found.counted("a write in flight to another's node", text);
                }
            }
            let node = (writer, data.clone(), stat.ephemeral_owner);
            let before = self.nodes.insert(path.clone(), node);
            if stat.version > 0
                && before.is_some_and(|(_, before, _)| before == *data)
                && let Some(open) = self.owners.open.get(id).filter(|open| open.of.is_written)
            {
                let text = format!("{path} of {id}: written again without a change");
                let (session, of) = (open.client.session_token(), applied.change.session_id);
                let is_former = session.is_none_or(|session| session.session_id() != of)
                    && open.of.sessions.contains(&of);
                if is_former {
                    found.counted("a write in flight of a former session", text);
                } else {
                    found.violation(text);
                }
            }
        }
        self.seen = changes.len();
        for (path, (id, _, owner)) in &self.nodes {
            let node = ServerNode { path, owner: *owner, is_creator: true };
            self.owners.closed.judge_node(&core, now, id, &node, found);
        }
    }
}
