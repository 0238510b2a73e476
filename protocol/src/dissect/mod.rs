//! Decodes both directions of a connection, for captures, proxies and fuzzers.
//!
//! A reply does not name its operation, and the first frame of each direction has no header. A frame can
//! therefore only be decoded with the state of its connection, which a [`Dissector`] keeps:
//!
//! ```text
//!   bytes c2s ──► Reassembler ──► payload ──► State ──► Frame
//!   bytes s2c ──► Reassembler ──► payload ──►   handshake seen, per direction
//!                 (at most                      pending requests: xid and operation
//!                  one frame)
//! ```
//!
//! The state is bounded for any input: one frame of at most [`frame_limit`](Dissector::with_limit) bytes per
//! direction, and [`MAX_PENDING`] pending requests.
//!
//! A reply is matched by xid with the oldest pending request. A server replies in that order. Matching by xid
//! also covers the replies that arrive out of order or under another number: notifications (-1), pings (-2,
//! whatever the xid of the request), auth (-4), `UNIMPLEMENTED`, which overtakes pending replies, and clients
//! that use an xid twice.
//!
//! Source: `ClientCnxn.SendThread.readResponse`, `NIOServerCnxn`.

use alloc::collections::VecDeque;
use core::fmt;

use crate::{
    Decode, DecodeError, ErrorCode, EventType, OpCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    jute::Reader,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
    xid,
};

mod frame;
mod reassembler;

use reassembler::{Reassembled, Reassembler};

pub use frame::{Frame, Message, Opaque, ReplyBody};

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Client to server: `c2s`.
    ToServer,
    /// Server to client: `s2c`.
    ToClient,
}

impl Direction {
    /// `c2s` or `s2c`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToServer => "c2s",
            Self::ToClient => "s2c",
        }
    }

    /// The direction of a [`name`](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "c2s" => Some(Self::ToServer),
            "s2c" => Some(Self::ToClient),
            _ => None,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Maximum number of pending requests; a further one drops the oldest. A server has at most 1,000 requests of
/// all its clients outstanding by default (`zookeeper.globalOutstandingLimit`), so the limit only matters when
/// it never replies.
pub const MAX_PENDING: usize = 1 << 16;

/// Default limit of a frame's payload, in bytes; [`Dissector::with_limit`] sets another one. Replies may be
/// longer than the requests that a server accepts.
pub const DEFAULT_FRAME_LIMIT: usize = 16 << 20;

/// Decodes the frames of one connection.
///
/// # Example
///
/// ```
/// use docent_protocol::dissect::{Direction, Dissector};
///
/// let mut dissector = Dissector::new();
/// let mut lines = Vec::new();
/// // The bytes as read from a socket or a capture, split anywhere.
/// for (direction, mut bytes) in [
///     (Direction::ToServer, &[0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x27, 0x10][..]),
///     (Direction::ToServer, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]),
///     (Direction::ToServer, &[3, 4, 5, 6, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 11]),
/// ] {
///     while let Some(frame) = dissector.feed(direction, &mut bytes) {
///         lines.push(frame.to_string());
///     }
/// }
/// assert_eq!(lines, [
///     "c2s connect lastZxidSeen=0x0 timeOut=10000 sessionId=0x0 passwd=16 bytes",
///     "c2s 7 ping",
/// ]);
/// ```
#[derive(Debug)]
pub struct Dissector {
    to_server: Reassembler,
    to_client: Reassembler,
    state: State,
    limit: usize,
}

impl Default for Dissector {
    fn default() -> Self {
        Self::new()
    }
}

impl Dissector {
    /// A dissector for a connection from its first byte on.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_limit(DEFAULT_FRAME_LIMIT)
    }

    /// As [`new`](Self::new), with a limit of a frame's payload in bytes. Only the header of a longer frame is
    /// decoded; the rest is skipped.
    #[must_use]
    pub const fn with_limit(frame_limit: usize) -> Self {
        Self {
            to_server: Reassembler::new(),
            to_client: Reassembler::new(),
            state: State {
                connect_request_seen: false,
                connect_reply_seen: false,
                is_text: false,
                pending: VecDeque::new(),
            },
            limit: frame_limit,
        }
    }

    /// A dissector for a connection whose handshake is over.
    #[must_use]
    pub const fn established() -> Self {
        let mut dissector = Self::new();
        dissector.state.connect_request_seen = true;
        dissector.state.connect_reply_seen = true;
        dissector
    }

    /// Consumes bytes from the front of `input` until a frame is complete, and decodes it. Call it until it
    /// returns `None`: the input is then empty, and the start of an incomplete frame is buffered.
    ///
    /// A frame that is complete in `input` is borrowed from it, not copied.
    ///
    /// After a frame length below 0 the rest of that direction cannot be decoded and is dropped.
    pub fn feed<'s, 'i: 's>(
        &'s mut self,
        direction: Direction,
        input: &mut &'i [u8],
    ) -> Option<Frame<'s>> {
        let Self { to_server, to_client, state, limit } = self;
        let reassembler = match direction {
            Direction::ToServer => to_server,
            Direction::ToClient => to_client,
        };
        if state.is_text {
            let text = core::mem::take(input);
            return (!text.is_empty()).then_some(Frame {
                direction,
                payload: text,
                message: Message::Text(Opaque(text)),
                left_over: &[],
            });
        }
        let may_be_word = direction == Direction::ToServer && !state.connect_request_seen;
        Some(match reassembler.next(*limit, may_be_word, input)? {
            Reassembled::Payload(payload) => state.dissect(direction, payload),
            Reassembled::Malformed(start, error) => state.dissect_start(direction, start, error),
            Reassembled::FourLetterWord(bytes, word) => {
                state.is_text = true;
                Frame {
                    direction,
                    payload: bytes,
                    message: Message::FourLetterWord(word),
                    left_over: &[],
                }
            }
        })
    }

    /// Decodes a payload that the caller has already split off its stream.
    pub fn dissect<'a>(&mut self, direction: Direction, payload: &'a [u8]) -> Frame<'a> {
        self.state.dissect(direction, payload)
    }

    /// Number of buffered bytes of an incomplete frame.
    #[must_use]
    pub const fn buffered(&self, direction: Direction) -> usize {
        let reassembler = match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        };
        reassembler.buffered()
    }

    /// Drops the buffered start of an incomplete frame, for example after a gap in a capture.
    pub fn discard(&mut self, direction: Direction) {
        match direction {
            Direction::ToServer => self.to_server = Reassembler::new(),
            Direction::ToClient => self.to_client = Reassembler::new(),
        }
    }

    /// Number of requests without a reply.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state.pending.len()
    }
}

/// The state of a connection that later frames depend on.
#[derive(Debug)]
struct State {
    /// Whether the client's first frame was seen.
    connect_request_seen: bool,
    /// Whether the server's first frame was seen.
    connect_reply_seen: bool,
    /// Whether the connection began with a four-letter word.
    is_text: bool,
    /// Requests without a reply, the oldest first: the xid of the reply, and the operation.
    pending: VecDeque<(i32, OpCode)>,
}

impl State {
    fn dissect<'a>(&mut self, direction: Direction, payload: &'a [u8]) -> Frame<'a> {
        let mut reader = Reader::new(payload);
        let message = match direction {
            Direction::ToServer if !self.connect_request_seen => {
                self.connect_request_seen = true;
                ConnectRequest::decode(&mut reader)
                    .map_or_else(Message::without_header, Message::ConnectRequest)
            }
            Direction::ToClient if !self.connect_reply_seen => {
                self.connect_reply_seen = true;
                HandshakeReply::decode(&mut reader)
                    .map_or_else(Message::without_header, Message::ConnectReply)
            }
            Direction::ToServer => self.dissect_request(&mut reader),
            Direction::ToClient => self.dissect_reply(&mut reader),
        };
        let left_over = match message {
            Message::Undecodable { .. } => &[],
            _ => reader.rest(),
        };
        Frame { direction, payload, message, left_over }
    }

    /// Decodes the header of a malformed frame, of which only the start is there.
    fn dissect_start<'a>(
        &mut self,
        direction: Direction,
        start: &'a [u8],
        error: DecodeError,
    ) -> Frame<'a> {
        let mut reader = Reader::new(start);
        let has_header = match direction {
            Direction::ToServer => core::mem::replace(&mut self.connect_request_seen, true),
            Direction::ToClient => core::mem::replace(&mut self.connect_reply_seen, true),
        };
        let (xid, op) = match direction {
            _ if !has_header => (None, None),
            Direction::ToServer => match RequestHeader::decode(&mut reader) {
                Ok(header) => {
                    self.push_pending(header);
                    (Some(header.xid), Some(header.op))
                }
                Err(_) => (None, None),
            },
            Direction::ToClient => match ReplyHeader::decode(&mut reader) {
                Ok(header) => (Some(header.xid), self.take_pending(header.xid)),
                Err(_) => (None, None),
            },
        };
        let message = Message::Undecodable { xid, op, error };
        Frame { direction, payload: start, message, left_over: &[] }
    }

    fn dissect_request<'a>(&mut self, reader: &mut Reader<'a>) -> Message<'a> {
        let header = match RequestHeader::decode(reader) {
            Ok(header) => header,
            Err(error) => return Message::without_header(error),
        };
        // A server also replies to a request it cannot decode: MARSHALLINGERROR.
        self.push_pending(header);
        match Request::decode(header.op, reader) {
            Ok(request) => Message::Request { header, request },
            Err(error) => {
                Message::Undecodable { xid: Some(header.xid), op: Some(header.op), error }
            }
        }
    }

    fn dissect_reply<'a>(&mut self, reader: &mut Reader<'a>) -> Message<'a> {
        let header = match ReplyHeader::decode(reader) {
            Ok(header) => header,
            Err(error) => return Message::without_header(error),
        };
        if header.xid == xid::NOTIFICATION {
            let body = *reader;
            let event = WatcherEvent::decode(reader);
            if !self.is_reply_not_event(event, reader) {
                return match event {
                    Ok(event) => Message::Event { header, event },
                    Err(error) => Message::Undecodable { xid: Some(header.xid), op: None, error },
                };
            }
            *reader = body;
        }
        let op = self.take_pending(header.xid);
        let rest = Opaque(reader.rest());
        let body = match op {
            _ if header.err != ErrorCode::Ok => ReplyBody::Error(rest),
            None => ReplyBody::Unmatched(rest),
            Some(code) => match Reply::decode(code, reader) {
                Ok(reply) => return Message::Reply { header, op, body: ReplyBody::Record(reply) },
                Err(error) => return Message::Undecodable { xid: Some(header.xid), op, error },
            },
        };
        *reader = Reader::new(&[]);
        Message::Reply { header, op, body }
    }

    /// Whether a frame with xid -1 is a reply. A server echoes any xid, so a request with xid -1 has a reply
    /// that looks like a notification. The two are distinguished by content, and only while such a request is
    /// pending.
    fn is_reply_not_event(
        &self,
        event: Result<WatcherEvent<'_>, DecodeError>,
        reader: &Reader<'_>,
    ) -> bool {
        let is_event = event.is_ok_and(|event| {
            reader.is_empty() && !matches!(event.event_type, EventType::Unknown(_))
        });
        !is_event && self.pending.iter().any(|&(pending, _)| pending == xid::NOTIFICATION)
    }

    /// Adds a pending request. The reply to a ping has xid -2, whatever the xid of the request.
    fn push_pending(&mut self, header: RequestHeader) {
        if self.pending.len() >= MAX_PENDING {
            self.pending.pop_front();
        }
        let xid = if header.op == OpCode::Ping { xid::PING } else { header.xid };
        self.pending.push_back((xid, header.op));
    }

    /// Removes the oldest pending request with this xid and returns its operation.
    fn take_pending(&mut self, xid: i32) -> Option<OpCode> {
        let place = self.pending.iter().position(|&(pending, _)| pending == xid)?;
        self.pending.remove(place).map(|(_, op)| op)
    }
}
