//! The line (`Display`) and the JSON (`Serialize`) of every message.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use docent_protocol::{
    Acl, Encode, ErrorCode, EventType, Id, KeeperState, OpCode, Perms, Stat, Text, WatcherEvent,
    acl::OPEN_ACL_UNSAFE,
    connect::{ConnectRequest, ConnectResponse},
    dissect::{Direction, Dissector},
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
use serde_json::{Value, json};

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

const STAT_LINE: &str = "czxid=0x264 mzxid=0x278 pzxid=0x265 version=1 cversion=3 aversion=4 dataLength=5 numChildren=6";

fn stat_json() -> Value {
    json!({
        "czxid": 0x264, "mzxid": 0x278, "ctime": 1, "mtime": 2, "version": 1, "cversion": 3,
        "aversion": 4, "ephemeralOwner": 0, "dataLength": 5, "numChildren": 6, "pzxid": 0x265,
    })
}

/// The line of a request without `c2s 1 `, and the body of its JSON.
fn request(request: Request<'_>) -> (String, Value) {
    let mut payload = Vec::new();
    RequestHeader { xid: 1, op: request.op_code() }.encode(&mut payload);
    request.encode(&mut payload);
    let mut dissector = Dissector::established();
    let frame = dissector.dissect(Direction::ToServer, &payload);
    let object = serde_json::to_value(frame).unwrap();
    assert_eq!((&object["direction"], &object["kind"]), (&json!("c2s"), &json!("request")));
    assert_eq!(object["header"], json!({"xid": 1, "type": request.op_code().number()}));
    assert_eq!(object["op"], json!(request.op_code().name()));
    let line = frame.to_string();
    (line.strip_prefix("c2s 1 ").unwrap().to_owned(), object["body"].clone())
}

/// The line of a reply without `s2c 1 zxid=0x12 `, and the body of its JSON.
fn reply(op: OpCode, reply: Reply<'_>) -> (String, Value) {
    let (mut request, mut payload) = (Vec::new(), Vec::new());
    RequestHeader { xid: 1, op }.encode(&mut request);
    ReplyHeader { xid: 1, zxid: 0x12, err: ErrorCode::Ok }.encode(&mut payload);
    reply.encode(&mut payload);
    let mut dissector = Dissector::established();
    dissector.dissect(Direction::ToServer, &request);
    let frame = dissector.dissect(Direction::ToClient, &payload);
    let object = serde_json::to_value(frame).unwrap();
    assert_eq!((&object["direction"], &object["kind"]), (&json!("s2c"), &json!("reply")));
    assert_eq!((&object["op"], &object["header"]["err"]), (&json!(op.name()), &json!(0)));
    let line = frame.to_string();
    (line.strip_prefix("s2c 1 zxid=0x12 ").unwrap().to_owned(), object["body"].clone())
}

fn forms(line: &str, json: Value) -> (String, Value) {
    (line.to_owned(), json)
}

#[test]
fn requests_that_create() {
    let acl = [
        Acl::new(Perms::READ, "digest", "alice:hash"),
        Acl::new(Perms::ALL, "ip", "::1"),
        Acl::new(Perms::NONE, "auth", ""),
    ];
    let create =
        CreateRequest { path: "/a b".into(), data: Some(b"hi"), acl: List::new(&acl), flags: 3 };
    assert_eq!(
        request(Request::Create2(create)),
        forms(
            "create2 /a b data=2 bytes acl=[1 digest:alice:x 31 ip:::1 0 auth:] flags=3",
            json!({
                "path": "/a b", "data": "6869", "flags": 3,
                "acl": [
                    {"perms": 1, "id": {"scheme": "digest", "id": "alice:x"}},
                    {"perms": 31, "id": {"scheme": "ip", "id": "::1"}},
                    {"perms": 0, "id": {"scheme": "auth", "id": ""}},
                ],
            })
        )
    );
    let create =
        CreateTtlRequest { path: Text::NULL, data: None, acl: List::NULL, flags: 5, ttl: 1000 };
    assert_eq!(
        request(Request::CreateTtl(create)),
        forms(
            "createTTL null data=null acl=null flags=5 ttl=1000",
            json!({"path": null, "data": null, "acl": null, "flags": 5, "ttl": 1000})
        )
    );
}

#[test]
fn requests_about_a_path() {
    let path = Text::new("/a");
    let (path_only, versioned) = (json!({"path": "/a"}), json!({"path": "/a", "version": -1}));
    let read = |watch| ReadRequest { path, watch };
    for (record, line, body) in [
        (
            Request::Delete(DeleteRequest { path, version: -1 }),
            "delete /a version=-1",
            versioned.clone(),
        ),
        (
            Request::Check(CheckVersionRequest { path, version: -1 }),
            "check /a version=-1",
            versioned,
        ),
        (Request::GetData(read(true)), "getData /a watch", json!({"path": "/a", "watch": true})),
        (Request::Exists(read(false)), "exists /a", json!({"path": "/a", "watch": false})),
        (
            Request::SetData(SetDataRequest { path, data: Some(&[]), version: 2 }),
            "setData /a data=0 bytes version=2",
            json!({"path": "/a", "data": "", "version": 2}),
        ),
        (Request::Sync(PathRequest { path }), "sync /a", path_only.clone()),
        (Request::GetAcl(PathRequest { path }), "getACL /a", path_only.clone()),
        (Request::DeleteContainer(PathRequest { path }), "deleteContainer /a", path_only),
        (
            Request::SetAcl(SetAclRequest { path, acl: OPEN_ACL_UNSAFE.into(), version: 7 }),
            "setACL /a acl=[31 world:anyone] version=7",
            json!({"path": "/a", "version": 7, "acl": [{"perms": 31, "id": {"scheme": "world", "id": "anyone"}}]}),
        ),
        (
            Request::CheckWatches(WatchesRequest { path, watcher_type: 3.into() }),
            "checkWatches /a type=Any",
            json!({"path": "/a", "type": 3}),
        ),
        (
            Request::RemoveWatches(WatchesRequest { path, watcher_type: 9.into() }),
            "removeWatches /a type=unknown(9)",
            json!({"path": "/a", "type": 9}),
        ),
        (
            Request::AddWatch(AddWatchRequest { path, mode: 1.into() }),
            "addWatch /a mode=PERSISTENT_RECURSIVE",
            json!({"path": "/a", "mode": 1}),
        ),
    ] {
        assert_eq!(request(record), forms(line, body));
    }
}

#[test]
fn requests_of_a_session() {
    let names = [Text::new("/a"), Text::new("/b\n\u{1b}[31m\u{202e}\"'\\")];
    let (some, none) = (List::new(&names[..1]), List::new(&[]));
    for (record, line, body) in [
        (Request::Ping, "ping", Value::Null),
        (Request::WhoAmI, "whoAmI", Value::Null),
        (Request::CloseSession, "closeSession", Value::Null),
        (
            Request::Auth(AuthRequest {
                auth_type: 0,
                scheme: "digest".into(),
                auth: Some(b"a:b"),
            }),
            "auth scheme=digest auth=3 bytes",
            json!({"type": 0, "scheme": "digest", "auth": "3 bytes"}),
        ),
        (Request::Sasl(SaslRequest { token: None }), "sasl token=null", json!({"token": null})),
        (
            Request::Reconfig(ReconfigRequest {
                joining_servers: "server.1=h:1:2".into(),
                leaving_servers: Text::NULL,
                new_members: "".into(),
                cur_config_id: -1,
            }),
            "reconfig joiningServers=server.1=h:1:2 leavingServers=null newMembers= curConfigId=-1",
            json!({
                "joiningServers": "server.1=h:1:2", "leavingServers": null, "newMembers": "",
                "curConfigId": -1,
            }),
        ),
        (
            Request::SetWatches(SetWatchesRequest {
                relative_zxid: 18,
                data_watches: some,
                exist_watches: List::new(&names),
                child_watches: List::NULL,
            }),
            "setWatches relativeZxid=0x12 data=[/a] exist=[/a /b\\n\\u{1b}[31m\\u{202e}\"'\\\\] child=null",
            json!({
                "relativeZxid": 18, "dataWatches": ["/a"],
                "existWatches": ["/a", "/b\n\u{1b}[31m\u{202e}\"'\\"], "childWatches": null,
            }),
        ),
        (
            Request::SetWatches2(SetWatches2Request {
                relative_zxid: -1,
                data_watches: none,
                exist_watches: none,
                child_watches: none,
                persistent_watches: some,
                persistent_recursive_watches: none,
            }),
            "setWatches2 relativeZxid=-1 data=[] exist=[] child=[] persistent=[/a] persistentRecursive=[]",
            json!({
                "relativeZxid": -1, "dataWatches": [], "existWatches": [], "childWatches": [],
                "persistentWatches": ["/a"], "persistentRecursiveWatches": [],
            }),
        ),
        (
            Request::Other(OpCode::Unknown(9999), b"abc"),
            "unknown(9999) body=3 bytes",
            json!("3 bytes"),
        ),
    ] {
        assert_eq!(request(record), forms(line, body));
    }
}

#[test]
fn multis() {
    let path = Text::new("/a");
    let create = CreateRequest { path, data: None, acl: List::NULL, flags: 0 };
    let ttl = CreateTtlRequest { path, data: None, acl: List::NULL, flags: 5, ttl: 9 };
    let read = ReadRequest { path, watch: false };
    let ops = [
        MultiOp::Create(create),
        MultiOp::Create2(create),
        MultiOp::CreateContainer(create),
        MultiOp::CreateTtl(ttl),
        MultiOp::Delete(DeleteRequest { path, version: 1 }),
        MultiOp::SetData(SetDataRequest { path, data: None, version: 1 }),
        MultiOp::Check(CheckVersionRequest { path, version: 1 }),
        MultiOp::GetData(read),
        MultiOp::GetChildren(read),
    ];
    let (line, body) = request(Request::Multi(MultiRequest::new(&ops)));
    assert_eq!(
        line,
        "multi [create /a data=null acl=null flags=0; create2 /a data=null acl=null flags=0; \
         createContainer /a data=null acl=null flags=0; createTTL /a data=null acl=null flags=5 ttl=9; \
         delete /a version=1; setData /a data=null version=1; check /a version=1; getData /a; \
         getChildren /a]"
    );
    let names: Vec<_> =
        body.as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "create",
            "create2",
            "createContainer",
            "createTTL",
            "delete",
            "setData",
            "check",
            "getData",
            "getChildren"
        ]
    );
    assert_eq!(body[4], json!({"op": "delete", "body": {"path": "/a", "version": 1}}));
    assert_eq!(
        request(Request::MultiRead(MultiRequest::new(&[]))),
        forms("multiRead []", json!([]))
    );
}

#[test]
fn results_of_multis() {
    let path = Text::new("/a");
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
    let (line, body) = reply(OpCode::Multi, Reply::Multi(MultiReply::new(&results)));
    assert_eq!(
        line,
        format!(
            "multi [create /a; create2 /a {STAT_LINE}; delete; setData {STAT_LINE}; check; getData data=1 bytes {STAT_LINE}; \
             getChildren children=[]; NONODE; unknown(-999)]"
        )
    );
    assert_eq!(
        body,
        json!([
            {"op": "create", "body": {"path": "/a"}},
            {"op": "create2", "body": {"path": "/a", "stat": stat_json()}},
            {"op": "delete", "body": null},
            {"op": "setData", "body": {"stat": stat_json()}},
            {"op": "check", "body": null},
            {"op": "getData", "body": {"data": "78", "stat": stat_json()}},
            {"op": "getChildren", "body": {"children": []}},
            {"error": "NONODE", "err": -101},
            {"error": "unknown", "err": -999},
        ])
    );
}

#[test]
fn replies() {
    let path = Text::new("/a");
    let many = [Text::new("n"); 11];
    let ids = [
        ClientInfo { auth_scheme: "ip".into(), user: "::1".into() },
        ClientInfo { auth_scheme: "digest".into(), user: "alice".into() },
    ];
    let ephemeral = Stat { ephemeral_owner: 0x77, ..STAT };
    for (op, record, line, body) in [
        (OpCode::Delete, Reply::Empty, "delete", Value::Null),
        (OpCode::Create, Reply::Path(PathReply { path }), "create /a", json!({"path": "/a"})),
        (
            OpCode::CreateTtl,
            Reply::Create2(Create2Reply { path, stat: STAT }),
            &format!("createTTL /a {STAT_LINE}"),
            json!({"path": "/a", "stat": stat_json()}),
        ),
        (
            OpCode::Exists,
            Reply::Stat(StatReply { stat: STAT }),
            &format!("exists {STAT_LINE}"),
            json!({"stat": stat_json()}),
        ),
        (
            OpCode::GetData,
            Reply::GetData(GetDataReply { data: None, stat: STAT }),
            &format!("getData data=null {STAT_LINE}"),
            json!({"data": null, "stat": stat_json()}),
        ),
        (
            OpCode::GetAcl,
            Reply::GetAcl(GetAclReply { acl: OPEN_ACL_UNSAFE.into(), stat: STAT }),
            &format!("getACL acl=[31 world:anyone] {STAT_LINE}"),
            json!({
                "acl": [{"perms": 31, "id": {"scheme": "world", "id": "anyone"}}],
                "stat": stat_json(),
            }),
        ),
        (
            OpCode::GetChildren,
            Reply::GetChildren(GetChildrenReply { children: List::new(&many[..9]) }),
            "getChildren children=[n n n n n n n n and 1 more]",
            json!({"children": ["n", "n", "n", "n", "n", "n", "n", "n", "n"]}),
        ),
        (
            OpCode::GetChildren2,
            Reply::GetChildren2(GetChildren2Reply {
                children: List::new(&many[..8]),
                stat: ephemeral,
            }),
            "getChildren2 children=[n n n n n n n n] czxid=0x264 mzxid=0x278 pzxid=0x265 version=1 \
             cversion=3 aversion=4 ephemeralOwner=0x77 dataLength=5 numChildren=6",
            {
                let mut stat = stat_json();
                stat["ephemeralOwner"] = json!(0x77);
                json!({"children": ["n", "n", "n", "n", "n", "n", "n", "n"], "stat": stat})
            },
        ),
        (
            OpCode::Sasl,
            Reply::Sasl(SaslReply { token: Some(b"secret") }),
            "sasl token=6 bytes",
            json!({"token": "6 bytes"}),
        ),
        (
            OpCode::GetAllChildrenNumber,
            Reply::GetAllChildrenNumber(GetAllChildrenNumberReply { total_number: 11 }),
            "getAllChildrenNumber totalNumber=11",
            json!({"totalNumber": 11}),
        ),
        (
            OpCode::AddWatch,
            Reply::Error(ErrorReply { err: ErrorCode::Ok }),
            "addWatch OK",
            json!({"err": 0}),
        ),
        (
            OpCode::WhoAmI,
            Reply::WhoAmI(WhoAmIReply { client_info: List::new(&ids) }),
            "whoAmI [ip:::1; digest:alice]",
            json!({"clientInfo": [
                {"authScheme": "ip", "user": "::1"}, {"authScheme": "digest", "user": "alice"}
            ]}),
        ),
        (
            OpCode::CreateSession,
            Reply::Other(b"abc"),
            "createSession body=3 bytes",
            json!("3 bytes"),
        ),
    ] {
        assert_eq!(reply(op, record), forms(line, body));
    }
}

#[test]
fn a_line_shows_the_first_eight_entries_of_an_acl() {
    let acl = [Acl { perms: Perms::ALL, id: Id { scheme: "ip".into(), id: "::1".into() } }; 10];
    let set = SetAclRequest { path: "/a".into(), acl: List::new(&acl), version: -1 };
    let (line, body) = request(Request::SetAcl(set));
    assert!(line.ends_with("31 ip:::1 and 2 more] version=-1"), "{line}");
    assert_eq!(body["acl"].as_array().unwrap().len(), 10);
}

/// Handshakes, errors, events, four-letter words, undecodable frames.
#[test]
fn other_messages() {
    let mut dissector = Dissector::new();
    let mut lines = Vec::new();
    let mut feed = |dissector: &mut Dissector, direction, bytes: &[u8]| {
        let frame = dissector.dissect(direction, bytes);
        lines.push((frame.to_string(), serde_json::to_value(frame).unwrap()));
    };
    let (to_server, to_client) = (Direction::ToServer, Direction::ToClient);
    feed(&mut dissector, to_server, &[0; 28]);
    feed(&mut dissector, to_client, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0xFF, 0xFF, 0xFF, 0x89]);
    feed(&mut dissector, to_server, &[0, 0, 0, 1, 0, 0, 0, 22, 0]);
    feed(&mut dissector, to_server, &[0, 0, 0, 2, 0, 0, 0, 107, 0]);
    let mut payload = Vec::new();
    ReplyHeader { xid: 1, zxid: 0x12, err: ErrorCode::MarshallingError }.encode(&mut payload);
    payload.extend([0xFF; 9]);
    feed(&mut dissector, to_client, &payload);
    let mut payload = Vec::new();
    ReplyHeader { xid: 9, zxid: -1, err: ErrorCode::Unknown(-999) }.encode(&mut payload);
    feed(&mut dissector, to_client, &payload);
    let mut payload = Vec::new();
    ReplyHeader { xid: 9, zxid: -1, err: ErrorCode::Ok }.encode(&mut payload);
    payload.push(7);
    feed(&mut dissector, to_client, &payload);
    let event = WatcherEvent {
        event_type: EventType::Unknown(77),
        state: KeeperState::Expired,
        path: "/a".into(),
    };
    let mut payload = Vec::new();
    ReplyHeader { xid: -1, zxid: -1, err: ErrorCode::Ok }.encode(&mut payload);
    event.encode(&mut payload);
    feed(&mut dissector, to_client, &payload);
    let (lines, objects): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
    assert_eq!(
        lines,
        [
            "c2s connect lastZxidSeen=0x0 timeOut=0 sessionId=0x0 passwd=0 bytes",
            "s2c connect refused NOTREADONLY",
            "c2s 1 multiRead undecodable: type at byte 8 is cut off",
            "c2s 2 whoAmI (1 bytes left over)",
            "s2c 1 zxid=0x12 multiRead MARSHALLINGERROR body=9 bytes",
            "s2c 9 zxid=-1 reply unknown(-999)",
            "s2c 9 zxid=-1 reply body=1 bytes",
            "s2c event unknown(77) /a state=Expired",
        ]
    );
    assert_eq!(
        objects,
        [
            json!({"direction": "c2s", "kind": "connect", "body": {
                "protocolVersion": 0, "lastZxidSeen": 0, "timeOut": 0, "sessionId": 0, "passwd": "0 bytes",
                "readOnly": null,
            }}),
            json!({"direction": "s2c", "kind": "connect", "error": "NOTREADONLY",
            "header": {"xid": 0, "zxid": 9, "err": -119}}),
            json!({"direction": "c2s", "kind": "undecodable", "xid": 1, "op": "multiRead",
            "error": "type at byte 8 is cut off"}),
            json!({"direction": "c2s", "kind": "request", "op": "whoAmI", "header": {"xid": 2, "type": 107},
            "body": null, "leftOver": 1}),
            json!({"direction": "s2c", "kind": "reply", "op": "multiRead", "error": "MARSHALLINGERROR",
            "header": {"xid": 1, "zxid": 18, "err": -5}, "body": "9 bytes"}),
            json!({"direction": "s2c", "kind": "reply", "op": null, "error": null,
            "header": {"xid": 9, "zxid": -1, "err": -999}, "body": null}),
            json!({"direction": "s2c", "kind": "reply", "op": null,
            "header": {"xid": 9, "zxid": -1, "err": 0}, "body": "1 bytes"}),
            json!({"direction": "s2c", "kind": "event", "event": null,
            "header": {"xid": -1, "zxid": -1, "err": 0},
            "body": {"type": 77, "state": -112, "path": "/a"}}),
        ]
    );
    let mut dissector = Dissector::new();
    let mut words = Vec::new();
    let long = "x".repeat(103);
    for (direction, mut bytes) in
        [(to_server, &b"srvr"[..]), (to_client, b"Zoo\r\nKeeper"), (to_client, long.as_bytes())]
    {
        while let Some(frame) = dissector.feed(direction, &mut bytes) {
            words.push((frame.to_string(), serde_json::to_value(frame).unwrap()["body"].clone()));
        }
    }
    assert_eq!(
        words,
        [
            forms("c2s four-letter word srvr", json!("srvr")),
            forms("s2c text Zoo\\r\\nKeeper", json!("Zoo\r\nKeeper")),
            forms(&format!("s2c text {} and 3 bytes more", "x".repeat(100)), json!(long)),
        ]
    );
}

/// `Debug` shows values, but only the size of secrets and of bytes that may hold secrets.
#[test]
fn debug_redacts_secrets() {
    let mut dissector = Dissector::established();
    let mut payload = Vec::new();
    RequestHeader { xid: 1, op: OpCode::Auth }.encode(&mut payload);
    AuthRequest { auth_type: 0, scheme: "digest".into(), auth: Some(b"a:b") }.encode(&mut payload);
    assert_eq!(
        format!("{:?}", dissector.dissect(Direction::ToServer, &payload)),
        "Frame { direction: ToServer, message: Request { header: RequestHeader { xid: 1, op: Auth }, \
         request: Auth(AuthRequest { auth_type: 0, scheme: \"digest\", auth: 3 bytes }) }, left_over: 0, .. }"
    );
    let mut payload = Vec::new();
    ReplyHeader { xid: 1, zxid: 0, err: ErrorCode::AuthFailed }.encode(&mut payload);
    payload.extend(b"secret");
    assert_eq!(
        format!("{:?}", dissector.dissect(Direction::ToClient, &payload).message),
        "Reply { header: ReplyHeader { xid: 1, zxid: 0, err: AuthFailed }, op: Some(Auth), \
         body: Error(6 bytes) }"
    );
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 1,
        time_out: 2,
        session_id: 0x77,
        passwd: Some(b"secret"),
        read_only: None,
    };
    assert_eq!(
        format!("{request:?}"),
        "ConnectRequest { protocol_version: 0, last_zxid_seen: 1, time_out: 2, session_id: 0x77, \
         read_only: None, .. }"
    );
    let response = ConnectResponse {
        protocol_version: 0,
        time_out: 2,
        session_id: 0x77,
        passwd: Some(b"secret"),
        read_only: Some(true),
    };
    assert_eq!(
        format!("{response:?}"),
        "ConnectResponse { protocol_version: 0, time_out: 2, session_id: 0x77, \
         read_only: Some(true), .. }"
    );
}
