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
    Id, List, Text,
    connect::{ConnectRequest, ConnectResponse, HandshakeReply},
    display::{Redacted, redact_id},
    dissect::{Frame, Message, Opaque, ReplyBody},
    jute::Decode,
    multi::{Item, MultiOp, MultiResult, Sequence},
    reply::Reply,
    request::Request,
};

/// Serializes a field of a record through its [`SerializeField`].
pub(crate) struct Serialized<'x, T>(pub(crate) &'x T);

/// The serialized form of a record's field type.
pub(crate) trait SerializeField {
    fn serialize_field<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

impl<T: SerializeField> Serialize for Serialized<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_field(serializer)
    }
}

/// Implements [`SerializeField`] by the type's own `Serialize`.
macro_rules! plain_fields {
    ($($ty:ty),+) => {
        $(impl<'a> SerializeField for $ty {
            fn serialize_field<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.serialize(serializer)
            }
        })+
    };
}

/// Implements [`SerializeField`] for open enums and bit sets: their number.
macro_rules! number_fields {
    ($($ty:ty),+) => {
        $(impl SerializeField for $ty {
            fn serialize_field<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_i32(self.number())
            }
        })+
    };
}

plain_fields! { bool, i32, i64, Text<'a>, crate::Stat, Id<'a>, Redacted<'a> }

number_fields! {
    crate::ErrorCode, crate::EventType, crate::KeeperState, crate::OpCode, crate::AddWatchMode,
    crate::WatcherType, crate::Perms
}

impl SerializeField for Option<&[u8]> {
    fn serialize_field<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(bytes) => serializer.collect_str(&Hex(bytes)),
            None => serializer.serialize_none(),
        }
    }
}

impl<'a, T: Decode<'a> + Copy + Serialize> SerializeField for List<'a, T> {
    fn serialize_field<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_null() {
            serializer.serialize_none()
        } else {
            serializer.collect_seq(self.iter())
        }
    }
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

impl Serialize for Redacted<'_> {
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
        fields.serialize_field("passwd", &Redacted(self.passwd))?;
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
        fields.serialize_field("passwd", &Redacted(self.passwd))?;
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
            Self::Create(r) | Self::Create2(r) | Self::CreateContainer(r) => {
                r.serialize(serializer)
            }
            Self::CreateTtl(r) => r.serialize(serializer),
            Self::Delete(r) => r.serialize(serializer),
            Self::Exists(r) | Self::GetData(r) | Self::GetChildren(r) | Self::GetChildren2(r) => {
                r.serialize(serializer)
            }
            Self::SetData(r) => r.serialize(serializer),
            Self::GetAcl(r)
            | Self::Sync(r)
            | Self::DeleteContainer(r)
            | Self::GetEphemerals(r)
            | Self::GetAllChildrenNumber(r) => r.serialize(serializer),
            Self::SetAcl(r) => r.serialize(serializer),
            Self::Check(r) => r.serialize(serializer),
            Self::Multi(ops) | Self::MultiRead(ops) => ops.serialize(serializer),
            Self::Reconfig(r) => r.serialize(serializer),
            Self::CheckWatches(r) | Self::RemoveWatches(r) => r.serialize(serializer),
            Self::Auth(r) => r.serialize(serializer),
            Self::SetWatches(r) => r.serialize(serializer),
            Self::SetWatches2(r) => r.serialize(serializer),
            Self::Sasl(r) => r.serialize(serializer),
            Self::AddWatch(r) => r.serialize(serializer),
            Self::Ping | Self::WhoAmI | Self::CloseSession => serializer.serialize_none(),
            Self::Other(_, body) => Opaque(body).serialize(serializer),
        }
    }
}

/// The reply's record; null for an empty one.
impl Serialize for Reply<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Empty => serializer.serialize_none(),
            Self::Path(r) => r.serialize(serializer),
            Self::Create2(r) => r.serialize(serializer),
            Self::Stat(r) => r.serialize(serializer),
            Self::GetData(r) => r.serialize(serializer),
            Self::GetAcl(r) => r.serialize(serializer),
            Self::GetChildren(r) => r.serialize(serializer),
            Self::GetChildren2(r) => r.serialize(serializer),
            Self::Multi(results) => results.serialize(serializer),
            Self::Sasl(r) => r.serialize(serializer),
            Self::GetAllChildrenNumber(r) => r.serialize(serializer),
            Self::Error(r) => r.serialize(serializer),
            Self::WhoAmI(r) => r.serialize(serializer),
            Self::Other(body) => Opaque(body).serialize(serializer),
        }
    }
}

/// Serializes an operation of a multi, or its result: `{"op": …, "body": …}`.
fn serialize_operation<S: Serializer>(
    serializer: S,
    op: &'static str,
    body: &impl Serialize,
) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("MultiOp", 2)?;
    fields.serialize_field("op", op)?;
    fields.serialize_field("body", body)?;
    fields.end()
}

impl Serialize for MultiOp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.op_code().name().unwrap_or_default();
        match self {
            Self::Create(r) | Self::Create2(r) | Self::CreateContainer(r) => {
                serialize_operation(serializer, name, r)
            }
            Self::CreateTtl(r) => serialize_operation(serializer, name, r),
            Self::Delete(r) => serialize_operation(serializer, name, r),
            Self::SetData(r) => serialize_operation(serializer, name, r),
            Self::Check(r) => serialize_operation(serializer, name, r),
            Self::GetData(r) | Self::GetChildren(r) => serialize_operation(serializer, name, r),
        }
    }
}

impl Serialize for MultiResult<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Create(r) => serialize_operation(serializer, "create", r),
            Self::Delete => serialize_operation(serializer, "delete", &()),
            Self::SetData(r) => serialize_operation(serializer, "setData", r),
            Self::Check => serialize_operation(serializer, "check", &()),
            Self::Create2(r) => serialize_operation(serializer, "create2", r),
            Self::GetData(r) => serialize_operation(serializer, "getData", r),
            Self::GetChildren(r) => serialize_operation(serializer, "getChildren", r),
            Self::Error(err) => {
                let mut fields = serializer.serialize_struct("MultiResult", 2)?;
                fields.serialize_field("error", err.name().unwrap_or("unknown"))?;
                fields.serialize_field("err", &err.number())?;
                fields.end()
            }
        }
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
