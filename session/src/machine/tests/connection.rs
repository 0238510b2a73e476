//! Lost connections, pings, and silence.

use super::*;

/// The outcome of bytes handed to the driver is unknown; requests not handed over stay queued.
// Case (Pitfalls of the wire, 42): a create whose reply is lost.
// Case (Contracts of a call): the connection breaks.
#[test]
fn a_cut_fails_sent_requests_and_keeps_unsent_ones() {
    let mut scenario = Scenario::connected();
    scenario.send_get("/sent", 1);
    scenario.get("/unsent", 2);
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Err(LOST))]);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, 1, 0, 2]);
    scenario.reply(2, 9, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(2, Ok(9))]);
}

#[test]
fn without_a_connection_a_request_waits_for_a_limited_time() {
    let mut scenario = Scenario::new(config());
    scenario.get("/a", 1);
    scenario.wait(ms(1000));
    scenario.get("/bb", 2);
    scenario.wait(ms(2000));
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::ConnectionLoss))]);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, 2], "the other one goes out whole");
    // The server has replied to nothing yet.
    scenario.get("/ccc", 3);
    scenario.cut();
    scenario.wait(ms(3000));
    let both = [(2, Err(LOST)), (3, refused(ErrorKind::ConnectionLoss))];
    assert_eq!(scenario.completions(), both);
}

/// Each connection breaks right after its handshake. The replies to credentials and setWatches serve no caller, so
/// such a connection counts as one that serves nothing.
// Case (Found in docent itself): a request waited for ever for a server that broke each connection
// before anything was sent: each loss began the connection timeout, and the back-off, anew; replies
// to credentials and setWatches counted as service; `add_auth` waited without limit.
#[test]
fn a_request_that_no_connection_carries_fails_at_its_deadline() {
    let mut scenario = Scenario::connected_with(config().with_auth("digest", b"u:p"));
    scenario.send_watch(WatchKind::Data, "/w", 1);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.cut();
    scenario.completions();
    let submitted = scenario.now;
    scenario.get("/a", 2);
    scenario.add_auth("digest", b"u:q", 3);
    let mut done = Vec::new();
    while done.is_empty() {
        assert!(scenario.now < submitted + ms(10_000), "it waits for ever");
        scenario.connect();
        let mut bytes = Vec::new();
        frame::put_record(&mut bytes, usize::MAX, &granted(7, 6000)).unwrap();
        for xid in [xid::AUTH, xid::SET_WATCHES, 1000] {
            let header = ReplyHeader { xid, zxid: 5, err: ErrorCode::Ok };
            frame::put_record(&mut bytes, usize::MAX, &header).unwrap();
        }
        scenario.feed_bytes(&bytes);
        assert!(scenario.is_broken());
        scenario.cut();
        scenario.wait(ms(100));
        done = scenario.completions();
    }
    assert_eq!(done, [(2, refused(ErrorKind::ConnectionLoss)), (3, Err(LOST))]);
    let waited = scenario.now.duration_since(submitted);
    assert!(waited >= ms(3000) && waited < ms(4500), "{waited:?}");
}

/// While a connection serves other requests, a request waits for its turn without a limit. Its time counts from the loss
/// of that connection.
#[test]
fn the_loss_of_a_usable_connection_begins_the_wait_of_its_requests() {
    let mut scenario = Scenario::connected();
    scenario.send_get("/a", 1);
    scenario.get("/b", 2);
    scenario.now += ms(3500);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.cut();
    scenario.wait(ms(2100));
    assert_eq!(scenario.completions(), [(1, Ok(5))]);
    assert!(!scenario.machine.lease().unwrap().is_lost());
}

/// The error names an attempt whose server has accepted the connection and sent nothing.
// Case (Found in docent itself): "no attempt was made" for a server that accepts connections and
// never replies.
#[test]
fn the_attempt_in_progress_is_a_part_of_the_error() {
    let text = |scenario: &mut Scenario| {
        scenario.get("/a", 1);
        scenario.wait(ms(3000));
        let error = scenario.machine.poll_completion().unwrap().result.unwrap_err();
        error.to_string()
    };
    let mut scenario = Scenario::new(config());
    assert_contains(text(&mut scenario), &["no attempt was made"]);
    scenario.attempt_at_once();
    assert_contains(text(&mut scenario), &["one:1: not connected yet"]);
    scenario.machine.handle_connected(scenario.now);
    assert_contains(text(&mut scenario), &["one:1: no reply to the handshake yet"]);
    scenario.cut_and_connect();
    let both = text(&mut scenario);
    let (last, now) = both.split_once("; now: ").expect(&both);
    assert!(last.contains("the connection was lost"), "{both}");
    assert!(now.contains("one:1: no reply to the handshake yet"), "{both}");
}

/// A server that sends only such replies serves nothing, so they must not keep its connection.
#[test]
fn a_reply_to_nothing_ends_the_connection() {
    for xid in [xid::PING, xid::AUTH, xid::SET_WATCHES] {
        let mut scenario = Scenario::connected();
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
        assert!(scenario.is_broken(), "{xid}");
    }
}

// Time.

#[test]
fn a_ping_goes_out_after_a_third_of_the_timeout() {
    let mut scenario = Scenario::connected();
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(2000)));
    scenario.wait_and_flush(ms(2000));
    assert_eq!(scenario.xids()[1..], [xid::PING]);
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(2000)));
}

/// `ClientCnxn.readTimeout`.
// Case (Pitfalls of the wire, 20): half-open connections.
// Case (What broke other clients): a silent server hangs a request.
// Case (Failure cases, 27): a half-open connection.
#[test]
fn nothing_heard_for_two_thirds_of_the_timeout_is_a_dead_connection() {
    let mut scenario = Scenario::connected();
    scenario.wait_and_flush(ms(2000));
    scenario.wait(ms(1999));
    assert!(!scenario.is_broken());
    scenario.wait(ms(1));
    assert!(scenario.is_broken());
}

#[test]
fn answers_keep_the_connection() {
    let mut scenario = Scenario::connected();
    for xid in 1..=5 {
        scenario.wait(ms(2000));
        scenario.send_get("/a", 1);
        scenario.wait(ms(1700));
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert!(!scenario.is_broken());
}

/// Curator's simulated expiration (CURATOR-405).
// Case (Pitfalls of the wire, 21): no server at all.
#[test]
fn without_a_connection_for_the_session_timeout_the_session_is_lost() {
    let mut scenario = Scenario::connected();
    let lease = scenario.machine.lease().unwrap().clone();
    scenario.set_watch(WatchKind::Data, "/w", 1);
    scenario.cut();
    scenario.completions();
    scenario.wait(ms(5699));
    assert!(!lease.is_lost());
    scenario.get("/queued", 2);
    scenario.wait(ms(1));
    assert!(lease.is_lost());
    assert_eq!(scenario.completions(), [(2, refused(ErrorKind::SessionExpired))]);
    assert_eq!(scenario.watch_events(), [(1, EventType::None)]);
    scenario.connect();
    assert_contains(scenario.last_sent(), &["last_zxid_seen: 0", "session_id: 0x0"]);
}

/// ZOOKEEPER-4921.
#[test]
fn a_session_that_was_never_made_does_not_expire() {
    let mut scenario = Scenario::connecting(config());
    scenario.cut();
    scenario.wait(ms(60_000));
    assert_eq!(scenario.states(), [ConnectionState::Suspended]);
}
