//! The task that renews the claim of a strict hold.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use docent_session::{
    Client, Error, ErrorKind,
    client::{TransactionResponse, WeakClient},
    runtime::Instant,
    session::SessionClaim,
};
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
    let third = claim.claim / RENEWALS;
    let mut in_flight: Vec<Renewal> = Vec::new();
    let mut due = None;
    loop {
        let Some(client) = weak.upgrade() else { return };
        let now = client.now();
        let Some(left) = left(claim, now) else { return state.note_lapse(node) };
        // A reply proves nothing once the claim from its send time is over.
        in_flight.retain(|renewal| renewal.sent_at + claim.claim > now);
        let mut next = *due.get_or_insert_with(|| claim.begun_at(now) + third);
        if next <= now {
            // A queue that is full of other requests does not end the hold.
            let reply = client.cleanup().commit(&claim.renewal(&client, node));
            in_flight.push(Renewal { sent_at: now, reply });
            next = now + third;
            due = Some(next);
        }
        let timer = client.runtime().timer(next.duration_since(now).min(left));
        drop(client);
        let Either::Left((sent_at, reply)) = select(first_reply(&mut in_flight), timer).await
        else {
            continue;
        };
        let Some(client) = weak.upgrade() else { return };
        let now = client.now();
        match reply {
            // The next turn reports the end of the claim.
            Ok(_) => drop(claim.renew(now, sent_at)),
            Err(error) if is_final(&error) => {
                debug!(node, %error, "strict hold not renewed: its node or record is gone");
                return if error.index() == Some(0) {
                    state.note_deletion(node);
                } else {
                    claim.end();
                    state.note_lapse(node);
                };
            }
            Err(error) => {
                debug!(node, %error, "strict hold not renewed; retrying");
                due = Some(next.min(now + claim.claim / RETRY_PART));
            }
        }
    }
}

/// A renewal in flight. One is sent every third of the claim, however long replies take, and is dropped after a whole one:
/// so there are three, or four for a moment. Each failed one is replaced by one.
struct Renewal {
    sent_at: Instant,
    reply: TransactionResponse,
}

/// Waits for a reply, which it removes. Without a renewal it waits for ever.
async fn first_reply(
    in_flight: &mut Vec<Renewal>,
) -> (Instant, <TransactionResponse as Future>::Output) {
    poll_fn(|cx| {
        let replied =
            in_flight.iter_mut().enumerate().find_map(|(index, renewal)| {
                match Pin::new(&mut renewal.reply).poll(cx) {
                    Poll::Ready(reply) => Some((index, renewal.sent_at, reply)),
                    Poll::Pending => None,
                }
            });
        match replied {
            Some((index, sent_at, reply)) => {
                in_flight.remove(index);
                Poll::Ready((sent_at, reply))
            }
            None => Poll::Pending,
        }
    })
    .await
}

/// Whether a server has refused a renewal because the node is gone, or the record is another one.
fn is_final(error: &Error) -> bool {
    error.index().is_some() && matches!(error.kind(), ErrorKind::NoNode | ErrorKind::BadVersion)
}

/// The time until the end of the claim; `None` once it has ended.
fn left(claim: &StrictClaim, now: Instant) -> Option<Duration> {
    if planted::is("strict-revived") {
        return Some(claim.claim);
    }
    claim.is_valid(now).then(|| claim.until(now).duration_since(now))
}
