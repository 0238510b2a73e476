//! The records of requests, in the order of their operation codes.
//!
//! Servers and tools decode them through [`Request`]. Clients build their requests with [`operation`](crate::operation),
//! which cannot express a request that harms a server.
//!
//! Source: zookeeper.jute.

use alloc::vec::Vec;

use bytes::BufMut;

use crate::{
    AddWatchMode, DecodeError, OpCode, Text, WatcherType,
    acl::AclList,
    fields::{Field, Record as _},
    jute::{Decode, Encode, List, Reader},
    macros::record,
    multi::MultiRequest,
};

record! {
    /// Precedes every request except the handshake's. 8 bytes.
    pub struct RequestHeader {
        /// The number of the request, repeated in its reply.
        pub xid: i32 = "xid",
        /// The operation.
        pub op: OpCode = "type",
    }
}

record! {
    /// create (1), create2 (15), createContainer (19).
    pub struct CreateRequest<'a> {
        /// The node; the server appends ten digits to the path of a sequential one.
        pub path: Text<'a> = "path",
        /// The data; the server keeps null distinct from empty.
        pub data: Option<&'a [u8]> = "data",
        /// The ACL; must not be empty.
        pub acl: AclList<'a> = "acl",
        /// The number of the mode: [`CreateMode::flags`](crate::CreateMode::flags).
        pub flags: i32 = "flags",
    }
}

record! {
    /// createTTL (21).
    ///
    /// Flags other than 5 and 6 with a negative TTL stop a server permanently.
    pub struct CreateTtlRequest<'a> {
        /// The node; the server appends ten digits to the path of a sequential one.
        pub path: Text<'a> = "path",
        /// The data; the server keeps null distinct from empty.
        pub data: Option<&'a [u8]> = "data",
        /// The ACL; must not be empty.
        pub acl: AclList<'a> = "acl",
        /// The number of the mode: 5, or 6 for a sequential node.
        pub flags: i32 = "flags",
        /// The time to live, in milliseconds.
        pub ttl: i64 = "ttl",
    }
}

record! {
    /// delete (2).
    pub struct DeleteRequest<'a> {
        /// The node.
        pub path: Text<'a> = "path",
        /// The version the node must have; -1 for any.
        pub version: i32 = "version",
    }
}

record! {
    /// exists (3), getData (4), getChildren (8), getChildren2 (12): a read that may set a watch.
    pub struct ReadRequest<'a> {
        /// The node.
        pub path: Text<'a> = "path",
        /// Whether to set a watch.
        pub watch: bool = "watch",
    }
}

record! {
    /// setData (5).
    pub struct SetDataRequest<'a> {
        /// The node.
        pub path: Text<'a> = "path",
        /// The data; the server keeps null distinct from empty.
        pub data: Option<&'a [u8]> = "data",
        /// The version the node must have; -1 for any.
        pub version: i32 = "version",
    }
}

record! {
    /// getACL (6), sync (9), getEphemerals (103), getAllChildrenNumber (104): a path alone.
    pub struct PathRequest<'a> {
        /// The node; a prefix for getEphemerals.
        pub path: Text<'a> = "path",
    }
}

record! {
    /// setACL (7).
    pub struct SetAclRequest<'a> {
        /// The node.
        pub path: Text<'a> = "path",
        /// The ACL; must not be empty.
        pub acl: AclList<'a> = "acl",
        /// The version the *ACL* must have; -1 for any.
        pub version: i32 = "version",
    }
}

record! {
    /// check (13), valid only inside a multi.
    ///
    /// Outside a multi it writes a log record that servers before 3.9 cannot load (ZOOKEEPER-2623).
    pub struct CheckVersionRequest<'a> {
        /// The node.
        pub path: Text<'a> = "path",
        /// The version the node must have; -1 for any.
        pub version: i32 = "version",
    }
}

record! {
    /// reconfig (16).
    pub struct ReconfigRequest<'a> {
        /// Servers to add, comma-separated; null for none.
        pub joining_servers: Text<'a> = "joiningServers",
        /// Ids of servers to remove, comma-separated; null for none.
        pub leaving_servers: Text<'a> = "leavingServers",
        /// The complete new membership; null to use the other two fields instead.
        pub new_members: Text<'a> = "newMembers",
        /// The version of the configuration to change; -1 for any.
        pub cur_config_id: i64 = "curConfigId",
    }
}

record! {
    /// checkWatches (17), removeWatches (18).
    pub struct WatchesRequest<'a> {
        /// The node.
        pub path: Text<'a> = "path",
        /// The watches concerned.
        pub watcher_type: WatcherType = "type",
    }
}

record! {
    /// auth (100).
    #[doc = ""]
    #[doc = "Holds credentials; `Debug` and `Display` show only their size."]
    pub struct AuthRequest<'a> {
        /// Always 0; servers ignore it.
        pub auth_type: i32 = "type",
        /// The authentication scheme, for example `digest`.
        pub scheme: Text<'a> = "scheme",
        /// The credentials in clear text: `user:password` for `digest`.
        pub auth: Option<&'a [u8]> = secret "auth",
    }
}

record! {
    /// setWatches (101). Servers reject null vectors; send empty ones.
    pub struct SetWatchesRequest<'a> {
        /// The last zxid the client has seen. Changes after it are notified at once.
        pub relative_zxid: i64 = "relativeZxid",
        /// Watches of getData, and of exists on existing nodes.
        pub data_watches: List<'a, Text<'a>> = "dataWatches",
        /// Watches of exists on missing nodes.
        pub exist_watches: List<'a, Text<'a>> = "existWatches",
        /// Watches of getChildren.
        pub child_watches: List<'a, Text<'a>> = "childWatches",
    }
}

record! {
    /// setWatches2 (105). Servers reject null vectors; send empty ones.
    pub struct SetWatches2Request<'a> {
        /// The last zxid the client has seen. Changes after it are notified at once, except to persistent
        /// watches.
        pub relative_zxid: i64 = "relativeZxid",
        /// Watches of getData, and of exists on existing nodes.
        pub data_watches: List<'a, Text<'a>> = "dataWatches",
        /// Watches of exists on missing nodes.
        pub exist_watches: List<'a, Text<'a>> = "existWatches",
        /// Watches of getChildren.
        pub child_watches: List<'a, Text<'a>> = "childWatches",
        /// Watches of addWatch.
        pub persistent_watches: List<'a, Text<'a>> = "persistentWatches",
        /// Recursive watches of addWatch.
        pub persistent_recursive_watches: List<'a, Text<'a>> = "persistentRecursiveWatches",
    }
}

record! {
    /// sasl (102).
    pub struct SaslRequest<'a> {
        /// The mechanism's token. The first one of a mechanism without an initial response is empty, not null.
        pub token: Option<&'a [u8]> = secret "token",
    }
}

record! {
    /// addWatch (106).
    pub struct AddWatchRequest<'a> {
        /// The node, which need not exist.
        pub path: Text<'a> = "path",
        /// Whether the watch includes all descendants.
        pub mode: AddWatchMode = "mode",
    }
}

record! {
    /// The empty request of ping (11), whoAmI (107), closeSession (-11).
    pub struct EmptyRequest {}
}

/// Any request, as a server decodes it.
///
/// Encoding does not check it: a request may harm a server; see [`raw`](crate::raw).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the operation of its name, with its record")]
pub enum Request<'a> {
    Create(CreateRequest<'a>),
    Delete(DeleteRequest<'a>),
    Exists(ReadRequest<'a>),
    GetData(ReadRequest<'a>),
    SetData(SetDataRequest<'a>),
    GetAcl(PathRequest<'a>),
    SetAcl(SetAclRequest<'a>),
    GetChildren(ReadRequest<'a>),
    Sync(PathRequest<'a>),
    Ping,
    GetChildren2(ReadRequest<'a>),
    Check(CheckVersionRequest<'a>),
    Multi(MultiRequest<'a>),
    Create2(CreateRequest<'a>),
    Reconfig(ReconfigRequest<'a>),
    CheckWatches(WatchesRequest<'a>),
    RemoveWatches(WatchesRequest<'a>),
    CreateContainer(CreateRequest<'a>),
    DeleteContainer(PathRequest<'a>),
    CreateTtl(CreateTtlRequest<'a>),
    MultiRead(MultiRequest<'a>),
    Auth(AuthRequest<'a>),
    SetWatches(SetWatchesRequest<'a>),
    Sasl(SaslRequest<'a>),
    GetEphemerals(PathRequest<'a>),
    GetAllChildrenNumber(PathRequest<'a>),
    SetWatches2(SetWatches2Request<'a>),
    AddWatch(AddWatchRequest<'a>),
    WhoAmI,
    CloseSession,
    /// An operation whose record this crate does not know, and its body.
    Other(OpCode, &'a [u8]),
}

/// Implements the conversions of [`Request`] from one table of operations.
macro_rules! requests {
    ($($op:ident),+; empty: $($empty:ident),+) => {
        impl<'a> Request<'a> {
            /// The operation.
            #[must_use]
            pub const fn op_code(&self) -> OpCode {
                match self {
                    $(Self::$op(_) => OpCode::$op,)+
                    $(Self::$empty => OpCode::$empty,)+
                    Self::Other(op, _) => *op,
                }
            }

            /// Decodes the body of a request with the operation `op`. Bytes after it stay in the reader;
            /// servers ignore them.
            ///
            /// # Errors
            ///
            /// If the bytes are not a request of `op`. A server replies `MarshallingError`.
            pub fn decode(op: OpCode, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Ok(match op {
                    $(OpCode::$op => Self::$op(Decode::decode(reader)?),)+
                    $(OpCode::$empty => Self::$empty,)+
                    _ => {
                        let body = reader.rest();
                        *reader = Reader::new(&[]);
                        Self::Other(op, body)
                    }
                })
            }
        }

        impl Encode for Request<'_> {
            fn encode(&self, out: &mut impl BufMut) {
                match self {
                    $(Self::$op(record) => record.encode(out),)+
                    $(Self::$empty => {})+
                    Self::Other(_, body) => out.put_slice(body),
                }
            }
        }

        impl Request<'_> {
            /// The fields of the record; none of a multi or multiRead, an empty record or one that is not known.
            #[must_use]
            pub fn fields(&self) -> Vec<Field<'_>> {
                match self {
                    $(Self::$op(record) => record.fields(),)+
                    $(Self::$empty)|+ | Self::Other(..) => Vec::new(),
                }
            }
        }
    };
}

requests! {
    Create, Delete, Exists, GetData, SetData, GetAcl, SetAcl, GetChildren, Sync, GetChildren2, Check,
    Multi, Create2, Reconfig, CheckWatches, RemoveWatches, CreateContainer, DeleteContainer, CreateTtl,
    MultiRead, Auth, SetWatches, Sasl, GetEphemerals, GetAllChildrenNumber, SetWatches2, AddWatch;
    empty: Ping, WhoAmI, CloseSession
}

impl<'a> Request<'a> {
    /// The path of a request that has one.
    #[must_use]
    pub const fn path(&self) -> Option<Text<'a>> {
        Some(match self {
            Self::Create(r) | Self::Create2(r) | Self::CreateContainer(r) => r.path,
            Self::CreateTtl(r) => r.path,
            Self::Delete(r) => r.path,
            Self::Exists(r) | Self::GetData(r) | Self::GetChildren(r) | Self::GetChildren2(r) => {
                r.path
            }
            Self::SetData(r) => r.path,
            Self::GetAcl(r)
            | Self::Sync(r)
            | Self::DeleteContainer(r)
            | Self::GetEphemerals(r)
            | Self::GetAllChildrenNumber(r) => r.path,
            Self::SetAcl(r) => r.path,
            Self::Check(r) => r.path,
            Self::CheckWatches(r) | Self::RemoveWatches(r) => r.path,
            Self::AddWatch(r) => r.path,
            _ => return None,
        })
    }
}
