//! The follower over real connections, cut anywhere, and over nonsense.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use docent_protocol::{
    DecodeErrorKind, Encode, ErrorCode, OpCode, Perms, Text,
    acl::{Acl, Id},
    connect::{ConnectRequest, ConnectResponse},
    follow::{Direction, Follower, MAX_PENDING, Message, ReplyBody},
    frame, raw,
    reply::{Reply, ReplyHeader, SaslReply},
    request::{AuthRequest, CreateRequest, PathRequest, Request, SaslRequest},
    xid,
};

use Direction::{ToClient, ToServer};

const LIMIT: usize = 1 << 20;

fn hello() -> Vec<u8> {
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

fn welcome() -> Vec<u8> {
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

/// A connection with its handshake behind it.
fn connected() -> Follower {
    let mut follower = Follower::new();
    assert_eq!(tell(&mut follower, ToServer, &hello()).len(), 1);
    assert_eq!(tell(&mut follower, ToClient, &welcome()).len(), 1);
    follower
}

/// Feeds all of it and gives back the lines.
fn tell(follower: &mut Follower, direction: Direction, mut bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(frame) = follower.feed(direction, &mut bytes) {
        lines.push(frame.to_string());
    }
    assert!(bytes.is_empty());
    lines
}

#[test]
fn replies_are_read_as_what_their_request_was() {
    let mut follower = connected();
    let create = CreateRequest {
        path: "/s01/_c_x-lock-".into(),
        data: Some(b"10.0.0.1!"),
        acl: docent_protocol::acl::OPEN_ACL_UNSAFE.into(),
        flags: 3,
    };
    assert_eq!(
        tell(&mut follower, ToServer, &request(5, Request::Create2(create))),
        ["c2s 5 create2 /s01/_c_x-lock- data=9 bytes acl=[31 world:anyone] flags=3"]
    );
    assert_eq!(
        tell(&mut follower, ToClient, &empty(5, ErrorCode::NoNode)),
        ["s2c 5 zxid=0x12 create2 NONODE"]
    );
    assert_eq!(follower.pending(), 0);
}

#[test]
fn what_comes_out_of_turn_finds_its_request() {
    let mut follower = connected();
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
        tell(&mut follower, ToServer, &sent),
        [
            "c2s 1 getACL /a",
            "c2s 77 ping",
            "c2s -4 auth scheme=digest auth=8 bytes",
            "c2s 2 unknown(9999) body=0 bytes",
        ]
    );
    let mut answered = empty(2, ErrorCode::Unimplemented);
    answered.extend(empty(xid::AUTH, ErrorCode::Ok));
    answered.extend(empty(xid::PING, ErrorCode::Ok));
    answered.extend(empty(3, ErrorCode::Ok));
    answered.extend(empty(1, ErrorCode::NoNode));
    assert_eq!(
        tell(&mut follower, ToClient, &answered),
        [
            "s2c 2 zxid=0x12 unknown(9999) UNIMPLEMENTED",
            "s2c -4 zxid=0x12 auth",
            "s2c -2 zxid=0x12 ping",
            "s2c 3 zxid=0x12 reply",
            "s2c 1 zxid=0x12 getACL NONODE",
        ]
    );
}

/// Twice the same number: the older one is answered first.
#[test]
fn a_number_used_twice_is_answered_in_order() {
    let mut follower = connected();
    let mut sent = get_acl(1);
    sent.extend(request(1, Request::Sync(PathRequest { path: "/b".into() })));
    tell(&mut follower, ToServer, &sent);
    let error = empty(1, ErrorCode::NoNode);
    assert_eq!(tell(&mut follower, ToClient, &error), ["s2c 1 zxid=0x12 getACL NONODE"]);
    assert_eq!(tell(&mut follower, ToClient, &error), ["s2c 1 zxid=0x12 sync NONODE"]);
}

/// A server echoes -1 as any other number; what looks like an event is one.
#[test]
fn replies_under_minus_one_are_told_from_events() {
    let mut follower = connected();
    tell(&mut follower, ToServer, &get_acl(xid::NOTIFICATION));
    let event = docent_protocol::WatcherEvent {
        event_type: docent_protocol::EventType::NodeDeleted,
        state: docent_protocol::KeeperState::SyncConnected,
        path: "/a\nb".into(),
    };
    let event = reply(xid::NOTIFICATION, ErrorCode::Ok, &event);
    assert_eq!(tell(&mut follower, ToClient, &event), ["s2c event NodeDeleted /a\\nb zxid=0x12"]);
    assert_eq!(
        tell(&mut follower, ToClient, &empty(xid::NOTIFICATION, ErrorCode::NoNode)),
        ["s2c -1 zxid=0x12 getACL NONODE"]
    );
    assert_eq!(
        tell(&mut follower, ToClient, &empty(xid::NOTIFICATION, ErrorCode::Ok)),
        ["s2c -1 undecodable: type at byte 16 is cut off"]
    );
}

#[test]
fn cut_anywhere_the_frames_are_the_same() {
    let mut bytes = hello();
    bytes.extend(get_acl(1));
    bytes.extend(request(2, Request::WhoAmI));
    let whole = tell(&mut Follower::new(), ToServer, &bytes);
    assert_eq!(whole.len(), 3);
    for size in 1..bytes.len() {
        let mut follower = Follower::new();
        let lines: Vec<_> =
            bytes.chunks(size).flat_map(|chunk| tell(&mut follower, ToServer, chunk)).collect();
        assert_eq!(lines, whole, "in pieces of {size}");
        assert_eq!(follower.buffered(ToServer), 0);
    }
}

/// A server answers it with MARSHALLINGERROR.
#[test]
fn a_request_that_cannot_be_read_still_waits_for_its_reply() {
    let mut follower = connected();
    let mut out = Vec::new();
    let body = raw::RawBody(&[0, 0, 0, 9, b'/']);
    raw::put_request_parts(&mut out, LIMIT, 4, OpCode::SetData, &body).unwrap();
    assert_eq!(
        tell(&mut follower, ToServer, &out),
        ["c2s 4 setData undecodable: path at byte 8 is cut off"]
    );
    assert_eq!(
        tell(&mut follower, ToClient, &empty(4, ErrorCode::MarshallingError)),
        ["s2c 4 zxid=0x12 setData MARSHALLINGERROR"]
    );
}

#[test]
fn of_a_frame_over_the_limit_the_header_is_told_and_the_rest_passed_over() {
    let mut follower = Follower::with_limit(64);
    tell(&mut follower, ToServer, &hello());
    tell(&mut follower, ToClient, &welcome());
    tell(&mut follower, ToServer, &get_acl(1));
    let mut sent = reply(1, ErrorCode::Ok, &raw::RawBody(&[0; 1000]));
    sent.extend(empty(xid::PING, ErrorCode::Ok));
    for chunk in sent.chunks(100) {
        for line in tell(&mut follower, ToClient, chunk) {
            println!("{line}");
        }
        assert!(follower.buffered(ToClient) <= 20);
    }
    assert_eq!(follower.pending(), 0);
    let mut input = &sent[..];
    let frame = follower.feed(ToClient, &mut input).unwrap();
    let Message::Undecodable { xid, error, .. } = frame.message else { panic!("{frame}") };
    assert_eq!(xid, Some(1));
    assert_eq!(error.kind(), DecodeErrorKind::FrameTooLarge { len: 1016, limit: 64 });
    assert!(!frame.is_exact());
}

#[test]
fn after_a_negative_length_a_direction_is_lost_and_the_other_is_not() {
    let mut follower = connected();
    let bytes = [&[0xFF; 4][..], &get_acl(1)].concat();
    assert_eq!(
        tell(&mut follower, ToServer, &bytes),
        ["c2s undecodable: frame at byte 0 has the length -1"]
    );
    assert_eq!(tell(&mut follower, ToServer, &get_acl(2)), [""; 0]);
    assert_eq!(tell(&mut follower, ToClient, &empty(7, ErrorCode::Ok)).len(), 1);
}

#[test]
fn four_letter_words_are_told_as_text() {
    let mut follower = Follower::new();
    assert_eq!(tell(&mut follower, ToServer, b"ru"), [""; 0]);
    assert_eq!(tell(&mut follower, ToServer, b"ok"), ["c2s four-letter word ruok"]);
    assert_eq!(tell(&mut follower, ToClient, b"im\nok"), ["s2c text im\\nok"]);
}

/// What nobody may read in a log: passwords, credentials, tokens, what stands behind an id's colon.
#[test]
fn credentials_are_never_told() {
    let mut follower = Follower::new();
    let acl = [Acl {
        perms: Perms::ALL,
        id: Id { scheme: "digest".into(), id: "alice:topsecret".into() },
    }];
    let sent = [
        hello(),
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
        // Behind the message, and in one that is cut off.
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
    let answered = [
        welcome(),
        reply(1, ErrorCode::Ok, &Reply::Sasl(SaslReply { token: Some(b"topsecret") })),
        reply(2, ErrorCode::AuthFailed, &raw::RawBody(b"topsecret")),
    ]
    .concat();
    let hex = "746f70736563726574";
    for (direction, mut bytes) in [(ToServer, &sent[..]), (ToClient, &answered[..])] {
        while let Some(frame) = follower.feed(direction, &mut bytes) {
            let mut forms = vec![frame.to_string()];
            // Ids in ACLs are no credentials by themselves, so `Debug` shows them.
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
fn what_is_pending_is_bounded() {
    let mut follower = Follower::established();
    let ping = request(1, Request::WhoAmI);
    for _ in 0..MAX_PENDING + 10 {
        tell(&mut follower, ToServer, &ping);
    }
    assert_eq!(follower.pending(), MAX_PENDING);
}

#[test]
fn the_values_are_there_not_only_the_text() {
    let mut follower = connected();
    let sent = request(9, Request::Sync(PathRequest { path: "/a".into() }));
    let frame = follower.payload(ToServer, &sent[4..]);
    assert_eq!((frame.xid(), frame.op()), (Some(9), Some(OpCode::Sync)));
    let Message::Request { request: Request::Sync(sync), .. } = frame.message else {
        panic!("{frame}")
    };
    assert_eq!(sync.path, "/a");
    assert!(frame.is_exact());
    let answer = reply(9, ErrorCode::Ok, &sync);
    let frame = follower.payload(ToClient, &answer[4..]);
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
fn what_is_unfinished_can_be_forgotten() {
    let mut follower = Follower::default();
    for direction in [ToServer, ToClient] {
        assert_eq!(tell(&mut follower, direction, &[0, 0, 1]), [""; 0]);
        assert_eq!(follower.buffered(direction), 3);
        follower.discard(direction);
        assert_eq!(follower.buffered(direction), 0);
    }
    assert_eq!(tell(&mut follower, ToServer, &hello()).len(), 1);
}

/// A large frame in pieces is put together in a buffer that is given back.
#[test]
fn large_frames_come_in_pieces_too() {
    let mut follower = connected();
    let large =
        request(1, Request::Sync(PathRequest { path: "x".repeat(200_000).as_str().into() }));
    for chunk in large.chunks(60_000) {
        tell(&mut follower, ToServer, chunk);
    }
    assert_eq!((follower.pending(), follower.buffered(ToServer)), (1, 0));
    assert_eq!(tell(&mut follower, ToServer, &get_acl(2)), ["c2s 2 getACL /a"]);
}

/// The header of a request over the limit counts: its reply will come. A handshake has none.
#[test]
fn of_a_request_over_the_limit_the_header_counts() {
    let mut follower = Follower::with_limit(20);
    assert_eq!(
        tell(&mut follower, ToServer, &hello()),
        ["c2s undecodable: frame of 45 bytes is over the limit of 20"]
    );
    let long = request(1, Request::Sync(PathRequest { path: "/a/long/path/of/a/node".into() }));
    assert_eq!(
        tell(&mut follower, ToServer, &long),
        ["c2s 1 sync undecodable: frame of 34 bytes is over the limit of 20"]
    );
    assert_eq!(
        tell(&mut follower, ToClient, &welcome()),
        ["s2c undecodable: frame of 37 bytes is over the limit of 20"]
    );
    assert_eq!(
        tell(&mut follower, ToClient, &empty(1, ErrorCode::Ok)),
        ["s2c 1 sync undecodable: path at byte 16 is cut off"]
    );
}

/// A frame that has no room for a header says nothing about xids.
#[test]
fn frames_without_a_header_are_told_so() {
    let mut follower = Follower::established();
    for (direction, bytes, expected) in [
        (ToServer, &[0, 0, 0, 2, 1, 2][..], "c2s undecodable: xid at byte 0 is cut off"),
        (ToServer, &[0, 0, 0, 6, 0, 0, 0, 1, 2, 2], "c2s undecodable: type at byte 4 is cut off"),
        (ToClient, &[0, 0, 0, 5, 0, 0, 0, 1, 2], "s2c undecodable: zxid at byte 4 is cut off"),
        (ToClient, &[0xFF; 4], "s2c undecodable: frame at byte 0 has the length -1"),
    ] {
        assert_eq!(tell(&mut follower, direction, bytes), [expected]);
    }
}

#[test]
fn a_refused_handshake_is_told() {
    let mut follower = Follower::new();
    assert_eq!(
        tell(&mut follower, ToClient, &empty(0, ErrorCode::NotReadOnly)),
        ["s2c connect refused NOTREADONLY"]
    );
    let mut out = Vec::new();
    let none = ConnectResponse {
        protocol_version: 0,
        time_out: 0,
        session_id: 0,
        passwd: None,
        read_only: None,
    };
    frame::put_record(&mut out, LIMIT, &none).unwrap();
    assert_eq!(
        tell(&mut Follower::new(), ToClient, &out),
        ["s2c connect timeOut=0 sessionId=0x0 passwd=null (no such session)"]
    );
}

#[test]
fn frames_say_their_xid_and_operation_if_they_have_one() {
    let mut follower = Follower::established();
    let event = docent_protocol::WatcherEvent {
        event_type: docent_protocol::EventType::NodeCreated,
        state: docent_protocol::KeeperState::SyncConnected,
        path: "/a".into(),
    };
    let event = reply(xid::NOTIFICATION, ErrorCode::Ok, &event);
    let frame = follower.payload(ToClient, &event[4..]);
    assert_eq!((frame.xid(), frame.op()), (Some(-1), None));
    let broken = [0, 0, 0, 5, 0, 0, 0, 1];
    let frame = follower.payload(ToServer, &broken);
    assert_eq!((frame.xid(), frame.op()), (Some(5), Some(OpCode::Create)));
    assert_eq!(Follower::new().payload(ToServer, &hello()[4..]).xid(), None);
}

/// Only a client that has not greeted says words; anything else of four letters is a length.
#[test]
fn words_are_only_the_first_thing_a_client_says() {
    for (mut follower, direction) in
        [(Follower::established(), ToServer), (connected(), ToServer), (Follower::new(), ToClient)]
    {
        let lines = tell(&mut follower, direction, b"srvr and sixteen more");
        assert!(lines[0].contains("bytes is over the limit of 16777216"), "{}", lines[0]);
    }
}

/// What reads as an event but for an unknown type, or with something behind it, is a reply if one is due.
#[test]
fn what_only_looks_like_an_event_is_the_reply_that_is_due() {
    let ask = request(xid::NOTIFICATION, Request::Sync(PathRequest { path: "/a".into() }));
    for (body, expected) in [
        (&b"\0\0\0\x0cabcd\0\0\0\x04efgh"[..], "s2c -1 zxid=0x12 sync abcd\\0\\0\\0\\u{4}efgh"),
        (b"\0\0\0\x01x\0\0\0\0\0\0\0\0", "s2c -1 zxid=0x12 sync x (8 bytes left over)"),
    ] {
        let mut follower = connected();
        tell(&mut follower, ToServer, &ask);
        let answer = reply(xid::NOTIFICATION, ErrorCode::Ok, &raw::RawBody(body));
        assert_eq!(tell(&mut follower, ToClient, &answer), [expected]);
        assert_eq!(follower.pending(), 0);
    }
}
