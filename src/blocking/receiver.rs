//! The last value of something that changes, and the ensemble's configuration.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    Client,
    context::Context,
    wait::{check, wait},
};
use crate::{EnsembleConfig, Error, ErrorKind, Host};

/// The last value of something that changes, to read and to wait for. It ends with the client, and then keeps its last
/// value.
///
/// In place of [`tokio::sync::watch::Receiver`]. Values are cloned: a borrowed one would hold the client up.
#[derive(Clone)]
pub struct Receiver<T> {
    pub(super) inner: watch::Receiver<T>,
    pub(super) context: Context,
}

impl<T: Clone> Receiver<T> {
    /// The last value. [`changed`](Self::changed) is not affected.
    #[must_use]
    pub fn get(&self) -> T {
        self.inner.borrow().clone()
    }

    /// The last value, which counts as seen: [`changed`](Self::changed) waits for a later one.
    pub fn get_and_update(&mut self) -> T {
        self.inner.borrow_and_update().clone()
    }

    /// Waits for a value for which `condition` holds; the last value may be one.
    ///
    /// Fails with `Closed` when there is no such value, and no later one.
    pub fn wait_for(&mut self, condition: impl FnMut(&T) -> bool) -> Result<T, Error> {
        check()?;
        wait(self.find(condition))
    }

    /// As [`wait_for`](Self::wait_for), for at most `wait`; `None` if there is no such value by then.
    pub fn wait_for_timeout(
        &mut self,
        wait: Duration,
        condition: impl FnMut(&T) -> bool,
    ) -> Result<Option<T>, Error> {
        check()?;
        let context = self.context.clone();
        context.wait_timeout(wait, self.find(condition)).transpose()
    }

    /// Unlike `watch::Receiver::wait_for`, it borrows no value while the condition runs: a condition that waits for the
    /// client would hold the client up.
    async fn find(&mut self, mut condition: impl FnMut(&T) -> bool) -> Result<T, Error> {
        loop {
            let value = self.get_and_update();
            if condition(&value) {
                return Ok(value);
            }
            self.inner.changed().await.map_err(ended)?;
        }
    }
}

impl<T> Receiver<T> {
    /// Whether there is a value that was not seen. Fails with `Closed` when no value can follow.
    pub fn has_changed(&self) -> Result<bool, Error> {
        self.inner.has_changed().map_err(ended)
    }

    /// Waits for a value that was not seen, and marks it as seen. Fails with `Closed` when none can follow.
    pub fn changed(&mut self) -> Result<(), Error> {
        check()?;
        wait(self.inner.changed()).map_err(ended)
    }

    /// As [`changed`](Self::changed), for at most `wait`; false if there is no new value by then.
    pub fn changed_timeout(&mut self, wait: Duration) -> Result<bool, Error> {
        check()?;
        let changed = self.context.wait_timeout(wait, self.inner.changed());
        Ok(changed.transpose().map_err(ended)?.is_some())
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("value", &*self.inner.borrow()).finish_non_exhaustive()
    }
}

fn ended(error: watch::error::RecvError) -> Error {
    Error::refused(ErrorKind::Closed, "no value can follow").caused_by(error)
}

/// Follows the configuration of the ensemble, and moves the client to the servers that it names, until it is dropped.
///
/// As [`EnsembleTracker`](crate::EnsembleTracker).
pub struct EnsembleTracker {
    inner: crate::EnsembleTracker,
    context: Context,
}

debug_as_inner!(EnsembleTracker);

impl EnsembleTracker {
    /// Starts to follow the configuration. Its addresses are used as they are.
    ///
    /// As [`EnsembleTracker::new`](crate::EnsembleTracker::new).
    #[must_use = "dropping it ends it"]
    pub fn new(client: &Client) -> Self {
        Self { inner: crate::EnsembleTracker::new(&client.inner), context: client.context.clone() }
    }

    /// As [`new`](Self::new); `hosts` returns the servers to use with a configuration. It is called on the client's
    /// thread, where blocking calls are refused.
    ///
    /// As [`EnsembleTracker::with_hosts`](crate::EnsembleTracker::with_hosts).
    #[must_use = "dropping it ends it"]
    pub fn with_hosts(
        client: &Client,
        hosts: impl Fn(&EnsembleConfig) -> Vec<Host> + Send + Sync + 'static,
    ) -> Self {
        let inner = crate::EnsembleTracker::with_hosts(&client.inner, hosts);
        Self { inner, context: client.context.clone() }
    }

    /// The configuration in use, to read and to wait for.
    ///
    /// As [`EnsembleTracker::config`](crate::EnsembleTracker::config).
    #[must_use]
    pub fn config(&self) -> Receiver<Option<Arc<EnsembleConfig>>> {
        Receiver { inner: self.inner.config(), context: self.context.clone() }
    }

    /// Ends the tracker. The client keeps its servers.
    ///
    /// As [`EnsembleTracker::close`](crate::EnsembleTracker::close).
    pub fn close(self) {
        self.inner.close();
    }
}
