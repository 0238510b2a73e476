//! The value that a thread has of a client, of a recipe, of a guard, and of events.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use super::waiting::{is_inside_runtime, poll_for};
use crate::{ConnectionState, Latest, client::WeakClient};

/// A value of the async API, for threads: a client, or something that was made of one.
///
/// It dereferences to the async value, whose methods that do not wait are called as they are. Those that wait return a
/// future: [`wait`](fn@super::wait) waits for it. The methods of this type wait by themselves; where one has the name
/// of an async method, it takes its place.
///
/// ```
/// use docent::blocking::wait;
///
/// # fn example(client: &docent::blocking::Client) -> Result<(), docent::Error> {
/// // Waits by itself.
/// let node = client.get_data("/config")?;
/// // Does not wait.
/// let requests = client.metrics();
/// // A future.
/// let (acl, stat) = wait(|| client.get_acl("/config"))?;
/// # drop((node, requests, acl, stat));
/// # Ok(())
/// # }
/// ```
///
/// Dropping it drops the async value, on any thread and without waiting: a guard releases its lock in the background.
/// Only the last drop of a client and of everything that was wrapped with it waits, for at most one second, until the
/// session is closed: the end of a program would end the client's thread before it has sent closeSession. Inside an
/// async runtime, this drop does not wait either.
#[derive(Clone)]
pub struct Blocking<T> {
    pub(super) inner: T,
    // Last: it is dropped after the requests of the value's destructor were queued.
    pub(super) end: Arc<WaitForEnd>,
}

impl<T> Blocking<T> {
    /// A value that was made of the same client, for threads: its methods that wait, and its events as an
    /// [iterator](super::EventSource).
    ///
    /// What is dropped before the client needs no wrapper. An async value that is dropped after it keeps the session open:
    /// the last drop of the client then waits for its second in vain, and that of the value does not wait.
    ///
    /// ```
    /// # fn example(client: &docent::blocking::Client) -> Result<(), docent::Error> {
    /// let below = client.wrap(client.with_chroot("/app")?);
    /// println!("{:?}", below.get_children("/")?);
    /// for state in client.wrap(client.state()) {
    ///     println!("{:?}", state?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wrap<U>(&self, value: U) -> Blocking<U> {
        Blocking { inner: value, end: Arc::clone(&self.end) }
    }

    /// The async value, for its methods that have a counterpart here: `client.as_async().get_data("/a")` is a future.
    /// A clone of it may be polled anywhere, and keeps the session open.
    pub const fn as_async(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for Blocking<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Blocking<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// How long the last drop waits for the end of the session. A reachable server needs milliseconds.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Waits at its drop until the session is closed.
pub(super) struct WaitForEnd {
    client: WeakClient,
    state: Latest<Option<ConnectionState>>,
}

impl WaitForEnd {
    pub(super) fn of(client: &crate::Client) -> Arc<Self> {
        Arc::new(Self { client: client.downgrade(), state: client.state() })
    }
}

impl Drop for WaitForEnd {
    fn drop(&mut self) {
        if is_inside_runtime() {
            return;
        }
        let Self { client, state } = self;
        let ended = async {
            // The states end with the driver.
            while client.upgrade().is_none_or(|client| client.ended().is_none())
                && state.next().await.is_some()
            {}
        };
        poll_for(CLOSE_LIMIT, pin!(ended));
    }
}
