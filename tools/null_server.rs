//! A server that replies at once with canned bytes, so that the cost of a client can be measured:
//! `null_server [ADDR]`, by default on a free port of loopback; it prints `listening on ADDR` first.
//!
//! It keeps only the state that the measured workloads need: the one-shot data watches of a connection, and
//! the sequential nodes that it created, so that a lock recipe finds its own. Every path exists. A delete of
//! `/bench/drop-connection` drops the connection instead.
//!
//! It has a blocking thread for each connection and replies to all requests of one read with one write. It
//! uses only the standard library and the codec.

use std::{
    collections::HashSet,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use docent::{EventType, OpCode, Stat, acl::Text, error::DecodeError, watch::KeeperState};
use docent_protocol::{
    Decode, Encode, ErrorCode, List, WatcherEvent,
    connect::{ConnectRequest, ConnectResponse, PASSWORD_SIZE},
    frame,
    jute::Reader,
    reply::{
        Create2Reply, EmptyReply, GetChildren2Reply, GetChildrenReply, GetDataReply, PathReply,
        ReplyHeader, StatReply,
    },
    request::{
        CreateRequest, DeleteRequest, PathRequest, ReadRequest, RequestHeader, SetDataRequest,
    },
    xid,
};

const CHILDREN: usize = 10_000;
const KIDS: &[u8] = b"/bench/kids";
const DROP_CONNECTION: &[u8] = b"/bench/drop-connection";
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;
/// The ID that every new session has.
const SESSION: i64 = 0x1234;
/// The size of a read in bytes. More than a thousand requests fit.
const READ_SIZE: usize = 256 * 1024;
/// The position of the xid in a frame, after the length.
const XID: std::ops::Range<usize> = frame::LENGTH_SIZE..frame::LENGTH_SIZE + 4;

const ZXID: i64 = 1;
const STAT: Stat = Stat {
    czxid: ZXID,
    mzxid: ZXID,
    ctime: 1_770_000_000_000,
    mtime: 1_770_000_000_000,
    version: 1,
    cversion: 0,
    aversion: 0,
    ephemeral_owner: 0,
    data_length: 100,
    num_children: 0,
    pzxid: ZXID,
};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let canned = Canned::new();
    thread::scope(|scope| {
        loop {
            let (stream, _) = listener.accept()?;
            let canned = &canned;
            // The error of a connection is ignored: the client reports it.
            scope.spawn(move || drop(Connection::new(canned).serve(stream)));
        }
    })
}

/// Replies that differ only in their xid.
struct Canned {
    data: Vec<u8>,
    stat: Vec<u8>,
    empty: Vec<u8>,
    kids: Vec<u8>,
    kids2: Vec<u8>,
}

impl Canned {
    fn new() -> Self {
        let names: Vec<_> = (0..CHILDREN).map(|number| format!("child-{number:010}")).collect();
        let names: Vec<_> = names.iter().map(|name| Text::new(name)).collect();
        let children = List::new(&names);
        Self {
            data: reply(&GetDataReply { data: Some(&[7; 100]), stat: STAT }),
            stat: reply(&StatReply { stat: STAT }),
            empty: reply(&EmptyReply {}),
            kids: reply(&GetChildrenReply { children }),
            kids2: reply(&GetChildren2Reply { children, stat: STAT }),
        }
    }
}

fn reply(body: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, &ReplyHeader { xid: 0, zxid: ZXID, err: ErrorCode::Ok }, body);
    out
}

fn put(out: &mut Vec<u8>, header: &ReplyHeader, body: &impl Encode) {
    // This server does not limit the size of a reply.
    let _ = frame::put(out, i32::MAX as usize, |out| {
        header.encode(out);
        body.encode(out);
    });
}

/// Appends a canned reply with this xid.
fn put_canned(out: &mut Vec<u8>, canned: &[u8], xid: i32) {
    let start = out.len();
    out.extend_from_slice(canned);
    if let Some(place) = out.get_mut(start + XID.start..start + XID.end) {
        place.copy_from_slice(&xid.to_be_bytes());
    }
}

struct Connection<'a> {
    canned: &'a Canned,
    out: Vec<u8>,
    watched: HashSet<Vec<u8>>,
    /// Paths of the sequential nodes that this connection created, in order.
    sequential: Vec<String>,
    created: u64,
    session: i64,
    handshaken: bool,
    closing: bool,
}

impl<'a> Connection<'a> {
    fn new(canned: &'a Canned) -> Self {
        Self {
            canned,
            out: Vec::with_capacity(READ_SIZE),
            watched: HashSet::new(),
            sequential: Vec::new(),
            created: 0,
            session: 0,
            handshaken: false,
            closing: false,
        }
    }

    fn serve(mut self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // Ends the thread of a client that has vanished.
        stream.set_read_timeout(Some(Duration::from_secs(600)))?;
        let mut input = vec![0; READ_SIZE];
        let mut filled = 0;
        loop {
            if filled == input.len() {
                input.resize(2 * filled, 0);
            }
            let count = stream.read(input.get_mut(filled..).unwrap_or_default())?;
            if count == 0 {
                return Ok(());
            }
            filled += count;
            let mut rest = input.get(..filled).unwrap_or_default();
            while let Some((payload, behind)) =
                frame::split(rest, i32::MAX as usize).map_err(io::Error::other)?
            {
                self.answer(payload).map_err(io::Error::other)?;
                rest = behind;
                if self.closing {
                    return stream.write_all(&self.out);
                }
            }
            let left = rest.len();
            input.copy_within(filled - left..filled, 0);
            filled = left;
            stream.write_all(&self.out)?;
            self.out.clear();
        }
    }

    fn answer(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(payload);
        if !self.handshaken {
            self.handshaken = true;
            self.shake_hands(&ConnectRequest::decode(&mut reader)?);
            return Ok(());
        }
        let RequestHeader { xid, op } = RequestHeader::decode(&mut reader)?;
        let canned = self.canned;
        match op {
            OpCode::GetData => {
                self.note_watch(&ReadRequest::decode(&mut reader)?);
                put_canned(&mut self.out, &canned.data, xid);
            }
            OpCode::Exists => {
                self.note_watch(&ReadRequest::decode(&mut reader)?);
                put_canned(&mut self.out, &canned.stat, xid);
            }
            OpCode::SetData => {
                let request = SetDataRequest::decode(&mut reader)?;
                self.fire(&request.path, EventType::NodeDataChanged);
                put_canned(&mut self.out, &canned.stat, xid);
            }
            OpCode::GetChildren | OpCode::GetChildren2 => {
                let request = ReadRequest::decode(&mut reader)?;
                self.list(xid, op, &request);
            }
            OpCode::Create | OpCode::Create2 | OpCode::CreateContainer => {
                let request = CreateRequest::decode(&mut reader)?;
                self.create(xid, op, &request);
            }
            OpCode::Delete => {
                let request = DeleteRequest::decode(&mut reader)?;
                if request.path.as_bytes() == DROP_CONNECTION {
                    self.closing = true;
                    return Ok(());
                }
                if !self.sequential.is_empty() {
                    let path = request.path.as_bytes();
                    self.sequential.retain(|other| other.as_bytes() != path);
                }
                self.fire(&request.path, EventType::NodeDeleted);
                put_canned(&mut self.out, &canned.empty, xid);
            }
            OpCode::Sync => {
                let path = PathRequest::decode(&mut reader)?.path;
                self.put(xid, &PathReply { path });
            }
            OpCode::CloseSession => {
                self.closing = true;
                put_canned(&mut self.out, &canned.empty, xid);
            }
            // Pings, credentials, setWatches, and other operations that are not measured.
            _ => put_canned(&mut self.out, &canned.empty, xid),
        }
        Ok(())
    }

    fn shake_hands(&mut self, request: &ConnectRequest<'_>) {
        self.session = if request.session_id == 0 { SESSION } else { request.session_id };
        let response = ConnectResponse {
            protocol_version: 0,
            time_out: request.time_out,
            session_id: self.session,
            passwd: Some(&[1; PASSWORD_SIZE]),
            // A client that has sent the byte expects it in the response too.
            read_only: request.read_only.map(|_| false),
        };
        let _ = frame::put_record(&mut self.out, frame::DEFAULT_LIMIT, &response);
    }

    fn put(&mut self, xid: i32, body: &impl Encode) {
        put(&mut self.out, &ReplyHeader { xid, zxid: ZXID, err: ErrorCode::Ok }, body);
    }

    fn note_watch(&mut self, request: &ReadRequest<'_>) {
        if request.watch {
            self.watched.insert(request.path.as_bytes().to_vec());
        }
    }

    /// Sends an event ahead of the reply to the request that caused it, as ZooKeeper does.
    fn fire(&mut self, path: &Text<'_>, event_type: EventType) {
        if self.watched.is_empty() || !self.watched.remove(path.as_bytes()) {
            return;
        }
        let header = ReplyHeader { xid: xid::NOTIFICATION, zxid: -1, err: ErrorCode::Ok };
        let event = WatcherEvent { event_type, state: KeeperState::SyncConnected, path: *path };
        put(&mut self.out, &header, &event);
    }

    fn list(&mut self, xid: i32, op: OpCode, request: &ReadRequest<'_>) {
        if request.path.as_bytes() == KIDS {
            let canned = self.canned;
            let canned = if op == OpCode::GetChildren { &canned.kids } else { &canned.kids2 };
            return put_canned(&mut self.out, canned, xid);
        }
        let names: Vec<_> = self
            .sequential
            .iter()
            .filter_map(|path| path.rsplit_once('/'))
            .filter(|(parent, _)| parent.as_bytes() == request.path.as_bytes())
            .map(|(_, name)| Text::new(name))
            .collect();
        let children = List::new(&names);
        let header = ReplyHeader { xid, zxid: ZXID, err: ErrorCode::Ok };
        if op == OpCode::GetChildren {
            put(&mut self.out, &header, &GetChildrenReply { children });
        } else {
            put(&mut self.out, &header, &GetChildren2Reply { children, stat: STAT });
        }
    }

    fn create(&mut self, xid: i32, op: OpCode, request: &CreateRequest<'_>) {
        let mut path = request.path.to_str();
        if request.flags & SEQUENTIAL != 0 && op != OpCode::CreateContainer {
            self.created += 1;
            let created = format!("{path}{:010}", self.created);
            self.sequential.push(created.clone());
            path = created.into();
        }
        let path = Text::new(&path);
        if op == OpCode::Create {
            self.put(xid, &PathReply { path });
        } else {
            // A lock recipe checks that its session owns the node.
            let ephemeral_owner = if request.flags & EPHEMERAL != 0 { self.session } else { 0 };
            self.put(xid, &Create2Reply { path, stat: Stat { ephemeral_owner, ..STAT } });
        }
    }
}
