//! Kept nodes and groups: there while they are open, written once for each change, and gone after the close.
//!
//! The data of a node name the object that wrote it, so the servers' changes show whose node is where.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use docent::{Client, Error, GroupMember, NodeEvents, PersistentNode, PersistentTtlNode, Stat};

use crate::{
    belief::Beliefs,
    history::What,
    leaders::REQUEST_ARRIVES_WITHIN,
    nodes::{ORPHAN_AFTER, Using},
    process::{Pid, ProcessState},
    world::{Nanos, SECOND, World},
};

/// How long after the peace, or after the last change, a node may be missing or not be written, beyond the session
/// timeout: the pauses of retries are up to 10 s.
const KEPT_WITHIN: Nanos = 20 * SECOND;

/// How often nodes are looked for.
const LOOKS_EVERY: Nanos = SECOND;

/// An object that keeps a node.
#[derive(Clone)]
pub(crate) enum Keeper {
    Node(PersistentNode),
    Ttl(PersistentTtlNode),
    Member(Box<GroupMember>),
}

impl Keeper {
    pub(crate) fn set_data(&self, data: Bytes) {
        match self {
            Self::Node(node) => node.set_data(data),
            Self::Ttl(node) => node.set_data(data),
            Self::Member(member) => member.set_this_data(data),
        }
    }

    pub(crate) fn events(&self) -> NodeEvents {
        match self {
            Self::Node(node) => node.events(),
            Self::Ttl(node) => node.events(),
            Self::Member(member) => member.events(),
        }
    }

    pub(crate) async fn created(&self) -> Result<(), Error> {
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

fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// An object that begins to keep a node.
pub(crate) struct NewKeeping<'a> {
    pub(crate) pid: Pid,
    pub(crate) worker: usize,
    pub(crate) client: &'a Client,
    /// The name in its data, which no other object has.
    pub(crate) id: &'a str,
    pub(crate) path: &'a str,
    pub(crate) keeper: Keeper,
    /// Whether the node's path is not known in advance.
    pub(crate) is_renamed: bool,
    /// Whether there can be no node.
    pub(crate) is_impossible: bool,
}

/// An object that has not been closed.
pub(crate) struct Open {
    pid: Pid,
    worker: usize,
    client: Client,
    path: String,
    keeper: Keeper,
    is_renamed: bool,
    is_impossible: bool,
    /// The data that it shall write, and since when.
    wanted: (u64, Nanos),
    known: Known,
    /// Whether its data were known to be written when last looked at.
    is_written: bool,
    /// Since when there is no node, or the node has older data.
    wrong_since: Option<Nanos>,
}

/// What an object has taken for its own; `None` if it does not say.
type Known = Option<Own>;

/// What an object has taken for its own.
#[derive(Clone, Default)]
struct Own {
    /// The nodes, by their `czxid`.
    nodes: BTreeSet<i64>,
    /// The sessions of its client, all of whose nodes are its own: of a member of a group, which does not say which nodes
    /// it has.
    sessions: Option<BTreeSet<i64>>,
}

/// An object that was closed.
struct Closed {
    pid: Pid,
    at: Nanos,
    known: Known,
    /// The session in which its close returned without an error.
    session: Option<i64>,
    /// Whether it leaves its node.
    leaves: bool,
}

/// All kept nodes.
#[derive(Default)]
pub(crate) struct Kept {
    next: u64,
    open: BTreeMap<String, Open>,
    closed: BTreeMap<String, Closed>,
    /// The nodes on the servers: the object that has written each, its data, and the session that owns it. The object is
    /// empty if it took the node for another one.
    nodes: BTreeMap<String, (String, Bytes, i64)>,
    /// When each node was created.
    created: BTreeMap<String, Nanos>,
    /// The last change of a node below each group.
    pub(crate) changed: BTreeMap<String, Nanos>,
    seen: usize,
    next_look: Nanos,
    reported: BTreeSet<String>,
}

impl Kept {
    /// Takes all objects of a process that ends. They must be dropped without a lock.
    pub(crate) fn take_all(&mut self, pid: Pid) -> Vec<Open> {
        let of_process = self.open.iter().filter(|(_, open)| open.pid == pid);
        let ids: Vec<_> = of_process.map(|(id, _)| id.clone()).collect();
        ids.iter().filter_map(|id| self.open.remove(id)).collect()
    }

    fn known(&mut self, id: &str) -> Option<(Pid, &mut Own)> {
        let (pid, known) = match self.open.get_mut(id) {
            Some(open) => (open.pid, &mut open.known),
            None => self.closed.get_mut(id).map(|closed| (closed.pid, &mut closed.known))?,
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
    pub(crate) fn children(&self, parent: &str) -> BTreeMap<String, Bytes> {
        let nodes = self.nodes.iter().filter_map(|(path, (_, data, _))| {
            let name = path.strip_prefix(parent)?.strip_prefix('/')?;
            Some((name.to_owned(), data.clone()))
        });
        nodes.collect()
    }
}

/// An object that keeps a node, compared with the servers' data until this is dropped.
pub(crate) struct Keeping {
    world: World,
    pid: Pid,
    id: String,
    leaves: bool,
    _using: Using,
}

impl Keeping {
    /// Its data are about to be set to this.
    pub(crate) fn next_data(&self) -> Bytes {
        let now = self.world.now();
        let mut beliefs = self.world.beliefs();
        let Some(open) = beliefs.kept.open.get_mut(&self.id) else { return Bytes::new() };
        open.wanted = (open.wanted.0 + 1, now);
        open.is_written = false;
        data(&self.id, open.wanted.0)
    }

    /// Its close begins.
    pub(crate) fn close(&self) {
        let gone = {
            let mut beliefs = self.world.beliefs();
            let gone = beliefs.kept.open.remove(&self.id);
            if let Some(open) = &gone {
                let (at, known, leaves) = (self.world.now(), open.known.clone(), self.leaves);
                let closed = Closed { pid: self.pid, at, known, session: None, leaves };
                beliefs.kept.closed.insert(self.id.clone(), closed);
            }
            gone
        };
        drop(gone);
    }

    /// Its close has returned without an error.
    pub(crate) fn is_closed(&self, session: Option<i64>) {
        if let Some(closed) = self.world.beliefs().kept.closed.get_mut(&self.id) {
            closed.session = session;
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.close();
    }
}

/// The data of an object.
pub(crate) fn data(id: &str, number: u64) -> Bytes {
    format!("{id}={number}").into()
}

impl World {
    /// A name that no other object has.
    pub(crate) fn next_keeper(&self) -> String {
        let kept = &mut self.beliefs().kept;
        kept.next += 1;
        format!("keeper-{}", kept.next)
    }

    /// Begins to compare a kept node with the servers' data. Its first data have the number 1.
    pub(crate) fn keep(&self, new: NewKeeping<'_>, leaves: bool) -> Keeping {
        let NewKeeping { pid, worker, client, id, path, keeper, is_renamed, is_impossible } = new;
        // The names of sequential and protected nodes differ; the parent has only kept nodes below it.
        let parent = path.rsplit_once('/').map_or(path, |(parent, _)| parent);
        let using = self.use_path(pid, if is_renamed { parent } else { path });
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
            wanted: (1, self.now()),
            known,
            is_written: false,
            wrong_since: None,
        };
        self.beliefs().kept.open.insert(id.to_owned(), open);
        Keeping { world: self.clone(), pid, id: id.to_owned(), leaves, _using: using }
    }

    /// Compares all kept nodes with the servers' data.
    pub(crate) fn check_kept(&self, beliefs: &mut Beliefs, records: &mut Vec<What>) {
        let kept = &mut beliefs.kept;
        if kept.next == 0 {
            return;
        }
        self.follow_nodes(kept, records);
        let now = self.now();
        for open in kept.open.values_mut().filter(|open| self.is_running(open.pid)) {
            open.is_written = open.keeper.is_written() == Some(true);
            if let Some(known) = &mut open.known {
                known.nodes.extend(open.keeper.czxid());
                if let Some(sessions) = &mut known.sessions {
                    sessions.extend(open.client.session_token().map(|token| token.session_id()));
                }
            }
        }
        if now < kept.next_look {
            return;
        }
        kept.next_look = now + LOOKS_EVERY;
        let core = self.core();
        let grace = core.longest_timeout + KEPT_WITHIN;
        for (id, open) in &mut kept.open {
            let lives = core.process(open.pid).state == ProcessState::Running;
            if now < core.peace_at || !lives || open.is_impossible || open.client.ended().is_some()
            {
                open.wrong_since = None;
                continue;
            }
            let mut ours = kept.nodes.values().filter(|(other, ..)| other == id);
            let is_taken = !open.is_renamed && kept.nodes.contains_key(&open.path);
            let wrong = match (ours.next(), ours.next()) {
                (None, _) if is_taken => None,
                (None, _) => Some("is not there"),
                (_, Some(_)) => Some("is there twice"),
                (Some((_, found, _)), None) if *found == data(id, open.wanted.0) => None,
                _ => Some("has older data"),
            };
            let Some(wrong) = wrong else {
                open.wrong_since = None;
                continue;
            };
            let since = *open.wrong_since.get_or_insert(now);
            let from = since.max(open.wanted.1).max(core.disturbed_until(open.pid));
            if now > from + grace {
                let text = format!("{} of p{}.{} ({id}) {wrong}", open.path, open.pid, open.worker);
                records.push(What::Violation(text));
                open.is_impossible = true;
            }
        }
    }

    /// Looks at the changes of all nodes.
    fn follow_nodes(&self, kept: &mut Kept, records: &mut Vec<What>) {
        let now = self.now();
        let core = self.core();
        let changes = &core.servers.truth.changes;
        for applied in changes.get(kept.seen..).unwrap_or_default() {
            let path = &applied.change.path;
            if let Some((parent, _)) = path.rsplit_once('/')
                && let Some(changed) = kept.changed.get_mut(parent)
            {
                *changed = now;
            }
            let Some((data, stat)) = &applied.change.node else {
                kept.nodes.remove(path);
                continue;
            };
            let Some((id, _)) = std::str::from_utf8(data).ok().and_then(|t| t.split_once('='))
            else {
                continue;
            };
            if !id.starts_with("keeper-") {
                continue;
            }
            if stat.version == 0
                && let Some(closed) = kept.closed.get(id)
                && now > closed.at.max(core.undisturbed_since(closed.pid)) + REQUEST_ARRIVES_WITHIN
            {
                records.push(What::Violation(format!("{id} creates {path} after its close")));
            }
            if stat.version == 0 {
                kept.created.insert(path.clone(), now);
                kept.note_created(id, stat.czxid);
            }
            let mut writer = id.to_owned();
            if let Some(pid) = kept.strayed(id, stat) {
                // It has no data of its own there: setData has no check of the owner.
                writer.clear();
                let created = kept.created.get(path).copied().unwrap_or_default();
                let is_late =
                    now > created.max(core.undisturbed_since(pid)) + REQUEST_ARRIVES_WITHIN;
                let text = format!("{id} writes to {path} of another object");
                records.push(if is_late { What::Violation(text) } else { What::Counted(text) });
            }
            let node = (writer, data.clone(), stat.ephemeral_owner);
            let before = kept.nodes.insert(path.clone(), node);
            if stat.version > 0
                && before.is_some_and(|(_, before, _)| before == *data)
                && kept.open.get(id).is_some_and(|open| open.is_written)
            {
                let text = format!("{path} of {id}: written again without a change");
                records.push(What::Violation(text));
            }
        }
        kept.seen = changes.len();
        for (path, (id, _, owner)) in &kept.nodes {
            let Some(closed) = kept.closed.get(id).filter(|closed| !closed.leaves) else {
                continue;
            };
            let process = core.process(closed.pid);
            let lives = process.state == ProcessState::Running && !process.is_finished;
            let is_left = lives
                && *owner != 0
                && now > closed.at.max(core.disturbed_until(closed.pid)) + ORPHAN_AFTER;
            // A persistent node belongs to no session.
            let is_refuted = closed.session.is_some_and(|session| session == *owner || *owner <= 0);
            if (is_left || is_refuted) && kept.reported.insert(path.clone()) {
                records.push(What::Violation(format!("{id} is closed, not {path}")));
            }
        }
    }
}
