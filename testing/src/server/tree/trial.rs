//! Changes on trial: each operation of a multi is checked against the effects of those before it, which are then reverted.

use super::{Kind, Node, Tree, Txn, split};

/// The data to revert a change.
#[derive(Debug)]
pub(crate) enum Undo {
    Created { path: String, cversion: i32, pzxid: i64 },
    Deleted { path: String, node: Box<Node>, pzxid: i64 },
    Replaced { path: String, node: Box<Node> },
}

impl Tree {
    /// Applies a change tentatively and returns the data to revert it. Used for the operations of a multi: each one
    /// is checked against the effects of those before it.
    pub(crate) fn apply_tentatively(&mut self, txn: &Txn) -> Option<Undo> {
        let (zxid, mut changes) = (self.last_zxid, Vec::new());
        let undo = match txn {
            Txn::Create { path, .. } => {
                let parent = self.get(split(path).0)?;
                let (cversion, pzxid) = (parent.cversion, parent.pzxid);
                Undo::Created { path: path.clone(), cversion, pzxid }
            }
            Txn::Delete { path } => {
                let node = Box::new(self.get(path)?.clone());
                let pzxid = self.get(split(path).0)?.pzxid;
                Undo::Deleted { path: path.clone(), node, pzxid }
            }
            Txn::SetData { path, .. } | Txn::SetAcl { path, .. } => {
                Undo::Replaced { path: path.clone(), node: Box::new(self.get(path)?.clone()) }
            }
            _ => return None,
        };
        self.change(txn, zxid, 0, &mut changes);
        Some(undo)
    }

    /// Reverts a change of [`apply_tentatively`](Self::apply_tentatively); the last one must be reverted first.
    pub(crate) fn revert(&mut self, undo: Undo) {
        match undo {
            Undo::Created { path, cversion, pzxid } => {
                self.remove(&path);
                if let Some(parent) = self.get_mut(split(&path).0) {
                    (parent.cversion, parent.pzxid) = (cversion, pzxid);
                }
            }
            Undo::Deleted { path, node, pzxid } => {
                match node.kind {
                    Kind::Ephemeral(owner) => {
                        self.ephemerals.entry(owner).or_default().insert(path.clone());
                    }
                    Kind::Container => {
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
                    parent.pzxid = pzxid;
                }
                self.nodes.insert(path, *node);
            }
            Undo::Replaced { path, node } => {
                self.nodes.insert(path, *node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use docent_protocol::Perms;

    use super::{
        super::{
            super::{acl, version::Version},
            tests::create,
        },
        *,
    };

    #[test]
    fn a_trial_can_be_rolled_back() {
        let mut tree = Tree::new(Version::V3_8);
        let mut changes = Vec::new();
        tree.apply(&create("/a", Kind::Persistent, 1), 1, 5, &mut changes);
        tree.apply(&create("/a/e", Kind::Ephemeral(9), 1), 2, 5, &mut changes);
        let before = format!("{tree:?}");
        let undos: Vec<_> = [
            Txn::SetData { path: "/a".into(), data: Some(Bytes::new()), version: 1 },
            create("/a/c", Kind::Container, 2),
            Txn::Delete { path: "/a/e".into() },
            Txn::SetAcl { path: "/a/c".into(), acl: acl::world(Perms::READ), version: 1 },
        ]
        .iter()
        .map(|txn| tree.apply_tentatively(txn).unwrap())
        .collect();
        assert_ne!(format!("{tree:?}"), before);
        undos.into_iter().rev().for_each(|undo| tree.revert(undo));
        assert_eq!(format!("{tree:?}"), before);
    }
}
