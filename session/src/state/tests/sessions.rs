//! Moves, read-only servers, sessions handed in, limits of time and room.

use super::*;
use crate::SessionToken;

fn hosts(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| Host { name: (*name).into(), port: 1 }).collect()
}

impl Story {
    fn accept_read_only(&mut self, session_id: i64) {
        self.feed(&ConnectResponse {
            protocol_version: 0,
            time_out: 6000,
            session_id,
            passwd: Some(b"0123456789abcdef"),
            read_only: Some(true),
        });
        self.flush();
    }

    fn probes(&mut self) -> usize {
        std::iter::from_fn(|| self.machine.poll_event())
            .filter(|event| matches!(event, Event::Probe(_)))
            .count()
    }
}

#[test]
fn a_server_that_is_no_longer_listed_is_left_without_losing_a_request() {
    let mut story = Story::connected();
    story.get("/sent", 1);
    story.flush();
    story.machine.update_server_list(&hosts(&["two", "three"]));
    assert!(!story.is_broken(), "not before the answer");
    story.get("/queued", 2);
    story.flush();
    assert_eq!(story.xids(), [0, 1], "nothing more goes to the old server");
    story.reply(1, 5, ErrorCode::Ok, b"");
    assert!(story.is_broken());
    story.cut();
    assert_eq!(story.done(), [(1, Ok(5))]);
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, 1, 0, 2]);
    story.reply(2, 6, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(2, Ok(6))]);
}

#[test]
fn a_close_is_not_held_up_by_a_move() {
    let mut story = Story::connected();
    story.get("/sent", 1);
    story.flush();
    story.machine.update_server_list(&hosts(&["two"]));
    let until = story.now + ms(1000);
    story.machine.close(Some(9), until);
    story.flush();
    assert_eq!(story.wire.last().unwrap().1, "CloseSession");
}

/// Each server's share of the timeout follows the list, so that one silent server leaves time for the others.
#[test]
fn a_longer_list_shortens_the_wait_for_each_server() {
    let mut story = Story::connected();
    story.machine.update_server_list(&hosts(&["one", "two", "three"]));
    story.cut();
    let connect = loop {
        match story.machine.poll_connect(story.now) {
            Connect::At(at) => story.now = at,
            other => break other,
        }
    };
    let Connect::To(_, deadline) = connect else { panic!("{connect:?}") };
    assert_eq!(deadline.since(story.now), ms(2000));
}

#[test]
fn a_list_without_servers_changes_nothing() {
    let mut story = Story::connected();
    story.machine.update_server_list(&[]);
    assert!(!story.is_broken());
    story.cut();
    story.connect();
}

/// wire-protocol 5.4, pitfall 25: its session is its own; the next server is asked for a new one.
#[test]
fn the_session_of_a_read_only_server_is_left_with_it() {
    let mut story = Story::new(config().with_read_only(true));
    story.connect();
    story.accept_read_only(77);
    let local = story.machine.lease().unwrap().clone();
    assert_eq!(story.states(), [ConnectionState::ReadOnly]);
    story.watch(WatchKind::Data, "/a", 1);
    story.flush();
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.cut();
    story.connect();
    assert!(story.wire.last().unwrap().1.contains("session_id: 0x0"));
    story.accept(7, 6000);
    assert!(local.is_lost());
    assert_eq!(story.machine.lease().unwrap().session_id(), 7);
    assert_eq!(story.states(), [ConnectionState::Suspended, ConnectionState::Connected]);
    assert_eq!(story.machine.watches(), 1, "watches are nobody's session's");
    assert!(story.wire.last().unwrap().1.contains("SetWatches"));
}

/// Servers up to 3.6 resume a global session while they are read-only: it stays the same.
#[test]
fn a_global_session_survives_a_read_only_server() {
    let mut story = Story::new(config().with_read_only(true));
    story.connect();
    story.accept(7, 6000);
    story.cut();
    story.connect();
    story.accept_read_only(7);
    story.cut();
    story.connect();
    assert!(story.wire.last().unwrap().1.contains("session_id: 0x7"));
    story.accept(7, 6000);
    use ConnectionState::{Connected, ReadOnly, Reconnected, Suspended};
    assert_eq!(story.states(), [Connected, Suspended, ReadOnly, Suspended, Reconnected]);
}

#[test]
fn on_a_read_only_server_others_are_asked_with_growing_pauses() {
    let mut config = config().with_read_only(true);
    config.connect_string = "one:1,two:1,three:1".parse().unwrap();
    let mut story = Story::new(config);
    story.connect();
    story.accept_read_only(77);
    let mut asked = Vec::new();
    for _ in 0..300 {
        story.wait(ms(100));
        story.flush();
        story.reply(xid::PING, 5, ErrorCode::Ok, b"");
        asked.push(story.probes());
    }
    let total: usize = asked.iter().sum();
    assert!((7..=9).contains(&total), "{total} in 30 s: 0.1 s, then doubling");
    let current = story.machine.host.clone().unwrap();
    let other = hosts(&["one", "two", "three"]).into_iter().find(|host| *host != current).unwrap();
    story.machine.handle_probe(&other, false);
    assert!(!story.is_broken());
    story.machine.handle_probe(&other, true);
    assert!(story.is_broken());
    story.cut();
    story.now = story.now + ms(1000);
    assert!(matches!(story.machine.poll_connect(story.now), Connect::To(host, _) if host == other));
}

#[test]
fn a_session_that_was_handed_in_is_asked_for() {
    let token = SessionToken::new(0x17, b"fedcba9876543210", 44);
    assert!(!format!("{token:?}").contains("102"), "{token:?}");
    let mut story = Story::new(config().with_session(token));
    assert!(story.machine.lease().is_none(), "only hoped for");
    story.connect();
    let request = &story.wire[0].1;
    assert!(request.contains("last_zxid_seen: 44") && request.contains("session_id: 0x17"));
    story.accept(0x17, 6000);
    let lease = story.machine.lease().unwrap();
    assert!(lease.claim().is_valid(story.now));
    // When it was created, and with which timeout, is not known here.
    assert_eq!(lease.proven_until(), Instant::ZERO);
    let token = story.machine.session_token().unwrap();
    assert_eq!((token.session_id(), token.last_zxid()), (0x17, 44));
}

#[test]
fn a_session_that_was_handed_in_and_has_ended_is_lost() {
    let token = SessionToken::new(0x17, b"fedcba9876543210", 44);
    let mut story = Story::new(config().with_session(token));
    story.connect();
    story.refuse();
    story.cut();
    assert_eq!(story.states(), [ConnectionState::Lost]);
    story.connect();
    assert!(story.wire.last().unwrap().1.contains("session_id: 0x0"));
}

/// reliability case 30: only its own request fails, the late reply is absorbed.
#[test]
fn a_request_without_an_answer_in_time_fails_alone() {
    let mut story = Story::new(config().with_request_timeout(ms(500)));
    story.connect();
    story.accept(7, 6000);
    story.get("/slow", 1);
    story.flush();
    story.now = story.now + ms(400);
    story.get("/fast", 2);
    story.flush();
    assert_eq!(story.machine.poll_timeout(), Some(story.now + ms(100)));
    story.wait(ms(100));
    assert_eq!(story.done(), [(1, Err((ErrorKind::OperationTimeout, Outcome::Unknown)))]);
    assert!(!story.is_broken());
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.reply(2, 6, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(2, Ok(6))]);
    story.get("/next", 3);
    assert_eq!(story.machine.poll_timeout(), Some(story.now + ms(500)));
}

#[test]
fn a_request_that_was_not_sent_in_time_is_not_sent() {
    let mut story = Story::new(config().with_request_timeout(ms(500)));
    story.get("/a", 1);
    story.now = story.now + ms(400);
    story.get("/bb", 2);
    story.wait(ms(100));
    assert_eq!(story.done(), [(1, Err((ErrorKind::OperationTimeout, Outcome::NotApplied)))]);
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, 2]);
    assert_eq!(story.machine.metrics().timed_out, 1);
}

#[test]
fn more_bytes_than_allowed_are_refused_unless_alone() {
    let mut config = config();
    config.max_pending_bytes = 60;
    let mut story = Story::new(config);
    story.get(&format!("/{}", "x".repeat(100)), 1);
    story.get("/a", 2);
    assert_eq!(story.done(), [(2, Err((ErrorKind::TooManyRequests, Outcome::NotApplied)))]);
    story.connect();
    story.accept(7, 6000);
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.get("/a", 3);
    story.get("/b", 4);
    story.flush();
    assert_eq!(story.done(), [(1, Ok(5))]);
    assert_eq!(story.machine.metrics().pending_bytes, 2 * 19);
}

#[test]
fn who_waits_for_room_is_woken_when_half_of_it_is_free() {
    let mut config = config();
    config.max_requests = 4;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story.machine.wait_for_room(10);
    assert_eq!(story.done().len(), 1, "there is room");
    for token in 1..=4 {
        story.get("/a", token);
    }
    story.flush();
    story.machine.wait_for_room(11);
    story.machine.wait_for_room(12);
    story.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(1, Ok(5))]);
    story.reply(2, 5, ErrorCode::Ok, b"");
    let mut woken: Vec<_> = story.done().into_iter().map(|(token, _)| token).collect();
    woken.sort_unstable();
    assert_eq!(woken, [2, 11, 12]);
}

#[test]
fn who_waits_for_room_hears_of_the_end() {
    let mut config = config();
    config.max_requests = 1;
    let mut story = Story::new(config);
    story.get("/a", 1);
    story.machine.wait_for_room(2);
    story.machine.close(None, Instant::ZERO);
    let done = story.done();
    assert!(done.contains(&(2, Err((ErrorKind::Closed, Outcome::NotApplied)))), "{done:?}");
}

#[test]
fn an_idle_session_gives_back_what_a_burst_took() {
    let mut story = Story::connected();
    for token in 0..10_000 {
        story.get("/a", token);
    }
    story.flush();
    for xid in 1..=10_000 {
        story.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert_eq!(story.done().len(), 10_000);
    story.wait(ms(2000));
    let machine = &story.machine;
    assert!(machine.pending.capacity() <= 32 && machine.answers.capacity() <= 32);
    assert!(machine.outgoing.capacity() <= 1024);
}

#[test]
fn what_happens_is_counted() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.get("/b", 2);
    story.get(&"/x".repeat(1 << 20), 3);
    story.flush();
    story.now = story.now + ms(3);
    story.reply(1, 5, ErrorCode::Ok, b"12345678");
    story.event(EventType::NodeCreated, "/x");
    story.reply(2, 6, ErrorCode::NoNode, b"");
    story.wait(ms(2000));
    story.cut();
    story.connect();
    story.accept(7, 6000);
    let metrics = story.machine.metrics();
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

/// pitfall 17: which of several reasons it was, no server says; the text names the possible ones.
#[test]
fn a_server_that_may_be_behind_is_named_as_such() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.flush();
    story.reply(1, 0x99, ErrorCode::Ok, b"");
    story.cut();
    story.connect();
    story.cut();
    let failure = story.machine.last_failure().unwrap();
    assert!(failure.contains("behind our last zxid 0x99"), "{failure}");
}

/// Servers go back to the timeout of the creation after a change of leader, whatever was asked for since.
#[test]
fn an_heir_asks_for_the_timeout_that_the_session_was_made_with() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.flush();
    story.reply(1, 9, ErrorCode::Ok, b"");
    let token = story.machine.session_token().unwrap();
    assert_eq!(token.session_timeout(), Some(ms(6000)));

    let config = config().with_session_timeout(ms(60_000)).with_session(token);
    let mut heir = Story::new(config);
    assert_eq!(heir.machine.timeouts().session, ms(6000));
    for _ in 0..2 {
        heir.connect();
        let asked = &heir.wire.last().unwrap().1;
        assert!(asked.contains("time_out: 6000, session_id: 0x7"), "{asked}");
        heir.accept(7, 6000);
        heir.cut();
    }
    // A new session is the heir's own.
    heir.wait(ms(6000));
    heir.connect();
    let asked = &heir.wire.last().unwrap().1;
    assert!(asked.contains("time_out: 60000, session_id: 0x0"), "{asked}");

    let unknown = config_of_parts();
    let mut heir = Story::new(unknown);
    heir.connect();
    assert!(heir.wire[0].1.contains("time_out: 60000, session_id: 0x7"));
}

fn config_of_parts() -> Config {
    let token = SessionToken::new(7, b"0123456789abcdef", 9);
    config().with_session_timeout(ms(60_000)).with_session(token)
}

impl Story {
    /// An attempt that a server ends without a word.
    fn closed_without_a_word_by(&mut self, name: &str) {
        self.connect();
        let why = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown);
        let host = Host { name: name.into(), port: 1 };
        self.machine.handle_disconnected(self.now, &host, &why);
    }
}

/// pitfall 17: data that were wiped or restored, or the wrong ensemble.
#[test]
fn who_is_ahead_of_every_server_hears_of_it_and_goes_on_with_a_new_session() {
    let list = Config::new("one:1,two:1,three:1").unwrap().with_session_timeout(ms(6000));
    let mut story = Story::new(list);
    story.connect();
    story.accept(7, 6000);
    story.get("/a", 1);
    story.flush();
    story.reply(1, 0x99, ErrorCode::Ok, b"");
    story.cut();
    story.done();
    story.get("/b", 2);
    for name in ["one", "two", "two"] {
        story.closed_without_a_word_by(name);
        assert_eq!(story.machine.ahead_of_servers(), None, "one is left");
    }
    story.closed_without_a_word_by("three");
    assert_eq!(story.machine.ahead_of_servers(), Some(0x99));
    let why = story.machine.last_failure().unwrap();
    assert!(why.contains("by any server") && why.contains("0x99"), "{why}");

    story.wait(ms(6000));
    let error = story.machine.poll_completion().unwrap().result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionExpired);
    assert!(error.to_string().contains("behind the last zxid 0x99"), "{error}");
    assert_eq!(story.machine.ahead_of_servers(), None, "a new session has seen nothing");
    story.connect();
    assert!(story.wire.last().unwrap().1.contains("last_zxid_seen: 0, "));
}

#[test]
fn a_server_that_fails_otherwise_or_answers_is_not_behind() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.flush();
    story.reply(1, 0x99, ErrorCode::Ok, b"");
    story.cut();
    story.closed_without_a_word_by("one");
    assert_eq!(story.machine.ahead_of_servers(), Some(0x99));
    // Not even reached.
    while !matches!(story.machine.poll_connect(story.now), Connect::To(..)) {
        story.now = story.now + ms(100);
    }
    story.cut();
    assert_eq!(story.machine.ahead_of_servers(), None);
    story.closed_without_a_word_by("one");
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.machine.ahead_of_servers(), None);
}

/// Nobody would leave it later: only who is connected looks at its server.
#[test]
fn an_attempt_at_a_server_that_is_no_longer_listed_is_given_up() {
    for handshaking in [false, true] {
        let mut story = Story::new(config());
        if handshaking {
            story.connect();
        } else {
            assert!(matches!(story.machine.poll_connect(story.now), Connect::To(..)));
        }
        story.machine.update_server_list(&hosts(&["one", "two"]));
        assert!(!story.is_broken(), "it is still listed");
        story.machine.update_server_list(&hosts(&["two", "three"]));
        assert!(story.is_broken());
        story.cut();
        let Connect::To(host, _) = (loop {
            match story.machine.poll_connect(story.now) {
                Connect::At(at) => story.now = at,
                other => break other,
            }
        }) else {
            panic!("no attempt")
        };
        assert_ne!(host.name, "one");
    }
}

/// The answer of a server that is no longer listed is no reason to leave for one that nobody has asked.
#[test]
fn a_probe_of_a_server_that_is_no_longer_listed_moves_nobody() {
    let mut config = config().with_read_only(true);
    config.connect_string = "one:1,two:1".parse().unwrap();
    let mut story = Story::new(config);
    story.connect();
    story.accept_read_only(7);
    let current = story.machine.server().unwrap().clone();
    story.machine.update_server_list(&[current, Host { name: "three".into(), port: 1 }]);
    story.machine.handle_probe(&Host { name: "gone".into(), port: 1 }, true);
    assert!(!story.is_broken());
    story.machine.handle_probe(&Host { name: "three".into(), port: 1 }, true);
    assert!(story.is_broken());
}

/// One name may stand for all servers, each at an address of its own.
#[test]
fn on_a_read_only_server_of_the_only_name_the_name_is_asked_again() {
    let mut story = Story::new(config().with_read_only(true));
    story.connect();
    story.accept_read_only(7);
    story.wait(ms(100));
    let probed = std::iter::from_fn(|| story.machine.poll_event()).find_map(|event| match event {
        Event::Probe(host) => Some(host),
        _ => None,
    });
    let host = probed.expect("a probe");
    assert_eq!(Some(&host), story.machine.server());
    story.machine.handle_probe(&host, false);
    assert!(!story.is_broken());
    story.machine.handle_probe(&host, true);
    assert!(story.is_broken());
}
