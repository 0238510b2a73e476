//! Traffic of clients and servers, live or from a capture, as a timeline.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use docent_protocol::dissect::Direction;
use docent_sim::world::{
    history::{Bounds, Record, What, Wire},
    time::Nanos,
};
use docent_steps::parent;
use docent_testing::tap::{Line, Segment, Tap};
use tokio::runtime::Builder as RuntimeBuilder;

use crate::{
    builder::{Builder, overlaps, place},
    frames::{Frame, micros},
    timeline::{Node, Timeline},
};

/// The most frames that are kept, and the most bytes. Then nothing more is recorded.
const MOST_FRAMES: usize = 5_000;
const MOST_BYTES: usize = 8 << 20;

/// The longest line of a capture, in bytes: a read of a tap has at most 64 KiB, a segment of TCP less.
const LONGEST_LINE: u64 = 1 << 20;

/// The bytes of a connect request up to its session id, with it.
const CONNECT_START: usize = 28;

/// The traffic of clients.
#[derive(Clone)]
pub struct Traffic(Arc<Mutex<Live>>);

impl Traffic {
    /// Relays clients that connect to an address to a server, `host:port`, until the process ends. Returns the address that
    /// was bound, too.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn relay(listen: SocketAddr, upstream: &str) -> io::Result<(Self, SocketAddr)> {
        let traffic = Self(Arc::new(Mutex::new(Live::new(true))));
        let (live, upstream) = (traffic.clone(), upstream.to_owned());
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build()?;
        let (started, bound) = mpsc::channel();
        thread::spawn(move || {
            runtime.block_on(async {
                let tap = match Tap::listen(listen, &upstream).await {
                    Ok(tap) => tap,
                    Err(error) => return drop(started.send(Err(error))),
                };
                // The lab has frames of its own.
                tap.keep(1);
                let mut segments = tap.capture();
                let _ = started.send(Ok(tap.addr()));
                while let Some(segment) = segments.next().await {
                    live.live().take(segment);
                }
            });
        });
        let address = bound.recv().map_err(io::Error::other)??;
        Ok((traffic, address))
    }

    /// Reads a capture: the lines of `docent tap --capture`, or those of tshark with these ports of servers. What is behind
    /// the limit of frames is not read.
    ///
    /// # Errors
    ///
    /// If the file cannot be read; `InvalidData` for a line that is none of a capture, and for a file without frames.
    pub fn read(path: &Path, ports: &[u16]) -> io::Result<Self> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let mut file = BufReader::new(File::open(path)?);
        let (mut live, mut line) = (Live::new(false), Vec::new());
        for number in 1_u64.. {
            line.clear();
            let length = (&mut file).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            if length == 0 || live.is_full() {
                break;
            }
            if length as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
                return Err(invalid(format!("line {number}: is too long")));
            }
            let parsed = Line::parse(&String::from_utf8_lossy(&line), Some(ports));
            match parsed.map_err(|reason| invalid(format!("line {number}: {reason}")))? {
                Line::Ignored => {}
                Line::Connection { is_established } => live.connect(is_established),
                Line::Segment(segment) => live.take(segment),
            }
        }
        if live.seen == 0 {
            return Err(invalid("there is no frame of ZooKeeper in it".to_owned()));
        }
        Ok(Self(Arc::new(Mutex::new(live))))
    }

    /// Everything so far; `None` if it has no more than this number of frames.
    #[must_use]
    pub fn timeline(&self, known: usize) -> Option<Timeline> {
        let live = self.live();
        (live.seen > known || known == 0).then(|| live.timeline())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    bytes: usize,
    last: Nanos,
    /// The number of a connection whose lines have none.
    unnumbered: u64,
    /// Whether more may come.
    is_live: bool,
}

impl Live {
    fn new(is_live: bool) -> Self {
        Self {
            builder: Builder::new(usize::MAX),
            names: 0,
            clients: BTreeMap::new(),
            asked: BTreeMap::new(),
            seen: 0,
            bytes: 0,
            last: 0,
            unnumbered: 1 << 32,
            is_live,
        }
    }

    const fn is_full(&self) -> bool {
        self.seen >= MOST_FRAMES || self.bytes >= MOST_BYTES
    }

    /// The lines that follow, and have no number, are of another connection.
    fn connect(&mut self, is_established: bool) {
        self.unnumbered += 1;
        if is_established {
            let (connection, client) = (self.unnumbered as usize, self.new_client());
            self.builder.frames.establish(connection);
            self.clients.insert(connection, Ok(client));
        }
    }

    fn new_client(&mut self) -> usize {
        self.names += 1;
        self.names - 1
    }

    fn take(&mut self, segment: Segment) {
        if self.is_full() {
            return;
        }
        let Segment { at, connection, direction, mut bytes } = segment;
        let at = at.map_or(self.last, |at| u64::try_from(at.as_nanos()).unwrap_or(Nanos::MAX));
        // A capture may be sorted by connections.
        self.last = self.last.max(at);
        let at = self.last;
        self.bytes += bytes.len();
        let connection = connection.unwrap_or(self.unnumbered) as usize;
        let to_server = direction == Direction::ToServer;
        let pid = match self.clients.entry(connection).or_insert_with(|| Err(Vec::new())) {
            Ok(client) => *client,
            // The first frame is that of the client.
            Err(_) if !to_server => return,
            Err(start) => {
                start.extend_from_slice(&bytes);
                if start.len() < CONNECT_START {
                    return;
                }
                bytes = std::mem::take(start).into();
                let session = bytes.get(CONNECT_START - 8..CONNECT_START);
                let session = session.and_then(|id| id.try_into().ok()).map(i64::from_be_bytes);
                let known = session.and_then(|id| self.builder.client_of(id));
                let client = known.unwrap_or_else(|| self.new_client());
                self.clients.insert(connection, Ok(client));
                client
            }
        };
        for delivery in [None, Some(0)] {
            let bytes = bytes.clone();
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
            let Builder { nodes, steps, .. } = &mut self.builder;
            // The reply to the create may have been lost.
            let client = steps.owner(path);
            let node = || Node { path: path.clone(), client, zxid: 0, data: String::new() };
            nodes.entry(path.clone()).or_insert_with(node);
        }
        self.builder.note_queues(at);
        let first = paths.first().and_then(|path| self.builder.nodes.get(path));
        if let Some(first) = first.filter(|node| node.client == Some(client)) {
            let (path, bounds) = (first.path.clone(), Bounds { believed: Nanos::MAX, proven: 0 });
            self.builder.belief(at, (client, &path), Some(bounds));
        }
    }

    fn timeline(&self) -> Timeline {
        let mut timeline = self.builder.timeline(micros(self.last));
        timeline.overlaps = overlaps(&timeline, usize::MAX);
        timeline.clients = (0..self.names).map(name).collect();
        timeline.is_live = self.is_live;
        timeline.is_cut_off = self.is_full();
        timeline
    }
}

/// A to Z, and then C26 and so on.
fn name(number: usize) -> String {
    let letter = u8::try_from(number).ok().filter(|number| *number < 26);
    letter.map_or_else(|| format!("C{number}"), |letter| char::from(b'A' + letter).to_string())
}
