//! The records of replies.
//!
//! A reply does not name its operation, so decoding one requires its request. The body after a header with an
//! error is usually empty, but multiRead and SASL may have one; a decoder should accept both.
//!
//! Source: zookeeper.jute.

use alloc::vec::Vec;

use bytes::BufMut;

pub use crate::client_info::ClientInfo;
use crate::{
    DecodeError, ErrorCode, OpCode, Stat, Text,
    acl::AclList,
    fields::{Field, Record as _},
    jute::{Decode, Encode, List, Reader},
    macros::record,
    multi::MultiReply,
};

record! {
    /// Precedes every reply except the handshake's. 16 bytes.
    pub struct ReplyHeader {
        /// The request's xid, or a reserved one of [`xid`](crate::xid).
        pub xid: i32 = "xid",
        /// The zxid of the last change that the server has applied. Meaningless in notifications and in replies
        /// to ping and auth.
        pub zxid: i64 = "zxid",
        /// The outcome of the request.
        pub err: ErrorCode = "err",
    }
}

record! {
    /// The reply to create (1) and sync (9).
    pub struct PathReply<'a> {
        /// The node's path, with its digits if it is sequential.
        pub path: Text<'a> = "path",
    }
}

record! {
    /// The reply to create2 (15), createContainer (19), createTTL (21).
    pub struct Create2Reply<'a> {
        /// The node's path, with its digits if it is sequential.
        pub path: Text<'a> = "path",
        /// The node's Stat.
        pub stat: Stat = "stat",
    }
}

record! {
    /// The reply to exists (3), setData (5), setACL (7).
    pub struct StatReply {
        /// The node's Stat.
        pub stat: Stat = "stat",
    }
}

record! {
    /// The reply to getData (4), reconfig (16).
    pub struct GetDataReply<'a> {
        /// The node's data; null is distinct from empty.
        pub data: Option<&'a [u8]> = "data",
        /// The node's Stat.
        pub stat: Stat = "stat",
    }
}

record! {
    /// The reply to getACL (6).
    pub struct GetAclReply<'a> {
        /// The node's ACL.
        pub acl: AclList<'a> = "acl",
        /// The node's Stat.
        pub stat: Stat = "stat",
    }
}

record! {
    /// The reply to getChildren (8) and getEphemerals (103).
    pub struct GetChildrenReply<'a> {
        /// The children's names, in no order; for getEphemerals, paths.
        pub children: List<'a, Text<'a>> = "children",
    }
}

record! {
    /// The reply to getChildren2 (12).
    pub struct GetChildren2Reply<'a> {
        /// The children's names, in no order.
        pub children: List<'a, Text<'a>> = "children",
        /// The parent's Stat.
        pub stat: Stat = "stat",
    }
}

record! {
    /// The reply to sasl (102).
    pub struct SaslReply<'a> {
        /// The mechanism's token; null if the server has no SASL or authentication failed.
        pub token: Option<&'a [u8]> = secret "token",
    }
}

record! {
    /// The reply to getAllChildrenNumber (104).
    pub struct GetAllChildrenNumberReply {
        /// The number of descendants.
        pub total_number: i32 = "totalNumber",
    }
}

record! {
    /// The reply to addWatch (106), and a failed result inside a multi.
    pub struct ErrorReply {
        /// The error of the header, repeated.
        pub err: ErrorCode = "err",
    }
}

record! {
    /// The reply to whoAmI (107).
    pub struct WhoAmIReply<'a> {
        /// All ids of the connection.
        pub client_info: List<'a, ClientInfo<'a>> = "clientInfo",
    }
}

record! {
    /// The empty reply to delete, ping, auth, closeSession and the watch operations except addWatch.
    pub struct EmptyReply {}
}

/// The body of any reply without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the record of its name")]
pub enum Reply<'a> {
    Empty,
    Path(PathReply<'a>),
    Create2(Create2Reply<'a>),
    Stat(StatReply),
    GetData(GetDataReply<'a>),
    GetAcl(GetAclReply<'a>),
    GetChildren(GetChildrenReply<'a>),
    GetChildren2(GetChildren2Reply<'a>),
    Multi(MultiReply<'a>),
    Sasl(SaslReply<'a>),
    GetAllChildrenNumber(GetAllChildrenNumberReply),
    Error(ErrorReply),
    WhoAmI(WhoAmIReply<'a>),
    /// The reply to an operation whose record this crate does not know.
    Other(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// Decodes the body of a reply to `op` whose header has no error.
    ///
    /// # Errors
    ///
    /// If the bytes are not a reply to `op`.
    pub fn decode(op: OpCode, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match op {
            OpCode::Create | OpCode::Sync => Self::Path(Decode::decode(reader)?),
            OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                Self::Create2(Decode::decode(reader)?)
            }
            OpCode::Exists | OpCode::SetData | OpCode::SetAcl => {
                Self::Stat(Decode::decode(reader)?)
            }
            OpCode::GetData | OpCode::Reconfig => Self::GetData(Decode::decode(reader)?),
            OpCode::GetAcl => Self::GetAcl(Decode::decode(reader)?),
            OpCode::GetChildren | OpCode::GetEphemerals => {
                Self::GetChildren(Decode::decode(reader)?)
            }
            OpCode::GetChildren2 => Self::GetChildren2(Decode::decode(reader)?),
            OpCode::Multi | OpCode::MultiRead => Self::Multi(Decode::decode(reader)?),
            OpCode::Sasl => Self::Sasl(Decode::decode(reader)?),
            OpCode::GetAllChildrenNumber => Self::GetAllChildrenNumber(Decode::decode(reader)?),
            OpCode::AddWatch => Self::Error(Decode::decode(reader)?),
            OpCode::WhoAmI => Self::WhoAmI(Decode::decode(reader)?),
            OpCode::Delete
            | OpCode::Ping
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::DeleteContainer
            | OpCode::Auth
            | OpCode::SetWatches
            | OpCode::SetWatches2
            | OpCode::CloseSession => Self::Empty,
            _ => {
                let body = reader.rest();
                *reader = Reader::new(&[]);
                Self::Other(body)
            }
        })
    }
}

impl Reply<'_> {
    /// The fields of the record; none of a multi, an empty record or one that is not known.
    #[must_use]
    pub fn fields(&self) -> Vec<Field<'_>> {
        match self {
            Self::Path(record) => record.fields(),
            Self::Create2(record) => record.fields(),
            Self::Stat(record) => record.fields(),
            Self::GetData(record) => record.fields(),
            Self::GetAcl(record) => record.fields(),
            Self::GetChildren(record) => record.fields(),
            Self::GetChildren2(record) => record.fields(),
            Self::Sasl(record) => record.fields(),
            Self::GetAllChildrenNumber(record) => record.fields(),
            Self::Error(record) => record.fields(),
            Self::WhoAmI(record) => record.fields(),
            Self::Empty | Self::Multi(_) | Self::Other(_) => Vec::new(),
        }
    }
}

impl Encode for Reply<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        match self {
            Self::Empty => {}
            Self::Path(record) => record.encode(out),
            Self::Create2(record) => record.encode(out),
            Self::Stat(record) => record.encode(out),
            Self::GetData(record) => record.encode(out),
            Self::GetAcl(record) => record.encode(out),
            Self::GetChildren(record) => record.encode(out),
            Self::GetChildren2(record) => record.encode(out),
            Self::Multi(record) => record.encode(out),
            Self::Sasl(record) => record.encode(out),
            Self::GetAllChildrenNumber(record) => record.encode(out),
            Self::Error(record) => record.encode(out),
            Self::WhoAmI(record) => record.encode(out),
            Self::Other(body) => out.put_slice(body),
        }
    }
}
