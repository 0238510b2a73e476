//! Live traffic: a relay between clients and a server, whose bytes become a timeline. It changes none of them.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use docent_sim::world::{
    history::{Bounds, Record, What, Wire},
    time::Nanos,
};
use docent_steps::parent;

use crate::{
    frames::{Frame, micros},
    timeline::{Builder, Node, Timeline, overlaps, place},
};

/// The most frames that are kept. Then nothing more is recorded, and the relay goes on.
const MOST_FRAMES: usize = 5_000;

/// The most connections at once.
const MOST_CONNECTIONS: usize = 256;

/// The bytes of a connect request up to its session id, with it.
const CONNECT_START: usize = 28;

/// A relay that runs until the process ends.
#[derive(Clone)]
pub struct Tap {
    live: Arc<Mutex<Live>>,
    start: Instant,
    upstream: Arc<str>,
    address: SocketAddr,
}

impl Tap {
    /// Starts a relay at an address, in front of a server, `host:port`.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn start(listen: SocketAddr, upstream: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let tap = Self {
            live: Arc::new(Mutex::new(Live::new())),
            start: Instant::now(),
            upstream: upstream.into(),
            address: listener.local_addr()?,
        };
        let accepting = tap.clone();
        thread::spawn(move || {
            for (connection, client) in listener.incoming().flatten().enumerate() {
                let tap = accepting.clone();
                if Arc::strong_count(&tap.upstream) > 3 * MOST_CONNECTIONS {
                    continue;
                }
                thread::spawn(move || {
                    // An upstream that is not reached ends the client's connection.
                    let _ = tap.relay(connection, client);
                });
            }
        });
        Ok(tap)
    }

    /// The address that was bound.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything so far; `None` if it has no more than this number of frames.
    #[must_use]
    pub fn timeline(&self, known: usize) -> Option<Timeline> {
        let live = self.live();
        (live.seen > known || known == 0).then(|| live.timeline())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn relay(&self, connection: usize, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(&*self.upstream)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        let (tap, from, to) = (self.clone(), server.try_clone()?, client.try_clone()?);
        let back = thread::spawn(move || tap.copy(connection, false, from, to));
        self.copy(connection, true, client, server);
        let _ = back.join();
        Ok(())
    }

    /// Copies one direction until its end, and ends the other.
    fn copy(&self, connection: usize, to_server: bool, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let bytes = &buffer[..length];
            let at = Nanos::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
            // Recorded first: the reply must not be before its request.
            self.live().take(at, (connection, to_server), bytes);
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// The traffic so far.
struct Live {
    builder: Builder,
    names: usize,
    /// The client of each connection whose first frame has arrived, or the start of that frame.
    clients: BTreeMap<usize, Result<usize, Vec<u8>>>,
    asked: BTreeMap<(usize, i64), Frame>,
    seen: usize,
    last: u64,
}

impl Live {
    fn new() -> Self {
        let builder = Builder::new(usize::MAX);
        let (clients, asked) = (BTreeMap::new(), BTreeMap::new());
        Self { builder, names: 0, clients, asked, seen: 0, last: 0 }
    }

    fn take(&mut self, at: Nanos, (connection, to_server): (usize, bool), bytes: &[u8]) {
        if self.seen >= MOST_FRAMES {
            return;
        }
        self.last = micros(at);
        let known = self.clients.entry(connection).or_insert_with(|| Err(Vec::new()));
        let (pid, bytes) = match known {
            Ok(client) => (*client, bytes.to_vec()),
            Err(start) => {
                start.extend_from_slice(bytes);
                if start.len() < CONNECT_START || !to_server {
                    return;
                }
                let bytes = std::mem::take(start);
                let session = bytes.get(CONNECT_START - 8..CONNECT_START);
                let session = session.and_then(|id| id.try_into().ok()).map(i64::from_be_bytes);
                let client = session.and_then(|id| self.builder.client_of(id));
                let client = client.unwrap_or_else(|| {
                    self.names += 1;
                    self.names - 1
                });
                *known = Ok(client);
                (client, bytes)
            }
        };
        for delivery in [None, Some(0)] {
            let bytes = bytes.clone().into();
            let wire = Wire { connection, pid, member: 0, to_server, bytes, delivery };
            self.builder.take(&Record { at, what: What::Wire(wire) });
        }
        while let Some(frame) = self.builder.frames.all.get(self.seen).cloned() {
            self.seen += 1;
            self.follow(&frame);
        }
    }

    /// Changes the nodes and beliefs that a frame gives reason for.
    fn follow(&mut self, frame: &Frame) {
        let key = (frame.connection, frame.xid().unwrap_or_default());
        let (at, client) = (frame.sent, frame.client);
        match frame.kind() {
            "request" => {
                let ends = match frame.op() {
                    "delete" => vec![frame.path().to_owned()],
                    "closeSession" => self.builder.believed(client),
                    _ => Vec::new(),
                };
                for path in ends {
                    self.builder.belief(at, (client, &path), None);
                }
                self.asked.insert(key, frame.clone());
            }
            "event" if frame.fields["event"] == "NodeDeleted" => {
                self.builder.nodes.remove(frame.path());
                self.builder.note_queues(at);
            }
            "reply" if frame.error().is_none() => {
                if let Some(request) = self.asked.remove(&key) {
                    self.answered(&request, frame);
                }
            }
            _ => drop(self.asked.remove(&key)),
        }
    }

    fn answered(&mut self, request: &Frame, reply: &Frame) {
        let (at, client, nodes) = (reply.sent, reply.client, &mut self.builder.nodes);
        match request.op() {
            "create" | "create2" | "createContainer" | "createTTL" => {
                // Ephemeral nodes have an odd number of flags.
                let is_ephemeral =
                    request.fields["body"]["flags"].as_i64().is_some_and(|flags| flags % 2 == 1);
                let owner = is_ephemeral.then_some(client);
                let zxid = reply.fields["header"]["zxid"].as_i64().unwrap_or_default();
                let path = reply.path().to_owned();
                let node = Node { path: path.clone(), client: owner, zxid, data: String::new() };
                nodes.insert(path, node);
            }
            "delete" => drop(nodes.remove(request.path())),
            "closeSession" => nodes.retain(|_, node| node.client != Some(client)),
            "getChildren" | "getChildren2" => return self.listed(request.path(), reply),
            _ => return,
        }
        self.builder.note_queues(at);
    }

    /// A listing shows nodes of others, and which client is first.
    fn listed(&mut self, base: &str, reply: &Frame) {
        let (at, client) = (reply.sent, reply.client);
        let names = reply.fields["body"]["children"].as_array().into_iter().flatten();
        let mut paths: Vec<_> =
            names.filter_map(|name| Some(format!("{base}/{}", name.as_str()?))).collect();
        paths.sort_by(|a, b| place(a).cmp(&place(b)));
        self.builder.nodes.retain(|path, _| parent(path) != base || paths.contains(path));
        for path in &paths {
            let node = Node { path: path.clone(), client: None, zxid: 0, data: String::new() };
            self.builder.nodes.entry(path.clone()).or_insert(node);
        }
        self.builder.note_queues(at);
        let first = paths.first().and_then(|path| self.builder.nodes.get(path));
        if let Some(first) = first.filter(|node| node.client == Some(client)) {
            let (path, bounds) = (first.path.clone(), Bounds { believed: Nanos::MAX, proven: 0 });
            self.builder.belief(at, (client, &path), Some(bounds));
        }
    }

    fn timeline(&self) -> Timeline {
        let mut timeline = self.builder.timeline(self.last);
        timeline.overlaps = overlaps(&timeline, usize::MAX);
        timeline.clients = (0..self.names).map(name).collect();
        timeline.is_live = true;
        timeline.is_cut_off = self.seen >= MOST_FRAMES;
        timeline
    }
}

/// A to Z, and then C26 and so on.
fn name(number: usize) -> String {
    let letter = u8::try_from(number).ok().filter(|number| *number < 26);
    letter.map_or_else(|| format!("C{number}"), |letter| char::from(b'A' + letter).to_string())
}
