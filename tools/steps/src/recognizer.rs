//! Finds the step that a frame belongs to.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::*;

/// The path of the locks that are a single node, in the guide and in the lab.
pub const LOCK: &str = "/lock";

/// What is read of a frame. Operations have the names of the protocol, such as `create2`.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "each field is what its name says")]
pub enum Frame<'a> {
    Connect,
    Request {
        op: &'a str,
        path: &'a str,
        watches: bool,
        /// The operations and paths of a multi.
        parts: &'a [(&'a str, &'a str)],
    },
    Reply {
        op: &'a str,
        is_no_node: bool,
    },
    Event {
        path: &'a str,
    },
}

/// A kind of node that contenders create.
#[derive(Debug)]
struct Kind {
    /// How the name begins, and what one of them it contains.
    start: &'static str,
    marks: &'static [&'static str],
    create: &'static Step,
    list: &'static Step,
    /// A read that leaves a watch.
    watch: &'static Step,
    /// An event of such a node; `None`: events are those of the directory.
    woken: Option<&'static Step>,
    delete: &'static Step,
}

/// How the name of a protected node begins; the GUID that follows says who has created it.
const PROTECTED: &str = "_c_";

static KINDS: [Kind; 4] = [
    Kind {
        start: PROTECTED,
        marks: &["-lock-", "__READ__", "__WRIT__"],
        create: &CREATE_LOCK_NODE,
        list: &LIST_QUEUE,
        watch: &WATCH_AHEAD,
        woken: Some(&WOKEN),
        delete: &LEAVE_QUEUE,
    },
    Kind {
        start: PROTECTED,
        marks: &["-lease-"],
        create: &LEASE_CREATE,
        list: &LEASE_LIST,
        watch: &LEASE_LIST,
        woken: None,
        delete: &LEASE_DELETE,
    },
    Kind {
        start: PROTECTED,
        marks: &["-latch-"],
        create: &LATCH_CREATE,
        list: &LATCH_LIST,
        watch: &LATCH_WATCH,
        woken: Some(&LATCH_WOKEN),
        delete: &LATCH_DELETE,
    },
    Kind {
        start: "n-",
        marks: &[""],
        create: &SEQUENTIAL_CREATE,
        list: &SEQUENTIAL_LIST,
        watch: &SEQUENTIAL_WATCH,
        woken: Some(&SEQUENTIAL_WOKEN),
        delete: &SEQUENTIAL_DELETE,
    },
];

impl Kind {
    fn of(path: &str) -> Option<&'static Self> {
        let (_, name) = path.rsplit_once('/')?;
        let has_name = |kind: &&Self| {
            name.starts_with(kind.start) && kind.marks.iter().any(|mark| name.contains(mark))
        };
        KINDS.iter().find(has_name)
    }

    fn is_lock(&self) -> bool {
        *self.create == CREATE_LOCK_NODE
    }

    fn is_protected(&self) -> bool {
        self.start == PROTECTED
    }
}

/// Whether a path is that of a node of `LockInternals`.
#[must_use]
pub fn is_lock_node(path: &str) -> bool {
    Kind::of(path).is_some_and(Kind::is_lock)
}

/// The step of the reply to a request of a step: the reply to a listing of the queue decides.
#[must_use]
pub fn of_reply(request: &'static Step) -> &'static Step {
    if *request == LIST_QUEUE { &DECIDE } else { request }
}

/// The path of the parent; empty for a child of the root.
#[must_use]
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// A protected node, identified by its path without the number.
#[derive(Debug, Clone)]
struct Node<C> {
    client: C,
    /// Its last create failed because the parent was missing.
    lacks_parent: bool,
    is_deleted: bool,
}

/// The nodes that were seen so far, of clients with names of the type `C`.
#[derive(Debug, Clone)]
pub struct Recognizer<C> {
    nodes: BTreeMap<String, Node<C>>,
    /// The directories of the nodes.
    bases: BTreeMap<String, &'static Kind>,
    /// The paths of the nodes that have been held.
    held: BTreeSet<String>,
}

impl<C> Default for Recognizer<C> {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), bases: BTreeMap::new(), held: BTreeSet::new() }
    }
}

impl<C: Clone + Eq> Recognizer<C> {
    /// The step that sends a request, or that an event wakes. Frames are given in the order in which they were sent.
    pub fn step(&mut self, client: &C, frame: Frame<'_>) -> Option<&'static Step> {
        match frame {
            Frame::Connect => Some(&SESSION_OPEN),
            Frame::Request { op: "ping", .. } => Some(&SESSION_PING),
            Frame::Request { op: "closeSession", .. } => Some(&SESSION_CLOSE),
            Frame::Request { op: "multi", parts, .. } => self.transaction(parts),
            Frame::Request { op, path, watches, .. } => match Kind::of(path) {
                Some(kind) => self.request(client, (op, path, watches), kind),
                None => self.request_of_directory(op, path, watches),
            },
            Frame::Reply { op, is_no_node } => {
                if is_no_node && op.starts_with("create") {
                    let ours = self.nodes.values_mut().filter(|node| node.client == *client);
                    ours.for_each(|node| node.lacks_parent = true);
                }
                None
            }
            Frame::Event { path } => self.event(client, path),
        }
    }

    /// Notes that a client believes that it holds by a node. Frames cannot say so of every kind of lock.
    pub fn hold(&mut self, path: &str) {
        self.held.insert(path.to_owned());
    }

    /// The client that has created a node, if its name says so.
    #[must_use]
    pub fn owner(&self, path: &str) -> Option<&C> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(start, _)| path.starts_with(*start)).map(|(_, node)| &node.client)
    }

    /// Whether nodes of `LockInternals` have been created below a path.
    #[must_use]
    pub fn is_lock(&self, path: &str) -> bool {
        self.bases.get(path).is_some_and(|kind| kind.is_lock())
    }

    fn request(
        &mut self,
        client: &C,
        (op, path, watches): (&str, &str, bool),
        kind: &'static Kind,
    ) -> Option<&'static Step> {
        let is_own = self.owner(path) == Some(client);
        match op {
            "create" | "create2" => Some(self.create(client, path, kind)),
            "exists" if kind.is_lock() => Some(&CREATE_PARENTS),
            // If another owner of the same client waits, it is the node ahead of that one.
            "getData" if watches && kind.is_lock() && is_own && !self.waits(client, path) => {
                // The watch is set again after each event.
                (!self.held.contains(path)).then_some(&WATCH_OWN_NODE)
            }
            "getData" if watches => Some(kind.watch),
            "delete" if is_own || !kind.is_protected() => {
                let ours = self.nodes.iter_mut().filter(|(start, _)| path.starts_with(*start));
                ours.for_each(|(_, node)| node.is_deleted = true);
                let is_held = kind.is_lock() && self.held.contains(path);
                Some(if is_held { &RELEASE } else { kind.delete })
            }
            "checkWatches" if kind.is_lock() => Some(&RELEASE),
            _ => None,
        }
    }

    fn request_of_directory(&self, op: &str, path: &str, watches: bool) -> Option<&'static Step> {
        let (base, below) = (self.bases.get(path), format!("{path}/"));
        let is_single = path == LOCK && base.is_none();
        match op {
            "exists" | "createContainer"
                if self.is_lock(path)
                    || self
                        .bases
                        .iter()
                        .any(|(base, kind)| kind.is_lock() && base.starts_with(&below)) =>
            {
                Some(&CREATE_PARENTS)
            }
            "sync" | "getChildren" if self.is_lock(path) => Some(&SEARCH),
            "getChildren" | "getChildren2" => base.map(|kind| kind.list),
            "getData" if self.is_lock(path) => Some(&STRICT_RECORD),
            "create" | "create2" if is_single => Some(&NAIVE_CREATE),
            "exists" if is_single && watches => Some(&NAIVE_WATCH),
            "delete" if is_single => Some(&NAIVE_DELETE),
            _ => None,
        }
    }

    fn create(&mut self, client: &C, path: &str, kind: &'static Kind) -> &'static Step {
        self.bases.insert(parent(path).to_owned(), kind);
        if !kind.is_protected() {
            return kind.create;
        }
        let node = Node { client: client.clone(), lacks_parent: false, is_deleted: false };
        match self.nodes.insert(path.to_owned(), node) {
            Some(before) if kind.is_lock() && before.lacks_parent => &CREATE_PARENTS,
            Some(_) if kind.is_lock() => &SEARCH,
            _ => kind.create,
        }
    }

    /// A strict mutex changes its record together with a check of its node, or with its deletion.
    fn transaction(&self, parts: &[(&str, &str)]) -> Option<&'static Step> {
        if !parts.iter().any(|(_, path)| self.is_lock(path)) {
            return None;
        }
        let deletes = parts.iter().any(|(op, _)| *op == "delete");
        Some(if deletes { &RELEASE } else { &STRICT_CLAIM })
    }

    fn event(&self, client: &C, path: &str) -> Option<&'static Step> {
        match Kind::of(path) {
            Some(kind) if !kind.is_protected() || self.waits(client, path) => kind.woken,
            None if path == LOCK && !self.bases.contains_key(LOCK) => Some(&NAIVE_WOKEN),
            _ => None,
        }
    }

    /// Whether a client has another node in the queue of a node, and has not held by it.
    fn waits(&self, client: &C, path: &str) -> bool {
        self.nodes.iter().any(|(start, node)| {
            let is_other = parent(start) == parent(path) && !path.starts_with(start);
            let is_held = self.held.iter().any(|path| path.starts_with(start));
            node.client == *client && is_other && !node.is_deleted && !is_held
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(op: &'a str, path: &'a str, watches: bool) -> Frame<'a> {
        Frame::Request { op, path, watches, parts: &[] }
    }

    /// The steps of two owners of one client: an application of Curator shares its connection between threads.
    #[test]
    fn a_client_may_wait_for_its_own_node() {
        let (first, second) = ("/l/_c_a-lock-0000000000", "/l/_c_b-lock-0000000001");
        let mut steps = Recognizer::default();
        let mut step = |frame| steps.step(&"A", frame).and_then(|step| step.number);
        assert_eq!(step(request("create2", "/l/_c_a-lock-", false)), Some(1));
        // A lock that is revocable.
        assert_eq!(step(request("getData", first, true)), Some(4));
        assert_eq!(step(request("getChildren2", "/l", false)), Some(5));
        steps.hold(first);
        let mut step = |frame| steps.step(&"A", frame).and_then(|step| step.number);
        assert_eq!(step(request("getData", first, true)), None);
        assert_eq!(step(request("create2", "/l/_c_b-lock-", false)), Some(1));
        assert_eq!(step(request("getData", first, true)), Some(7));
        assert_eq!(step(request("delete", first, false)), Some(10));
        assert_eq!(step(Frame::Event { path: first }), Some(8));
        assert_eq!(step(request("delete", second, false)), Some(9));
    }

    #[test]
    fn a_create_that_is_sent_again_is_another_step() {
        let mut steps = Recognizer::default();
        let (create, lost) =
            (request("create", "/l/_c_a-lock-", false), request("sync", "/l", false));
        let missing = Frame::Reply { op: "create", is_no_node: true };
        let mut step = |frame| steps.step(&1, frame).and_then(|step| step.number);
        assert_eq!((step(create), step(missing)), (Some(1), None));
        assert_eq!(step(request("createContainer", "/l", false)), Some(2));
        assert_eq!((step(create), step(lost), step(create)), (Some(2), Some(3), Some(3)));
    }
}
