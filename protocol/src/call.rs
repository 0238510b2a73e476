//! What a client may send.
//!
//! Each type here is one request that no server is harmed by: TTLs are in range, `check` exists only
//! inside a [`Multi`], and what servers keep to themselves is missing. What a fuzzer needs besides is in
//! [`raw`](crate::raw).

use bytes::BufMut;

use crate::{
    CreateMode, OpCode,
    acl::AclList,
    jute::{Decode, Encode, Field},
    multi::{MultiOp, MultiReply, MultiRequest},
    reply::{
        Create2Reply, EmptyReply, ErrorReply, GetAclReply, GetAllChildrenNumberReply,
        GetChildren2Reply, GetChildrenReply, GetDataReply, PathReply, SaslReply, StatReply,
        WhoAmIReply,
    },
    request::{
        AddWatchRequest, AuthRequest, CheckVersionRequest, DeleteRequest, PathRequest, ReadRequest,
        ReconfigRequest, SaslRequest, SetAclRequest, SetDataRequest, SetWatches2Request,
        SetWatchesRequest, WatchesRequest,
    },
};

/// A request that a client may send, and the reply it gets.
pub trait Call: Encode {
    /// The body of its reply.
    type Reply<'r>: Decode<'r>;

    /// The number it is sent under.
    fn op_code(&self) -> OpCode;
}

/// What all creates have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NewNode<'a> {
    path: &'a str,
    data: Option<&'a [u8]>,
    acl: AclList<'a>,
    mode: CreateMode,
}

impl Encode for NewNode<'_> {
    #[inline(always)]
    fn encode(&self, out: &mut impl BufMut) {
        crate::Text::new(self.path).put(out);
        self.data.put(out);
        self.acl.encode(out);
        out.put_i32(self.mode.flags());
        if let Some(ttl) = self.mode.ttl() {
            out.put_i64(ttl.as_millis());
        }
    }
}

impl NewNode<'_> {
    /// Containers and TTL nodes have operations of their own; the others share `otherwise`.
    const fn op_code(&self, otherwise: OpCode) -> OpCode {
        match self.mode {
            CreateMode::Container => OpCode::CreateContainer,
            CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) => {
                OpCode::CreateTtl
            }
            _ => otherwise,
        }
    }
}

/// Creates a node and asks for its path: create (1), which the oldest servers know. Containers and TTL
/// nodes go as createContainer (19) and createTTL (21), whatever is asked of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create<'a>(NewNode<'a>);

/// Creates a node and asks for its path and Stat: create2 (15), createContainer (19), createTTL (21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create2<'a>(NewNode<'a>);

impl<'a> Create<'a> {
    /// `data` may be null, which is not empty.
    #[must_use]
    pub fn new(
        path: &'a str,
        data: Option<&'a [u8]>,
        acl: impl Into<AclList<'a>>,
        mode: CreateMode,
    ) -> Self {
        Self(NewNode { path, data, acl: acl.into(), mode })
    }
}

impl<'a> Create2<'a> {
    /// `data` may be null, which is not empty.
    #[must_use]
    pub fn new(
        path: &'a str,
        data: Option<&'a [u8]>,
        acl: impl Into<AclList<'a>>,
        mode: CreateMode,
    ) -> Self {
        Self(NewNode { path, data, acl: acl.into(), mode })
    }
}

impl Encode for Create<'_> {
    #[inline(always)]
    fn encode(&self, out: &mut impl BufMut) {
        self.0.encode(out);
    }
}

impl Encode for Create2<'_> {
    #[inline(always)]
    fn encode(&self, out: &mut impl BufMut) {
        self.0.encode(out);
    }
}

impl Call for Create<'_> {
    type Reply<'r> = PathReply<'r>;

    #[inline]
    fn op_code(&self) -> OpCode {
        self.0.op_code(OpCode::Create)
    }
}

impl Call for Create2<'_> {
    type Reply<'r> = Create2Reply<'r>;

    #[inline]
    fn op_code(&self) -> OpCode {
        self.0.op_code(OpCode::Create2)
    }
}

/// Declares a call for each operation: its name, its record, its reply.
macro_rules! calls {
    ($($(#[$meta:meta])* $name:ident($record:ty) = $op:ident -> $reply:ty;)+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name<'a>(pub $record);

            impl Encode for $name<'_> {
                #[inline(always)]
                fn encode(&self, out: &mut impl BufMut) {
                    self.0.encode(out);
                }
            }

            impl<'a> Call for $name<'a> {
                type Reply<'r> = $reply;

                #[inline]
                fn op_code(&self) -> OpCode {
                    OpCode::$op
                }
            }

            impl<'a> From<$record> for $name<'a> {
                fn from(record: $record) -> Self {
                    Self(record)
                }
            }
        )+
    };
}

calls! {
    /// Deletes a node.
    Delete(DeleteRequest<'a>) = Delete -> EmptyReply;
    /// Asks for a node's Stat.
    Exists(ReadRequest<'a>) = Exists -> StatReply;
    /// Reads data and Stat.
    GetData(ReadRequest<'a>) = GetData -> GetDataReply<'r>;
    /// Writes data.
    SetData(SetDataRequest<'a>) = SetData -> StatReply;
    /// Reads the ACL.
    GetAcl(PathRequest<'a>) = GetAcl -> GetAclReply<'r>;
    /// Writes the ACL.
    SetAcl(SetAclRequest<'a>) = SetAcl -> StatReply;
    /// Lists children.
    GetChildren(ReadRequest<'a>) = GetChildren -> GetChildrenReply<'r>;
    /// Waits until the server has caught up with the leader.
    Sync(PathRequest<'a>) = Sync -> PathReply<'r>;
    /// Lists children, with the parent's Stat.
    GetChildren2(ReadRequest<'a>) = GetChildren2 -> GetChildren2Reply<'r>;
    /// Changes the ensemble.
    Reconfig(ReconfigRequest<'a>) = Reconfig -> GetDataReply<'r>;
    /// Asks whether a watch is there.
    CheckWatches(WatchesRequest<'a>) = CheckWatches -> EmptyReply;
    /// Removes watches.
    RemoveWatches(WatchesRequest<'a>) = RemoveWatches -> EmptyReply;
    /// Adds credentials. Sent under [`xid::AUTH`](crate::xid::AUTH).
    Auth(AuthRequest<'a>) = Auth -> EmptyReply;
    /// Sets watches again after a reconnect.
    SetWatches(SetWatchesRequest<'a>) = SetWatches -> EmptyReply;
    /// One step of a SASL exchange.
    Sasl(SaslRequest<'a>) = Sasl -> SaslReply<'r>;
    /// Lists the session's ephemeral nodes below a prefix.
    GetEphemerals(PathRequest<'a>) = GetEphemerals -> GetChildrenReply<'r>;
    /// Counts all descendants.
    GetAllChildrenNumber(PathRequest<'a>) = GetAllChildrenNumber -> GetAllChildrenNumberReply;
    /// Sets watches again after a reconnect, persistent ones too.
    SetWatches2(SetWatches2Request<'a>) = SetWatches2 -> EmptyReply;
    /// Adds a persistent watch.
    AddWatch(AddWatchRequest<'a>) = AddWatch -> ErrorReply;
}

/// Declares a call without a body.
macro_rules! empty_calls {
    ($($(#[$meta:meta])* $name:ident -> $reply:ty;)+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name;

            impl Encode for $name {
                #[inline(always)]
                fn encode(&self, _out: &mut impl BufMut) {}
            }

            impl Call for $name {
                type Reply<'r> = $reply;

                #[inline]
                fn op_code(&self) -> OpCode {
                    OpCode::$name
                }
            }
        )+
    };
}

empty_calls! {
    /// Keeps the session alive. Sent under [`xid::PING`](crate::xid::PING).
    Ping -> EmptyReply;
    /// Asks under which ids the connection is known.
    WhoAmI -> WhoAmIReply<'r>;
    /// Ends the session.
    CloseSession -> EmptyReply;
}

/// One write of a [`Multi`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a>(WriteRepr<'a>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteRepr<'a> {
    Create(NewNode<'a>),
    Delete(DeleteRequest<'a>),
    SetData(SetDataRequest<'a>),
    Check(CheckVersionRequest<'a>),
}

impl<'a> Write<'a> {
    /// Creates a node. Servers since 3.5 say its Stat with containers and TTL nodes.
    #[must_use]
    pub fn create(
        path: &'a str,
        data: Option<&'a [u8]>,
        acl: impl Into<AclList<'a>>,
        mode: CreateMode,
    ) -> Self {
        Self(WriteRepr::Create(NewNode { path, data, acl: acl.into(), mode }))
    }

    /// Deletes a node; version -1 is any.
    #[must_use]
    pub const fn delete(path: &'a str, version: i32) -> Self {
        Self(WriteRepr::Delete(DeleteRequest { path: crate::Text::new(path), version }))
    }

    /// Writes data; version -1 is any.
    #[must_use]
    pub const fn set_data(path: &'a str, data: Option<&'a [u8]>, version: i32) -> Self {
        Self(WriteRepr::SetData(SetDataRequest { path: crate::Text::new(path), data, version }))
    }

    /// Fails the whole multi unless the node exists and has this version; -1 is any.
    #[must_use]
    pub const fn check(path: &'a str, version: i32) -> Self {
        Self(WriteRepr::Check(CheckVersionRequest { path: crate::Text::new(path), version }))
    }
}

impl Encode for Write<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        match &self.0 {
            WriteRepr::Create(node) => {
                crate::multi::MultiHeader {
                    op: node.op_code(OpCode::Create),
                    done: false,
                    err: crate::ErrorCode::SystemError,
                }
                .encode(out);
                node.encode(out);
            }
            WriteRepr::Delete(record) => MultiOp::Delete(*record).encode(out),
            WriteRepr::SetData(record) => MultiOp::SetData(*record).encode(out),
            WriteRepr::Check(record) => MultiOp::Check(*record).encode(out),
        }
    }
}

/// Several writes, all or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multi<'a>(pub &'a [Write<'a>]);

impl Encode for Multi<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        for write in self.0 {
            write.encode(out);
        }
        MultiRequest::new(&[]).encode(out);
    }
}

impl Call for Multi<'_> {
    type Reply<'r> = MultiReply<'r>;

    fn op_code(&self) -> OpCode {
        OpCode::Multi
    }
}

/// One read of a [`MultiRead`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read<'a> {
    /// Data and Stat of a node.
    GetData(&'a str),
    /// The children of a node.
    GetChildren(&'a str),
}

/// Several reads of one moment. Each fails for itself. Servers since 3.6.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiRead<'a>(pub &'a [Read<'a>]);

impl Encode for MultiRead<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        for read in self.0 {
            match read {
                Read::GetData(path) => {
                    MultiOp::GetData(ReadRequest { path: (*path).into(), watch: false })
                }
                Read::GetChildren(path) => {
                    MultiOp::GetChildren(ReadRequest { path: (*path).into(), watch: false })
                }
            }
            .encode(out);
        }
        MultiRequest::new(&[]).encode(out);
    }
}

impl Call for MultiRead<'_> {
    type Reply<'r> = MultiReply<'r>;

    fn op_code(&self) -> OpCode {
        OpCode::MultiRead
    }
}
