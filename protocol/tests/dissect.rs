//! The dissector: matching of replies, split streams, malformed frames, redaction.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use docent_protocol::{
    DecodeErrorKind, Encode, ErrorCode, EventType, KeeperState, OpCode, Perms, WatcherEvent,
    acl::{Acl, Id},
    connect::{ConnectRequest, ConnectResponse},
    dissect::{Direction, Dissector, MAX_PENDING, Message, ReplyBody},
    frame, raw,
    reply::{Reply, ReplyHeader, SaslReply},
    request::{AuthRequest, CreateRequest, PathRequest, Request, SaslRequest},
    xid,
};

use Direction::{ToClient, ToServer};

const LIMIT: usize = 1 << 20;

fn record(record: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_record(&mut out, LIMIT, record).unwrap();
    out
}

fn connect_request() -> Vec<u8> {
    record(&ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        time_out: 10_000,
        session_id: 0,
        passwd: Some(b"topsecretpasswd!"),
        read_only: Some(false),
    })
}

fn connect_response() -> Vec<u8> {
    record(&ConnectResponse {
        protocol_version: 0,
        time_out: 10_000,
        session_id: 0x77,
        passwd: Some(b"topsecretpasswd!"),
        read_only: Some(false),
    })
}

fn request(xid: i32, request: Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    raw::put_request(&mut out, LIMIT, xid, &request).unwrap();
    out
}

fn get_acl(xid: i32) -> Vec<u8> {
    request(xid, Request::GetAcl(PathRequest { path: "/a".into() }))
}

fn sync(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Request::Sync(PathRequest { path: path.into() }))
}

fn auth(secret: &[u8]) -> Vec<u8> {
    let auth = AuthRequest { auth_type: 0, scheme: "digest".into(), auth: Some(secret) };
    request(xid::AUTH, Request::Auth(auth))
}

/// A frame with this body, which need not be that of the operation.
fn raw_request(xid: i32, op: OpCode, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    raw::put_request_parts(&mut out, LIMIT, xid, op, &raw::RawBody(body)).unwrap();
    out
}

fn reply(xid: i32, err: ErrorCode, body: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, LIMIT, |out| {
        ReplyHeader { xid, zxid: 0x12, err }.encode(out);
        body.encode(out);
    })
    .unwrap();
    out
}

fn empty(xid: i32, err: ErrorCode) -> Vec<u8> {
    reply(xid, err, &Reply::Empty)
}

fn event(path: &str) -> Vec<u8> {
    let (event_type, state) = (EventType::NodeDeleted, KeeperState::SyncConnected);
    let event = WatcherEvent { event_type, state, path: path.into() };
    reply(xid::NOTIFICATION, ErrorCode::Ok, &event)
}

/// A dissector after the handshake.
fn connected() -> Dissector {
    let mut dissector = Dissector::new();
    assert_eq!(lines(&mut dissector, ToServer, &connect_request()).len(), 1);
    assert_eq!(lines(&mut dissector, ToClient, &connect_response()).len(), 1);
    dissector
}

/// Feeds the bytes and returns the line of each frame.
fn lines(dissector: &mut Dissector, direction: Direction, mut bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(frame) = dissector.feed(direction, &mut bytes) {
        lines.push(frame.to_string());
    }
    assert!(bytes.is_empty());
    lines
}

/// Feeds each frame, which has to have this line.
fn assert_lines<const N: usize>(
    dissector: &mut Dissector,
    frames: [(Direction, Vec<u8>, &str); N],
) {
    for (direction, bytes, line) in frames {
        assert_eq!(lines(dissector, direction, &bytes), [line]);
    }
}

#[test]
fn a_reply_is_decoded_by_its_request() {
    let mut dissector = connected();
    let create = CreateRequest {
        path: "/s01/_c_x-lock-".into(),
        data: Some(b"10.0.0.1!"),
        acl: docent_protocol::acl::OPEN_ACL_UNSAFE.into(),
        flags: 3,
    };
    let line = "c2s 5 create2 /s01/_c_x-lock- data=9 bytes acl=[31 world:anyone] flags=3";
    let frames = [
        (ToServer, request(5, Request::Create2(create)), line),
        (ToClient, empty(5, ErrorCode::NoNode), "s2c 5 zxid=0x12 create2 NONODE"),
    ];
    assert_lines(&mut dissector, frames);
    assert_eq!(dissector.pending(), 0);
}

#[test]
fn replies_out_of_order_match_their_requests() {
    let other = request(2, Request::Other(OpCode::from_number(9999), &[]));
    let unimplemented = empty(2, ErrorCode::Unimplemented);
    let frames = [
        (ToServer, get_acl(1), "c2s 1 getACL /a"),
        (ToServer, request(77, Request::Ping), "c2s 77 ping"),
        (ToServer, auth(b"alice:pw"), "c2s -4 auth scheme=digest auth=8 bytes"),
        (ToServer, other, "c2s 2 unknown(9999) body=0 bytes"),
        (ToClient, unimplemented, "s2c 2 zxid=0x12 unknown(9999) UNIMPLEMENTED"),
        (ToClient, empty(xid::AUTH, ErrorCode::Ok), "s2c -4 zxid=0x12 auth"),
        (ToClient, empty(xid::PING, ErrorCode::Ok), "s2c -2 zxid=0x12 ping"),
        (ToClient, empty(3, ErrorCode::Ok), "s2c 3 zxid=0x12 reply"),
        (ToClient, empty(1, ErrorCode::NoNode), "s2c 1 zxid=0x12 getACL NONODE"),
    ];
    assert_lines(&mut connected(), frames);
}

/// The first reply belongs to the older request.
#[test]
fn requests_with_the_same_xid_are_matched_in_order() {
    let error = empty(1, ErrorCode::NoNode);
    let frames = [
        (ToServer, get_acl(1), "c2s 1 getACL /a"),
        (ToServer, sync(1, "/b"), "c2s 1 sync /b"),
        (ToClient, error.clone(), "s2c 1 zxid=0x12 getACL NONODE"),
        (ToClient, error, "s2c 1 zxid=0x12 sync NONODE"),
    ];
    assert_lines(&mut connected(), frames);
}

/// A server echoes -1 like any other xid. A frame that decodes as an event is taken for one.
#[test]
fn replies_with_xid_minus_one_are_distinguished_from_events() {
    let (error, ok) = (ErrorCode::NoNode, ErrorCode::Ok);
    let too_short = "s2c -1 undecodable: type at byte 16 is cut off";
    let frames = [
        (ToServer, get_acl(xid::NOTIFICATION), "c2s -1 getACL /a"),
        (ToClient, event("/a\nb"), "s2c event NodeDeleted /a\\nb zxid=0x12"),
        (ToClient, empty(xid::NOTIFICATION, error), "s2c -1 zxid=0x12 getACL NONODE"),
        (ToClient, empty(xid::NOTIFICATION, ok), too_short),
    ];
    assert_lines(&mut connected(), frames);
}

/// A server replies to it with MARSHALLINGERROR.
#[test]
fn an_undecodable_request_is_pending_too() {
    let cut_off = raw_request(4, OpCode::SetData, &[0, 0, 0, 9, b'/']);
    let refused = empty(4, ErrorCode::MarshallingError);
    let frames = [
        (ToServer, cut_off, "c2s 4 setData undecodable: path at byte 8 is cut off"),
        (ToClient, refused, "s2c 4 zxid=0x12 setData MARSHALLINGERROR"),
    ];
    assert_lines(&mut connected(), frames);
}

#[test]
fn of_a_frame_over_the_limit_only_the_header_is_decoded() {
    let mut dissector = Dissector::with_limit(64);
    lines(&mut dissector, ToServer, &connect_request());
    lines(&mut dissector, ToClient, &connect_response());
    lines(&mut dissector, ToServer, &get_acl(1));
    let mut sent = reply(1, ErrorCode::Ok, &raw::RawBody(&[0; 1000]));
    sent.extend(empty(xid::PING, ErrorCode::Ok));
    for chunk in sent.chunks(100) {
        for line in lines(&mut dissector, ToClient, chunk) {
            println!("{line}");
        }
        assert!(dissector.buffered(ToClient) <= 20);
    }
    assert_eq!(dissector.pending(), 0);
    let mut input = &sent[..];
    let frame = dissector.feed(ToClient, &mut input).unwrap();
    let Message::Undecodable { xid, error, .. } = frame.message else { panic!("{frame}") };
    assert_eq!(xid, Some(1));
    assert_eq!(error.kind(), DecodeErrorKind::FrameTooLarge { len: 1016, limit: 64 });
    assert!(!frame.is_exact());
}

#[test]
fn a_negative_length_desynchronizes_one_direction_only() {
    let mut dissector = connected();
    let bytes = [&[0xFF; 4][..], &get_acl(1)].concat();
    assert_eq!(
        lines(&mut dissector, ToServer, &bytes),
        ["c2s undecodable: frame at byte 0 has the length -1"]
    );
    assert_eq!(lines(&mut dissector, ToServer, &get_acl(2)), [""; 0]);
    assert_eq!(lines(&mut dissector, ToClient, &empty(7, ErrorCode::Ok)).len(), 1);
}

#[test]
fn a_four_letter_word_makes_the_connection_text() {
    let mut dissector = Dissector::new();
    assert_eq!(lines(&mut dissector, ToServer, b"ru"), [""; 0]);
    assert_eq!(lines(&mut dissector, ToServer, b"ok"), ["c2s four-letter word ruok"]);
    assert_eq!(lines(&mut dissector, ToClient, b"im\nok"), ["s2c text im\\nok"]);
}

/// No form of a frame contains passwords, credentials, tokens or the part of an id after its colon.
#[test]
fn credentials_are_redacted_in_every_form() {
    let mut dissector = Dissector::new();
    let acl = [Acl {
        perms: Perms::ALL,
        id: Id { scheme: "digest".into(), id: "alice:topsecret".into() },
    }];
    let sent = [
        connect_request(),
        auth(b"alice:topsecret"),
        request(1, Request::Sasl(SaslRequest { token: Some(b"topsecret") })),
        request(2, Request::Sasl(SaslRequest { token: None })),
        request(
            3,
            Request::Create(CreateRequest {
                path: "/a".into(),
                data: None,
                acl: (&acl).into(),
                flags: 0,
            }),
        ),
        // Secrets behind the end of a message, and in a truncated one.
        raw_request(xid::AUTH, OpCode::Auth, b"\0\0\0\0\0\0\0\x06digest\0\0\0\x01xtopsecret"),
        raw_request(xid::AUTH, OpCode::Auth, b"\0\0\0\0\0\0\0\x06digest\0\0\0\x10topsecret"),
    ]
    .concat();
    let received = [
        connect_response(),
        reply(1, ErrorCode::Ok, &Reply::Sasl(SaslReply { token: Some(b"topsecret") })),
        reply(2, ErrorCode::AuthFailed, &raw::RawBody(b"topsecret")),
    ]
    .concat();
    let hex = "746f70736563726574";
    for (direction, mut bytes) in [(ToServer, &sent[..]), (ToClient, &received[..])] {
        while let Some(frame) = dissector.feed(direction, &mut bytes) {
            let mut forms = vec![frame.to_string()];
            // Ids in ACLs are not marked secret, so `Debug` shows them.
            if frame.op() != Some(OpCode::Create) {
                forms.push(format!("{frame:?} {frame:#?}"));
            }
            #[cfg(feature = "serde")]
            forms.push(serde_json::to_string(&frame).unwrap());
            for form in forms {
                assert!(!form.contains("topsecret") && !form.contains(hex), "{form}");
                assert!(!form.contains("116, 111, 112"), "{form}");
            }
        }
    }
}

#[test]
fn the_number_of_pending_requests_is_bounded() {
    let mut dissector = Dissector::established();
    let who_am_i = request(1, Request::WhoAmI);
    for _ in 0..MAX_PENDING + 10 {
        lines(&mut dissector, ToServer, &who_am_i);
    }
    assert_eq!(dissector.pending(), MAX_PENDING);
}

#[test]
fn frames_have_typed_messages() {
    let mut dissector = connected();
    let sent = sync(9, "/a");
    let frame = dissector.dissect(ToServer, &sent[4..]);
    assert_eq!((frame.xid(), frame.op()), (Some(9), Some(OpCode::Sync)));
    let Message::Request { request: Request::Sync(sync), .. } = frame.message else {
        panic!("{frame}")
    };
    assert_eq!(sync.path, "/a");
    assert!(frame.is_exact());
    let received = reply(9, ErrorCode::Ok, &sync);
    let frame = dissector.dissect(ToClient, &received[4..]);
    assert_eq!((frame.xid(), frame.op()), (Some(9), Some(OpCode::Sync)));
    let Message::Reply { body: ReplyBody::Record(Reply::Path(path)), .. } = frame.message else {
        panic!("{frame}")
    };
    assert_eq!(path.path, "/a");
}

#[test]
fn directions_have_names() {
    for direction in [ToServer, ToClient] {
        assert_eq!(Direction::from_name(&direction.to_string()), Some(direction));
    }
    assert_eq!(Direction::from_name("c2c"), None);
}

#[test]
fn an_incomplete_frame_can_be_discarded() {
    let mut dissector = Dissector::default();
    for direction in [ToServer, ToClient] {
        assert_eq!(lines(&mut dissector, direction, &[0, 0, 1]), [""; 0]);
        assert_eq!(dissector.buffered(direction), 3);
        dissector.discard(direction);
        assert_eq!(dissector.buffered(direction), 0);
    }
    assert_eq!(lines(&mut dissector, ToServer, &connect_request()).len(), 1);
}

/// The frame exceeds the capacity that a buffer keeps.
#[test]
fn a_large_frame_may_arrive_in_pieces() {
    let mut dissector = connected();
    for chunk in sync(1, &"x".repeat(200_000)).chunks(60_000) {
        lines(&mut dissector, ToServer, chunk);
    }
    assert_eq!((dissector.pending(), dissector.buffered(ToServer)), (1, 0));
    assert_eq!(lines(&mut dissector, ToServer, &get_acl(2)), ["c2s 2 getACL /a"]);
}

/// The header of such a request is decoded, because its reply will come. A handshake has no header.
#[test]
fn a_request_over_the_limit_is_pending_too() {
    let (request, response) = (connect_request(), connect_response());
    let long = sync(1, "/a/long/path/of/a/node");
    let late = empty(1, ErrorCode::Ok);
    let frames = [
        (ToServer, request, "c2s undecodable: frame of 45 bytes is over the limit of 20"),
        (ToServer, long, "c2s 1 sync undecodable: frame of 34 bytes is over the limit of 20"),
        (ToClient, response, "s2c undecodable: frame of 37 bytes is over the limit of 20"),
        (ToClient, late, "s2c 1 sync undecodable: path at byte 16 is cut off"),
    ];
    assert_lines(&mut Dissector::with_limit(20), frames);
}

/// Frames too short for a header.
#[test]
fn frames_without_a_header_are_undecodable() {
    let mut dissector = Dissector::established();
    for (direction, bytes, expected) in [
        (ToServer, &[0, 0, 0, 2, 1, 2][..], "c2s undecodable: xid at byte 0 is cut off"),
        (ToServer, &[0, 0, 0, 6, 0, 0, 0, 1, 2, 2], "c2s undecodable: type at byte 4 is cut off"),
        (ToClient, &[0, 0, 0, 5, 0, 0, 0, 1, 2], "s2c undecodable: zxid at byte 4 is cut off"),
        (ToClient, &[0xFF; 4], "s2c undecodable: frame at byte 0 has the length -1"),
    ] {
        assert_eq!(lines(&mut dissector, direction, bytes), [expected]);
    }
}

#[test]
fn frames_have_the_xid_and_operation_of_their_header() {
    let mut dissector = Dissector::established();
    let event = event("/a");
    let frame = dissector.dissect(ToClient, &event[4..]);
    assert_eq!((frame.xid(), frame.op()), (Some(-1), None));
    let truncated = [0, 0, 0, 5, 0, 0, 0, 1];
    let frame = dissector.dissect(ToServer, &truncated);
    assert_eq!((frame.xid(), frame.op()), (Some(5), Some(OpCode::Create)));
    assert_eq!(Dissector::new().dissect(ToServer, &connect_request()[4..]).xid(), None);
}

/// Anywhere else four letters are a length.
#[test]
fn only_the_first_bytes_of_a_client_may_be_a_four_letter_word() {
    for (mut dissector, direction) in [
        (Dissector::established(), ToServer),
        (connected(), ToServer),
        (Dissector::new(), ToClient),
    ] {
        let lines = lines(&mut dissector, direction, b"srvr and sixteen more");
        assert!(lines[0].contains("bytes is over the limit of 16777216"), "{}", lines[0]);
    }
}

/// With an unknown type or bytes left over it is a reply, provided that a request is pending.
#[test]
fn a_frame_that_resembles_an_event_is_the_pending_reply() {
    for (body, expected) in [
        (&b"\0\0\0\x0cabcd\0\0\0\x04efgh"[..], "s2c -1 zxid=0x12 sync abcd\\0\\0\\0\\u{4}efgh"),
        (b"\0\0\0\x01x\0\0\0\0\0\0\0\0", "s2c -1 zxid=0x12 sync x (8 bytes left over)"),
    ] {
        let mut dissector = connected();
        lines(&mut dissector, ToServer, &sync(xid::NOTIFICATION, "/a"));
        let answer = reply(xid::NOTIFICATION, ErrorCode::Ok, &raw::RawBody(body));
        assert_eq!(lines(&mut dissector, ToClient, &answer), [expected]);
        assert_eq!(dissector.pending(), 0);
    }
}
