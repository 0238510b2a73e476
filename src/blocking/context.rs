//! The common part of everything that is made from a blocking client.
//!
//! It is the last field of each value: the async value is dropped first and queues its requests. The last one waits
//! until the driver has ended, for at most a second: without this wait, the end of `main` would end the process before
//! the other thread has sent closeSession. It does not wait where blocking is refused.

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::wait::{is_inside_runtime, wait_timeout, wait_until};
use crate::{Client, Clock, ConnectionState, WeakClient};

/// How long the last drop waits for the end of the session. A reachable server needs milliseconds.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// The common part of a client, its recipes, guards and watchers. It is the last field of each of them: it is dropped
/// after the requests of their destructors were queued.
#[derive(Clone)]
pub struct Context {
    clock: Clock,
    /// One for each client; more than one in a multi lock of several clients.
    clients: Vec<Arc<CloseOnLastDrop>>,
}

impl Context {
    pub(super) fn new(client: &Client) -> Self {
        let shared = CloseOnLastDrop { client: client.downgrade(), state: client.state() };
        Self { clock: client.clock().clone(), clients: vec![Arc::new(shared)] }
    }

    /// A context of all these clients.
    #[cfg(feature = "recipes")]
    pub(super) fn all(contexts: impl Iterator<Item = Self>) -> Self {
        let mut all = Self { clock: Clock::system(), clients: Vec::new() };
        for context in contexts {
            if all.clients.is_empty() {
                all.clock = context.clock;
            }
            all.clients.extend(context.clients);
        }
        all
    }

    /// Waits for a future for at most `wait`; `None` if it is not ready by then, and is dropped.
    pub fn wait_timeout<F: Future>(&self, wait: Duration, future: F) -> Option<F::Output> {
        wait_timeout(&self.clock, wait, future)
    }

    /// The client's clock.
    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The context, without keeping it.
    pub(super) fn downgrade(&self) -> WeakContext {
        WeakContext(self.clients.first().map(Arc::downgrade).unwrap_or_default())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// A [`Context`] that does not delay its last drop.
#[derive(Clone)]
pub(super) struct WeakContext(std::sync::Weak<CloseOnLastDrop>);

impl WeakContext {
    /// The context of this client.
    pub(super) fn upgrade(&self, client: &Client) -> Context {
        match self.0.upgrade() {
            Some(shared) => Context { clock: client.clock().clone(), clients: vec![shared] },
            None => Context::new(client),
        }
    }
}

/// Waits at the last drop until the session is closed, so that a program may end behind it: the driver runs on another
/// thread, which ends with the process.
struct CloseOnLastDrop {
    client: WeakClient,
    state: watch::Receiver<Option<ConnectionState>>,
}

impl Drop for CloseOnLastDrop {
    fn drop(&mut self) {
        if is_inside_runtime() {
            return;
        }
        let Self { client, state } = self;
        let ended = async {
            // The channel ends with the driver.
            while client.upgrade().is_none_or(|client| client.ended().is_none()) {
                if state.changed().await.is_err() {
                    return;
                }
            }
        };
        // Not the client's clock, which may stand still.
        let deadline = Instant::now() + CLOSE_LIMIT;
        let mut remaining = || {
            let remaining = deadline.saturating_duration_since(Instant::now());
            (!remaining.is_zero()).then_some(remaining)
        };
        wait_until(pin!(ended), &mut remaining);
    }
}
