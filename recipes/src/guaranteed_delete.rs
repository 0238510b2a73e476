//! Deleting a node for certain, as long as the client lives.
//!
//! A lock node that stays behind blocks everybody until its session ends. So a delete that could not be
//! done is done in the background: until the node is gone, or the client is closed (which ends the session
//! and the node with it). A name with a GUID in it is nobody else's, so a delete that comes late harms
//! nobody.
//!
//! Source: `DeleteBuilderImpl.guaranteed`, `FailedDeleteManager`. Unlike there, the background has a pause of
//! its own: with a policy without pauses it would spin (CURATOR-106).

use std::{future::Future, time::Duration};

use docent_session::{Client, Error, ErrorKind, retry::RetryPolicy};
use tracing::{debug, trace};

use crate::retry_loop::call_with_retry;

/// Between two tries in the background, at least.
const FLOOR: Duration = Duration::from_millis(100);

/// Deletes a node now, with retries; if that fails, goes on in the background and says so.
pub(crate) async fn delete(
    client: &Client,
    policy: &dyn RetryPolicy,
    path: &str,
) -> Result<(), Error> {
    let mut unfinished = Unfinished { client, path: Some(path) };
    let result = call_with_retry(client, policy, || client.delete(path, None)).await;
    if !result.as_ref().is_err_and(is_worth_another_try) {
        unfinished.path = None;
    }
    result
}

/// Sees to it that a node goes whose delete failed or was dropped on the way.
struct Unfinished<'a> {
    client: &'a Client,
    path: Option<&'a str>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path {
            delete_in_background(self.client, path);
        }
    }
}

/// Deletes a node without waiting: the first request is queued here and now, in the order of calls.
pub(crate) fn delete_in_background(client: &Client, path: &str) {
    let first = client.delete(path, None);
    client.spawn(until_gone(client.clone(), path.to_owned(), first));
}

async fn until_gone(client: Client, path: String, first: impl Future<Output = Result<(), Error>>) {
    let mut result = first.await;
    loop {
        match result {
            Ok(()) => return trace!(path, "deleted in the background"),
            Err(error) if is_worth_another_try(&error) => {
                debug!(path, %error, "guaranteed delete goes on");
            }
            Err(error) => return trace!(path, %error, "nothing left to delete"),
        }
        tokio::time::sleep(FLOOR).await;
        result = client.delete(&path, None).await;
    }
}

/// Not when the node is gone (CURATOR-42), nor when the server says that it may not be deleted.
fn is_worth_another_try(error: &Error) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::ThrottledOp
}
