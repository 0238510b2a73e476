//! The task that renews the claim of a strict hold.

use std::{sync::Arc, time::Duration};

use docent_session::{Client, Error, ErrorKind, Instant, SessionClaim, WeakClient};
use tracing::debug;

use super::StrictClaim;
use crate::{
    locks::node_watch::NodeState,
    planted,
    select::{Either, select},
};

/// A claim is renewed three times while it lasts.
const RENEWALS: u32 = 3;

/// The part of a claim after which a failed renewal is repeated.
const RETRY_PART: u32 = 30;

/// Renews the claim of a hold until it is over. The end of the claim ends the hold.
pub(super) fn renew_until_over(
    client: &Client,
    node: String,
    claim: Arc<StrictClaim>,
    session: SessionClaim,
    state: Arc<NodeState>,
) {
    // The guard keeps the client alive, not its renewals.
    let weak = client.downgrade();
    client.runtime().spawn(Box::pin(async move {
        let over = select(state.over(), session.lost());
        select(over, renew(&weak, &node, &claim, &state)).await;
    }));
}

async fn renew(weak: &WeakClient, node: &str, claim: &StrictClaim, state: &NodeState) {
    let mut pause = claim.claim / RENEWALS;
    loop {
        if !sleep(weak, claim, pause).await {
            return state.note_lapse(node);
        }
        let Some(client) = weak.upgrade() else { return };
        let sent_at = client.now();
        // A queue that is full of other requests does not end the hold.
        let renewed = client.cleanup().commit(&claim.renewal(&client, node));
        let timeout = claim.claim / RENEWALS;
        let timer = client.runtime().timer(timeout.min(left(claim, sent_at)));
        drop(client);
        let reply = select(renewed, timer).await;
        let Some(client) = weak.upgrade() else { return };
        let now = client.now();
        match reply {
            Either::Left(Ok(_)) if claim.renew(now, sent_at) => {
                pause = (sent_at + timeout).duration_since(now);
            }
            Either::Left(Err(error)) if is_final(&error) => {
                debug!(node, %error, "strict hold not renewed: its node or record is gone");
                return if error.index() == Some(0) {
                    state.note_deletion(node);
                } else {
                    claim.end();
                    state.note_lapse(node);
                };
            }
            Either::Left(Err(error)) => {
                debug!(node, %error, "strict hold not renewed; retrying");
                pause = claim.claim / RETRY_PART;
            }
            // No reply, or the end of the claim, which the next sleep reports.
            Either::Left(Ok(_)) | Either::Right(()) => pause = Duration::ZERO,
        }
    }
}

/// Whether a server has refused a renewal because the node is gone, or the record is another one.
fn is_final(error: &Error) -> bool {
    error.index().is_some() && matches!(error.kind(), ErrorKind::NoNode | ErrorKind::BadVersion)
}

/// Sleeps, and returns false once the claim has ended.
async fn sleep(weak: &WeakClient, claim: &StrictClaim, pause: Duration) -> bool {
    let Some(client) = weak.upgrade() else { return false };
    let timer = client.runtime().timer(pause.min(left(claim, client.now())));
    drop(client);
    timer.await;
    let Some(client) = weak.upgrade() else { return false };
    claim.is_valid(client.now()) || planted::is("strict-revived")
}

/// The time until the end of the claim.
fn left(claim: &StrictClaim, now: Instant) -> Duration {
    if planted::is("strict-revived") {
        return claim.claim;
    }
    claim.until(now).duration_since(now)
}
