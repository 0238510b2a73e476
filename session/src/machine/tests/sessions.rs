//! Migrations, read-only servers, resumed sessions, limits of time and memory.

use docent_protocol::{
    multi::{MultiReply, MultiResult},
    operation::{Multi, Write},
};

use super::*;
use crate::SessionToken;

fn hosts(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| host(name)).collect()
}

impl Scenario {
    pub(super) fn accept_read_only(&mut self, session_id: i64) {
        self.feed(&ConnectResponse { read_only: Some(true), ..granted(session_id, 6000) });
        self.flush();
    }

    fn probes(&mut self) -> usize {
        self.events(|event| matches!(event, Event::Probe(_)).then_some(())).len()
    }
}

#[test]
fn a_server_that_is_no_longer_listed_is_left_without_losing_a_request() {
    let mut scenario = Scenario::connected();
    scenario.send_get("/sent", 1);
    scenario.machine.update_server_list(&hosts(&["two", "three"]));
    assert!(!scenario.is_broken(), "not before the answer");
    scenario.send_get("/queued", 2);
    assert_eq!(scenario.xids(), [0, 1], "nothing more goes to the old server");
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert!(scenario.is_broken());
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Ok(5))]);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, 1, 0, 2]);
    scenario.reply(2, 6, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(2, Ok(6))]);
}

/// The servers of the list share the connection timeout, and what is left of the session, so that one silent server leaves
/// time for the others.
#[test]
fn a_longer_list_shortens_the_wait_for_each_server() {
    for left in [5700, 2900] {
        let mut scenario = Scenario::connected();
        scenario.machine.update_server_list(&hosts(&["one", "two", "three"]));
        let end = scenario.lease().deadline();
        scenario.now = end - ms(left);
        scenario.cut();
        let (_, deadline) = scenario.attempt();
        let share = end.duration_since(scenario.now) / 3;
        assert_eq!(deadline.duration_since(scenario.now), share.min(ms(1000)));
    }
}

#[test]
fn a_list_without_servers_changes_nothing() {
    let mut scenario = Scenario::connected();
    scenario.machine.update_server_list(&[]);
    assert!(!scenario.is_broken());
    scenario.cut_and_connect();
}

/// The session of a read-only server exists on that server only; the handshake with the next server asks for a new one.
// Case (Pitfalls of the wire, 25): read-only servers.
#[test]
fn the_session_of_a_read_only_server_is_left_with_it() {
    let mut scenario = Scenario::connecting(config().with_read_only(true));
    scenario.accept_read_only(77);
    let local = scenario.machine.lease().unwrap().clone();
    assert_eq!(scenario.states(), [ConnectionState::ReadOnly]);
    scenario.set_watch(WatchKind::Data, "/a", 1);
    scenario.cut_and_connect();
    assert!(scenario.last_sent().contains("session_id: 0x0"));
    scenario.accept(7, 6000);
    assert!(local.is_lost());
    assert_eq!(scenario.machine.lease().unwrap().session_id(), 7);
    assert_eq!(scenario.states(), [ConnectionState::Suspended, ConnectionState::Connected]);
    assert_eq!(scenario.machine.watches(), 1, "watches belong to no session");
    assert!(scenario.last_sent().contains("SetWatches"));
}

/// Servers up to 3.6 resume a global session while they are read-only: it stays the same.
#[test]
fn a_global_session_survives_a_read_only_server() {
    let mut scenario = Scenario::connected_with(config().with_read_only(true));
    scenario.cut_and_connect();
    scenario.accept_read_only(7);
    scenario.cut_and_connect();
    assert!(scenario.last_sent().contains("session_id: 0x7"));
    scenario.accept(7, 6000);
    use ConnectionState::{Connected, ReadOnly, Reconnected, Suspended};
    assert_eq!(scenario.states(), [Connected, Suspended, ReadOnly, Suspended, Reconnected]);
}

#[test]
fn on_a_read_only_server_others_are_asked_with_growing_pauses() {
    let config =
        config().with_read_only(true).with_connect_string("one:1,two:1,three:1".parse().unwrap());
    let mut scenario = Scenario::connecting(config);
    scenario.accept_read_only(77);
    let mut asked = Vec::new();
    for _ in 0..300 {
        scenario.wait_and_flush(ms(100));
        if scenario.machine.connection.has_pings() {
            scenario.reply(xid::PING, 5, ErrorCode::Ok, b"");
        }
        asked.push(scenario.probes());
    }
    let total: usize = asked.iter().sum();
    assert!((7..=9).contains(&total), "{total} in 30 s: 0.1 s, then doubling");
    let current = scenario.machine.connection.host().unwrap().clone();
    let other = hosts(&["one", "two", "three"]).into_iter().find(|host| *host != current).unwrap();
    scenario.machine.handle_probe(&other, false);
    assert!(!scenario.is_broken());
    scenario.machine.handle_probe(&other, true);
    assert!(scenario.is_broken());
    scenario.cut();
    scenario.now += ms(1000);
    assert_eq!(scenario.attempt_at_once().0, other);
}

#[test]
fn a_session_that_was_handed_in_is_asked_for() {
    let token = SessionToken::new(0x17, b"fedcba9876543210", 44);
    assert!(!format!("{token:?}").contains("102"), "{token:?}");
    let mut scenario = Scenario::new(config().with_session(token));
    assert!(scenario.machine.lease().is_none(), "only hoped for");
    scenario.connect();
    let request = &scenario.wire[0].1;
    assert!(request.contains("last_zxid_seen: 44") && request.contains("session_id: 0x17"));
    scenario.accept(0x17, 6000);
    let lease = scenario.machine.lease().unwrap();
    assert!(lease.claim().is_valid(scenario.now));
    // When it was created, and with which timeout, is not known here.
    assert_eq!(lease.proven_until(), Instant::ZERO);
    let token = scenario.machine.session_token().unwrap();
    assert_eq!((token.session_id(), token.last_zxid()), (0x17, 44));
}

#[test]
fn a_session_that_was_handed_in_and_has_ended_is_lost() {
    let token = SessionToken::new(0x17, b"fedcba9876543210", 44);
    let mut scenario = Scenario::connecting(config().with_session(token.clone()));
    scenario.refuse();
    scenario.cut();
    assert_eq!(scenario.states(), [ConnectionState::Lost]);
    scenario.connect();
    assert!(scenario.last_sent().contains("session_id: 0x0"));
    // If no server replies, it is lost after the session timeout.
    let mut scenario = Scenario::new(config().with_session(token));
    let begin = scenario.now;
    while !scenario.states().contains(&ConnectionState::Lost) {
        assert!(scenario.now < begin + ms(10_000), "it is asked for without end");
        scenario.connect();
        scenario.cut();
        scenario.wait(ms(100));
    }
}

/// Only the request that timed out fails; its late reply is dropped.
// Case (Failure cases, 30): answers slower than timeouts.
#[test]
fn a_request_without_an_answer_in_time_fails_alone() {
    let mut scenario = Scenario::connected_with(config().with_request_timeout(ms(500)));
    scenario.send_get("/slow", 1);
    scenario.now += ms(400);
    scenario.send_get("/fast", 2);
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(100)));
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(1, LATE)]);
    assert!(!scenario.is_broken());
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.reply(2, 6, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(2, Ok(6))]);
    scenario.get("/next", 3);
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(500)));
}

#[test]
fn a_request_that_was_not_sent_in_time_is_not_sent() {
    let mut scenario = Scenario::new(config().with_request_timeout(ms(500)));
    scenario.get("/a", 1);
    scenario.now += ms(400);
    scenario.get("/bb", 2);
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::OperationTimeout))]);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, 2]);
    assert_eq!(scenario.machine.metrics().timed_out, 1);
}

#[test]
fn more_bytes_than_allowed_are_refused_unless_alone() {
    let mut scenario = Scenario::new(config().with_max_pending_bytes(60));
    scenario.get(&format!("/{}", "x".repeat(100)), 1);
    scenario.get("/a", 2);
    assert_eq!(scenario.completions(), [(2, refused(ErrorKind::TooManyRequests))]);
    scenario.resume();
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.get("/a", 3);
    scenario.send_get("/b", 4);
    assert_eq!(scenario.completions(), [(1, Ok(5))]);
    assert_eq!(scenario.machine.metrics().pending_bytes, 2 * 19);
}

#[test]
fn a_waiter_for_capacity_is_woken_when_half_of_it_is_free() {
    let mut scenario = Scenario::connected_with(config().with_max_requests(4));
    scenario.machine.wait_for_capacity(10);
    assert_eq!(scenario.completions().len(), 1, "there is capacity");
    scenario.send_each("/a", 1..=4);
    scenario.machine.wait_for_capacity(11);
    scenario.machine.wait_for_capacity(12);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(5))]);
    scenario.reply(2, 5, ErrorCode::Ok, b"");
    let mut woken: Vec<_> = scenario.completions().into_iter().map(|(token, _)| token).collect();
    woken.sort_unstable();
    assert_eq!(woken, [2, 11, 12]);
}

// Case (Found in docent itself): whoever waited for capacity waited on behind a close.
#[test]
fn a_waiter_for_capacity_is_notified_of_the_end() {
    let mut scenario = Scenario::new(config().with_max_requests(1));
    scenario.get("/a", 1);
    scenario.machine.wait_for_capacity(2);
    scenario.machine.close(None, Instant::ZERO);
    let done = scenario.completions();
    assert!(done.contains(&(2, refused(ErrorKind::Closed))), "{done:?}");
}

#[test]
fn an_idle_session_frees_the_memory_of_a_burst() {
    let mut scenario = Scenario::connected();
    scenario.send_each("/a", 0..10_000);
    scenario.machine.limit(1, scenario.now, ms(60_000));
    scenario.reply_each(1..=10_000);
    assert_eq!(scenario.completions().len(), 10_000);
    scenario.wait(ms(2000));
    let machine = &scenario.machine;
    let (bytes, entries) = machine.requests.capacities();
    assert!(bytes <= 1024 && entries <= 32 && machine.answers.capacity() <= 32);
    assert_eq!(machine.requests.limits(), 0);
}

/// To free the memory and allocate it again for each burst would cost more than it saves.
#[test]
fn a_busy_session_keeps_the_memory_of_its_bursts() {
    let mut scenario = Scenario::connected();
    scenario.send_each("/a", 0..10_000);
    scenario.reply_each(1..10_000);
    let before = scenario.machine.requests.capacities();
    scenario.wait_and_flush(ms(2000));
    assert_eq!(scenario.machine.metrics().pings, 1);
    assert_eq!(scenario.machine.requests.capacities(), before);
}

#[test]
fn sessions_and_requests_are_counted() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.get("/b", 2);
    scenario.send_get(&"/x".repeat(1 << 20), 3);
    scenario.now += ms(3);
    scenario.reply(1, 5, ErrorCode::Ok, b"12345678");
    scenario.event(EventType::NodeCreated, "/x");
    scenario.reply(2, 6, ErrorCode::NoNode, b"");
    scenario.wait(ms(2000));
    scenario.cut_and_resume();
    let metrics = scenario.machine.metrics();
    assert_eq!((metrics.requests, metrics.replies, metrics.error_replies), (2, 2, 1));
    assert_eq!((metrics.refused, metrics.events, metrics.pings), (1, 1, 1));
    assert_eq!((metrics.attempts, metrics.connections, metrics.sessions), (2, 2, 1));
    assert_eq!(metrics.bytes_sent, 2 * 49 + 2 * 19);
    assert_eq!(metrics.bytes_received, 2 * 41 + 28 + 20 + 34);
    assert_eq!(
        (metrics.latency.count(), metrics.latency.quantile(0.5)),
        (2, Duration::from_micros(4096))
    );
}

/// A server does not send the reason of its refusal; the error names the possible ones.
#[test]
fn a_server_that_may_be_behind_is_named_as_such() {
    let mut scenario = Scenario::connected();
    scenario.read("/a", 1, 0x99);
    scenario.cut_and_connect();
    scenario.cut();
    assert_contains(scenario.machine.last_failure_text().unwrap(), &["behind our last zxid 0x99"]);
}

/// Servers go back to the timeout of the creation after a change of leader, whatever was asked for since.
// Case (Found in docent itself): an heir asked for its own session timeout, which servers drop
// after a change of leader.
#[test]
fn an_heir_asks_for_the_timeout_that_the_session_was_made_with() {
    let mut scenario = Scenario::connected();
    scenario.read("/a", 1, 9);
    let token = scenario.machine.session_token().unwrap();
    assert_eq!(token.session_timeout(), Some(ms(6000)));

    let mut heir = Scenario::new(config().with_session_timeout(ms(60_000)).with_session(token));
    assert_eq!(heir.machine.timeouts().session, ms(6000));
    for _ in 0..2 {
        heir.connect();
        assert_contains(heir.last_sent(), &["time_out: 6000, session_id: 0x7"]);
        heir.accept(7, 6000);
        heir.cut();
    }
    // A new session has the heir's own timeout.
    heir.wait(ms(6000));
    heir.connect();
    assert_contains(heir.last_sent(), &["time_out: 60000, session_id: 0x0"]);

    // A token whose timeout is not known.
    let token = SessionToken::new(7, b"0123456789abcdef", 9);
    let config = config().with_session_timeout(ms(60_000)).with_session(token);
    let heir = Scenario::connecting(config);
    assert!(heir.wire[0].1.contains("time_out: 60000, session_id: 0x7"));
}

impl Scenario {
    /// An attempt that a server ends silently.
    fn closed_silently_by(&mut self, name: &str) {
        self.connect();
        self.cut_from(&host(name));
    }
}

/// The client has seen a zxid that no server has: wiped or restored data, or another ensemble.
#[test]
fn a_client_ahead_of_every_server_reports_it_and_continues_with_a_new_session() {
    let list = Config::new("one:1,two:1,three:1").unwrap().with_session_timeout(ms(6000));
    let mut scenario = Scenario::connected_with(list);
    scenario.read("/a", 1, 0x99);
    scenario.cut();
    scenario.completions();
    scenario.get("/b", 2);
    for name in ["one", "two", "two"] {
        scenario.closed_silently_by(name);
        assert_eq!(scenario.machine.ahead_of_servers(), None, "one is left");
    }
    scenario.closed_silently_by("three");
    assert_eq!(scenario.machine.ahead_of_servers(), Some(0x99));
    assert_contains(scenario.machine.last_failure_text().unwrap(), &["from any server", "0x99"]);

    scenario.wait(ms(6000));
    let error = scenario.machine.poll_completion().unwrap().result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionExpired);
    assert!(error.to_string().contains("behind the last zxid 0x99"), "{error}");
    assert_eq!(scenario.machine.ahead_of_servers(), None, "a new session has seen nothing");
    scenario.connect();
    assert!(scenario.last_sent().contains("last_zxid_seen: 0, "));
}

#[test]
fn a_server_that_fails_otherwise_or_answers_is_not_behind() {
    let mut scenario = Scenario::connected();
    scenario.read("/a", 1, 0x99);
    scenario.cut();
    scenario.closed_silently_by("one");
    assert_eq!(scenario.machine.ahead_of_servers(), Some(0x99));
    // A server that is not even reached.
    scenario.attempt();
    scenario.cut();
    assert_eq!(scenario.machine.ahead_of_servers(), None);
    scenario.closed_silently_by("one");
    scenario.resume();
    assert_eq!(scenario.machine.ahead_of_servers(), None);
}

/// Otherwise such a server would never be left: only a connected client checks its server.
// Case (Found in docent itself): a client that was connecting to a server just taken off the list
// stayed with it.
#[test]
fn an_attempt_at_a_server_that_is_no_longer_listed_is_given_up() {
    for handshaking in [false, true] {
        let mut scenario = Scenario::new(config());
        if handshaking {
            scenario.connect();
        } else {
            scenario.attempt_at_once();
        }
        scenario.machine.update_server_list(&hosts(&["one", "two"]));
        assert!(!scenario.is_broken(), "it is still listed");
        scenario.machine.update_server_list(&hosts(&["two", "three"]));
        assert!(scenario.is_broken());
        scenario.cut();
        assert_ne!(scenario.attempt().0.name, "one");
    }
}

/// The client moves to a server that it has asked, not because of one that has left the list.
// Case (Found in docent itself): a probe of a server that was no longer listed made the client
// move.
#[test]
fn a_probe_of_a_server_that_is_no_longer_listed_starts_no_migration() {
    let config = config().with_read_only(true).with_connect_string("one:1,two:1".parse().unwrap());
    let mut scenario = Scenario::connecting(config);
    scenario.accept_read_only(7);
    let current = scenario.machine.server().unwrap().clone();
    scenario.machine.update_server_list(&[current, host("three")]);
    scenario.machine.handle_probe(&host("gone"), true);
    assert!(!scenario.is_broken());
    scenario.machine.handle_probe(&host("three"), true);
    assert!(scenario.is_broken());
}

/// One name may stand for all servers, each at its own address.
// Case (Found in docent itself): on a read-only server with the only name in the list, no other was
// looked for.
#[test]
fn on_a_read_only_server_of_the_only_name_the_name_is_asked_again() {
    let mut scenario = Scenario::connecting(config().with_read_only(true));
    scenario.accept_read_only(7);
    scenario.wait(ms(100));
    let probes = scenario.events(|event| match event {
        Event::Probe(host) => Some(host),
        _ => None,
    });
    let host = probes.into_iter().next().expect("a probe");
    assert_eq!(Some(&host), scenario.machine.server());
    scenario.machine.handle_probe(&host, false);
    assert!(!scenario.is_broken());
    scenario.machine.handle_probe(&host, true);
    assert!(scenario.is_broken());
}

/// A server of version 3.4 keeps the connection after this reply: each later transaction would fail in the same way.
#[test]
fn a_session_that_has_moved_leaves_the_connection() {
    let moved = MultiResult::Error(ErrorCode::SessionMoved);
    let mut results = BytesMut::new();
    MultiReply::new(&[moved, moved]).encode(&mut results);
    let submit = |scenario: &mut Scenario, way: u8| {
        let mut check = Multi::new();
        check.push(&Write::check("/lock", -1));
        match way {
            0 => scenario.machine.submit(&check, 1, None, scenario.clock()),
            1 => scenario.machine.submit_reserved(&check, 1, scenario.clock()),
            _ => scenario.machine.submit_proof(&check, 1, scenario.clock()),
        }
        scenario.flush();
    };
    for way in 0..3 {
        let mut scenario = Scenario::connected();
        submit(&mut scenario, way);
        scenario.reply(1, 5, ErrorCode::Ok, &results);
        assert!(scenario.is_broken());
        let [(1, Ok(_))] = &scenario.completions()[..] else { panic!("its results") };

        let mut scenario = Scenario::connected();
        submit(&mut scenario, way);
        scenario.reply(1, 5, ErrorCode::SessionMoved, b"");
        assert!(scenario.is_broken());
        let [(1, Err(error))] = &scenario.completions()[..] else { panic!("its error") };
        assert_eq!(error.0, ErrorKind::SessionMoved);
    }
}
