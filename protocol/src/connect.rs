//! The handshake: the first frame of each direction, without a header.
//!
//! A read-only server since 3.7 rejects a client that asks for a new session with a 16-byte [`ReplyHeader`]
//! (`NotReadOnly`) instead of a [`ConnectResponse`]. [`HandshakeReply`] decodes either.
//!
//! Source: `ConnectRequest`, `ConnectResponse` in zookeeper.jute; `ZooKeeperServer.processConnectRequest`,
//! `finishSessionInit`.

use core::fmt;

use bytes::BufMut;

use crate::{
    DecodeError,
    jute::{Decode, Encode, Field, Reader},
    reply::ReplyHeader,
};

/// Size of a session's password, in bytes.
pub const PASSWORD_SIZE: usize = 16;

/// The first frame of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectRequest<'a> {
    /// Always 0; servers ignore it.
    pub protocol_version: i32,
    /// The last zxid the client has seen. A server whose last zxid is lower closes the connection.
    pub last_zxid_seen: i64,
    /// The requested session timeout, in milliseconds.
    pub time_out: i32,
    /// The session to resume; 0 for a new one.
    pub session_id: i64,
    /// The session's password; sixteen zeros for a new session.
    pub passwd: Option<&'a [u8]>,
    /// Whether the client accepts a read-only server. Absent in clients before 3.4.
    pub read_only: Option<bool>,
}

/// The first frame of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectResponse<'a> {
    /// Always 0.
    pub protocol_version: i32,
    /// The negotiated session timeout, in milliseconds; 0 or less if the session is refused.
    pub time_out: i32,
    /// The session; 0 if it is refused.
    pub session_id: i64,
    /// The session's password.
    pub passwd: Option<&'a [u8]>,
    /// Whether the server is read-only. Absent if the request's field was.
    pub read_only: Option<bool>,
}

impl ConnectResponse<'_> {
    /// Whether the server refused the requested session: it has ended, or the ensemble does not know it.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.time_out <= 0 || self.session_id == 0
    }
}

/// A server's reply to a [`ConnectRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeReply<'a> {
    /// The usual reply.
    Response(ConnectResponse<'a>),
    /// A reply header: a read-only server rejects a new session with `NotReadOnly`.
    Refused(ReplyHeader),
}

/// Size of a [`ReplyHeader`], in bytes. Every [`ConnectResponse`] is longer.
const REPLY_HEADER_SIZE: usize = 16;

impl<'a> Decode<'a> for HandshakeReply<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if reader.rest().len() == REPLY_HEADER_SIZE {
            ReplyHeader::decode(reader).map(Self::Refused)
        } else {
            ConnectResponse::decode(reader).map(Self::Response)
        }
    }
}

impl Encode for HandshakeReply<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        match self {
            Self::Response(response) => response.encode(out),
            Self::Refused(header) => header.encode(out),
        }
    }
}

impl<'a> Decode<'a> for ConnectRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: reader.int("protocolVersion")?,
            last_zxid_seen: reader.long("lastZxidSeen")?,
            time_out: reader.int("timeOut")?,
            session_id: reader.long("sessionId")?,
            passwd: reader.buffer("passwd")?,
            read_only: read_only(reader)?,
        })
    }
}

impl Encode for ConnectRequest<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(self.protocol_version);
        out.put_i64(self.last_zxid_seen);
        out.put_i32(self.time_out);
        out.put_i64(self.session_id);
        self.passwd.put(out);
        if let Some(read_only) = self.read_only {
            read_only.put(out);
        }
    }
}

impl<'a> Decode<'a> for ConnectResponse<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: reader.int("protocolVersion")?,
            time_out: reader.int("timeOut")?,
            session_id: reader.long("sessionId")?,
            passwd: reader.buffer("passwd")?,
            read_only: read_only(reader)?,
        })
    }
}

impl Encode for ConnectResponse<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(self.protocol_version);
        out.put_i32(self.time_out);
        out.put_i64(self.session_id);
        self.passwd.put(out);
        if let Some(read_only) = self.read_only {
            read_only.put(out);
        }
    }
}

/// Decodes the optional last byte of both records.
fn read_only(reader: &mut Reader<'_>) -> Result<Option<bool>, DecodeError> {
    if reader.is_empty() { Ok(None) } else { reader.boolean("readOnly").map(Some) }
}

// Not derived: a password must never reach a log.

impl fmt::Debug for ConnectRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("protocol_version", &self.protocol_version)
            .field("last_zxid_seen", &self.last_zxid_seen)
            .field("time_out", &self.time_out)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnectResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectResponse")
            .field("protocol_version", &self.protocol_version)
            .field("time_out", &self.time_out)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}
