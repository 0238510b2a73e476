//! The machine as ClickHouse Keeper.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use docent_protocol::ErrorCode;
use docent_testing::server::{Config, Version};
use support::machine::Bench;

fn bench(version: Version) -> Bench {
    Bench::new(Config { version, ..Config::default() })
}

/// ClickHouse Keeper closes the connection behind what it does not know, without a reply (ClickHouse#48141).
#[test]
fn a_keeper_closes_the_connection_behind_an_unknown_operation() {
    for (version, unknown) in [
        (Version::Keeper24, &[15, 16, 17, 18, 19, 21, 101, 103, 104, 105, 106, 107][..]),
        (Version::Keeper26, &[16, 19, 21, 103, 104, 107]),
    ] {
        for op in (1..=9).chain([11, 12, 14]).chain(15..=19).chain([21, 22, 101]).chain(103..=107) {
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
    for version in [Version::Keeper24, Version::Keeper26] {
        let mut b = bench(version);
        let (a, id, passwd) = b.connect();
        assert_eq!(b.create(a, "/n", 1), ErrorCode::Ok);
        let (_, greeting) = b.greet(0, id, &passwd, Some(false), 0);
        assert_ne!(greeting.session().0, id, "{version}");
        assert_eq!(b.machine.session_ids().len(), 2, "{version}");
        assert_eq!(b.machine.node("/n").unwrap().1.ephemeral_owner, id);
    }
}
