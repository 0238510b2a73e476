//! The target of docent-testing: properties of the embedded server for any bytes.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use docent_protocol::{
    Encode, ErrorCode, OpCode, Text,
    acl::{CREATOR_ALL_ACL, OPEN_ACL_UNSAFE},
    connect::ConnectRequest,
    frame,
    raw::put_request_parts,
    request::{AuthRequest, CreateRequest, ReadRequest},
};
use docent_testing::server::{Config, ConnectionId, Ensemble, Version};

/// Data that only its owner may receive.
const SECRET: &[u8] = b"the data of somebody else";

const LIMIT: usize = 1 << 24;

/// Number of connections to which the input is sent.
const CONNECTIONS: u8 = 3;

/// Any bytes on several connections: nothing panics, only complete frames are sent, no client receives another client's
/// private data, the output is bounded by the input, and other clients are still served.
///
/// The first byte chooses the version. Then come pieces, each with one byte for the connection, two bytes of
/// length, and the content. If there is no such connection, time passes instead.
pub fn server(data: &[u8]) {
    let Some((&version, mut rest)) = data.split_first() else { return };
    let version = Version::ALL[usize::from(version) % Version::ALL.len()];
    let mut now = Duration::ZERO;
    let mut machine = Ensemble::new(Config { version, ..Config::default() });
    let owner = owner(&mut machine);
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let others: Vec<ConnectionId> =
        (0..CONNECTIONS).filter_map(|_| machine.handle_connect(now, 0, peer)).collect();
    // One connection gets a handshake here, so that the fuzzer need not discover it.
    handshake(&mut machine, others[1]);
    let mut received = 0;
    while let Some((&[which, high, low], tail)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(tail.len());
        let (bytes, tail) = tail.split_at(len);
        rest = tail;
        match others.get(usize::from(which % (CONNECTIONS + 1))) {
            Some(id) => machine.handle_input(now, *id, bytes),
            None => {
                now += Duration::from_millis(u64::from(high) * 16);
                machine.handle_timeout(now);
                // The owner keeps its session alive.
                call(&mut machine, now, owner, -2, OpCode::Ping, &Nothing);
            }
        }
        received += 1 + bytes.len();
        for id in &others {
            let sent = machine.poll_transmit(*id).unwrap_or_default();
            assert!(!contains(&sent, SECRET), "another client's data");
            // A reply may be larger than its request, by the data that earlier input has created: a read of it takes 16 bytes
            // in a transaction, so at most an eighth of this.
            assert!(
                sent.len() <= 4096 + received * received / 8,
                "{} bytes for {received}",
                sent.len()
            );
            check_frames(&sent);
        }
    }
    let read = ReadRequest { path: "/secret".into(), watch: false };
    let reply = call(&mut machine, now, owner, 9, OpCode::GetData, &read);
    // The node may be gone: deleteContainer (20) deletes it without an ACL check, as in the real
    // 3.9.
    let deletes = version >= Version::V3_9 && data.contains(&20);
    assert!(
        contains(&reply, SECRET) || (deletes && is_error(&reply, ErrorCode::NoNode)),
        "the owner is no longer served"
    );
}

/// A client with a node that no other client may read.
fn owner(machine: &mut Ensemble) -> ConnectionId {
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let id = machine.handle_connect(Duration::ZERO, 0, peer).unwrap();
    handshake(machine, id);
    let auth = AuthRequest { auth_type: 0, scheme: "digest".into(), auth: Some(b"owner:pw") };
    call(machine, Duration::ZERO, id, -4, OpCode::Auth, &auth);
    for (path, acl) in [("/secret", CREATOR_ALL_ACL), ("/open", OPEN_ACL_UNSAFE)] {
        let data = Some(if path == "/secret" { SECRET } else { b"" });
        let create = CreateRequest { path: Text::new(path), data, acl: acl.into(), flags: 0 };
        call(machine, Duration::ZERO, id, 1, OpCode::Create, &create);
    }
    id
}

fn handshake(machine: &mut Ensemble, id: ConnectionId) {
    let mut out = Vec::new();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        time_out: 60_000,
        session_id: 0,
        passwd: Some(&[0; 16]),
        read_only: Some(false),
    };
    frame::put_record(&mut out, LIMIT, &request).unwrap();
    machine.handle_input(Duration::ZERO, id, &out);
    machine.poll_transmit(id);
}

fn call(
    machine: &mut Ensemble,
    now: Duration,
    id: ConnectionId,
    xid: i32,
    op: OpCode,
    body: &impl Encode,
) -> Vec<u8> {
    let mut out = Vec::new();
    put_request_parts(&mut out, LIMIT, xid, op, body).unwrap();
    machine.handle_input(now, id, &out);
    let reply = machine.poll_transmit(id).unwrap_or_default().to_vec();
    let is_deleted = op == OpCode::GetData && is_error(&reply, ErrorCode::NoNode);
    assert!(
        reply.len() < 20 || is_error(&reply, ErrorCode::Ok) || is_deleted,
        "{op} of the owner: {:?}",
        reply.get(16..20)
    );
    reply
}

/// Whether a reply has this error in its header.
fn is_error(reply: &[u8], error: ErrorCode) -> bool {
    reply.get(16..20).is_some_and(|err| err == error.number().to_be_bytes())
}

struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _out: &mut impl bytes::BufMut) {}
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Checks that the bytes are complete frames, or the reply to a four letter word.
fn check_frames(sent: &[u8]) {
    if sent.first().is_some_and(|byte| *byte != 0) {
        assert!(std::str::from_utf8(sent).is_ok(), "neither frames nor text");
        return;
    }
    let mut rest = sent;
    while let Some((_, tail)) = frame::split(rest, LIMIT).unwrap() {
        rest = tail;
    }
    assert!(rest.is_empty(), "an incomplete frame");
}
