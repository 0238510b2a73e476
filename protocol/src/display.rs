//! `Display` for messages and frames: one line of text each.
//!
//! Names are ZooKeeper's. The line never contains passwords, credentials, SASL tokens, the hashes of ACL ids or
//! the data of nodes; data is replaced by its size. Control characters are escaped, so a path sent by a peer
//! cannot break the line or move the cursor.

use core::fmt::{self, Display, Formatter};

use crate::{
    Acl, ErrorCode, Id, List, Stat, Text,
    acl::AclList,
    connect::{ConnectRequest, ConnectResponse, HandshakeReply},
    dissect::{Frame, Message, Opaque, ReplyBody},
    multi::{MultiOp, MultiResult},
    reply::Reply,
    request::{CreateRequest, CreateTtlRequest, ReadRequest, Request},
};

/// Displays the size of secret bytes instead of the bytes.
pub(crate) struct Redacted<'a>(pub(crate) Option<&'a [u8]>);

impl Display for Redacted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&Size(self.0), f)
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// Displays the size of a buffer: `9 bytes`, or `null`.
struct Size<'a>(Option<&'a [u8]>);

impl Display for Size<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{} bytes", bytes.len()),
            None => f.write_str("null"),
        }
    }
}

impl Display for Opaque<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&Size(Some(self.0)), f)
    }
}

/// Displays text on one line, by [`crate::Escaped`].
struct Escaped<'a>(Text<'a>);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_null() {
            return f.write_str("null");
        }
        Display::fmt(&crate::Escaped(&self.0.to_str()), f)
    }
}

/// Number of list elements that a line shows; more are counted.
const MAX_LISTED: usize = 8;

/// Length up to which a line shows the reply to a four-letter word, in bytes. `mntr` replies with thousands.
const MAX_TEXT_BYTES: usize = 100;

/// Displays a list of texts: `[a b c]` or `[a b c and 2 more]`.
struct TextList<'a>(List<'a, Text<'a>>);

impl Display for TextList<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_null() {
            return f.write_str("null");
        }
        f.write_str("[")?;
        for (index, name) in self.0.iter().take(MAX_LISTED).enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { " " }, Escaped(name))?;
        }
        match self.0.len().checked_sub(MAX_LISTED + 1) {
            Some(more) => write!(f, " and {} more]", more + 1),
            None => f.write_str("]"),
        }
    }
}

/// Displays an ACL: `[31 world:anyone]`.
struct Acls<'a>(AclList<'a>);

impl Display for Acls<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_null() {
            return f.write_str("null");
        }
        f.write_str("[")?;
        for (index, Acl { perms, id }) in self.0.iter().take(MAX_LISTED).enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{} {}", perms.number(), RedactedId(id))?;
        }
        match self.0.len().checked_sub(MAX_LISTED + 1) {
            Some(more) => write!(f, " and {} more]", more + 1),
            None => f.write_str("]"),
        }
    }
}

/// Displays an id as `scheme:id`, redacted by [`redact_id`].
struct RedactedId<'a>(Id<'a>);

impl Display for RedactedId<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (id, is_redacted) = redact_id(self.0);
        write!(
            f,
            "{}:{}{}",
            Escaped(self.0.scheme),
            Escaped(id),
            if is_redacted { ":x" } else { "" }
        )
    }
}

/// Returns the public part of an id, and whether a secret part was removed.
///
/// An id of `digest` is `user:hash`, and people write clear passwords there by mistake. The ids of unknown
/// schemes may contain secrets too. So an id is cut at the colon unless its scheme is known to have no secrets.
/// A server does the same for a client without the ADMIN permission, and shows it `user:x`.
pub(crate) fn redact_id(id: Id<'_>) -> (Text<'_>, bool) {
    let bytes = id.id.as_bytes();
    let is_public =
        [&b"world"[..], b"ip", b"sasl", b"x509", b"super"].contains(&id.scheme.as_bytes());
    match bytes.iter().position(|&byte| byte == b':').filter(|_| !is_public) {
        Some(colon) => (Text::from_bytes(bytes.get(..colon)), true),
        None => (id.id, false),
    }
}

/// Displays a zxid in hexadecimal, because its upper half is the epoch; -1 (no zxid) in decimal.
struct Zxid(i64);

impl Display for Zxid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 < 0 { Display::fmt(&self.0, f) } else { write!(f, "{:#x}", self.0) }
    }
}

/// Displays a Stat without its times.
struct StatFields(Stat);

impl Display for StatFields {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Stat { czxid, mzxid, pzxid, version, cversion, aversion, .. } = self.0;
        let Stat { ephemeral_owner, data_length, num_children, .. } = self.0;
        write!(f, "czxid={czxid:#x} mzxid={mzxid:#x} pzxid={pzxid:#x} ")?;
        write!(f, "version={version} cversion={cversion} aversion={aversion} ")?;
        if ephemeral_owner != 0 {
            write!(f, "ephemeralOwner={ephemeral_owner:#x} ")?;
        }
        write!(f, "dataLength={data_length} numChildren={num_children}")
    }
}

impl Display for Frame<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.direction, self.message)?;
        match self.left_over.len() {
            0 => Ok(()),
            left => write!(f, " ({left} bytes left over)"),
        }
    }
}

impl Display for Message<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectRequest(record) => write!(f, "connect {record}"),
            Self::ConnectReply(HandshakeReply::Response(record)) => write!(f, "connect {record}"),
            Self::ConnectReply(HandshakeReply::Refused(header)) => {
                write!(f, "connect refused {}", header.err)
            }
            Self::Request { header, request } => write!(f, "{} {request}", header.xid),
            Self::Reply { header, op, body } => {
                write!(f, "{} zxid={} ", header.xid, Zxid(header.zxid))?;
                match op {
                    Some(op) => Display::fmt(op, f)?,
                    None => f.write_str("reply")?,
                }
                if header.err != ErrorCode::Ok {
                    write!(f, " {}", header.err)?;
                }
                Display::fmt(body, f)
            }
            Self::Event { header, event } => {
                write!(f, "event {} {}", event.event_type, Escaped(event.path))?;
                if event.state != crate::KeeperState::SyncConnected {
                    write!(f, " state={}", event.state)?;
                }
                if header.zxid != -1 {
                    write!(f, " zxid={}", Zxid(header.zxid))?;
                }
                Ok(())
            }
            Self::FourLetterWord(word) => {
                write!(f, "four-letter word {}", Escaped(Text::from_bytes(Some(word))))
            }
            Self::Text(text) => {
                let start = text.0.get(..MAX_TEXT_BYTES).unwrap_or(text.0);
                write!(f, "text {}", Escaped(Text::from_bytes(Some(start))))?;
                match text.0.len() - start.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} bytes more"),
                }
            }
            Self::Undecodable { xid, op, error } => {
                if let Some(xid) = xid {
                    write!(f, "{xid} ")?;
                }
                if let Some(op) = op {
                    write!(f, "{op} ")?;
                }
                write!(f, "undecodable: {error}")
            }
        }
    }
}

/// The part after the operation, with a space in front unless it is empty.
impl Display for ReplyBody<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(Reply::Empty) => Ok(()),
            Self::Record(record) => write!(f, " {record}"),
            Self::Error(Opaque([])) | Self::Unmatched(Opaque([])) => Ok(()),
            Self::Error(bytes) | Self::Unmatched(bytes) => write!(f, " body={bytes}"),
        }
    }
}

impl Display for ConnectRequest<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "lastZxidSeen={} timeOut={} ", Zxid(self.last_zxid_seen), self.time_out)?;
        write!(f, "sessionId={:#x} passwd={}", self.session_id, Redacted(self.passwd))?;
        self.read_only.map_or(Ok(()), |read_only| write!(f, " readOnly={read_only}"))
    }
}

impl Display for ConnectResponse<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "timeOut={} sessionId={:#x} ", self.time_out, self.session_id)?;
        write!(f, "passwd={}", Redacted(self.passwd))?;
        if let Some(read_only) = self.read_only {
            write!(f, " readOnly={read_only}")?;
        }
        if self.is_refused() { f.write_str(" (no such session)") } else { Ok(()) }
    }
}

/// The operation and the fields of its record.
impl Display for Request<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.op_code(), f)?;
        match self {
            Self::Create(r) | Self::Create2(r) | Self::CreateContainer(r) => write!(f, " {r}"),
            Self::CreateTtl(r) => write!(f, " {r}"),
            Self::Delete(r) => write!(f, " {} version={}", Escaped(r.path), r.version),
            Self::Exists(r) | Self::GetData(r) | Self::GetChildren(r) | Self::GetChildren2(r) => {
                write!(f, " {r}")
            }
            Self::SetData(r) => {
                write!(f, " {} data={} version={}", Escaped(r.path), Size(r.data), r.version)
            }
            Self::GetAcl(r)
            | Self::Sync(r)
            | Self::DeleteContainer(r)
            | Self::GetEphemerals(r)
            | Self::GetAllChildrenNumber(r) => write!(f, " {}", Escaped(r.path)),
            Self::SetAcl(r) => {
                write!(f, " {} acl={} version={}", Escaped(r.path), Acls(r.acl), r.version)
            }
            Self::Check(r) => write!(f, " {} version={}", Escaped(r.path), r.version),
            Self::Multi(ops) | Self::MultiRead(ops) => {
                f.write_str(" ")?;
                write_list(f, ops.iter())
            }
            Self::Reconfig(r) => {
                write!(f, " joiningServers={}", Escaped(r.joining_servers))?;
                write!(f, " leavingServers={}", Escaped(r.leaving_servers))?;
                write!(f, " newMembers={}", Escaped(r.new_members))?;
                write!(f, " curConfigId={}", r.cur_config_id)
            }
            Self::CheckWatches(r) | Self::RemoveWatches(r) => {
                write!(f, " {} type={}", Escaped(r.path), r.watcher_type)
            }
            Self::Auth(r) => {
                write!(f, " scheme={} auth={}", Escaped(r.scheme), Redacted(r.auth))
            }
            Self::SetWatches(r) => {
                write!(
                    f,
                    " relativeZxid={} data={}",
                    Zxid(r.relative_zxid),
                    TextList(r.data_watches)
                )?;
                write!(
                    f,
                    " exist={} child={}",
                    TextList(r.exist_watches),
                    TextList(r.child_watches)
                )
            }
            Self::SetWatches2(r) => {
                write!(
                    f,
                    " relativeZxid={} data={}",
                    Zxid(r.relative_zxid),
                    TextList(r.data_watches)
                )?;
                write!(
                    f,
                    " exist={} child={}",
                    TextList(r.exist_watches),
                    TextList(r.child_watches)
                )?;
                write!(f, " persistent={}", TextList(r.persistent_watches))?;
                write!(f, " persistentRecursive={}", TextList(r.persistent_recursive_watches))
            }
            Self::Sasl(r) => write!(f, " token={}", Redacted(r.token)),
            Self::AddWatch(r) => write!(f, " {} mode={}", Escaped(r.path), r.mode),
            Self::Ping | Self::WhoAmI | Self::CloseSession => Ok(()),
            Self::Other(_, body) => write!(f, " body={}", Opaque(body)),
        }
    }
}

impl Display for CreateRequest<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} data={}", Escaped(self.path), Size(self.data))?;
        write!(f, " acl={} flags={}", Acls(self.acl), self.flags)
    }
}

impl Display for CreateTtlRequest<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { path, data, acl, flags, ttl } = *self;
        write!(f, "{} ttl={ttl}", CreateRequest { path, data, acl, flags })
    }
}

impl Display for ReadRequest<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Escaped(self.path), if self.watch { " watch" } else { "" })
    }
}

impl Display for MultiOp<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let as_request = match *self {
            Self::Create(r) => Request::Create(r),
            Self::Delete(r) => Request::Delete(r),
            Self::SetData(r) => Request::SetData(r),
            Self::Check(r) => Request::Check(r),
            Self::Create2(r) => Request::Create2(r),
            Self::CreateContainer(r) => Request::CreateContainer(r),
            Self::CreateTtl(r) => Request::CreateTtl(r),
            Self::GetData(r) => Request::GetData(r),
            Self::GetChildren(r) => Request::GetChildren(r),
        };
        Display::fmt(&as_request, f)
    }
}

/// The fields of the record; empty for an empty record.
impl Display for Reply<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::Path(r) => Display::fmt(&Escaped(r.path), f),
            Self::Create2(r) => write!(f, "{} {}", Escaped(r.path), StatFields(r.stat)),
            Self::Stat(r) => Display::fmt(&StatFields(r.stat), f),
            Self::GetData(r) => write!(f, "data={} {}", Size(r.data), StatFields(r.stat)),
            Self::GetAcl(r) => write!(f, "acl={} {}", Acls(r.acl), StatFields(r.stat)),
            Self::GetChildren(r) => write!(f, "children={}", TextList(r.children)),
            Self::GetChildren2(r) => {
                write!(f, "children={} {}", TextList(r.children), StatFields(r.stat))
            }
            Self::Multi(results) => write_list(f, results.iter()),
            Self::Sasl(r) => write!(f, "token={}", Redacted(r.token)),
            Self::GetAllChildrenNumber(r) => write!(f, "totalNumber={}", r.total_number),
            Self::Error(r) => Display::fmt(&r.err, f),
            Self::WhoAmI(r) => write_list(
                f,
                r.client_info
                    .iter()
                    .map(|info| RedactedId(Id { scheme: info.auth_scheme, id: info.user })),
            ),
            Self::Other(body) => write!(f, "body={}", Opaque(body)),
        }
    }
}

impl Display for MultiResult<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Create(r) => write!(f, "create {}", Reply::Path(r)),
            Self::Delete => f.write_str("delete"),
            Self::SetData(r) => write!(f, "setData {}", Reply::Stat(r)),
            Self::Check => f.write_str("check"),
            Self::Create2(r) => write!(f, "create2 {}", Reply::Create2(r)),
            Self::GetData(r) => write!(f, "getData {}", Reply::GetData(r)),
            Self::GetChildren(r) => write!(f, "getChildren {}", Reply::GetChildren(r)),
            Self::Error(err) => Display::fmt(&err, f),
        }
    }
}

/// Writes items as `[one; another]`.
fn write_list<T: Display>(f: &mut Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    f.write_str("[")?;
    for (index, item) in items.enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { "; " })?;
    }
    f.write_str("]")
}
