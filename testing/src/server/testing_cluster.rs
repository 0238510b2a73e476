//! Several embedded servers over one log.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::DuplexStream,
    net::TcpListener,
    task::{AbortHandle, JoinSet},
};

use super::{
    Config, Ensemble, Role,
    listen::{Shell, alarm, bind, listen},
};

/// Several embedded servers that behave as the members of an ensemble, as far as a client can see: **a
/// test double**, in one process, over one log in memory.
///
/// One leads, the others follow; a follower can be made to lag; when the leader stops, another takes over
/// and all connections end; without a majority the rest is read-only, or answers nothing.
///
/// Source of the name: Curator's `TestingCluster`.
#[derive(Debug)]
pub struct TestingCluster {
    shell: Arc<Shell>,
    addrs: Vec<SocketAddr>,
    listeners: Mutex<Vec<Option<AbortHandle>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl TestingCluster {
    /// Starts that many on free loopback ports.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(servers: usize) -> io::Result<Self> {
        Self::start_with(Config { servers, ..Config::default() }).await
    }

    /// As [`start`](Self::start), with settings of the caller's.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start_with(config: Config) -> io::Result<Self> {
        let servers = config.servers.max(1);
        let shell = Shell::new(config);
        let mut tasks = JoinSet::new();
        tasks.spawn(alarm(Arc::clone(&shell)));
        let (mut addrs, mut listeners) = (Vec::new(), Vec::new());
        for member in 0..servers {
            let listener = bind(None).await?;
            addrs.push(listener.local_addr()?);
            listeners.push(Some(tasks.spawn(listen(Arc::clone(&shell), member, listener))));
        }
        Ok(Self { shell, addrs, listeners: Mutex::new(listeners), tasks: Mutex::new(tasks) })
    }

    /// Where a member listens.
    #[must_use]
    pub fn addr(&self, member: usize) -> Option<SocketAddr> {
        self.addrs.get(member).copied()
    }

    /// Where all of them listen, as a client takes it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// A connection to a member without a socket; `None` when it is stopped.
    #[must_use]
    pub fn connect(&self, member: usize) -> Option<DuplexStream> {
        self.shell.connect(member)
    }

    /// What a member is.
    #[must_use]
    pub fn role(&self, member: usize) -> Role {
        self.shell.with(|machine, _| machine.role(member))
    }

    /// Who leads.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.shell.with(|machine, _| machine.leader())
    }

    /// Stops a member: its connections end, new ones are refused.
    pub fn stop(&self, member: usize) {
        self.shell.with(|machine, now| machine.stop_member(now, member));
        let listener = self.listeners().get_mut(member).and_then(Option::take);
        if let Some(listener) = listener {
            listener.abort();
        }
    }

    /// Starts a stopped member again, on the same port.
    ///
    /// # Errors
    ///
    /// When somebody else has taken the port.
    pub async fn restart(&self, member: usize) -> io::Result<()> {
        let Some(addr) = self.addr(member) else { return Err(io::ErrorKind::NotFound.into()) };
        self.stop(member);
        let listener = bind_again(addr).await?;
        self.shell.with(|machine, now| machine.start_member(now, member));
        let task = listen(Arc::clone(&self.shell), member, listener);
        let handle = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
        if let Some(slot) = self.listeners().get_mut(member) {
            *slot = Some(handle);
        }
        Ok(())
    }

    /// Makes a member apply changes only for its own clients' writes and for `sync`; its clients read old
    /// values meanwhile. `false` lets it catch up.
    pub fn set_lag(&self, member: usize, lags: bool) {
        self.shell.with(|machine, now| machine.set_lag(now, member, lags));
    }

    /// Stalls a member, or lets it go on: nothing is read or answered.
    pub fn hold(&self, member: usize, hold: bool) {
        if let Some(held) = self.shell.held.get(member) {
            held.send_replace(hold);
        }
    }

    /// As [`TestingServer::expire_session`](super::TestingServer::expire_session).
    pub fn expire_session(&self, session_id: i64) -> bool {
        self.shell.with(|machine, _| machine.expire_session(session_id))
    }

    /// Cuts all connections of a member; sessions go on. How many there were.
    pub fn cut_connections(&self, member: usize) -> usize {
        self.shell.with(|machine, _| machine.cut_connections(Some(member)))
    }

    /// Calls the machine itself, with the instant it is now.
    pub fn machine<R>(&self, call: impl FnOnce(&mut Ensemble, Duration) -> R) -> R {
        self.shell.with(call)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Option<AbortHandle>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Binds an address that was ours a moment ago: the old listener is closed when its task has seen that it
/// was aborted.
pub(crate) async fn bind_again(addr: SocketAddr) -> io::Result<TcpListener> {
    const TRIES: u32 = 1000;
    let mut tries = 0;
    loop {
        tokio::task::yield_now().await;
        match bind(Some(addr)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            bound => return bound,
        }
    }
}
