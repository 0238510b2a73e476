//! `Display` for messages and frames: one line of text each.
//!
//! Names are ZooKeeper's. The line never contains passwords, credentials, SASL tokens, the hashes of ACL ids or
//! the data of nodes; data is replaced by its size. Control characters are escaped, so a path sent by a peer
//! cannot break the line or move the cursor.

use core::fmt::{self, Display, Formatter};

use crate::{
    Acl, ErrorCode, Id, List, Stat, Text,
    connect::{ConnectRequest, ConnectResponse, HandshakeReply},
    dissect::{Frame, Message, Opaque, ReplyBody},
    fields::{Field, Secret, Value},
    jute::Decode,
    multi::{MultiOp, MultiResult},
    reply::Reply,
    request::Request,
};

/// Shows the size instead of the bytes.
impl Display for Secret<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&Size(self.0), f)
    }
}

impl fmt::Debug for Secret<'_> {
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
        write!(f, "sessionId={:#x} passwd={}", self.session_id, Secret(self.passwd))?;
        self.read_only.map_or(Ok(()), |read_only| write!(f, " readOnly={read_only}"))
    }
}

impl Display for ConnectResponse<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "timeOut={} sessionId={:#x} ", self.time_out, self.session_id)?;
        write!(f, "passwd={}", Secret(self.passwd))?;
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
            Self::Multi(ops) | Self::MultiRead(ops) => {
                f.write_str(" ")?;
                write_list(f, ops.iter())
            }
            Self::Other(_, body) => write!(f, " body={}", Opaque(body)),
            _ => write_fields(f, " ", &self.fields()),
        }
    }
}

impl Display for MultiOp<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.request(), f)
    }
}

/// The fields of the record; empty for an empty record.
impl Display for Reply<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Multi(results) => write_list(f, results.iter()),
            Self::Other(body) => write!(f, "body={}", Opaque(body)),
            _ => write_fields(f, "", &self.fields()),
        }
    }
}

impl Display for MultiResult<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.reply() {
            Ok((op, reply)) => {
                Display::fmt(&op, f)?;
                write_fields(f, " ", &reply.fields())
            }
            Err(err) => Display::fmt(&err, f),
        }
    }
}

/// Writes fields as `name=value`, each behind a space, the first one behind `front`. Paths, Stats and ids have no name;
/// a watch is a word.
fn write_fields(f: &mut Formatter<'_>, front: &str, fields: &[Field<'_>]) -> fmt::Result {
    let mut front = front;
    for (name, value) in fields {
        let is_shown = match value {
            Value::Bool(is_set) => *is_set,
            // Of an auth: without a meaning.
            Value::Int(_) => *name != "type",
            _ => true,
        };
        if !is_shown {
            continue;
        }
        f.write_str(core::mem::replace(&mut front, " "))?;
        let has_name = match value {
            Value::Text(_) => *name != "path",
            Value::Named(..) => *name != "err",
            Value::Bool(_) | Value::Stat(_) | Value::ClientInfos(_) => false,
            _ => true,
        };
        if has_name {
            write!(f, "{}=", name.strip_suffix("Watches").unwrap_or(name))?;
        }
        match *value {
            Value::Bool(_) => f.write_str(name)?,
            Value::Int(zxid) if *name == "relativeZxid" => Display::fmt(&Zxid(zxid), f)?,
            Value::Int(number) => Display::fmt(&number, f)?,
            Value::Named(_, Some(text)) => f.write_str(text)?,
            Value::Named(number, None) => write!(f, "unknown({number})")?,
            Value::Text(text) => Display::fmt(&Escaped(text), f)?,
            Value::Data(data) => Display::fmt(&Size(data), f)?,
            Value::Secret(secret) => Display::fmt(&secret, f)?,
            Value::Texts(texts) => write_first(f, texts, |f, text| Escaped(text).fmt(f))?,
            Value::Id(id) => Display::fmt(&RedactedId(id), f)?,
            Value::Acl(acl) => write_first(f, acl, |f, Acl { perms, id }| {
                write!(f, "{} {}", perms.number(), RedactedId(id))
            })?,
            Value::Stat(stat) => Display::fmt(&StatFields(stat), f)?,
            Value::ClientInfos(infos) => write_list(
                f,
                infos.iter().map(|info| RedactedId(Id { scheme: info.auth_scheme, id: info.user })),
            )?,
        }
    }
    Ok(())
}

/// Writes a vector of texts or of an ACL: `[a b c]` or `[a b c and 2 more]`.
fn write_first<'a, T: Decode<'a> + Copy>(
    f: &mut Formatter<'_>,
    list: List<'a, T>,
    write: impl Fn(&mut Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    if list.is_null() {
        return f.write_str("null");
    }
    f.write_str("[")?;
    for (index, item) in list.iter().take(MAX_LISTED).enumerate() {
        f.write_str(if index == 0 { "" } else { " " })?;
        write(f, item)?;
    }
    match list.len().checked_sub(MAX_LISTED + 1) {
        Some(more) => write!(f, " and {} more]", more + 1),
        None => f.write_str("]"),
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
