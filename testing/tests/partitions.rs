//! An ensemble that is cut: the requests its members answer, for how long, and what a client may conclude. Time is
//! virtual.
//!
//! The effects of the cuts were measured on three real 3.8.0 servers; `tests/ensemble` in the root crate has cases
//! on real ones.

use super::*;

/// Three members. Member 0 leads.
fn ensemble(tick: u64, sync_limit: u32) -> Bench {
    Bench::new(Config {
        servers: 3,
        tick_time: ms(tick),
        sync_limit,
        min_session_timeout: Some(ms(500)),
        read_only_mode_enabled: false,
        ..Config::default()
    })
}

/// A session with a timeout, and its ephemeral node.
fn session(
    b: &mut Bench,
    member: usize,
    time_out: i32,
    node: &str,
) -> (ConnectionId, i64, Vec<u8>) {
    b.time_out = time_out;
    let (id, session, passwd) = b.connect_to(member);
    assert_eq!(b.create(id, node, 1), ErrorCode::Ok);
    (id, session, passwd)
}

/// Whether a node exists, as a new session on this member sees it.
fn exists_on(b: &mut Bench, member: usize, path: &str) -> bool {
    b.time_out = 60_000;
    let (id, ..) = b.connect_to(member);
    let found = b.exists(id, path, false) == ErrorCode::Ok;
    b.empty(id, OpCode::CloseSession);
    found
}

/// Cuts a follower off, with a client that pings and reads every third of its timeout of 6 s. Returns how long before
/// the naive bound ("the last answered request was sent, plus the timeout") the client's node was deleted.
fn early(first_ping: Duration, cut_after: Duration) -> Duration {
    let mut b = ensemble(1000, 5);
    let (id, ..) = session(&mut b, 1, 6000, "/e");
    b.time_out = 60_000;
    let (watcher, ..) = b.connect_to(0);
    let (mut last, mut deleted, cut) = (b.now, None, ms(8000) + cut_after);
    b.advance(first_ping);
    for step in 0.. {
        if b.now == cut {
            b.machine.isolate(b.now, 1);
        }
        if step % 40 == 0 && !b.machine.is_closed(id) {
            assert!(b.ping(id), "{step}");
            assert_eq!(b.exists(id, "/e", false), ErrorCode::Ok, "its own tree has the node");
            last = b.now;
        }
        if b.exists(watcher, "/e", false) == ErrorCode::NoNode {
            deleted.get_or_insert(b.now);
        }
        if let Some(deleted) = deleted.filter(|_| b.machine.is_closed(id)) {
            assert!(deleted <= cut + ms(7050));
            let is_answered = last > cut + ms(2000) && last < cut + ms(5000);
            assert!(is_answered, "while it was cut off: {last:?}");
            return last + ms(6000) - deleted;
        }
        b.advance(ms(50));
    }
    unreachable!()
}

/// The node is deleted while its owner still receives replies. Real servers with these settings deleted it up to 5.69 s
/// early; syncLimit, and the longest time without a report of the session to the leader, bound it by 7 s.
#[test]
fn an_isolated_follower_answers_for_a_session_that_the_leader_expires() {
    let phases = [1400, 1450, 1700, 1950].map(ms);
    let cases = phases.into_iter().flat_map(|ping| (0..40).map(move |step| (ping, ms(step * 50))));
    let worst = cases.map(|(ping, cut)| early(ping, cut)).max().unwrap();
    assert!(worst > ms(5400) && worst < ms(7000), "{worst:?}");
}

/// The leader receives the sessions of a follower's clients in reply to its pings, every half tick.
#[test]
fn a_follower_reports_its_sessions_every_half_tick() {
    for (cut_at, expires_at) in [(1950, 3000), (2050, 5000)] {
        let mut b = ensemble(1000, 10);
        b.advance(ms(100));
        let (id, ..) = session(&mut b, 1, 2000, "/e");
        b.advance(ms(1800));
        assert!(b.ping(id));
        b.advance(ms(cut_at) - b.now);
        b.machine.isolate(b.now, 1);
        b.advance(ms(expires_at - 1) - b.now);
        assert!(exists_on(&mut b, 0, "/e"), "cut at {cut_at}");
        b.advance(ms(1));
        assert!(!exists_on(&mut b, 0, "/e"), "cut at {cut_at}");
    }
}

/// A write through a follower is committed, but does not renew the session. With a timeout below the tick, the session
/// expires between two reports, although network and servers are healthy.
#[test]
fn a_write_through_a_follower_does_not_renew_the_session() {
    let mut b = ensemble(6000, 5);
    // The leader's pings fall 100 ms behind the expiries: at 3100, 6100, 9100.
    b.advance(ms(100));
    b.machine.stop_member(b.now, 0);
    b.machine.start_member(b.now, 0);
    assert_eq!(b.machine.leader(), Some(1));
    let (follower, ..) = session(&mut b, 2, 2000, "/f");
    let (leader, ..) = session(&mut b, 1, 2000, "/l");
    let mut last = b.now;
    while !b.machine.is_closed(follower) {
        assert_eq!(b.set(leader, "/l", b""), Some(ErrorCode::Ok));
        assert_eq!(b.set(follower, "/f", b""), Some(ErrorCode::Ok));
        last = b.now;
        b.advance(ms(100));
        assert!(b.now < ms(60_000), "never");
    }
    assert!(b.now - last <= ms(100));
    assert!(!exists_on(&mut b, 1, "/f") && exists_on(&mut b, 1, "/l"));
}

/// A change that no majority has accepted takes effect if its leader leads again, long after its client lost the
/// connection.
#[test]
fn a_write_without_a_majority_may_take_effect_later() {
    let mut b = ensemble(500, 5);
    let (writer, ..) = session(&mut b, 0, 10_000, "/x");
    for member in 0..3 {
        b.machine.isolate(b.now, member);
    }
    assert_eq!(b.set(writer, "/x", b"late"), None);
    // A member that lags goes on up to the last write of its own clients, but no further than what is committed.
    for lags in [true, false] {
        b.machine.set_lag(b.now, 0, lags);
        assert_eq!(b.answers(writer), []);
    }
    b.advance(ms(4000));
    assert!(b.machine.is_closed(writer));
    assert_eq!(b.machine.leader(), None);
    b.machine.heal_all(b.now);
    assert_eq!(b.machine.leader(), Some(0));
    let (again, ..) = b.connect_to(1);
    assert_eq!(b.data(again, "/x"), b"late");
}

/// A write that its follower has sent arrives when the link is healed, if both ends still have their connection. The
/// client gets its reply late.
#[test]
fn a_short_cut_delays_messages() {
    let mut b = ensemble(500, 5);
    let (id, ..) = session(&mut b, 1, 10_000, "/x");
    b.machine.isolate(b.now, 1);
    for (xid, data, version) in [(1, b"1", -1), (2, b"2", 0)] {
        let set = SetDataRequest { path: "/x".into(), data: Some(data), version };
        b.send(id, xid, OpCode::SetData, &set);
    }
    b.send(id, 3, OpCode::Sync, &PathRequest { path: "/".into() });
    b.send(id, 4, OpCode::GetData, &ReadRequest { path: "/x".into(), watch: false });
    b.send(id, 5, OpCode::Create, &create("/x", b"", 0));
    b.send(id, -2, OpCode::Ping, &RawBody(&[]));
    b.advance(ms(2000));
    assert_eq!(b.answers(id), []);
    assert!(b.machine.is_cut(1, 0) && b.machine.is_cut(0, 1));
    b.machine.heal_all(b.now);
    let answers: Vec<_> = b.answers(id).iter().map(|a| (a.header.xid, a.header.err)).collect();
    let (ok, bad) = (ErrorCode::Ok, ErrorCode::BadVersion);
    let exists = ErrorCode::NodeExists;
    assert_eq!(answers, [(1, ok), (2, bad), (3, ok), (4, ok), (5, exists), (-2, ok)]);
    b.advance(ms(10_000));
    assert!(!b.machine.is_closed(id) || b.machine.session_ids().is_empty());
}

/// A handshake waits for the leader, and so do the requests sent behind it.
#[test]
fn a_handshake_on_an_isolated_follower_waits() {
    let mut b = ensemble(500, 5);
    let (_, session, passwd) = session(&mut b, 0, 10_000, "/e");
    b.machine.isolate(b.now, 1);
    let (new, resumed, wrong) = (b.accept(1), b.accept(1), b.accept(1));
    b.ask(new, 0, &[0; 16], Some(false), 0);
    b.ask(resumed, session, &passwd, Some(false), 0);
    b.ask(wrong, session ^ 1, &passwd, Some(false), 0);
    b.send(new, 1, OpCode::Create, &create("/new", b"", 1));
    b.advance(ms(1000));
    assert_eq!(b.greeting(new), Greeting::Silence);
    assert!(b.greeting(wrong).is_refused(), "the follower checks the password");
    b.machine.heal_all(b.now);
    assert!(matches!(b.greeting(new), Greeting::Session { .. }));
    assert_eq!(b.greeting(resumed).session().0, session);
    assert_eq!(b.answers(new).len(), 1);
    // A handshake without a path to the leader ends when the follower gives up its leader.
    b.machine.isolate(b.now, 1);
    let (id, greeting) = b.greet(1, 0, &[0; 16], Some(false), 0);
    assert_eq!(greeting, Greeting::Silence);
    b.advance(ms(3000));
    assert!(b.machine.is_closed(id));
}

/// A new leader gives every session the timeout of its creation, whatever timeout resumed it.
// Case (Found in docent itself): the embedded ensemble: a session resumed with another timeout kept
// it under a new leader, and a shorter one was ignored.
#[test]
fn a_new_leader_restarts_sessions_with_the_timeout_of_their_creation() {
    let mut b = ensemble(500, 5);
    let (_, id, passwd) = session(&mut b, 1, 2000, "/short");
    let (_, other, other_passwd) = session(&mut b, 1, 12_000, "/long");
    b.advance(ms(1000));
    b.time_out = 12_000;
    let (again, greeting) = b.greet(1, id, &passwd, Some(false), 0);
    assert!(matches!(greeting, Greeting::Session { time_out: 12_000, .. }));
    b.time_out = 2000;
    b.greet(1, other, &other_passwd, Some(false), 0);
    b.advance(ms(1250));
    assert!(b.ping(again));
    let zxid = b.machine.last_zxid();
    b.machine.stop_member(b.now, 0);
    let stopped = b.now;
    assert_eq!(b.machine.last_zxid() >> 32, (zxid >> 32) + 1);
    b.advance(ms(2000));
    assert!(exists_on(&mut b, 1, "/short"));
    b.advance(ms(500));
    assert!(!exists_on(&mut b, 1, "/short"), "granted 12 s, gone within 2.5 s");
    b.advance(stopped + ms(12_000) - b.now);
    assert!(exists_on(&mut b, 1, "/long"));
    b.advance(ms(500));
    assert!(!exists_on(&mut b, 1, "/long"));
}

/// Bytes wait on their side of a cut between a member and its clients; the members go on.
#[test]
fn a_member_isolated_from_its_clients() {
    let mut b = ensemble(500, 5);
    let (id, ..) = session(&mut b, 1, 4000, "/e");
    let (gone, ..) = session(&mut b, 1, 4000, "/g");
    b.machine.cut(b.now, Peer::Clients, 1);
    assert!(!b.ping(id));
    let peer = std::net::Ipv4Addr::LOCALHOST.into();
    assert_eq!(b.machine.handle_connect(b.now, 1, peer), None);
    b.machine.handle_disconnected(b.now, gone);
    b.machine.cut(b.now, 1, Peer::Clients);
    b.machine.heal(b.now, Peer::Clients, 1);
    assert_eq!(b.answers(id), [], "answered, and the answer waits");
    assert_eq!(b.machine.role(1), Role::Follower);
    // The client cannot know whether the session ends.
    b.advance(ms(6000));
    assert!(!exists_on(&mut b, 0, "/e"));
    assert!(!b.machine.is_closed(id));
    b.machine.heal(b.now, 1, Peer::Clients);
    let ready: Vec<_> = std::iter::from_fn(|| b.machine.poll_ready()).collect();
    assert!(ready.contains(&id) && !ready.contains(&gone));
    assert_eq!(b.answers(id).len(), 1);
    assert!(b.machine.is_closed(id));
    b.machine.isolate_from_clients(b.now, 1);
    assert!(b.machine.is_cut(Peer::Clients, 1) && b.machine.is_cut(1, Peer::Clients));
    b.machine.heal_all(b.now);
    assert!(exists_on(&mut b, 1, "/"));
}

/// Sends a create, a sync and another create in one go, and returns the xids and zxids of the replies after `heal`.
fn sync_between_two_writes(
    b: &mut Bench,
    id: ConnectionId,
    heal: impl FnOnce(&mut Bench),
) -> Vec<(i32, i64)> {
    b.send(id, 1, OpCode::Create, &create("/p", b"", 0));
    b.send(id, 2, OpCode::Sync, &PathRequest { path: "/".into() });
    b.send(id, 3, OpCode::Create, &create("/q", b"", 0));
    assert_eq!(b.answers(id), []);
    heal(b);
    b.answers(id).iter().map(|answer| (answer.header.xid, answer.header.zxid)).collect()
}

/// A leader commits many changes at once when a follower returns with all of them. A sync is answered between them.
#[test]
fn a_sync_is_answered_before_later_writes() {
    let mut b = ensemble(500, 5);
    let (id, ..) = b.connect_to(1);
    b.machine.isolate(b.now, 2);
    b.advance(ms(2600));
    b.machine.cut(b.now, 0, 1);
    let zxid = b.machine.last_zxid();
    let replies = sync_between_two_writes(&mut b, id, |b| {
        for (from, to) in [(0, 2), (2, 0), (0, 1)] {
            b.machine.heal(b.now, from, to);
        }
    });
    assert_eq!(replies, [(1, zxid + 1), (2, zxid + 1), (3, zxid + 2)]);
}

#[test]
fn a_sync_on_a_leader_that_lags_is_overtaken_by_nothing() {
    let mut b = ensemble(500, 5);
    let (id, ..) = b.connect_to(0);
    b.machine.set_lag(b.now, 0, true);
    b.machine.isolate(b.now, 0);
    let zxid = b.machine.last_zxid();
    let replies = sync_between_two_writes(&mut b, id, |b| b.machine.heal_all(b.now));
    assert_eq!(replies, [(1, zxid + 1), (2, zxid + 1), (3, zxid + 2)]);
}

/// On a follower, a sync waits for the commits before it. A leader treats a sync of its own client as a read, which
/// overtakes them.
///
/// Source: `CommitProcessor.needCommit`, `LeaderZooKeeperServer.setupRequestProcessors`.
// Case (Found in docent itself): the embedded ensemble: a leader that lagged applied all commits
// for the `sync` of its own client, unlike a real one.
#[test]
fn a_leader_that_lags_does_not_catch_up_for_a_sync() {
    let mut b = ensemble(500, 5);
    let clients = [0, 1, 2].map(|member| b.connect_to(member).0);
    for member in 0..2 {
        b.machine.set_lag(b.now, member, true);
    }
    assert_eq!(b.create(clients[2], "/p", 0), ErrorCode::Ok);
    let found = [0, 1].map(|member| {
        let sync = PathRequest { path: "/".into() };
        assert_eq!(b.err(clients[member], OpCode::Sync, &sync), ErrorCode::Ok);
        b.exists(clients[member], "/p", false)
    });
    assert_eq!(found, [ErrorCode::NoNode, ErrorCode::Ok]);
    assert_eq!(b.create(clients[0], "/q", 0), ErrorCode::Ok);
    assert_eq!(b.exists(clients[0], "/p", false), ErrorCode::Ok);
}

/// A leader without followers has ordered a create of a session that is resumed on a new connection. All requests of
/// the session wait: a search for the node would not find it, and the node may still be created.
///
/// Source: `CommitProcessor.pendingRequests`, which is keyed by the session.
// Case (Found in docent itself): the embedded ensemble: a leader without followers answered a
// `sync` and a read of a session that came back, before the write of the session's earlier
// connection that it had ordered.
#[test]
fn a_session_that_comes_back_waits_for_the_writes_of_its_earlier_connection() {
    let mut b = ensemble(500, 5);
    let (id, session, passwd) = b.connect_to(0);
    b.machine.isolate(b.now, 0);
    b.send(id, 1, OpCode::Create, &create("/p", b"", 0));
    assert_eq!(b.answers(id), []);
    let other = b.accept(0);
    b.ask(other, session, &passwd, Some(false), 0);
    assert_eq!(b.greeting(other).session().0, session);
    b.send(other, 2, OpCode::Sync, &PathRequest { path: "/".into() });
    b.send(other, 3, OpCode::Exists, &ReadRequest { path: "/p".into(), watch: false });
    assert_eq!(b.answers(other), []);
    b.machine.heal_all(b.now);
    let replies: Vec<_> =
        b.answers(other).iter().map(|answer| (answer.header.xid, answer.header.err)).collect();
    assert_eq!(replies, [(2, ErrorCode::Ok), (3, ErrorCode::Ok)]);
}
