//! Who holds a lock and who waits for it, of whatever kind it is: read from its children, as the recipes do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use docent::{
    Client, ErrorKind,
    recipes::locks::{
        REVOKE_MESSAGE, lock_internals::LOCK_NAME, sorted_readers_and_writers,
        standard_lock_internals_driver::sorted_contenders,
    },
};
use serde_json::{Value, json};

use crate::{data, exit::Failure};

/// What a node in the queue is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Read,
    Write,
    Lease,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Read => "read",
            Self::Write => "write",
            Self::Lease => "lease",
        }
    }
}

/// One who holds the lock or waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) holds: bool,
    /// The session that the node belongs to.
    pub(crate) session: i64,
    /// The node's `czxid`.
    pub(crate) token: i64,
    /// Since the node was made, by the servers' clock and ours.
    pub(crate) age: Duration,
    pub(crate) data: Vec<u8>,
}

impl Entry {
    /// What it says about itself.
    pub(crate) fn owner(&self) -> String {
        match self.data.as_slice() {
            b"" => "(revocable)".to_owned(),
            REVOKE_MESSAGE => "(asked to give it up)".to_owned(),
            data => data::shown(data),
        }
    }

    /// Whether it listens to who asks for the lock: such nodes are empty, with docent and with Curator, until
    /// somebody does.
    pub(crate) fn is_revocable(&self) -> bool {
        self.data.is_empty() || self.data == REVOKE_MESSAGE
    }

    pub(crate) fn json(&self, position: usize) -> Value {
        json!({
            "position": position,
            "state": if self.holds { "held" } else { "waiting" },
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

/// All of them, holders first, then first come first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    pub(crate) entries: Vec<Entry>,
}

/// Where a semaphore has its queue, and its leases.
///
/// Source: `InterProcessSemaphoreV2`.
pub(crate) const SEMAPHORE: [&str; 2] = ["locks", "leases"];
const LEASE_NAME: &str = "lease-";

impl Queue {
    /// Reads it. `NoNode` when nobody has ever used the lock, or the server has removed its empty path.
    pub(crate) async fn read(client: &Client, path: &str) -> Result<Self, docent::Error> {
        let names = client.get_children(path).await?.to_vec();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut wanted = Vec::new();
        for (at, contender) in
            sorted_contenders(names.iter().copied(), LOCK_NAME).iter().enumerate()
        {
            wanted.push((join(path, contender.name), Kind::Mutex, at == 0));
        }
        let mut writer = None;
        for (at, contender) in sorted_readers_and_writers(&names).iter().enumerate() {
            let kind = if contender.name.contains("__WRIT__") { Kind::Write } else { Kind::Read };
            // A writer that reads has two nodes of one number.
            let free = writer.is_none_or(|number| number == contender.sequence);
            let holds = at == 0 || (kind == Kind::Read && free);
            if kind == Kind::Write && writer.is_none() {
                writer = Some(contender.sequence);
            }
            wanted.push((join(path, contender.name), kind, holds));
        }
        let mut queue = Self { entries: entries(client, wanted).await? };
        if SEMAPHORE.iter().any(|name| names.contains(name)) {
            queue.entries.append(&mut semaphore(client, path).await?);
        }
        queue.entries.sort_by_key(|entry| (!entry.holds, entry.token));
        Ok(queue)
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.holds)
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.holds)
    }
}

/// The leases that are out, and who queues for one. The first of the queue has put its lease down already, and
/// counts: that one is not out.
async fn semaphore(client: &Client, path: &str) -> Result<Vec<Entry>, docent::Error> {
    let [locks, leases] = SEMAPHORE.map(|name| join(path, name));
    let of = async |directory: &str, name: &str, holds: bool| {
        let children = match client.get_children(directory).await {
            Ok(children) => children.to_vec(),
            Err(error) if error.kind() == ErrorKind::NoNode => Vec::new(),
            Err(error) => return Err(error),
        };
        let nodes = sorted_contenders(children.iter().map(String::as_str), name);
        let nodes = nodes.iter().map(|one| (join(directory, one.name), Kind::Lease, holds));
        entries(client, nodes.collect()).await
    };
    let queue = of(&locks, LOCK_NAME, false).await?;
    let mut out = of(&leases, LEASE_NAME, true).await?;
    if let Some(next) = queue.first() {
        let put_down = |lease: &Entry| lease.session == next.session && lease.token > next.token;
        if let Some(at) = out.iter().rposition(put_down) {
            out.remove(at);
        }
    }
    out.extend(queue);
    Ok(out)
}

/// Reads the nodes, all at once; those that are gone by now are left out.
async fn entries(
    client: &Client,
    wanted: Vec<(String, Kind, bool)>,
) -> Result<Vec<Entry>, docent::Error> {
    let asked: Vec<_> = wanted
        .into_iter()
        .map(|(path, kind, holds)| {
            let answer = client.get_data(&path);
            (path, kind, holds, answer)
        })
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut entries = Vec::with_capacity(asked.len());
    for (path, kind, holds, answer) in asked {
        match answer.await {
            Ok(node) => entries.push(Entry {
                path,
                kind,
                holds,
                session: node.stat.ephemeral_owner,
                token: node.stat.czxid,
                age: now.saturating_sub(Duration::from_millis(
                    u64::try_from(node.stat.ctime).unwrap_or(0),
                )),
                data: node.data.to_vec(),
            }),
            Err(error) if error.kind() == ErrorKind::NoNode => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

/// A child's path.
pub(crate) fn join(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

/// Reads a queue; a lock that nobody uses has none.
pub(crate) async fn read_or_empty(client: &Client, path: &str) -> Result<Queue, Failure> {
    match Queue::read(client, path).await {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(Queue::default()),
        other => Ok(other?),
    }
}
