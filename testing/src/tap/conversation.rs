//! One connection as the proxy sees it: bytes of both directions in, steps out.
//!
//! Pure: no sockets and no clock. [`Conversation::feed`] cuts the bytes into frames, decodes them,
//! asks the faults, and answers with what to record, to send, to wait for. Frames are kept back until
//! they are whole; bytes that are no frames (four-letter words, rubbish) pass as they come.
//!
//! A reply can only be read by who knows its request, so the requests that wait for one are kept, oldest
//! first. Most replies are the oldest's; auth, ping and `Unimplemented` may overtake, so the number
//! decides.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use docent_protocol::{
    Decode, ErrorCode, OpCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    frame,
    jute::Reader,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
    xid,
};

use super::record::{Direction, Field, Value, What, path_of, reply_fields, request_fields};
use crate::fault::{Action, FaultTable};

/// Frames longer than this are not kept back to be decoded; they pass as bytes. 16 MiB.
const DECODE_LIMIT: usize = 1 << 24;

/// How many requests may wait for replies that never come before the oldest is forgotten.
const PENDING_LIMIT: usize = 1 << 20;

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
    /// How many clients were named by a letter.
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
        self.named += 1;
        letters(self.named).into()
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

/// A request that waits for its reply.
#[derive(Debug)]
struct Asked {
    xid: i32,
    op: OpCode,
    action: Option<Action>,
}

#[derive(Debug, Default)]
struct Half {
    /// The front of a frame that is not whole yet.
    partial: BytesMut,
    /// Whether the first frame, the handshake, has passed.
    greeted: bool,
    /// Whether these are no frames, and pass as they come.
    raw: bool,
}

/// One connection, both directions.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Who; empty until the first frame of a client without a listener of its own.
    pub(crate) client: Arc<str>,
    to_server: Half,
    to_client: Half,
    asked: VecDeque<Asked>,
}

impl Conversation {
    pub(crate) fn new(client: Arc<str>) -> Self {
        Self {
            client,
            to_server: Half::default(),
            to_client: Half::default(),
            asked: VecDeque::new(),
        }
    }

    const fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::ClientToServer => &mut self.to_server,
            Direction::ServerToClient => &mut self.to_client,
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
        loop {
            let half = self.half(direction);
            if half.raw {
                let raw = half.partial.split().freeze();
                if !raw.is_empty() {
                    steps.push(Step::Record(raw_bytes(direction, &raw), None));
                    steps.push(Step::Send(raw));
                }
                return;
            }
            match frame::split(&half.partial, DECODE_LIMIT) {
                Ok(None) => return,
                Ok(Some((payload, _))) => {
                    let whole = frame::LENGTH_SIZE + payload.len();
                    let whole = half.partial.split_to(whole).freeze();
                    let payload = whole.slice(frame::LENGTH_SIZE..);
                    let first = !std::mem::replace(&mut half.greeted, true);
                    match direction {
                        Direction::ClientToServer => {
                            self.request(first, &payload, whole, desk, steps);
                        }
                        Direction::ServerToClient => {
                            self.reply(first, &payload, whole, desk, steps);
                        }
                    }
                    if steps.last() == Some(&Step::Cut) {
                        return;
                    }
                }
                Err(_) => half.raw = true,
            }
        }
    }

    /// What is left of a frame that will never be whole, when its sender has ended the stream.
    pub(crate) fn finish(&mut self, direction: Direction, steps: &mut Vec<Step>) {
        let rest = self.half(direction).partial.split().freeze();
        if !rest.is_empty() {
            steps.push(Step::Record(raw_bytes(direction, &rest), None));
            steps.push(Step::Send(rest));
        }
    }

    fn request(
        &mut self,
        first: bool,
        payload: &[u8],
        whole: Bytes,
        desk: &mut Desk,
        steps: &mut Vec<Step>,
    ) {
        let mut reader = Reader::new(payload);
        if first {
            if let Ok(connect) = ConnectRequest::decode(&mut reader) {
                if self.client.is_empty() {
                    self.client = desk.name_of(connect.session_id);
                }
                steps.push(Step::Record(connect_record(&connect), None));
            } else {
                steps.push(Step::Record(raw_bytes(Direction::ClientToServer, payload), None));
            }
            steps.push(Step::Send(whole));
            return;
        }
        let Ok(header) = RequestHeader::decode(&mut reader) else {
            steps.push(Step::Record(raw_bytes(Direction::ClientToServer, payload), None));
            steps.push(Step::Send(whole));
            return;
        };
        let body = reader.rest().len();
        let fields = Request::decode(header.op, &mut reader)
            .map_or_else(|_| undecoded(body), |request| request_fields(&request));
        let action = desk.faults.on_request(&self.client, header.op, path_of(&fields));
        let asked_as = if header.op == OpCode::Ping { xid::PING } else { header.xid };
        self.asked.push_back(Asked { xid: asked_as, op: header.op, action });
        if self.asked.len() > PENDING_LIMIT {
            self.asked.pop_front();
        }
        let what = What::Request { xid: header.xid, op: header.op, fields };
        steps.push(Step::Record(what, action.map(Action::name)));
        match action {
            Some(Action::DropRequest) => return steps.push(Step::Cut),
            Some(Action::DelayRequest(delay)) => steps.push(Step::Wait(delay)),
            _ => {}
        }
        steps.push(Step::Send(whole));
    }

    fn reply(
        &mut self,
        first: bool,
        payload: &[u8],
        whole: Bytes,
        desk: &mut Desk,
        steps: &mut Vec<Step>,
    ) {
        if first {
            steps.push(Step::Record(self.greeting(payload, desk), None));
            return steps.push(Step::Send(whole));
        }
        let mut reader = Reader::new(payload);
        let Ok(header) = ReplyHeader::decode(&mut reader) else {
            steps.push(Step::Record(raw_bytes(Direction::ServerToClient, payload), None));
            return steps.push(Step::Send(whole));
        };
        let asked = self.take_asked(header.xid);
        if asked.is_none() && header.xid == xid::NOTIFICATION {
            steps.push(Step::Record(event(header, &mut reader), None));
            return steps.push(Step::Send(whole));
        }
        let fields = match &asked {
            Some(asked) if header.err.is_ok() => {
                let body = reader.rest().len();
                Reply::decode(asked.op, &mut reader)
                    .map_or_else(|_| undecoded(body), |reply| reply_fields(&reply))
            }
            _ => Vec::new(),
        };
        let ReplyHeader { xid, zxid, err } = header;
        let what = What::Reply { xid, op: asked.as_ref().map(|a| a.op), zxid, err, fields };
        match asked.and_then(|asked| asked.action) {
            Some(Action::DropReply) => {
                steps.push(Step::Record(what, Some("reply dropped + connection cut")));
                steps.push(Step::Cut);
            }
            Some(Action::LoseReply) => steps.push(Step::Record(what, Some("reply lost"))),
            Some(Action::DelayReply(delay)) => {
                steps.push(Step::Record(what, Some("reply delayed")));
                steps.push(Step::Wait(delay));
                steps.push(Step::Send(whole));
            }
            _ => {
                steps.push(Step::Record(what, None));
                steps.push(Step::Send(whole));
            }
        }
    }

    fn greeting(&self, payload: &[u8], desk: &mut Desk) -> What {
        match HandshakeReply::decode(&mut Reader::new(payload)) {
            Ok(HandshakeReply::Response(response)) => {
                if !response.is_refused() {
                    let passwd = response.passwd.unwrap_or_default().to_vec();
                    let session = KnownSession { id: response.session_id, passwd };
                    desk.sessions.insert(Arc::clone(&self.client), session);
                }
                What::Connected {
                    session_id: response.session_id,
                    time_out: response.time_out,
                    read_only: response.read_only,
                }
            }
            Ok(HandshakeReply::Refused(header)) => What::Refused { err: header.err },
            Err(_) => raw_bytes(Direction::ServerToClient, payload),
        }
    }

    fn take_asked(&mut self, xid: i32) -> Option<Asked> {
        let at = self.asked.iter().position(|asked| asked.xid == xid)?;
        self.asked.remove(at)
    }
}

const fn connect_record(connect: &ConnectRequest<'_>) -> What {
    What::Connect {
        session_id: connect.session_id,
        last_zxid_seen: connect.last_zxid_seen,
        time_out: connect.time_out,
        read_only: connect.read_only,
    }
}

fn event(header: ReplyHeader, reader: &mut Reader<'_>) -> What {
    match WatcherEvent::decode(reader) {
        Ok(event) => What::Event {
            zxid: header.zxid,
            event_type: event.event_type,
            path: event.path.to_string(),
        },
        Err(_) => What::Reply {
            xid: header.xid,
            op: None,
            zxid: header.zxid,
            err: ErrorCode::MarshallingError,
            fields: undecoded(reader.rest().len()),
        },
    }
}

fn undecoded(len: usize) -> Vec<Field> {
    vec![Field { name: "body", value: Value::Undecoded(len) }]
}

fn raw_bytes(direction: Direction, bytes: &[u8]) -> What {
    let shown = bytes.get(..RAW_SHOWN).unwrap_or(bytes);
    What::Raw { direction, text: String::from_utf8_lossy(shown).into_owned(), len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use docent_protocol::{call, connect::ConnectResponse, jute::Encode};

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
                Direction::ClientToServer,
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
            talk.feed(Direction::ClientToServer, &[*byte], &mut desk, &mut steps);
        }
        assert_eq!(steps, all_at_once);
        assert_eq!(&*talk.client, "A");
    }

    /// The session of client A comes back on another connection: it is still A; a new one is B.
    #[test]
    fn a_client_keeps_its_letter_as_long_as_its_session() {
        let (mut desk, mut steps) = (Desk::default(), Vec::new());
        let mut name = |ask: i64, get: i64| {
            let mut talk = Conversation::new("".into());
            talk.feed(Direction::ClientToServer, &connect(ask), &mut desk, &mut steps);
            talk.feed(Direction::ServerToClient, &connected(get), &mut desk, &mut steps);
            talk.client.to_string()
        };
        assert_eq!(
            (name(0, 5), name(0, 6), name(5, 5), name(0, 7)),
            ("A".into(), "B".into(), "A".into(), "C".into())
        );
    }

    #[test]
    fn a_dropped_reply_is_seen_by_the_tap_and_by_nobody_else() {
        let (mut talk, mut desk) = (Conversation::new("A".into()), Desk::default());
        desk.faults.add(Fault::drop_reply(OpCode::Exists));
        let mut steps = Vec::new();
        talk.feed(
            Direction::ClientToServer,
            &[connect(0), exists(1)].concat(),
            &mut desk,
            &mut steps,
        );
        assert_eq!(sent(&steps).len(), connect(0).len() + exists(1).len());
        steps.clear();
        talk.feed(Direction::ServerToClient, &connected(5), &mut desk, &mut steps);
        steps.clear();
        talk.feed(Direction::ServerToClient, &no_node(1), &mut desk, &mut steps);
        assert_eq!((sent(&steps), steps.last()), (Vec::new(), Some(&Step::Cut)));
    }

    #[test]
    fn four_letter_words_and_rubbish_pass_as_they_come() {
        let (mut talk, mut desk, mut steps) =
            (Conversation::new("".into()), Desk::default(), Vec::new());
        talk.feed(Direction::ClientToServer, b"ruok", &mut desk, &mut steps);
        assert_eq!(sent(&steps), b"ruok");
        talk.feed(Direction::ServerToClient, b"imok", &mut desk, &mut steps);
        assert_eq!(sent(&steps), b"ruokimok");
        talk.feed(Direction::ServerToClient, b"x", &mut desk, &mut steps);
        assert_eq!(sent(&steps), b"ruokimokx");
    }

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!((letters(1), letters(26), letters(27)), ("A".into(), "Z".into(), "AA".into()));
    }
}
