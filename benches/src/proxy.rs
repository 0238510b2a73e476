//! A TCP proxy that counts traffic, and can cut connections, stall, or lose a reply.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use xtask::Result;

/// A longer frame is in fact text or another protocol.
const MAX_FRAME: u32 = 256 << 20;

/// An exchange is complete when no frame has passed for this time.
const QUIET: Duration = Duration::from_millis(500);

/// The traffic since the last [`Proxy::reset`]. Frames are those of ZooKeeper's protocol.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// The number of times that a client sent bytes after the server did, or first on its connection. A turn may be
    /// several requests.
    pub(crate) client_turns: u64,
    /// In both directions.
    pub(crate) bytes: u64,
    /// In both directions, including handshakes and pings.
    pub(crate) frames: u64,
    /// Requests that callers have made, without handshakes and pings.
    pub(crate) requests: u64,
    pub(crate) most_in_flight: u64,
    in_flight: u64,
    /// Connections that clients have opened.
    pub(crate) connections: u64,
    /// Handshakes that clients have sent on these connections.
    pub(crate) handshakes: u64,
    /// The time of the last frame that was not a ping.
    pub(crate) last: Option<Instant>,
    /// The time of the last reply to a handshake.
    pub(crate) connected: Option<Instant>,
}

impl Counts {
    /// Counts a frame by its first number, which is the xid except in handshakes.
    fn frame(&mut self, xid: i32, is_handshake: bool, from_client: bool) {
        const PING: i32 = -2;
        let now = Instant::now();
        self.frames += 1;
        match (is_handshake, from_client) {
            (true, true) => self.handshakes += 1,
            (true, false) => self.connected = Some(now),
            (false, true) if xid >= 0 => {
                self.requests += 1;
                self.in_flight += 1;
                self.most_in_flight = self.most_in_flight.max(self.in_flight);
            }
            (false, false) if xid >= 0 => self.in_flight = self.in_flight.saturating_sub(1),
            _ => {}
        }
        if is_handshake || xid != PING {
            self.last = Some(now);
        }
    }
}

/// A proxy in front of one server. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    counts: Mutex<Counts>,
    sockets: Mutex<Vec<TcpStream>>,
    /// A connection opened before this epoch loses its next reply.
    epoch: AtomicU64,
    stalled: AtomicBool,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    pub(crate) fn start(server: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let shared = Arc::new(Shared {
            counts: Mutex::default(),
            sockets: Mutex::default(),
            epoch: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
        });
        let proxy = Self { address: listener.local_addr()?, shared: Arc::clone(&shared) };
        let server = server.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the server is not reachable, the client's connection is closed.
                if let Ok(server) = TcpStream::connect(&server) {
                    let _ = connect(&shared, client, server);
                }
            }
        });
        Ok(proxy)
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.shared.counts()
    }

    /// Resets the counts. Requests in flight remain counted as such.
    pub(crate) fn reset(&self) {
        let mut counts = self.shared.counts();
        *counts = Counts { in_flight: counts.in_flight, ..Counts::default() };
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for socket in self.shared.sockets().drain(..) {
            // The connection may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Makes each existing connection lose the reply to its next request: the connection is cut instead.
    #[cfg(feature = "locks")]
    pub(crate) fn lose_next_replies(&self) {
        self.shared.epoch.fetch_add(1, SeqCst);
    }

    /// Forwards nothing from now on; connections stay open.
    #[cfg(feature = "locks")]
    pub(crate) fn stall(&self) {
        self.shared.stalled.store(true, SeqCst);
    }

    /// Waits until at least one request has a reply, none is in flight, and no frame passes any more.
    pub(crate) fn wait_until_quiet(&self, limit: Duration) -> Result<Counts> {
        let deadline = Instant::now() + limit;
        loop {
            let counts = self.counts();
            let is_done = counts.requests > 0 && counts.in_flight == 0;
            if is_done && counts.last.is_some_and(|last| last.elapsed() > QUIET) {
                return Ok(counts);
            }
            if Instant::now() > deadline {
                return Err(format!("still busy after {limit:?}: {counts:?}").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// One connection through the proxy.
#[derive(Debug)]
struct Connection {
    born: u64,
    /// Whether the last bytes came from the client.
    client_spoke_last: AtomicBool,
    /// Whether the client has sent a request whose reply is to be lost.
    loses_reply: AtomicBool,
}

fn connect(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) -> Result<()> {
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        shared.sockets().push(socket.try_clone()?);
    }
    let mut counts = shared.counts();
    counts.in_flight = 0;
    counts.connections += 1;
    drop(counts);
    let connection = Arc::new(Connection {
        born: shared.epoch.load(SeqCst),
        client_spoke_last: AtomicBool::new(false),
        loses_reply: AtomicBool::new(false),
    });
    let (to_server, to_client) = (server.try_clone()?, client.try_clone()?);
    for (from, to, from_client) in [(client, to_server, true), (server, to_client, false)] {
        let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
        thread::spawn(move || forward(from, to, &shared, &connection, from_client));
    }
    Ok(())
}

/// Copies bytes until either side is closed.
fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    shared: &Shared,
    connection: &Connection,
    from_client: bool,
) {
    let mut buffer = vec![0; 256 * 1024];
    let mut frames = Frames::default();
    while let Ok(length) = from.read(&mut buffer) {
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        while shared.stalled.load(SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        let mut counts = shared.counts();
        if from_client {
            if shared.epoch.load(SeqCst) > connection.born {
                connection.loses_reply.store(true, SeqCst);
            }
            counts.client_turns += u64::from(!connection.client_spoke_last.swap(true, SeqCst));
        } else if connection.loses_reply.load(SeqCst) {
            break;
        } else {
            connection.client_spoke_last.store(false, SeqCst);
        }
        counts.bytes += length as u64;
        frames.read(bytes, |xid, is_handshake| counts.frame(xid, is_handshake, from_client));
        drop(counts);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Finds the frames in the bytes of one direction.
#[derive(Default)]
struct Frames {
    /// The beginning of a frame: its length and its first number, as far as they have arrived.
    head: Vec<u8>,
    /// The number of bytes that are left of a frame whose beginning has passed.
    skip: usize,
    /// The first frame of a direction belongs to the handshake.
    is_past_handshake: bool,
}

impl Frames {
    fn read(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(i32, bool)) {
        while !bytes.is_empty() {
            let (skipped, behind) = bytes.split_at(bytes.len().min(self.skip));
            self.skip -= skipped.len();
            let (more, behind) = behind.split_at(behind.len().min(8 - self.head.len()));
            self.head.extend(more);
            bytes = behind;
            if let [l0, l1, l2, l3, x0, x1, x2, x3] = self.head[..] {
                let length = u32::from_be_bytes([l0, l1, l2, l3]);
                if length > MAX_FRAME {
                    // Not a frame, but the reply to a four letter word.
                    self.skip = usize::MAX;
                } else {
                    on_frame(i32::from_be_bytes([x0, x1, x2, x3]), !self.is_past_handshake);
                    self.is_past_handshake = true;
                    self.skip = (length as usize).saturating_sub(4);
                }
                self.head.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_any_pieces() {
        let frame = |xid: i32, body: usize| {
            let length = u32::try_from(body + 4).unwrap().to_be_bytes();
            [&length[..], &xid.to_be_bytes(), &vec![0; body]].concat()
        };
        let bytes = [frame(0, 40), frame(1, 0), frame(-2, 0), frame(2, 9)].concat();
        for size in 1..bytes.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            bytes
                .chunks(size)
                .for_each(|part| frames.read(part, |xid, first| found.push((xid, first))));
            assert_eq!(found, [(0, true), (1, false), (-2, false), (2, false)]);
        }
    }
}
