//! Properties that hold for any value and any bytes.
//!
//! Each record round-trips: encoded and decoded, it is the same value. Truncated and mutated bytes are an error
//! or another value, and never a panic.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::{collections::BTreeSet, mem};

use arbitrary::Unstructured;
use bytes::BytesMut;
use docent_protocol::{
    Acl, CreateMode, Decode, DecodeError, Encode, ErrorCode, Id, OpCode, Perms, Stat, Text, Ttl,
    WatcherEvent,
    arbitrary::{ClientStream, Conversation, Generator, ServerStream},
    connect::{ConnectRequest, ConnectResponse, HandshakeReply},
    dissect::{Direction, Dissector, Message},
    frame,
    jute::{List, Reader},
    multi::{MultiHeader, MultiOp, MultiReply, MultiRequest, MultiResult},
    operation::{self, Operation},
    raw,
    reply::{
        ClientInfo, Create2Reply, EmptyReply, ErrorReply, GetAclReply, GetAllChildrenNumberReply,
        GetChildren2Reply, GetChildrenReply, GetDataReply, PathReply, Reply, ReplyHeader,
        SaslReply, StatReply, WhoAmIReply,
    },
    request::{
        AddWatchRequest, AuthRequest, CheckVersionRequest, CreateRequest, CreateTtlRequest,
        DeleteRequest, EmptyRequest, PathRequest, ReadRequest, ReconfigRequest, Request,
        RequestHeader, SaslRequest, SetAclRequest, SetDataRequest, SetWatches2Request,
        SetWatchesRequest, WatchesRequest,
    },
};
use proptest::{collection::vec, option, prelude::*};

type Bytes = Option<Vec<u8>>;

/// Null, empty, UTF-8 and other bytes.
fn text() -> impl Strategy<Value = Bytes> {
    option::weighted(
        0.9,
        prop_oneof![any::<String>().prop_map(String::into_bytes), vec(any::<u8>(), 0..20),],
    )
}

fn data() -> impl Strategy<Value = Bytes> {
    option::weighted(0.9, vec(any::<u8>(), 0..200))
}

fn texts() -> impl Strategy<Value = Vec<Bytes>> {
    vec(text(), 0..6)
}

fn as_text(bytes: &Bytes) -> Text<'_> {
    Text::from_bytes(bytes.as_deref())
}

fn as_texts(texts: &[Bytes]) -> Vec<Text<'_>> {
    texts.iter().map(as_text).collect()
}

fn acls() -> impl Strategy<Value = Vec<(i32, Bytes, Bytes)>> {
    vec((any::<i32>(), text(), text()), 0..4)
}

fn as_acls(acls: &[(i32, Bytes, Bytes)]) -> Vec<Acl<'_>> {
    acls.iter()
        .map(|(perms, scheme, id)| Acl {
            perms: Perms::from_number(*perms),
            id: Id { scheme: as_text(scheme), id: as_text(id) },
        })
        .collect()
}

fn stat() -> impl Strategy<Value = Stat> {
    (any::<[i64; 6]>(), any::<[i32; 5]>()).prop_map(|(long, int)| Stat {
        czxid: long[0],
        mzxid: long[1],
        ctime: long[2],
        mtime: long[3],
        version: int[0],
        cversion: int[1],
        aversion: int[2],
        ephemeral_owner: long[4],
        data_length: int[3],
        num_children: int[4],
        pzxid: long[5],
    })
}

/// The bytes of a listing: runs of texts with equal lengths, nulls and texts of other lengths between them. The
/// count or a length may be wrong, and the end may be missing.
fn listing() -> impl Strategy<Value = Vec<u8>> {
    let run = (0..40_usize, 0..70_usize, any::<u8>())
        .prop_map(|(len, count, byte)| vec![Some(vec![byte; len]); count]);
    let runs = vec(prop_oneof![3 => run, 1 => texts()], 0..5);
    let length = (any::<prop::sample::Index>(), prop_oneof![-3..3_i32, 0..200_i32, any::<i32>()]);
    let count = option::weighted(0.2, -3..400_i32);
    let wrong_length = option::weighted(0.4, length);
    (runs, count, wrong_length, option::weighted(0.2, any::<prop::sample::Index>())).prop_map(
        |(runs, count, wrong_length, cut)| {
            let texts = runs.concat();
            let mut out = Vec::new();
            List::new(&as_texts(&texts)).encode(&mut out);
            if let Some(count) = count {
                out[..4].copy_from_slice(&count.to_be_bytes());
            }
            if let Some((index, number)) = wrong_length {
                let offsets = texts.iter().scan(4, |next, text| {
                    Some(mem::replace(next, *next + 4 + text.as_ref().map_or(0, Vec::len)))
                });
                if let Some(offset) = offsets.clone().nth(index.index(texts.len().max(1))) {
                    out[offset..offset + 4].copy_from_slice(&number.to_be_bytes());
                }
            }
            if let Some(cut) = cut {
                out.truncate(cut.index(out.len() + 1));
            }
            out
        },
    )
}

/// Decodes a list of texts one by one.
fn decode_one_by_one<'a>(reader: &mut Reader<'a>) -> Result<Vec<Text<'a>>, DecodeError> {
    let count = reader.int("children")?;
    (0..count).map(|_| Text::decode(reader)).collect()
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// Asserts that a value round-trips, that `Vec` and `BytesMut` get the same bytes, and that every prefix of the
/// bytes is an error.
fn round_trip<T: Encode + PartialEq + std::fmt::Debug>(
    value: &T,
    decode: impl for<'a> Fn(&mut Reader<'a>) -> Result<bool, DecodeError>,
) {
    let out = encoded(value);
    let mut other = BytesMut::new();
    value.encode(&mut other);
    assert_eq!(out, other);
    let mut reader = Reader::new(&out);
    assert_eq!(decode(&mut reader), Ok(true), "{value:?}");
    assert!(reader.is_empty());
    assert_eq!(reader.offset(), out.len());
    for cut in 0..out.len() {
        let error = decode(&mut Reader::new(&out[..cut])).unwrap_err();
        assert!(error.offset() <= cut && !error.field().is_empty(), "{error}");
    }
}

/// [`round_trip`] for types that implement `Decode`.
macro_rules! round_trip {
    ($value:expr) => {{
        let value = $value;
        round_trip(&value, |reader| Decode::decode(reader).map(|it| is_same(&value, &it)));
    }};
}

/// Compares values of the same type, so that the compiler infers the type to decode.
fn is_same<T: PartialEq>(one: &T, other: &T) -> bool {
    one == other
}

/// [`round_trip`] for requests, with and without a header and frame.
fn round_trip_request(request: Request<'_>) {
    let op = request.op_code();
    round_trip(&request, |reader| Ok(Request::decode(op, reader)? == request));
    let mut out = Vec::new();
    raw::put_request(&mut out, usize::MAX, 7, &request).unwrap();
    let (payload, rest) = frame::split(&out, usize::MAX).unwrap().unwrap();
    assert!(rest.is_empty());
    let mut reader = Reader::new(payload);
    assert_eq!(RequestHeader::decode(&mut reader), Ok(RequestHeader { xid: 7, op }));
    assert_eq!(Request::decode(op, &mut reader), Ok(request));
}

/// [`round_trip_request`] for requests about one path, which they name.
fn round_trip_path(path: Text<'_>, request: Request<'_>) {
    assert_eq!(request.path(), Some(path), "{request:?}");
    round_trip_request(request);
}

fn round_trip_reply(op: OpCode, reply: Reply<'_>) {
    round_trip(&reply, |reader| Ok(Reply::decode(op, reader)? == reply));
}

/// What was seen in a session: connections that resumed one, that found it expired, and events behind a resume.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    resumed: u32,
    expired: u32,
    events_after_resume: u32,
}

/// Checks the connections of a session.
fn check_session(connections: &[Conversation]) -> Seen {
    let (mut seen, mut session, mut zxid) = (Seen::default(), (0, vec![0; 16]), 0);
    for connection in connections {
        let (mut dissector, mut is_resumed) = (Dissector::new(), false);
        let (mut watched, mut persistent) = (BTreeSet::new(), BTreeSet::new());
        let mut asked = Vec::new();
        for (direction, bytes) in &connection.0 {
            let frame = dissector.feed(*direction, &mut &bytes[..]).unwrap();
            match &frame.message {
                Message::ConnectRequest(request) => {
                    is_resumed = request.session_id != 0;
                    assert_eq!(request.last_zxid_seen, zxid);
                    assert_eq!((request.session_id, request.passwd.unwrap().to_vec()), session);
                }
                Message::ConnectReply(HandshakeReply::Response(reply)) => {
                    let is_expired = reply.session_id == 0;
                    seen.resumed += u32::from(is_resumed && !is_expired);
                    seen.expired += u32::from(is_expired);
                    assert!(is_expired || !is_resumed || reply.session_id == session.0);
                    session = (reply.session_id, reply.passwd.unwrap().to_vec());
                }
                Message::Request { request, .. } => {
                    // A read watches from its reply on: an event before it is that of an earlier watch of the same path.
                    asked = watches_of(request);
                    watched.extend(watches_set_again(request));
                    persistent.extend(persistent_watches_of(request));
                }
                Message::Event { event, .. } => {
                    let (path, event_type) = (event.path.bytes().unwrap(), event.event_type);
                    let is_watched = persistent.contains(path) || watched.remove(path);
                    assert!(is_watched, "{event_type} of {path:?}, not of {watched:?}");
                    seen.events_after_resume += u32::from(is_resumed);
                }
                Message::Reply { header, op, .. } => {
                    assert!(header.zxid >= zxid, "{} after {zxid}", header.zxid);
                    zxid = header.zxid;
                    watched.extend(mem::take(&mut asked));
                    // A server that refuses them has none of them.
                    if matches!(op, Some(OpCode::SetWatches | OpCode::SetWatches2))
                        && !header.err.is_ok()
                    {
                        (watched, persistent) = (BTreeSet::new(), BTreeSet::new());
                    }
                    if *op == Some(OpCode::CloseSession) && header.err.is_ok() {
                        (session, zxid) = ((0, vec![0; 16]), 0);
                    }
                }
                _ => {}
            }
        }
    }
    seen
}

fn paths(texts: &[Text<'_>]) -> Vec<Vec<u8>> {
    texts.iter().filter_map(|it| Some(it.bytes()?.to_vec())).collect()
}

fn paths_of_lists(lists: &[List<'_, Text<'_>>]) -> Vec<Vec<u8>> {
    paths(&lists.iter().flat_map(|list| list.iter()).collect::<Vec<_>>())
}

/// The paths that a read watches for one event.
fn watches_of(request: &Request<'_>) -> Vec<Vec<u8>> {
    match request {
        Request::Exists(read)
        | Request::GetData(read)
        | Request::GetChildren(read)
        | Request::GetChildren2(read)
            if read.watch =>
        {
            paths(&[read.path])
        }
        _ => Vec::new(),
    }
}

/// The paths of the watches that a request sets again, whose events come before its reply.
fn watches_set_again(request: &Request<'_>) -> Vec<Vec<u8>> {
    match request {
        Request::SetWatches(set) => {
            paths_of_lists(&[set.data_watches, set.exist_watches, set.child_watches])
        }
        Request::SetWatches2(set) => {
            paths_of_lists(&[set.data_watches, set.exist_watches, set.child_watches])
        }
        _ => Vec::new(),
    }
}

/// The paths that a request watches from then on.
fn persistent_watches_of(request: &Request<'_>) -> Vec<Vec<u8>> {
    match request {
        Request::AddWatch(add) => paths(&[add.path]),
        Request::SetWatches2(set) => {
            paths_of_lists(&[set.persistent_watches, set.persistent_recursive_watches])
        }
        _ => Vec::new(),
    }
}

// Case (Found in docent itself): generated connections had events of nodes that nobody watched, and resumed no session.
#[test]
fn generated_sessions_resume_expire_and_fire() {
    let mut seen = Seen::default();
    for number in 0..300_u32 {
        let seed: Vec<u8> = (0..4000_u32)
            .map(|at| (at ^ number).wrapping_mul(0x9E37_79B9).rotate_left(at % 31).to_be_bytes()[1])
            .collect();
        let session = Generator::default().session(&mut Unstructured::new(&seed)).unwrap();
        let of_this = check_session(&session);
        seen.resumed += of_this.resumed;
        seen.expired += of_this.expired;
        seen.events_after_resume += of_this.events_after_resume;
    }
    assert!(seen.resumed > 30 && seen.expired > 3 && seen.events_after_resume > 30, "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn creates(path in text(), data in data(), acl in acls(), flags: i32, ttl: i64) {
        let acl = as_acls(&acl);
        let (path, data, acl) = (as_text(&path), data.as_deref(), List::new(&acl));
        let create = CreateRequest { path, data, acl, flags };
        round_trip_path(path, Request::Create(create));
        round_trip_path(path, Request::Create2(create));
        round_trip_path(path, Request::CreateContainer(create));
        round_trip_path(path, Request::CreateTtl(CreateTtlRequest { path, data, acl, flags, ttl }));
    }

    #[test]
    fn requests_about_a_path(path in text(), data in data(), number: i32, watch: bool) {
        let (path, data) = (as_text(&path), data.as_deref());
        let read = ReadRequest { path, watch };
        round_trip_path(path, Request::Delete(DeleteRequest { path, version: number }));
        round_trip_path(path, Request::Check(CheckVersionRequest { path, version: number }));
        round_trip_path(path, Request::SetData(SetDataRequest { path, data, version: number }));
        round_trip_path(path, Request::Exists(read));
        round_trip_path(path, Request::GetData(read));
        round_trip_path(path, Request::GetChildren(read));
        round_trip_path(path, Request::GetChildren2(read));
        round_trip_path(path, Request::GetAcl(PathRequest { path }));
        round_trip_path(path, Request::Sync(PathRequest { path }));
        round_trip_path(path, Request::DeleteContainer(PathRequest { path }));
        round_trip_path(path, Request::GetEphemerals(PathRequest { path }));
        round_trip_path(path, Request::GetAllChildrenNumber(PathRequest { path }));
        let watches = WatchesRequest { path, watcher_type: number.into() };
        round_trip_path(path, Request::CheckWatches(watches));
        round_trip_path(path, Request::RemoveWatches(watches));
        round_trip_path(path, Request::AddWatch(AddWatchRequest { path, mode: number.into() }));
    }

    #[test]
    fn other_requests(a in texts(), b in texts(), c in texts(), d in text(), e in data(), zxid: i64, acl in acls()) {
        let (data, exist, child) = (as_texts(&a), as_texts(&b), as_texts(&c));
        round_trip_request(Request::SetWatches(SetWatchesRequest {
            relative_zxid: zxid,
            data_watches: List::new(&data),
            exist_watches: List::new(&exist),
            child_watches: List::new(&child),
        }));
        round_trip_request(Request::SetWatches2(SetWatches2Request {
            relative_zxid: zxid,
            data_watches: List::new(&data),
            exist_watches: List::NULL,
            child_watches: List::new(&exist),
            persistent_watches: List::new(&child),
            persistent_recursive_watches: List::new(&data),
        }));
        let acl = as_acls(&acl);
        let text = as_text(&d);
        round_trip_request(Request::SetAcl(SetAclRequest { path: text, acl: List::new(&acl), version: 3 }));
        round_trip_request(Request::Auth(AuthRequest { auth_type: 0, scheme: text, auth: e.as_deref() }));
        round_trip_request(Request::Sasl(SaslRequest { token: e.as_deref() }));
        round_trip_request(Request::Reconfig(ReconfigRequest {
            joining_servers: text,
            leaving_servers: Text::NULL,
            new_members: text,
            cur_config_id: zxid,
        }));
        for empty in [Request::Ping, Request::WhoAmI, Request::CloseSession] {
            round_trip_request(empty);
        }
        round_trip!(EmptyRequest {});
    }

    #[test]
    fn replies(path in text(), data in data(), stat in stat(), names in texts(), acl in acls(), number: i32) {
        let (path, data, names, acl) = (as_text(&path), data.as_deref(), as_texts(&names), as_acls(&acl));
        let children = List::new(&names);
        round_trip_reply(OpCode::Create, Reply::Path(PathReply { path }));
        round_trip_reply(OpCode::Sync, Reply::Path(PathReply { path }));
        for op in [OpCode::Create2, OpCode::CreateContainer, OpCode::CreateTtl] {
            round_trip_reply(op, Reply::Create2(Create2Reply { path, stat }));
        }
        for op in [OpCode::Exists, OpCode::SetData, OpCode::SetAcl] {
            round_trip_reply(op, Reply::Stat(StatReply { stat }));
        }
        for op in [OpCode::GetData, OpCode::Reconfig] {
            round_trip_reply(op, Reply::GetData(GetDataReply { data, stat }));
        }
        round_trip_reply(OpCode::GetAcl, Reply::GetAcl(GetAclReply { acl: List::new(&acl), stat }));
        for op in [OpCode::GetChildren, OpCode::GetEphemerals] {
            round_trip_reply(op, Reply::GetChildren(GetChildrenReply { children }));
        }
        round_trip_reply(OpCode::GetChildren2, Reply::GetChildren2(GetChildren2Reply { children, stat }));
        round_trip_reply(OpCode::Sasl, Reply::Sasl(SaslReply { token: data }));
        round_trip_reply(
            OpCode::GetAllChildrenNumber,
            Reply::GetAllChildrenNumber(GetAllChildrenNumberReply { total_number: number }),
        );
        round_trip_reply(OpCode::AddWatch, Reply::Error(ErrorReply { err: number.into() }));
        let infos: Vec<_> = names.iter().map(|&user| ClientInfo { auth_scheme: path, user }).collect();
        round_trip_reply(OpCode::WhoAmI, Reply::WhoAmI(WhoAmIReply { client_info: List::new(&infos) }));
        round_trip!(EmptyReply {});
        round_trip!(ReplyHeader { xid: number, zxid: stat.czxid, err: number.into() });
        round_trip!(WatcherEvent { event_type: number.into(), state: number.into(), path });
    }

    #[test]
    fn handshakes(version: i32, zxid: i64, time_out: i32, id: i64, passwd in data(), read_only: Option<bool>) {
        let passwd = passwd.as_deref();
        let request = ConnectRequest {
            protocol_version: version, last_zxid_seen: zxid, time_out, session_id: id, passwd, read_only,
        };
        let out = encoded(&request);
        prop_assert_eq!(ConnectRequest::decode(&mut Reader::new(&out)), Ok(request));
        let response =
            ConnectResponse { protocol_version: version, time_out, session_id: id, passwd, read_only };
        prop_assert_eq!(response.is_refused(), time_out <= 0 || id == 0);
        let refused = ReplyHeader { xid: 0, zxid, err: time_out.into() };
        for reply in [HandshakeReply::Response(response), HandshakeReply::Refused(refused)] {
            let out = encoded(&reply);
            prop_assert_eq!(HandshakeReply::decode(&mut Reader::new(&out)), Ok(reply));
        }
    }

    #[test]
    fn multis(path in text(), data in data(), acl in acls(), stat in stat(), names in texts(), number: i32) {
        let (path, data, names, acl) = (as_text(&path), data.as_deref(), as_texts(&names), as_acls(&acl));
        let (acl, read) = (List::new(&acl), ReadRequest { path, watch: false });
        let create = CreateRequest { path, data, acl, flags: number };
        let ops = [
            MultiOp::Create(create),
            MultiOp::Delete(DeleteRequest { path, version: number }),
            MultiOp::SetData(SetDataRequest { path, data, version: number }),
            MultiOp::Check(CheckVersionRequest { path, version: number }),
            MultiOp::Create2(create),
            MultiOp::CreateContainer(create),
            MultiOp::CreateTtl(CreateTtlRequest { path, data, acl, flags: number, ttl: stat.czxid }),
            MultiOp::GetData(read),
            MultiOp::GetChildren(read),
        ];
        let results = [
            MultiResult::Create(PathReply { path }),
            MultiResult::Delete,
            MultiResult::SetData(StatReply { stat }),
            MultiResult::Check,
            MultiResult::Create2(Create2Reply { path, stat }),
            MultiResult::GetData(GetDataReply { data, stat }),
            MultiResult::GetChildren(GetChildrenReply { children: List::new(&names) }),
            MultiResult::Error(number.into()),
        ];
        for count in [0, 1, ops.len()] {
            for ops in ops.windows(count.max(1)).map(|window| &window[..count]) {
                round_trip_request(Request::Multi(MultiRequest::new(ops)));
                round_trip_request(Request::MultiRead(MultiRequest::new(ops)));
            }
        }
        for results in (0..=results.len()).map(|count| &results[..count]) {
            round_trip_reply(OpCode::Multi, Reply::Multi(MultiReply::new(results)));
            round_trip_reply(OpCode::MultiRead, Reply::Multi(MultiReply::new(results)));
        }
        for op in ops {
            let header = MultiHeader { op: op.op_code(), done: false, err: ErrorCode::SystemError };
            prop_assert_eq!(MultiHeader::decode(&mut Reader::new(&encoded(&op))), Ok(header));
        }
    }

    /// A call encodes a request that decodes exactly and harms no server.
    #[test]
    fn calls(path: String, data in data(), millis: i64, version: i32) {
        let ttl = Ttl::from_millis(millis.rem_euclid(1 << 40).max(1)).unwrap();
        let data = data.as_deref();
        let modes = [
            CreateMode::Persistent,
            CreateMode::Ephemeral,
            CreateMode::PersistentSequential,
            CreateMode::EphemeralSequential,
            CreateMode::Container,
            CreateMode::PersistentWithTtl(ttl),
            CreateMode::PersistentSequentialWithTtl(ttl),
        ];
        let acl = docent_protocol::acl::CREATOR_ALL_ACL;
        let mut writes = vec![
            operation::Write::delete(&path, version),
            operation::Write::set_data(&path, data, version),
            operation::Write::check(&path, version),
        ];
        for mode in modes {
            check_operation(&operation::Create::new(&path, data, acl, mode), &path);
            check_operation(&operation::Create2::new(&path, data, acl, mode), &path);
            writes.push(operation::Write::create(&path, data, acl, mode));
        }
        let multi: operation::Multi = writes.iter().collect();
        check_operation(&multi, "");
        check_operation(&operation::Multi::new(), "");
        check_operation(&operation::MultiRead(&[operation::Read::GetData(&path), operation::Read::GetChildren(&path)]), "");
        check_operation(&operation::GetData(ReadRequest { path: path[..].into(), watch: true }), &path);
        check_operation(&operation::Delete::from(DeleteRequest { path: path[..].into(), version }), &path);
        check_operation(&operation::Ping, "");
        check_operation(&operation::WhoAmI, "");
        check_operation(&operation::CloseSession, "");
    }

    /// The connections of a session are those of one that a client keeps: resumed by what the server gave, with events of
    /// what this connection watches and no other.
    #[test]
    fn generated_sessions_are_consistent(seed in vec(any::<u8>(), 0..4000)) {
        let connections = Generator::default().session(&mut Unstructured::new(&seed)).unwrap();
        check_session(&connections);
    }

    /// Any split of a stream results in the same frames.
    #[test]
    fn streams_may_be_split_anywhere(seed in vec(any::<u8>(), 0..2000), sizes in vec(1..50_usize, 1..20)) {
        let all = Generator::default().conversation(&mut Unstructured::new(&seed)).unwrap();
        let (mut whole, mut split) = (Dissector::new(), Dissector::new());
        let mut sizes = sizes.iter().cycle();
        for direction in [Direction::ToServer, Direction::ToClient] {
            let bytes = all.bytes(direction);
            let (mut expected, mut frames) = (Vec::new(), Vec::new());
            let mut input = &bytes[..];
            while let Some(frame) = whole.feed(direction, &mut input) {
                expected.push((frame.payload.to_vec(), frame.to_string()));
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (mut piece, tail) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                rest = tail;
                while let Some(frame) = split.feed(direction, &mut piece) {
                    frames.push((frame.payload.to_vec(), frame.to_string()));
                }
            }
            prop_assert_eq!(&expected, &frames);
            prop_assert_eq!(split.buffered(direction), 0);
            prop_assert_eq!(expected.len(), all.0.iter().filter(|(it, _)| *it == direction).count());
        }
    }

    /// Truncated, with flipped bits, with another number: an error or another value, never a panic.
    #[test]
    fn mutated_frames_never_panic(seed in vec(any::<u8>(), 0..500), index: prop::sample::Index, number: i32, flip: u8) {
        let Conversation(frames) = arbitrary::Arbitrary::arbitrary(&mut Unstructured::new(&seed)).unwrap();
        let mut dissector = Dissector::new();
        for (direction, bytes) in frames {
            let payload = &bytes[4..];
            let op = dissector.dissect(direction, payload).op();
            let at = index.index(payload.len());
            decode_every_way(direction, op, &payload[..at]);
            let mut mutated = payload.to_vec();
            mutated[at] ^= flip;
            decode_every_way(direction, op, &mutated);
            let mut mutated = payload.to_vec();
            if let Some(place) = mutated.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                *place = number.to_be_bytes();
                decode_every_way(direction, op, &mutated);
            }
        }
    }

    /// The streams of the feature `arbitrary` begin with a handshake and have no harmful request.
    #[test]
    fn generated_streams_are_valid_and_harmless(seed in vec(any::<u8>(), 0..1000)) {
        let ClientStream(bytes) = arbitrary::Arbitrary::arbitrary(&mut Unstructured::new(&seed)).unwrap();
        let (mut dissector, mut input, mut count) = (Dissector::new(), &bytes[..], 0);
        while let Some(frame) = dissector.feed(Direction::ToServer, &mut input) {
            prop_assert!(frame.is_exact(), "{}", frame);
            match frame.message {
                Message::ConnectRequest(_) => prop_assert_eq!(count, 0),
                Message::Request { request, .. } => prop_assert!(!raw::is_harmful(&request)),
                _ => prop_assert!(false, "{}", frame),
            }
            count += 1;
        }
        prop_assert_eq!(dissector.buffered(Direction::ToServer), 0);
        let ServerStream(bytes) = arbitrary::Arbitrary::arbitrary(&mut Unstructured::new(&seed)).unwrap();
        let (mut input, mut count) = (&bytes[..], 0);
        while let Some(frame) = dissector.feed(Direction::ToClient, &mut input) {
            prop_assert!(frame.is_exact(), "{}", frame);
            count += 1;
        }
        prop_assert!(count > 0 && dissector.buffered(Direction::ToClient) == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Skipping several texts of equal length at a time has the same result as decoding one by one.
    #[test]
    fn lists_of_texts_decode_as_if_one_by_one(bytes in listing(), before in 0..3_usize) {
        let bytes = [vec![0; before], bytes].concat();
        let mut slow = Reader::new(&bytes);
        for _ in 0..before {
            slow.boolean("before").unwrap();
        }
        let mut fast = slow;
        let expected = decode_one_by_one(&mut slow);
        let list = fast.list::<Text<'_>>("children");
        prop_assert_eq!(list.map(|list| list.iter().collect::<Vec<_>>()), expected.clone());
        if let (Ok(list), Ok(expected)) = (list, expected) {
            prop_assert_eq!((fast.rest(), list.len()), (slow.rest(), expected.len()));
            let lengths: Vec<_> = expected.iter().map(|text| text.bytes().map(<[u8]>::len)).collect();
            let length = lengths.first().copied().flatten();
            let equal = length.filter(|_| lengths.iter().all(|it| *it == length));
            prop_assert_eq!(list.element_size(), equal.map(|length| 4 + length));
        }
    }
}

/// Decodes a payload as every kind of message that it may be.
fn decode_every_way(direction: Direction, op: Option<OpCode>, payload: &[u8]) {
    let _ = Dissector::new().dissect(direction, payload).to_string();
    let _ = Dissector::established().dissect(direction, payload).to_string();
    let _ = Reply::decode(op.unwrap_or(OpCode::Multi), &mut Reader::new(payload));
    let _ = Request::decode(op.unwrap_or(OpCode::Multi), &mut Reader::new(payload));
}

/// Encodes an operation, and decodes it as a server does.
fn check_operation(operation: &impl Operation, path: &str) {
    let mut out = Vec::new();
    frame::put_operation(&mut out, usize::MAX, 1, operation).unwrap();
    let mut dissector = Dissector::established();
    let mut input = &out[..];
    let frame = dissector.feed(Direction::ToServer, &mut input).unwrap();
    assert!(frame.is_exact(), "{frame}");
    assert_eq!(frame.op(), Some(operation.op_code()));
    let Message::Request { request, .. } = frame.message else { panic!("{frame}") };
    assert!(!raw::is_harmful(&request));
    assert_eq!(request.path().unwrap_or(Text::new("")), path);
}
