//! A participant of an election.

use docent_session::{Client, Error, ErrorKind, retry::RetryPolicy};

use crate::{error, locks::standard_lock_internals_driver::sorted_contenders, path::join, planted};

/// A participant of an election.
///
/// Source: `Participant`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// Its id: the data of its node, with invalid UTF-8 replaced.
    pub id: String,
    /// Whether it is the first in the queue. It then leads, or will as soon as it has noticed.
    pub is_leader: bool,
    /// The path of its node.
    pub path: String,
}

/// The participants, in the order of the queue. Sends getChildren2 (12) and getData (4) for each, one after the other,
/// or for the first that still exists.
///
/// Source: `LeaderSelector.getParticipants`, `getLeader`. Not mirrored: children that are no nodes of this election are
/// left out (L25).
pub(super) async fn participants(
    client: &Client,
    policy: &dyn RetryPolicy,
    path: &str,
    lock_name: &str,
    only_first: bool,
) -> Result<Vec<Participant>, Error> {
    let list = || client.get_children_with_stat(path);
    let listed = client.retry_idempotent(policy, list).await;
    let (children, _) = error::default_if_missing(listed)?;
    let mut found = Vec::new();
    for contender in sorted_contenders(children.iter(), lock_name) {
        let path = join(path, contender.name);
        match client.retry_idempotent(policy, || client.get_data(&path)).await {
            Ok(node) => {
                let id = String::from_utf8_lossy(&node.data).into_owned();
                let is_leader = found.is_empty() != planted::is("last-participant-leads");
                found.push(Participant { id, is_leader, path });
                if only_first {
                    break;
                }
            }
            // It has left since the listing.
            Err(error) if error.kind() == ErrorKind::NoNode => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
