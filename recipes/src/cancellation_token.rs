//! The token of a hold.

use std::future::Future;

use crate::select::{Either, select};

/// A token that is cancelled when work under a lock or a leadership has to stop. Created by
/// [`LockGuard::cancellation_token`](crate::locks::LockGuard::cancellation_token) and
/// [`Leadership::cancellation_token`](crate::leader::Leadership::cancellation_token).
///
/// It can be polled anywhere, also outside a runtime. Clones are the same token.
#[derive(Debug, Clone)]
pub struct CancellationToken(pub(crate) tokio_util::sync::CancellationToken);

impl CancellationToken {
    /// Whether the work has to stop. Once true, it stays true. Sends nothing.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the work has to stop.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.0.clone().cancelled_owned()
    }

    /// Runs a future until it is ready, or drops it when the work has to stop and returns `None`.
    pub async fn run_until_cancelled<F: Future>(&self, work: F) -> Option<F::Output> {
        match select(self.0.cancelled(), work).await {
            Either::Left(()) => None,
            Either::Right(output) => Some(output),
        }
    }
}
