//! Kept nodes and groups: there while they are open, written once for each change, and gone after the close.
//!
//! The data of a node name the object that wrote it, so the servers' changes show whose node is where.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use docent::{
    Client, Error, Events, GroupMember, PersistentNode, PersistentTtlNode, Stat, nodes::NodeEvent,
};

use crate::{
    checks::{
        REQUEST_ARRIVES_WITHIN,
        owners::{Closed, Closing, Owned, WrongSince},
    },
    recipes::common::now_or_never,
    world::{
        Using, World,
        check::{Check, Findings, Leftovers, View},
        process::Death,
        time::{Nanos, Pid, SECOND},
    },
};

/// The interval at which open objects are checked.
const LOOKS_EVERY: Nanos = SECOND;

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

/// An object that begins to keep a node.
pub(super) struct NewKeeping<'a> {
    pub(super) pid: Pid,
    pub(super) worker: usize,
    pub(super) client: &'a Client,
    /// The name in its data, which no other object has.
    pub(super) id: &'a str,
    pub(super) path: &'a str,
    pub(super) keeper: Keeper,
    /// Whether the node's path is not known in advance.
    pub(super) is_renamed: bool,
    /// Whether there can be no node.
    pub(super) is_impossible: bool,
}

/// An object that has not been closed.
struct Open {
    pid: Pid,
    worker: usize,
    client: Client,
    path: String,
    keeper: Keeper,
    is_renamed: bool,
    is_impossible: bool,
    /// The number of the data that it wants to write, and when they were set.
    wanted: (u64, Nanos),
    known: Known,
    /// Whether its data were known to be written when last looked at.
    is_written: bool,
    /// The start of the time without a node, or with older data.
    wrong_since: WrongSince,
}

/// The nodes that an object takes for its own; `None` if it does not say.
type Known = Option<Own>;

/// The nodes that an object takes for its own.
#[derive(Clone, Default)]
struct Own {
    /// The nodes, by their `czxid`.
    nodes: BTreeSet<i64>,
    /// The sessions of its client, all of whose nodes are its own: of a member of a group, which does not say which nodes
    /// it has.
    sessions: Option<BTreeSet<i64>>,
}

/// All kept nodes.
#[derive(Default)]
pub(super) struct Kept {
    open: BTreeMap<String, Open>,
    closed: Closed,
    /// The nodes that closed objects took for their own.
    known_of_closed: BTreeMap<String, (Pid, Known)>,
    /// The nodes on the servers: the object that has written each, its data, and the session that owns it. The object is
    /// empty if it took the node for another one.
    nodes: BTreeMap<String, (String, Bytes, i64)>,
    /// When each node was created.
    created: BTreeMap<String, Nanos>,
    /// The last change of a node below each group.
    pub(super) changed: BTreeMap<String, Nanos>,
    seen: usize,
    next_look: Nanos,
}

impl Kept {
    fn known(&mut self, id: &str) -> Option<(Pid, &mut Own)> {
        let (pid, known) = match self.open.get_mut(id) {
            Some(open) => (open.pid, &mut open.known),
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
pub(super) struct Keeping {
    world: World,
    pid: Pid,
    id: String,
    leaves: bool,
    _using: Using,
}

impl Keeping {
    /// Its data are about to be set to this.
    pub(super) fn next_data(&self) -> Bytes {
        let now = self.world.now();
        let mut kept = self.world.check::<Kept>();
        let Some(open) = kept.open.get_mut(&self.id) else { return Bytes::new() };
        open.wanted = (open.wanted.0 + 1, now);
        open.is_written = false;
        data(&self.id, open.wanted.0)
    }

    /// Its close begins.
    pub(super) fn close(&self) {
        let at = self.world.now();
        let mut kept = self.world.check::<Kept>();
        let gone = kept.open.remove(&self.id);
        if let Some(open) = &gone {
            let known = (self.pid, open.known.clone());
            kept.known_of_closed.insert(self.id.clone(), known);
            let closing = Closing { pid: self.pid, at, leaves: self.leaves, sessions: None };
            kept.closed.begin(&self.id, closing);
        }
        drop(kept);
        drop(gone);
    }

    /// Its close has returned without an error.
    pub(super) fn is_closed(&self, session: Option<i64>) {
        self.world.check::<Kept>().closed.returned(&self.id, session);
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.close();
    }
}

/// The data of an object.
pub(super) fn data(id: &str, number: u64) -> Bytes {
    format!("{id}={number}").into()
}

/// Begins to compare a kept node with the servers' data. Its first data have the number 1.
pub(super) fn keep(world: &World, new: NewKeeping<'_>, leaves: bool) -> Keeping {
    let NewKeeping { pid, worker, client, id, path, keeper, is_renamed, is_impossible } = new;
    // The names of sequential and protected nodes differ; the parent has only kept nodes below it.
    let parent = path.rsplit_once('/').map_or(path, |(parent, _)| parent);
    let using = world.use_path(pid, if is_renamed { parent } else { path });
    let known = match keeper {
        Keeper::Node(_) => Some(Own::default()),
        Keeper::Member(_) => Some(Own { sessions: Some(BTreeSet::new()), ..Own::default() }),
        Keeper::Ttl(_) => None,
    };
    let open = Open {
        pid,
        worker,
        client: client.clone(),
        path: path.to_owned(),
        keeper,
        is_renamed,
        is_impossible,
        wanted: (1, world.now()),
        known,
        is_written: false,
        wrong_since: WrongSince::default(),
    };
    world.check::<Kept>().open.insert(id.to_owned(), open);
    Keeping { world: world.clone(), pid, id: id.to_owned(), leaves, _using: using }
}

impl Check for Kept {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        self.follow(view, found);
        let now = view.now;
        for open in self.open.values_mut().filter(|open| view.is_running(open.pid)) {
            open.is_written = open.keeper.is_written() == Some(true);
            if let Some(known) = &mut open.known {
                known.nodes.extend(open.keeper.czxid());
                if let Some(sessions) = &mut known.sessions {
                    sessions.extend(open.client.session_token().map(|token| token.session_id()));
                }
            }
        }
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOKS_EVERY;
        let core = view.core();
        for (id, open) in self.open.iter_mut().filter(|(_, open)| !open.is_impossible) {
            let mut ours = self.nodes.values().filter(|(other, ..)| other == id);
            let is_taken = !open.is_renamed && self.nodes.contains_key(&open.path);
            let wrong = match (ours.next(), ours.next()) {
                (None, _) if is_taken => None,
                (None, _) => Some("is not there"),
                (_, Some(_)) => Some("is there twice"),
                (Some((_, found, _)), None) if *found == data(id, open.wanted.0) => None,
                _ => Some("has older data"),
            };
            let (of, wanted_at) = ((open.pid, &open.client), open.wanted.1);
            let is_overdue =
                open.wrong_since.is_overdue(&core, now, of, wanted_at, wrong.is_some());
            if let Some(wrong) = wrong.filter(|_| is_overdue) {
                let text = format!("{} of p{}.{} ({id}) {wrong}", open.path, open.pid, open.worker);
                found.violation(text);
                open.is_impossible = true;
            }
        }
    }

    fn process_ends(&mut self, pid: Pid, _death: Death) -> Leftovers {
        Box::new(self.open.extract_if(.., |_, open| open.pid == pid).collect::<Vec<_>>())
    }
}

impl Kept {
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
                self.closed.judge_create(&core, now, id, path, found);
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
                && self.open.get(id).is_some_and(|open| open.is_written)
            {
                let text = format!("{path} of {id}: written again without a change");
                found.violation(text);
            }
        }
        self.seen = changes.len();
        for (path, (id, _, owner)) in &self.nodes {
            let node = Owned { path, owner: *owner, is_creator: true };
            self.closed.judge_node(&core, now, id, &node, found);
        }
    }
}
