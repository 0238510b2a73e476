//! Members that are paused, elections that take time, and the record of applied changes. Time is virtual.

use docent_protocol::Decode as _;

use super::*;

/// Three members with ticks of 1 s. Member 0 leads.
fn ensemble(election_time: Duration) -> Bench {
    Bench::new(Config {
        servers: 3,
        tick_time: ms(1000),
        sync_limit: 3,
        election_time,
        read_only_mode_enabled: false,
        ..Config::default()
    })
}

// Case (Found in docent itself): the embedded ensemble: nothing could pause a member (SIGSTOP), and
// an election took no time.
#[test]
fn a_paused_member_answers_when_it_goes_on() {
    let mut b = ensemble(Duration::ZERO);
    let (id, ..) = b.connect_to(1);
    b.machine.pause_member(b.now, 1);
    assert!(!b.ping(id));
    let new = b.accept(1);
    b.advance(ms(1500));
    assert!(!b.machine.is_closed(id) && !b.machine.is_closed(new));
    b.machine.resume_member(b.now, 1, false);
    assert!(b.answers(id).iter().any(|answer| answer.header.xid == -2), "the ping of before");
    b.advance(ms(20_000));
    assert_eq!(b.machine.role(1), Role::Follower);
}

#[test]
fn a_resumed_leader_answers_its_waiting_clients_from_an_old_tree() {
    for clients_first in [true, false] {
        let mut b = ensemble(Duration::ZERO);
        b.time_out = 60_000;
        let (at_leader, ..) = b.connect_to(0);
        assert_eq!(b.create(at_leader, "/a", 0), ErrorCode::Ok);
        b.machine.pause_member(b.now, 0);
        b.advance(ms(6000));
        let leader = b.machine.leader().unwrap();
        assert_ne!(leader, 0);
        let (other, ..) = b.connect_to(leader);
        assert_eq!(b.set(other, "/a", b"new"), Some(ErrorCode::Ok));
        let read = ReadRequest { path: "/a".into(), watch: false };
        b.send(at_leader, 7, OpCode::GetData, &read);
        assert!(b.answers(at_leader).is_empty());
        b.machine.resume_member(b.now, 0, clients_first);
        // At its next tick it finds that it has no quorum.
        let answers = b.answers(at_leader);
        let read = GetDataReply::decode(&mut Reader::new(&answers[0].body)).unwrap();
        assert_ne!(read.data, Some(&b"new"[..]), "the answer of a former leader");
        b.advance(ms(6000));
        assert_eq!(b.machine.role(0), Role::Follower);
        assert_eq!(b.machine.diverging_path(), None);
    }
}

// Case (Found in docent itself): the embedded ensemble: between two leaders, a paused one that no longer leads was the
// source of the sessions, so a session was there whose nodes the others had deleted (seed 73831 of the simulator).
#[test]
fn the_sessions_are_not_those_of_a_leader_of_an_older_epoch() {
    let mut b = ensemble(Duration::ZERO);
    let (at_leader, ..) = b.connect_to(0);
    assert_eq!(b.create(at_leader, "/a", 1), ErrorCode::Ok);
    b.machine.pause_member(b.now, 0);
    b.advance(ms(60_000));
    let leader = b.machine.leader().unwrap();
    assert_eq!((b.machine.node("/a"), b.machine.session_ids()), (None, vec![]));
    b.machine.stop_member(b.now, leader);
    assert_eq!((b.machine.node("/a"), b.machine.session_ids()), (None, vec![]));
}

#[test]
fn a_resumed_member_handles_messages_in_their_order() {
    let mut b = ensemble(Duration::ZERO);
    b.machine.start_recording();
    let (at_leader, ..) = b.connect_to(0);
    let (at_paused, ..) = b.connect_to(1);
    assert_eq!(b.create(at_leader, "/a", 0), ErrorCode::Ok);
    b.machine.pause_member(b.now, 1);
    for data in [b"1", b"2"] {
        assert_eq!(b.set(at_leader, "/a", data), Some(ErrorCode::Ok));
    }
    assert_eq!(b.set(at_paused, "/a", b"3"), None);
    b.machine.resume_member(b.now, 1, true);
    assert_eq!(b.answers(at_paused).len(), 1);
    assert_eq!(b.machine.node("/a").unwrap().0, "3");
    assert_eq!(b.machine.diverging_path(), None);
    let changes = b.machine.take_changes();
    assert!(changes.is_sorted_by_key(|change| change.zxid));
    let written: Vec<_> = changes.iter().map(|change| change.node.clone().unwrap().1).collect();
    assert_eq!(written.iter().map(|stat| stat.version).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn an_election_takes_its_time() {
    let mut b = ensemble(ms(2000));
    assert_eq!(b.machine.leader(), Some(0), "the first one does not");
    b.machine.stop_member(b.now, 0);
    b.advance(ms(1999));
    assert_eq!(b.machine.leader(), None);
    b.advance(ms(1));
    assert_eq!(b.machine.leader(), Some(1));
    b.machine.start_member(b.now, 0);
    assert_eq!(b.machine.role(0), Role::Follower, "a leader is joined at once");
}

#[test]
fn a_record_has_each_change_of_a_node_once() {
    let mut b = ensemble(Duration::ZERO);
    let (id, session, _) = b.connect_to(1);
    assert_eq!(b.create(id, "/before", 1), ErrorCode::Ok);
    b.machine.start_recording();
    assert_eq!(b.create(id, "/a", 0), ErrorCode::Ok);
    assert_eq!(b.set(id, "/a", b"x"), Some(ErrorCode::Ok));
    assert_eq!(b.set(id, "/missing", b"x"), Some(ErrorCode::NoNode));
    let changes = b.machine.take_changes();
    let seen: Vec<_> = changes.iter().map(|of| (of.path.as_str(), of.event_type)).collect();
    assert_eq!(seen, [("/a", EventType::NodeCreated), ("/a", EventType::NodeDataChanged)]);
    assert_eq!(changes[1].node.as_ref().unwrap().0, "x");
    assert!(changes.iter().all(|change| change.session_id == session));
    assert!(b.machine.take_changes().is_empty());
    assert!(b.machine.expire_session(session));
    let expired = b.machine.take_changes();
    assert_eq!(
        expired.iter().map(|of| (&*of.path, of.session_id)).collect::<Vec<_>>(),
        [("/before", 0)]
    );
}

/// The disks of all members stall.
#[test]
fn a_stalled_disk_delays_writes_and_answers_pings() {
    for servers in [1, 3] {
        let mut b = Bench::new(Config { servers, ..Config::default() });
        let (id, ..) = b.connect_to(servers - 1);
        assert_eq!(b.create(id, "/a", 0), ErrorCode::Ok);
        let (other, ..) = b.connect_to(0);
        b.machine.stall_disks(b.now, true);
        assert_eq!(b.set(id, "/a", b"new"), None);
        assert!(b.ping(other));
        b.advance(ms(500));
        assert_eq!(b.machine.node("/a").unwrap().0, "x");
        b.machine.stall_disks(b.now, false);
        assert_eq!(b.answers(id).len(), 1, "the reply to the write");
        assert_eq!(b.machine.node("/a").unwrap().0, "new");
    }
}

/// A rolling upgrade: members of several versions.
#[test]
fn an_upgraded_member_knows_operations_that_the_others_do_not() {
    let mut b = Bench::new(Config { servers: 3, version: Version::V3_5, ..Config::default() });
    b.machine.set_version(1, Version::V3_9);
    let add = AddWatchRequest { path: "/a".into(), mode: AddWatchMode::Persistent };
    let (id, ..) = b.connect_to(1);
    assert_eq!(b.err(id, OpCode::AddWatch, &add), ErrorCode::Unimplemented, "it runs");
    b.machine.stop_member(b.now, 1);
    b.machine.set_version(1, Version::V3_9);
    b.machine.start_member(b.now, 1);
    let (id, ..) = b.connect_to(1);
    assert_eq!(b.err(id, OpCode::AddWatch, &add), ErrorCode::Ok);
    let (other, ..) = b.connect_to(0);
    assert_eq!(b.create(other, "/a", 0), ErrorCode::Ok);
    assert_eq!(b.events(id).len(), 1);
    assert_eq!(b.err(other, OpCode::AddWatch, &add), ErrorCode::Unimplemented);
}
