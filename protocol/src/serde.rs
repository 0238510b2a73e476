//! `Serialize` for records and frames: objects with jute's field names.
//!
//! Numbers stay numbers, even above 2^53 (zxids and session ids). Buffers become strings of hexadecimal digits.
//! Text is decoded as by `Text::to_str`. Null stays null. Credentials, passwords, tokens and the hashes of ACL
//! ids are redacted as in the module `display`.
//!
//! There is no `Deserialize`: the redacted form cannot be read back.

use ::serde::{
    Serialize, Serializer,
    ser::{SerializeSeq as _, SerializeStruct as _},
};

use crate::{
    Id, List, OpCode, Text,
    connect::{ConnectRequest, ConnectResponse, HandshakeReply},
    display::redact_id,
    dissect::{Frame, Message, Opaque, ReplyBody},
    fields::{Field, Secret, Value},
    jute::Decode,
    multi::{Item, MultiOp, MultiResult, Sequence},
    reply::Reply,
    request::Request,
};

/// Serializes fields as an object.
pub(crate) fn object<S: Serializer>(
    serializer: S,
    fields: &[Field<'_>],
) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_struct("Record", fields.len())?;
    for (name, value) in fields {
        object.serialize_field(name, value)?;
    }
    object.end()
}

/// Open enums and bit sets are their number.
impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Named(number, _) => serializer.serialize_i32(*number),
            Self::Text(text) => text.serialize(serializer),
            Self::Data(None) => serializer.serialize_none(),
            Self::Data(Some(bytes)) => serializer.collect_str(&Hex(bytes)),
            Self::Secret(secret) => secret.serialize(serializer),
            Self::Texts(texts) => list(serializer, *texts),
            Self::Id(id) => id.serialize(serializer),
            Self::Acl(acl) => list(serializer, *acl),
            Self::Stat(stat) => stat.serialize(serializer),
            Self::ClientInfos(infos) => list(serializer, *infos),
        }
    }
}

fn list<'a, S: Serializer, T: Decode<'a> + Copy + Serialize>(
    serializer: S,
    list: List<'a, T>,
) -> Result<S::Ok, S::Error> {
    if list.is_null() { serializer.serialize_none() } else { serializer.collect_seq(list.iter()) }
}

/// Displays bytes in hexadecimal: `68656c6c6f`.
struct Hex<'a>(&'a [u8]);

impl core::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_null() {
            serializer.serialize_none()
        } else {
            serializer.serialize_str(&self.to_str())
        }
    }
}

impl Serialize for Secret<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_none() { serializer.serialize_none() } else { serializer.collect_str(self) }
    }
}

/// The size, in bytes. The content may hold secrets.
impl Serialize for Opaque<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Id<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Id", 2)?;
        fields.serialize_field("scheme", &self.scheme)?;
        let (id, is_redacted) = redact_id(*self);
        if is_redacted {
            fields.serialize_field("id", &alloc::format!("{}:x", id.to_str()))?;
        } else {
            fields.serialize_field("id", &id)?;
        }
        fields.end()
    }
}

impl Serialize for ConnectRequest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ConnectRequest", 6)?;
        fields.serialize_field("protocolVersion", &self.protocol_version)?;
        fields.serialize_field("lastZxidSeen", &self.last_zxid_seen)?;
        fields.serialize_field("timeOut", &self.time_out)?;
        fields.serialize_field("sessionId", &self.session_id)?;
        fields.serialize_field("passwd", &Secret(self.passwd))?;
        fields.serialize_field("readOnly", &self.read_only)?;
        fields.end()
    }
}

impl Serialize for ConnectResponse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ConnectResponse", 5)?;
        fields.serialize_field("protocolVersion", &self.protocol_version)?;
        fields.serialize_field("timeOut", &self.time_out)?;
        fields.serialize_field("sessionId", &self.session_id)?;
        fields.serialize_field("passwd", &Secret(self.passwd))?;
        fields.serialize_field("readOnly", &self.read_only)?;
        fields.end()
    }
}

impl<'a, T: Item<'a> + Serialize> Serialize for Sequence<'a, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut items = serializer.serialize_seq(None)?;
        for item in self.iter() {
            items.serialize_element(&item)?;
        }
        items.end()
    }
}

/// The request's record. [`Frame`] adds the operation.
impl Serialize for Request<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Multi(ops) | Self::MultiRead(ops) => ops.serialize(serializer),
            Self::Ping | Self::WhoAmI | Self::CloseSession => serializer.serialize_none(),
            Self::Other(_, body) => Opaque(body).serialize(serializer),
            _ => object(serializer, &self.fields()),
        }
    }
}

/// The reply's record; null for an empty one.
impl Serialize for Reply<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Multi(results) => results.serialize(serializer),
            Self::Empty => serializer.serialize_none(),
            Self::Other(body) => Opaque(body).serialize(serializer),
            _ => object(serializer, &self.fields()),
        }
    }
}

/// Serializes an operation of a multi, or its result: `{"op": …, "body": …}`.
fn serialize_operation<S: Serializer>(
    serializer: S,
    op: OpCode,
    body: &impl Serialize,
) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("MultiOp", 2)?;
    fields.serialize_field("op", op.name().unwrap_or_default())?;
    fields.serialize_field("body", body)?;
    fields.end()
}

impl Serialize for MultiOp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_operation(serializer, self.op_code(), &self.request())
    }
}

impl Serialize for MultiResult<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let err = match self.reply() {
            Ok((op, reply)) => return serialize_operation(serializer, op, &reply),
            Err(err) => err,
        };
        let mut fields = serializer.serialize_struct("MultiResult", 2)?;
        fields.serialize_field("error", err.name().unwrap_or("unknown"))?;
        fields.serialize_field("err", &err.number())?;
        fields.end()
    }
}

impl Serialize for ReplyBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Record(record) => record.serialize(serializer),
            Self::Error(Opaque([])) | Self::Unmatched(Opaque([])) => serializer.serialize_none(),
            Self::Error(bytes) | Self::Unmatched(bytes) => bytes.serialize(serializer),
        }
    }
}

/// An object with `direction`, `kind` and the fields of that kind: `op`, `header`, `error`, `body`.
///
/// `kind` is `connect`, `request`, `reply`, `event`, `word`, `text` or `undecodable`. `op` and `error` are
/// ZooKeeper's names; the header has their numbers.
impl Serialize for Frame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Frame", 7)?;
        fields.serialize_field("direction", self.direction.name())?;
        match &self.message {
            Message::ConnectRequest(record) => {
                fields.serialize_field("kind", "connect")?;
                fields.serialize_field("body", record)?;
            }
            Message::ConnectReply(HandshakeReply::Response(record)) => {
                fields.serialize_field("kind", "connect")?;
                fields.serialize_field("body", record)?;
            }
            Message::ConnectReply(HandshakeReply::Refused(header)) => {
                fields.serialize_field("kind", "connect")?;
                fields.serialize_field("header", header)?;
                fields.serialize_field("error", &header.err.name())?;
            }
            Message::Request { header, request } => {
                fields.serialize_field("kind", "request")?;
                fields.serialize_field("op", &header.op.name())?;
                fields.serialize_field("header", header)?;
                fields.serialize_field("body", request)?;
            }
            Message::Reply { header, op, body } => {
                fields.serialize_field("kind", "reply")?;
                fields.serialize_field("op", &op.and_then(crate::OpCode::name))?;
                fields.serialize_field("header", header)?;
                if !header.err.is_ok() {
                    fields.serialize_field("error", &header.err.name())?;
                }
                fields.serialize_field("body", body)?;
            }
            Message::Event { header, event } => {
                fields.serialize_field("kind", "event")?;
                fields.serialize_field("event", &event.event_type.name())?;
                fields.serialize_field("header", header)?;
                fields.serialize_field("body", event)?;
            }
            Message::FourLetterWord(word) => {
                fields.serialize_field("kind", "word")?;
                fields.serialize_field("body", &Text::from_bytes(Some(word)))?;
            }
            Message::Text(text) => {
                fields.serialize_field("kind", "text")?;
                fields.serialize_field("body", &Text::from_bytes(Some(text.0)))?;
            }
            Message::Undecodable { xid, op, error } => {
                fields.serialize_field("kind", "undecodable")?;
                fields.serialize_field("xid", xid)?;
                fields.serialize_field("op", &op.and_then(crate::OpCode::name))?;
                fields.serialize_field("error", &alloc::format!("{error}"))?;
            }
        }
        if !self.left_over.is_empty() {
            fields.serialize_field("leftOver", &self.left_over.len())?;
        }
        fields.end()
    }
}
