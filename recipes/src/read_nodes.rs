//! Reads of many nodes at once.

use std::collections::VecDeque;

use docent_session::{Client, Error, ErrorKind, Node, retry::RetryPolicy};

/// The number of nodes that are read at once.
const MAX_READS: usize = 64;

/// Reads nodes by getData (4), up to 64 at a time; `None` for a node that is missing. Half of the client's limit of
/// requests is left to others. A failed read is repeated as the policy allows.
///
/// # Errors
///
/// Those of the session, after retries.
#[doc(hidden)]
pub async fn read_nodes(
    client: &Client,
    policy: &dyn RetryPolicy,
    paths: &[String],
) -> Result<Vec<Option<Node>>, Error> {
    let mut nodes: Vec<Option<Node>> = paths.iter().map(|_| None).collect();
    let mut window = (client.config().max_requests() / 2).clamp(1, MAX_READS);
    let mut unread: VecDeque<_> = paths.iter().zip(&mut nodes).collect();
    let mut reads = VecDeque::new();
    loop {
        while reads.len() < window
            && let Some((path, node)) = unread.pop_front()
        {
            reads.push_back((path, node, client.get_data(path)));
        }
        let Some((path, node, reply)) = reads.pop_front() else { break };
        let read = match reply.await {
            // Other requests leave less room.
            Err(error) if error.kind() == ErrorKind::TooManyRequests && window > 1 => {
                window /= 2;
                unread.push_front((path, node));
                continue;
            }
            Err(error) if error.is_retryable() => {
                client.retry_idempotent(policy, || client.get_data(path)).await
            }
            read => read,
        };
        match read {
            Ok(read) => *node = Some(read),
            Err(error) if error.kind() == ErrorKind::NoNode => {}
            Err(error) => return Err(error),
        }
    }
    Ok(nodes)
}
