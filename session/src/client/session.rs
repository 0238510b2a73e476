//! The session of a client: its servers, its transfer to another client, its load.

use std::{
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use docent_protocol::OpCode;
use tracing::warn;

use super::{
    chroot::Chroot,
    client::{Client, Handle},
    events::{self, Events, Latest, StateEvent},
    exchange::nothing,
    response::Response,
};
use crate::{
    Config, ConnectionState, Error, ErrorKind, SessionToken,
    config::{ConnectString, Host, InvalidConnectString},
    driver::{ClientTimer, Clock, Machine, Runtime},
    machine::metrics::Metrics,
    runtime::Instant,
    session::SessionLease,
};

/// # The session
impl Client {
    /// Runs `body` with this client, closes the session, and returns the result of `body`. This is the best way to end
    /// a program: ephemeral nodes and locks are released without a wait for the session timeout.
    ///
    /// The session ends before this returns, whether `body` succeeded, returned early with `?`, or panicked; the panic
    /// resumes after the close. It ends for all clones, also for those in tasks that `body` has spawned. Requests queued
    /// earlier are sent and answered first. Sends closeSession (-11).
    ///
    /// The close is bounded by the connection timeout ([`Config::with_connection_timeout`], 15 s by default). If no
    /// server confirms it, that is logged at WARN, and the result of `body` is returned unchanged. `body` may
    /// [`close`](Self::close) the client itself.
    ///
    /// Only the end of the process comes before the close: `std::process::exit`, and signals that the program does not
    /// handle. To close on a signal, let `body` return at the signal, or drop the future at the signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` and closes the session in the background, for all clones. A runtime that ends at
    /// once still sends the queued requests, including closeSession, if the socket accepts them without waiting; they
    /// are not confirmed. A future that was never polled only drops its handle.
    ///
    /// # Example
    ///
    /// ```
    /// # mod docent { pub use docent_protocol::*; pub use docent_session::*; }
    /// use docent::{Client, Error};
    /// # use docent::CreateMode;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = docent_testing::TestingServer::start().await.expect("a port");
    /// # let connect_string = server.connect_string();
    /// let client = Client::connect(&connect_string).await?;
    /// client.run(work).await?;
    /// # assert!(server.session_ids().is_empty());
    /// # Ok(())
    /// # }
    ///
    /// async fn work(client: Client) -> Result<(), Error> {
    ///     client.create("/worker", b"", CreateMode::Ephemeral).await?;
    ///     // Each error returns, and the session is closed all the same.
    ///     client.set_data("/worker", b"busy", None).await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn run<F, R>(self, body: F) -> R::Output
    where
        F: FnOnce(Self) -> R,
        R: Future,
    {
        let client = self.clone();
        // Dropped after the body, whose destructors may queue requests.
        let _closing = CloseOnDrop(&client);
        let mut body = pin!(async { body(self).await });
        let result =
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(cx))) {
                Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
                Ok(Poll::Pending) => Poll::Pending,
                Err(panic) => Poll::Ready(Err(panic)),
            })
            .await;
        if let Err(error) = client.close().await
            && client.ended() != Some(error.kind())
        {
            warn!(%error, "the session was not closed; it ends by its timeout");
        }
        match result {
            Ok(output) => output,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Ends the session and waits for the server's confirmation: ephemeral nodes are deleted when it returns. Requests
    /// that were queued earlier are sent and answered first. All claims of the session end in the call itself: what it
    /// holds, a lock too, counts as lost from then on.
    ///
    /// Sends closeSession (-11) on this connection, or on the next connection of the session, for which every server is
    /// tried at once. A server that does not reply for the connection timeout divided by the number of servers is left
    /// for the next one. Requests without a reply fail then, and may have been applied. Without a session, it returns
    /// without waiting.
    ///
    /// Concurrent calls wait for the same confirmation. With it, the client has ended: every later call is refused,
    /// [`state`](Self::state) and [`states`](Self::states) end, and watchers receive their last event.
    ///
    /// # Errors
    ///
    /// `OperationTimeout` or `ConnectionLoss` when no server confirmed the close within the connection timeout
    /// ([`Config::with_connection_timeout`], 15 s by default). The session then stays on the server until its timeout.
    /// `Closed` or `AuthFailed` when the client had ended before.
    ///
    /// # Cancel safety
    ///
    /// The session is closed even if the future is dropped; `tokio::time::timeout` can shorten the wait.
    pub fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answer = self.handle.shared.close(self.handle.config.connection_timeout());
        let response: Response<()> =
            Response::waiting(answer, nothing, OpCode::CloseSession, Chroot::default());
        response
    }

    /// Why the client has ended: `Closed` or `AuthFailed`; `None` while it can have a session.
    #[must_use]
    pub fn ended(&self) -> Option<ErrorKind> {
        self.handle.shared.with(|machine| machine.ended())
    }

    /// The state of the connection, to read and to wait for. It is `None` before the first state, and after a close.
    /// It ends with the client, by [`close`](Self::close) or by refused credentials.
    #[must_use]
    pub fn state(&self) -> Latest<Option<ConnectionState>> {
        Latest::new(self.handle.shared.state())
    }

    /// The current state, if there is one, and each later state in order, until the client ends. A reader that is more than
    /// 32 states behind misses the oldest, and receives [`Lagged`](StateEvent::Lagged) in their place.
    ///
    /// Source: Curator's `ConnectionStateListener`, which keeps 25.
    #[must_use]
    pub fn states(&self) -> Events<StateEvent> {
        let (current, later) = self.handle.shared.states();
        events::states(current, later)
    }

    /// The lease of the session, if there is a session: its id, and the bounds of its lifetime.
    #[must_use]
    pub fn session(&self) -> Option<Arc<SessionLease>> {
        let lease = self.handle.shared.with(|machine| machine.lease().cloned())?;
        lease.set_timer(|| {
            let clock = self.handle.shared.clock().clone();
            Box::new(ClientTimer { clock, runtime: self.handle.runtime.clone() })
        });
        Some(lease)
    }

    /// The time on the client's clock, to compare with the instants of [`SessionLease`].
    #[must_use]
    pub fn now(&self) -> Instant {
        self.handle.shared.clock().now()
    }

    /// The configuration that the client was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.handle.config
    }

    /// The client's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.handle.shared.clock()
    }

    /// The runtime of the client's tasks. A recipe takes from it what it needs: tasks, timers and randomness.
    #[must_use]
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.handle.runtime
    }

    /// Whether it is known that connections are made by TLS.
    pub(super) fn is_tls(&self) -> bool {
        let own = self.handle.config.driver.transport.as_ref().map(|transport| transport.is_tls());
        own.unwrap_or_else(|| self.handle.runtime.transport().is_tls()) == Some(true)
    }

    /// Replaces the server list. A client whose server is not in the new list moves to another server. When servers
    /// were added, a random part of the clients moves, so that each server gets its share. A move loses no request:
    /// requests in flight are answered first, and unsent requests are sent on the next connection, of the same session.
    /// A local session (`localSessionsEnabled` of the servers) is known to its server alone, and is lost with a server
    /// that is not in the new list.
    ///
    /// This list takes the place of the servers of `dns-srv://name`, if the client was started with one, and so does that of
    /// an [`EnsembleTracker`](crate::EnsembleTracker): changes of the SRV records change nothing then. That name as the new
    /// list makes the client look it up at once, and follow it again; its connection stays.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: the connect string is invalid, its chroot differs from the client's, or it is of `dns-srv://` with
    /// another name than the client was started with.
    ///
    /// Source: `ZooKeeper.updateServerList`, `StaticHostProvider`.
    pub fn update_server_list(&self, connect_string: &str) -> Result<(), Error> {
        let new: ConnectString =
            connect_string.parse().map_err(|error: InvalidConnectString| {
                Error::refused(ErrorKind::InvalidConfig, &error).caused_by(error)
            })?;
        if let Some(chroot) = new.chroot()
            && self.handle.config.connect_string().chroot() != Some(chroot)
        {
            return Err(Error::refused(
                ErrorKind::InvalidConfig,
                format_args!(
                    "the chroot {chroot:?} differs from this client's, which cannot be changed"
                ),
            ));
        }
        if !new.hosts().iter().any(Host::is_dns_srv) {
            self.use_servers(new.hosts());
        } else if new.hosts() == self.handle.config.connect_string().hosts() {
            self.handle.shared.follow_name();
        } else {
            return Err(Error::refused(
                ErrorKind::InvalidConfig,
                format_args!("{new} is for the start of a client: write host:port,host:port"),
            ));
        }
        Ok(())
    }

    /// Replaces the server list, unless the new one is empty.
    pub(super) fn use_servers(&self, hosts: &[Host]) {
        self.handle.shared.update_server_list(hosts);
    }

    /// Reconnects, with the same session, to the best server that serves: the one of the lowest
    /// [cost](crate::Config::with_server_preference), among equals one with fewer connections, or the same one. It is the move
    /// that [`failback`](crate::Config::with_failback) makes, at once: for an operator, or a certificate that was renewed.
    ///
    /// Every server of the list is asked by `srvr`, for a second at most. Then nothing more is sent until the requests in
    /// flight are answered, and those queued meanwhile are sent on the next connection, behind the handshake, credentials and
    /// setWatches. What the session holds stays, and so does the [`state`](Self::state), unless neither the server nor the one
    /// that was left is reached; then this waits on for a connection. [`server`](Self::server) has the server
    /// afterwards.
    ///
    /// # Errors
    ///
    /// * `Unimplemented`: the servers are ClickHouse Keepers, which resume no session. Nothing was done.
    /// * `ConnectionLoss`: there is no connection to the quorum; the client looks for one already.
    /// * `OperationTimeout`: requests in flight had no reply for a sixth of the session timeout. The connection is kept, or left
    ///   once they have one, if the client moves anyway for a new server list.
    /// * `SessionExpired`, `Closed` or `AuthFailed`: the session, or the client, has ended.
    ///
    /// # Cancel safety
    ///
    /// The reconnect is begun by the call itself. Dropping the future only ends the wait.
    pub fn reconnect(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let shared = &self.handle.shared;
        let answer = shared.request("", |machine, token| {
            machine.reconnect(token, shared.clock().now());
        });
        let response: Response<()> =
            Response::waiting(answer, nothing, OpCode::Unknown(0), Chroot::default());
        async move {
            response.await.map_err(|error| {
                // Without an operation, which it is not.
                let plain = Error::new(error.kind(), error.outcome());
                match error.detail() {
                    Some(detail) => plain.with_detail(detail),
                    None => plain,
                }
            })
        }
    }

    /// The servers that the client chooses from, in the order in which they are tried: those of the connect string, of
    /// its SRV records, or of the last [`update_server_list`](Self::update_server_list).
    #[must_use]
    pub fn servers(&self) -> Vec<Host> {
        self.handle.shared.with(|machine| machine.servers().to_vec())
    }

    /// The server that the client is connected to; `None` without a connection. The name of a server stands for all its
    /// addresses.
    #[must_use]
    pub fn server(&self) -> Option<Host> {
        self.handle.shared.with(|machine| machine.server().cloned())
    }

    /// The highest zxid that this client has seen, if every server has closed the last handshake without replying.
    /// `None` otherwise, and always while connected.
    ///
    /// A server closes the handshake like this when it is behind the zxid that a client has seen, and when it serves no
    /// clients; it does not report which. If all servers stay behind, they were restored from a backup, or belong to
    /// another ensemble.
    ///
    /// The client keeps trying, in case the servers catch up. After the session timeout it creates a new session,
    /// without a last zxid. To connect without this wait, create a new client.
    #[must_use]
    pub fn ahead_of_servers(&self) -> Option<i64> {
        self.handle.shared.with(|machine| machine.ahead_of_servers())
    }

    /// The token to resume the session in another client or process
    /// ([`Config::with_session`](crate::Config::with_session)). It is a secret. `None` while there is no session.
    ///
    /// Source: `ZooKeeper.getSessionId`, `getSessionPasswd`.
    #[must_use]
    pub fn session_token(&self) -> Option<SessionToken> {
        self.handle.shared.with(|machine| machine.session_token())
    }

    /// Ends the client without closing the session. The session and its ephemeral nodes stay for the client that
    /// resumes it before its timeout. Sends nothing: requests without a reply fail with `Closed`, and may have been
    /// applied. `None` when there was no session.
    #[must_use = "without it, the session cannot be continued"]
    pub fn detach(&self) -> Option<SessionToken> {
        self.handle.shared.detach()
    }

    /// Waits for capacity in the queue. It is ready at once, unless the queue has reached
    /// [`max_requests`](crate::Config::with_max_requests) or
    /// [`max_pending_bytes`](crate::Config::with_max_pending_bytes); then
    /// it waits until half of the pending requests are answered. A caller that awaits it before each call is slowed
    /// down to the pace of the server, instead of being refused with `TooManyRequests`. (With
    /// [`WhenFull::Wait`](crate::config::WhenFull::Wait), no request is refused, and awaiting each call has the same effect.)
    ///
    /// Capacity is not reserved: with many callers, the queue may be full again.
    ///
    /// # Errors
    ///
    /// `Closed` or `AuthFailed` when the client has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the queue of waiters.
    pub fn ready(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answer = self.handle.shared.request("", Machine::wait_for_capacity);
        let response: Response<()> =
            Response::waiting(answer, nothing, OpCode::Unknown(0), Chroot::default());
        async move { response.await.map_err(|error| Error::new(error.kind(), error.outcome())) }
    }

    /// The client's counters and gauges. Takes the session's lock for a moment.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.handle.shared.with(|machine| machine.metrics())
    }

    /// The session timeout in force: the shortest that a server has granted to the session, or the requested one until one
    /// has.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.handle.shared.with(|machine| machine.timeouts().session)
    }
}

/// Closes the session without waiting; one that is closed already stays so.
struct CloseOnDrop<'a>(&'a Client);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

/// A client handle that does not keep its session open, like [`std::sync::Weak`]. Created by [`Client::downgrade`].
#[derive(Clone)]
pub struct WeakClient {
    handle: Weak<Handle>,
    chroot: Chroot,
}

impl Client {
    /// A handle that does not keep the session open, for tasks that must not outlive the users of the client.
    #[must_use]
    pub fn downgrade(&self) -> WeakClient {
        WeakClient { handle: Arc::downgrade(&self.handle), chroot: self.chroot.clone() }
    }
}

impl WeakClient {
    /// The client; `None` once the last [`Client`] was dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Client> {
        let handle = self.handle.upgrade()?;
        Some(Client { handle, chroot: self.chroot.clone() })
    }
}

impl fmt::Debug for WeakClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakClient").finish_non_exhaustive()
    }
}
