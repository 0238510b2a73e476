//! A single embedded server.

use std::{io, net::SocketAddr, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Config, Ensemble, TestingCluster, listen::free_loopback};
use crate::tap::Tap;

/// An embedded ZooKeeper server. **A test double**: it stores nothing on disk and replicates nothing.
///
/// It listens on a free loopback port until it is dropped. Every ZooKeeper client works with it.
///
/// ```
/// use tokio::{io::{AsyncReadExt as _, AsyncWriteExt as _}, net::TcpStream};
/// use docent_testing::TestingServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = TestingServer::start().await?;
/// let mut stream = TcpStream::connect(server.connect_string()).await?;
/// stream.write_all(b"ruok").await?;
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer).await?;
/// assert_eq!(answer, "imok");
/// # Ok(())
/// # }
/// ```
///
/// The name and the methods `stop` and `restart` come from Curator's `TestingServer`.
#[derive(Debug)]
pub struct TestingServer {
    addr: SocketAddr,
    /// A cluster with one member, number 0.
    cluster: TestingCluster,
}

impl TestingServer {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(Config::default()).await
    }

    /// Like [`start`](Self::start), with a custom configuration. `servers` counts as 1.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start_with(config: Config) -> io::Result<Self> {
        Self::listen(free_loopback(), config).await
    }

    /// Like [`start_with`](Self::start_with), on the given address.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen(addr: SocketAddr, config: Config) -> io::Result<Self> {
        let cluster = TestingCluster::listen(addr, Config { servers: 1, ..config }).await?;
        Ok(Self { addr: cluster.addr(0).unwrap_or(addr), cluster })
    }

    /// The address on which the server listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The server's address as a connect string.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    /// Opens an in-memory connection to the server, which behaves like one over a socket. Returns `None` while the
    /// server is stopped. Must be called within a tokio runtime.
    #[must_use]
    pub fn connect(&self) -> Option<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        self.cluster.connect(0)
    }

    /// Stops the server: connections end, and new ones are refused once this returns. Nodes and sessions are kept,
    /// and sessions do not expire while the server is stopped.
    pub fn stop(&self) {
        self.cluster.stop(0);
    }

    /// Starts the server again on the same port, with its nodes and sessions. A running server is stopped first.
    ///
    /// # Errors
    ///
    /// If another process has taken the port, which is kept from others on Linux only.
    pub async fn restart(&self) -> io::Result<()> {
        self.cluster.restart(0).await
    }

    /// Stalls the server, like a long pause of its process: connections are accepted, but nothing is read or
    /// answered. Sessions do expire.
    pub fn stall(&self) {
        self.cluster.set_stalled(0, true);
    }

    /// Ends the effect of [`stall`](Self::stall).
    pub fn resume(&self) {
        self.cluster.set_stalled(0, false);
    }

    /// Expires a session: its connection is closed without a reply, and its ephemeral nodes are deleted. Returns
    /// whether the session existed.
    pub fn expire_session(&self, session_id: i64) -> bool {
        self.cluster.expire_session(session_id)
    }

    /// The ids of all sessions, in ascending order.
    #[must_use]
    pub fn session_ids(&self) -> Vec<i64> {
        self.machine(|machine, _| machine.session_ids())
    }

    /// Cuts a session's connection; the session survives. Returns the number of connections cut.
    pub fn cut_session(&self, session_id: i64) -> usize {
        self.machine(|machine, _| machine.cut_session(session_id))
    }

    /// Cuts all connections; sessions survive. Returns the number of connections cut.
    pub fn cut_connections(&self) -> usize {
        self.cluster.cut_connections(0)
    }

    /// Sets the sequence number of the node's next sequential child. Returns whether the node exists.
    pub fn set_sequence_counter(&self, path: &str, next: i32) -> bool {
        self.machine(|machine, _| machine.set_sequence_counter(path, next))
    }

    /// Rejects the next `count` requests with `ThrottledOp`, as servers do since 3.7 when they are overloaded.
    pub fn throttle(&self, count: u32) {
        self.machine(|machine, _| machine.throttle(count));
    }

    /// Starts a [`Tap`] in front of the server, on another port.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn tap(&self) -> io::Result<Tap> {
        Tap::start(&self.connect_string()).await
    }

    /// Calls the state machine directly, with the current instant.
    pub fn machine<R>(&self, call: impl FnOnce(&mut Ensemble, Duration) -> R) -> R {
        self.cluster.machine(call)
    }
}
