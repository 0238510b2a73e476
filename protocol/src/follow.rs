//! Reads both directions of one connection, whoever sends them: captures, proxies, fuzzers.
//!
//! Nothing in a reply says what it answers, and the first frame each way has no header: a frame can only
//! be read by who has seen what went before. [`Follower`] remembers that, and only that:
//!
//! ```text
//!   bytes c2s ──► Stream ──► payload ──► Conversation ──► Frame
//!   bytes s2c ──► Stream ──► payload ──►   handshake seen? per direction
//!                 (at most                 requests that wait for a reply: xid and operation
//!                  one frame)
//! ```
//!
//! What it holds is bounded, whatever it is fed: one frame of at most [`frame_limit`](Follower::with_limit)
//! bytes each way, and [`MAX_PENDING`] requests without a reply.
//!
//! Replies are matched by xid, the oldest request first. That is the server's order, and it also reads
//! what comes out of turn: notifications (-1), pings (-2, whatever the request's xid was), auth (-4),
//! `UNIMPLEMENTED`, which overtakes, and clients that use a number twice.
//!
//! Source: `ClientCnxn.SendThread.readResponse`, `NIOServerCnxn`.

use alloc::{collections::VecDeque, vec::Vec};
use core::fmt;

use bytes::BufMut;

use crate::{
    Decode, DecodeError, DecodeErrorKind, Encode, ErrorCode, EventType, OpCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    frame,
    jute::Reader,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
    xid,
};

/// Which way bytes go.
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

/// One frame of a connection, read with what went before.
///
/// `Display` tells it in one line, without credentials and without the data of nodes; with the feature
/// `serde` it is an object of jute's field names, without credentials.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// All of it but its length. May hold credentials.
    pub payload: &'a [u8],
    /// What it says.
    pub message: Message<'a>,
    /// What stands in the payload behind the message. Servers do not mind; nor should clients.
    pub left_over: &'a [u8],
}

impl Frame<'_> {
    /// The xid of a request, reply or event, even of one that could not be read further.
    #[must_use]
    pub const fn xid(&self) -> Option<i32> {
        match &self.message {
            Message::Request { header, .. } => Some(header.xid),
            Message::Reply { header, .. } | Message::Event { header, .. } => Some(header.xid),
            Message::Undecodable { xid, .. } => *xid,
            _ => None,
        }
    }

    /// The operation of a request, or the one a reply answers.
    #[must_use]
    pub const fn op(&self) -> Option<OpCode> {
        match &self.message {
            Message::Request { header, .. } => Some(header.op),
            Message::Reply { op, .. } | Message::Undecodable { op, .. } => *op,
            _ => None,
        }
    }

    /// Whether the message, written again, gives the payload back, with nothing left over.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let mut again = Vec::new();
        self.message.encode(&mut again);
        let is_read = !matches!(self.message, Message::Undecodable { .. });
        is_read && self.left_over.is_empty() && again == self.payload
    }
}

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// The first frame of a client.
    ConnectRequest(ConnectRequest<'a>),
    /// The first frame of a server.
    ConnectReply(HandshakeReply<'a>),
    /// A request.
    Request {
        /// Its xid and operation.
        header: RequestHeader,
        /// Its body.
        request: Request<'a>,
    },
    /// A reply.
    Reply {
        /// Its xid, zxid and error.
        header: ReplyHeader,
        /// What it answers; `None` when no request waits for that xid.
        op: Option<OpCode>,
        /// Its body.
        body: ReplyBody<'a>,
    },
    /// A watch event.
    Event {
        /// Its xid is -1.
        header: ReplyHeader,
        /// What happened.
        event: WatcherEvent<'a>,
    },
    /// A command of an administrator instead of a handshake: `ruok`, `srvr`. No frame.
    FourLetterWord([u8; 4]),
    /// Text on a connection that began with a four-letter word, as it came. No frame.
    Text(Opaque<'a>),
    /// Bytes that are not the message they should be.
    Undecodable {
        /// Its xid, if there is a header.
        xid: Option<i32>,
        /// The operation, if it is known.
        op: Option<OpCode>,
        /// What is wrong.
        error: DecodeError,
    },
}

/// The body of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyBody<'a> {
    /// The header has no error: the operation's record.
    Record(Reply<'a>),
    /// The header has an error. Normally nothing follows it; multiRead and SASL may add something that
    /// is not worth reading.
    Error(Opaque<'a>),
    /// No request is known that this answers.
    Unmatched(Opaque<'a>),
}

/// Bytes that were not read. `Debug` tells only how many, for nobody knows what is in them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Opaque<'a>(pub &'a [u8]);

impl fmt::Debug for Opaque<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("direction", &self.direction)
            .field("message", &self.message)
            .field("left_over", &self.left_over.len())
            .finish_non_exhaustive()
    }
}

/// Writes the payload again; nothing for an undecodable one.
impl Encode for Message<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        match self {
            Self::ConnectRequest(record) => record.encode(out),
            Self::ConnectReply(record) => record.encode(out),
            Self::Request { header, request } => {
                header.encode(out);
                request.encode(out);
            }
            Self::Reply { header, body, .. } => {
                header.encode(out);
                match body {
                    ReplyBody::Record(record) => record.encode(out),
                    ReplyBody::Error(bytes) | ReplyBody::Unmatched(bytes) => out.put_slice(bytes.0),
                }
            }
            Self::Event { header, event } => {
                header.encode(out);
                event.encode(out);
            }
            Self::FourLetterWord(word) => out.put_slice(word),
            Self::Text(text) => out.put_slice(text.0),
            Self::Undecodable { .. } => {}
        }
    }
}

/// How many requests may wait for a reply before the oldest is forgotten. A server has 1,000 of all its
/// clients at a time unless it is told otherwise; one that answers nothing is what this is for.
pub const MAX_PENDING: usize = 1 << 16;

/// The longest frame that is read, unless [`Follower::with_limit`] says otherwise, in bytes. Replies may be
/// longer than what a server accepts.
pub const DEFAULT_FRAME_LIMIT: usize = 16 << 20;

/// Follows one connection.
///
/// # Example
///
/// ```
/// use docent_protocol::follow::{Direction, Follower};
///
/// let mut follower = Follower::new();
/// let mut told = Vec::new();
/// // As it comes off a socket or out of a capture: cut anywhere.
/// for (direction, mut bytes) in [
///     (Direction::ToServer, &[0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x27, 0x10][..]),
///     (Direction::ToServer, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]),
///     (Direction::ToServer, &[3, 4, 5, 6, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 11]),
/// ] {
///     while let Some(frame) = follower.feed(direction, &mut bytes) {
///         told.push(frame.to_string());
///     }
/// }
/// assert_eq!(told, [
///     "c2s connect lastZxidSeen=0x0 timeOut=10000 sessionId=0x0 passwd=16 bytes",
///     "c2s 7 ping",
/// ]);
/// ```
#[derive(Debug)]
pub struct Follower {
    to_server: Stream,
    to_client: Stream,
    conversation: Conversation,
    limit: usize,
}

impl Default for Follower {
    fn default() -> Self {
        Self::new()
    }
}

impl Follower {
    /// A connection from its beginning.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_limit(DEFAULT_FRAME_LIMIT)
    }

    /// As [`new`](Self::new), with another length of the longest frame, in bytes. Of a longer one only the
    /// header is read, the rest is passed over.
    #[must_use]
    pub const fn with_limit(frame_limit: usize) -> Self {
        Self {
            to_server: Stream::new(),
            to_client: Stream::new(),
            conversation: Conversation {
                greeted: false,
                answered: false,
                is_text: false,
                pending: VecDeque::new(),
            },
            limit: frame_limit,
        }
    }

    /// A connection from some time after its handshake.
    #[must_use]
    pub const fn established() -> Self {
        let mut follower = Self::new();
        follower.conversation.greeted = true;
        follower.conversation.answered = true;
        follower
    }

    /// Takes bytes off the front of `input` until a frame is whole, and reads it. `None` when the input
    /// is used up; what there was of a frame is kept. Call it until then.
    ///
    /// A frame that lies whole in `input` is borrowed from there, not copied.
    ///
    /// After a frame length below 0 the rest of that direction means nothing and is dropped.
    pub fn feed<'s, 'i: 's>(
        &'s mut self,
        direction: Direction,
        input: &mut &'i [u8],
    ) -> Option<Frame<'s>> {
        let Self { to_server, to_client, conversation, limit } = self;
        let stream = match direction {
            Direction::ToServer => to_server,
            Direction::ToClient => to_client,
        };
        if conversation.is_text {
            let text = core::mem::take(input);
            return (!text.is_empty()).then_some(Frame {
                direction,
                payload: text,
                message: Message::Text(Opaque(text)),
                left_over: &[],
            });
        }
        let may_be_word = direction == Direction::ToServer && !conversation.greeted;
        Some(match stream.next(*limit, may_be_word, input)? {
            Piece::Payload(payload) => conversation.read(direction, payload),
            Piece::Broken(start, error) => conversation.read_broken(direction, start, error),
            Piece::Word(bytes, word) => {
                conversation.is_text = true;
                Frame {
                    direction,
                    payload: bytes,
                    message: Message::FourLetterWord(word),
                    left_over: &[],
                }
            }
        })
    }

    /// Reads a payload that was split off elsewhere.
    pub fn payload<'a>(&mut self, direction: Direction, payload: &'a [u8]) -> Frame<'a> {
        self.conversation.read(direction, payload)
    }

    /// How many bytes of an unfinished frame are kept.
    #[must_use]
    pub const fn buffered(&self, direction: Direction) -> usize {
        let stream = match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        };
        if stream.delivered { 0 } else { stream.buffer.len() }
    }

    /// Forgets what there is of an unfinished frame: after a gap in a capture, say.
    pub fn discard(&mut self, direction: Direction) {
        match direction {
            Direction::ToServer => self.to_server = Stream::new(),
            Direction::ToClient => self.to_client = Stream::new(),
        }
    }

    /// How many requests wait for a reply.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.conversation.pending.len()
    }
}

/// Puts the frames of one direction together.
#[derive(Debug)]
struct Stream {
    /// The beginning of a frame, length included.
    buffer: Vec<u8>,
    /// Whether the buffer's frame was handed out, so that it can go.
    delivered: bool,
    /// How many bytes of a frame over the limit are still to come.
    skip: usize,
    /// Whether a length was broken: nobody knows where the next frame begins.
    lost: bool,
}

/// What a [`Stream`] finds.
enum Piece<'a> {
    Payload(&'a [u8]),
    Word(&'a [u8], [u8; 4]),
    /// The beginning of a frame that cannot be read, and why.
    Broken(&'a [u8], DecodeError),
}

/// As much of a frame over the limit as is looked at: the larger of the two headers.
const HEADER_SIZE: usize = 16;

/// Buffers that have grown beyond this, in bytes, are given back after use.
const KEPT_CAPACITY: usize = 64 << 10;

impl Stream {
    const fn new() -> Self {
        Self { buffer: Vec::new(), delivered: false, skip: 0, lost: false }
    }

    fn next<'s, 'i: 's>(
        &'s mut self,
        limit: usize,
        may_be_word: bool,
        input: &mut &'i [u8],
    ) -> Option<Piece<'s>> {
        self.clear_delivered();
        self.pass_over(input);
        if self.buffer.is_empty() {
            let whole = frame::split(input, limit);
            if let Ok(Some((payload, rest))) = whole {
                *input = rest;
                return Some(Piece::Payload(payload));
            }
        }
        if !self.fill(frame::LENGTH_SIZE, input) {
            return None;
        }
        let &start = self.buffer.first_chunk()?;
        if may_be_word && start.iter().all(u8::is_ascii_lowercase) {
            self.delivered = true;
            return Some(Piece::Word(&self.buffer, start));
        }
        let (size, error) = match (frame::length(&start), frame::split(&start, limit)) {
            (Err(error), _) => {
                self.lost = true;
                (0, Some(error))
            }
            (Ok(len), Err(error)) => (len?.min(HEADER_SIZE), Some(error)),
            (Ok(len), Ok(_)) => (len?, None),
        };
        if !self.fill(frame::LENGTH_SIZE + size, input) {
            return None;
        }
        self.delivered = true;
        if let Some(DecodeErrorKind::FrameTooLarge { len, .. }) = error.map(|error| error.kind()) {
            self.skip = len - size;
        }
        let payload = self.buffer.get(frame::LENGTH_SIZE..)?;
        Some(match error {
            None => Piece::Payload(payload),
            Some(error) => Piece::Broken(payload, error),
        })
    }

    fn clear_delivered(&mut self) {
        if self.delivered {
            self.delivered = false;
            self.buffer.clear();
            if self.buffer.capacity() > KEPT_CAPACITY {
                self.buffer = Vec::new();
            }
        }
    }

    /// Drops what belongs to a frame over the limit, and all there is once the stream is lost.
    fn pass_over(&mut self, input: &mut &[u8]) {
        let count = if self.lost { input.len() } else { self.skip.min(input.len()) };
        self.skip = self.skip.saturating_sub(count);
        *input = input.get(count..).unwrap_or_default();
    }

    /// Moves bytes into the buffer until it has `size`; whether it has.
    fn fill(&mut self, size: usize, input: &mut &[u8]) -> bool {
        let missing = size.saturating_sub(self.buffer.len()).min(input.len());
        let (taken, rest) = input.split_at_checked(missing).unwrap_or((input, &[]));
        self.buffer.extend_from_slice(taken);
        *input = rest;
        self.buffer.len() >= size
    }
}

/// What a connection has said so far, as far as later frames depend on it.
#[derive(Debug)]
struct Conversation {
    /// Whether the client's first frame went by.
    greeted: bool,
    /// Whether the server's first frame went by.
    answered: bool,
    /// Whether it began with a four-letter word.
    is_text: bool,
    /// Requests without a reply, the oldest first: the xid to come, and the operation.
    pending: VecDeque<(i32, OpCode)>,
}

impl Conversation {
    fn read<'a>(&mut self, direction: Direction, payload: &'a [u8]) -> Frame<'a> {
        let mut reader = Reader::new(payload);
        let message = match direction {
            Direction::ToServer if !self.greeted => {
                self.greeted = true;
                ConnectRequest::decode(&mut reader)
                    .map_or_else(Message::headless, Message::ConnectRequest)
            }
            Direction::ToClient if !self.answered => {
                self.answered = true;
                HandshakeReply::decode(&mut reader)
                    .map_or_else(Message::headless, Message::ConnectReply)
            }
            Direction::ToServer => self.request(&mut reader),
            Direction::ToClient => self.answer(&mut reader),
        };
        let left_over = match message {
            Message::Undecodable { .. } => &[],
            _ => reader.rest(),
        };
        Frame { direction, payload, message, left_over }
    }

    /// Reads the header of a frame whose end is not there.
    fn read_broken<'a>(
        &mut self,
        direction: Direction,
        start: &'a [u8],
        error: DecodeError,
    ) -> Frame<'a> {
        let mut reader = Reader::new(start);
        let has_header = match direction {
            Direction::ToServer => core::mem::replace(&mut self.greeted, true),
            Direction::ToClient => core::mem::replace(&mut self.answered, true),
        };
        let (xid, op) = match direction {
            _ if !has_header => (None, None),
            Direction::ToServer => match RequestHeader::decode(&mut reader) {
                Ok(header) => {
                    self.expect(header);
                    (Some(header.xid), Some(header.op))
                }
                Err(_) => (None, None),
            },
            Direction::ToClient => match ReplyHeader::decode(&mut reader) {
                Ok(header) => (Some(header.xid), self.answered_by(header.xid)),
                Err(_) => (None, None),
            },
        };
        let message = Message::Undecodable { xid, op, error };
        Frame { direction, payload: start, message, left_over: &[] }
    }

    fn request<'a>(&mut self, reader: &mut Reader<'a>) -> Message<'a> {
        let header = match RequestHeader::decode(reader) {
            Ok(header) => header,
            Err(error) => return Message::headless(error),
        };
        // Even one that cannot be read is answered: MARSHALLINGERROR.
        self.expect(header);
        match Request::decode(header.op, reader) {
            Ok(request) => Message::Request { header, request },
            Err(error) => {
                Message::Undecodable { xid: Some(header.xid), op: Some(header.op), error }
            }
        }
    }

    fn answer<'a>(&mut self, reader: &mut Reader<'a>) -> Message<'a> {
        let header = match ReplyHeader::decode(reader) {
            Ok(header) => header,
            Err(error) => return Message::headless(error),
        };
        if header.xid == xid::NOTIFICATION {
            let body = *reader;
            let event = WatcherEvent::decode(reader);
            if !self.is_reply_under_minus_one(event, reader) {
                return match event {
                    Ok(event) => Message::Event { header, event },
                    Err(error) => Message::Undecodable { xid: Some(header.xid), op: None, error },
                };
            }
            *reader = body;
        }
        let op = self.answered_by(header.xid);
        let rest = Opaque(reader.rest());
        let body = match op {
            _ if header.err != ErrorCode::Ok => ReplyBody::Error(rest),
            None => ReplyBody::Unmatched(rest),
            Some(code) => match Reply::decode(code, reader) {
                Ok(reply) => return Message::Reply { header, op, body: ReplyBody::Record(reply) },
                Err(error) => return Message::Undecodable { xid: Some(header.xid), op, error },
            },
        };
        // The body is all the rest.
        *reader = Reader::new(&[]);
        Message::Reply { header, op, body }
    }

    /// A server echoes any xid, so a client that uses -1 gets replies that look like notifications. They
    /// are told apart by what they hold, and only if such a request waits.
    fn is_reply_under_minus_one(
        &self,
        event: Result<WatcherEvent<'_>, DecodeError>,
        reader: &Reader<'_>,
    ) -> bool {
        let is_event = event.is_ok_and(|event| {
            reader.is_empty() && !matches!(event.event_type, EventType::Unknown(_))
        });
        !is_event && self.pending.iter().any(|&(pending, _)| pending == xid::NOTIFICATION)
    }

    /// Remembers a request. Pings are answered under -2, whatever their xid was.
    fn expect(&mut self, header: RequestHeader) {
        if self.pending.len() >= MAX_PENDING {
            self.pending.pop_front();
        }
        let xid = if header.op == OpCode::Ping { xid::PING } else { header.xid };
        self.pending.push_back((xid, header.op));
    }

    /// The operation a reply answers: the oldest that waits for its xid.
    fn answered_by(&mut self, xid: i32) -> Option<OpCode> {
        let place = self.pending.iter().position(|&(pending, _)| pending == xid)?;
        self.pending.remove(place).map(|(_, op)| op)
    }
}

impl Message<'_> {
    /// What cannot be read from its first bytes on.
    const fn headless(error: DecodeError) -> Self {
        Self::Undecodable { xid: None, op: None, error }
    }
}
