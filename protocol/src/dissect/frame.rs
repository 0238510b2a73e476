//! The decoded frames of a connection: messages and undecodable bytes.

use alloc::vec::Vec;
use core::fmt;

use bytes::BufMut;

use super::Direction;
use crate::{
    DecodeError, Encode, OpCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
};

/// One decoded frame of a connection.
///
/// `Display` writes one line, without credentials and without the data of nodes. With the feature `serde` it
/// serializes as an object with jute's field names, without credentials.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The direction it was sent in.
    pub direction: Direction,
    /// The frame without its length. May hold credentials.
    pub payload: &'a [u8],
    /// The decoded message.
    pub message: Message<'a>,
    /// The bytes of the payload after the message. Servers ignore them, and clients should.
    pub left_over: &'a [u8],
}

impl Frame<'_> {
    /// The xid of a request, reply or event, even if its body could not be decoded.
    #[must_use]
    pub const fn xid(&self) -> Option<i32> {
        match &self.message {
            Message::Request { header, .. } => Some(header.xid),
            Message::Reply { header, .. } | Message::Event { header, .. } => Some(header.xid),
            Message::Undecodable { xid, .. } => *xid,
            _ => None,
        }
    }

    /// The operation of a request, or of the request that a reply answers.
    #[must_use]
    pub const fn op(&self) -> Option<OpCode> {
        match &self.message {
            Message::Request { header, .. } => Some(header.op),
            Message::Reply { op, .. } | Message::Undecodable { op, .. } => *op,
            _ => None,
        }
    }

    /// Whether the message encodes to exactly the payload, with no bytes left over.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let mut encoded = Vec::new();
        self.message.encode(&mut encoded);
        let is_decoded = !matches!(self.message, Message::Undecodable { .. });
        is_decoded && self.left_over.is_empty() && encoded == self.payload
    }
}

/// The message of a frame.
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
        /// The operation of its request; `None` when no pending request has that xid.
        op: Option<OpCode>,
        /// Its body.
        body: ReplyBody<'a>,
    },
    /// A watch event.
    Event {
        /// Its xid is -1.
        header: ReplyHeader,
        /// The event.
        event: WatcherEvent<'a>,
    },
    /// An administrator's command instead of a handshake: `ruok`, `srvr`. It has no frame.
    FourLetterWord([u8; 4]),
    /// Text on a connection that began with a four-letter word, in the pieces that were fed. It has no frame.
    Text(Opaque<'a>),
    /// Bytes that do not decode as the expected message.
    Undecodable {
        /// Its xid, if it has a header.
        xid: Option<i32>,
        /// The operation, if it is known.
        op: Option<OpCode>,
        /// Why it does not decode.
        error: DecodeError,
    },
}

/// The body of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyBody<'a> {
    /// The header has no error: the operation's record.
    Record(Reply<'a>),
    /// The header has an error. Usually the body is empty; multiRead and SASL may add bytes without a meaning.
    Error(Opaque<'a>),
    /// No pending request has the reply's xid.
    Unmatched(Opaque<'a>),
}

/// Bytes that were not decoded. `Debug` shows only their size, because they may hold secrets.
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

/// Encodes the payload; an undecodable one encodes to nothing.
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

impl Message<'_> {
    /// A frame whose handshake record or header does not decode.
    pub(super) const fn without_header(error: DecodeError) -> Self {
        Self::Undecodable { xid: None, op: None, error }
    }
}
