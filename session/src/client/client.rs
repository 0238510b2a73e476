//! The client, and its operations on nodes and watches.

use std::{borrow::Cow, fmt, sync::Arc};

use docent_protocol::{
    AddWatchMode, CreateMode, Stat, WatcherType,
    operation::{
        AddWatch, ApplicationOperation, CheckWatches, Create, Create2, Delete, Exists, GetChildren,
        GetChildren2, GetData, RemoveWatches, SetData, Sync,
    },
    request::{
        AddWatchRequest, DeleteRequest, PathRequest, ReadRequest, SetDataRequest, WatchesRequest,
    },
};

use super::{
    arguments::{ANY_VERSION, check},
    children::Children,
    chroot::Chroot,
    create_options::CreateOptions,
    exchange::Exchange,
    response::{Node, Response},
    watcher::{AddWatchResponse, WatchResponse, Watcher},
};
use crate::{
    Config, Error,
    driver::{Notifier, PendingReply, Runtime, Shared},
    machine::Registration,
    watch::WatchKind,
};

/// A ZooKeeper client: one session, on one connection at a time.
///
/// Cheap to clone, and usable from any thread or task.
///
/// # Example
///
/// ```
/// # mod docent { pub use docent_protocol::*; pub use docent_session::*; }
/// use docent::{Client, CreateMode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let connect_string = server.connect_string();
/// let client = Client::connect(&connect_string).await?;
/// client.create("/greeting", b"hello", CreateMode::Ephemeral).await?;
/// let (node, mut watcher) = client.get_data_and_watch("/greeting").await?;
/// assert_eq!(node.data, "hello");
///
/// // Only if no client has changed it since.
/// client.set_data("/greeting", b"hello, world", Some(node.stat.version)).await?;
/// assert_eq!(&*watcher.next().await.ok_or("an event")?.path, "/greeting");
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// | task | method |
/// |---|---|
/// | connect | [`connect`](Self::connect); with other settings [`connect_with`](Self::connect_with); in the background [`Config::start`] |
/// | create a node | [`create`](Self::create), [`create_with_stat`](Self::create_with_stat); with an ACL, with its parents: [`CreateOptions`] |
/// | have a path before its children are created | [`ensure_path`](Self::ensure_path) |
/// | read a node | [`get_data`](Self::get_data), [`exists`](Self::exists) |
/// | write data | [`set_data`](Self::set_data) |
/// | write data, or create the node | [`create_or_set`](Self::create_or_set) |
/// | delete a node | [`delete`](Self::delete); with its descendants [`delete_recursive`](Self::delete_recursive) |
/// | list children | [`get_children`](Self::get_children), [`get_children_with_stat`](Self::get_children_with_stat) |
/// | wait for one change | [`get_data_and_watch`](Self::get_data_and_watch), [`exists_and_watch`](Self::exists_and_watch), [`get_children_and_watch`](Self::get_children_and_watch) |
/// | wait until a node exists, or is gone | [`wait_until_exists`](Self::wait_until_exists), [`wait_until_deleted`](Self::wait_until_deleted) |
/// | follow all changes of a node or a tree | [`add_watch`](Self::add_watch) |
/// | change several nodes at once, or none | [`transaction`](Self::transaction) |
/// | read several nodes at one moment | [`multi_read`](Self::multi_read) |
/// | read the writes of other clients | [`sync`](Self::sync), then read |
/// | accept an error, such as `NoNode` | [`allow`](crate::client::Response::allow) on the future of any call about nodes |
/// | limit the time of one call | [`timeout`](crate::client::Response::timeout) on the future of any call about nodes |
/// | retry a call | [`retry`](Self::retry), [`retry_idempotent`](Self::retry_idempotent) |
/// | work below a path | [`with_chroot`](Self::with_chroot) |
/// | end the session | [`run`](Self::run), [`close`](Self::close) |
/// | observe the connection | [`state`](Self::state), [`states`](Self::states), [`wait_until_connected`](Self::wait_until_connected) |
/// | know how long the session lives | [`session`](Self::session) |
/// | slow down to the pace of the server | [`ready`](Self::ready), or [`WhenFull::Wait`](crate::config::WhenFull::Wait) |
/// | continue the session in another process | [`session_token`](Self::session_token), [`detach`](Self::detach) |
/// | authenticate, restrict access | [`add_auth`](Self::add_auth), [`get_acl`](Self::get_acl), [`set_acl`](Self::set_acl) |
/// | administer the ensemble | [`update_server_list`](Self::update_server_list), [`get_config`](Self::get_config), [`reconfig`](Self::reconfig) |
///
/// # Calls
///
/// Each operation is queued by its call, before the future is polled. So calls keep their order on the wire, and calls
/// without an await between them are sent together. A future that is dropped discards the reply; the request is still
/// sent. A method that returns a [`Call`](crate::client::Call), or is an `async fn`, makes several requests, and sends them as its
/// future is polled. A create with parents queues its create, and sends the others as it is polled.
///
/// A call sends one request and nothing else; its op code is the *Source* of the method. The client itself sends a ping
/// (11) after a third of the session timeout, at most 10 s, without a request, and the handshake, credentials (100) and
/// watches (101, 105) on each new connection. No request is repeated: after a lost connection the caller decides, by
/// [`Error::outcome`], or [`retry`](Self::retry) does.
///
/// # Errors
///
/// Each method lists the errors of its operation. In addition every call can fail with:
///
/// | kind | cause | applied? |
/// |---|---|---|
/// | `ConnectionLoss` | the connection broke | unknown if the request was sent |
/// | | no connection within [`connection_timeout`](Config::with_connection_timeout) | no |
/// | `SessionExpired` | the session was lost while the request was pending | unknown if the request was sent |
/// | `OperationTimeout` | no reply within the [`timeout`](crate::client::Response::timeout) of the call or the [`request_timeout`](Config::with_request_timeout), if one is set | unknown if the request was sent |
/// | `TooManyRequests` | the limits of the [`Config`] are reached | no |
/// | `RequestTooLarge`, `InvalidPath` | the arguments | no |
/// | `ThrottledOp` | the server is overloaded (since 3.7) | no |
/// | `AuthFailed`, `Closed` | the client has ended | unknown if the request was sent |
///
/// # The session
///
/// Clones share the session. It ends by [`close`](Self::close), which waits for the server, by [`run`](Self::run),
/// which closes it in every case, or with the last clone. A program should end with `close` or `run`. The last drop only
/// queues closeSession after all earlier requests. If the runtime ends at once, closeSession is written as far as the
/// socket accepts it without waiting; if requests are in flight, this drop then waits up to 100 ms for the server, which
/// would lose closeSession to a reset of the connection. Without a connection, closeSession is not sent.
///
/// When the connection breaks, the client reconnects with the same session, to each server in turn, and sets its
/// watches again. When the session is lost (a server reports its expiry, or there was no connection for the session
/// timeout), the client creates a new session, as Curator does. [`states`](Self::states) reports both.
///
/// # Missing operations
///
/// | operation | first version | instead, on older servers |
/// |---|---|---|
/// | create2, a create with Stat (15) | 3.5.0 | recipes: create (1), and an exists where they need the Stat |
/// | checkWatches, removeWatches (17, 18) | 3.5.0 | nothing is sent: the watch stays, and its event finds no watcher |
/// | createContainer (19) | 3.5.1 | parents and recipes: a persistent node; [`create`](Self::create): none |
/// | createTTL (21) | 3.5.3 | none |
/// | multiRead (22) | 3.6.0 | none: single reads would not be of one moment, so only the caller can decide on them |
/// | getEphemerals (103), getAllChildrenNumber (104) | 3.6.0 | none |
/// | addWatch (106) | 3.6.0 | caches: one-shot watches; [`add_watch`](Self::add_watch): none |
/// | whoAmI (107) | 3.7.0 | none |
///
/// An older server replies `Unimplemented`, and **closes the connection**. So the client remembers that reply, also in later
/// sessions, logs it once at INFO, and from then on refuses such calls, and those of later versions, without sending them:
/// `Unimplemented` again, which names the version that the operation requires. After a reconnect to what may be a newer
/// server, the operation is sent again, at most once a minute. A ClickHouse Keeper closes the connection without a reply
/// and ends the session: such a call fails with `ConnectionLoss`, and the third one with `Unimplemented`.
/// [`SessionLease::lacks`](crate::session::SessionLease::lacks) shows the findings.
///
/// # Blocking code
///
/// The client is a task of the runtime in which it was connected. A `current_thread` runtime polls it only while no other
/// task runs: code that blocks for longer than the session timeout (a computation, `std::fs`) stops its pings, and the
/// session expires. Run such code in tokio's `spawn_blocking`, or the client in a multi-threaded runtime.
///
/// Source: `org.apache.zookeeper.ZooKeeper`.
#[derive(Clone)]
pub struct Client {
    pub(super) handle: Arc<Handle>,
    pub(super) chroot: Chroot,
}

/// Shared by all clones; dropped with the last one.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) config: Config,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close_in_background(self.config.connection_timeout());
    }
}

/// # Nodes
impl Client {
    /// Creates a node, and returns its path. `options` is a [`CreateMode`], for a node that everybody may use
    /// (`OPEN_ACL_UNSAFE`), or [`CreateOptions`] with an ACL, or with missing parents.
    ///
    /// The returned path is `path`, with ten digits appended when the mode is sequential. `data` is at most about 1 MiB:
    /// the server's `jute.maxbuffer`, in bytes, limits the whole request.
    ///
    /// [With parents](CreateOptions::with_parents), it sends the create first. Only if that fails with `NoNode`, it sends
    /// an exists for the parent and for each further ancestor, up to the first one that exists, a create for each missing
    /// one, from the top, and the create again. If another client deletes a parent meanwhile, that is repeated, at most
    /// ten times. Under a chroot, the nodes of the chroot are ancestors too, and errors name them by their whole path.
    ///
    /// # Errors
    ///
    /// * `NodeExists`: the node exists. Not for sequential modes.
    /// * `NoNode`: the parent does not exist. With parents: other clients deleted them again and again.
    /// * `NoAuth`: the ACL of the parent denies CREATE.
    /// * `NoChildrenForEphemerals`: the parent is ephemeral.
    /// * `InvalidAcl`: the ACL is empty, or has an id that the server does not accept.
    /// * `Unimplemented`: a container on a server before 3.5.1, or a TTL node on one before 3.5.3, or where TTLs are
    ///   disabled. See [missing operations](#missing-operations).
    /// * `BadArguments`: a node of a quota that would stop the server (see [`harm`](ApplicationOperation::harm)), or
    ///   parents that could have no children. Nothing is sent.
    /// * `ConnectionLoss` with [`Outcome::Unknown`](crate::Outcome::Unknown): the connection broke after the request
    ///   was sent. **The node may or may not have been created.** A retry can leave two sequential nodes. Recipes put a
    ///   unique prefix in the name and search for it, as Curator's `withProtection` does: `create_protected`.
    ///
    /// With parents, an error names the path of the node or parent that it is about, and its outcome is that of the
    /// failed request. Parents created so far remain. No request is repeated after a `ConnectionLoss`; unless the mode is
    /// sequential, the whole call can be.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future discards the reply; the request is still sent. With
    /// parents, the further requests are sent as the future is polled: if it is dropped, some of the parents may have
    /// been created. Until it is finished or dropped, such a future holds clones of the client: the last drop of the others
    /// does not close the session.
    ///
    /// Source: `ZooKeeper.create`; op 1 (19, 21 for containers and TTL nodes) in `ZooDefs.OpCode`. With parents:
    /// `CreateBuilderImpl`, `ZKPaths.mkdirs` of Curator.
    pub fn create<'a>(
        &self,
        path: &str,
        data: &[u8],
        options: impl Into<CreateOptions<'a>>,
    ) -> Response<String> {
        self.create_as(path, data, options.into())
    }

    /// As [`create`](Self::create), but returns the Stat too: its `czxid` is the fencing token of a lock node. Servers
    /// since 3.5.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and `Unimplemented` from servers before 3.5.0; see
    /// [missing operations](#missing-operations).
    ///
    /// # Cancel safety
    ///
    /// As [`create`](Self::create).
    ///
    /// Source: op 15 (19, 21 for containers and TTL nodes).
    pub fn create_with_stat<'a>(
        &self,
        path: &str,
        data: &[u8],
        options: impl Into<CreateOptions<'a>>,
    ) -> Response<(String, Stat)> {
        self.create_with_stat_as(path, data, options.into())
    }

    fn create_as(&self, path: &str, data: &[u8], options: CreateOptions<'_>) -> Response<String> {
        let at = self.new_path(path, options.mode());
        let call = Create::new(&at, Some(data), options.acl(), options.mode());
        let first = self.request_if(options.check(path), path, &call);
        self.with_missing_parents(first, path, data, options, Self::create_as)
    }

    fn create_with_stat_as(
        &self,
        path: &str,
        data: &[u8],
        options: CreateOptions<'_>,
    ) -> Response<(String, Stat)> {
        let at = self.new_path(path, options.mode());
        let call = Create2::new(&at, Some(data), options.acl(), options.mode());
        let first = self.request_if(options.check(path), path, &call);
        self.with_missing_parents(first, path, data, options, Self::create_with_stat_as)
    }

    /// Deletes a node if it has this version; `None` matches any version.
    ///
    /// # Errors
    ///
    /// `NoNode`, `BadVersion`, `NotEmpty` (the node has children), `BadArguments` (`/` and the server's own nodes).
    /// `ConnectionLoss` with [`Outcome::Unknown`](crate::Outcome::Unknown) when the node may have been deleted.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future discards the reply; the request is still sent.
    ///
    /// Source: op 2.
    pub fn delete(&self, path: &str, version: Option<i32>) -> Response<()> {
        let (at, version) = (self.chroot.prefix(path), version.unwrap_or(ANY_VERSION));
        self.request(path, &Delete(DeleteRequest { path: (&*at).into(), version }))
    }

    /// Reads a node's Stat; `None` when the node does not exist.
    ///
    /// # Errors
    ///
    /// `NoAuth`, from servers since 3.9.2.
    ///
    /// Source: op 3.
    pub fn exists(&self, path: &str) -> Response<Option<Stat>> {
        let at = self.chroot.prefix(path);
        self.request(path, &Exists(ReadRequest { path: (&*at).into(), watch: false }))
    }

    /// As [`exists`](Self::exists), with a watch: for the creation of a missing node, or for data and deletion of an
    /// existing one.
    ///
    /// # Errors
    ///
    /// As [`exists`](Self::exists).
    pub fn exists_and_watch(&self, path: &str) -> WatchResponse<Option<Stat>> {
        let at: Arc<str> = self.chroot.prefix(path).into();
        self.request_watching(WatchKind::Exist, path, &at, |watch| {
            Exists(ReadRequest { path: (&*at).into(), watch })
        })
    }

    /// Reads the data and the Stat of a node.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`.
    ///
    /// Source: op 4.
    pub fn get_data(&self, path: &str) -> Response<Node> {
        let at = self.chroot.prefix(path);
        self.request(path, &GetData(ReadRequest { path: (&*at).into(), watch: false }))
    }

    /// As [`get_data`](Self::get_data), with a watch for the next change of the data or the deletion of the node.
    ///
    /// # Errors
    ///
    /// As [`get_data`](Self::get_data); no watch is set then.
    pub fn get_data_and_watch(&self, path: &str) -> WatchResponse<Node> {
        let at: Arc<str> = self.chroot.prefix(path).into();
        self.request_watching(WatchKind::Data, path, &at, |watch| {
            GetData(ReadRequest { path: (&*at).into(), watch })
        })
    }

    /// Writes data if the node has this version; `None` matches any version. Returns the new Stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`, `BadVersion`. `BadArguments` for the data of a quota that are not numbers, which would stop the
    /// server; nothing is sent then ([`harm`](ApplicationOperation::harm)). `ConnectionLoss` with
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) when the data may have been written.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future discards the reply; the request is still sent.
    ///
    /// Source: op 5.
    pub fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Response<Stat> {
        let (at, version) = (self.chroot.prefix(path), version.unwrap_or(ANY_VERSION));
        self.request(
            path,
            &SetData(SetDataRequest { path: (&*at).into(), data: Some(data), version }),
        )
    }

    /// Lists a node's children.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`.
    ///
    /// Source: op 8.
    pub fn get_children(&self, path: &str) -> Response<Children> {
        let at = self.chroot.prefix(path);
        self.request(path, &GetChildren(ReadRequest { path: (&*at).into(), watch: false }))
    }

    /// As [`get_children`](Self::get_children), with a watch for the next creation or deletion of a child, or the
    /// deletion of the node.
    ///
    /// # Errors
    ///
    /// As [`get_children`](Self::get_children); no watch is set then.
    pub fn get_children_and_watch(&self, path: &str) -> WatchResponse<Children> {
        let at: Arc<str> = self.chroot.prefix(path).into();
        self.request_watching(WatchKind::Child, path, &at, |watch| {
            GetChildren(ReadRequest { path: (&*at).into(), watch })
        })
    }

    /// Lists a node's children, with the node's Stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`.
    ///
    /// Source: op 12.
    pub fn get_children_with_stat(&self, path: &str) -> Response<(Children, Stat)> {
        let at = self.chroot.prefix(path);
        self.request(path, &GetChildren2(ReadRequest { path: (&*at).into(), watch: false }))
    }

    /// As [`get_children_with_stat`](Self::get_children_with_stat), with a watch for the next creation or deletion of a
    /// child, or the deletion of the node.
    ///
    /// # Errors
    ///
    /// As [`get_children_with_stat`](Self::get_children_with_stat); no watch is set then.
    pub fn get_children_with_stat_and_watch(&self, path: &str) -> WatchResponse<(Children, Stat)> {
        let at: Arc<str> = self.chroot.prefix(path).into();
        self.request_watching(WatchKind::Child, path, &at, |watch| {
            GetChildren2(ReadRequest { path: (&*at).into(), watch })
        })
    }

    /// Waits until the server has caught up with the leader. A later read sees every write, of any client, that was
    /// completed before this call.
    ///
    /// # Errors
    ///
    /// `NotReadOnly` from a read-only server. Servers ignore the path.
    ///
    /// Source: op 9.
    pub fn sync(&self, path: &str) -> Response<()> {
        let at = self.chroot.prefix(path);
        self.request(path, &Sync(PathRequest { path: (&*at).into() }))
    }
}

/// # Watches
impl Client {
    /// Adds a persistent watch. It covers data, children, creation and deletion of a node, or
    /// ([`AddWatchMode::PersistentRecursive`]) data, creation and deletion of the node and all its descendants. The
    /// node need not exist. Servers since 3.6.0.
    ///
    /// No server reports the changes that were made while there was no connection. After a reconnect, the watcher
    /// receives a [resync](crate::WatchedEvent::is_resync): read the watched nodes again.
    ///
    /// # Errors
    ///
    /// `Unimplemented` from older servers; see [missing operations](#missing-operations). `MarshallingError` from servers
    /// with the optimised watch manager (`WatchManagerOptimized`), which does not support such watches.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the watch, which is removed from the
    /// server once it is set.
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
        let shared = &self.handle.shared;
        let call = AddWatch(AddWatchRequest { path: path.into(), mode });
        let response = self.exchange(check(path), path, &call, || {
            shared.request(path, |machine, token| {
                machine.add_watch(mode, token, server_path, notifier, || shared.clock().now());
            })
        });
        AddWatchResponse(WatchResponse::new(response, watcher))
    }

    /// Removes all watches of that type that this connection has on a path from the server, whoever set them. Their
    /// watchers receive an event such as [`EventType::DataWatchRemoved`].
    ///
    /// [`Watcher::remove`] removes the watch of one watcher, and keeps those of others.
    ///
    /// # Errors
    ///
    /// `NoWatcher` when the connection has no such watch. Servers before 3.9 refuse the types `Persistent` and
    /// `PersistentRecursive` with `MarshallingError`; with the types `Children` and `Data`, they remove half of a
    /// persistent watch (ZOOKEEPER-4471). `Unimplemented` from servers before 3.5.0; see
    /// [missing operations](#missing-operations).
    ///
    /// [`EventType::DataWatchRemoved`]: docent_protocol::EventType::DataWatchRemoved
    ///
    /// Source: op 18.
    pub fn remove_watches(&self, path: &str, watcher_type: WatcherType) -> Response<()> {
        let shared = &self.handle.shared;
        let call = RemoveWatches(WatchesRequest { path: path.into(), watcher_type });
        self.exchange(check(path), path, &call, || {
            let at = self.chroot.prefix(path);
            shared.request(path, |machine, token| {
                machine.remove_watches((*at).into(), watcher_type, token, || shared.clock().now());
            })
        })
    }

    /// Checks whether this connection has a watch of that type on the server. Removes nothing.
    ///
    /// # Errors
    ///
    /// `NoWatcher` when the connection has no such watch. Servers up to 3.8 report a watch when *any* connection has
    /// one. `Unimplemented` from servers before 3.5.0; see [missing operations](#missing-operations).
    ///
    /// Source: op 17; Curator sends it for each of its watches when a lock is released.
    pub fn check_watches(&self, path: &str, watcher_type: WatcherType) -> Response<()> {
        let at = self.chroot.prefix(path);
        self.request(path, &CheckWatches(WatchesRequest { path: (&*at).into(), watcher_type }))
    }
}

impl Client {
    /// A handle on the same session without a chroot.
    pub(super) fn without_chroot(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), chroot: Chroot::default() }
    }

    /// The server's path of a node to create.
    pub(super) fn new_path<'a>(&self, path: &'a str, mode: CreateMode) -> Cow<'a, str> {
        if mode.is_sequential() { self.chroot.prefix_new(path) } else { self.chroot.prefix(path) }
    }

    /// Submits a call about `path`, which is the caller's path.
    #[inline]
    pub(super) fn request<E: Exchange + ApplicationOperation>(
        &self,
        path: &str,
        call: &E,
    ) -> Response<E::Value> {
        self.request_if(check(path), path, call)
    }

    /// Submits a call, unless its check has failed.
    #[inline]
    pub(super) fn request_if<E: Exchange + ApplicationOperation>(
        &self,
        checked: Result<(), Error>,
        path: &str,
        call: &E,
    ) -> Response<E::Value> {
        self.exchange(checked, path, call, || self.handle.shared.submit(path, call, None))
    }

    /// The response to a call that `send` submits, unless its check has failed. `path` is the caller's, for the errors
    /// of the reply.
    #[inline]
    pub(super) fn exchange<E: Exchange>(
        &self,
        checked: Result<(), Error>,
        path: &str,
        call: &E,
        send: impl FnOnce() -> PendingReply,
    ) -> Response<E::Value> {
        match checked {
            Ok(()) => {
                Response::waiting(send(), call.poll_fn(), call.op_code(), self.chroot.clone())
            }
            Err(error) => Response::refused(error, call.poll_fn(), call.op_code(), path),
        }
    }

    /// Submits a read that sets a watch; `make` makes the read with or without its watch flag.
    fn request_watching<E: Exchange + ApplicationOperation>(
        &self,
        kind: WatchKind,
        path: &str,
        server_path: &Arc<str>,
        make: impl Fn(bool) -> E,
    ) -> WatchResponse<E::Value> {
        let watcher = self.watcher(kind, Arc::clone(server_path));
        let (path_of_watch, notifier) = (Arc::clone(server_path), watcher.notifier().clone());
        let watch = Registration { kind, path: path_of_watch, watcher: notifier };
        let shared = &self.handle.shared;
        let response = self.exchange(check(path), path, &make(true), || {
            shared.request(path, |machine, token| {
                machine.submit_watching(make, token, watch, || shared.clock().now());
            })
        });
        WatchResponse::new(response, watcher)
    }

    pub(super) fn watcher(&self, kind: WatchKind, path: Arc<str>) -> Watcher {
        let shared = Arc::downgrade(&self.handle.shared);
        let notifier = Notifier::new();
        Watcher::new(notifier, kind, path, &self.chroot, shared)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("connect_string", &self.handle.config.connect_string())
            .field("session", &self.session().map(|lease| format!("{:#x}", lease.session_id())))
            .finish_non_exhaustive()
    }
}
