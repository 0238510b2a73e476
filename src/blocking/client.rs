//! The blocking client.

use std::future::{Future, ready};

use super::{Blocking, handle::WaitForEnd, thread::OwnThread, wait, waiting::check};
use crate::{
    AddWatchMode, Children, Config, CreateOptions, Error, ErrorKind, Events, Node, Stat, Watcher,
    retry::RetryPolicy, session::StateEvent,
};

/// A ZooKeeper client for programs without async: a [`docent::Client`](crate::Client) for threads.
///
/// Cheap to clone, and usable from any thread.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use docent::{CreateMode, blocking::Client};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # let server = runtime.block_on(docent_testing::TestingServer::start())?;
/// # let connect_string = server.connect_string();
/// let client = Client::connect(&connect_string)?;
/// client.create("/greeting", b"hello", CreateMode::Ephemeral)?;
/// let (node, mut watcher) = client.get_data_and_watch("/greeting")?;
/// assert_eq!(node.data, "hello");
///
/// // Only if no client has changed it since.
/// client.set_data("/greeting", b"hello, world", Some(node.stat.version))?;
/// let event = watcher.next_timeout(Duration::from_secs(10)).ok_or("no event")??;
/// assert_eq!(event.path, "/greeting");
/// client.close()?;
/// # Ok(())
/// # }
/// ```
///
/// # Calls
///
/// The methods here are those of every day; [`wait`](fn@wait) waits for all others. Each call waits for its reply, so
/// one thread has one request in flight. Threads share a client: their requests are in flight together.
///
/// A request ends by itself: without a connection after the [connection timeout](Config::with_connection_timeout), with
/// one after the [request timeout](Config::with_request_timeout), if that is set. A [`timeout`](crate::client::Response::timeout)
/// limits one call: `wait(|| client.as_async().get_data("/a").timeout(limit))`.
///
/// # The end
///
/// [`run`](Self::run) and [`close`](Self::close) end the session. The last [drop](Blocking) closes it too.
pub type Client = Blocking<crate::Client>;

/// # Connecting
impl Client {
    /// Connects with the defaults of [`Config`], and waits until there is a session.
    ///
    /// As [`Client::connect`](crate::Client::connect).
    pub fn connect(connect_string: &str) -> Result<Self, Error> {
        Self::connect_with(Config::new(connect_string)?)
    }

    /// Connects with these settings, and waits until there is a session.
    ///
    /// As [`Client::connect_with`](crate::Client::connect_with).
    pub fn connect_with(config: Config) -> Result<Self, Error> {
        // Inside a runtime, no client is started.
        check()?;
        let within = config.connection_timeout();
        let client = Self::start_with(config)?;
        wait(|| client.wait_until_connected(within))?;
        Ok(client)
    }

    /// Starts a client that connects in the background, and returns at once. It has a thread of its own, unless the
    /// settings have a [runtime](Config::with_runtime). Fails when there is no thread for it.
    ///
    /// As [`Config::start`].
    pub fn start_with(config: Config) -> Result<Self, Error> {
        let config = match config.runtime() {
            Some(_) => config,
            None => config.with_runtime(OwnThread::start()?),
        };
        let inner = config.start()?;
        let end = WaitForEnd::of(&inner);
        Ok(Self { inner, end })
    }
}

/// Methods that wait for the async ones of these names.
macro_rules! waits {
    ($($(#[$meta:meta])* fn $name:ident(&$self:ident $(, $arg:ident: $ty:ty)*) -> $out:ty;)*) => {$(
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" As [`Client::", stringify!($name), "`](crate::Client::", stringify!($name), ").")]
        pub fn $name(&$self $(, $arg: $ty)*) -> Result<$out, Error> {
            wait(|| $self.inner.$name($($arg),*))
        }
    )*};
}

/// # Nodes
impl Client {
    /// Creates a node, and returns its path.
    ///
    /// As [`Client::create`](crate::Client::create).
    pub fn create<'a>(
        &self,
        path: &str,
        data: &[u8],
        options: impl Into<CreateOptions<'a>>,
    ) -> Result<String, Error> {
        wait(|| self.inner.create(path, data, options))
    }

    /// Creates a node without data and its parents, as far as they are missing.
    ///
    /// As [`Client::ensure_path`](crate::Client::ensure_path).
    pub fn ensure_path<'a>(
        &'a self,
        path: &'a str,
        options: impl Into<CreateOptions<'a>>,
    ) -> Result<(), Error> {
        wait(|| self.inner.ensure_path(path, options))
    }

    /// Writes data, or creates the node if it is missing.
    ///
    /// As [`Client::create_or_set`](crate::Client::create_or_set).
    pub fn create_or_set<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        options: impl Into<CreateOptions<'a>>,
    ) -> Result<Option<Stat>, Error> {
        wait(|| self.inner.create_or_set(path, data, options))
    }

    waits! {
        /// Deletes a node if it has this version; `None` matches any version.
        fn delete(&self, path: &str, version: Option<i32>) -> ();
        /// Deletes a node and its descendants.
        fn delete_recursive(&self, path: &str) -> ();
        /// Reads a node's Stat; `None` when the node does not exist.
        fn exists(&self, path: &str) -> Option<Stat>;
        /// Reads the data and the Stat of a node.
        fn get_data(&self, path: &str) -> Node;
        /// Writes data if the node has this version; `None` matches any version. Returns the new Stat.
        fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Stat;
        /// Lists a node's children.
        fn get_children(&self, path: &str) -> Children;
        /// Waits until the server has caught up with the leader.
        fn sync(&self, path: &str) -> ();
    }
}

/// # Watches: iterators that wait
impl Client {
    /// As [`exists`](Self::exists), with a watch.
    ///
    /// As [`Client::exists_and_watch`](crate::Client::exists_and_watch).
    pub fn exists_and_watch(&self, path: &str) -> Result<(Option<Stat>, Blocking<Watcher>), Error> {
        self.watched(|| self.inner.exists_and_watch(path))
    }

    /// As [`get_data`](Self::get_data), with a watch.
    ///
    /// As [`Client::get_data_and_watch`](crate::Client::get_data_and_watch).
    pub fn get_data_and_watch(&self, path: &str) -> Result<(Node, Blocking<Watcher>), Error> {
        self.watched(|| self.inner.get_data_and_watch(path))
    }

    /// As [`get_children`](Self::get_children), with a watch.
    ///
    /// As [`Client::get_children_and_watch`](crate::Client::get_children_and_watch).
    pub fn get_children_and_watch(
        &self,
        path: &str,
    ) -> Result<(Children, Blocking<Watcher>), Error> {
        self.watched(|| self.inner.get_children_and_watch(path))
    }

    /// Sets a persistent watch, which survives its events and reconnects.
    ///
    /// As [`Client::add_watch`](crate::Client::add_watch).
    pub fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<Blocking<Watcher>, Error> {
        wait(|| self.inner.add_watch(path, mode)).map(|watcher| self.wrap(watcher))
    }

    /// The current state of the connection, and each later state in order. It ends with the client.
    ///
    /// As [`Client::states`](crate::Client::states).
    #[must_use]
    pub fn states(&self) -> Blocking<Events<StateEvent>> {
        self.wrap(self.inner.states())
    }

    fn watched<R, F>(&self, call: impl FnOnce() -> F) -> Result<(R, Blocking<Watcher>), Error>
    where
        F: Future<Output = Result<(R, Watcher), Error>>,
    {
        wait(call).map(|(result, watcher)| (result, self.wrap(watcher)))
    }
}

/// # Retries
impl Client {
    /// Calls `attempt` until it succeeds or the policy ends it; a write whose outcome is unknown is not repeated.
    ///
    /// As [`Client::retry`](crate::Client::retry).
    pub fn retry<R>(
        &self,
        policy: &dyn RetryPolicy,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        wait(|| self.inner.retry(policy, || ready(attempt())))
    }

    /// As [`retry`](Self::retry), for an operation that may be repeated although it was applied.
    ///
    /// As [`Client::retry_idempotent`](crate::Client::retry_idempotent).
    pub fn retry_idempotent<R>(
        &self,
        policy: &dyn RetryPolicy,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        wait(|| self.inner.retry_idempotent(policy, || ready(attempt())))
    }
}

/// # The end
impl Client {
    waits! {
        /// Ends the session and waits for the server's confirmation.
        fn close(&self) -> ();
    }

    /// Runs `body` with this client, closes the session, and returns the result of `body`. The session ends before this
    /// returns, also when `body` panics.
    ///
    /// As [`Client::run`](crate::Client::run). Inside an async runtime, it closes the session in the background.
    pub fn run<R>(self, body: impl FnOnce(Self) -> R) -> R {
        let _closing = CloseOnDrop(&self.clone());
        body(self)
    }
}

/// Closes the session, and waits for it outside a runtime; one that is closed already stays so.
struct CloseOnDrop<'a>(&'a Client);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        // The call itself closes the session. Its failure cannot be returned: the session ends by its timeout.
        let closed = self.0.inner.close();
        let _ = wait(|| closed);
    }
}

/// Errors that a caller expects: `None` instead of an error.
///
/// ```
/// # use docent::{Error, ErrorKind};
/// # fn example(client: &docent::blocking::Client) -> Result<(), Error> {
/// use docent::blocking::Allow;
///
/// if let Some(node) = client.get_data("/config").allow(ErrorKind::NoNode)? {
///     println!("{:?}", node.data);
/// }
/// # Ok(())
/// # }
/// ```
pub trait Allow {
    /// A result with `None` for an error of the accepted kind.
    type Allowed;

    /// Accepts one kind of error: the result is `None` instead of an error of that kind.
    ///
    /// As [`Response::allow`](crate::client::Response::allow).
    fn allow(self, kind: ErrorKind) -> Self::Allowed;
}

impl<R> Allow for Result<R, Error> {
    type Allowed = Result<Option<R>, Error>;

    fn allow(self, kind: ErrorKind) -> Self::Allowed {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == kind => Ok(None),
            Err(error) => Err(error),
        }
    }
}
