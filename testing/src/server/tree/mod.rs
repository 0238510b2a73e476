//! The nodes of a server, and the transactions that change them.
//!
//! This module is pure and makes no checks. A [`Txn`] is checked before it is created (`prep.rs`), so that every
//! member of an ensemble applies it alike. Children are listed in the order of their names; a real server lists them
//! in hash table order.
//!
//! A node's `cversion` here is the value that a server stores: the number of children ever created, which is also the
//! next sequence number. A Stat shows twice that value, minus the current number of children.
//!
//! Source: `DataTree`, `DataNode`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use docent_protocol::{ErrorCode, Perms, Stat, path};

use super::{
    acl::{self, NodeAcl},
    membership::Membership,
    version::Version,
};

mod quota;
mod trial;

pub(crate) use quota::ROOT_LIMITS;

/// The node of the ensemble's configuration.
pub(crate) const CONFIG_NODE: &str = "/zookeeper/config";

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Persistent,
    /// Ephemeral, owned by this session.
    Ephemeral(i64),
    /// With the `ephemeralOwner` that its Stat shows.
    Container(i64),
    /// Deleted once it has had no children and no change for this number of milliseconds.
    Ttl(i64),
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: NodeAcl,
    pub(crate) kind: Kind,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    /// How often the data of a child was set, which the cversion of a ClickHouse Keeper counts.
    child_sets: i32,
    pub(crate) children: BTreeSet<String>,
}

impl Node {
    fn at_start(data: Option<Bytes>, acl: NodeAcl, children: &[&str]) -> Self {
        Self {
            data,
            acl,
            kind: Kind::Persistent,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            child_sets: 0,
            children: children.iter().map(|child| (*child).to_owned()).collect(),
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let count = |len: usize| i32::try_from(len).unwrap_or(i32::MAX);
        let num_children = count(self.children.len());
        let changes = self.cversion.wrapping_mul(2).wrapping_sub(num_children);
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: changes.wrapping_add(self.child_sets),
            aversion: self.aversion,
            ephemeral_owner: match self.kind {
                Kind::Ephemeral(owner) | Kind::Container(owner) => owner,
                Kind::Persistent | Kind::Ttl(_) => 0,
            },
            data_length: count(self.data.as_ref().map_or(0, Bytes::len)),
            num_children,
            pzxid: self.pzxid,
        }
    }
}

/// A checked change, ready to apply.
#[derive(Debug, Clone)]
pub(crate) enum Txn {
    Create {
        path: String,
        data: Option<Bytes>,
        acl: NodeAcl,
        kind: Kind,
        parent_cversion: i32,
    },
    Delete {
        path: String,
    },
    SetData {
        path: String,
        data: Option<Bytes>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: NodeAcl,
        version: i32,
    },
    Check,
    Multi(Vec<Self>),
    /// Opens a session, with its timeout in milliseconds.
    CreateSession {
        session_id: i64,
        timeout: u64,
    },
    /// Ends a session, and deletes its ephemeral nodes.
    CloseSession {
        session_id: i64,
    },
    /// Changes the members of the ensemble.
    Reconfig(Arc<Membership>),
    /// A refused write, which only uses up a zxid.
    Error,
}

/// The result of a change, for the reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Applied {
    Created(String, Stat),
    Stat(Stat),
    Nothing,
    Multi(Vec<Self>),
}

/// A change that watchers are notified of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Created {
        path: String,
        bytes: i64,
        acl: NodeAcl,
        parent_acl: NodeAcl,
    },
    Deleted {
        path: String,
        bytes: i64,
        acl: NodeAcl,
        parent_acl: NodeAcl,
    },
    /// `bytes` is the difference between the new length of the data and the old one.
    DataChanged {
        path: String,
        bytes: i64,
        acl: NodeAcl,
    },
}

/// All nodes of one member of an ensemble.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
    ephemerals: BTreeMap<i64, BTreeSet<String>>,
    containers: BTreeSet<String>,
    ttls: BTreeSet<String>,
    /// The open sessions, with the timeouts of their creation in milliseconds.
    pub(crate) sessions: BTreeMap<i64, u64>,
    /// The zxid of the last applied change.
    pub(crate) last_zxid: i64,
    counter_wraps: bool,
    /// Whether a parent's Stat is that of a ClickHouse Keeper (ClickHouse#115457): its `cversion` counts the changes of
    /// its children's data, and a deletion does not set its `pzxid`.
    is_keeper: bool,
    /// The number of paths with a quota.
    quotas: usize,
    /// The path below which nothing may grow, in place of a quota that is used up.
    full: Option<String>,
    /// The members of the ensemble.
    pub(crate) membership: Arc<Membership>,
}

impl Tree {
    /// The tree of a server without data.
    pub(crate) fn new(version: Version) -> Self {
        let mut nodes = BTreeMap::new();
        let empty = || Some(Bytes::new());
        let system: &[&str] =
            if version.has_config_node() { &["config", "quota"] } else { &["quota"] };
        nodes.insert("/".to_owned(), Node::at_start(empty(), acl::open(), &["zookeeper"]));
        nodes.insert("/zookeeper".to_owned(), Node::at_start(empty(), acl::open(), system));
        nodes.insert("/zookeeper/quota".to_owned(), Node::at_start(empty(), acl::open(), &[]));
        if version.has_config_node() {
            let mut config = Node::at_start(empty(), acl::world(Perms::READ), &[]);
            config.aversion = -1;
            nodes.insert(CONFIG_NODE.to_owned(), config);
        }
        Self {
            nodes,
            ephemerals: BTreeMap::new(),
            containers: BTreeSet::new(),
            ttls: BTreeSet::new(),
            sessions: BTreeMap::new(),
            last_zxid: 0,
            counter_wraps: version.counter_wraps(),
            is_keeper: version.is_keeper(),
            quotas: 0,
            full: None,
            membership: Arc::default(),
        }
    }

    /// The node at a path; the empty path is the root.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path.is_empty() { "/" } else { path })
    }

    /// A path at which two trees differ.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let differs = |path: &&String| {
            let of = |tree: &Self| tree.get(path).map(|node| (node.data.clone(), node.stat()));
            of(self) != of(other)
        };
        self.nodes.keys().chain(other.nodes.keys()).find(differs).cloned()
    }

    /// Like [`get`](Self::get), with the error code for the reply.
    pub(crate) fn node(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.get(path).ok_or(ErrorCode::NoNode)
    }

    fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(if path.is_empty() { "/" } else { path })
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The number of ephemeral nodes.
    pub(crate) fn ephemeral_count(&self) -> usize {
        self.ephemerals.values().map(BTreeSet::len).sum()
    }

    /// The sessions that have ephemeral nodes.
    pub(crate) fn owners(&self) -> impl Iterator<Item = i64> {
        self.ephemerals.keys().copied()
    }

    /// The size of all paths and data, in bytes.
    ///
    /// Source: `DataTree.approximateDataSize`.
    pub(crate) fn approximate_size(&self) -> usize {
        self.nodes
            .iter()
            .map(|(path, node)| path.len() + node.data.as_ref().map_or(0, |d| d.len()))
            .sum()
    }

    /// The paths of a session's ephemeral nodes, in order.
    pub(crate) fn ephemerals(&self, session_id: i64) -> impl Iterator<Item = &str> {
        self.ephemerals.get(&session_id).into_iter().flatten().map(String::as_str)
    }

    /// The number of descendants of a node.
    pub(crate) fn descendants(&self, path: &str) -> usize {
        if matches!(path, "" | "/") {
            return self.nodes.len() - 1;
        }
        let prefix = format!("{path}/");
        self.nodes
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(&prefix))
            .count()
    }

    /// Containers that have had children and have none now, and expired TTL nodes.
    pub(crate) fn reapable(&self, wall_ms: i64) -> Vec<String> {
        let is_due = |path: &&String| {
            self.nodes.get(*path).is_some_and(|node| {
                node.children.is_empty()
                    && match node.kind {
                        Kind::Container(_) => node.cversion > 0,
                        Kind::Ttl(ttl) => wall_ms.saturating_sub(node.mtime) > ttl,
                        Kind::Persistent | Kind::Ephemeral(_) => false,
                    }
            })
        };
        self.containers.iter().chain(&self.ttls).filter(is_due).cloned().collect()
    }

    /// Sets the sequence number of the next sequential child. For tests of the counter's limit.
    pub(crate) fn set_counter(&mut self, path: &str, next: i32) -> bool {
        self.get_mut(path).map(|node| node.cversion = next).is_some()
    }

    /// Sets the permissions that everyone has, without a change of the node's versions.
    #[cfg(docent_sim)]
    pub(crate) fn set_perms(&mut self, path: &str, perms: Perms) {
        if let Some(node) = self.get_mut(path) {
            node.acl = acl::world(perms);
        }
    }

    /// Lets nothing grow at or below a path: `None` ends it.
    #[cfg(docent_sim)]
    pub(crate) fn set_full(&mut self, path: Option<&str>) {
        self.full = path.map(str::to_owned);
    }

    /// Applies a change. The changes that watchers are notified of are appended to `changes`.
    pub(crate) fn apply(
        &mut self,
        txn: &Txn,
        zxid: i64,
        wall_ms: i64,
        changes: &mut Vec<Change>,
    ) -> Applied {
        if let Txn::Multi(txns) = txn {
            self.last_zxid = zxid;
            let applied = txns.iter().map(|txn| self.apply(txn, zxid, wall_ms, changes));
            return Applied::Multi(applied.collect());
        }
        let first = changes.len();
        let applied = self.change(txn, zxid, wall_ms, changes);
        for change in changes.get(first..).unwrap_or_default() {
            self.count_in_quotas(change);
        }
        applied
    }

    /// Applies a change, except for the statistics of quotas.
    fn change(&mut self, txn: &Txn, zxid: i64, wall_ms: i64, changes: &mut Vec<Change>) -> Applied {
        self.last_zxid = zxid;
        match txn {
            Txn::CreateSession { session_id, timeout } => {
                self.sessions.insert(*session_id, *timeout);
                Applied::Nothing
            }
            Txn::CloseSession { session_id } => {
                self.sessions.remove(session_id);
                for path in self.ephemerals.remove(session_id).unwrap_or_default() {
                    self.delete(&path, zxid, changes);
                }
                Applied::Nothing
            }
            Txn::Create { .. } => self.create(txn, zxid, wall_ms, changes),
            Txn::Delete { path } => {
                self.delete(path, zxid, changes);
                Applied::Nothing
            }
            Txn::SetData { path, data, version } => {
                let Some(node) = self.get_mut(path) else { return Applied::Nothing };
                let bytes = len(data) - len(&node.data);
                node.data.clone_from(data);
                (node.version, node.mzxid, node.mtime) = (*version, zxid, wall_ms);
                let stat = node.stat();
                let acl = Arc::clone(&node.acl);
                changes.push(Change::DataChanged { path: path.clone(), bytes, acl });
                if self.is_keeper
                    && let Some(parent) = self.get_mut(split(path).0)
                {
                    parent.child_sets = parent.child_sets.wrapping_add(1);
                }
                Applied::Stat(stat)
            }
            Txn::SetAcl { path, acl, version } => {
                let Some(node) = self.get_mut(path) else { return Applied::Nothing };
                node.acl = Arc::clone(acl);
                node.aversion = *version;
                Applied::Stat(node.stat())
            }
            Txn::Reconfig(membership) => {
                self.membership = Arc::clone(membership);
                let Some(node) = self.show_membership(zxid, wall_ms) else {
                    return Applied::Nothing;
                };
                let (stat, acl) = (node.stat(), Arc::clone(&node.acl));
                let path = CONFIG_NODE.to_owned();
                let changed = Change::DataChanged { path, bytes: 0, acl };
                // A real server writes the node twice: when the members change, and when it applies the transaction.
                changes.extend([changed.clone(), changed]);
                Applied::Stat(stat)
            }
            // Multis are not nested.
            Txn::Multi(_) | Txn::Check | Txn::Error => Applied::Nothing,
        }
    }

    /// Writes the members of the ensemble into `/zookeeper/config`.
    ///
    /// Source: `ZKDatabase.initConfigInZKDatabase`.
    pub(crate) fn show_membership(&mut self, zxid: i64, wall_ms: i64) -> Option<&Node> {
        let text = self.membership.to_string();
        let node = self.get_mut(CONFIG_NODE)?;
        node.data = Some(text.into());
        (node.version, node.mzxid, node.mtime) = (-1, zxid, wall_ms);
        Some(node)
    }

    fn create(&mut self, txn: &Txn, zxid: i64, wall_ms: i64, changes: &mut Vec<Change>) -> Applied {
        let Txn::Create { path, data, acl, kind, parent_cversion } = txn else {
            return Applied::Nothing;
        };
        let wraps = self.counter_wraps;
        let Some(parent) = self.get_mut(split(path).0) else { return Applied::Nothing };
        // Since 3.6 a smaller number never replaces a larger one, so the counter sticks at its maximum.
        if wraps || *parent_cversion > parent.cversion {
            parent.cversion = *parent_cversion;
            parent.pzxid = zxid;
        }
        let parent_acl = Arc::clone(&parent.acl);
        let node = Node {
            kind: *kind,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: wall_ms,
            mtime: wall_ms,
            ..Node::at_start(data.clone(), Arc::clone(acl), &[])
        };
        let stat = node.stat();
        self.insert(path, node);
        let acl = Arc::clone(acl);
        changes.push(Change::Created { path: path.clone(), bytes: len(data), acl, parent_acl });
        Applied::Created(path.clone(), stat)
    }

    fn delete(&mut self, path: &str, zxid: i64, changes: &mut Vec<Change>) {
        let Some(node) = self.remove(path) else { return };
        let (parent_path, _) = split(path);
        let is_keeper = self.is_keeper;
        let Some(parent) = self.get_mut(parent_path) else { return };
        if !is_keeper {
            parent.pzxid = parent.pzxid.max(zxid);
        }
        let parent_acl = Arc::clone(&parent.acl);
        let (path, bytes) = (path.to_owned(), len(&node.data));
        changes.push(Change::Deleted { path, bytes, acl: node.acl, parent_acl });
    }

    /// Adds a node to every table.
    fn insert(&mut self, path: &str, node: Node) {
        let path = path.to_owned();
        match node.kind {
            Kind::Ephemeral(owner) => {
                self.ephemerals.entry(owner).or_default().insert(path.clone());
            }
            Kind::Container(_) => {
                self.containers.insert(path.clone());
            }
            Kind::Ttl(_) => {
                self.ttls.insert(path.clone());
            }
            Kind::Persistent => {}
        }
        let (parent_path, name) = split(&path);
        if let Some(parent) = self.get_mut(parent_path) {
            parent.children.insert(name.to_owned());
        }
        self.nodes.insert(path, node);
    }

    /// Removes a node from every table.
    fn remove(&mut self, path: &str) -> Option<Node> {
        let node = self.nodes.remove(path)?;
        match node.kind {
            Kind::Ephemeral(owner) => {
                if let Some(paths) = self.ephemerals.get_mut(&owner) {
                    paths.remove(path);
                    if paths.is_empty() {
                        self.ephemerals.remove(&owner);
                    }
                }
            }
            Kind::Container(_) => {
                self.containers.remove(path);
            }
            Kind::Ttl(_) => {
                self.ttls.remove(path);
            }
            Kind::Persistent => {}
        }
        let (parent_path, name) = split(path);
        if let Some(parent) = self.get_mut(parent_path) {
            parent.children.remove(name);
        }
        Some(node)
    }
}

/// The length of data.
fn len(data: &Option<Bytes>) -> i64 {
    data.as_ref().map_or(0, |data| i64::try_from(data.len()).unwrap_or(i64::MAX))
}

/// Splits a path into its parent and its name.
fn split(path: &str) -> (&str, &str) {
    let parent = path::parent(path).unwrap_or("/");
    (parent, path.rsplit('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn create(path: &str, kind: Kind, parent_cversion: i32) -> Txn {
        Txn::Create { path: path.to_owned(), data: None, acl: acl::open(), kind, parent_cversion }
    }

    /// A new server shows a cversion of -1 for the root and of -2 for `/zookeeper`, as recorded from real servers.
    #[test]
    fn a_new_tree_looks_like_a_new_servers() {
        let tree = Tree::new(Version::V3_8);
        let stat = |path| tree.get(path).unwrap().stat();
        assert_eq!((stat("/").cversion, stat("/").num_children), (-1, 1));
        assert_eq!((stat("/zookeeper").cversion, stat("/zookeeper/config").aversion), (-2, -1));
    }

    #[test]
    fn descendants_are_below_and_not_beside() {
        let mut tree = Tree::new(Version::V3_8);
        for (zxid, path) in ["/a", "/a/b", "/a/b/c", "/a-b", "/a-b/x"].iter().enumerate() {
            tree.apply(&create(path, Kind::Persistent, 1), zxid as i64, 0, &mut Vec::new());
        }
        assert_eq!((tree.descendants("/a"), tree.descendants("/a/b/c")), (2, 0));
        assert_eq!(tree.descendants("/"), tree.len() - 1);
    }
}
