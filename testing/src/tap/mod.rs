//! A recording proxy in front of a ZooKeeper server, with fault injection.
//!
//! A [`Tap`] listens on loopback, forwards every byte between client and server, and keeps a [`Record`] of every frame:
//! direction, connection, client, operation and all fields. A test can inspect the [`Trace`], wait for a frame
//! ([`Tap::wait_for`]), and inject network failures: [`Tap::inject`] hits one frame, [`Controls`] hit all frames.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use std::time::Duration;
//! use docent_protocol::OpCode;
//! use docent_testing::{fault::Fault, tap::Tap};
//!
//! let tap = Tap::start("127.0.0.1:2181").await?;
//! let a = tap.client("A").await?; // a port of its own, so that its frames are A's
//! tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
//! // ... connect a client to a.connect_string(), take a lock ...
//! tap.wait_for(Duration::from_secs(5), |record| record.is_reply(OpCode::Create2)).await?;
//! println!("{}", tap.trace().text());
//! # Ok(())
//! # }
//! ```
//!
//! Records stay in memory until the tap is dropped; [`Tap::keep`] limits their number.
//!
//! Names of clients: a client that connects through [`Tap::client`] has that label. A client that connects to the
//! tap's main port gets the next letter with each new session, and keeps it for the lifetime of the session.

mod capture;
mod conversation;
mod kill_session;
mod proxy;
mod record;
mod text;
mod trace;

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use self::proxy::{Port, Settings, Shared};
pub use docent_protocol::{ErrorCode, dissect::Direction};

use self::text::lines;
pub use self::{
    capture::{Capture, Line, Segment},
    kill_session::kill_session,
    record::{Field, Record, Side, Value, What, reply_fields},
    text::{Printer, TextOptions},
    trace::Trace,
};
use crate::fault::Fault;

/// The most reads of the sockets that wait for the subscriber of [`Tap::capture`].
const CAPTURED_READS: usize = 1024;

/// A recording proxy. Dropping it closes its ports and connections.
#[derive(Debug)]
pub struct Tap {
    shared: Arc<Shared>,
    main: Arc<Port>,
    /// All ports, including the main one.
    ports: Mutex<Vec<Arc<Port>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Tap {
    /// Starts a tap on a free loopback port, in front of `upstream` (`host:port`).
    ///
    /// # Errors
    ///
    /// If no port can be bound. An unreachable upstream is noticed only when a client connects: that connection is
    /// closed.
    pub async fn start(upstream: &str) -> io::Result<Self> {
        Self::listen((Ipv4Addr::LOCALHOST, 0).into(), upstream).await
    }

    /// Like [`start`](Self::start), on a given address.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen(addr: SocketAddr, upstream: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(upstream));
        let mut tasks = JoinSet::new();
        let port = proxy::open_port(&shared, Arc::from(""), addr, &mut tasks).await?;
        let ports = Mutex::new(vec![Arc::clone(&port)]);
        Ok(Self { shared, main: port, ports, tasks: Mutex::new(tasks) })
    }

    /// The listening address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.main.addr()
    }

    /// The listening address, as a connect string.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    /// Opens a dedicated port for one client; all traffic on it is recorded under `label`.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn client(&self, label: &str) -> io::Result<TapClient> {
        // The lock on the tasks is not held while the port is bound.
        let mut tasks = JoinSet::new();
        let addr = (Ipv4Addr::LOCALHOST, 0).into();
        let port = proxy::open_port(&self.shared, Arc::from(label), addr, &mut tasks).await?;
        self.shared.state().registry.labels.insert(Arc::from(label));
        self.ports().push(Arc::clone(&port));
        let guard = async move { while tasks.join_next().await.is_some() {} };
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(guard);
        let controls = Controls { ports: vec![Arc::clone(&port)] };
        Ok(TapClient { shared: Arc::clone(&self.shared), port, controls })
    }

    /// Replaces the upstream server for all future connections.
    pub fn set_upstream(&self, upstream: &str) {
        self.shared.set_upstream(upstream);
    }

    /// Adds a fault, which stays pending until its frame arrives.
    pub fn inject(&self, fault: Fault) {
        self.shared.state().registry.faults.add(fault);
    }

    /// Seeds the random choices of [`Fault::one_in`].
    pub fn seed(&self, seed: u64) {
        self.shared.state().registry.faults.seed(seed);
    }

    /// Removes all pending faults.
    pub fn clear_faults(&self) {
        self.shared.state().registry.faults.clear();
    }

    /// Ends the delays in progress: each frame that is delayed, and is in the trace already, is sent now.
    /// Pending faults stay.
    pub fn end_delays(&self) {
        self.shared.delays.send_replace(());
    }

    /// Adds a comment line to the trace.
    pub fn note(&self, text: &str) {
        self.shared.note(text);
    }

    /// Keeps only the last `limit` records, at least 1. The default is 1,000,000.
    pub fn keep(&self, limit: usize) {
        self.shared.state().limit = limit;
    }

    /// A snapshot of all records so far.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace::new(self.shared.state().records.iter().cloned().collect())
    }

    /// The number of records so far, which is the `seq` of the next one.
    #[must_use]
    pub fn len(&self) -> u64 {
        *self.shared.count.borrow()
    }

    /// Whether nothing has been recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A subscription that starts with the next record.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_from(self.len())
    }

    /// A subscription that starts with the record `seq`; 0 is the first.
    #[must_use]
    pub fn subscribe_from(&self, seq: u64) -> Subscription {
        Subscription {
            shared: Arc::clone(&self.shared),
            count: self.shared.count.subscribe(),
            next: seq,
        }
    }

    /// The bytes of all connections from now on, as they arrive, in the order of the records. They contain the passwords of
    /// sessions, and credentials. Earlier subscriptions end. The tap does not forward bytes that its subscriber has not
    /// made room for: up to 1,024 reads wait.
    #[must_use]
    pub fn capture(&self) -> Capture {
        let (sender, receiver) = mpsc::channel(CAPTURED_READS);
        self.shared.state().capture = Some(sender);
        Capture(receiver)
    }

    /// Waits for the first record, from the start of the trace, that `wanted` accepts.
    ///
    /// # Errors
    ///
    /// If `deadline` passes first; the error shows the end of the trace.
    pub async fn wait_for(
        &self,
        deadline: Duration,
        wanted: impl FnMut(&Record) -> bool,
    ) -> Result<Arc<Record>, WaitError> {
        self.subscribe_from(0).until(deadline, wanted).await
    }

    /// Ends a client's session like Curator's `KillSession`: attaches to it on a second connection, which ends the
    /// first one, and closes it. The client's port is stalled meanwhile (the main port with all its clients, if the
    /// client has none of its own): a client that reconnected in between would take its session back.
    ///
    /// # Errors
    ///
    /// `NotFound` if no session of that label has passed the tap, `TimedOut` after `deadline`, or any error of the
    /// second connection.
    pub async fn kill_session(&self, label: &str, deadline: Duration) -> io::Result<()> {
        let ports = self.all_clients().ports;
        let own = ports.iter().find(|port| *port.label == *label);
        kill(&self.shared, own.unwrap_or(&self.main), label, deadline).await
    }

    /// Fault controls for the connections of all clients, including the [`client`](Self::client) ports opened so far.
    #[must_use]
    pub fn all_clients(&self) -> Controls {
        Controls { ports: self.ports().clone() }
    }

    fn ports(&self) -> MutexGuard<'_, Vec<Arc<Port>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fault controls for all connections of every client ([`Tap::all_clients`]) or of one client ([`TapClient`]).
#[derive(Debug, Clone)]
pub struct Controls {
    ports: Vec<Arc<Port>>,
}

impl Controls {
    fn change(&self, change: impl Fn(&mut Settings)) {
        for port in &self.ports {
            port.settings.send_modify(&change);
        }
    }

    /// Cuts all open connections now. New ones are accepted.
    pub fn cut(&self) {
        self.change(|settings| settings.cut += 1);
    }

    /// Cuts the connection after `bytes` more bytes in `direction`, possibly in the middle of a frame.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.ports.iter().for_each(|port| port.set_budget(direction, Some(bytes)));
    }

    /// Stalls both directions, like a network that drops every packet. New connections are accepted and stay silent.
    pub fn stall(&self) {
        self.change(|settings| settings.stalled = true);
    }

    /// Ends [`stall`](Self::stall): the delayed bytes are delivered in order.
    pub fn resume(&self) {
        self.change(|settings| settings.stalled = false);
    }

    /// Sets whether each byte is sent in a separate write.
    pub fn split_writes(&self, split: bool) {
        self.change(|settings| settings.split = split);
    }

    /// Closes the port: the system refuses new connections. Open connections stay.
    ///
    /// # Errors
    ///
    /// If the tap has been dropped.
    pub async fn refuse(&self) -> io::Result<()> {
        self.set_refuse(true).await
    }

    /// Ends [`refuse`](Self::refuse), on the same port.
    ///
    /// # Errors
    ///
    /// If another process has taken the port, which is kept from others on Linux only.
    pub async fn accept(&self) -> io::Result<()> {
        self.set_refuse(false).await
    }

    /// The number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.ports.iter().map(|port| *port.open.borrow()).sum()
    }

    async fn set_refuse(&self, refuse: bool) -> io::Result<()> {
        for port in &self.ports {
            let mut listening = port.listening.subscribe();
            // Marked as pending before the accept loop is notified.
            let _ = port.listening.send_replace(Ok(refuse));
            port.settings.send_modify(|settings| settings.refuse = refuse);
            match listening.wait_for(|listening| *listening != Ok(refuse)).await.map(|now| *now) {
                Ok(Ok(_)) => {}
                Ok(Err(kind)) => return Err(kind.into()),
                Err(_) => return Err(io::ErrorKind::NotConnected.into()),
            }
        }
        Ok(())
    }
}

/// One client of a [`Tap`], with a dedicated port.
///
/// Dereferences to its [`Controls`].
#[derive(Debug, Clone)]
pub struct TapClient {
    shared: Arc<Shared>,
    port: Arc<Port>,
    controls: Controls,
}

impl Deref for TapClient {
    type Target = Controls;

    fn deref(&self) -> &Controls {
        &self.controls
    }
}

impl TapClient {
    /// The address for this client to connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The address for this client to connect to, as a connect string.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.port.addr().to_string()
    }

    /// The client's label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.port.label
    }

    /// Like [`Tap::kill_session`], for this client.
    ///
    /// # Errors
    ///
    /// The same as for [`Tap::kill_session`].
    pub async fn kill_session(&self, deadline: Duration) -> io::Result<()> {
        kill(&self.shared, &self.port, &self.port.label, deadline).await
    }

    /// The id of this client's latest session; `None` before its first one.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.shared.state().registry.sessions.get(&*self.port.label).map(|session| session.id)
    }
}

async fn kill(shared: &Shared, port: &Port, label: &str, deadline: Duration) -> io::Result<()> {
    let session = shared.state().registry.sessions.get(label).cloned();
    let Some(session) = session else {
        let text = format!("no session of {label} has passed the tap");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    };
    let _stalled = Kill::new(port);
    kill_session(&shared.upstream(), session.id, &session.passwd, deadline).await
}

/// Stalls a port until dropped.
struct Kill<'a>(&'a Port);

impl<'a> Kill<'a> {
    fn new(port: &'a Port) -> Self {
        port.settings.send_modify(|settings| settings.kills += 1);
        Self(port)
    }
}

impl Drop for Kill<'_> {
    fn drop(&mut self) {
        self.0.settings.send_modify(|settings| settings.kills -= 1);
    }
}

/// A subscription to the records of a [`Tap`].
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    count: watch::Receiver<u64>,
    next: u64,
}

impl Subscription {
    /// Returns the next record.
    ///
    /// # Errors
    ///
    /// If no record arrives within `deadline`.
    pub async fn next(&mut self, deadline: Duration) -> Result<Arc<Record>, WaitError> {
        self.until(deadline, |_| true).await
    }

    /// Returns the next record that `wanted` accepts; earlier ones are skipped.
    ///
    /// # Errors
    ///
    /// If `deadline` passes first; the error shows the end of the trace.
    pub async fn until(
        &mut self,
        deadline: Duration,
        mut wanted: impl FnMut(&Record) -> bool,
    ) -> Result<Arc<Record>, WaitError> {
        let found = timeout(deadline, async {
            loop {
                self.count.borrow_and_update();
                while let Some(record) = self.take() {
                    if wanted(&record) {
                        return Some(record);
                    }
                }
                if self.count.changed().await.is_err() {
                    return None;
                }
            }
        });
        found.await.ok().flatten().ok_or_else(|| WaitError::new(&self.shared))
    }

    fn take(&mut self) -> Option<Arc<Record>> {
        let state = self.shared.state();
        // Skips records that have been evicted in the meantime.
        self.next = self.next.max(state.forgotten);
        let at = usize::try_from(self.next - state.forgotten).ok()?;
        let record = state.records.get(at).cloned()?;
        self.next += 1;
        Some(record)
    }
}

/// No matching record passed the tap in time. Shows the end of the trace.
#[derive(Debug, Clone)]
pub struct WaitError {
    last: Vec<String>,
}

/// Number of trace lines in the error.
const SHOWN_LINES: usize = 20;

impl WaitError {
    fn new(shared: &Shared) -> Self {
        let records = shared.state().records.clone();
        let mut last = lines(records.iter().map(AsRef::as_ref), TextOptions::default());
        last.drain(..last.len().saturating_sub(SHOWN_LINES));
        Self { last }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has not passed the tap in time; the last lines were")?;
        self.last.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for WaitError {}

impl From<WaitError> for io::Error {
    fn from(error: WaitError) -> Self {
        Self::new(io::ErrorKind::TimedOut, error)
    }
}
