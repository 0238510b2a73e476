//! Requests that are repeated until they have a definite reply.

use std::future::Future;

use docent_session::{Client, Error, ErrorKind, Watcher, watch::OnDrop};
use tracing::debug;

use crate::{create::lacks_3_5_operations, persistent_retry::pause, select::select, timer};

/// Repeats a request after each error that may disappear by itself: the callers have deadlines of their own. A change of
/// the connection ends a pause.
pub(super) async fn persistently<R, F: Future<Output = Result<R, Error>>>(
    client: &Client,
    mut request: impl FnMut() -> F,
) -> Result<R, Error> {
    loop {
        if let Some(result) = persistently_while(client, || true, &mut request).await {
            return result;
        }
    }
}

/// As [`persistently`], as long as `goes_on` is true before each request; then `None`.
pub(super) async fn persistently_while<R, F: Future<Output = Result<R, Error>>>(
    client: &Client,
    mut goes_on: impl FnMut() -> bool,
    mut request: impl FnMut() -> F,
) -> Option<Result<R, Error>> {
    let mut count = 0;
    loop {
        let mut changes = client.state();
        if !goes_on() {
            return None;
        }
        match request().await {
            Err(error) if is_transient(&error) && client.ended().is_none() => {
                debug!(%error, "no definite reply; retrying");
                select(timer::sleep(client, pause(count)), changes.next()).await;
                count += 1;
            }
            other => return Some(other),
        }
    }
}

/// Whether an error may disappear without an operator: a full queue of the client itself, and a member without a majority,
/// included.
pub(super) fn is_transient(error: &Error) -> bool {
    error.is_retryable()
        || matches!(error.kind(), ErrorKind::TooManyRequests | ErrorKind::NotReadOnly)
}

/// Removes the watch from the server when its watcher is dropped, where the servers have that request.
pub(super) fn removed_on_drop(client: &Client, mut watcher: Watcher) -> Watcher {
    if !lacks_3_5_operations(client) {
        watcher.set_on_drop(OnDrop::Remove);
    }
    watcher
}
