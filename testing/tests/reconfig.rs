//! Changes of the members of an ensemble whose links are cut. `tests/ensemble/reconfig.rs` of the workspace has the rest.

use std::time::Duration;

use crate::support::{Answer, create, machine::Bench};
use docent_protocol::{
    Decode as _, ErrorCode, OpCode, Text,
    jute::Reader,
    reply::GetDataReply,
    request::{AuthRequest, ReadRequest, ReconfigRequest},
};
use docent_testing::server::{Config, ConnectionId};

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

fn config(answer: &Answer) -> String {
    assert_eq!(answer.header.err, ErrorCode::Ok);
    let reply = GetDataReply::decode(&mut Reader::new(&answer.body)).unwrap();
    String::from_utf8(reply.data.unwrap().to_vec()).unwrap()
}

fn read(bench: &mut Bench, id: ConnectionId) -> String {
    let read = ReadRequest { path: "/zookeeper/config".into(), watch: false };
    let answer = bench.call(id, OpCode::GetData, &read).unwrap();
    config(&answer)
}

/// A change waits for its majority; meanwhile, another one is refused.
#[test]
fn one_change_is_made_at_a_time() {
    let mut bench = bench(3);
    let leader = bench.machine.leader().unwrap();
    let (a, b) = (connect(&mut bench, leader), connect(&mut bench, leader));
    bench.machine.isolate(bench.now, leader);
    bench.send(a, 1, OpCode::Reconfig, &leaving("9"));
    bench.send(b, 1, OpCode::Reconfig, &leaving("8"));
    assert_eq!((bench.answers(a).len(), bench.answers(b).len()), (0, 0));
    bench.machine.heal_all(bench.now);
    let (first, second) = (bench.answers(a), bench.answers(b));
    assert!(config(&first[0]).contains("server.3="));
    assert_eq!(second[0].header.err, ErrorCode::ReconfigInProgress);
    // Its zxid is the next one.
    assert_eq!(second[0].header.zxid, first[0].header.zxid + 1);
}

/// A change is decided by the members that vote after it: two of two are needed once the third has left.
#[test]
fn a_member_that_has_left_counts_no_more() {
    let mut bench = bench(3);
    let leader = bench.machine.leader().unwrap();
    let (left, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let id = connect(&mut bench, leader);
    let answer = bench.call(id, OpCode::Reconfig, &leaving(&(left + 1).to_string())).unwrap();
    assert!(!config(&answer).contains(&format!("server.{}=", left + 1)));

    // Without the other voter, nothing is written, although a majority of the servers is connected.
    bench.machine.cut(bench.now, leader, other);
    bench.machine.cut(bench.now, other, leader);
    bench.send(id, 2, OpCode::Create, &create("/w", b"", 0));
    assert_eq!(bench.answers(id).len(), 0);
    bench.machine.heal_all(bench.now);
    assert_eq!(bench.answers(id).len(), 1);

    // Without the member that has left, writes are committed.
    bench.machine.isolate(bench.now, left);
    assert_eq!(bench.create(id, "/v", 0), ErrorCode::Ok);
    // It leads no more, whatever happens to the others.
    bench.machine.heal_all(bench.now);
    bench.machine.stop_member(bench.now, leader);
    bench.machine.stop_member(bench.now, other);
    assert_eq!(bench.machine.leader(), None);
    bench.machine.start_member(bench.now, other);
    assert_eq!(bench.machine.leader(), None);
    bench.machine.start_member(bench.now, leader);
    let next = bench.machine.leader().unwrap();
    assert_ne!(next, left);
    let id = connect(&mut bench, left);
    assert!(!read(&mut bench, id).contains(&format!("server.{}=", left + 1)));
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

/// A leader that has left leads no more, although it has not applied the change.
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

/// The log of a member that has left prevents no election of the others.
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

/// The members and their version stay the same under another leader.
#[test]
fn the_members_outlast_their_leader() {
    let mut bench = bench(3);
    let leader = bench.machine.leader().unwrap();
    let id = connect(&mut bench, leader);
    let joining = "server.100=0.0.0.0:4001:4002:observer;0.0.0.0:4003";
    let change = ReconfigRequest {
        joining_servers: Text::new(joining),
        leaving_servers: Text::NULL,
        ..leaving("")
    };
    let answer = bench.call(id, OpCode::Reconfig, &change).unwrap();
    let text = config(&answer);
    assert!(text.contains(joining), "{text}");
    bench.machine.stop_member(bench.now, leader);
    for member in (0..3).filter(|member| *member != leader) {
        let id = connect(&mut bench, member);
        assert_eq!(read(&mut bench, id), text);
    }
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
