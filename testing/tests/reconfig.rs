//! Changes of the members of an ensemble whose links are cut. `tests/ensemble/reconfig.rs` of the workspace has the
//! rest.

use super::*;

fn bench(servers: usize) -> Bench {
    Bench::new(Config {
        servers,
        reconfig_enabled: true,
        super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
        ..Config::default()
    })
}

/// A session of the super user.
fn connect(bench: &mut Bench, member: usize) -> ConnectionId {
    let (id, ..) = bench.connect_to(member);
    let auth = AuthRequest { auth_type: 0, scheme: "digest".into(), auth: Some(b"super:test") };
    bench.send(id, -4, OpCode::Auth, &auth);
    assert_eq!(bench.answers(id).len(), 1);
    id
}

const fn leaving(ids: &str) -> ReconfigRequest<'_> {
    ReconfigRequest {
        joining_servers: Text::NULL,
        leaving_servers: Text::new(ids),
        new_members: Text::NULL,
        cur_config_id: -1,
    }
}

/// A change takes a majority of the members before it and of those after it.
///
/// Source: `Leader.propose`, `SyncedLearnerTracker`.
#[test]
fn a_change_needs_a_majority_of_the_new_members() {
    let mut bench = bench(3);
    let leader = bench.machine.leader().unwrap();
    let (left, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let id = connect(&mut bench, leader);
    bench.machine.cut(bench.now, other, leader);
    bench.send(id, 1, OpCode::Create, &create("/before", b"", 0));
    assert_eq!(bench.answers(id).len(), 1);
    bench.send(id, 2, OpCode::Reconfig, &leaving(&(left + 1).to_string()));
    assert_eq!(bench.answers(id).len(), 0);
    bench.machine.heal_all(bench.now);
    assert_eq!(bench.answers(id).len(), 1);
}

/// A leader that was removed steps down, even if it has not applied the change.
///
/// Source: `Leader.tryToCommit`.
#[test]
fn a_leader_that_lags_steps_down_once_it_has_left() {
    let mut bench = bench(3);
    let leader = bench.machine.leader().unwrap();
    let id = connect(&mut bench, (leader + 1) % 3);
    bench.machine.set_lag(bench.now, leader, true);
    bench.send(id, 1, OpCode::Reconfig, &leaving(&(leader + 1).to_string()));
    assert!(bench.machine.leader().is_some_and(|next| next != leader));
}

/// The log of a removed member does not prevent the others from electing a leader.
///
/// Source: `FastLeaderElection.validVoter`.
#[test]
fn the_log_of_a_member_that_has_left_counts_no_more() {
    let mut bench = bench(4);
    let leader = bench.machine.leader().unwrap();
    let left = (leader + 1) % 4;
    let id = connect(&mut bench, leader);
    bench.call(id, OpCode::Reconfig, &leaving(&(left + 1).to_string())).unwrap();
    for other in (0..4).filter(|other| ![leader, left].contains(other)) {
        bench.machine.cut(bench.now, leader, other);
    }
    bench.send(id, 1, OpCode::Create, &create("/without-a-majority", b"", 0));
    bench.machine.stop_member(bench.now, leader);
    bench.advance(Duration::from_secs(60));
    assert!(bench.machine.leader().is_some_and(|next| ![leader, left].contains(&next)));
}

/// A real 3.8.0 stops at this create, and cannot load its log.
#[test]
fn a_quota_of_the_whole_tree_ends_the_connection() {
    let mut bench = Bench::new(Config::default());
    let (id, ..) = bench.connect();
    let path = "/zookeeper/quota/zookeeper_limits";
    assert!(bench.call(id, OpCode::Create, &create(path, b"count=1,bytes=1", 0)).is_none());
    assert!(bench.machine.is_closed(id));
    let (other, ..) = bench.connect();
    assert_eq!(bench.exists(other, path, false), ErrorCode::NoNode);
}
