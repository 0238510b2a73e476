//! One connection as the proxy sees it: bytes of both directions in, steps out.
//!
//! Pure: no sockets and no clock. [`Conversation::feed`] cuts the bytes into frames, decodes them,
//! asks the faults, and answers with what to record, to send, to wait for. Frames are kept back until
//! they are whole; bytes that are no frames (four-letter words, rubbish) pass as they come.
//!
//! Which reply answers which request is the [`Follower`](docent_protocol::follow::Follower)'s to know.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use docent_protocol::{
    ErrorCode, OpCode,
    connect::{ConnectResponse, HandshakeReply},
    follow::{Direction, Follower, Frame, Message, ReplyBody},
    frame, xid,
};

use super::record::{Field, Value, What, path_of, reply_fields, request_fields};
use crate::fault::{Action, FaultTable};

/// Frames longer than this are not kept back to be decoded; they pass as bytes. 16 MiB.
const DECODE_LIMIT: usize = 1 << 24;

/// How much of bytes that are no frame a record shows.
const RAW_SHOWN: usize = 64;

/// What to do with a piece of a conversation, in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Keep this in the record.
    Record(What, Option<&'static str>),
    /// Pass this on.
    Send(Bytes),
    /// Wait before what follows.
    Wait(Duration),
    /// End the connection; nothing follows.
    Cut,
}

/// What all conversations of one tap share.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) faults: FaultTable,
    /// The last session of each client.
    pub(crate) sessions: BTreeMap<Arc<str>, KnownSession>,
    /// Labels of listeners: no letter for others.
    pub(crate) labels: BTreeSet<Arc<str>>,
    /// How many letters were given or passed over.
    named: usize,
}

/// What it takes to attach to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownSession {
    pub(crate) id: i64,
    pub(crate) passwd: Vec<u8>,
}

impl Desk {
    /// Whose session this is; a new client gets the next letter.
    fn name_of(&mut self, session_id: i64) -> Arc<str> {
        let known = self.sessions.iter().find(|(_, session)| session.id == session_id);
        if let Some((name, _)) = known.filter(|_| session_id != 0) {
            return Arc::clone(name);
        }
        loop {
            self.named += 1;
            let name = letters(self.named);
            if !self.labels.contains(name.as_str()) {
                return name.into();
            }
        }
    }

    fn remember(&mut self, client: &Arc<str>, response: &ConnectResponse<'_>) {
        if !response.is_refused() {
            let passwd = response.passwd.unwrap_or_default().to_vec();
            let session = KnownSession { id: response.session_id, passwd };
            self.sessions.insert(Arc::clone(client), session);
        }
    }
}

/// 1 is A, 26 is Z, 27 is AA.
fn letters(mut number: usize) -> String {
    let mut name = Vec::new();
    while number > 0 {
        number -= 1;
        name.push(char::from(b'A' + u8::try_from(number % 26).unwrap_or(0)));
        number /= 26;
    }
    name.iter().rev().collect()
}

#[derive(Debug, Default)]
struct Half {
    /// The front of a frame that is not whole yet.
    partial: BytesMut,
    /// Whether these are no frames, and pass as they come.
    raw: bool,
}

/// One connection, both directions.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Who; empty until the first frame of a client without a listener of its own.
    pub(crate) client: Arc<str>,
    follower: Follower,
    to_server: Half,
    to_client: Half,
    /// What is to happen to replies, by the xid they will have, oldest first.
    marked: VecDeque<(i32, Action)>,
}

impl Conversation {
    pub(crate) fn new(client: Arc<str>) -> Self {
        Self {
            client,
            follower: Follower::new(),
            to_server: Half::default(),
            to_client: Half::default(),
            marked: VecDeque::new(),
        }
    }

    const fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    /// Takes bytes of one direction and appends what to do to `steps`.
    pub(crate) fn feed(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        desk: &mut Desk,
        steps: &mut Vec<Step>,
    ) {
        self.half(direction).partial.extend_from_slice(bytes);
        while steps.last() != Some(&Step::Cut) {
            let half = self.half(direction);
            if half.raw {
                return self.finish(direction, steps);
            }
            match frame::split(&half.partial, DECODE_LIMIT) {
                Ok(None) => return,
                Ok(Some((payload, _))) => {
                    let len = frame::LENGTH_SIZE + payload.len();
                    let whole = half.partial.split_to(len).freeze();
                    self.whole_frame(direction, whole, desk, steps);
                }
                // Four-letter words and their answers are lengths over any limit.
                Err(_) => half.raw = true,
            }
        }
    }

    /// Passes on what there is of a frame that will never be whole.
    pub(crate) fn finish(&mut self, direction: Direction, steps: &mut Vec<Step>) {
        let rest = self.half(direction).partial.split().freeze();
        if !rest.is_empty() {
            steps.push(Step::Record(raw_bytes(direction, &rest), None));
            steps.push(Step::Send(rest));
        }
    }

    fn whole_frame(
        &mut self,
        direction: Direction,
        whole: Bytes,
        desk: &mut Desk,
        steps: &mut Vec<Step>,
    ) {
        let payload = whole.get(frame::LENGTH_SIZE..).unwrap_or_default();
        let frame = self.follower.payload(direction, payload);
        match &frame.message {
            Message::ConnectRequest(request) if self.client.is_empty() => {
                self.client = desk.name_of(request.session_id);
            }
            Message::ConnectReply(HandshakeReply::Response(response)) => {
                desk.remember(&self.client, response);
            }
            _ => {}
        }
        let what = describe(&frame);
        match what {
            What::Request { op, xid, ref fields } => {
                let action = desk.faults.on_request(&self.client, op, path_of(fields));
                if let Some(action) = action {
                    let xid = if op == OpCode::Ping { xid::PING } else { xid };
                    self.marked.push_back((xid, action));
                }
                steps.push(Step::Record(what, action.map(Action::name)));
                match action {
                    Some(Action::DropRequest) => return steps.push(Step::Cut),
                    Some(Action::DelayRequest(delay)) => steps.push(Step::Wait(delay)),
                    _ => {}
                }
                steps.push(Step::Send(whole));
            }
            What::Reply { xid, .. } => reply_steps(self.take_mark(xid), what, whole, steps),
            _ => {
                steps.push(Step::Record(what, None));
                steps.push(Step::Send(whole));
            }
        }
    }

    fn take_mark(&mut self, xid: i32) -> Option<Action> {
        let at = self.marked.iter().position(|(marked, _)| *marked == xid)?;
        self.marked.remove(at).map(|(_, action)| action)
    }
}

fn reply_steps(action: Option<Action>, what: What, whole: Bytes, steps: &mut Vec<Step>) {
    let note = match action {
        Some(Action::DropReply) => Some("reply dropped + connection cut"),
        Some(Action::LoseReply) => Some("reply lost"),
        Some(Action::DelayReply(_)) => Some("reply delayed"),
        _ => None,
    };
    steps.push(Step::Record(what, note));
    match action {
        Some(Action::DropReply) => steps.push(Step::Cut),
        Some(Action::LoseReply) => {}
        Some(Action::DelayReply(delay)) => {
            steps.push(Step::Wait(delay));
            steps.push(Step::Send(whole));
        }
        _ => steps.push(Step::Send(whole)),
    }
}

/// What the record keeps of a frame.
fn describe(frame: &Frame<'_>) -> What {
    match &frame.message {
        Message::ConnectRequest(connect) => What::Connect {
            session_id: connect.session_id,
            last_zxid_seen: connect.last_zxid_seen,
            time_out: connect.time_out,
            read_only: connect.read_only,
        },
        Message::ConnectReply(HandshakeReply::Response(response)) => What::Connected {
            session_id: response.session_id,
            time_out: response.time_out,
            read_only: response.read_only,
        },
        Message::ConnectReply(HandshakeReply::Refused(header)) => What::Refused { err: header.err },
        Message::Request { header, request } => {
            What::Request { xid: header.xid, op: header.op, fields: request_fields(request) }
        }
        Message::Reply { header, op, body } => What::Reply {
            xid: header.xid,
            op: *op,
            zxid: header.zxid,
            err: header.err,
            fields: match body {
                ReplyBody::Record(reply) => reply_fields(reply),
                _ => Vec::new(),
            },
        },
        Message::Event { header, event } => What::Event {
            zxid: header.zxid,
            event_type: event.event_type,
            path: event.path.to_string(),
        },
        Message::Undecodable { xid: Some(xid), op: Some(op), .. } => {
            let value = Value::Undecoded(frame.payload.len());
            let (xid, op, fields) = (*xid, *op, vec![Field { name: "body", value }]);
            match frame.direction {
                Direction::ToServer => What::Request { xid, op, fields },
                Direction::ToClient => {
                    What::Reply { xid, op: Some(op), zxid: 0, err: ErrorCode::Ok, fields }
                }
            }
        }
        _ => raw_bytes(frame.direction, frame.payload),
    }
}

fn raw_bytes(direction: Direction, bytes: &[u8]) -> What {
    let shown = bytes.get(..RAW_SHOWN).unwrap_or(bytes);
    What::Raw { direction, text: String::from_utf8_lossy(shown).into_owned(), len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use docent_protocol::{call, connect::ConnectRequest, jute::Encode, reply::ReplyHeader};

    use super::*;
    use crate::fault::Fault;

    fn connect(session_id: i64) -> Vec<u8> {
        let mut out = Vec::new();
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            time_out: 6000,
            session_id,
            passwd: Some(&[0; 16]),
            read_only: Some(false),
        };
        frame::put_record(&mut out, DECODE_LIMIT, &request).unwrap();
        out
    }

    fn connected(session_id: i64) -> Vec<u8> {
        let mut out = Vec::new();
        let response = ConnectResponse {
            protocol_version: 0,
            time_out: 6000,
            session_id,
            passwd: Some(&[7; 16]),
            read_only: Some(false),
        };
        frame::put_record(&mut out, DECODE_LIMIT, &response).unwrap();
        out
    }

    fn exists(xid: i32) -> Vec<u8> {
        let mut out = Vec::new();
        let call =
            call::Exists(docent_protocol::request::ReadRequest { path: "/a".into(), watch: true });
        frame::put_call(&mut out, DECODE_LIMIT, xid, &call).unwrap();
        out
    }

    fn no_node(xid: i32) -> Vec<u8> {
        let mut out = Vec::new();
        let header = ReplyHeader { xid, zxid: 9, err: ErrorCode::NoNode };
        frame::put(&mut out, DECODE_LIMIT, |out| header.encode(out)).unwrap();
        out
    }

    fn sent(steps: &[Step]) -> Vec<u8> {
        steps
            .iter()
            .filter_map(|step| if let Step::Send(bytes) = step { Some(&bytes[..]) } else { None })
            .flatten()
            .copied()
            .collect()
    }

    /// Whatever the sizes of the reads, what comes out is what went in, and the records are the same.
    #[test]
    fn bytes_pass_unchanged_however_they_are_cut() {
        let input = [connect(0), exists(1), exists(2)].concat();
        let all_at_once = {
            let mut steps = Vec::new();
            Conversation::new("".into()).feed(
                Direction::ToServer,
                &input,
                &mut Desk::default(),
                &mut steps,
            );
            steps
        };
        assert_eq!(sent(&all_at_once), input);
        let (mut talk, mut desk, mut steps) =
            (Conversation::new("".into()), Desk::default(), Vec::new());
        for byte in &input {
            talk.feed(Direction::ToServer, &[*byte], &mut desk, &mut steps);
        }
        assert_eq!(steps, all_at_once);
        assert_eq!(&*talk.client, "A");
    }

    /// The session of client A comes back on another connection: it is still A; a new one gets the next
    /// letter that is nobody's label.
    #[test]
    fn a_client_keeps_its_letter_as_long_as_its_session() {
        let (mut desk, mut steps) = (Desk::default(), Vec::new());
        desk.labels.insert("B".into());
        let mut name = |ask: i64, get: i64| {
            let mut talk = Conversation::new("".into());
            talk.feed(Direction::ToServer, &connect(ask), &mut desk, &mut steps);
            talk.feed(Direction::ToClient, &connected(get), &mut desk, &mut steps);
            talk.client.to_string()
        };
        assert_eq!(
            (name(0, 5), name(0, 6), name(5, 5), name(0, 7)),
            ("A".into(), "C".into(), "A".into(), "D".into())
        );
    }

    #[test]
    fn a_dropped_reply_is_seen_by_the_tap_and_by_nobody_else() {
        let (mut talk, mut desk) = (Conversation::new("A".into()), Desk::default());
        desk.faults.add(Fault::drop_reply(OpCode::Exists));
        let mut steps = Vec::new();
        talk.feed(Direction::ToServer, &[connect(0), exists(1)].concat(), &mut desk, &mut steps);
        assert_eq!(sent(&steps).len(), connect(0).len() + exists(1).len());
        steps.clear();
        talk.feed(Direction::ToClient, &connected(5), &mut desk, &mut steps);
        steps.clear();
        talk.feed(Direction::ToClient, &no_node(1), &mut desk, &mut steps);
        assert_eq!((sent(&steps), steps.last()), (Vec::new(), Some(&Step::Cut)));
    }

    #[test]
    fn four_letter_words_and_rubbish_pass_as_they_come() {
        let (mut talk, mut desk, mut steps) =
            (Conversation::new("".into()), Desk::default(), Vec::new());
        talk.feed(Direction::ToServer, b"ruok", &mut desk, &mut steps);
        assert_eq!(sent(&steps), b"ruok");
        talk.feed(Direction::ToClient, b"imok", &mut desk, &mut steps);
        assert_eq!(sent(&steps), b"ruokimok");
        talk.feed(Direction::ToClient, b"x", &mut desk, &mut steps);
        assert_eq!(sent(&steps), b"ruokimokx");
    }

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!((letters(1), letters(26), letters(27)), ("A".into(), "Z".into(), "AA".into()));
    }
}
