//! A recording proxy in front of a ZooKeeper server, with faults on request.
//!
//! A [`Tap`] listens on loopback, passes every byte on to its upstream and back, and keeps a
//! [`Record`] of every frame: direction, connection, client, operation, all parts. A test can look at
//! the [`Trace`], wait until something has passed ([`Tap::wait_for`]), and hurt the connection in
//! every way that a network can: [`Tap::inject`] for one frame, [`Controls`] for all of them.
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
//! Records are kept in memory until the tap is dropped; [`Tap::keep`] says how many.
//!
//! Names of clients: who connects through [`Tap::client`] has its label; who connects to the tap's own
//! port gets the next letter with each new session, and keeps it as long as the session.

mod compare;
mod conversation;
mod json;
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

use tokio::{sync::watch, task::JoinSet, time::timeout};

use self::proxy::{Lane, Shared, Switches};
pub use docent_protocol::follow::Direction;

pub use self::{
    compare::{CompareOptions, Difference, compare},
    json::json,
    kill_session::kill_session,
    record::{Field, Record, Side, Value, What, reply_fields, request_fields},
    text::{Printer, TextOptions, line, lines},
    trace::Trace,
};
use crate::fault::Fault;

/// A recording proxy. Dropping it closes its ports and connections.
#[derive(Debug)]
pub struct Tap {
    shared: Arc<Shared>,
    lanes: Mutex<Vec<Arc<Lane>>>,
    addr: SocketAddr,
    tasks: Mutex<JoinSet<()>>,
}

impl Tap {
    /// Starts one on a free loopback port in front of `upstream`, `host:port`.
    ///
    /// # Errors
    ///
    /// When no port can be bound. An upstream that is not there shows when a client connects: its
    /// connection is closed.
    pub async fn start(upstream: &str) -> io::Result<Self> {
        Self::listen((Ipv4Addr::LOCALHOST, 0).into(), upstream).await
    }

    /// As [`start`](Self::start), on an address of the caller's choice.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound.
    pub async fn listen(addr: SocketAddr, upstream: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(upstream));
        let mut tasks = JoinSet::new();
        let lane = proxy::open_lane(&shared, Arc::from(""), addr, &mut tasks).await?;
        let addr = lane.addr;
        Ok(Self { shared, lanes: Mutex::new(vec![lane]), addr, tasks: Mutex::new(tasks) })
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

    /// Opens a port of its own for one client; all that passes there is recorded under `label`.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn client(&self, label: &str) -> io::Result<TapClient> {
        // The lock on the tasks is not held while the port is bound.
        let mut tasks = JoinSet::new();
        let addr = (Ipv4Addr::LOCALHOST, 0).into();
        let lane = proxy::open_lane(&self.shared, Arc::from(label), addr, &mut tasks).await?;
        self.shared.state().desk.labels.insert(Arc::from(label));
        self.lanes().push(Arc::clone(&lane));
        let guard = async move { while tasks.join_next().await.is_some() {} };
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(guard);
        let controls = Controls { lanes: vec![Arc::clone(&lane)] };
        Ok(TapClient { shared: Arc::clone(&self.shared), lane, controls })
    }

    /// Sends clients to another server from their next connection on.
    pub fn set_upstream(&self, upstream: &str) {
        self.shared.set_upstream(upstream);
    }

    /// Lets a fault wait for its frame.
    pub fn inject(&self, fault: Fault) {
        self.shared.state().desk.faults.add(fault);
    }

    /// What the choices of faults by chance follow from.
    pub fn seed(&self, seed: u64) {
        self.shared.state().desk.faults.seed(seed);
    }

    /// Forgets all faults that still wait.
    pub fn clear_faults(&self) {
        self.shared.state().desk.faults.clear();
    }

    /// Writes a line of the test's own into the trace.
    pub fn note(&self, text: &str) {
        self.shared.note(text);
    }

    /// Keeps only the last `limit` records, at least 1. (1,000,000 unless this is called.)
    pub fn keep(&self, limit: usize) {
        self.shared.state().limit = limit;
    }

    /// Everything so far.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace::new(self.shared.state().records.iter().cloned().collect())
    }

    /// How many records there are; the `seq` of the next one.
    #[must_use]
    pub fn len(&self) -> u64 {
        *self.shared.count.borrow()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A subscription that begins with the next record.
    #[must_use]
    pub fn follow(&self) -> Follow {
        self.follow_from(self.len())
    }

    /// A subscription that begins with the record `seq`; 0 is the first.
    #[must_use]
    pub fn follow_from(&self, seq: u64) -> Follow {
        Follow { shared: Arc::clone(&self.shared), count: self.shared.count.subscribe(), next: seq }
    }

    /// Waits for the first record, from the beginning of the trace, that `wanted` accepts.
    ///
    /// # Errors
    ///
    /// When `deadline` has passed; the error shows the end of the trace.
    pub async fn wait_for(
        &self,
        deadline: Duration,
        wanted: impl FnMut(&Record) -> bool,
    ) -> Result<Arc<Record>, WaitError> {
        self.follow_from(0).until(deadline, wanted).await
    }

    /// Ends a client's session as Curator's `KillSession` does: attaches to it from a second
    /// connection, which ends the first, and closes it.
    ///
    /// # Errors
    ///
    /// `NotFound` when no session of that label has passed the tap, and whatever the second connection
    /// meets; `TimedOut` after `deadline`.
    pub async fn kill_session(&self, label: &str, deadline: Duration) -> io::Result<()> {
        kill(&self.shared, label, deadline).await
    }

    /// Faults on the connections of all clients, those of [`client`](Self::client) so far included.
    #[must_use]
    pub fn everyone(&self) -> Controls {
        Controls { lanes: self.lanes().clone() }
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Faults on every connection at once: of all clients ([`Tap::everyone`]), or of one ([`TapClient`]).
#[derive(Debug, Clone)]
pub struct Controls {
    lanes: Vec<Arc<Lane>>,
}

impl Controls {
    fn change(&self, change: impl Fn(&mut Switches)) {
        for lane in &self.lanes {
            lane.switches.send_modify(&change);
        }
    }

    /// Cuts all open connections now. New ones are accepted.
    pub fn cut(&self) {
        self.change(|switches| switches.cut += 1);
    }

    /// Cuts when that many more bytes of a direction have passed, in the middle of a frame if need be.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.lanes.iter().for_each(|lane| lane.set_budget(direction, Some(bytes)));
    }

    /// Lets nothing pass in either direction, as a network does that swallows everything. Connections
    /// are accepted and stay silent.
    pub fn hold(&self) {
        self.change(|switches| switches.hold = true);
    }

    /// Ends [`hold`](Self::hold): what was held back goes out, in order.
    pub fn resume(&self) {
        self.change(|switches| switches.hold = false);
    }

    /// Whether each byte is sent by itself.
    pub fn split_writes(&self, split: bool) {
        self.change(|switches| switches.split = split);
    }

    /// Closes the port: new connections are refused by the system. Open ones stay.
    ///
    /// # Errors
    ///
    /// When the tap is gone.
    pub async fn refuse(&self) -> io::Result<()> {
        self.set_refuse(true).await
    }

    /// Ends [`refuse`](Self::refuse), on the same port.
    ///
    /// # Errors
    ///
    /// When somebody else has taken the port.
    pub async fn accept(&self) -> io::Result<()> {
        self.set_refuse(false).await
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.lanes.iter().map(|lane| *lane.open.borrow()).sum()
    }

    async fn set_refuse(&self, refuse: bool) -> io::Result<()> {
        for lane in &self.lanes {
            let mut listening = lane.listening.subscribe();
            // Marked as not yet done before the accept loop is told.
            let _ = lane.listening.send_replace(Ok(refuse));
            lane.switches.send_modify(|switches| switches.refuse = refuse);
            match listening.wait_for(|listening| *listening != Ok(refuse)).await.map(|now| *now) {
                Ok(Ok(_)) => {}
                Ok(Err(kind)) => return Err(kind.into()),
                Err(_) => return Err(io::ErrorKind::NotConnected.into()),
            }
        }
        Ok(())
    }
}

/// One client of a [`Tap`], with a port of its own.
///
/// Dereferences to its [`Controls`].
#[derive(Debug, Clone)]
pub struct TapClient {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    controls: Controls,
}

impl Deref for TapClient {
    type Target = Controls;

    fn deref(&self) -> &Controls {
        &self.controls
    }
}

impl TapClient {
    /// Where this client has to connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.lane.addr
    }

    /// Where this client has to connect to, as a client takes it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.lane.addr.to_string()
    }

    /// Its label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.lane.label
    }

    /// As [`Tap::kill_session`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn kill_session(&self, deadline: Duration) -> io::Result<()> {
        kill(&self.shared, &self.lane.label, deadline).await
    }

    /// The session this client had last, once it has one.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.shared.state().desk.sessions.get(&*self.lane.label).map(|session| session.id)
    }
}

async fn kill(shared: &Shared, label: &str, deadline: Duration) -> io::Result<()> {
    let session = shared.state().desk.sessions.get(label).cloned();
    let Some(session) = session else {
        let text = format!("no session of {label} has passed the tap");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    };
    kill_session(&shared.upstream(), session.id, &session.passwd, deadline).await
}

/// Records as they come.
#[derive(Debug)]
pub struct Follow {
    shared: Arc<Shared>,
    count: watch::Receiver<u64>,
    next: u64,
}

impl Follow {
    /// The next record.
    ///
    /// # Errors
    ///
    /// When there is none within `deadline`.
    pub async fn next(&mut self, deadline: Duration) -> Result<Arc<Record>, WaitError> {
        self.until(deadline, |_| true).await
    }

    /// The next record that `wanted` accepts; those before it are skipped.
    ///
    /// # Errors
    ///
    /// When `deadline` has passed; the error shows the end of the trace.
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
        // Those that were forgotten meanwhile are passed over.
        self.next = self.next.max(state.forgotten);
        let at = usize::try_from(self.next - state.forgotten).ok()?;
        let record = state.records.get(at).cloned()?;
        self.next += 1;
        Some(record)
    }
}

/// Nothing like it has passed in time. Shows the end of the trace.
#[derive(Debug, Clone)]
pub struct WaitError {
    last: Vec<String>,
}

/// How many lines of the trace an error shows.
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
