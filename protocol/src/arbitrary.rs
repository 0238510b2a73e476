//! Generates valid and nearly valid messages from a fuzzer's bytes, to fuzz *your* server or client.
//!
//! Random bytes seldom get past a header. A [`Generator`] turns the bytes of a fuzzer (through the crate
//! `arbitrary`) into frames that a peer decodes to the end. On request it mutates some of them: wrong lengths
//! and counts, flipped bits, missing ends. docs/FUZZING.md shows how to use it.
//!
//! It generates no request that harms a server ([`raw::is_harmful`]) unless configured to.
//!
//! # Example
//!
//! Generates a connection and dissects the client's side of it:
//!
//! ```
//! use arbitrary::Unstructured;
//! use docent_protocol::{dissect::{Direction, Dissector}, arbitrary::Generator};
//!
//! let fuzzer_bytes = [7; 200];
//! let conversation = Generator::default().conversation(&mut Unstructured::new(&fuzzer_bytes))?;
//! let sent = conversation.bytes(Direction::ToServer);
//! let (mut dissector, mut input) = (Dissector::new(), &sent[..]);
//! while let Some(frame) = dissector.feed(Direction::ToServer, &mut input) {
//!     assert!(frame.is_exact(), "{frame}");
//! }
//! # Ok::<(), arbitrary::Error>(())
//! ```

mod session;

use alloc::vec::Vec;

use ::arbitrary::{Arbitrary, Result, Unstructured};

use crate::{
    Acl, Encode, ErrorCode, EventType, Id, KeeperState, List, OpCode, Perms, Stat, Text,
    WatcherEvent,
    connect::{ConnectRequest, ConnectResponse},
    dissect::Direction,
    jute::{Decode as _, Reader},
    multi::{MultiOp, MultiReply, MultiRequest, MultiResult},
    raw,
    reply::{
        ClientInfo, Create2Reply, ErrorReply, GetAclReply, GetAllChildrenNumberReply,
        GetChildren2Reply, GetChildrenReply, GetDataReply, PathReply, ReplyHeader, SaslReply,
        StatReply, WhoAmIReply,
    },
    request::{
        AddWatchRequest, AuthRequest, CheckVersionRequest, CreateRequest, CreateTtlRequest,
        DeleteRequest, PathRequest, ReadRequest, ReconfigRequest, Request, RequestHeader,
        SaslRequest, SetAclRequest, SetDataRequest, SetWatches2Request, SetWatchesRequest,
        WatchesRequest,
    },
    xid,
};

/// Generates frames and connections. By default all of them are valid and harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generator {
    /// Whether some frames are mutated. Each frame alone is still harmless, but a wrong length shifts the
    /// frames after it, and then any request may result. **Never use it on a server that somebody needs.**
    pub mutate: bool,
    /// Whether requests that [harm a server](raw::is_harmful) are generated. **Never use it on a server that
    /// somebody needs.**
    pub harmful: bool,
}

/// The client's side of a connection, as a byte stream: a handshake and requests, valid and harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStream(pub Vec<u8>);

/// The server's side of a connection, as a byte stream: a handshake, replies to requests with xids from 1 on,
/// and events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStream(pub Vec<u8>);

/// Both directions of a connection, frame by frame, each reply after its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation(pub Vec<(Direction, Vec<u8>)>);

impl<'a> Arbitrary<'a> for ClientStream {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Generator::default().conversation(u).map(|all| Self(all.bytes(Direction::ToServer)))
    }
}

impl<'a> Arbitrary<'a> for ServerStream {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Generator::default().conversation(u).map(|all| Self(all.bytes(Direction::ToClient)))
    }
}

impl<'a> Arbitrary<'a> for Conversation {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Generator::default().conversation(u)
    }
}

impl Conversation {
    /// The bytes of one direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> Vec<u8> {
        let frames = self.0.iter().filter(|(which, _)| *which == direction);
        frames.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }
}

/// The operations a client may send.
const OPERATIONS: &[OpCode] = &[
    OpCode::Create,
    OpCode::Delete,
    OpCode::Exists,
    OpCode::GetData,
    OpCode::SetData,
    OpCode::GetAcl,
    OpCode::SetAcl,
    OpCode::GetChildren,
    OpCode::Sync,
    OpCode::Ping,
    OpCode::GetChildren2,
    OpCode::Multi,
    OpCode::Create2,
    OpCode::Reconfig,
    OpCode::CheckWatches,
    OpCode::RemoveWatches,
    OpCode::CreateContainer,
    OpCode::CreateTtl,
    OpCode::MultiRead,
    OpCode::Auth,
    OpCode::SetWatches,
    OpCode::Sasl,
    OpCode::GetEphemerals,
    OpCode::GetAllChildrenNumber,
    OpCode::SetWatches2,
    OpCode::AddWatch,
    OpCode::WhoAmI,
    OpCode::CloseSession,
];

/// Operations generated in addition if `harmful` is set.
const HARMFUL_OPERATIONS: &[OpCode] = &[OpCode::Check, OpCode::DeleteContainer, OpCode::CreateTtl];

/// Paths with a meaning to a server; some are parents of others. The last one is a Java server's encoding of
/// U+1F600, which is not UTF-8.
const PATHS: &[&[u8]] = &[
    b"/",
    b"/a",
    b"/a/b",
    b"/lock",
    b"/lock/_c_00000000-0000-0000-0000-000000000000-lock-",
    b"/lock/_c_00000000-0000-0000-0000-000000000000-lock-0000000001",
    b"/zookeeper/config",
    b"/zookeeper/quota",
    b"",
    b"a",
    b"/a//b",
    b"/x\xED\xA0\xBD\xED\xB8\x80",
];

/// Boundary values of lengths, counts and versions.
const BOUNDARY_VALUES: &[i32] = &[-1, 0, 1, -2, i32::MAX, i32::MIN, 16, 0xF_FFFF, 0x10_0000];

/// Maximum number of elements of a generated list.
const MAX_ELEMENTS: usize = 5;

impl Generator {
    /// Chooses an operation that a client may send.
    ///
    /// # Errors
    ///
    /// As [`conversation`](Self::conversation).
    pub fn operation(&self, u: &mut Unstructured<'_>) -> Result<OpCode> {
        if self.harmful && u.ratio(1, 8)? {
            return u.choose(HARMFUL_OPERATIONS).copied();
        }
        u.choose(OPERATIONS).copied()
    }

    /// Generates the frame of a client's handshake.
    ///
    /// # Errors
    ///
    /// As [`conversation`](Self::conversation).
    pub fn connect_request(&self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: if u.ratio(1, 8)? { u.arbitrary()? } else { 0 },
            time_out: u.arbitrary::<u16>()?.into(),
            session_id: if u.ratio(1, 4)? { u.arbitrary()? } else { 0 },
            passwd: Some(&[0; 16]),
            read_only: u.arbitrary()?,
        };
        self.frame(u, |payload| request.encode(payload))
    }

    /// Generates the frame of a server's handshake.
    ///
    /// # Errors
    ///
    /// As [`conversation`](Self::conversation).
    pub fn connect_response(&self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let response = ConnectResponse {
            protocol_version: 0,
            time_out: u.arbitrary::<u16>()?.into(),
            session_id: u.arbitrary()?,
            passwd: Some(&[7; 16]),
            read_only: u.arbitrary()?,
        };
        self.frame(u, |payload| response.encode(payload))
    }

    /// Generates the frame of a request.
    ///
    /// # Errors
    ///
    /// As [`conversation`](Self::conversation).
    pub fn request(&self, u: &mut Unstructured<'_>, xid: i32, op: OpCode) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        RequestHeader { xid, op }.encode(&mut payload);
        self.request_body(u, op, &mut payload)?;
        let valid = payload.clone();
        let frame = self.frame(u, |out| out.append(&mut payload))?;
        let is_harmful = frame.get(crate::frame::LENGTH_SIZE..).is_some_and(is_harmful);
        if !self.harmful && is_harmful {
            return Self::default().frame(u, |out| out.extend_from_slice(&valid));
        }
        Ok(frame)
    }

    /// Generates the frame of a reply to `op`: its record, or an error.
    ///
    /// # Errors
    ///
    /// As [`conversation`](Self::conversation).
    pub fn reply(&self, u: &mut Unstructured<'_>, xid: i32, op: OpCode) -> Result<Vec<u8>> {
        let zxid = u.arbitrary::<u32>()?.into();
        self.reply_at(u, xid, op, zxid)
    }

    fn reply_at(
        &self,
        u: &mut Unstructured<'_>,
        xid: i32,
        op: OpCode,
        zxid: i64,
    ) -> Result<Vec<u8>> {
        let err = if u.ratio(1, 4)? { *u.choose(ErrorCode::NAMED)? } else { ErrorCode::Ok };
        let mut payload = Vec::new();
        ReplyHeader { xid, zxid, err }.encode(&mut payload);
        if err == ErrorCode::Ok {
            reply_body(u, op, &mut payload)?;
        }
        self.frame(u, |out| out.append(&mut payload))
    }

    /// Generates the frame of a watch event.
    ///
    /// # Errors
    ///
    /// As [`conversation`](Self::conversation).
    pub fn event(&self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let zxid = if u.arbitrary()? { -1 } else { u.arbitrary::<u32>()?.into() };
        let event = WatcherEvent {
            event_type: *u.choose(EventType::NAMED)?,
            state: KeeperState::SyncConnected,
            path: path(u)?,
        };
        self.event_frame(u, zxid, &event)
    }

    fn event_frame(
        &self,
        u: &mut Unstructured<'_>,
        zxid: i64,
        event: &WatcherEvent<'_>,
    ) -> Result<Vec<u8>> {
        self.frame(u, |payload| {
            ReplyHeader { xid: xid::NOTIFICATION, zxid, err: ErrorCode::Ok }.encode(payload);
            event.encode(payload);
        })
    }

    fn create_ttl(&self, u: &mut Unstructured<'_>, out: &mut Vec<u8>) -> Result<()> {
        let acl = acls(u)?;
        let flags = flags(u)?;
        CreateTtlRequest {
            path: path(u)?,
            data: u.arbitrary()?,
            acl: List::new(&acl),
            flags,
            ttl: self.ttl(u, flags)?,
        }
        .encode(out);
        Ok(())
    }

    fn request_body(&self, u: &mut Unstructured<'_>, op: OpCode, out: &mut Vec<u8>) -> Result<()> {
        match op {
            OpCode::Create | OpCode::Create2 | OpCode::CreateContainer => create(u, out)?,
            OpCode::CreateTtl => self.create_ttl(u, out)?,
            OpCode::Delete => DeleteRequest { path: path(u)?, version: number(u)? }.encode(out),
            OpCode::Check => {
                CheckVersionRequest { path: path(u)?, version: number(u)? }.encode(out)
            }
            OpCode::Exists | OpCode::GetData | OpCode::GetChildren | OpCode::GetChildren2 => {
                ReadRequest { path: path(u)?, watch: u.arbitrary()? }.encode(out);
            }
            OpCode::SetData => {
                SetDataRequest { path: path(u)?, data: u.arbitrary()?, version: number(u)? }
                    .encode(out);
            }
            OpCode::SetAcl => {
                let acl = acls(u)?;
                SetAclRequest { path: path(u)?, acl: List::new(&acl), version: number(u)? }
                    .encode(out);
            }
            OpCode::Multi | OpCode::MultiRead => self.multi_request(u, op, out)?,
            OpCode::CheckWatches | OpCode::RemoveWatches => {
                let watcher_type = u.int_in_range(0..=6)?.into();
                WatchesRequest { path: path(u)?, watcher_type }.encode(out);
            }
            OpCode::AddWatch => {
                AddWatchRequest { path: path(u)?, mode: u.int_in_range(0..=2)?.into() }.encode(out);
            }
            _ => other_request(u, op, out)?,
        }
        Ok(())
    }

    fn multi_request(&self, u: &mut Unstructured<'_>, op: OpCode, out: &mut Vec<u8>) -> Result<()> {
        let acl = acls(u)?;
        let mut ops = Vec::new();
        for _ in 0..u.int_in_range(0..=MAX_ELEMENTS)? {
            let (path, data) = (path(u)?, u.arbitrary()?);
            let create = CreateRequest { path, data, acl: List::new(&acl), flags: flags(u)? };
            let read = ReadRequest { path, watch: false };
            ops.push(if op == OpCode::MultiRead {
                if u.arbitrary()? { MultiOp::GetData(read) } else { MultiOp::GetChildren(read) }
            } else {
                match u.int_in_range(0..=6)? {
                    0 => MultiOp::Create(create),
                    1 => MultiOp::Create2(create),
                    2 => MultiOp::CreateContainer(create),
                    3 => MultiOp::CreateTtl(CreateTtlRequest {
                        path,
                        data,
                        acl: List::new(&acl),
                        flags: create.flags,
                        ttl: self.ttl(u, create.flags)?,
                    }),
                    4 => MultiOp::Delete(DeleteRequest { path, version: number(u)? }),
                    5 => MultiOp::SetData(SetDataRequest { path, data, version: number(u)? }),
                    _ => MultiOp::Check(CheckVersionRequest { path, version: number(u)? }),
                }
            });
        }
        MultiRequest::new(&ops).encode(out);
        Ok(())
    }

    /// Generates a TTL: any number if `harmful` is set, else one that is harmless with these flags.
    fn ttl(&self, u: &mut Unstructured<'_>, flags: i32) -> Result<i64> {
        let ttl: i64 = if u.ratio(1, 4)? { u.arbitrary()? } else { 1000 };
        let may_be_negative = self.harmful || matches!(flags, 5 | 6);
        Ok(if may_be_negative { ttl } else { ttl.max(0) })
    }

    /// Puts the length in front of a payload. Mutates the frame now and then if `mutate` is set.
    fn frame(&self, u: &mut Unstructured<'_>, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        fill(&mut payload);
        let mut length_error = 0;
        if self.mutate && u.ratio(1, 4)? {
            for _ in 0..u.int_in_range(1..=3)? {
                length_error += mutate(u, &mut payload)?;
            }
        }
        let length = i32::try_from(payload.len()).unwrap_or(i32::MAX).wrapping_add(length_error);
        let mut frame = length.to_be_bytes().to_vec();
        frame.append(&mut payload);
        Ok(frame)
    }
}

/// Whether the payload is a request that harms a server.
fn is_harmful(payload: &[u8]) -> bool {
    let mut reader = Reader::new(payload);
    let Ok(header) = RequestHeader::decode(&mut reader) else { return false };
    match Request::decode(header.op, &mut reader) {
        Ok(request) => raw::is_harmful(&request),
        // A server may decode a body that this crate does not.
        Err(_) => HARMFUL_OPERATIONS.contains(&header.op),
    }
}

/// Mutates a payload in one place. Returns the error to add to the frame's length.
fn mutate(u: &mut Unstructured<'_>, payload: &mut Vec<u8>) -> Result<i32> {
    let at = u.choose_index(payload.len().max(1))?;
    match u.int_in_range(0..=4)? {
        0 => payload.truncate(at),
        1 => payload.extend_from_slice(u.bytes(at.min(u.len()))?),
        2 => {
            if let Some(byte) = payload.get_mut(at) {
                *byte ^= 1 << u.int_in_range(0..=7)?;
            }
        }
        3 => {
            let value = *u.choose(BOUNDARY_VALUES)?;
            if let Some(place) = payload.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                *place = value.to_be_bytes();
            }
        }
        _ => return u.int_in_range(-8..=8),
    }
    Ok(0)
}

fn path<'a>(u: &mut Unstructured<'a>) -> Result<Text<'a>> {
    Ok(match u.int_in_range(0..=9)? {
        0 => Text::NULL,
        1 => Text::from_bytes(Some(u.arbitrary()?)),
        2 => Text::new(u.arbitrary()?),
        _ => Text::from_bytes(Some(u.choose(PATHS)?)),
    })
}

fn paths<'a>(u: &mut Unstructured<'a>) -> Result<Vec<Text<'a>>> {
    (0..u.int_in_range(0..=MAX_ELEMENTS)?).map(|_| path(u)).collect()
}

fn number(u: &mut Unstructured<'_>) -> Result<i32> {
    if u.ratio(1, 4)? { u.arbitrary() } else { u.choose(BOUNDARY_VALUES).copied() }
}

fn acls<'a>(u: &mut Unstructured<'a>) -> Result<Vec<Acl<'a>>> {
    const IDS: &[(&str, &str)] = &[
        ("world", "anyone"),
        ("auth", ""),
        ("digest", "alice:uDUTzJg2RVfbWcLkx0ZpV3Ox3WI="),
        ("ip", "127.0.0.1"),
        ("sasl", "alice"),
        ("x509", "CN=alice"),
        ("nosuch", "x"),
    ];
    (0..u.int_in_range(0..=MAX_ELEMENTS)?)
        .map(|_| {
            let (scheme, id) = *u.choose(IDS)?;
            let perms = Perms::from_number(u.int_in_range(0..=32)?);
            Ok(Acl { perms, id: Id { scheme: scheme.into(), id: id.into() } })
        })
        .collect()
}

fn stat(u: &mut Unstructured<'_>) -> Result<Stat> {
    Ok(Stat {
        czxid: u.arbitrary::<u32>()?.into(),
        mzxid: u.arbitrary::<u32>()?.into(),
        version: u.arbitrary()?,
        ephemeral_owner: if u.ratio(1, 4)? { u.arbitrary()? } else { 0 },
        data_length: u.arbitrary::<u16>()?.into(),
        ..Stat::default()
    })
}

/// Appends the body of a create.
fn create(u: &mut Unstructured<'_>, out: &mut Vec<u8>) -> Result<()> {
    let acl = acls(u)?;
    CreateRequest { path: path(u)?, data: u.arbitrary()?, acl: List::new(&acl), flags: flags(u)? }
        .encode(out);
    Ok(())
}

/// Generates flags of a create, mostly those of a mode.
fn flags(u: &mut Unstructured<'_>) -> Result<i32> {
    if u.ratio(1, 8)? { number(u) } else { u.int_in_range(0..=6) }
}

/// A request of the connection, or one that is a path alone.
fn other_request(u: &mut Unstructured<'_>, op: OpCode, out: &mut Vec<u8>) -> Result<()> {
    match op {
        OpCode::Reconfig => ReconfigRequest {
            joining_servers: Text::NULL,
            leaving_servers: Text::from_bytes(u.arbitrary()?),
            new_members: Text::NULL,
            cur_config_id: -1,
        }
        .encode(out),
        OpCode::Auth => AuthRequest {
            auth_type: 0,
            scheme: (*u.choose(&["digest", "ip", "world", "nosuch"])?).into(),
            auth: u.arbitrary()?,
        }
        .encode(out),
        OpCode::SetWatches => {
            let (data, exist, child) = (paths(u)?, paths(u)?, paths(u)?);
            SetWatchesRequest {
                relative_zxid: u.arbitrary::<u32>()?.into(),
                data_watches: List::new(&data),
                exist_watches: List::new(&exist),
                child_watches: List::new(&child),
            }
            .encode(out);
        }
        OpCode::SetWatches2 => {
            let (data, exist, child) = (paths(u)?, paths(u)?, paths(u)?);
            let (persistent, recursive) = (paths(u)?, paths(u)?);
            SetWatches2Request {
                relative_zxid: u.arbitrary::<u32>()?.into(),
                data_watches: List::new(&data),
                exist_watches: List::new(&exist),
                child_watches: List::new(&child),
                persistent_watches: List::new(&persistent),
                persistent_recursive_watches: List::new(&recursive),
            }
            .encode(out);
        }
        OpCode::Sasl => SaslRequest { token: u.arbitrary()? }.encode(out),
        OpCode::Ping | OpCode::WhoAmI | OpCode::CloseSession => {}
        _ => PathRequest { path: path(u)? }.encode(out),
    }
    Ok(())
}

fn reply_body(u: &mut Unstructured<'_>, op: OpCode, out: &mut Vec<u8>) -> Result<()> {
    match op {
        OpCode::Create | OpCode::Sync => PathReply { path: path(u)? }.encode(out),
        OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            Create2Reply { path: path(u)?, stat: stat(u)? }.encode(out);
        }
        OpCode::Exists | OpCode::SetData | OpCode::SetAcl => {
            StatReply { stat: stat(u)? }.encode(out);
        }
        OpCode::GetData | OpCode::Reconfig => {
            GetDataReply { data: u.arbitrary()?, stat: stat(u)? }.encode(out);
        }
        OpCode::GetAcl => {
            let acl = acls(u)?;
            GetAclReply { acl: List::new(&acl), stat: stat(u)? }.encode(out);
        }
        OpCode::GetChildren | OpCode::GetEphemerals => {
            GetChildrenReply { children: List::new(&paths(u)?) }.encode(out);
        }
        OpCode::GetChildren2 => {
            let children = paths(u)?;
            GetChildren2Reply { children: List::new(&children), stat: stat(u)? }.encode(out);
        }
        OpCode::Multi | OpCode::MultiRead => multi_reply(u, out)?,
        OpCode::Sasl => SaslReply { token: u.arbitrary()? }.encode(out),
        OpCode::GetAllChildrenNumber => {
            GetAllChildrenNumberReply { total_number: u.arbitrary()? }.encode(out);
        }
        OpCode::AddWatch => ErrorReply { err: ErrorCode::Ok }.encode(out),
        OpCode::WhoAmI => {
            let me = [ClientInfo { auth_scheme: "ip".into(), user: path(u)? }];
            WhoAmIReply { client_info: List::new(&me) }.encode(out);
        }
        _ => {}
    }
    Ok(())
}

fn multi_reply(u: &mut Unstructured<'_>, out: &mut Vec<u8>) -> Result<()> {
    let children = paths(u)?;
    let mut results = Vec::new();
    for _ in 0..u.int_in_range(0..=MAX_ELEMENTS)? {
        let (path, stat) = (path(u)?, stat(u)?);
        results.push(match u.int_in_range(0..=7)? {
            0 => MultiResult::Create(PathReply { path }),
            1 => MultiResult::Create2(Create2Reply { path, stat }),
            2 => MultiResult::Delete,
            3 => MultiResult::SetData(StatReply { stat }),
            4 => MultiResult::Check,
            5 => MultiResult::GetData(GetDataReply { data: path.bytes(), stat }),
            6 => MultiResult::GetChildren(GetChildrenReply { children: List::new(&children) }),
            _ => MultiResult::Error(*u.choose(ErrorCode::NAMED)?),
        });
    }
    MultiReply::new(&results).encode(out);
    Ok(())
}
