//! The records of replies, as they are on the wire.
//!
//! A reply can only be read by who knows its request: nothing in it says what it is. A header with an
//! error normally has no body, but may have one (multiRead, SASL); do not insist on either.
//!
//! Source: zookeeper.jute.

use bytes::BufMut;

use crate::{
    DecodeError, ErrorCode, OpCode, Stat, Text,
    acl::AclList,
    jute::{Decode, Encode, List, Reader},
    macros::record,
    multi::MultiReply,
};

record! {
    /// In front of every reply but the handshake's. 16 bytes.
    pub struct ReplyHeader {
        /// The request's, or one of [`xid`](crate::xid)'s.
        pub xid: i32 = "xid",
        /// The last change the server has applied. Not to be used of notifications, pings and auth
        /// replies.
        pub zxid: i64 = "zxid",
        /// How it went.
        pub err: ErrorCode = "err",
    }
}

record! {
    /// To create (1) and sync (9): the path.
    pub struct PathReply<'a> {
        /// The node's path, with its digits if it is sequential.
        pub path: Text<'a> = "path",
    }
}

record! {
    /// To create2 (15), createContainer (19), createTTL (21).
    pub struct Create2Reply<'a> {
        /// The node's path, with its digits if it is sequential.
        pub path: Text<'a> = "path",
        /// The facts about it.
        pub stat: Stat = "stat",
    }
}

record! {
    /// To exists (3), setData (5), setACL (7).
    pub struct StatReply {
        /// The facts about the node.
        pub stat: Stat = "stat",
    }
}

record! {
    /// To getData (4), reconfig (16).
    pub struct GetDataReply<'a> {
        /// Null and empty are different.
        pub data: Option<&'a [u8]> = "data",
        /// The facts about the node.
        pub stat: Stat = "stat",
    }
}

record! {
    /// To getACL (6).
    pub struct GetAclReply<'a> {
        /// Who may do what.
        pub acl: AclList<'a> = "acl",
        /// The facts about the node.
        pub stat: Stat = "stat",
    }
}

record! {
    /// To getChildren (8), and getEphemerals (103), whose are paths.
    pub struct GetChildrenReply<'a> {
        /// The names, in no order.
        pub children: List<'a, Text<'a>> = "children",
    }
}

record! {
    /// To getChildren2 (12).
    pub struct GetChildren2Reply<'a> {
        /// The names, in no order.
        pub children: List<'a, Text<'a>> = "children",
        /// The facts about the parent.
        pub stat: Stat = "stat",
    }
}

record! {
    /// To sasl (102).
    pub struct SaslReply<'a> {
        /// The mechanism's own bytes; null when the server has no SASL or has refused.
        pub token: Option<&'a [u8]> = secret "token",
    }
}

record! {
    /// To getAllChildrenNumber (104).
    pub struct GetAllChildrenNumberReply {
        /// All descendants.
        pub total_number: i32 = "totalNumber",
    }
}

record! {
    /// To addWatch (106), and a failed result inside a multi.
    pub struct ErrorReply {
        /// The header's error once more.
        pub err: ErrorCode = "err",
    }
}

record! {
    /// One id of a connection.
    pub struct ClientInfo<'a> {
        /// How it was proved.
        pub auth_scheme: Text<'a> = "authScheme",
        /// Who.
        pub user: Text<'a> = "user",
    }
}

record! {
    /// To whoAmI (107).
    pub struct WhoAmIReply<'a> {
        /// All ids of the connection.
        pub client_info: List<'a, ClientInfo<'a>> = "clientInfo",
    }
}

record! {
    /// To delete, ping, the watch operations, auth, closeSession: nothing.
    pub struct EmptyReply {}
}

/// The body of any reply without an error, given the operation it answers.
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
    /// The reply to an operation without a record here.
    Other(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// Reads the body of a reply to `op` whose header had no error.
    ///
    /// # Errors
    ///
    /// When the body is not that reply's.
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
