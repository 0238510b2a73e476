//! The renewal of the proven bound of a hold, by a task of the client's runtime.

use std::{sync::Arc, time::Duration};

use docent_session::{Client, ErrorKind};
use tokio::sync::oneshot;
use tracing::debug;

use super::hold::Hold;
use crate::{
    select::{Either, select},
    timer,
};

/// The shortest pause between two renewals.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Starts the renewal, until the hold ends. Completes once the hold is proven, or its first renewal has failed, and
/// within half of the session timeout or `wait`.
///
/// Dropping the future does not stop the renewal.
pub(crate) async fn begin(hold: &Arc<Hold>, every: Duration, wait: Option<Duration>) {
    let (first, begun) = oneshot::channel();
    start(hold, every, Some(first));
    let client = hold.client();
    let longest = client.session_timeout() / 2;
    // An error means that the runtime has ended.
    let _ = timer::timeout(client, wait.map_or(longest, |wait| wait.min(longest)), begun).await;
}

/// Starts the renewal, until the hold ends. `first` is notified once the hold is proven, or its first renewal has failed.
pub(crate) fn start(hold: &Arc<Hold>, every: Duration, mut first: Option<oneshot::Sender<()>>) {
    let hold = Arc::clone(hold);
    let client = hold.client().clone();
    let runtime = Arc::clone(client.runtime());
    runtime.spawn(Box::pin(async move {
        while hold.is_held() {
            if hold.is_proof_over() {
                debug!(path = hold.path(), "proven bound expired; no longer renewed");
                return;
            }
            let mut pause = until_renewal(&client, &hold, every);
            if pause.is_zero() {
                let is_urgent = match select(client.renew_proof(hold.path()), hold.lost()).await {
                    Either::Left(Ok(until)) => {
                        hold.begin_proof();
                        // Otherwise the session cannot be proven.
                        until > client.now()
                    }
                    Either::Left(Err(error)) if error.kind() == ErrorKind::NoNode => {
                        return hold.note_deletion();
                    }
                    Either::Left(Err(error)) => {
                        debug!(path = hold.path(), %error, "proven bound not renewed; retrying");
                        // The next one will most likely be refused, too.
                        error.kind() != ErrorKind::NoAuth
                    }
                    Either::Right(()) => return,
                };
                let every = clamped(every, &client);
                let retry = if is_urgent { every / 4 } else { every };
                pause = until_renewal(&client, &hold, every).max(retry);
            }
            if let Some(first) = first.take() {
                // The acquire may have been dropped.
                let _ = first.send(());
            }
            select(hold.lost(), client.runtime().timer(pause.max(MIN_PAUSE))).await;
        }
    }));
}

/// How long until the next renewal is due: until its bound is `every` older than a new one.
fn until_renewal(client: &Client, hold: &Hold, every: Duration) -> Duration {
    let timeout = client.session_timeout();
    // Less than a new bound has left by the time of its reply.
    let renewed = timeout.saturating_sub(timeout / 50).saturating_sub(clamped(every, client));
    let now = client.now();
    hold.proven_by_session(now).duration_since(now).saturating_sub(renewed)
}

/// The interval of renewals, from a tenth of the session timeout to half of it.
fn clamped(every: Duration, client: &Client) -> Duration {
    let timeout = client.session_timeout();
    every.clamp(timeout / 10, timeout / 2)
}
