//! A proxy that counts the frames of one client, and cuts its connection.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use xtask::Result;

/// Longer ones are text.
const MAX_FRAME: u32 = 256 << 20;

/// How long no frame passes before an exchange counts as complete.
const QUIET: Duration = Duration::from_millis(500);

/// The frames since the last [`Proxy::reset`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// The requests of callers: neither handshakes nor pings.
    pub(super) requests: u64,
    pub(super) most_in_flight: u64,
    /// The bytes of all frames, in both directions.
    pub(super) bytes: u64,
    /// Of both directions, with handshakes and pings.
    pub(super) frames: u64,
    /// Those that clients have opened.
    pub(super) connections: u64,
    /// Those among them that were for a session.
    pub(super) handshakes: u64,
    in_flight: u64,
    /// When the last frame passed that is no ping.
    pub(super) last: Instant,
    /// When the last handshake was answered.
    pub(super) connected: Instant,
}

impl Counts {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            requests: 0,
            most_in_flight: 0,
            bytes: 0,
            frames: 0,
            connections: 0,
            handshakes: 0,
            in_flight: 0,
            last: now,
            connected: now,
        }
    }
}

struct Shared {
    counts: Mutex<Counts>,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(super) fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared =
            Arc::new(Shared { counts: Mutex::new(Counts::new()), sockets: Mutex::new(Vec::new()) });
        let proxy = Self { address, shared: Arc::clone(&shared) };
        // Ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Err(error) = connect(&shared, client, server) {
                    eprintln!("xtask: proxy: {error}");
                }
            }
        });
        Ok(proxy)
    }

    /// Begins to count anew.
    pub(super) fn reset(&self) {
        let mut counts = self.shared.counts();
        *counts = Counts { in_flight: counts.in_flight, ..Counts::new() };
    }

    pub(super) fn counts(&self) -> Counts {
        *self.shared.counts()
    }

    /// Closes all connections.
    pub(super) fn cut(&self) {
        for socket in self.shared.sockets().drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until at least one request was answered, none is in flight, and nothing happens any more.
    pub(super) fn wait_until_quiet(&self, limit: Duration) -> Result<Counts> {
        let deadline = Instant::now() + limit;
        loop {
            let counts = self.counts();
            let is_done = counts.requests > 0 && counts.in_flight == 0;
            if is_done && counts.last.elapsed() > QUIET {
                return Ok(counts);
            }
            if Instant::now() > deadline {
                return Err(format!("still busy after {limit:?}: {counts:?}").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn connect(shared: &Arc<Shared>, client: TcpStream, server: SocketAddr) -> Result<()> {
    let server = TcpStream::connect(server)?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        shared.sockets().push(socket.try_clone()?);
    }
    let mut counts = shared.counts();
    counts.in_flight = 0;
    counts.connections += 1;
    drop(counts);
    let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
    let (requests, replies) = (Arc::clone(shared), Arc::clone(shared));
    thread::spawn(move || forward(from_client, server, |frame| request(&requests, frame)));
    thread::spawn(move || forward(from_server, client, |frame| reply(&replies, frame)));
    Ok(())
}

/// The beginning of a frame: its length without the four bytes of the length, and its first number. The first frame of
/// a direction belongs to the handshake.
struct Frame {
    length: u64,
    xid: i32,
    is_handshake: bool,
}

fn request(shared: &Shared, frame: &Frame) {
    let mut counts = shared.counts();
    counts.bytes += frame.length + 4;
    counts.frames += 1;
    if frame.is_handshake {
        counts.handshakes += 1;
    }
    if frame.is_handshake || frame.xid < 0 {
        return;
    }
    counts.requests += 1;
    counts.in_flight += 1;
    counts.most_in_flight = counts.most_in_flight.max(counts.in_flight);
    counts.last = Instant::now();
}

fn reply(shared: &Shared, frame: &Frame) {
    const PING: i32 = -2;
    let mut counts = shared.counts();
    counts.bytes += frame.length + 4;
    counts.frames += 1;
    let now = Instant::now();
    if frame.is_handshake {
        counts.connected = now;
    } else if frame.xid >= 0 {
        counts.in_flight = counts.in_flight.saturating_sub(1);
    }
    if frame.xid != PING {
        counts.last = now;
    }
}

/// Copies bytes until either side is closed.
fn forward(mut from: TcpStream, mut to: TcpStream, mut on_frame: impl FnMut(&Frame)) {
    let mut buffer = vec![0; 256 * 1024];
    let mut head: Vec<u8> = Vec::new();
    let (mut skip, mut is_handshake) = (0, true);
    while let Ok(read) = from.read(&mut buffer) {
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (skipped, behind) = rest.split_at(rest.len().min(skip));
            skip -= skipped.len();
            let (more, behind) = behind.split_at(behind.len().min(8 - head.len()));
            head.extend(more);
            rest = behind;
            if let [l0, l1, l2, l3, x0, x1, x2, x3] = head[..] {
                let length = u32::from_be_bytes([l0, l1, l2, l3]);
                let xid = i32::from_be_bytes([x0, x1, x2, x3]);
                if length > MAX_FRAME {
                    // Not frames but the reply to a four-letter word.
                    skip = usize::MAX;
                } else {
                    on_frame(&Frame { length: length.into(), xid, is_handshake });
                    is_handshake = false;
                    skip = usize::try_from(length).unwrap_or(usize::MAX).saturating_sub(4);
                }
                head.clear();
            }
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
