//! Compares the line (`Display`) and the JSON (`Serialize`) of every message, and the form of secrets
//! in `Debug`, with `data/messages.txt`. `DOCENT_BLESS=1` writes that file.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::fmt::Write as _;

use docent_protocol::{
    Acl, Encode, ErrorCode, EventType, KeeperState, OpCode, Perms, Stat, Text, WatcherEvent,
    acl::OPEN_ACL_UNSAFE,
    connect::{ConnectRequest, ConnectResponse},
    dissect::{Direction, Dissector, Frame},
    jute::List,
    multi::{MultiOp, MultiReply, MultiRequest, MultiResult},
    reply::{
        ClientInfo, Create2Reply, ErrorReply, GetAclReply, GetAllChildrenNumberReply,
        GetChildren2Reply, GetChildrenReply, GetDataReply, PathReply, Reply, ReplyHeader,
        SaslReply, StatReply, WhoAmIReply,
    },
    request::{
        AddWatchRequest, AuthRequest, CheckVersionRequest, CreateRequest, CreateTtlRequest,
        DeleteRequest, PathRequest, ReadRequest, ReconfigRequest, Request, RequestHeader,
        SaslRequest, SetAclRequest, SetDataRequest, SetWatches2Request, SetWatchesRequest,
        WatchesRequest,
    },
};

use Direction::{ToClient, ToServer};

const STAT: Stat = Stat {
    czxid: 0x264,
    mzxid: 0x278,
    ctime: 1,
    mtime: 2,
    version: 1,
    cversion: 3,
    aversion: 4,
    ephemeral_owner: 0,
    data_length: 5,
    num_children: 6,
    pzxid: 0x265,
};

/// The text of the messages shown so far.
#[derive(Default)]
struct Listing(String);

impl Listing {
    fn frame(&mut self, frame: &Frame<'_>) {
        let json = serde_json::to_string(frame).unwrap();
        let _ = writeln!(self.0, "{frame}\n    {json}");
    }

    fn request(&mut self, request: Request<'_>) {
        let mut payload = Vec::new();
        RequestHeader { xid: 1, op: request.op_code() }.encode(&mut payload);
        request.encode(&mut payload);
        self.frame(&Dissector::established().dissect(ToServer, &payload));
    }

    /// A reply to a request of this operation.
    fn reply(&mut self, op: OpCode, reply: Reply<'_>) {
        let mut request = Vec::new();
        RequestHeader { xid: 1, op }.encode(&mut request);
        let mut dissector = Dissector::established();
        dissector.dissect(ToServer, &request);
        self.frame(&dissector.dissect(ToClient, &answer(1, 0x12, ErrorCode::Ok, &reply)));
    }

    fn section(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n# {name}");
    }
}

fn answer(xid: i32, zxid: i64, err: ErrorCode, body: &impl Encode) -> Vec<u8> {
    let mut payload = Vec::new();
    ReplyHeader { xid, zxid, err }.encode(&mut payload);
    body.encode(&mut payload);
    payload
}

#[test]
fn every_message_has_its_line_and_its_json() {
    let mut listing = Listing::default();
    requests(&mut listing);
    replies(&mut listing);
    other_messages(&mut listing);
    debug_of_secrets(&mut listing);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/messages.txt");
    if std::env::var_os("DOCENT_BLESS").is_some() {
        std::fs::write(path, &listing.0).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    for (kept, made) in kept.lines().zip(listing.0.lines()) {
        assert_eq!(made, kept, "data/messages.txt");
    }
    assert_eq!(listing.0.lines().count(), kept.lines().count(), "data/messages.txt");
}

fn requests(listing: &mut Listing) {
    listing.section("Requests that create");
    let acl = [
        Acl::new(Perms::READ, "digest", "alice:hash"),
        Acl::new(Perms::ALL, "ip", "::1"),
        Acl::new(Perms::NONE, "auth", ""),
    ];
    let acl = List::new(&acl);
    let create = CreateRequest { path: "/a b".into(), data: Some(b"hi"), acl, flags: 3 };
    let ttl =
        CreateTtlRequest { path: Text::NULL, data: None, acl: List::NULL, flags: 5, ttl: 1000 };
    listing.request(Request::Create2(create));
    listing.request(Request::CreateTtl(ttl));

    listing.section("Requests about a path");
    let path = Text::new("/a");
    let acl = OPEN_ACL_UNSAFE.into();
    let ten = [Acl::new(Perms::ALL, "ip", "::1"); 10];
    for request in [
        Request::Delete(DeleteRequest { path, version: -1 }),
        Request::Check(CheckVersionRequest { path, version: -1 }),
        Request::GetData(ReadRequest { path, watch: true }),
        Request::Exists(ReadRequest { path, watch: false }),
        Request::SetData(SetDataRequest { path, data: Some(&[]), version: 2 }),
        Request::Sync(PathRequest { path }),
        Request::GetAcl(PathRequest { path }),
        Request::DeleteContainer(PathRequest { path }),
        Request::SetAcl(SetAclRequest { path, acl, version: 7 }),
        // The line shows the first eight.
        Request::SetAcl(SetAclRequest { path, acl: List::new(&ten), version: -1 }),
        Request::CheckWatches(WatchesRequest { path, watcher_type: 3.into() }),
        Request::RemoveWatches(WatchesRequest { path, watcher_type: 9.into() }),
        Request::AddWatch(AddWatchRequest { path, mode: 1.into() }),
    ] {
        listing.request(request);
    }

    listing.section("Requests of a session");
    let names = [path, Text::new("/b\n\u{1b}[31m\u{202e}\"'\\")];
    let (some, none) = (List::new(&names[..1]), List::new(&[]));
    for request in [
        Request::Ping,
        Request::WhoAmI,
        Request::CloseSession,
        Request::Auth(AuthRequest { auth_type: 0, scheme: "digest".into(), auth: Some(b"a:b") }),
        Request::Sasl(SaslRequest { token: None }),
        Request::Reconfig(ReconfigRequest {
            joining_servers: "server.1=h:1:2".into(),
            leaving_servers: Text::NULL,
            new_members: "".into(),
            cur_config_id: -1,
        }),
        Request::SetWatches(SetWatchesRequest {
            relative_zxid: 18,
            data_watches: some,
            exist_watches: List::new(&names),
            child_watches: List::NULL,
        }),
        Request::SetWatches2(SetWatches2Request {
            relative_zxid: -1,
            data_watches: none,
            exist_watches: none,
            child_watches: none,
            persistent_watches: some,
            persistent_recursive_watches: none,
        }),
        Request::Other(OpCode::Unknown(9999), b"abc"),
    ] {
        listing.request(request);
    }

    listing.section("Transactions");
    let create = CreateRequest { path, data: None, acl: List::NULL, flags: 0 };
    let read = ReadRequest { path, watch: false };
    let operations = [
        MultiOp::Create(create),
        MultiOp::Create2(create),
        MultiOp::CreateContainer(create),
        MultiOp::CreateTtl(CreateTtlRequest {
            path,
            data: None,
            acl: List::NULL,
            flags: 5,
            ttl: 9,
        }),
        MultiOp::Delete(DeleteRequest { path, version: 1 }),
        MultiOp::SetData(SetDataRequest { path, data: None, version: 1 }),
        MultiOp::Check(CheckVersionRequest { path, version: 1 }),
        MultiOp::GetData(read),
        MultiOp::GetChildren(read),
    ];
    listing.request(Request::Multi(MultiRequest::new(&operations)));
    listing.request(Request::MultiRead(MultiRequest::new(&[])));
}

fn replies(listing: &mut Listing) {
    listing.section("Replies");
    let path = Text::new("/a");
    let many = [Text::new("n"); 11];
    let ids = [
        ClientInfo { auth_scheme: "ip".into(), user: "::1".into() },
        ClientInfo { auth_scheme: "digest".into(), user: "alice".into() },
    ];
    let ephemeral = Stat { ephemeral_owner: 0x77, ..STAT };
    let results = [
        MultiResult::Create(PathReply { path }),
        MultiResult::Create2(Create2Reply { path, stat: STAT }),
        MultiResult::Delete,
        MultiResult::SetData(StatReply { stat: STAT }),
        MultiResult::Check,
        MultiResult::GetData(GetDataReply { data: Some(b"x"), stat: STAT }),
        MultiResult::GetChildren(GetChildrenReply { children: List::new(&[]) }),
        MultiResult::Error(ErrorCode::NoNode),
        MultiResult::Error(ErrorCode::Unknown(-999)),
    ];
    let (nine, eight) = (List::new(&many[..9]), List::new(&many[..8]));
    let acl = OPEN_ACL_UNSAFE.into();
    for (op, reply) in [
        (OpCode::Delete, Reply::Empty),
        (OpCode::Create, Reply::Path(PathReply { path })),
        (OpCode::CreateTtl, Reply::Create2(Create2Reply { path, stat: STAT })),
        (OpCode::Exists, Reply::Stat(StatReply { stat: STAT })),
        (OpCode::GetData, Reply::GetData(GetDataReply { data: None, stat: STAT })),
        (OpCode::GetAcl, Reply::GetAcl(GetAclReply { acl, stat: STAT })),
        // The line shows the first eight.
        (OpCode::GetChildren, Reply::GetChildren(GetChildrenReply { children: nine })),
        (
            OpCode::GetChildren2,
            Reply::GetChildren2(GetChildren2Reply { children: eight, stat: ephemeral }),
        ),
        (OpCode::Sasl, Reply::Sasl(SaslReply { token: Some(b"secret") })),
        (
            OpCode::GetAllChildrenNumber,
            Reply::GetAllChildrenNumber(GetAllChildrenNumberReply { total_number: 11 }),
        ),
        (OpCode::AddWatch, Reply::Error(ErrorReply { err: ErrorCode::Ok })),
        (OpCode::WhoAmI, Reply::WhoAmI(WhoAmIReply { client_info: List::new(&ids) })),
        (OpCode::CreateSession, Reply::Other(b"abc")),
        (OpCode::Multi, Reply::Multi(MultiReply::new(&results))),
    ] {
        listing.reply(op, reply);
    }
}

/// Handshakes, errors, events, four-letter words, undecodable frames.
fn other_messages(listing: &mut Listing) {
    listing.section("Other frames");
    let event = WatcherEvent {
        event_type: EventType::Unknown(77),
        state: KeeperState::Expired,
        path: "/a".into(),
    };
    let refused = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0xFF, 0xFF, 0xFF, 0x89];
    let bytes = |bytes: &'static [u8]| Reply::Other(bytes);
    let mut dissector = Dissector::new();
    for (direction, payload) in [
        (ToServer, vec![0; 28]),
        (ToClient, refused.to_vec()),
        (ToServer, vec![0, 0, 0, 1, 0, 0, 0, 22, 0]),
        (ToServer, vec![0, 0, 0, 2, 0, 0, 0, 107, 0]),
        (ToClient, answer(1, 0x12, ErrorCode::MarshallingError, &bytes(&[0xFF; 9]))),
        (ToClient, answer(9, -1, ErrorCode::Unknown(-999), &bytes(&[]))),
        (ToClient, answer(9, -1, ErrorCode::Ok, &bytes(&[7]))),
        (ToClient, answer(-1, -1, ErrorCode::Ok, &event)),
    ] {
        listing.frame(&dissector.dissect(direction, &payload));
    }
    let no_session = [vec![0; 16], vec![0xFF; 4]].concat();
    listing.frame(&Dissector::new().dissect(ToClient, &no_session));
    let (mut dissector, long) = (Dissector::new(), "x".repeat(103));
    for (direction, mut bytes) in
        [(ToServer, &b"srvr"[..]), (ToClient, b"Zoo\r\nKeeper"), (ToClient, long.as_bytes())]
    {
        while let Some(frame) = dissector.feed(direction, &mut bytes) {
            listing.frame(&frame);
        }
    }
}

/// `Debug` shows values, but only the size of secrets and of bytes that may hold secrets.
fn debug_of_secrets(listing: &mut Listing) {
    listing.section("Debug");
    let mut dissector = Dissector::established();
    let mut request = Vec::new();
    RequestHeader { xid: 1, op: OpCode::Auth }.encode(&mut request);
    AuthRequest { auth_type: 0, scheme: "digest".into(), auth: Some(b"a:b") }.encode(&mut request);
    let refusal = answer(1, 0, ErrorCode::AuthFailed, &Reply::Other(b"secret"));
    let (session_id, passwd) = (0x77, Some(&b"secret"[..]));
    let (protocol_version, time_out) = (0, 2);
    let _ = writeln!(listing.0, "{:?}", dissector.dissect(ToServer, &request));
    let _ = writeln!(listing.0, "{:?}", dissector.dissect(ToClient, &refusal).message);
    let connect = ConnectRequest {
        protocol_version,
        last_zxid_seen: 1,
        time_out,
        session_id,
        passwd,
        read_only: None,
    };
    let _ = writeln!(listing.0, "{connect:?}");
    let accepted =
        ConnectResponse { protocol_version, time_out, session_id, passwd, read_only: Some(true) };
    let _ = writeln!(listing.0, "{accepted:?}");
}
