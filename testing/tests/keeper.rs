//! The machine as ClickHouse Keeper.

use super::*;

/// ClickHouse Keeper closes the connection after an unknown operation, without a reply (ClickHouse#48141).
#[test]
fn a_keeper_closes_the_connection_behind_an_unknown_operation() {
    for (version, unknown) in [
        (Version::Keeper24, &[15, 16, 17, 18, 19, 21, 101, 102, 103, 104, 105, 106, 107][..]),
        (Version::Keeper26_1, &[16, 19, 21, 102, 103, 104, 107]),
        (Version::Keeper26, &[16, 19, 21, 102, 103, 104, 107]),
        (Version::Keeper26_6, &[16, 21, 102, 103, 104, 107]),
    ] {
        for op in (1..=9).chain([11, 12, 14]).chain(15..=19).chain([21, 22]).chain(101..=107) {
            let mut b = bench(version);
            let (a, ..) = b.connect();
            let answer = b.empty(a, op.into());
            let is_known = !unknown.contains(&op);
            assert!(is_known || answer.is_none(), "op {op} on {version}");
            assert_eq!(b.machine.is_closed(a), !is_known, "op {op} on {version}");
        }
    }
}

/// A lost connection is a lost session (ClickHouse#116690): the id of the old one is ignored.
#[test]
fn a_keeper_replaces_a_session_instead_of_resuming_it() {
    for version in [Version::Keeper24, Version::Keeper26_1, Version::Keeper26] {
        let mut b = bench(version);
        let (a, id, passwd) = b.connect();
        assert_eq!(b.create(a, "/n", 1), ErrorCode::Ok);
        let (_, greeting) = b.greet(0, id, &passwd, Some(false), 0);
        assert_ne!(greeting.session().0, id, "{version}");
        assert_eq!(b.machine.session_ids().len(), 2, "{version}");
        assert_eq!(b.machine.node("/n").unwrap().1.ephemeral_owner, id);
    }
}

/// A follower of ClickHouse Keeper reports pings and writes of a session to its leader, but not reads
/// (ClickHouse#111102).
#[test]
fn a_session_that_only_reads_expires_on_a_follower_of_a_keeper() {
    for version in [Version::Keeper24, Version::Keeper26_1, Version::Keeper26, Version::V3_9] {
        let mut b = Bench::new(Config { version, servers: 3, ..Config::default() });
        let leader = b.machine.leader().unwrap();
        let follower = (leader + 1) % 3;
        let (reader, ..) = b.connect_to(follower);
        let (pinging, ..) = b.connect_to(follower);
        let (writer, ..) = b.connect_to(follower);
        let (at_leader, ..) = b.connect_to(leader);
        for number in 0..20 {
            b.advance(Duration::from_secs(1));
            for id in [reader, at_leader] {
                b.send(id, 7, OpCode::Exists, &ReadRequest { path: "/".into(), watch: false });
            }
            b.send(pinging, -2, OpCode::Ping, &RawBody(&[]));
            assert_eq!(b.create(writer, &format!("/n{number}"), 0), ErrorCode::Ok);
        }
        let is_keeper = version != Version::V3_9;
        assert_eq!(b.machine.is_closed(reader), is_keeper, "{version}");
        for id in [pinging, writer, at_leader] {
            assert!(!b.machine.is_closed(id), "{version}");
        }
    }
}
