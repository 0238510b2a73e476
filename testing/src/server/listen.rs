//! The sockets, tasks and clock around an [`Ensemble`]: one accept loop per member, one task per connection, one
//! alarm.
//!
//! The machine is behind one lock, which is held only for computation, never across an await. Each caller wakes the
//! connections that have output after its call.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use super::{Config, ConnectionId, Ensemble};

/// The read size, and the capacity of an in-memory connection, in bytes.
const BUFFER: usize = 64 * 1024;

/// The output in a connection's task above which it takes no more from the machine, in bytes.
const OUTPUT: usize = 16 * BUFFER;

/// The read size of a connection that has not sent much, in bytes. Of 10,000 connections, most never do.
const SMALL_BUFFER: usize = 4 * 1024;

/// The state shared by all tasks of one server or cluster.
#[derive(Debug)]
pub(crate) struct ServerDriver {
    inner: Mutex<Inner>,
    started: Instant,
    /// The start by the system's clock, which no test pauses. `None` if the configuration has an epoch: the machine's
    /// wall clock is then that epoch plus the time since the start.
    zero: Option<std::time::Instant>,
    /// Wakes the alarm when a timeout is due earlier than it is set.
    alarm: Notify,
    /// Whether each member is stalled; a stalled member reads and writes nothing.
    pub(crate) stalled: Vec<watch::Sender<bool>>,
    #[cfg(feature = "tls-no-provider")]
    tls: Option<super::Tls>,
}

#[derive(Debug)]
struct Inner {
    machine: Ensemble,
    wakes: BTreeMap<ConnectionId, Arc<Notify>>,
    /// The instant for which the alarm is set.
    armed: Option<Duration>,
}

impl ServerDriver {
    pub(crate) fn new(mut config: Config) -> Arc<Self> {
        let zero = config.epoch_ms.is_none().then(std::time::Instant::now);
        config.epoch_ms.get_or_insert_with(|| epoch_ms(Duration::ZERO));
        let stalled = (0..config.servers.max(1)).map(|_| watch::Sender::new(false)).collect();
        #[cfg(feature = "tls-no-provider")]
        let tls = config.tls.clone();
        let inner = Inner { machine: Ensemble::new(config), wakes: BTreeMap::new(), armed: None };
        Arc::new(Self {
            inner: Mutex::new(inner),
            started: Instant::now(),
            zero,
            alarm: Notify::new(),
            stalled,
            #[cfg(feature = "tls-no-provider")]
            tls,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The machine is consistent after every method returns.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the machine, then wakes the connections with pending output.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Ensemble, Duration) -> R) -> R {
        self.with_own(None, call)
    }

    /// Like [`with`](Self::with), but the caller handles its `own` connection itself.
    fn with_own<R>(
        &self,
        own: Option<ConnectionId>,
        call: impl FnOnce(&mut Ensemble, Duration) -> R,
    ) -> R {
        let now = self.started.elapsed();
        let mut inner = self.lock();
        if let Some(zero) = self.zero {
            inner.machine.follow_wall_clock(epoch_ms(zero.elapsed()));
        }
        let result = call(&mut inner.machine, now);
        while let Some(id) = inner.machine.poll_ready() {
            if own != Some(id)
                && let Some(wake) = inner.wakes.get(&id)
            {
                wake.notify_one();
            }
        }
        let due = inner.machine.poll_timeout();
        if inner.armed.is_some_and(|armed| due.is_some_and(|due| due < armed)) {
            inner.armed = None;
            self.alarm.notify_one();
        }
        result
    }

    /// Opens an in-memory connection to a member. Returns `None` while the member is stopped.
    pub(crate) fn connect(self: &Arc<Self>, member: usize) -> Option<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let id = self.accept(member, Ipv4Addr::LOCALHOST.into())?;
        tokio::spawn(serve(Arc::clone(self), member, id, ours));
        Some(theirs)
    }

    fn accept(&self, member: usize, peer: IpAddr) -> Option<ConnectionId> {
        let id = self.with(|machine, now| machine.handle_connect(now, member, peer))?;
        self.lock().wakes.insert(id, Arc::new(Notify::new()));
        Some(id)
    }
}

/// The system's wall clock now, minus the time since the start, in milliseconds since 1970. It changes when the
/// computer was suspended, because the time since the start does not include that, and when the wall clock is set.
fn epoch_ms(since_start: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.saturating_sub(since_start).as_millis()).unwrap_or(i64::MAX)
}

/// Calls the machine at each of its timeouts, forever.
pub(crate) async fn alarm(driver: Arc<ServerDriver>) {
    loop {
        let due = {
            let mut inner = driver.lock();
            inner.armed = inner.machine.poll_timeout();
            inner.armed
        };
        tokio::select! {
            () = sleep_until(driver.started + due.unwrap_or(Duration::from_secs(1))) => {
                driver.with(Ensemble::handle_timeout);
            }
            () = driver.alarm.notified() => {}
        }
    }
}

/// The socket on which a member listens. Dropping this closes the socket at once, and ends the connections.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: Socket,
    task: AbortHandle,
}

/// Shared with the task that accepts connections. The task alone would close it only when it notices that it was
/// aborted.
type Socket = Arc<Mutex<Option<TcpListener>>>;

impl Listening {
    /// Accepts connections to a member.
    pub(crate) fn start(
        tasks: &mut JoinSet<()>,
        driver: &Arc<ServerDriver>,
        member: usize,
        listener: TcpListener,
    ) -> Self {
        let socket = Arc::new(Mutex::new(Some(listener)));
        let task = tasks.spawn(listen(Arc::clone(driver), member, Arc::clone(&socket)));
        Self { socket, task }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(socket);
        self.task.abort();
    }
}

fn poll_accept(socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
    match &*socket.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(listener) => listener.poll_accept(cx),
        None => Poll::Pending,
    }
}

/// Accepts connections to a member. Dropping the future ends them too.
async fn listen(driver: Arc<ServerDriver>, member: usize, socket: Socket) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = poll_fn(|cx| poll_accept(&socket, cx)) => {
                let Ok((stream, peer)) = accepted else { continue };
                // This is an optimisation; its failure does not matter.
                let _ = stream.set_nodelay(true);
                #[cfg(feature = "tls-no-provider")]
                if let Some(tls) = driver.tls.clone() {
                    connections.spawn(serve_tls(Arc::clone(&driver), member, peer.ip(), tls, stream));
                    continue;
                }
                if let Some(id) = driver.accept(member, peer.ip()) {
                    connections.spawn(serve(Arc::clone(&driver), member, id, stream));
                }
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Any free loopback port.
pub(crate) fn free_loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Serves a connection with TLS. The machine learns of it once the handshake is complete.
#[cfg(feature = "tls-no-provider")]
async fn serve_tls(
    driver: Arc<ServerDriver>,
    member: usize,
    peer: IpAddr,
    tls: super::Tls,
    stream: TcpStream,
) {
    let Some(mut stalled) = driver.stalled.get(member).map(watch::Sender::subscribe) else {
        return;
    };
    // The process of a stalled member does not continue a handshake either.
    if stalled.wait_for(|stalled| !*stalled).await.is_err() {
        return;
    }
    // A failed handshake ends the connection; rustls has sent its alert.
    if let Ok((stream, subject)) = tls.accept(stream).await
        && let Some(id) = driver.accept(member, peer)
    {
        if let Some(subject) = subject {
            driver.with(|machine, _| machine.prove_x509(id, &subject));
        }
        serve(driver, member, id, stream).await;
    }
}

/// Writes a part of the output and returns its length, or flushes the stream if there is none. A TCP stream has nothing
/// to flush; a TLS stream buffers the end of a write.
async fn push(writer: &mut (impl AsyncWrite + Unpin), output: &[u8]) -> io::Result<usize> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(0);
    }
    match writer.write(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        len => Ok(len),
    }
}

/// Reports the end of a connection to the machine, even if the connection's task is dropped.
struct Ended<'a>(&'a ServerDriver, ConnectionId);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.with(|machine, now| machine.handle_disconnected(now, self.1));
        self.0.lock().wakes.remove(&self.1);
    }
}

/// Moves the bytes between a connection and the machine.
async fn serve(
    driver: Arc<ServerDriver>,
    member: usize,
    id: ConnectionId,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) {
    let _ended = Ended(&driver, id);
    let wake = driver.lock().wakes.get(&id).cloned().unwrap_or_default();
    let Some(mut stalled) = driver.stalled.get(member).map(watch::Sender::subscribe) else {
        return;
    };
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut input, mut output) = (vec![0; SMALL_BUFFER], BytesMut::new());
    let (mut is_large, mut flushed) = (false, true);
    loop {
        // While the client does not read, the machine keeps the rest of its output.
        let (closed, wants_input) = driver.with_own(Some(id), |machine, _| {
            if output.len() < OUTPUT {
                machine.poll_transmit_into(id, &mut output);
            }
            (machine.is_closed(id), machine.wants_input(id))
        });
        is_large |= output.len() > BUFFER;
        if closed && output.is_empty() && flushed {
            let _ = writer.shutdown().await;
            return;
        }
        let passes = !*stalled.borrow_and_update();
        let reads = passes && !closed && wants_input && output.len() < OUTPUT;
        tokio::select! {
            // Polled first, so that no bytes pass after a stall begins.
            biased;
            changed = stalled.changed() => if changed.is_err() {
                return;
            },
            written = push(&mut writer, &output), if passes && !(output.is_empty() && flushed) => match written {
                Ok(len) => {
                    output.advance(len);
                    flushed = len == 0;
                    if output.is_empty() && std::mem::take(&mut is_large) {
                        output = BytesMut::new();
                    }
                }
                Err(_) => return,
            },
            read = reader.read(&mut input), if reads => match read {
                Ok(len) if len > 0 => {
                    let bytes = input.get(..len).unwrap_or_default();
                    driver.with_own(Some(id), |machine, now| machine.handle_input(now, id, bytes));
                    if len == input.len() && len < BUFFER {
                        input.resize(BUFFER, 0);
                    }
                }
                _ => return,
            },
            () = wake.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    /// The epoch is set an hour too early, as it is after a suspension of an hour.
    // Case (Found in docent itself): after a suspension of the computer, `ctime` and `mtime` of the
    // embedded server, and the ends of its nodes with a time to live, were behind the wall clock.
    #[tokio::test(start_paused = true)]
    async fn times_of_nodes_follow_the_wall_clock_and_virtual_time() {
        let driver = ServerDriver::new(Config::default());
        let wall_ms = || {
            driver.with(|machine, now| {
                machine.handle_timeout(now);
                machine.wall_ms()
            })
        };
        let start = epoch_ms(Duration::ZERO);
        let is_at = |wanted: i64| assert!((wall_ms() - wanted).abs() < 60_000, "{wanted}");
        driver.lock().machine.follow_wall_clock(start - HOUR_MS);
        is_at(start);
        tokio::time::advance(Duration::from_secs(3600)).await;
        is_at(start + HOUR_MS);
        // The small differences between readings of two clocks make no time go back.
        assert_eq!(wall_ms(), wall_ms());
    }

    #[tokio::test(start_paused = true)]
    async fn a_configured_epoch_stays() {
        let driver = ServerDriver::new(Config { epoch_ms: Some(5000), ..Config::default() });
        tokio::time::advance(Duration::from_secs(1)).await;
        let wall_ms = driver.with(|machine, now| {
            machine.handle_timeout(now);
            machine.wall_ms()
        });
        assert_eq!(wall_ms, 6000);
    }
}
