//! One connection as the proxy sees it: bytes of both directions in, steps out.
//!
//! Pure: no sockets and no clock. [`Conversation::feed`] splits the bytes into frames, decodes them, applies the faults,
//! and returns steps: record, send, wait or cut. A frame is passed on when it is complete. Bytes that are not frames
//! (four-letter words, garbage) are forwarded as they arrive.
//!
//! A [`Dissector`](docent_protocol::dissect::Dissector) matches replies with their requests.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use docent_protocol::{
    ErrorCode, OpCode,
    connect::{ConnectResponse, HandshakeReply},
    dissect::{Direction, Dissector, Frame, Message, ReplyBody},
    frame, xid,
};

use super::record::{Field, Value, What, path_of, reply_fields, request_fields};
use crate::fault::{Action, FaultTable};

/// Frames longer than this are not buffered for decoding; they are forwarded as raw bytes. 16 MiB.
const DECODE_LIMIT: usize = 1 << 24;

/// Number of raw bytes shown in a record.
const RAW_SHOWN: usize = 64;

/// An action for a part of a conversation; steps are executed in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Add this to the record.
    Record(What, Option<&'static str>),
    /// Forward these bytes.
    Send(Bytes),
    /// Wait before the next step.
    Wait(Duration),
    /// End the connection; no step follows.
    Cut,
}

/// The state shared by all conversations of one tap.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) faults: FaultTable,
    /// The latest session of each client.
    pub(crate) sessions: BTreeMap<Arc<str>, KnownSession>,
    /// Labels of listeners, which are not available as letters for other clients.
    pub(crate) labels: BTreeSet<Arc<str>>,
    /// Number of letters assigned or skipped.
    named: usize,
}

/// The credentials to attach to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownSession {
    pub(crate) id: i64,
    pub(crate) passwd: Vec<u8>,
}

impl Registry {
    /// Returns the client of this session; a new client gets the next letter.
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
    /// The start of an incomplete frame.
    partial: BytesMut,
    /// Whether the bytes are not frames, and are forwarded as they arrive.
    raw: bool,
}

/// One connection, both directions.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The client's name; empty until the first frame of a client without a dedicated listener.
    pub(crate) client: Arc<str>,
    dissector: Dissector,
    to_server: Half,
    to_client: Half,
    /// Faults for future replies, by the xid of the reply, oldest first.
    marked: VecDeque<(i32, Action)>,
}

impl Conversation {
    pub(crate) fn new(client: Arc<str>) -> Self {
        Self {
            client,
            dissector: Dissector::new(),
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

    /// Takes bytes of one direction and appends the resulting steps to `steps`.
    pub(crate) fn feed(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        registry: &mut Registry,
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
                    self.whole_frame(direction, whole, registry, steps);
                }
                // Read as a length, a four-letter word or its reply is above any limit.
                Err(_) => half.raw = true,
            }
        }
    }

    /// Forwards the rest of a frame that will never be complete.
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
        registry: &mut Registry,
        steps: &mut Vec<Step>,
    ) {
        let payload = whole.get(frame::LENGTH_SIZE..).unwrap_or_default();
        let frame = self.dissector.dissect(direction, payload);
        match &frame.message {
            Message::ConnectRequest(request) if self.client.is_empty() => {
                self.client = registry.name_of(request.session_id);
            }
            Message::ConnectReply(HandshakeReply::Response(response)) => {
                registry.remember(&self.client, response);
            }
            _ => {}
        }
        let what = describe(&frame);
        match what {
            What::Request { op, xid, ref fields } => {
                let action = registry.faults.on_request(&self.client, op, path_of(fields));
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
        Some(Action::RewriteReply(_)) => Some("reply rewritten"),
        _ => None,
    };
    steps.push(Step::Record(what, note));
    match action {
        Some(Action::DropReply) => steps.push(Step::Cut),
        Some(Action::LoseReply) => {}
        Some(Action::RewriteReply(rewrite)) => steps.push(Step::Send(rewrite(&whole).into())),
        Some(Action::DelayReply(delay)) => {
            steps.push(Step::Wait(delay));
            steps.push(Step::Send(whole));
        }
        _ => steps.push(Step::Send(whole)),
    }
}

/// The record of a frame.
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
    use docent_protocol::connect::ConnectRequest;

    use super::*;

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

    /// Client A keeps its name when its session continues on another connection. A new client gets the next letter that
    /// is not a label.
    #[test]
    fn a_client_keeps_its_letter_as_long_as_its_session() {
        let (mut registry, mut steps) = (Registry::default(), Vec::new());
        registry.labels.insert("B".into());
        let mut name = |ask: i64, get: i64| {
            let mut talk = Conversation::new("".into());
            talk.feed(Direction::ToServer, &connect(ask), &mut registry, &mut steps);
            talk.feed(Direction::ToClient, &connected(get), &mut registry, &mut steps);
            talk.client.to_string()
        };
        assert_eq!(
            (name(0, 5), name(0, 6), name(5, 5), name(0, 7)),
            ("A".into(), "C".into(), "A".into(), "D".into())
        );
    }

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!((letters(1), letters(26), letters(27)), ("A".into(), "Z".into(), "AA".into()));
    }
}
