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

use docent_protocol::{Acl, CreateMode, path};
use docent_session::{Client, Error, ErrorKind};

/// Makes what is missing above `path`. No retries of its own: who calls it begins again.
pub(crate) async fn create_parents(
    client: &Client,
    full_path: &str,
    acl: &[Acl<'_>],
) -> Result<(), Error> {
    let mut missing: Vec<&str> = Vec::new();
    let mut probed = full_path;
    while client.exists(probed).await?.is_none() {
        if probed != full_path {
            missing.push(probed);
        }
        match path::parent(probed) {
            None | Some("/") => break,
            Some(parent) => probed = parent,
        }
    }
    for parent in missing.into_iter().rev() {
        match client.create2(parent, b"", CreateMode::Container, acl).await {
            Ok(_) => {}
            // Somebody else was faster.
            Err(error) if error.kind() == ErrorKind::NodeExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
