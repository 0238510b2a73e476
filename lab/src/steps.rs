//! The step of a recipe that a frame belongs to. Those of `LockInternals` are the ten of the guide.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{frames::Frame, program::LOCK};

/// A step of a recipe, with its documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub id: &'static str,
    /// Its number among the steps of `LockInternals`.
    pub number: Option<u8>,
    pub title: &'static str,
    pub text: &'static str,
    /// What the client believes after it.
    pub belief: &'static str,
    /// The method of Curator that does the same.
    pub curator: &'static str,
    /// The file of docent, and the line.
    pub source: String,
    /// The chapter of the guide.
    pub chapter: &'static str,
}

const LOCK_INTERNALS: (&str, &str) = (
    "recipes/src/locks/lock_internals.rs",
    include_str!("../../recipes/src/locks/lock_internals.rs"),
);
const PROTECTION: (&str, &str) =
    ("recipes/src/protection/mod.rs", include_str!("../../recipes/src/protection/mod.rs"));
const HOLD: (&str, &str) =
    ("recipes/src/locks/hold.rs", include_str!("../../recipes/src/locks/hold.rs"));
const STRICT: (&str, &str) =
    ("recipes/src/locks/strict/claim.rs", include_str!("../../recipes/src/locks/strict/claim.rs"));
const LEASE: (&str, &str) =
    ("recipes/src/locks/lease.rs", include_str!("../../recipes/src/locks/lease.rs"));
const LATCH: (&str, &str) =
    ("recipes/src/leader/place.rs", include_str!("../../recipes/src/leader/place.rs"));
const PROGRAM: (&str, &str) = ("lab/src/program.rs", include_str!("program.rs"));

/// All steps.
pub(crate) fn all() -> Vec<Step> {
    let step = |id,
                number,
                title,
                text,
                belief,
                curator,
                (file, source): (&str, &str),
                mark: &str,
                chapter| {
        let line = source.lines().position(|line| line.contains(mark)).map_or(1, |at| at + 1);
        Step { id, number, title, text, belief, curator, source: format!("{file}:{line}"), chapter }
    };
    let guide = "lock-internals";
    vec![
        step(
            "lock-1",
            Some(1),
            "Create the lock node",
            "The name has a GUID, chosen by the client, and ten digits, appended by the server: the place in the queue.",
            "No. It has asked for a place.",
            "LockInternals.attemptLock, StandardLockInternalsDriver.createsTheLock",
            LOCK_INTERNALS,
            "step = 1",
            guide,
        ),
        step(
            "lock-2",
            Some(2),
            "Create the parents",
            "Only after a create has failed, because the lock's directory is missing. They are containers, which the server removes some time after their last child.",
            "No.",
            "ZKPaths.mkdirs",
            PROTECTION,
            "step = 2",
            guide,
        ),
        step(
            "lock-3",
            Some(3),
            "Search for the node",
            "The reply to a create was lost. The client lists the directory and looks for its GUID, so that it does not queue behind a node of its own.",
            "No. It does not know whether it has a place.",
            "CreateBuilderImpl.findProtectedNodeInForeground",
            PROTECTION,
            "step = 3",
            "protected-creates",
        ),
        step(
            "lock-4",
            Some(4),
            "Watch the own node",
            "Only if the lock is revocable: a holder that can be asked to release.",
            "Unchanged.",
            "LockInternals.internalLockLoop",
            LOCK_INTERNALS,
            "step = 4",
            "revocation",
        ),
        step(
            "lock-5",
            Some(5),
            "List the queue",
            "The time until which the session is taken to live is read before this is sent: the claim of a hold counts from there.",
            "When the reply arrives it decides (step 6): first in the queue, it believes from then on, for as long as its session surely lives.",
            "LockInternals.getSortedChildren",
            LOCK_INTERNALS,
            "step = 5",
            guide,
        ),
        step(
            "lock-7",
            Some(7),
            "Watch the node ahead",
            "A read that leaves a watch on the predecessor, and on no other node: a release wakes one waiter.",
            "No. It waits for its predecessor.",
            "LockInternals.internalLockLoop",
            LOCK_INTERNALS,
            "step = 7",
            guide,
        ),
        step(
            "lock-8",
            Some(8),
            "Woken",
            "The node ahead is gone. This is not the lock: the waiter lists again, and only step 6 decides.",
            "No. It has a reason to look.",
            "LockInternals.internalLockLoop",
            LOCK_INTERNALS,
            "step = 8",
            guide,
        ),
        step(
            "lock-9",
            Some(9),
            "Leave the queue",
            "The acquire has failed or was given up: its node is deleted, or it would become a holder that does not know of its lock.",
            "No.",
            "LockInternals.deleteOurPath",
            LOCK_INTERNALS,
            "step = 9",
            guide,
        ),
        step(
            "lock-10",
            Some(10),
            "Release",
            "The delete is repeated until the node is gone, or its session.",
            "No: it stops believing before it sends this.",
            "LockInternals.releaseLock",
            HOLD,
            "step = 10",
            "guaranteed-deletes",
        ),
        step(
            "naive-create",
            None,
            "Create the one node",
            "The create is the decision: the server executes one after the other, and the second fails.",
            "When the reply is OK it believes, until it releases. Nothing tells it that its session has ended.",
            "none",
            PROGRAM,
            "async fn naive",
            "naive-lock",
        ),
        step(
            "naive-watch",
            None,
            "Look and watch",
            "One request reads the node and leaves a watch on it.",
            "No. It waits for the holder, as all others do.",
            "none",
            PROGRAM,
            "exists_and_watch",
            "naive-lock",
        ),
        step(
            "naive-woken",
            None,
            "Woken, with all others",
            "Every waiter receives this event, and all of them create: the herd effect.",
            "No.",
            "none",
            PROGRAM,
            "watcher.next()",
            "naive-lock",
        ),
        step(
            "naive-delete",
            None,
            "Delete the one node",
            "Whosever it is: the path is the same for all holders.",
            "No.",
            "none",
            PROGRAM,
            "Some(Hold::Simple",
            "naive-lock",
        ),
        step(
            "sequential-create",
            None,
            "Create a node of the queue",
            "The server appends ten digits. A lost reply leaves a node that its client does not know.",
            "No.",
            "none",
            PROGRAM,
            "EphemeralSequential",
            "sequential-lock",
        ),
        step(
            "sequential-list",
            None,
            "List the queue",
            "The lowest number holds the lock.",
            "If it is the first, from the reply on, until it releases.",
            "none",
            PROGRAM,
            "get_children(LOCK)",
            "sequential-lock",
        ),
        step(
            "sequential-watch",
            None,
            "Watch the node ahead",
            "A release wakes one waiter.",
            "No.",
            "none",
            PROGRAM,
            "get_data_and_watch",
            "sequential-lock",
        ),
        step(
            "sequential-delete",
            None,
            "Delete the own node",
            "It has a name of its own, so a late release deletes nothing of others.",
            "No.",
            "none",
            PROGRAM,
            "Some(Hold::Simple",
            "sequential-lock",
        ),
        step(
            "strict-record",
            None,
            "Read the record of the last holder",
            "The data of the lock's own node name the last holder and its time T.",
            "No.",
            "none: Curator has no such lock",
            STRICT,
            "struct StrictClaim",
            "promises",
        ),
        step(
            "strict-claim",
            None,
            "Write the record, if the own node exists",
            "One transaction. From the send time of this write the hold is proven for T: a rival waits for that long once the holder's node is gone.",
            "From the reply on, until the proven bound, which counts from when this was sent.",
            "none: Curator has no such lock",
            STRICT,
            "struct StrictClaim",
            "promises",
        ),
        step(
            "latch-create",
            None,
            "Join the election",
            "An ephemeral sequential node with the name of the participant.",
            "No.",
            "LeaderLatch.reset",
            LATCH,
            "struct ",
            "leader-election",
        ),
        step(
            "latch-list",
            None,
            "List the participants",
            "The lowest number leads.",
            "If it is the first, from the reply on, while its session surely lives.",
            "LeaderLatch.getChildren, LeaderLatch.checkLeadership",
            LATCH,
            "get_children",
            "leader-election",
        ),
        step(
            "latch-watch",
            None,
            "Watch the node ahead",
            "A read that leaves a watch on the predecessor.",
            "No.",
            "LeaderLatch.checkLeadership",
            LATCH,
            "watch",
            "leader-election",
        ),
        step(
            "latch-delete",
            None,
            "Leave the election",
            "The node is deleted in the background until it is gone.",
            "No: it stops believing first.",
            "LeaderLatch.close",
            LATCH,
            "delete",
            "leader-election",
        ),
        step(
            "lease-create",
            None,
            "Create the lease node",
            "One client at a time does this, under a mutex.",
            "No.",
            "InterProcessSemaphoreV2.internalAcquire1Lease",
            LEASE,
            "create the lease node",
            "other-locks",
        ),
        step(
            "lease-list",
            None,
            "Count the leases",
            "With no more nodes than leases, the lease is acquired.",
            "If the count allows it, from the reply on.",
            "InterProcessSemaphoreV2.internalAcquire1Lease",
            LEASE,
            "count the leases",
            "other-locks",
        ),
        step(
            "lease-delete",
            None,
            "Return the lease",
            "Its node is deleted, and a waiter counts again.",
            "No.",
            "InterProcessSemaphoreV2.closeLease",
            LEASE,
            "delete the lease node",
            "other-locks",
        ),
        step(
            "session-open",
            None,
            "Begin or resume a session",
            "The first frame of a connection. With an id and a password it resumes a session.",
            "A resumed session: what it believed before, if the time is not up.",
            "ClientCnxn.SendThread.primeConnection",
            PROGRAM,
            "start_client",
            "sessions-and-watches",
        ),
        step(
            "session-ping",
            None,
            "Keep the session",
            "The send time of a request that was answered moves the end of the belief.",
            "Renewed, to the send time of this plus the session timeout, less a margin.",
            "ClientCnxn.SendThread.sendPing",
            PROGRAM,
            "start_client",
            "sessions-and-watches",
        ),
        step(
            "session-close",
            None,
            "Close the session",
            "The server deletes all ephemeral nodes of the session.",
            "No.",
            "ClientCnxn.close",
            PROGRAM,
            "close()",
            "sessions-and-watches",
        ),
    ]
}

/// A kind of node, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Lock,
    Lease,
    Latch,
    Sequential,
}

fn node(path: &str) -> Option<Node> {
    let (_, name) = path.rsplit_once('/')?;
    let has = |part: &str| name.contains(part);
    if has("_c_") && (has("lock-") || has("__READ__") || has("__WRIT__")) {
        Some(Node::Lock)
    } else if has("_c_") && has("lease-") {
        Some(Node::Lease)
    } else if has("latch-") {
        Some(Node::Latch)
    } else if name.starts_with("n-") {
        Some(Node::Sequential)
    } else {
        None
    }
}

pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The nodes that were seen so far.
#[derive(Default)]
pub(crate) struct Steps {
    /// The lock nodes that clients have created, without their numbers; the client, and whether the parents were missing.
    created: BTreeMap<String, (usize, bool)>,
    /// The directories of lock nodes, and what is in them.
    bases: BTreeMap<String, Node>,
    /// The steps of requests without a reply, by connection and xid.
    asked: BTreeMap<(usize, i64), &'static str>,
    /// The nodes whose holders believed in them so far.
    pub(crate) held: BTreeSet<String>,
}

impl Steps {
    /// The step of a frame: that of a reply is its request's. Frames are given in the order in which they were sent.
    pub(crate) fn of(&mut self, frame: &Frame) -> Option<&'static str> {
        let key = (frame.connection, frame.xid().unwrap_or_default());
        let own = self.own(frame);
        if frame.kind() == "reply" {
            return self.asked.remove(&key);
        }
        if let (true, Some(step)) = (frame.to_server, own) {
            self.asked.insert(key, step);
        }
        own
    }

    fn own(&mut self, frame: &Frame) -> Option<&'static str> {
        let path = frame.path();
        match (frame.kind(), frame.op()) {
            ("connect", _) => Some("session-open"),
            ("request", "ping") => Some("session-ping"),
            ("request", "closeSession") => Some("session-close"),
            ("request", op) => self.request(frame, op, path),
            ("event", _) => self.event(frame.client, path),
            ("reply", _) => {
                if frame.error() == Some("NONODE") && frame.op().starts_with("create") {
                    let ours = self.created.values_mut().filter(|of| of.0 == frame.client);
                    ours.for_each(|of| of.1 = true);
                }
                None
            }
            _ => None,
        }
    }

    fn request(&mut self, frame: &Frame, op: &str, path: &str) -> Option<&'static str> {
        let watches = frame.fields["body"]["watch"] == true;
        let base = self.bases.get(path).copied();
        let is_above = self.bases.keys().any(|base| parent(base) == path || base == path);
        match (op, node(path)) {
            ("create" | "create2", Some(node)) => {
                self.bases.insert(parent(path).to_owned(), node);
                Some(self.create(frame.client, path, node))
            }
            ("exists" | "createContainer", Some(Node::Lock)) => Some("lock-2"),
            ("exists" | "createContainer", _) if is_above => Some("lock-2"),
            ("sync" | "getChildren", None) if base == Some(Node::Lock) => Some("lock-3"),
            ("getChildren" | "getChildren2", None) => match base? {
                Node::Lock => Some("lock-5"),
                Node::Lease => Some("lease-list"),
                Node::Latch => Some("latch-list"),
                Node::Sequential => Some("sequential-list"),
            },
            ("getData", Some(node)) if watches => Some(match node {
                Node::Lock if self.is_of(frame.client, path) => "lock-4",
                Node::Lock => "lock-7",
                Node::Latch => "latch-watch",
                Node::Lease => "lease-list",
                Node::Sequential => "sequential-watch",
            }),
            ("getData", None) if base == Some(Node::Lock) => Some("strict-record"),
            ("multi", _) => self.transaction(frame),
            ("delete", Some(node)) => Some(match node {
                Node::Lock if self.held.contains(path) => "lock-10",
                Node::Lock => "lock-9",
                Node::Latch => "latch-delete",
                Node::Lease => "lease-delete",
                Node::Sequential => "sequential-delete",
            }),
            ("create" | "create2", None) if path == LOCK && base.is_none() => Some("naive-create"),
            ("exists", None) if path == LOCK && watches => Some("naive-watch"),
            ("delete", None) if path == LOCK && base.is_none() => Some("naive-delete"),
            _ => None,
        }
    }

    fn create(&mut self, client: usize, path: &str, node: Node) -> &'static str {
        let known = self.created.insert(path.to_owned(), (client, false));
        match (node, known) {
            (Node::Lock, None) => "lock-1",
            (Node::Lock, Some((_, true))) => "lock-2",
            (Node::Lock, Some(_)) => "lock-3",
            (Node::Lease, _) => "lease-create",
            (Node::Latch, _) => "latch-create",
            (Node::Sequential, _) => "sequential-create",
        }
    }

    /// A strict mutex changes its record together with a check of its node, or with its deletion.
    fn transaction(&self, frame: &Frame) -> Option<&'static str> {
        let parts = frame.fields["body"].as_array()?;
        let is_base = |part: &serde_json::Value| {
            let path = part["body"]["path"].as_str().unwrap_or_default();
            self.bases.get(path) == Some(&Node::Lock)
        };
        if !parts.iter().any(is_base) {
            return None;
        }
        let deletes = parts.iter().any(|part| part["op"] == "delete");
        Some(if deletes { "lock-10" } else { "strict-claim" })
    }

    fn event(&self, client: usize, path: &str) -> Option<&'static str> {
        match node(path) {
            Some(Node::Lock) if !self.is_of(client, path) => Some("lock-8"),
            Some(Node::Latch) if !self.is_of(client, path) => Some("latch-woken"),
            Some(Node::Sequential) if !self.is_of(client, path) => Some("sequential-woken"),
            None if path == LOCK && !self.bases.contains_key(LOCK) => Some("naive-woken"),
            _ => None,
        }
    }

    /// Whether a client has created this node.
    fn is_of(&self, client: usize, path: &str) -> bool {
        self.created
            .iter()
            .any(|(start, (of, _))| *of == client && path.starts_with(start.as_str()))
    }
}
