//! Making the parents of a node, as containers.
//!
//! Upward: `exists` of the path itself and of each ancestor until one is there; the root is never asked
//! for. Downward from there: a container for each that is missing. A server removes a container some time
//! after its last child went, so parents may be missing again at any time.
//!
//! The path itself is asked for first, though it is never there: Curator does, and a trace of ours is to
//! look like one of its own. Ancestors above an existing one are left alone, so it does not matter who may
//! read them (CURATOR-715).
//!
//! Source: Curator's `ZKPaths.mkdirs`, 5.8.0 and later.

use docent_protocol::{CreateMode, path};
use docent_session::{Client, Error, ErrorKind};

use crate::acl_provider::{AclProvider, acl_of};

/// How parents are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parents<'a> {
    pub(crate) acl_provider: &'a dyn AclProvider,
    /// Otherwise persistent: for servers before 3.5.1.
    pub(crate) as_containers: bool,
}

/// Which node is the last to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// The parent of the path.
    Parent,
    /// The path itself.
    Itself,
}

/// Makes what is missing at or above `path`. No retries of its own: who calls it begins again.
pub(crate) async fn create_parents(
    client: &Client,
    full_path: &str,
    last: Last,
    parents: Parents<'_>,
) -> Result<(), Error> {
    let mut missing: Vec<&str> = Vec::new();
    let mut probed = full_path;
    while client.exists(probed).await?.is_none() {
        if probed != full_path || last == Last::Itself {
            missing.push(probed);
        }
        match path::parent(probed) {
            None | Some("/") => break,
            Some(parent) => probed = parent,
        }
    }
    for parent in missing.into_iter().rev() {
        let acl = acl_of(parents.acl_provider, parent);
        let result = if parents.as_containers {
            client.create2(parent, b"", CreateMode::Container, acl).await.map(drop)
        } else {
            client.create_with_acl(parent, b"", CreateMode::Persistent, acl).await.map(drop)
        };
        match result {
            Ok(()) => {}
            // Somebody else was faster.
            Err(error) if error.kind() == ErrorKind::NodeExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
