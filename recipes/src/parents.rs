//! Creates the parents of a node, as containers.
//!
//! Upward: sends `exists` for the path itself and for each ancestor until one exists, never for the root.
//! Downward from there: creates a container for each missing node. A server removes a container some time
//! after its last child was deleted, so parents may be missing again at any time.
//!
//! The first `exists` is for the path itself, although it is never there: Curator sends it, and the traces of
//! both are to be equal. Ancestors above an existing one are not requested, so their ACLs do not matter
//! (CURATOR-715).
//!
//! Source: Curator's `ZKPaths.mkdirs`, 5.8.0 and later.

use docent_protocol::{CreateMode, path};
use docent_session::{Client, CreateOptions, Error, ErrorKind};

use crate::{acl_provider::Acls, create::create};

/// How parents are created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parents<'a> {
    /// The ACLs of the parents, and of the node itself.
    pub(crate) acls: Acls<'a>,
    /// The mode of the parents. On servers without containers, persistent nodes stand for them.
    pub(crate) mode: CreateMode,
}

/// Whether the node at the end of the path is created as well: `makeLastNode` of `ZKPaths.mkdirs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastNode {
    Skip,
    Create,
}

/// How often it begins again because a parent that was there is gone.
const MOST_REMOVALS: usize = 8;

/// Creates the missing nodes above `full_path`, and at it if `last_node` says so. Begins again if an ancestor that was there
/// is gone, such as a container without children. Does not retry otherwise: callers do.
pub(crate) async fn create_parents(
    client: &Client,
    full_path: &str,
    last_node: LastNode,
    parents: Parents<'_>,
) -> Result<(), Error> {
    for _ in 0..MOST_REMOVALS {
        match create_missing(client, full_path, last_node, parents).await {
            Err(error) if error.kind() == ErrorKind::NoNode && !error.is_missing_chroot() => {}
            result => return result,
        }
    }
    create_missing(client, full_path, last_node, parents).await
}

async fn create_missing(
    client: &Client,
    full_path: &str,
    last_node: LastNode,
    parents: Parents<'_>,
) -> Result<(), Error> {
    let mut missing: Vec<&str> = Vec::new();
    let mut probed = full_path;
    loop {
        match client.exists(probed).await {
            Ok(None) => {}
            // Servers since 3.9.2 refuse to show a node without READ, but not that it is missing.
            Err(error) if error.kind() != ErrorKind::NoAuth => return Err(error),
            _ => break,
        }
        if probed != full_path || last_node == LastNode::Create {
            missing.push(probed);
        }
        match path::parent(probed) {
            None | Some("/") => break,
            Some(parent) => probed = parent,
        }
    }
    for parent in missing.into_iter().rev() {
        let acl = parents.acls.of(parent);
        let result = if parents.mode == CreateMode::Container {
            create(client, parent, b"", CreateMode::Container, acl).await.map(drop)
        } else {
            let options = CreateOptions::new(parents.mode).with_acl(acl);
            client.create(parent, b"", options).await.map(drop)
        };
        match result {
            Ok(()) => {}
            // Another client has created it since.
            Err(error) if error.kind() == ErrorKind::NodeExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
