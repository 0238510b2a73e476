//! The release of a strict hold: its node is deleted and its record changed in one transaction.

use std::{future::Future, sync::Arc};

use docent_session::{Client, Error, ErrorKind, retry::RetryPolicy};
use tracing::{debug, trace};

use super::StrictClaim;
use crate::guaranteed_delete;

/// Releases a hold, with retries. If that fails, it returns the error and continues in the background.
///
/// A missing node counts as released: its session has ended, or the reply to an earlier release was lost.
pub(crate) async fn release(
    client: &Client,
    policy: &dyn RetryPolicy,
    node: &str,
    claim: &Arc<StrictClaim>,
) -> Result<(), Error> {
    let mut unfinished = UnfinishedRelease { client, node, claim: Some(claim) };
    let result = client.retry_idempotent(policy, || request(client, node, claim)).await;
    if result.is_ok() {
        unfinished.claim = None;
    }
    result
}

/// On drop, continues a release in the background that failed or was cancelled.
struct UnfinishedRelease<'a> {
    client: &'a Client,
    node: &'a str,
    claim: Option<&'a Arc<StrictClaim>>,
}

impl Drop for UnfinishedRelease<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim {
            release_in_background(self.client, self.node, claim);
        }
    }
}

/// Releases a hold without waiting: the call itself queues the first request, in the order of calls.
pub(crate) fn release_in_background(client: &Client, node: &str, claim: &Arc<StrictClaim>) {
    let first = request(client, node, claim);
    let (task_client, node, claim) = (client.clone(), node.to_owned(), Arc::clone(claim));
    client.runtime().spawn(Box::pin(async move {
        let again = |client: &Client| request(client, &node, &claim);
        match guaranteed_delete::repeat(task_client, first, again).await {
            Some(_) => trace!(node, "released in the background"),
            None => trace!(node, "release abandoned: the client is closed"),
        }
    }));
}

/// Queues a release in the call itself. If the record is not the one of this hold, because the grant was not applied or
/// somebody has changed it, only the node is deleted; the same if the transaction is larger than a request may be: the
/// grant, which is of its size, was refused for that, too.
fn request(
    client: &Client,
    node: &str,
    claim: &StrictClaim,
) -> impl Future<Output = Result<(), Error>> + use<> {
    let released = client.cleanup().commit(&claim.release(client, node));
    let (weak, node) = (client.downgrade(), node.to_owned());
    async move {
        match released.await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NoNode && error.index() == Some(0) => Ok(()),
            Err(error)
                if error.index() == Some(1) || error.kind() == ErrorKind::RequestTooLarge =>
            {
                debug!(node, %error, "the record is not changed; deleting the node only");
                // Without a client its session has ended, and the node with it.
                let Some(client) = weak.upgrade() else { return Ok(()) };
                match client.cleanup().delete(&node, None).await {
                    Err(error) if error.kind() == ErrorKind::NoNode => Ok(()),
                    other => other,
                }
            }
            Err(error) => Err(error),
        }
    }
}
