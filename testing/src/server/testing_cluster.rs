//! Several embedded servers that elect a leader.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};

use super::{
    Config, Ensemble, Peer, Role,
    listen::{Listening, ServerDriver, alarm, free_loopback},
};
use crate::kept_port::KeptPort;

/// Several embedded servers that look like the members of an ensemble to a client. **A test double**: they run in one
/// process, and keep their logs in memory.
///
/// One member leads, the others follow. A follower can be made to lag. When the leader stops, another member takes
/// over and all connections end. Without a majority, the remaining members are read-only or answer nothing.
///
/// The name comes from Curator's `TestingCluster`.
#[derive(Debug)]
pub struct TestingCluster {
    driver: Arc<ServerDriver>,
    ports: Vec<KeptPort>,
    listeners: Mutex<Vec<Option<Listening>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl TestingCluster {
    /// Starts the given number of servers on free loopback ports.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(servers: usize) -> io::Result<Self> {
        Self::start_with(Config { servers, ..Config::default() }).await
    }

    /// Like [`start`](Self::start), with a custom configuration.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start_with(config: Config) -> io::Result<Self> {
        Self::listen(free_loopback(), config).await
    }

    /// Like [`start_with`](Self::start_with), on the given address: the first member has its port, the others have the
    /// following ports. With port 0, all have free ports.
    ///
    /// # Errors
    ///
    /// If an address cannot be bound. The text names it.
    pub async fn listen(addr: SocketAddr, config: Config) -> io::Result<Self> {
        let servers = config.servers.max(1);
        let driver = ServerDriver::new(config);
        let mut tasks = JoinSet::new();
        tasks.spawn(alarm(Arc::clone(&driver)));
        let (mut ports, mut listeners) = (Vec::new(), Vec::new());
        for member in 0..servers {
            let addr = member_addr(addr, member)?;
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{addr}: {error}"));
            let (port, listener) = KeptPort::listen(addr).await.map_err(named)?;
            let addr = port.addr();
            let host = addr.ip().to_string();
            driver.with(|machine, _| machine.set_client_address(member, &host, addr.port()));
            ports.push(port);
            listeners.push(Some(Listening::start(&mut tasks, &driver, member, listener)));
        }
        Ok(Self { driver, ports, listeners: Mutex::new(listeners), tasks: Mutex::new(tasks) })
    }

    /// The address on which a member listens.
    #[must_use]
    pub fn addr(&self, member: usize) -> Option<SocketAddr> {
        self.ports.get(member).map(KeptPort::addr)
    }

    /// The addresses of all members as a connect string.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.ports.iter().map(|port| port.addr().to_string()).collect::<Vec<_>>().join(",")
    }

    /// Opens an in-memory connection to a member. Returns `None` while the member is stopped.
    #[must_use]
    pub fn connect(
        &self,
        member: usize,
    ) -> Option<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        self.driver.connect(member)
    }

    /// The role of a member.
    #[must_use]
    pub fn role(&self, member: usize) -> Role {
        self.driver.with(|machine, _| machine.role(member))
    }

    /// The current leader.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.driver.with(|machine, _| machine.leader())
    }

    /// Stops a member: its connections end, and new ones are refused once this returns.
    pub fn stop(&self, member: usize) {
        self.driver.with(|machine, now| machine.stop_member(now, member));
        let listening = self.listeners().get_mut(member).and_then(Option::take);
        drop(listening);
    }

    /// Starts a stopped member again, on the same port.
    ///
    /// # Errors
    ///
    /// If another process has taken the port, which is kept from others on Linux only.
    pub async fn restart(&self, member: usize) -> io::Result<()> {
        let Some(port) = self.ports.get(member) else { return Err(io::ErrorKind::NotFound.into()) };
        self.stop(member);
        let listener = port.listen_again().await?;
        self.driver.with(|machine, now| machine.start_member(now, member));
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let listening = Listening::start(&mut tasks, &self.driver, member, listener);
        if let Some(slot) = self.listeners().get_mut(member) {
            *slot = Some(listening);
        }
        Ok(())
    }

    /// Makes a member apply changes only for its own clients' writes and, on a follower, for `sync`. Its clients read
    /// stale values meanwhile. `false` lets the member catch up.
    pub fn set_lag(&self, member: usize, lags: bool) {
        self.driver.with(|machine, now| machine.set_lag(now, member, lags));
    }

    /// Cuts a link in one direction; see [`Ensemble::cut`].
    pub fn cut(&self, from: impl Into<Peer>, to: impl Into<Peer>) {
        self.driver.with(|machine, now| machine.cut(now, from, to));
    }

    /// Heals a link in one direction; see [`Ensemble::heal`].
    pub fn heal(&self, from: impl Into<Peer>, to: impl Into<Peer>) {
        self.driver.with(|machine, now| machine.heal(now, from, to));
    }

    /// Cuts all links between a member and the other members; see [`Ensemble::isolate`].
    pub fn isolate(&self, member: usize) {
        self.driver.with(|machine, now| machine.isolate(now, member));
    }

    /// Heals all links.
    pub fn heal_all(&self) {
        self.driver.with(Ensemble::heal_all);
    }

    /// Stalls a member, or ends the stall. A stalled member reads and answers nothing.
    pub fn set_stalled(&self, member: usize, stalled: bool) {
        if let Some(server) = self.driver.stalled.get(member) {
            server.send_replace(stalled);
        }
    }

    /// See [`TestingServer::expire_session`](super::TestingServer::expire_session).
    pub fn expire_session(&self, session_id: i64) -> bool {
        self.driver.with(|machine, _| machine.expire_session(session_id))
    }

    /// Cuts all connections of a member; sessions survive. Returns the number of connections cut.
    pub fn cut_connections(&self, member: usize) -> usize {
        self.driver.with(|machine, _| machine.cut_connections(Some(member)))
    }

    /// Calls the state machine directly, with the current instant.
    pub fn machine<R>(&self, call: impl FnOnce(&mut Ensemble, Duration) -> R) -> R {
        self.driver.with(call)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Option<Listening>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a member, given that of the first one.
fn member_addr(first: SocketAddr, member: usize) -> io::Result<SocketAddr> {
    let port = match first.port() {
        0 => Some(0),
        port => u16::try_from(member).ok().and_then(|member| port.checked_add(member)),
    };
    let too_many = || io::Error::new(io::ErrorKind::InvalidInput, "too few ports behind the first");
    Ok(SocketAddr::new(first.ip(), port.ok_or_else(too_many)?))
}
