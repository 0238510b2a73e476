//! The holders and waiters of a lock or an election, determined from the children of its path as the recipes do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use docent::{
    Client, ErrorKind,
    locks::{
        REVOKE_MESSAGE, lock_internals::LOCK_NAME, sorted_readers_and_writers,
        standard_lock_internals_driver::sorted_contenders,
    },
};
use serde_json::{Value, json};

use crate::{data, exit::Failure};

/// The kind of lock that a contender acquires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Strict,
    Read,
    Write,
    Lease,
    Latch,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Strict => "strict",
            Self::Read => "read",
            Self::Write => "write",
            Self::Lease => "lease",
            Self::Latch => "latch",
        }
    }
}

/// A holder or waiter.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) is_holder: bool,
    /// The session that owns the node.
    pub(crate) session: i64,
    /// The node's `czxid`.
    pub(crate) token: i64,
    /// The time since the node was created, by the clocks of the server and of this machine.
    pub(crate) age: Duration,
    pub(crate) data: Vec<u8>,
}

impl Entry {
    /// Returns the node's data as text, or its state as a revocable lock.
    pub(crate) fn owner(&self) -> String {
        match self.data.as_slice() {
            b"" if self.kind == Kind::Latch => "(no id)".to_owned(),
            b"" => "(revocable)".to_owned(),
            REVOKE_MESSAGE => "(revoked)".to_owned(),
            data => data::escape(data),
        }
    }

    /// Whether the contender accepts revocation. The nodes of docent's and Curator's revocable locks are empty until
    /// the revocation is written.
    pub(crate) fn is_revocable(&self) -> bool {
        !matches!(self.kind, Kind::Latch | Kind::Strict)
            && (self.data.is_empty() || self.data == REVOKE_MESSAGE)
    }

    pub(crate) fn json(&self, position: usize) -> Value {
        json!({
            "position": position,
            "state": if self.is_holder { "held" } else { "waiting" },
            "kind": self.kind.name(),
            "path": self.path,
            "session": format!("{:#x}", self.session),
            "token": self.token,
            "age_ms": u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX),
            "owner": String::from_utf8_lossy(&self.data),
            "revocable": self.is_revocable(),
        })
    }
}

/// All contenders: holders first, then waiters, each in the order of their nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    pub(crate) entries: Vec<Entry>,
}

/// The children of a semaphore's path: the mutex that orders its waiters, and its leases.
///
/// Source: `InterProcessSemaphoreV2`.
pub(crate) const SEMAPHORE: [&str; 2] = ["locks", "leases"];
const LEASE_NAME: &str = "lease-";

/// A part of the names of a strict mutex's nodes. These names also contain the name of a mutex's nodes.
const STRICT_NAME: &str = "-strict-lock-";

/// Source: `LeaderLatch.LOCK_NAME`.
const LATCH_NAME: &str = "latch-";

impl Queue {
    /// Reads the queue. Fails with `NoNode` if the lock was never used, or the server has deleted its empty container.
    pub(crate) async fn read(client: &Client, path: &str) -> Result<Self, docent::Error> {
        let children = client.get_children(path).await?;
        let names: Vec<&str> = children.iter().collect();
        let mut nodes = Vec::new();
        for (name, kind) in [(LOCK_NAME, Kind::Mutex), (LATCH_NAME, Kind::Latch)] {
            let contenders = sorted_contenders(names.iter().copied(), name);
            for (index, contender) in contenders.iter().enumerate() {
                let is_strict = contender.name.contains(STRICT_NAME);
                let kind = if is_strict { Kind::Strict } else { kind };
                nodes.push((join(path, contender.name), kind, index == 0));
            }
        }
        let mut writer = None;
        for (index, contender) in sorted_readers_and_writers(&names).iter().enumerate() {
            let kind = if contender.name.contains("__WRIT__") { Kind::Write } else { Kind::Read };
            // A writer that also holds the read lock has two nodes with the same number.
            let is_unblocked = writer.is_none_or(|number| number == contender.sequence);
            let is_holder = index == 0 || (kind == Kind::Read && is_unblocked);
            if kind == Kind::Write && writer.is_none() {
                writer = Some(contender.sequence);
            }
            nodes.push((join(path, contender.name), kind, is_holder));
        }
        let mut queue = Self { entries: read_entries(client, nodes).await? };
        if SEMAPHORE.iter().any(|name| children.contains(name)) {
            queue.entries.append(&mut read_semaphore(client, path).await?);
        }
        queue.entries.sort_by_key(|entry| (!entry.is_holder, entry.token));
        Ok(queue)
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_holder)
    }

    #[cfg(unix)]
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.is_holder)
    }
}

/// Reads the held leases and the waiters of a semaphore. The first waiter has created its lease node already, and
/// waits until there are no more lease nodes than leases, so that node is not a held lease.
async fn read_semaphore(client: &Client, path: &str) -> Result<Vec<Entry>, docent::Error> {
    let [locks, leases] = SEMAPHORE.map(|name| join(path, name));
    let read = async |directory: &str, name: &str, is_holder: bool| {
        let children = client.get_children(directory).allow(ErrorKind::NoNode).await?;
        let children = children.unwrap_or_default();
        let nodes = sorted_contenders(&children, name);
        let nodes = nodes.iter().map(|node| (join(directory, node.name), Kind::Lease, is_holder));
        read_entries(client, nodes.collect()).await
    };
    let waiters = read(&locks, LOCK_NAME, false).await?;
    let mut entries = read(&leases, LEASE_NAME, true).await?;
    if let Some(next) = waiters.first() {
        let is_pending = |lease: &Entry| lease.session == next.session && lease.token > next.token;
        if let Some(index) = entries.iter().rposition(is_pending) {
            entries.remove(index);
        }
    }
    entries.extend(waiters);
    Ok(entries)
}

/// Reads the nodes with pipelined requests. Leaves out nodes that were deleted meanwhile.
async fn read_entries(
    client: &Client,
    nodes: Vec<(String, Kind, bool)>,
) -> Result<Vec<Entry>, docent::Error> {
    let replies: Vec<_> = nodes
        .into_iter()
        .map(|(path, kind, is_holder)| {
            let reply = client.get_data(&path).allow(ErrorKind::NoNode);
            (path, kind, is_holder, reply)
        })
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut entries = Vec::with_capacity(replies.len());
    for (path, kind, is_holder, reply) in replies {
        let Some(node) = reply.await? else { continue };
        entries.push(Entry {
            path,
            kind,
            is_holder,
            session: node.stat.ephemeral_owner,
            token: node.stat.czxid,
            age: now
                .saturating_sub(Duration::from_millis(u64::try_from(node.stat.ctime).unwrap_or(0))),
            data: node.data.to_vec(),
        });
    }
    Ok(entries)
}

/// Returns the path of a child.
pub(crate) fn join(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

/// Reads a queue; it is empty if the lock does not exist.
pub(crate) async fn read_or_empty(client: &Client, path: &str) -> Result<Queue, Failure> {
    match Queue::read(client, path).await {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(Queue::default()),
        other => Ok(other?),
    }
}
