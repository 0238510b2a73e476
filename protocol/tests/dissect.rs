//! The dissector: matching of replies, split streams, malformed frames, redaction.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use docent_protocol::{
    DecodeErrorKind, Encode, ErrorCode, OpCode, Perms, Text,
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

fn connect_request() -> Vec<u8> {
    let mut out = Vec::new();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        time_out: 10_000,
        session_id: 0,
        passwd: Some(b"topsecretpasswd!"),
        read_only: Some(false),
    };
    frame::put_record(&mut out, LIMIT, &request).unwrap();
    out
}

fn connect_response() -> Vec<u8> {
    let mut out = Vec::new();
    let response = ConnectResponse {
        protocol_version: 0,
        time_out: 10_000,
        session_id: 0x77,
        passwd: Some(b"topsecretpasswd!"),
        read_only: Some(false),
    };
    frame::put_record(&mut out, LIMIT, &response).unwrap();
    out
}

fn request(xid: i32, request: Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    raw::put_request(&mut out, LIMIT, xid, &request).unwrap();
    out
}

fn get_acl(xid: i32) -> Vec<u8> {
    request(xid, Request::GetAcl(PathRequest { path: "/a".into() }))
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

#[test]
fn a_reply_is_decoded_by_its_request() {
    let mut dissector = connected();
    let create = CreateRequest {
        path: "/s01/_c_x-lock-".into(),
        data: Some(b"10.0.0.1!"),
        acl: docent_protocol::acl::OPEN_ACL_UNSAFE.into(),
        flags: 3,
    };
    assert_eq!(
        lines(&mut dissector, ToServer, &request(5, Request::Create2(create))),
        ["c2s 5 create2 /s01/_c_x-lock- data=9 bytes acl=[31 world:anyone] flags=3"]
    );
    assert_eq!(
        lines(&mut dissector, ToClient, &empty(5, ErrorCode::NoNode)),
        ["s2c 5 zxid=0x12 create2 NONODE"]
    );
    assert_eq!(dissector.pending(), 0);
}

#[test]
fn replies_out_of_order_match_their_requests() {
    let mut dissector = connected();
    let mut sent = get_acl(1);
    sent.extend(request(77, Request::Ping));
    sent.extend(request(
        xid::AUTH,
        Request::Auth(AuthRequest {
            auth_type: 0,
            scheme: "digest".into(),
            auth: Some(b"alice:pw"),
        }),
    ));
    sent.extend(request(2, Request::Other(OpCode::from_number(9999), &[])));
    assert_eq!(
        lines(&mut dissector, ToServer, &sent),
        [
            "c2s 1 getACL /a",
            "c2s 77 ping",
            "c2s -4 auth scheme=digest auth=8 bytes",
            "c2s 2 unknown(9999) body=0 bytes",
        ]
    );
    let mut received = empty(2, ErrorCode::Unimplemented);
    received.extend(empty(xid::AUTH, ErrorCode::Ok));
    received.extend(empty(xid::PING, ErrorCode::Ok));
    received.extend(empty(3, ErrorCode::Ok));
    received.extend(empty(1, ErrorCode::NoNode));
    assert_eq!(
        lines(&mut dissector, ToClient, &received),
        [
            "s2c 2 zxid=0x12 unknown(9999) UNIMPLEMENTED",
            "s2c -4 zxid=0x12 auth",
            "s2c -2 zxid=0x12 ping",
            "s2c 3 zxid=0x12 reply",
            "s2c 1 zxid=0x12 getACL NONODE",
        ]
    );
}

/// The first reply belongs to the older request.
#[test]
fn requests_with_the_same_xid_are_matched_in_order() {
    let mut dissector = connected();
    let mut sent = get_acl(1);
    sent.extend(request(1, Request::Sync(PathRequest { path: "/b".into() })));
    lines(&mut dissector, ToServer, &sent);
    let error = empty(1, ErrorCode::NoNode);
    assert_eq!(lines(&mut dissector, ToClient, &error), ["s2c 1 zxid=0x12 getACL NONODE"]);
    assert_eq!(lines(&mut dissector, ToClient, &error), ["s2c 1 zxid=0x12 sync NONODE"]);
}

/// A server echoes -1 like any other xid. A frame that decodes as an event is taken for one.
#[test]
fn replies_with_xid_minus_one_are_distinguished_from_events() {
    let mut dissector = connected();
    lines(&mut dissector, ToServer, &get_acl(xid::NOTIFICATION));
    let event = docent_protocol::WatcherEvent {
        event_type: docent_protocol::EventType::NodeDeleted,
        state: docent_protocol::KeeperState::SyncConnected,
        path: "/a\nb".into(),
    };
    let event = reply(xid::NOTIFICATION, ErrorCode::Ok, &event);
    assert_eq!(lines(&mut dissector, ToClient, &event), ["s2c event NodeDeleted /a\\nb zxid=0x12"]);
    assert_eq!(
        lines(&mut dissector, ToClient, &empty(xid::NOTIFICATION, ErrorCode::NoNode)),
        ["s2c -1 zxid=0x12 getACL NONODE"]
    );
    assert_eq!(
        lines(&mut dissector, ToClient, &empty(xid::NOTIFICATION, ErrorCode::Ok)),
        ["s2c -1 undecodable: type at byte 16 is cut off"]
    );
}

/// A server replies to it with MARSHALLINGERROR.
#[test]
fn an_undecodable_request_is_pending_too() {
    let mut dissector = connected();
    let mut out = Vec::new();
    let body = raw::RawBody(&[0, 0, 0, 9, b'/']);
    raw::put_request_parts(&mut out, LIMIT, 4, OpCode::SetData, &body).unwrap();
    assert_eq!(
        lines(&mut dissector, ToServer, &out),
        ["c2s 4 setData undecodable: path at byte 8 is cut off"]
    );
    assert_eq!(
        lines(&mut dissector, ToClient, &empty(4, ErrorCode::MarshallingError)),
        ["s2c 4 zxid=0x12 setData MARSHALLINGERROR"]
    );
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
        request(
            xid::AUTH,
            Request::Auth(AuthRequest {
                auth_type: 0,
                scheme: Text::new("digest"),
                auth: Some(b"alice:topsecret"),
            }),
        ),
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
        {
            let mut out = Vec::new();
            let body = raw::RawBody(b"\0\0\0\0\0\0\0\x06digest\0\0\0\x01xtopsecret");
            raw::put_request_parts(&mut out, LIMIT, xid::AUTH, OpCode::Auth, &body).unwrap();
            let body = raw::RawBody(b"\0\0\0\0\0\0\0\x06digest\0\0\0\x10topsecret");
            raw::put_request_parts(&mut out, LIMIT, xid::AUTH, OpCode::Auth, &body).unwrap();
            out
        },
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
    let sent = request(9, Request::Sync(PathRequest { path: "/a".into() }));
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
    let large =
        request(1, Request::Sync(PathRequest { path: "x".repeat(200_000).as_str().into() }));
    for chunk in large.chunks(60_000) {
        lines(&mut dissector, ToServer, chunk);
    }
    assert_eq!((dissector.pending(), dissector.buffered(ToServer)), (1, 0));
    assert_eq!(lines(&mut dissector, ToServer, &get_acl(2)), ["c2s 2 getACL /a"]);
}

/// The header of such a request is decoded, because its reply will come. A handshake has no header.
#[test]
fn a_request_over_the_limit_is_pending_too() {
    let mut dissector = Dissector::with_limit(20);
    assert_eq!(
        lines(&mut dissector, ToServer, &connect_request()),
        ["c2s undecodable: frame of 45 bytes is over the limit of 20"]
    );
    let long = request(1, Request::Sync(PathRequest { path: "/a/long/path/of/a/node".into() }));
    assert_eq!(
        lines(&mut dissector, ToServer, &long),
        ["c2s 1 sync undecodable: frame of 34 bytes is over the limit of 20"]
    );
    assert_eq!(
        lines(&mut dissector, ToClient, &connect_response()),
        ["s2c undecodable: frame of 37 bytes is over the limit of 20"]
    );
    assert_eq!(
        lines(&mut dissector, ToClient, &empty(1, ErrorCode::Ok)),
        ["s2c 1 sync undecodable: path at byte 16 is cut off"]
    );
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
    let event = docent_protocol::WatcherEvent {
        event_type: docent_protocol::EventType::NodeCreated,
        state: docent_protocol::KeeperState::SyncConnected,
        path: "/a".into(),
    };
    let event = reply(xid::NOTIFICATION, ErrorCode::Ok, &event);
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
    let sync = request(xid::NOTIFICATION, Request::Sync(PathRequest { path: "/a".into() }));
    for (body, expected) in [
        (&b"\0\0\0\x0cabcd\0\0\0\x04efgh"[..], "s2c -1 zxid=0x12 sync abcd\\0\\0\\0\\u{4}efgh"),
        (b"\0\0\0\x01x\0\0\0\0\0\0\0\0", "s2c -1 zxid=0x12 sync x (8 bytes left over)"),
    ] {
        let mut dissector = connected();
        lines(&mut dissector, ToServer, &sync);
        let answer = reply(xid::NOTIFICATION, ErrorCode::Ok, &raw::RawBody(body));
        assert_eq!(lines(&mut dissector, ToClient, &answer), [expected]);
        assert_eq!(dissector.pending(), 0);
    }
}
