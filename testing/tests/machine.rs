//! The machine by itself: sessions, versions, ensembles, and any bytes at all. Time is virtual.

use docent_protocol::{
    Decode as _,
    multi::{MultiReply, MultiResult},
};

use super::*;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn read(path: &str) -> ReadRequest<'_> {
    ReadRequest { path: path.into(), watch: false }
}

fn delete(path: &str) -> DeleteRequest<'_> {
    DeleteRequest { path: path.into(), version: -1 }
}

// Sessions.

/// The connection of an expired session is closed without a reply, its ephemeral node is deleted, watchers are
/// notified, and it cannot be resumed.
#[test]
fn a_silent_session_expires() {
    let mut b = bench(Version::V3_9);
    let (a, session, passwd) = b.connect();
    let (watcher, ..) = b.connect();
    b.create(a, "/e", 1);
    b.exists(watcher, "/e", true);
    b.advance(seconds(9));
    b.empty(watcher, OpCode::Ping);
    assert!(!b.machine.is_closed(a));
    b.advance(seconds(2));
    assert!(b.machine.is_closed(a));
    assert_eq!(b.answers(a), []);
    let zxid = b.machine.last_zxid();
    assert_eq!(b.events(watcher), [(EventType::NodeDeleted, "/e".to_owned(), zxid)]);
    assert!(b.greet(0, session, &passwd, Some(false), 0).1.is_refused());
}

// Case (Pitfalls of the wire, 24): a wrong password kicks the rightful client.
#[test]
fn a_wrong_password_is_refused_and_kicks_the_rightful_connection() {
    let mut b = bench(Version::V3_8);
    let (a, session, passwd) = b.connect();
    assert!(b.greet(0, session, &[1; 16], Some(false), 0).1.is_refused());
    assert!(b.machine.is_closed(a));
    let (again, greeting) = b.greet(0, session, &passwd, Some(false), 0);
    assert_eq!(greeting.session(), (session, passwd));
    assert_eq!(b.create(again, "/x", 0), ErrorCode::Ok);
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let mut b = bench(Version::V3_8);
    let id = b.accept(0);
    b.advance(seconds(15));
    assert!(!b.machine.is_closed(id));
    b.advance(seconds(2));
    assert!(b.machine.is_closed(id));
}

#[test]
fn frames_over_the_limit_and_negative_ones_end_the_connection_at_once() {
    for length in [-1_i32, i32::MAX, 0x10_0000] {
        let mut b = bench(Version::V3_8);
        let (a, ..) = b.connect();
        b.bytes(a, &length.to_be_bytes());
        assert!(b.machine.is_closed(a), "{length}");
    }
    let mut b = bench(Version::V3_8);
    let (a, ..) = b.connect();
    b.bytes(a, &0xF_FFFF_i32.to_be_bytes());
    assert!(!b.machine.is_closed(a));
}

// Nodes that the server deletes by itself.

#[test]
fn empty_containers_and_old_ttl_nodes_are_reaped() {
    let container_check_interval = seconds(1);
    let mut b = Bench::new(Config { container_check_interval, ..Config::default() });
    let (a, ..) = b.connect();
    for path in ["/used", "/unused"] {
        b.err(a, OpCode::CreateContainer, &create(path, b"", 4));
    }
    b.create(a, "/used/x", 0);
    let CreateRequest { path, data, acl, .. } = create("/ttl", b"", 5);
    b.err(a, OpCode::CreateTtl, &CreateTtlRequest { path, data, acl, flags: 5, ttl: 5000 });
    b.advance(seconds(3));
    assert_eq!(b.exists(a, "/used", false), ErrorCode::Ok);
    b.err(a, OpCode::Delete, &delete("/used/x"));
    b.advance(seconds(2));
    assert_eq!(b.exists(a, "/used", false), ErrorCode::NoNode);
    assert_eq!(b.exists(a, "/unused", false), ErrorCode::Ok);
    b.advance(seconds(3));
    assert_eq!(b.exists(a, "/ttl", false), ErrorCode::NoNode);
}

/// 3.4 and 3.5 wrap (ZOOKEEPER-3249); later versions stick at 2147483647.
#[test]
fn the_sequence_counter_ends_as_measured() {
    for (version, third) in [
        (Version::V3_4, Ok("/p/x--2147483648")),
        (Version::V3_5, Ok("/p/x--2147483648")),
        (Version::V3_6, Err(ErrorCode::NodeExists)),
        (Version::V3_8, Err(ErrorCode::NodeExists)),
        (Version::V3_9, Err(ErrorCode::NodeExists)),
    ] {
        let mut b = bench(version);
        let (a, ..) = b.connect();
        b.create(a, "/p", 0);
        assert!(b.machine.set_sequence_counter("/p", 2_147_483_646));
        assert_eq!(b.created(a, "/p/x-", 2), "/p/x-2147483646");
        assert_eq!(b.created(a, "/p/x-", 2), "/p/x-2147483647");
        match third {
            Ok(path) => assert_eq!(b.created(a, "/p/x-", 2), path),
            Err(err) => {
                assert_eq!(b.create(a, "/p/x-", 2), err);
                assert_eq!(b.created(a, "/p/y-", 2), "/p/y-2147483647", "{version}");
            }
        }
    }
}

// Versions.

/// ZOOKEEPER-2623. The cases of `docent conform` have the operations that a version does not know.
#[test]
fn a_check_outside_a_transaction_is_unknown() {
    let mut b = bench(Version::V3_9);
    let (a, ..) = b.connect();
    assert_eq!(b.empty(a, OpCode::Check).unwrap().header.err, ErrorCode::Unimplemented);
}

/// The type of a result inside a multi, as measured.
#[test]
fn multi_results_are_of_the_type_measured() {
    let kinds = |version, op: MultiOp<'_>| {
        let mut b = bench(version);
        let (a, ..) = b.connect();
        let answer = b.call(a, OpCode::Multi, &MultiRequest::new(&[op])).unwrap();
        if answer.header.err != ErrorCode::Ok {
            return format!("header {}", answer.header.err.number());
        }
        let reply = MultiReply::decode(&mut Reader::new(&answer.body)).unwrap();
        match reply.iter().next().unwrap() {
            MultiResult::Create(_) => "T1".to_owned(),
            MultiResult::Create2(_) => "T15".to_owned(),
            MultiResult::Error(err) => err.number().to_string(),
            other => panic!("{other:?}"),
        }
    };
    let with = |flags| create("/m", b"", flags);
    for (name, op, expected) in [
        ("create", MultiOp::Create(with(0)), ["T1", "T1", "T1", "T1", "T1"]),
        ("create2", MultiOp::Create2(with(0)), ["header -5", "T1", "T1", "T1", "T15"]),
        ("container", MultiOp::CreateContainer(with(4)), ["header -5", "T15", "T15", "T15", "T15"]),
        ("container 0", MultiOp::CreateContainer(with(0)), ["header -5", "T1", "T1", "T1", "T15"]),
        ("create 4", MultiOp::Create(with(4)), ["-8", "T15", "T15", "T15", "T15"]),
        (
            "create 5",
            MultiOp::Create(with(5)),
            ["-8", "header -5", "header -5", "header -5", "header -5"],
        ),
        ("create 99", MultiOp::Create(with(99)), ["-8", "-8", "-8", "-8", "header -5"]),
    ] {
        // Up to 3.9: 3.10 was not measured.
        for (version, expected) in Version::ALL.into_iter().zip(expected) {
            assert_eq!(kinds(version, op), expected, "{name} on {version}");
        }
    }
}

/// What a client without READ may see, as measured.
#[test]
fn rights_are_those_measured() {
    let write_only = [Acl::new(Perms::WRITE, "world", "anyone")];
    for (version, exists, events) in [
        (Version::V3_4, ErrorCode::Ok, 1),
        (Version::V3_5, ErrorCode::Ok, 1),
        (Version::V3_6, ErrorCode::Ok, 1),
        (Version::V3_8, ErrorCode::Ok, 0),
        (Version::V3_9, ErrorCode::NoAuth, 0),
    ] {
        let mut b = bench(version);
        let (a, ..) = b.connect();
        b.create(a, "/n", 0);
        b.call(a, OpCode::GetData, &ReadRequest { path: "/n".into(), watch: true });
        let acl = (&write_only).into();
        b.err(a, OpCode::SetAcl, &SetAclRequest { path: "/n".into(), acl, version: -1 });
        assert_eq!(b.exists(a, "/n", false), exists, "{version}");
        assert_eq!(b.err(a, OpCode::GetData, &read("/n")), ErrorCode::NoAuth);
        let set = SetDataRequest { path: "/n".into(), data: None, version: -1 };
        b.send(a, 9, OpCode::SetData, &set);
        assert_eq!(b.events(a).len(), events, "{version}");
    }
}

/// Which clients get a session on a read-only server, and what they may do, as measured.
#[test]
fn read_only_servers_grant_the_measured_sessions() {
    for (version, local, granted) in [
        (Version::V3_4, false, true),
        (Version::V3_6, false, true),
        (Version::V3_8, false, false),
        (Version::V3_8, true, true),
        (Version::V3_9, true, true),
    ] {
        let mut b = Bench::new(Config {
            version,
            read_only: true,
            local_sessions_enabled: local,
            ..Config::default()
        });
        assert_eq!(b.machine.role(0), Role::ReadOnly);
        assert_eq!(b.greet(0, 0, &[], Some(false), 0).1, Greeting::Closed, "{version}");
        assert_eq!(b.greet(0, 0, &[], None, 0).1, Greeting::Closed, "{version}");
        let (a, greeting) = b.greet(0, 0, &[0; 16], Some(true), 0);
        if !granted {
            assert_eq!(greeting, Greeting::Header(ErrorCode::NotReadOnly));
            assert!(!b.machine.is_closed(a));
            assert_eq!(b.empty(a, OpCode::Ping), None);
            continue;
        }
        assert!(matches!(greeting, Greeting::Session { read_only: Some(true), .. }));
        assert_eq!(b.create(a, "/x", 0), ErrorCode::NotReadOnly);
        let sync = PathRequest { path: "/".into() };
        assert_eq!(b.err(a, OpCode::Sync, &sync), ErrorCode::NotReadOnly);
        assert_eq!(b.exists(a, "/", true), ErrorCode::Ok);
        let (session, passwd) = greeting.session();
        let (again, greeting) = b.greet(0, session, &passwd, Some(true), 0);
        assert_eq!(greeting.session().0, session);
        assert_eq!(b.empty(again, OpCode::CloseSession).unwrap().header.err, ErrorCode::Ok);
        assert!(b.greet(0, session, &passwd, Some(true), 0).1.is_refused());
    }
}

// Ensembles.

fn ensemble() -> Bench {
    Bench::new(Config { servers: 3, ..Config::default() })
}

fn ensemble_with_local_sessions(upgrades: bool) -> Bench {
    Bench::new(Config {
        servers: 3,
        local_sessions_enabled: true,
        local_sessions_upgrading_enabled: upgrades,
        ..Config::default()
    })
}

/// Only its server knows such a session, until it creates an ephemeral node (ZOOKEEPER-1147).
#[test]
fn a_local_session_ends_with_a_move_unless_it_was_upgraded() {
    for upgrades in [false, true] {
        let mut b = ensemble_with_local_sessions(upgrades);
        for member in 0..3 {
            let (idle, session, passwd) = b.connect_to(member);
            assert_eq!(b.create(idle, &format!("/persistent-{member}"), 0), ErrorCode::Ok);
            assert_eq!(b.machine.session_ids(), []);
            // Its server resumes it, and no other one does.
            assert_eq!(b.greet(member, session, &passwd, Some(false), 0).1.session().0, session);
            let other = (member + 1) % 3;
            assert!(b.greet(other, session, &passwd, Some(false), 0).1.is_refused());

            let (busy, session, passwd) = b.connect_to(member);
            let created = b.create(busy, &format!("/ephemeral-{member}"), 1);
            if !upgrades {
                assert_eq!(created, ErrorCode::EphemeralOnLocalSession);
                continue;
            }
            assert_eq!((created, b.machine.session_ids()), (ErrorCode::Ok, vec![session]));
            assert_eq!(b.create(busy, &format!("/another-{member}"), 3), ErrorCode::Ok);
            let (moved, greeting) = b.greet(other, session, &passwd, Some(false), 0);
            assert_eq!(greeting.session().0, session);
            assert_eq!(b.empty(moved, OpCode::CloseSession).unwrap().header.err, ErrorCode::Ok);
            let (reader, ..) = b.connect_to(member);
            assert_eq!(b.exists(reader, &format!("/ephemeral-{member}"), false), ErrorCode::NoNode);
        }
    }
}

/// By a close or the clock, and without a change that the others would hear of.
#[test]
fn a_local_session_ends_by_its_server_alone() {
    let mut b = ensemble_with_local_sessions(true);
    let zxid = b.machine.last_zxid();
    let (closed, session, passwd) = b.connect_to(0);
    assert_eq!(b.empty(closed, OpCode::CloseSession).unwrap().header.err, ErrorCode::Ok);
    assert!(b.machine.is_closed(closed) && b.greet(0, session, &passwd, None, 0).1.is_refused());
    let (expired, ..) = b.connect_to(0);
    b.advance(Duration::from_secs(120));
    assert!(b.machine.is_closed(expired));
    assert_eq!(b.machine.last_zxid(), zxid);
}

/// A lagging follower answers old values, until sync or a write of its own client.
#[test]
fn a_follower_may_lag_and_never_goes_back() {
    let mut b = ensemble();
    let (leader, ..) = b.connect_to(0);
    let (follower, ..) = b.connect_to(1);
    b.create(leader, "/x", 0);
    assert_eq!(b.exists(follower, "/x", false), ErrorCode::Ok);
    b.machine.set_lag(b.now, 1, true);
    b.set(leader, "/x", b"1");
    assert_eq!(b.data(follower, "/x"), b"x");
    b.sync(follower);
    assert_eq!(b.data(follower, "/x"), b"1");
    b.set(leader, "/x", b"2");
    b.create(follower, "/y", 0);
    assert_eq!(b.data(follower, "/x"), b"2");
    b.set(leader, "/x", b"3");
    assert_eq!(b.data(follower, "/x"), b"2");
    b.machine.set_lag(b.now, 1, false);
    assert_eq!(b.data(follower, "/x"), b"3");
}

/// A watch on a lagging follower fires when the follower hears of it.
#[test]
fn watches_of_a_lagging_follower_fire_late() {
    let mut b = ensemble();
    let (leader, ..) = b.connect_to(0);
    let (follower, ..) = b.connect_to(1);
    b.machine.set_lag(b.now, 1, true);
    let add = AddWatchRequest { path: "/".into(), mode: AddWatchMode::PersistentRecursive };
    b.call(follower, OpCode::AddWatch, &add);
    b.create(leader, "/x", 0);
    assert_eq!(b.events(follower), []);
    b.machine.set_lag(b.now, 1, false);
    assert_eq!(b.events(follower).len(), 1);
}

/// All connections end; sessions and their nodes stay; the epoch is in the zxid.
#[test]
fn sessions_survive_the_leader() {
    let mut b = ensemble();
    assert_eq!((b.machine.leader(), b.machine.role(1)), (Some(0), Role::Follower));
    let (a, session, passwd) = b.connect_to(1);
    b.create(a, "/e", 1);
    b.machine.stop_member(b.now, 0);
    assert_eq!(b.machine.leader(), Some(1));
    assert!(b.machine.is_closed(a));
    let (again, greeting) = b.greet(2, session, &passwd, Some(false), b.machine.last_zxid());
    assert_eq!(greeting.session().0, session);
    assert_eq!(b.exists(again, "/e", false), ErrorCode::Ok);
    b.create(again, "/f", 0);
    assert_eq!(b.machine.last_zxid() >> 32, 2);
    b.machine.start_member(b.now, 0);
    let (third, ..) = b.connect_to(0);
    assert_eq!(b.exists(third, "/f", false), ErrorCode::Ok);
}

#[test]
fn without_a_majority_the_rest_is_read_only() {
    let mut b = ensemble_with_local_sessions(true);
    let (a, session, passwd) = b.connect_to(2);
    b.create(a, "/x", 1);
    b.machine.stop_member(b.now, 0);
    b.machine.stop_member(b.now, 1);
    assert_eq!((b.machine.leader(), b.machine.role(2)), (None, Role::ReadOnly));
    assert_eq!(b.greet(2, session, &passwd, Some(true), 0).1, Greeting::Closed);
    let (reader, _) = b.greet(2, 0, &[0; 16], Some(true), 0);
    assert_eq!(b.exists(reader, "/x", false), ErrorCode::Ok);
    assert_eq!(b.create(reader, "/y", 0), ErrorCode::NotReadOnly);
    // Nothing expires meanwhile.
    b.advance(seconds(100));
    b.machine.start_member(b.now, 0);
    assert!(b.machine.is_closed(reader));
    assert_eq!(b.greet(2, session, &passwd, Some(false), 0).1.session().0, session);
}

// Changes that a member has not applied.

/// A leader whose own clients read old values checks writes against all ordered ones: no sequence number is given
/// twice.
// Case (Found in docent itself): the embedded ensemble: a leader that lagged checked writes on its
// old tree and gave out equal sequence numbers; a stopped member, or one without a quorum, applied
// the log across a gap and could lead next.
#[test]
fn a_leader_that_lags_checks_against_its_ordered_writes() {
    let mut b = ensemble();
    let (leader, ..) = b.connect_to(0);
    let (follower, ..) = b.connect_to(1);
    b.create(leader, "/p", 0);
    b.machine.set_lag(b.now, 0, true);
    let paths = [0; 3].map(|_| b.created(follower, "/p/x-", 2));
    assert_eq!(paths, ["/p/x-0000000000", "/p/x-0000000001", "/p/x-0000000002"]);
    assert_eq!(b.create(follower, "/p/x-0000000001", 0), ErrorCode::NodeExists);
    assert_eq!(b.exists(leader, &paths[2], false), ErrorCode::NoNode);
    assert_eq!(b.created(leader, "/p/x-", 2), "/p/x-0000000003");
    assert_eq!(b.exists(leader, &paths[2], false), ErrorCode::Ok);
}

/// Members 0 and 1 make `/a` while member 2 is stopped; member 1 lags behind `/b`.
fn a_gap() -> Bench {
    let mut b = ensemble_with_local_sessions(true);
    b.machine.stop_member(b.now, 2);
    let (leader, ..) = b.connect_to(0);
    b.create(leader, "/a", 0);
    b.machine.set_lag(b.now, 1, true);
    b.create(leader, "/b", 0);
    b
}

fn has_both(b: &mut Bench) {
    for member in 1..3 {
        b.machine.set_lag(b.now, member, false);
        let (id, ..) = b.connect_to(member);
        let found = ["/a", "/b"].map(|path| b.exists(id, path, false));
        assert_eq!(found, [ErrorCode::Ok; 2], "member {member}");
    }
}

#[test]
fn a_stopped_member_that_no_longer_lags_applies_nothing() {
    let mut b = a_gap();
    b.machine.set_lag(b.now, 2, false);
    b.machine.stop_member(b.now, 0);
    b.machine.start_member(b.now, 2);
    has_both(&mut b);
}

#[test]
fn a_member_restarted_without_a_quorum_applies_nothing() {
    let mut b = a_gap();
    b.machine.stop_member(b.now, 0);
    b.machine.stop_member(b.now, 1);
    b.machine.start_member(b.now, 2);
    assert_eq!(b.machine.role(2), Role::ReadOnly);
    b.machine.set_lag(b.now, 2, false);
    let (reader, _) = b.greet(2, 0, &[0; 16], Some(true), 0);
    let found = ["/a", "/b"].map(|path| b.exists(reader, path, false));
    assert_eq!(found, [ErrorCode::NoNode; 2]);
    b.machine.start_member(b.now, 1);
    has_both(&mut b);
}

// Any bytes.

mod any_bytes {
    use docent_protocol::raw::put_request_parts;
    use proptest::prelude::*;

    use super::*;
    use crate::corpus::target::server;

    fn op() -> impl Strategy<Value = i32> {
        prop_oneof![-12..110_i32, any::<i32>()]
    }

    /// A frame whose body is a path that decodes, or none, with anything behind it.
    fn request(path: &'static str) -> impl Strategy<Value = Vec<u8>> {
        let parts = (op(), any::<i32>(), prop::collection::vec(any::<u8>(), 0..64));
        parts.prop_map(move |(op, xid, tail)| {
            let mut body = Vec::new();
            if !path.is_empty() {
                docent_protocol::Encode::encode(&Text::new(path), &mut body);
            }
            body.extend(tail);
            let mut out = Vec::new();
            put_request_parts(&mut out, 1 << 20, xid, op.into(), &RawBody(&body)).unwrap();
            out
        })
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(any::<u8>(), 0..64);
        prop_oneof![4 => request(""), 4 => request("/open/x"), 1 => bytes]
    }

    /// A connection of the fuzz target. The one with a handshake, which gets answers, is chosen most often.
    fn connection() -> impl Strategy<Value = u8> {
        prop_oneof![1 => 0..4_u8, 2 => Just(1)]
    }

    proptest! {
        /// Whatever clients send: the property of the fuzz target `server`.
        #[test]
        fn are_harmless(pieces in prop::collection::vec((connection(), piece()), 0..30)) {
            let mut input = vec![0];
            for (connection, piece) in &pieces {
                input.push(*connection);
                input.extend(u16::try_from(piece.len()).unwrap().to_be_bytes());
                input.extend(piece);
            }
            for version in 0..Version::ALL.len() {
                input[0] = u8::try_from(version).unwrap();
                server(&input);
            }
        }

        /// The same inputs give the same bytes.
        #[test]
        fn give_the_same_bytes_again(pieces in prop::collection::vec(piece(), 0..30)) {
            let run = || {
                let mut b = Bench::new(Config { seed: 7, ..Config::default() });
                let (id, ..) = b.connect();
                let mut out = Vec::new();
                for piece in &pieces {
                    b.bytes(id, piece);
                    out.extend(b.machine.poll_transmit(id).unwrap_or_default());
                }
                out
            };
            prop_assert_eq!(run(), run());
        }
    }
}
