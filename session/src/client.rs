//! The client: one documented method for each operation, each a few lines.

use std::{borrow::Cow, fmt, future::Future, sync::Arc, time::Duration};

use docent_protocol::{
    Acl, AddWatchMode, CreateMode, Decode, OpCode, Stat, WatcherType, acl,
    call::{
        Call, CheckWatches, Create, Create2, Delete, Exists, GetChildren, GetChildren2, GetData,
        SetData, Sync,
    },
    frame,
    jute::Reader,
    path,
    reply::{Create2Reply, EmptyReply, ErrorReply, GetDataReply, PathReply, StatReply},
    request::{DeleteRequest, PathRequest, ReadRequest, SetDataRequest, WatchesRequest},
};
use tokio::sync::{broadcast, watch};

use crate::{
    AddWatchResponse, Children, Clock, Config, ConnectionState, Credential, Error, ErrorKind,
    Instant, Node, Outcome, Response, SessionLease, WatchKind, Watcher,
    answer::{Answer, Delivery},
    chroot::Chroot,
    driver::{self, Shared},
    response::{MaybeResponse, MaybeWatchResponse, PollFn, WatchResponse, nothing, readers},
    state::{Registration, Session},
    transport::{Tcp, Transport},
    watcher::Notifier,
};

/// The version of [`None`] on the wire.
pub(crate) const ANY_VERSION: i32 = -1;

mod admin;
mod session;

pub(crate) use admin::whole;
pub use admin::{AclEntries, ClientInfo, Reconfig};

/// How long the last drop of a client lets the server take to answer.
const DROP_GRACE: Duration = Duration::from_secs(2);

/// A ZooKeeper client: one session, on one connection at a time.
///
/// Clones share the session; it is closed with the last of them, or by [`close`](Self::close), which
/// also waits. Each operation is queued by its call, before the future is polled, so calls keep their
/// order on the wire, and calls that follow each other without an await are sent together.
///
/// When the connection breaks, the client connects again with the same session, to each server in turn,
/// and sets its watches again. When the session is lost (the server says so, or there was no connection
/// for the session timeout), it makes a new one, as Curator does; [`states`](Self::states) tells.
///
/// # Example
///
/// ```
/// use docent_session::Client;
/// use docent_protocol::CreateMode;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let connect_string = server.connect_string();
/// let client = Client::connect(&connect_string).await?;
/// client.create("/greeting", b"hello", CreateMode::Ephemeral).await?;
/// assert_eq!(client.get_data("/greeting").await?.data, "hello");
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: `org.apache.zookeeper.ZooKeeper`.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
    pub(crate) chroot: Chroot,
}

/// What the last clone drops.
struct Handle {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    config: Config,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Not waited for: the task flushes it. A process that ends at once may be faster.
        drop(self.shared.close(DROP_GRACE));
    }
}

impl Client {
    /// Connects with the defaults of [`Config`], and waits until there is a session.
    ///
    /// # Errors
    ///
    /// * `InvalidConfig`: not a connect string.
    /// * `ConnectionLoss`: no server answered within the connection timeout, 15 s; the text says what became
    ///   of the last attempt.
    /// * `AuthFailed`: a server refused credentials; the text says which.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with IO and time enabled.
    pub async fn connect(connect_string: &str) -> Result<Self, Error> {
        Self::connect_with(Config::new(connect_string)?).await
    }

    /// Connects, and waits until there is a session.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), within `config.connection_timeout`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with IO and time enabled.
    pub async fn connect_with(config: Config) -> Result<Self, Error> {
        let within = config.connection_timeout;
        let client = Self::start(config);
        client.wait_until_connected(within).await?;
        Ok(client)
    }

    /// As [`connect_with`](Self::connect_with), with connections of one's own: TLS, for example.
    ///
    /// # Errors
    ///
    /// As [`connect_with`](Self::connect_with).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with IO and time enabled.
    pub async fn connect_by(config: Config, transport: impl Transport) -> Result<Self, Error> {
        let within = config.connection_timeout;
        let client = Self::start_on(config, Clock::system(), transport);
        client.wait_until_connected(within).await?;
        Ok(client)
    }

    /// Begins to connect, and returns at once. Operations wait for the session.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(config: Config) -> Self {
        Self::start_on(config, Clock::system(), Tcp)
    }

    /// As [`start`](Self::start), with a clock and connections of one's own.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start_on(config: Config, clock: Clock, transport: impl Transport) -> Self {
        let seed = config.seed.unwrap_or_else(|| {
            // Without randomness from the system: the clock and the place in memory differ, too.
            getrandom::u64().unwrap_or_else(|_| clock.now().as_nanos())
        });
        let chroot = Chroot::new(config.connect_string.chroot());
        let session = Session::with_answers(config.clone(), seed, Delivery::default());
        #[cfg(feature = "sasl")]
        let session = {
            let mut secret = [0; 16];
            match getrandom::fill(&mut secret) {
                Ok(()) => session.with_nonce_secret(secret),
                Err(_) => session,
            }
        };
        let shared = Arc::new(Shared::new(session, clock, config.max_watch_events));
        let runtime = tokio::runtime::Handle::current();
        runtime.spawn(driver::run(Arc::clone(&shared), Arc::new(transport)));
        Self { handle: Arc::new(Handle { shared, runtime, config }), chroot }
    }

    // The session.

    /// Waits until there is a connection with an accepted session.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` when there is none within that time, `AuthFailed` or `Closed` when there never will
    /// be one.
    ///
    /// Source: `CuratorFramework.blockUntilConnected`.
    pub async fn wait_until_connected(&self, within: Duration) -> Result<(), Error> {
        let mut state = self.handle.shared.state();
        let shared = &self.handle.shared;
        let connected = async {
            loop {
                let connected =
                    state.borrow_and_update().is_some_and(ConnectionState::is_connected);
                if let Some(error) = shared.refusal() {
                    return Err(error);
                }
                if connected {
                    return Ok(());
                }
                if state.changed().await.is_err() {
                    return Err(Error::new(ErrorKind::Closed, Outcome::NotApplied));
                }
            }
        };
        match tokio::time::timeout(within, connected).await {
            Ok(result) => result,
            Err(_) => Err(Error::refused(
                ErrorKind::ConnectionLoss,
                format_args!(
                    "no session with {} within {within:?}; last: {}",
                    self.handle.config.connect_string,
                    shared.last_failure().as_deref().unwrap_or("no attempt has ended")
                ),
            )),
        }
    }

    /// Ends the session and waits for the server to say so: ephemeral nodes are gone when it returns.
    /// Requests that were queued before it are sent and answered first. Sends closeSession (-11).
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` or `OperationTimeout` when no server confirmed it, at once or within the connection
    /// timeout: the session then stays on the server until its timeout. `Closed` or `AuthFailed` when it had
    /// ended before.
    ///
    /// # Cancel safety
    ///
    /// The session is closed all the same.
    pub fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answer = self.handle.shared.close(self.handle.config.connection_timeout);
        let response: Response<()> =
            Response::waiting(answer, nothing, OpCode::CloseSession, Chroot::default());
        response
    }

    /// Why there will be no session again: `Closed` or `AuthFailed`; `None` while there may be one.
    #[must_use]
    pub fn ended(&self) -> Option<ErrorKind> {
        self.handle.shared.ended()
    }

    /// The state of the connection, to be read and waited for; `None` before the first news.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Option<ConnectionState>> {
        self.handle.shared.state()
    }

    /// The current state, if there is one yet, and each later one, in order.
    #[must_use]
    pub fn states(&self) -> States {
        let (current, later) = self.handle.shared.states();
        States { current, later }
    }

    /// The session, if there is one: its id, and how long it may be believed in.
    #[must_use]
    pub fn session(&self) -> Option<Arc<SessionLease>> {
        self.handle.shared.lease()
    }

    /// The time on the client's clock, to be compared with what [`SessionLease`] says.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.handle.shared.clock().now()
    }

    /// How it was configured.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.handle.config
    }

    /// Requests that wait for their replies, and watches that wait for their events.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        (self.handle.shared.pending(), self.handle.shared.watches())
    }

    /// Runs something in the background of the client's runtime, from anywhere: a destructor, another
    /// thread. If the runtime has gone, it is dropped.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.runtime.spawn(task));
    }

    // Operations.

    /// Creates a node that everybody may use, and returns its path.
    ///
    /// The path returned is `path`, with ten digits appended when `mode` is sequential. `data` is at most
    /// about 1 MiB (the server's `jute.maxbuffer`, in bytes, counts the whole request).
    ///
    /// # Errors
    ///
    /// * `NodeExists`: `path` is taken. Not for sequential modes.
    /// * `NoNode`: the parent does not exist.
    /// * `NoChildrenForEphemerals`: the parent is ephemeral.
    /// * `Unimplemented`: a container on a server before 3.5.1, or TTLs that are switched off.
    /// * `ConnectionLoss` with [`Outcome::Unknown`]: the connection broke after the request was sent. **The
    ///   node may or may not have been created.** Trying again can leave two sequential nodes; recipes put
    ///   a unique prefix in the name and look for it, as Curator's `withProtection` does.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the answer, not the request.
    ///
    /// Source: `ZooKeeper.create`; op 1 (19, 21 for containers and TTL nodes) in `ZooDefs.OpCode`.
    pub fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Response<String> {
        self.create_with_acl(path, data, mode, acl::OPEN_ACL_UNSAFE)
    }

    /// As [`create`](Self::create), with an ACL.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and `InvalidAcl`.
    pub fn create_with_acl(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Response<String> {
        let op = Create::new("", None, acl, mode).op_code();
        self.checked(op, path, check_new(path, mode), created, || {
            self.call(path, &Create::new(&self.new_path(path, mode), Some(data), acl, mode))
        })
    }

    /// As [`create_with_acl`](Self::create_with_acl), and returns the Stat too: its `czxid` is the fencing token
    /// of a lock node. Servers since 3.5.
    ///
    /// # Errors
    ///
    /// As [`create_with_acl`](Self::create_with_acl).
    ///
    /// Source: op 15 (19, 21 for containers and TTL nodes).
    pub fn create2(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Response<(String, Stat)> {
        let op = Create2::new("", None, acl, mode).op_code();
        self.checked(op, path, check_new(path, mode), created2, || {
            self.call(path, &Create2::new(&self.new_path(path, mode), Some(data), acl, mode))
        })
    }

    /// Deletes a node, if it has this version; `None` is any.
    ///
    /// # Errors
    ///
    /// `NoNode`, `BadVersion`, `NotEmpty` (it has children), `BadArguments` (`/` and the server's own nodes);
    /// `ConnectionLoss` with [`Outcome::Unknown`] when it may have been deleted.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the answer, not the request.
    ///
    /// Source: op 2.
    pub fn delete(&self, path: &str, version: Option<i32>) -> Response<()> {
        self.path_call(OpCode::Delete, path, empty, |at| {
            let version = version.unwrap_or(ANY_VERSION);
            self.call(path, &Delete(DeleteRequest { path: at.into(), version }))
        })
    }

    /// Asks for a node's Stat; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// `NoAuth`, from servers since 3.9.2.
    ///
    /// Source: op 3.
    pub fn exists(&self, path: &str) -> MaybeResponse<Stat> {
        MaybeResponse(self.path_call(OpCode::Exists, path, stat, |at| {
            self.call(path, &Exists(ReadRequest { path: at.into(), watch: false }))
        }))
    }

    /// As [`exists`](Self::exists), and watches: for the creation of a node that is not there, for data and
    /// deletion of one that is.
    ///
    /// # Errors
    ///
    /// As [`exists`](Self::exists).
    pub fn exists_and_watch(&self, path: &str) -> MaybeWatchResponse<Stat> {
        MaybeWatchResponse(self.watching(
            OpCode::Exists,
            WatchKind::Exist,
            path,
            stat,
            |at, watch| {
                let make = |watch| Exists(ReadRequest { path: at.into(), watch });
                self.handle.shared.call_watching(path, make, watch)
            },
        ))
    }

    /// Reads data and Stat of a node.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`.
    ///
    /// Source: op 4.
    pub fn get_data(&self, path: &str) -> Response<Node> {
        self.path_call(OpCode::GetData, path, node, |at| {
            self.call(path, &GetData(ReadRequest { path: at.into(), watch: false }))
        })
    }

    /// As [`get_data`](Self::get_data), and watches for the next change or the deletion.
    ///
    /// # Errors
    ///
    /// As [`get_data`](Self::get_data); there is no watch then.
    pub fn get_data_and_watch(&self, path: &str) -> WatchResponse<Node> {
        self.watching(OpCode::GetData, WatchKind::Data, path, node, |at, watch| {
            let make = |watch| GetData(ReadRequest { path: at.into(), watch });
            self.handle.shared.call_watching(path, make, watch)
        })
    }

    /// Writes data, if the node has this version; `None` is any. Returns the new Stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`, `BadVersion`; `ConnectionLoss` with [`Outcome::Unknown`] when it may have been
    /// written.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the answer, not the request.
    ///
    /// Source: op 5.
    pub fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Response<Stat> {
        self.path_call(OpCode::SetData, path, stat, |at| {
            let version = version.unwrap_or(ANY_VERSION);
            self.call(path, &SetData(SetDataRequest { path: at.into(), data: Some(data), version }))
        })
    }

    /// Lists a node's children.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`.
    ///
    /// Source: op 8.
    pub fn get_children(&self, path: &str) -> Response<Children> {
        self.path_call(OpCode::GetChildren, path, children, |at| {
            self.call(path, &GetChildren(ReadRequest { path: at.into(), watch: false }))
        })
    }

    /// As [`get_children`](Self::get_children), and watches for the next child to come or go, or the deletion
    /// of the node.
    ///
    /// # Errors
    ///
    /// As [`get_children`](Self::get_children); there is no watch then.
    pub fn get_children_and_watch(&self, path: &str) -> WatchResponse<Children> {
        self.watching(OpCode::GetChildren, WatchKind::Child, path, children, |at, watch| {
            let make = |watch| GetChildren(ReadRequest { path: at.into(), watch });
            self.handle.shared.call_watching(path, make, watch)
        })
    }

    /// Lists a node's children, with the node's Stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`.
    ///
    /// Source: op 12.
    pub fn get_children2(&self, path: &str) -> Response<(Children, Stat)> {
        self.path_call(OpCode::GetChildren2, path, children2, |at| {
            self.call(path, &GetChildren2(ReadRequest { path: at.into(), watch: false }))
        })
    }

    /// As [`get_children2`](Self::get_children2), and watches for the next child to come or go, or the deletion
    /// of the node.
    ///
    /// # Errors
    ///
    /// As [`get_children2`](Self::get_children2); there is no watch then.
    pub fn get_children2_and_watch(&self, path: &str) -> WatchResponse<(Children, Stat)> {
        self.watching(OpCode::GetChildren2, WatchKind::Child, path, children2, |at, watch| {
            let make = |watch| GetChildren2(ReadRequest { path: at.into(), watch });
            self.handle.shared.call_watching(path, make, watch)
        })
    }

    /// Waits until the server has caught up with the leader: a read behind it sees what was written, by
    /// whomever, before it was called.
    ///
    /// # Errors
    ///
    /// `NotReadOnly` from a read-only server. The path is not looked at by servers.
    ///
    /// Source: op 9.
    pub fn sync(&self, path: &str) -> Response<()> {
        self.path_call(OpCode::Sync, path, empty, |at| {
            self.call(path, &Sync(PathRequest { path: at.into() }))
        })
    }

    /// Asks whether this connection has a watch of that kind on the server. Removes nothing.
    ///
    /// # Errors
    ///
    /// `NoWatcher` when it has none. Servers up to 3.8 say that there is one when *any* connection has.
    ///
    /// Source: op 17; Curator sends it for each of its watches when a lock is released.
    pub fn check_watches(&self, path: &str, watcher_type: WatcherType) -> Response<()> {
        self.path_call(OpCode::CheckWatches, path, empty, |at| {
            self.call(path, &CheckWatches(WatchesRequest { path: at.into(), watcher_type }))
        })
    }

    /// Adds a watch that stays: for data, children, creation and deletion of a node, or
    /// ([`AddWatchMode::PersistentRecursive`]) for data, creation and deletion of it and all below it. The node
    /// need not exist. Servers since 3.6.0.
    ///
    /// No server tells what happened while there was no connection. After a reconnect, the watcher gets a
    /// [resync](crate::WatchedEvent::is_resync): read again what is watched.
    ///
    /// # Errors
    ///
    /// `Unimplemented` from older servers, which then close the connection; `MarshallingError` from servers
    /// with the optimised watch manager, which have no such watches.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the watch, which is removed from
    /// the server once it is there.
    ///
    /// Source: op 106; `ZooKeeper.addWatch`.
    pub fn add_watch(&self, path: &str, mode: AddWatchMode) -> AddWatchResponse {
        let server_path: Arc<str> = self.chroot.prefix(path).into();
        let kind = match mode {
            AddWatchMode::PersistentRecursive => WatchKind::PersistentRecursive,
            _ => WatchKind::Persistent,
        };
        let watcher = self.watcher(kind, Arc::clone(&server_path));
        let notifier = watcher.notifier().clone();
        let response = self.path_call(OpCode::AddWatch, path, added, |_| {
            self.handle.shared.add_watch(path, mode, server_path, notifier)
        });
        AddWatchResponse(WatchResponse::new(response, watcher))
    }

    /// Removes all this connection's watches of that kind on a path, whoever's they are, from the server; those
    /// who hold them are told, by an event such as [`EventType::DataWatchRemoved`].
    ///
    /// [`Watcher::remove`] gives back one watcher's watch and minds the others.
    ///
    /// # Errors
    ///
    /// `NoWatcher` when it has none. Servers before 3.9 refuse the types `Persistent` and
    /// `PersistentRecursive` with `MarshallingError`; of persistent watches they remove half by the types
    /// `Children` and `Data` (ZOOKEEPER-4471).
    ///
    /// [`EventType::DataWatchRemoved`]: docent_protocol::EventType::DataWatchRemoved
    ///
    /// Source: op 18.
    pub fn remove_watches(&self, path: &str, watcher_type: WatcherType) -> Response<()> {
        self.path_call(OpCode::RemoveWatches, path, empty, |at| {
            self.handle.shared.remove_watches(path, at.into(), watcher_type)
        })
    }

    /// Adds credentials: this server is told now, and every other before anything else. For `digest`, `auth`
    /// is `user:password`; it travels in clear unless the connection is encrypted.
    ///
    /// # Errors
    ///
    /// `AuthFailed` when the server refuses them; the client is then of no further use, as in Java.
    ///
    /// Source: `ZooKeeper.addAuthInfo`; op 100, xid -4.
    pub fn add_auth(&self, scheme: &str, auth: &[u8]) -> Response<()> {
        let answer = self.handle.shared.add_auth(Credential::new(scheme, auth));
        Response::waiting(answer, nothing, OpCode::Auth, Chroot::default())
    }

    // How they are all made.

    /// The same session, for the nodes outside the chroot.
    fn without_chroot(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), chroot: Chroot::default() }
    }

    /// `path` is the caller's, for the answer's errors.
    #[inline(always)]
    pub(crate) fn call(&self, path: &str, call: &impl Call) -> Answer {
        self.handle.shared.call(path, call, None)
    }

    #[inline(always)]
    fn path_call<R>(
        &self,
        op: OpCode,
        path: &str,
        poll: PollFn<R>,
        send: impl FnOnce(&str) -> Answer,
    ) -> Response<R> {
        self.checked(op, path, check(path), poll, || send(&self.chroot.prefix(path)))
    }

    /// The server's path of a node to create.
    pub(crate) fn new_path<'a>(&self, path: &'a str, mode: CreateMode) -> Cow<'a, str> {
        if mode.is_sequential() { self.chroot.prefix_new(path) } else { self.chroot.prefix(path) }
    }

    /// Sends the request, unless the path is none.
    #[inline(always)]
    fn checked<R>(
        &self,
        op: OpCode,
        path: &str,
        check: Result<(), Error>,
        poll: PollFn<R>,
        send: impl FnOnce() -> Answer,
    ) -> Response<R> {
        match check {
            Ok(()) => Response::waiting(send(), poll, op, self.chroot.clone()),
            Err(error) => Response::refused(error, poll, op, path),
        }
    }

    fn watching<R>(
        &self,
        op: OpCode,
        kind: WatchKind,
        path: &str,
        poll: PollFn<R>,
        send: impl FnOnce(&str, Registration<Notifier>) -> Answer,
    ) -> WatchResponse<R> {
        let server_path: Arc<str> = self.chroot.prefix(path).into();
        let watcher = self.watcher(kind, Arc::clone(&server_path));
        let notifier = watcher.notifier().clone();
        let response = self.path_call(op, path, poll, |_| {
            let watch = Registration { kind, path: Arc::clone(&server_path), watcher: notifier };
            send(&server_path, watch)
        });
        WatchResponse::new(response, watcher)
    }

    fn watcher(&self, kind: WatchKind, path: Arc<str>) -> Watcher {
        let shared = Arc::downgrade(&self.handle.shared);
        let notifier = Notifier::new();
        Watcher::new(notifier, kind, path, &self.chroot, shared)
    }
}

/// The states of a connection, one after the other.
///
/// Source: Curator's `ConnectionStateListener`.
#[derive(Debug)]
pub struct States {
    current: Option<ConnectionState>,
    later: broadcast::Receiver<ConnectionState>,
}

impl States {
    /// The next state; `None` once the client is gone. Who is 32 states behind misses the oldest, as with
    /// Curator, which keeps 25.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<ConnectionState> {
        if let Some(current) = self.current.take() {
            return Some(current);
        }
        loop {
            match self.later.recv().await {
                Ok(state) => return Some(state),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("connect_string", &self.handle.config.connect_string)
            .field("session", &self.session().map(|lease| format!("{:#x}", lease.session_id())))
            .finish_non_exhaustive()
    }
}

pub(crate) fn check(path: &str) -> Result<(), Error> {
    path::validate(path)
        .map_err(|error| Error::refused(ErrorKind::InvalidPath, format_args!("{path:?}: {error}")))
}

/// A sequential node may be all digits: `/parent/` is a name for one.
pub(crate) fn check_new(path: &str, mode: CreateMode) -> Result<(), Error> {
    match path.strip_suffix('/') {
        Some(parent) if mode.is_sequential() => check(if parent.is_empty() { "/" } else { parent }),
        _ => check(path),
    }
}

readers! {
    fn created -> String = |reply| {
        let path = reply.read::<PathReply<'_>>()?.path.to_str();
        Ok(reply.chroot().strip(&path).to_owned())
    };

    fn created2 -> (String, Stat) = |reply| {
        let created = reply.read::<Create2Reply<'_>>()?;
        let path = created.path.to_str();
        Ok((reply.chroot().strip(&path).to_owned(), created.stat))
    };

    fn empty -> () = |reply| {
        reply.read::<EmptyReply>()?;
        Ok(())
    };

    /// Four bytes of error that say nothing new; servers that leave them out exist.
    fn added -> () = |reply| {
        if !reply.bytes().is_empty() {
            reply.read::<ErrorReply>()?;
        }
        Ok(())
    };

    fn stat -> Stat = |reply| Ok(reply.read::<StatReply>()?.stat);

    fn node -> Node = |reply| {
        let GetDataReply { data, stat } = reply.read()?;
        let len = data.map_or(0, <[u8]>::len);
        // It comes first, behind its length.
        let data = reply.into_part(frame::LENGTH_SIZE..frame::LENGTH_SIZE + len);
        Ok(Node { data, stat })
    };

    fn children -> Children = |reply| {
        let mut reader = Reader::new(reply.bytes());
        Ok(Children::read(&mut reader, |list| reply.keep(list))?)
    };

    fn children2 -> (Children, Stat) = |reply| {
        let mut reader = Reader::new(reply.bytes());
        let children = Children::read(&mut reader, |list| reply.keep(list))?;
        Ok((children, Stat::decode(&mut reader)?))
    };
}
