//! Changes on trial: each operation of a multi is checked against the effects of those before it, which are then reverted.

use super::{Node, Tree, Txn, split};

/// The data to revert a change: the node as it was, and the numbers of its parent that its changes change.
#[derive(Debug)]
pub(crate) struct Undo {
    path: String,
    node: Option<Box<Node>>,
    cversion: i32,
    pzxid: i64,
    child_sets: i32,
}

impl Tree {
    /// Applies a change tentatively and returns the data to revert it. Used for the operations of a multi: each one
    /// is checked against the effects of those before it.
    pub(crate) fn apply_tentatively(&mut self, txn: &Txn) -> Option<Undo> {
        let (zxid, mut changes) = (self.last_zxid, Vec::new());
        let (Txn::Create { path, .. }
        | Txn::Delete { path }
        | Txn::SetData { path, .. }
        | Txn::SetAcl { path, .. }) = txn
        else {
            return None;
        };
        let parent = self.get(split(path).0)?;
        let undo = Undo {
            path: path.clone(),
            node: self.get(path).cloned().map(Box::new),
            cversion: parent.cversion,
            pzxid: parent.pzxid,
            child_sets: parent.child_sets,
        };
        self.change(txn, zxid, 0, &mut changes);
        Some(undo)
    }

    /// Reverts a change of [`apply_tentatively`](Self::apply_tentatively); the last one must be reverted first.
    pub(crate) fn revert(&mut self, undo: Undo) {
        let Undo { path, node, cversion, pzxid, child_sets } = undo;
        self.remove(&path);
        if let Some(node) = node {
            self.insert(&path, *node);
        }
        if let Some(parent) = self.get_mut(split(&path).0) {
            (parent.cversion, parent.pzxid, parent.child_sets) = (cversion, pzxid, child_sets);
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
            Kind,
            tests::create,
        },
        *,
    };

    #[test]
    fn a_trial_can_be_rolled_back() {
        // The version in which a change of data also changes the parent.
        let mut tree = Tree::new(Version::Keeper26_6);
        let mut changes = Vec::new();
        tree.apply(&create("/a", Kind::Persistent, 1), 1, 5, &mut changes);
        tree.apply(&create("/a/e", Kind::Ephemeral(9), 1), 2, 5, &mut changes);
        let before = format!("{tree:?}");
        let undos: Vec<_> = [
            Txn::SetData { path: "/a".into(), data: Some(Bytes::new()), version: 1 },
            create("/a/c", Kind::Container(0), 2),
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
