//! One embedded server.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::DuplexStream,
    task::{AbortHandle, JoinSet},
};

use super::{
    Config, Ensemble,
    listen::{Shell, alarm, bind, listen},
    testing_cluster::bind_again,
};
use crate::tap::Tap;

/// An embedded ZooKeeper server. **A test double**: it keeps nothing on disk and replicates nothing.
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
/// Source of the name and of `stop` and `restart`: Curator's `TestingServer`.
#[derive(Debug)]
pub struct TestingServer {
    shell: Arc<Shell>,
    addr: SocketAddr,
    listener: Mutex<Option<AbortHandle>>,
    tasks: Mutex<JoinSet<()>>,
}

impl TestingServer {
    /// Starts one on a free loopback port.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(Config::default()).await
    }

    /// As [`start`](Self::start), with settings of the caller's. `servers` is taken as 1.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start_with(config: Config) -> io::Result<Self> {
        Self::listen_on(None, config).await
    }

    /// As [`start_with`](Self::start_with), on an address of the caller's.
    ///
    /// # Errors
    ///
    /// When it cannot be bound.
    pub async fn listen(addr: SocketAddr, config: Config) -> io::Result<Self> {
        Self::listen_on(Some(addr), config).await
    }

    async fn listen_on(addr: Option<SocketAddr>, config: Config) -> io::Result<Self> {
        let listener = bind(addr).await?;
        let addr = listener.local_addr()?;
        let shell = Shell::new(Config { servers: 1, ..config });
        let mut tasks = JoinSet::new();
        tasks.spawn(alarm(Arc::clone(&shell)));
        let handle = tasks.spawn(listen(Arc::clone(&shell), 0, listener));
        let (listener, tasks) = (Mutex::new(Some(handle)), Mutex::new(tasks));
        Ok(Self { shell, addr, listener, tasks })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a client takes it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr.to_string()
    }

    /// A connection without a socket, as good as any other; `None` when it is stopped. Needs to be called
    /// in a tokio runtime.
    #[must_use]
    pub fn connect(&self) -> Option<DuplexStream> {
        self.shell.connect(0)
    }

    /// Stops it: connections end, new ones are refused. Nodes and sessions stay, and sessions do not
    /// expire meanwhile.
    pub fn stop(&self) {
        self.shell.with(|machine, now| machine.stop_member(now, 0));
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            listener.abort();
        }
    }

    /// Starts it again on the same port, with its nodes and sessions; stops it first if need be.
    ///
    /// # Errors
    ///
    /// When somebody else has taken the port.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop();
        let listener = bind_again(self.addr).await?;
        self.shell.with(|machine, now| machine.start_member(now, 0));
        let task = listen(Arc::clone(&self.shell), 0, listener);
        let handle = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }

    /// Stalls it, as a long pause of its process does: connections are accepted, nothing is read or
    /// answered. Sessions do expire.
    pub fn hold(&self) {
        self.shell.set_held(true);
    }

    /// Ends [`hold`](Self::hold).
    pub fn resume(&self) {
        self.shell.set_held(false);
    }

    /// Ends a session as if its time were over: its connection is closed without a word, its ephemeral
    /// nodes go. Whether there was one.
    pub fn expire_session(&self, session_id: i64) -> bool {
        self.shell.with(|machine, _| machine.expire_session(session_id))
    }

    /// The sessions there are, by id.
    #[must_use]
    pub fn session_ids(&self) -> Vec<i64> {
        self.shell.with(|machine, _| machine.session_ids())
    }

    /// Cuts a session's connection; the session goes on. How many there were.
    pub fn cut_session(&self, session_id: i64) -> usize {
        self.shell.with(|machine, _| machine.cut_session(session_id))
    }

    /// Cuts all connections; sessions go on. How many there were.
    pub fn cut_connections(&self) -> usize {
        self.shell.with(|machine, _| machine.cut_connections(None))
    }

    /// Sets the number that the next sequential child of a node gets. Whether there is such a node.
    pub fn set_sequence_counter(&self, path: &str, next: i32) -> bool {
        self.shell.with(|machine, _| machine.set_sequence_counter(path, next))
    }

    /// Refuses the next `count` requests as too many: `ThrottledOp`, as servers do since 3.7.
    pub fn throttle(&self, count: u32) {
        self.shell.with(|machine, _| machine.throttle(count));
    }

    /// Puts a [`Tap`] in front of it, with all its faults, on another port.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn tap(&self) -> io::Result<Tap> {
        Tap::start(&self.connect_string()).await
    }

    /// Calls the machine itself, with the instant it is now.
    pub fn machine<R>(&self, call: impl FnOnce(&mut Ensemble, Duration) -> R) -> R {
        self.shell.with(call)
    }
}
