//! The operations a client may send, each with the type of its reply.
//!
//! None of them harms a server: TTLs are in range, `check` exists only inside a [`Multi`], and operations internal to
//! servers are missing. Where the path and the data decide, [`ApplicationOperation::harm`] does. [`request`](crate::request)
//! has the records of all requests, and [`raw`](crate::raw) encodes them, for fuzzers.

use alloc::vec::Vec;

use bytes::BufMut;

pub use crate::harmful::HarmfulWrite;
use crate::{
    CreateMode, OpCode,
    acl::AclList,
    harmful,
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

/// A request that a client may send, and the type of its reply.
pub trait Operation: Encode {
    /// The body of its reply.
    type Reply<'r>: Decode<'r>;

    /// Its operation code.
    fn op_code(&self) -> OpCode;
}

/// An operation that an application may submit in a session. It has a positive xid, and is answered in its turn.
///
/// The other operations belong to the session itself. [`Ping`], [`Auth`], [`Sasl`], [`SetWatches`], [`SetWatches2`] and
/// [`CloseSession`] have fixed xids or a fixed place in the connection; elsewhere, their replies would match no
/// request, or end the session unnoticed. [`AddWatch`] and [`RemoveWatches`] change the watches that a session keeps
/// a table of; a session has methods for them. The trait is sealed.
///
/// ```
/// use docent_protocol::operation::{ApplicationOperation, WhoAmI};
///
/// fn submit(operation: &impl ApplicationOperation) {}
/// submit(&WhoAmI);
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::operation::{ApplicationOperation, Ping};
/// # fn submit(operation: &impl ApplicationOperation) {}
/// submit(&Ping);
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::operation::{CloseSession, ApplicationOperation};
/// # fn submit(operation: &impl ApplicationOperation) {}
/// submit(&CloseSession);
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::{operation::{Auth, ApplicationOperation}, request::AuthRequest};
/// # fn submit(operation: &impl ApplicationOperation) {}
/// submit(&Auth(AuthRequest { auth_type: 0, scheme: "digest".into(), auth: None }));
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::{operation::{ApplicationOperation, Sasl}, request::SaslRequest};
/// # fn submit(operation: &impl ApplicationOperation) {}
/// submit(&Sasl(SaslRequest { token: None }));
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::{operation::{ApplicationOperation, RemoveWatches}, request::WatchesRequest, WatcherType};
/// # fn submit(operation: &impl ApplicationOperation) {}
/// submit(&RemoveWatches(WatchesRequest { path: "/a".into(), watcher_type: WatcherType::Any }));
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::{operation::{AddWatch, ApplicationOperation}, request::AddWatchRequest, AddWatchMode};
/// # fn submit(operation: &impl ApplicationOperation) {}
/// submit(&AddWatch(AddWatchRequest { path: "/a".into(), mode: AddWatchMode::Persistent }));
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::operation::{ApplicationOperation, SetWatches};
/// # fn submit<O: ApplicationOperation>() {}
/// submit::<SetWatches<'static>>();
/// ```
///
/// ```compile_fail,E0277
/// # use docent_protocol::operation::{ApplicationOperation, SetWatches2};
/// # fn submit<O: ApplicationOperation>() {}
/// submit::<SetWatches2<'static>>();
/// ```
///
/// No other type can be made one:
///
/// ```compile_fail,E0277
/// # use bytes::BufMut;
/// # use docent_protocol::{OpCode, operation::{Operation, ApplicationOperation}, jute::Encode, reply::EmptyReply};
/// struct Mine;
/// # impl Encode for Mine { fn encode(&self, _: &mut impl BufMut) {} }
/// # impl Operation for Mine { type Reply<'r> = EmptyReply; fn op_code(&self) -> OpCode { OpCode::Ping } }
/// impl ApplicationOperation for Mine {}
/// ```
pub trait ApplicationOperation: Operation + sealed::ApplicationOperation {
    /// Whether a write would stop a server: one of these nodes below `/zookeeper/quota`. The server has logged the write by
    /// then, so it stops again at each start.
    ///
    /// * the create of `/zookeeper/quota/zookeeper_limits`
    /// * a `zookeeper_limits`, or a `zookeeper_stats` that is written, whose data are not a list of `name=number`
    ///
    /// ```
    /// use docent_protocol::operation::{ApplicationOperation, SetData};
    /// use docent_protocol::request::SetDataRequest;
    ///
    /// let path = "/zookeeper/quota/app/zookeeper_stats".into();
    /// let write = SetData(SetDataRequest { path, data: Some(b"many"), version: -1 });
    /// assert!(write.harm().is_some());
    /// ```
    #[inline]
    fn harm(&self) -> Option<HarmfulWrite> {
        None
    }
}

mod sealed {
    pub trait ApplicationOperation {}
}

macro_rules! application_operations {
    ($($name:ty)+) => {
        $(
            impl sealed::ApplicationOperation for $name {}
            impl ApplicationOperation for $name {}
        )+
    };
}

application_operations! {
    Delete<'_> Exists<'_> GetData<'_> GetAcl<'_> SetAcl<'_> GetChildren<'_> GetChildren2<'_> Sync<'_> Reconfig<'_>
    CheckWatches<'_> GetEphemerals<'_> GetAllChildrenNumber<'_> WhoAmI MultiRead<'_>
}

/// The same for the writes that may be harmful.
macro_rules! application_writes {
    ($($name:ty = |$write:ident| $harm:expr;)+) => {
        $(
            impl sealed::ApplicationOperation for $name {}
            impl ApplicationOperation for $name {
                #[inline]
                fn harm(&self) -> Option<HarmfulWrite> {
                    let $write = self;
                    $harm
                }
            }
        )+
    };
}

application_writes! {
    Create<'_> = |write| write.0.harm();
    Create2<'_> = |write| write.0.harm();
    SetData<'_> = |write| harmful::set_data(write.0.path.as_bytes(), write.0.data);
    Multi = |multi| multi.harm;
}

/// The arguments of every create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NewNode<'a> {
    path: &'a str,
    data: Option<&'a [u8]>,
    acl: AclList<'a>,
    mode: CreateMode,
}

impl Encode for NewNode<'_> {
    #[inline]
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
    fn harm(&self) -> Option<HarmfulWrite> {
        // A sequential node has another name than its path.
        if self.mode.is_sequential() {
            None
        } else {
            harmful::create(self.path.as_bytes(), self.data)
        }
    }

    /// Containers and TTL nodes have separate operations; the other modes use `default`.
    const fn op_code(&self, default: OpCode) -> OpCode {
        match self.mode {
            CreateMode::Container => OpCode::CreateContainer,
            CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) => {
                OpCode::CreateTtl
            }
            _ => default,
        }
    }
}

/// Declares the creates: name, operation of the common modes, and reply.
macro_rules! creates {
    ($($(#[$meta:meta])* $name:ident = $op:ident -> $reply:ty;)+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name<'a>(NewNode<'a>);

            impl<'a> $name<'a> {
                /// Null `data` is distinct from empty.
                #[must_use]
                pub fn new(
                    path: &'a str,
                    data: Option<&'a [u8]>,
                    acl: impl Into<AclList<'a>>,
                    mode: CreateMode,
                ) -> Self {
                    Self(NewNode { path, data, acl: acl.into(), mode })
                }

                /// Whether the server appends a number to the path.
                #[must_use]
                pub const fn is_sequential(&self) -> bool {
                    self.0.mode.is_sequential()
                }
            }

            impl Encode for $name<'_> {
                #[inline]
                fn encode(&self, out: &mut impl BufMut) {
                    self.0.encode(out);
                }
            }

            impl Operation for $name<'_> {
                type Reply<'r> = $reply;

                #[inline]
                fn op_code(&self) -> OpCode {
                    self.0.op_code(OpCode::$op)
                }
            }
        )+
    };
}

creates! {
    /// Creates a node; the reply is its path: create (1), which every server supports. Containers and TTL nodes are
    /// created by createContainer (19) and createTTL (21), as by [`Create2`].
    Create = Create -> PathReply<'r>;
    /// Creates a node; the reply is its path and Stat: create2 (15), createContainer (19), createTTL (21).
    Create2 = Create2 -> Create2Reply<'r>;
}

/// Declares operations: name, record and reply.
macro_rules! operations {
    ($($(#[$meta:meta])* $name:ident($record:ty) = $op:ident -> $reply:ty;)+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name<'a>(pub $record);

            impl Encode for $name<'_> {
                #[inline(always)] // 22 more instructions a getData without the four of encoding.
                fn encode(&self, out: &mut impl BufMut) {
                    self.0.encode(out);
                }
            }

            impl<'a> Operation for $name<'a> {
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

operations! {
    /// Deletes a node.
    Delete(DeleteRequest<'a>) = Delete -> EmptyReply;
    /// Reads a node's Stat.
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
    /// Checks whether a watch is set.
    CheckWatches(WatchesRequest<'a>) = CheckWatches -> EmptyReply;
    /// Removes watches.
    RemoveWatches(WatchesRequest<'a>) = RemoveWatches -> EmptyReply;
    /// Adds credentials. Its xid is [`xid::AUTH`](crate::xid::AUTH).
    Auth(AuthRequest<'a>) = Auth -> EmptyReply;
    /// Sets watches again after a reconnect.
    SetWatches(SetWatchesRequest<'a>) = SetWatches -> EmptyReply;
    /// One step of a SASL exchange.
    Sasl(SaslRequest<'a>) = Sasl -> SaslReply<'r>;
    /// Lists the session's ephemeral nodes below a prefix.
    GetEphemerals(PathRequest<'a>) = GetEphemerals -> GetChildrenReply<'r>;
    /// Counts all descendants.
    GetAllChildrenNumber(PathRequest<'a>) = GetAllChildrenNumber -> GetAllChildrenNumberReply;
    /// Sets watches again after a reconnect, including persistent ones.
    SetWatches2(SetWatches2Request<'a>) = SetWatches2 -> EmptyReply;
    /// Adds a persistent watch.
    AddWatch(AddWatchRequest<'a>) = AddWatch -> ErrorReply;
}

/// Declares operations without a body.
macro_rules! empty_operations {
    ($($(#[$meta:meta])* $name:ident -> $reply:ty;)+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name;

            impl Encode for $name {
                #[inline]
                fn encode(&self, _out: &mut impl BufMut) {}
            }

            impl Operation for $name {
                type Reply<'r> = $reply;

                #[inline]
                fn op_code(&self) -> OpCode {
                    OpCode::$name
                }
            }
        )+
    };
}

empty_operations! {
    /// Keeps the session alive. Its xid is [`xid::PING`](crate::xid::PING).
    Ping -> EmptyReply;
    /// Lists the ids of the connection.
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
    /// Creates a node. For a container or TTL node the result includes its Stat (servers since 3.5).
    #[must_use]
    pub fn create(
        path: &'a str,
        data: Option<&'a [u8]>,
        acl: impl Into<AclList<'a>>,
        mode: CreateMode,
    ) -> Self {
        Self(WriteRepr::Create(NewNode { path, data, acl: acl.into(), mode }))
    }

    /// Deletes a node; version -1 matches any version.
    #[must_use]
    pub const fn delete(path: &'a str, version: i32) -> Self {
        Self(WriteRepr::Delete(DeleteRequest { path: crate::Text::new(path), version }))
    }

    /// Writes data; version -1 matches any version.
    #[must_use]
    pub const fn set_data(path: &'a str, data: Option<&'a [u8]>, version: i32) -> Self {
        Self(WriteRepr::SetData(SetDataRequest { path: crate::Text::new(path), data, version }))
    }

    /// Fails the whole multi unless the node exists and has this version; -1 matches any version.
    #[must_use]
    pub const fn check(path: &'a str, version: i32) -> Self {
        Self(WriteRepr::Check(CheckVersionRequest { path: crate::Text::new(path), version }))
    }

    /// Whether it creates a node, and the server appends a number to the path.
    #[must_use]
    pub const fn is_sequential(&self) -> bool {
        matches!(&self.0, WriteRepr::Create(node) if node.mode.is_sequential())
    }

    /// The operation, as it is named in a multi: create (1), createContainer (19) or createTTL (21), delete, setData,
    /// check.
    #[must_use]
    pub const fn op_code(&self) -> OpCode {
        match &self.0 {
            WriteRepr::Create(node) => node.op_code(OpCode::Create),
            WriteRepr::Delete(_) => OpCode::Delete,
            WriteRepr::SetData(_) => OpCode::SetData,
            WriteRepr::Check(_) => OpCode::Check,
        }
    }
}

impl Write<'_> {
    fn harm(&self) -> Option<HarmfulWrite> {
        match &self.0 {
            WriteRepr::Create(node) => node.harm(),
            WriteRepr::SetData(write) => harmful::set_data(write.path.as_bytes(), write.data),
            WriteRepr::Delete(_) | WriteRepr::Check(_) => None,
        }
    }
}

impl Encode for Write<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        match &self.0 {
            WriteRepr::Create(node) => {
                crate::multi::MultiHeader {
                    op: self.op_code(),
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

/// Several writes, executed atomically. Each is encoded when it is added, so nothing is borrowed.
///
/// ```
/// use docent_protocol::operation::{Multi, Write};
///
/// let mut multi = Multi::new();
/// for number in 0..3 {
///     multi.push(&Write::delete(&format!("/job-{number}"), -1));
/// }
/// let two: Multi = [Write::check("/a", 7), Write::set_data("/a", Some(b"x"), -1)].iter().collect();
/// # assert!(multi.encoded_len() > two.encoded_len());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Multi {
    /// The writes, each with its header, without the header that ends the sequence.
    writes: Vec<u8>,
    /// The number of writes, and the first harmful one.
    len: usize,
    harm: Option<HarmfulWrite>,
}

impl Multi {
    /// Without writes, which servers accept.
    #[must_use]
    pub const fn new() -> Self {
        Self { writes: Vec::new(), len: 0, harm: None }
    }

    /// Adds a write at the end.
    pub fn push(&mut self, write: &Write<'_>) {
        write.encode(&mut self.writes);
        if self.harm.is_none() {
            self.harm = write.harm().map(|harm| harm.at(self.len));
        }
        self.len += 1;
    }

    /// Removes all writes, and keeps the memory.
    pub fn clear(&mut self) {
        self.writes.clear();
        (self.len, self.harm) = (0, None);
    }

    /// The size of the writes in bytes. The end of the sequence and the frame add 21 bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        self.writes.len()
    }
}

impl<'w, 'a: 'w> FromIterator<&'w Write<'a>> for Multi {
    fn from_iter<I: IntoIterator<Item = &'w Write<'a>>>(writes: I) -> Self {
        let mut multi = Self::new();
        writes.into_iter().for_each(|write| multi.push(write));
        multi
    }
}

impl Encode for Multi {
    fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(&self.writes);
        MultiRequest::new(&[]).encode(out);
    }
}

impl Operation for Multi {
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

/// Several reads at one point in time. Each fails independently. Servers since 3.6.0.
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

impl Operation for MultiRead<'_> {
    type Reply<'r> = MultiReply<'r>;

    fn op_code(&self) -> OpCode {
        OpCode::MultiRead
    }
}
