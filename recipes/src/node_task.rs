//! What a participation in an election and a kept node have in common: a task that owns a node.
//!
//! The task has one request of its node in flight. It waits for [steps](NodeTask::step); a close drops the step that it
//! waits for, but no create whose reply can still come. From then on, it only deletes.

use std::{future::Future, pin::pin, sync::Arc};

use docent_session::{Client, Error};
use tokio_util::sync::CancellationToken;

use crate::{
    error,
    locks::LockOptions,
    persistent_retry::PersistentRetry,
    select::{Either, select},
    state_changes::{Connection, is_read_write},
    timer,
};

/// What a task that owns a node works with.
pub(crate) struct NodeTask {
    pub(crate) client: Client,
    pub(crate) closing: CancellationToken,
    /// Retries until the close.
    pub(crate) policy: PersistentRetry,
}

/// Why the task leaves a state.
pub(crate) enum Stop {
    /// The close was called, or the client has ended.
    Ended,
    /// The node is gone, or is not ours.
    Lost,
    /// An error that the policy does not retry.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The result of a close, for which the connection timeout is waited.
pub(crate) async fn closed_in_time(
    client: &Client,
    path: &str,
    closed: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let closed = timer::timeout(client, client.config().connection_timeout(), closed).await;
    closed.unwrap_or_else(|| Err(error::not_yet_deleted(path)))
}

impl NodeTask {
    pub(crate) fn new(client: &Client, options: &LockOptions) -> Self {
        let closing = CancellationToken::new();
        let policy = PersistentRetry::new(Arc::clone(&options.retry_policy), closing.clone());
        Self { client: client.clone(), closing, policy }
    }

    /// Waits for a step, which a close drops.
    pub(crate) async fn step<F: Future>(&self, step: F) -> Result<F::Output, Stop> {
        match select(self.closing.cancelled(), step).await {
            Either::Left(()) => Err(Stop::Ended),
            Either::Right(output) => Ok(output),
        }
    }

    /// Waits for a connection to a server of the quorum, or the end of the client. Marks the state as seen.
    pub(crate) async fn connected(&self, connection: &mut Connection) -> Result<(), Stop> {
        loop {
            if self.client.ended().is_some() {
                return Err(Stop::Ended);
            }
            if is_read_write(connection.get()) {
                return Ok(());
            }
            connection.next().await.ok_or(Stop::Ended)?;
        }
    }

    /// Waits for a create, also after a close, until there is no connection: then `None`.
    pub(crate) async fn created<F: Future>(&self, create: F) -> Option<F::Output> {
        let mut create = pin!(create);
        if let Either::Left(created) = select(create.as_mut(), self.closing.cancelled()).await {
            return Some(created);
        }
        let mut connection = self.client.state();
        let disconnected = connection.wait_for(|state| !is_read_write(*state));
        match select(create, disconnected).await {
            Either::Left(created) => Some(created),
            Either::Right(_) => None,
        }
    }
}
