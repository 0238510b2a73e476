//! Clients of a machine: no sockets, no runtime, and a clock that the test advances.

use docent_protocol::{Decode as _, Encode, connect::HandshakeReply, xid};
use docent_testing::server::Ensemble;
use std::net::{IpAddr, Ipv4Addr};

use super::Answer;
use crate::*;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A machine and its clients.
pub(crate) struct Bench {
    pub(crate) machine: Ensemble,
    pub(crate) now: Duration,
    /// The timeout that handshakes ask for, in milliseconds.
    pub(crate) time_out: i32,
    received: BTreeMap<ConnectionId, VecDeque<Vec<u8>>>,
}

pub(crate) fn bench(version: Version) -> Bench {
    Bench::new(Config { version, ..Config::default() })
}

/// The response to a ConnectRequest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeting {
    Session { id: i64, passwd: Vec<u8>, time_out: i32, read_only: Option<bool> },
    Header(ErrorCode),
    Closed,
    Silence,
}

impl Greeting {
    pub(crate) fn session(&self) -> (i64, Vec<u8>) {
        match self {
            Self::Session { id, passwd, .. } if *id != 0 => (*id, passwd.clone()),
            other => panic!("no session: {other:?}"),
        }
    }

    pub(crate) const fn is_refused(&self) -> bool {
        matches!(self, Self::Session { id: 0, time_out: 0, .. })
    }
}

const LIMIT: usize = 1 << 26;

impl Bench {
    pub(crate) fn new(config: Config) -> Self {
        let (machine, now) = (Ensemble::new(config), Duration::ZERO);
        Self { machine, now, time_out: 10_000, received: BTreeMap::new() }
    }

    /// Advances the clock; the machine handles its timeouts in order.
    pub(crate) fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(due) = self.machine.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.machine.handle_timeout(self.now);
        }
        self.now = until;
    }

    /// A connection without a handshake.
    pub(crate) fn accept(&mut self, member: usize) -> ConnectionId {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.machine.handle_connect(self.now, member, peer).unwrap()
    }

    pub(crate) fn bytes(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.machine.handle_input(self.now, id, bytes);
    }

    /// A new session on the first member.
    pub(crate) fn connect(&mut self) -> (ConnectionId, i64, Vec<u8>) {
        self.connect_to(0)
    }

    pub(crate) fn connect_to(&mut self, member: usize) -> (ConnectionId, i64, Vec<u8>) {
        let (connection, greeting) = self.greet(member, 0, &[0; 16], Some(false), 0);
        let (session, passwd) = greeting.session();
        (connection, session, passwd)
    }

    pub(crate) fn greet(
        &mut self,
        member: usize,
        session_id: i64,
        passwd: &[u8],
        read_only: Option<bool>,
        last_zxid_seen: i64,
    ) -> (ConnectionId, Greeting) {
        let id = self.accept(member);
        self.ask(id, session_id, passwd, read_only, last_zxid_seen);
        (id, self.greeting(id))
    }

    /// Sends a ConnectRequest.
    pub(crate) fn ask(
        &mut self,
        id: ConnectionId,
        session_id: i64,
        passwd: &[u8],
        read_only: Option<bool>,
        last_zxid_seen: i64,
    ) {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            time_out: self.time_out,
            session_id,
            passwd: Some(passwd),
            read_only,
        };
        let mut out = Vec::new();
        frame::put_record(&mut out, LIMIT, &request).unwrap();
        self.bytes(id, &out);
    }

    /// The response to the ConnectRequest, so far.
    pub(crate) fn greeting(&mut self, id: ConnectionId) -> Greeting {
        match self.frame(id) {
            None if self.machine.is_closed(id) => Greeting::Closed,
            None => Greeting::Silence,
            Some(payload) => match HandshakeReply::decode(&mut Reader::new(&payload)).unwrap() {
                HandshakeReply::Refused(header) => Greeting::Header(header.err),
                HandshakeReply::Response(r) => Greeting::Session {
                    id: r.session_id,
                    passwd: r.passwd.unwrap().to_vec(),
                    time_out: r.time_out,
                    read_only: r.read_only,
                },
            },
        }
    }

    /// The next frame's payload, if there is one.
    pub(crate) fn frame(&mut self, id: ConnectionId) -> Option<Vec<u8>> {
        let queue = self.received.entry(id).or_default();
        if let Some(bytes) = self.machine.poll_transmit(id) {
            let mut rest = &bytes[..];
            while let Some((payload, tail)) = frame::split(rest, LIMIT).unwrap() {
                queue.push_back(payload.to_vec());
                rest = tail;
            }
            assert!(rest.is_empty(), "a server sends whole frames");
        }
        queue.pop_front()
    }

    /// All received frames that were not taken yet.
    pub(crate) fn answers(&mut self, id: ConnectionId) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(payload) = self.frame(id) {
            let mut reader = Reader::new(&payload);
            let header = ReplyHeader::decode(&mut reader).unwrap();
            answers.push(Answer { header, body: reader.rest().to_vec() });
        }
        answers
    }

    /// The events among the received frames.
    pub(crate) fn events(&mut self, id: ConnectionId) -> Vec<(EventType, String, i64)> {
        let event = |answer: &Answer| {
            let event = WatcherEvent::decode(&mut Reader::new(&answer.body)).unwrap();
            (event.event_type, event.path.to_string(), answer.header.zxid)
        };
        let answers = self.answers(id);
        answers.iter().filter(|answer| answer.header.xid == -1).map(event).collect()
    }

    pub(crate) fn send(&mut self, id: ConnectionId, xid: i32, op: OpCode, body: &impl Encode) {
        let mut out = Vec::new();
        put_request_parts(&mut out, LIMIT, xid, op, body).unwrap();
        self.bytes(id, &out);
    }

    /// Sends, and returns the last received frame: the reply. Events before it are dropped.
    pub(crate) fn call(
        &mut self,
        id: ConnectionId,
        op: OpCode,
        body: &impl Encode,
    ) -> Option<Answer> {
        self.send(id, 7, op, body);
        self.answers(id).into_iter().rfind(|answer| answer.header.xid == 7)
    }

    pub(crate) fn err(&mut self, id: ConnectionId, op: OpCode, body: &impl Encode) -> ErrorCode {
        self.call(id, op, body).unwrap().header.err
    }

    pub(crate) fn create(&mut self, id: ConnectionId, path: &str, flags: i32) -> ErrorCode {
        self.err(id, OpCode::Create, &super::create(path, b"x", flags))
    }

    /// Like [`create`](Self::create), but returns the path of the node.
    pub(crate) fn created(&mut self, id: ConnectionId, path: &str, flags: i32) -> String {
        let answer = self.call(id, OpCode::Create, &super::create(path, b"x", flags)).unwrap();
        assert_eq!(answer.header.err, ErrorCode::Ok, "{path}");
        Reader::new(&answer.body).text("path").unwrap().to_string()
    }

    /// Sets data, whatever the version is. `None` if there is no reply.
    pub(crate) fn set(&mut self, id: ConnectionId, path: &str, data: &[u8]) -> Option<ErrorCode> {
        let set = SetDataRequest { path: path.into(), data: Some(data), version: -1 };
        self.call(id, OpCode::SetData, &set).map(|answer| answer.header.err)
    }

    pub(crate) fn data(&mut self, id: ConnectionId, path: &str) -> Vec<u8> {
        let read = ReadRequest { path: path.into(), watch: false };
        let answer = self.call(id, OpCode::GetData, &read).unwrap();
        GetDataReply::decode(&mut Reader::new(&answer.body)).unwrap().data.unwrap().to_vec()
    }

    /// Whether a ping is answered.
    pub(crate) fn ping(&mut self, id: ConnectionId) -> bool {
        self.send(id, xid::PING, OpCode::Ping, &RawBody(&[]));
        self.answers(id).iter().any(|answer| answer.header.xid == xid::PING)
    }

    pub(crate) fn sync(&mut self, id: ConnectionId) -> Option<ErrorCode> {
        let sync = PathRequest { path: "/".into() };
        self.call(id, OpCode::Sync, &sync).map(|answer| answer.header.err)
    }

    pub(crate) fn exists(&mut self, id: ConnectionId, path: &str, watch: bool) -> ErrorCode {
        self.err(id, OpCode::Exists, &ReadRequest { path: Text::new(path), watch })
    }

    pub(crate) fn empty(&mut self, id: ConnectionId, op: OpCode) -> Option<Answer> {
        self.call(id, op, &RawBody(&[]))
    }
}
