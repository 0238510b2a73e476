//! The blocking client.

use std::{
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use super::{
    Receiver, States, Transaction, Watcher,
    context::{Context, WeakContext},
    thread::OwnThread,
    wait::{check, wait, wait_timeout},
};
use crate::{
    Acl, AclEntries, AddWatchMode, Children, ClientInfo, Clock, Config, ConnectionState,
    CreateMode, Error, ErrorKind, Host, Instant, Metrics, Node, ReadResult, Reconfig, Runtime,
    SessionLease, SessionToken, Stat, WatcherType,
    protocol::operation::{ApplicationOperation, Read},
    retry::RetryPolicy,
    session::machine::Body,
};

/// A ZooKeeper client for programs without async: [`docent::Client`](crate::Client) with methods that wait.
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
/// let event = watcher.changed_timeout(Duration::from_secs(10))?.ok_or("no event")?;
/// assert_eq!(event.path, "/greeting");
/// client.close()?;
/// # Ok(())
/// # }
/// ```
///
/// # Calls
///
/// Each call waits for its reply, so one thread has one request in flight. Threads share a client: their requests are
/// in flight together. [`transaction`](Self::transaction) and [`multi_read`](Self::multi_read) send several operations
/// in one request; [`wait`](Self::wait) waits for any future of the async client, such as several calls at once.
///
/// A request ends by itself: without a connection after the [connection timeout](Config::with_connection_timeout), with
/// one after the [request timeout](Config::with_request_timeout), if that is set. Methods that wait for something else
/// than a reply have a variant with the suffix `_timeout`.
///
/// # The end
///
/// [`run`](Self::run) and [`close`](Self::close) end the session. The last drop of the client, and of everything that
/// was made from it, closes the session too, and waits for that for at most one second, because the end of the program
/// also ends the client's thread. Inside an async runtime, it does not wait.
#[derive(Clone)]
pub struct Client {
    pub(super) inner: crate::Client,
    pub(super) context: Context,
}

debug_as_inner!(Client WeakClient);

/// # Connecting
impl Client {
    /// Connects with the defaults of [`Config`], and waits until there is a session.
    ///
    /// Blocking [`Client::connect`](crate::Client::connect).
    pub fn connect(connect_string: &str) -> Result<Self, Error> {
        Self::connect_with(Config::new(connect_string)?)
    }

    /// Connects with these settings, and waits until there is a session.
    ///
    /// Blocking [`Client::connect_with`](crate::Client::connect_with).
    pub fn connect_with(config: Config) -> Result<Self, Error> {
        check()?;
        let within = config.connection_timeout();
        let client = Self::start_with(config)?;
        client.wait_until_connected(within)?;
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
        let inner = config.start();
        let context = Context::new(&inner);
        Ok(Self { inner, context })
    }

    forward! { Client;
        /// Waits until there is a connection with an accepted session.
        async fn wait_until_connected(&self, within: Duration) -> Result<(), Error>;
    }
}

/// # Nodes
impl Client {
    forward! { Client;
        /// Creates a node that everybody may use, and returns its path.
        async fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Result<String, Error>;
        /// As [`create`](Self::create), with an ACL.
        async fn create_with_acl(&self, path: &str, data: &[u8], mode: CreateMode, acl: &[Acl<'_>]) -> Result<String, Error>;
        /// As [`create`](Self::create), but returns the Stat too.
        async fn create_with_stat(&self, path: &str, data: &[u8], mode: CreateMode) -> Result<(String, Stat), Error>;
        /// As [`create_with_stat`](Self::create_with_stat), with an ACL.
        async fn create_with_acl_and_stat(&self, path: &str, data: &[u8], mode: CreateMode, acl: &[Acl<'_>]) -> Result<(String, Stat), Error>;
        /// Creates a node, and its parents if they are missing.
        async fn create_with_parents(&self, path: &str, data: &[u8], mode: CreateMode) -> Result<String, Error>;
        /// As [`create_with_parents`](Self::create_with_parents), with an ACL and the mode of the parents.
        async fn create_with_acl_and_parents(&self, path: &str, data: &[u8], mode: CreateMode, acl: &[Acl<'_>], parent_mode: CreateMode) -> Result<String, Error>;
        /// Creates the missing parents of a path.
        async fn create_parents(&self, path: &str, mode: CreateMode) -> Result<(), Error>;
        /// As [`create_parents`](Self::create_parents), with an ACL.
        async fn create_parents_with_acl(&self, path: &str, mode: CreateMode, acl: &[Acl<'_>]) -> Result<(), Error>;
        /// Creates a node without data and its parents, as far as they are missing.
        async fn ensure_path(&self, path: &str, mode: CreateMode) -> Result<(), Error>;
        /// Writes data, or creates the node if it is missing.
        async fn create_or_set(&self, path: &str, data: &[u8]) -> Result<Option<Stat>, Error>;
        /// Deletes a node if it has this version; `None` matches any version.
        async fn delete(&self, path: &str, version: Option<i32>) -> Result<(), Error>;
        /// Deletes a node and its descendants.
        async fn delete_recursive(&self, path: &str) -> Result<(), Error>;
        /// Reads a node's Stat; `None` when the node does not exist.
        async fn exists(&self, path: &str) -> Result<Option<Stat>, Error>;
        /// Reads the data and the Stat of a node.
        async fn get_data(&self, path: &str) -> Result<Node, Error>;
        /// Writes data if the node has this version; `None` matches any version. Returns the new Stat.
        async fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Result<Stat, Error>;
        /// Lists a node's children.
        async fn get_children(&self, path: &str) -> Result<Children, Error>;
        /// Lists a node's children, with the node's Stat.
        async fn get_children_with_stat(&self, path: &str) -> Result<(Children, Stat), Error>;
        /// Waits until the server has caught up with the leader.
        async fn sync(&self, path: &str) -> Result<(), Error>;
        /// Reads several nodes at one moment.
        async fn multi_read(&self, reads: &[Read<'_>]) -> Result<Vec<Result<ReadResult, Error>>, Error>;
        /// Waits until a node exists, and returns its Stat. There is no limit of time.
        async fn wait_until_exists(&self, path: &str) -> Result<Stat, Error>;
        /// Waits until a node does not exist. There is no limit of time.
        async fn wait_until_deleted(&self, path: &str) -> Result<(), Error>;
    }

    /// As [`wait_until_exists`](Self::wait_until_exists), for at most `wait`; `None` if the node does not exist by then.
    pub fn wait_until_exists_timeout(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<Option<Stat>, Error> {
        self.wait_timeout(wait, self.inner.wait_until_exists(path))?.transpose()
    }

    /// As [`wait_until_deleted`](Self::wait_until_deleted), for at most `wait`; false if the node still exists then.
    pub fn wait_until_deleted_timeout(&self, path: &str, wait: Duration) -> Result<bool, Error> {
        let deleted = self.wait_timeout(wait, self.inner.wait_until_deleted(path))?;
        Ok(deleted.transpose()?.is_some())
    }

    /// Begins a transaction: several operations that are applied together or not at all.
    ///
    /// As [`Client::transaction`](crate::Client::transaction).
    #[must_use]
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction { inner: self.inner.transaction() }
    }
}

/// # Watches
impl Client {
    /// As [`exists`](Self::exists), with a watch.
    ///
    /// Blocking [`Client::exists_and_watch`](crate::Client::exists_and_watch).
    pub fn exists_and_watch(&self, path: &str) -> Result<(Option<Stat>, Watcher), Error> {
        self.watched(|client| client.exists_and_watch(path))
    }

    /// As [`get_data`](Self::get_data), with a watch.
    ///
    /// Blocking [`Client::get_data_and_watch`](crate::Client::get_data_and_watch).
    pub fn get_data_and_watch(&self, path: &str) -> Result<(Node, Watcher), Error> {
        self.watched(|client| client.get_data_and_watch(path))
    }

    /// As [`get_children`](Self::get_children), with a watch.
    ///
    /// Blocking [`Client::get_children_and_watch`](crate::Client::get_children_and_watch).
    pub fn get_children_and_watch(&self, path: &str) -> Result<(Children, Watcher), Error> {
        self.watched(|client| client.get_children_and_watch(path))
    }

    /// As [`get_children_with_stat`](Self::get_children_with_stat), with a watch.
    ///
    /// Blocking [`Client::get_children_with_stat_and_watch`](crate::Client::get_children_with_stat_and_watch).
    pub fn get_children_with_stat_and_watch(
        &self,
        path: &str,
    ) -> Result<((Children, Stat), Watcher), Error> {
        self.watched(|client| client.get_children_with_stat_and_watch(path))
    }

    /// Adds a persistent watch on a node, or on a node and all its descendants.
    ///
    /// Blocking [`Client::add_watch`](crate::Client::add_watch).
    pub fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<Watcher, Error> {
        check()?;
        wait(self.inner.add_watch(path, mode)).map(|watcher| Watcher::new(watcher, &self.context))
    }

    /// Waits for a read that sets a watch.
    fn watched<R>(
        &self,
        call: impl FnOnce(&crate::Client) -> crate::session::WatchResponse<R>,
    ) -> Result<(R, Watcher), Error> {
        check()?;
        let (value, watcher) = wait(call(&self.inner))?;
        Ok((value, Watcher::new(watcher, &self.context)))
    }

    forward! { Client;
        /// Removes all watches of a type that this connection has on a path.
        async fn remove_watches(&self, path: &str, watcher_type: WatcherType) -> Result<(), Error>;
        /// Checks whether this connection has a watch of that type on the server.
        async fn check_watches(&self, path: &str, watcher_type: WatcherType) -> Result<(), Error>;
    }
}

/// # Access control and administration
impl Client {
    forward! { Client;
        /// Adds credentials, for this server and every later one.
        async fn add_auth(&self, scheme: &str, auth: &[u8]) -> Result<(), Error>;
        /// Reads the ACL and the Stat of a node.
        async fn get_acl(&self, path: &str) -> Result<(AclEntries, Stat), Error>;
        /// Writes the ACL of a node if it has this ACL version; `None` matches any version.
        async fn set_acl(&self, path: &str, acl: &[Acl<'_>], version: Option<i32>) -> Result<Stat, Error>;
        /// Lists the paths of this session's ephemeral nodes that begin with `prefix`.
        async fn get_ephemerals(&self, prefix: &str) -> Result<Vec<String>, Error>;
        /// Counts the descendants of a node.
        async fn get_all_children_number(&self, path: &str) -> Result<i32, Error>;
        /// Reads the ids by which the server has authenticated this connection.
        async fn who_am_i(&self) -> Result<Vec<ClientInfo>, Error>;
        /// Reads the ensemble's configuration, as text.
        async fn get_config(&self) -> Result<Node, Error>;
        /// Changes the members of the ensemble.
        async fn reconfig(&self, change: Reconfig<'_>, from_config: Option<i64>) -> Result<Node, Error>;
        /// Sends any operation, and returns the bytes of its reply.
        async fn submit(&self, call: &impl ApplicationOperation) -> Result<Body, Error>;
        /// Replaces the server list.
        fn update_server_list(&self, connect_string: &str) -> Result<(), Error>;
    }

    /// As [`get_config`](Self::get_config), with a watch for the next reconfiguration.
    ///
    /// Blocking [`Client::get_config_and_watch`](crate::Client::get_config_and_watch).
    pub fn get_config_and_watch(&self) -> Result<(Node, Watcher), Error> {
        self.watched(crate::Client::get_config_and_watch)
    }
}

/// # The session
impl Client {
    forward! { Client;
        /// Ends the session and waits for the server's confirmation.
        async fn close(&self) -> Result<(), Error>;
        /// Waits for capacity in the queue of requests.
        async fn ready(&self) -> Result<(), Error>;
        /// Why the client has ended; `None` while it can have a session.
        #[must_use]
        fn ended(&self) -> Option<ErrorKind>;
        /// The lease of the session, if there is a session.
        #[must_use]
        fn session(&self) -> Option<Arc<SessionLease>>;
        /// The time on the client's clock.
        #[must_use]
        fn now(&self) -> Instant;
        /// The configuration that the client was started with.
        #[must_use]
        fn config(&self) -> &Config;
        /// The client's clock.
        #[must_use]
        fn clock(&self) -> &Clock;
        /// The runtime of the client's tasks.
        #[must_use]
        fn runtime(&self) -> &Arc<dyn Runtime>;
        /// The servers that the client chooses from.
        #[must_use]
        fn servers(&self) -> Vec<Host>;
        /// The server that the client is connected to.
        #[must_use]
        fn server(&self) -> Option<Host>;
        /// The highest zxid that this client has seen, if every server has closed the last handshake without replying.
        #[must_use]
        fn ahead_of_servers(&self) -> Option<i64>;
        /// The token to resume the session in another client or process.
        #[must_use]
        fn session_token(&self) -> Option<SessionToken>;
        /// Ends the client without closing the session.
        #[must_use = "without it, the session cannot be continued"]
        fn detach(&self) -> Option<SessionToken>;
        /// The client's counters and gauges.
        #[must_use]
        fn metrics(&self) -> Metrics;
        /// The session timeout in force.
        #[must_use]
        fn session_timeout(&self) -> Duration;
        /// The path below which the client works, if there is one.
        #[must_use]
        fn chroot(&self) -> Option<&str>;
    }

    /// As [`close`](Self::close), but waits for at most `wait`; false if the server has not confirmed it by then. The
    /// session is closed in the background all the same.
    pub fn close_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.close()).transpose()?.is_some())
    }

    /// As [`ready`](Self::ready), for at most `wait`; false if there is no capacity by then.
    pub fn ready_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.ready()).transpose()?.is_some())
    }

    /// Runs `body` with this client, closes the session, and returns the result of `body`. The session ends before this
    /// returns, also when `body` panics.
    ///
    /// Blocking [`Client::run`](crate::Client::run). Inside an async runtime, it closes the session in the background.
    pub fn run<R>(self, body: impl FnOnce(Self) -> R) -> R {
        let _closing = CloseOnDrop(&self.clone());
        body(self)
    }

    /// The state of the connection, to read and to wait for.
    ///
    /// As [`Client::state`](crate::Client::state).
    #[must_use]
    pub fn state(&self) -> Receiver<Option<ConnectionState>> {
        Receiver { inner: self.inner.state(), context: self.context.clone() }
    }

    /// The current state of the connection, and each later state in order: an iterator that waits.
    ///
    /// As [`Client::states`](crate::Client::states).
    #[must_use]
    pub fn states(&self) -> States {
        States { inner: self.inner.states(), context: self.context.clone() }
    }

    /// The same session, below a path.
    ///
    /// As [`Client::with_chroot`](crate::Client::with_chroot).
    pub fn with_chroot(&self, path: &str) -> Result<Self, Error> {
        Ok(Self { inner: self.inner.with_chroot(path)?, context: self.context.clone() })
    }

    /// A handle that does not keep the session open.
    ///
    /// As [`Client::downgrade`](crate::Client::downgrade).
    #[must_use]
    pub fn downgrade(&self) -> WeakClient {
        WeakClient { inner: self.inner.downgrade(), context: self.context.downgrade() }
    }
}

/// # Retries, and other futures
impl Client {
    /// Calls `attempt` until it succeeds or the policy ends it; a write whose outcome is unknown is not repeated.
    ///
    /// Blocking [`Client::retry`](crate::Client::retry).
    pub fn retry<R>(
        &self,
        policy: &dyn RetryPolicy,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        check()?;
        wait(self.inner.retry(policy, || ready(attempt())))
    }

    /// As [`retry`](Self::retry), for an operation that may be repeated although it was applied.
    ///
    /// Blocking [`Client::retry_idempotent`](crate::Client::retry_idempotent).
    pub fn retry_idempotent<R>(
        &self,
        policy: &dyn RetryPolicy,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        check()?;
        wait(self.inner.retry_idempotent(policy, || ready(attempt())))
    }

    /// The async client of the same session, for calls that are not here: its futures can be polled anywhere, and
    /// [`wait`](Self::wait) waits for them. A clone of it keeps the session open.
    #[must_use]
    pub const fn async_client(&self) -> &crate::Client {
        &self.inner
    }

    /// Waits for a future, which is polled on this thread. It may wait for the async client and for recipes of it; it is
    /// not inside a runtime, so timers and sockets of tokio panic in it.
    ///
    /// Fails inside an async runtime; the future is then dropped without having been polled.
    ///
    /// ```
    /// # use docent::{Error, blocking::Client};
    /// # fn example(client: &Client) -> Result<(), Error> {
    /// // Both requests are sent at once.
    /// let async_client = client.async_client();
    /// let (one, two) = (async_client.get_data("/one"), async_client.get_data("/two"));
    /// let (one, two) = (client.wait(one)??, client.wait(two)??);
    /// # let _ = (one, two);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        check()?;
        Ok(wait(future))
    }

    /// As [`wait`](Self::wait), for at most `wait`; `None` if the future is not ready by then, and is dropped.
    pub fn wait_timeout<F: Future>(
        &self,
        wait: Duration,
        future: F,
    ) -> Result<Option<F::Output>, Error> {
        check()?;
        Ok(wait_timeout(self.context.clock(), wait, future))
    }
}

/// Closes the session, and waits for it outside a runtime; one that is closed already stays so.
struct CloseOnDrop<'a>(&'a Client);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        // The call itself closes the session. Its failure cannot be returned: the session ends by its timeout.
        let closed = self.0.inner.close();
        if check().is_ok() {
            let _ = wait(closed);
        }
    }
}

/// A client handle that does not keep its session open. Created by [`Client::downgrade`].
///
/// As [`WeakClient`](crate::WeakClient).
#[derive(Clone)]
pub struct WeakClient {
    inner: crate::WeakClient,
    context: WeakContext,
}

impl WeakClient {
    /// The client; `None` once the last [`Client`] was dropped.
    ///
    /// As [`WeakClient::upgrade`](crate::WeakClient::upgrade).
    #[must_use]
    pub fn upgrade(&self) -> Option<Client> {
        let inner = self.inner.upgrade()?;
        let context = self.context.upgrade(&inner);
        Some(Client { inner, context })
    }
}
