//! Writes of a node that is still in a known state. Each is applied at most once, also when its reply is lost.
//!
//! A version does not identify a state: those of a node that is created anew begin again at 0. So a write without a reply
//! is repeated only behind a read that shows the node unchanged.

use docent_protocol::Stat;
use docent_session::{
    Client, Error, ErrorKind, Node, Outcome,
    retry::{RetryLoop, RetryPolicy},
};

use crate::{
    planted,
    settle::{BeforeWrite, get_if_exists, read_after_loss},
};

/// A state of a node: the zxid and the version of its last write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) mzxid: i64,
    pub(crate) version: i32,
}

/// Writes the node if it has the version that was seen; `None` if it has another one. Sends setData (5); after a lost
/// reply, a transaction (14) that changes nothing and getData (4), and setData again if the node was not written since.
pub(crate) async fn swap(
    client: &Client,
    policy: &dyn RetryPolicy,
    path: &str,
    seen: Seen,
    data: &[u8],
) -> Result<Option<Stat>, Error> {
    let mut retry = RetryLoop::new(client, policy);
    let version = Some(seen.version).filter(|_| !planted::is("swap-without-version"));
    loop {
        let before = BeforeWrite::of(client, seen.mzxid);
        let error = match client.set_data(path, data, version).await {
            Ok(stat) => return Ok(Some(stat)),
            Err(error) if error.kind() == ErrorKind::BadVersion => return Ok(None),
            Err(error) => error,
        };
        if error.outcome() == Outcome::Unknown && !planted::is("repeated-by-version") {
            let (read, written) = (|| get_if_exists(client, path), |node: &Node| node.stat.mzxid);
            let (node, last_change) = read_after_loss(client, policy, path, read, written).await?;
            if !BeforeWrite::is_unchanged(before, client, last_change) {
                return match why_unknown(seen, node.as_ref(), data) {
                    Some(detail) => Err(error.with_detail(detail)),
                    None => Ok(None),
                };
            }
        }
        retry.pause(error).await?;
    }
}

/// Why a write without a reply may have been applied. `None` if another client has replaced the state that was seen.
fn why_unknown(seen: Seen, node: Option<&Node>, data: &[u8]) -> Option<&'static str> {
    let Some(Node { stat, data: current, .. }) = node else {
        return Some("the node was deleted since");
    };
    if stat.czxid > seen.mzxid {
        return Some("the node was created anew since");
    }
    if stat.version != seen.version.wrapping_add(1) {
        return Some("the node was changed further since");
    }
    let is_written = **current == *data;
    is_written
        .then_some("the node has the written value, which another client may have written too")
}
