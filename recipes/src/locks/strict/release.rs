//! The release of a strict hold: its node is deleted and its record changed in one transaction.
//!
//! A missing node counts as released: its session has ended, or the reply to an earlier release was lost.

use docent_session::{Client, ErrorKind, runtime::Instant};
use tracing::debug;

use super::StrictClaim;
use crate::{error::default_if_missing, guaranteed_delete::Deleting, locks::hold::Bound};

impl Bound for StrictClaim {
    fn is_valid(&self, now: Instant) -> bool {
        self.is_valid(now)
    }

    fn until(&self, now: Instant) -> Instant {
        self.until(now)
    }

    /// If the record is not the one of this hold, because the grant was not applied or somebody has changed it, only the
    /// node is deleted; the same if the transaction is larger than a request may be: the grant, which is of its size, was
    /// refused for that, too.
    fn delete(&self, client: &Client, node: &str) -> Deleting {
        let released = client.cleanup().commit(&self.release(client, node));
        let (weak, node) = (client.downgrade(), node.to_owned());
        Box::pin(async move {
            match released.await {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == ErrorKind::NoNode && error.index() == Some(0) => {
                    Ok(())
                }
                Err(error)
                    if error.index() == Some(1) || error.kind() == ErrorKind::RequestTooLarge =>
                {
                    debug!(node, %error, "the record is not changed; deleting the node only");
                    // Without a client its session has ended, and the node with it.
                    let Some(client) = weak.upgrade() else { return Ok(()) };
                    default_if_missing(client.cleanup().delete(&node, None).await)
                }
                Err(error) => Err(error),
            }
        })
    }
}
