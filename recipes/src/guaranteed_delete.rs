//! Deletes that are repeated until they succeed.
//!
//! A lock node that is left behind blocks all contenders until its session ends. So a failed delete is repeated
//! in the background until the server replies that the node is deleted or missing, or the client is closed
//! (which ends the session and deletes the node). No other error ends it: not a full queue, which accepts the
//! requests of [`Client::cleanup`]; not a read-only or overloaded server; not an ACL, which can change. The names
//! contain a GUID, so a late delete never hits the node of another client.
//!
//! Source: `DeleteBuilderImpl.guaranteed`, `FailedDeleteManager`. Unlike in Curator, the background has pauses that
//! do not depend on the policy: with a policy without pauses it would spin (CURATOR-106).

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use docent_session::{
    Client, ConnectionState, Error, ErrorKind, client::Response, retry::RetryPolicy,
    runtime::Timer, session::SessionLease,
};
use tracing::{debug, trace};

use crate::{planted, select::select, state_changes::Connection};

/// The first pause in the background; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause after a transient error.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after a refusal that an operator has to lift, such as that of an ACL.
const LONGEST_PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// The pending reply to a request that deletes a node.
pub(crate) type Deleting = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Deletes a node, with retries. If that fails, it returns the error and continues in the background. A missing node
/// counts as deleted.
pub(crate) async fn delete(
    client: &Client,
    policy: &dyn RetryPolicy,
    path: &str,
) -> Result<(), Error> {
    delete_by(client, policy, path, request).await
}

/// As [`delete`], by this request, which is queued in its call.
pub(crate) async fn delete_by<F: Future<Output = Result<(), Error>> + Send + 'static>(
    client: &Client,
    policy: &dyn RetryPolicy,
    path: &str,
    request: impl Fn(&Client, &str) -> F + Clone + Send + Sync + 'static,
) -> Result<(), Error> {
    // A delete that failed or was cancelled.
    let mut unfinished =
        Unfinished(Some(|| delete_in_background_by(client, path, request.clone())));
    let result = client.retry_idempotent(policy, || request(client, path)).await;
    if result.is_ok() {
        unfinished.0 = None;
    }
    result
}

/// Deletes a node without waiting: the call itself queues the first request, in the order of calls.
pub(crate) fn delete_in_background(client: &Client, path: &str) {
    delete_in_background_by(client, path, request);
}

/// As [`delete_in_background`], by this request, which is queued in its call.
pub(crate) fn delete_in_background_by<F: Future<Output = Result<(), Error>> + Send + 'static>(
    client: &Client,
    path: &str,
    request: impl Fn(&Client, &str) -> F + Send + Sync + 'static,
) {
    let first = request(client, path);
    let (task_client, path) = (client.clone(), path.to_owned());
    client.runtime().spawn(Box::pin(async move {
        match repeat(task_client, first, |client| request(client, &path)).await {
            Some(_) => trace!(path, "deleted in the background"),
            None => trace!(path, "delete abandoned: the client is closed"),
        }
    }));
}

/// Continues on drop, unless there is nothing left to do.
struct Unfinished<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Unfinished<F> {
    fn drop(&mut self) {
        if let Some(go_on) = self.0.take() {
            go_on();
        }
    }
}

/// Queues a delete in the call itself.
fn request(client: &Client, path: &str) -> impl Future<Output = Result<(), Error>> + use<> {
    deleted(client.cleanup().delete(path, None))
}

async fn deleted(response: Response<()>) -> Result<(), Error> {
    match response.await {
        // CURATOR-42.
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(()),
        other => other,
    }
}

/// Repeats a request until it succeeds, and returns the client with the result; `None` when the client has ended.
/// `first` is the pending reply to the first request.
///
/// While errors are transient and the session lives, this keeps the client alive: dropped by all others, it lives
/// until the reply arrives, and then closes its session. Otherwise the request is repeated only as long as another
/// handle of the client exists. A session of a read-only server counts as none: it owns no nodes.
pub(crate) async fn repeat<R, F: Future<Output = Result<R, Error>>>(
    mut client: Client,
    first: F,
    request: impl Fn(&Client) -> F,
) -> Option<(R, Client)> {
    // The session that may own the node: its end deletes its ephemeral nodes.
    let session = client.session();
    let is_alive = |client: &Client| {
        let is_alive =
            |lease: &Arc<SessionLease>| !lease.is_lost() && client.now() <= lease.deadline();
        session.as_ref().is_some_and(is_alive)
    };
    let mut pause = FIRST_PAUSE;
    let mut reply = first;
    loop {
        let error = match reply.await {
            Ok(value) => return Some((value, client)),
            Err(error) => error,
        };
        if client.ended().is_some() {
            return None;
        }
        if planted::is("delete-gives-up") {
            return None;
        }
        debug!(%error, "cleanup failed; retrying");
        if is_alive(&client) && is_transient(&error) {
            let timer = client.runtime().timer(pause.min(LONGEST_PAUSE));
            unless_ended(client.state(), timer).await;
        } else {
            let weak = client.downgrade();
            let timer = client.runtime().timer(pause.min(LONGEST_PAUSE_AFTER_REFUSAL));
            let state = client.state();
            drop(client);
            unless_ended(state, timer).await;
            client = weak.upgrade()?;
        }
        pause = pause.saturating_mul(2);
        client = until_writable(client, is_alive).await?;
        reply = request(&client);
    }
}

/// Waits for a timer, but not beyond the end of the client: no task outlives its client.
async fn unless_ended(mut state: Connection, timer: Pin<Box<dyn Timer>>) {
    select(timer, async move { while state.next().await.is_some() {} }).await;
}

/// Whether an error may disappear without an operator.
fn is_transient(error: &Error) -> bool {
    let is_server_state = matches!(error.kind(), ErrorKind::ThrottledOp | ErrorKind::NotReadOnly);
    error.is_retryable() || is_server_state
}

/// Waits while the server is read-only and would refuse the request. It keeps the client alive while `is_alive` is true
/// for it, and returns `None` once the client has no other handle.
async fn until_writable(mut client: Client, is_alive: impl Fn(&Client) -> bool) -> Option<Client> {
    let mut state = client.state();
    while state.get() == Some(ConnectionState::ReadOnly) && client.ended().is_none() {
        // The end of the session is a change of the state, and so is the end of the client.
        if is_alive(&client) {
            state.next().await?;
        } else {
            let weak = client.downgrade();
            drop(client);
            state.next().await?;
            client = weak.upgrade()?;
        }
    }
    Some(client)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use docent_session::Latest;
    use tokio::sync::watch;

    use super::*;

    struct Never;

    impl Future for Never {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl Timer for Never {
        fn reset(self: Pin<&mut Self>, _: Duration) {}
    }

    // Case (Found in docent itself): the task of a background delete outlived its client by its
    // pause, up to 10 s.
    #[test]
    fn a_background_delete_does_not_pause_beyond_the_end_of_its_client() {
        let (state, receiver) = watch::channel(None);
        let mut pause = pin!(unless_ended(Latest::new(receiver), Box::pin(Never)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pause.as_mut().poll(&mut cx).is_pending());
        assert!(state.send(Some(ConnectionState::Suspended)).is_ok());
        assert!(pause.as_mut().poll(&mut cx).is_pending());
        drop(state);
        assert!(pause.as_mut().poll(&mut cx).is_ready());
    }
}
