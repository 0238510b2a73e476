//! Lost connections, pings, and silence.

use super::*;

/// The outcome of bytes handed to the driver is unknown; requests not handed over stay queued.
#[test]
fn a_cut_fails_sent_requests_and_keeps_unsent_ones() {
    let mut scenario = Scenario::connected();
    scenario.get("/sent", 1);
    scenario.flush();
    scenario.get("/unsent", 2);
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Err(LOST))]);
    scenario.connect();
    scenario.accept(7, 6000);
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
    assert_eq!(
        scenario.completions(),
        [(1, Err((ErrorKind::ConnectionLoss, Outcome::NotApplied)))]
    );
    scenario.connect();
    scenario.accept(7, 6000);
    assert_eq!(scenario.xids(), [0, 2], "the other one goes out whole");
}

#[test]
fn states_are_published_as_by_curator() {
    let mut scenario = Scenario::connected();
    scenario.cut();
    scenario.connect();
    scenario.accept(7, 6000);
    use ConnectionState::{Connected, Reconnected, Suspended};
    assert_eq!(scenario.states(), [Connected, Suspended, Reconnected]);
}

// Time.

#[test]
fn a_ping_goes_out_after_a_third_of_the_timeout() {
    let mut scenario = Scenario::connected();
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(2000)));
    scenario.wait(ms(2000));
    scenario.flush();
    assert_eq!(scenario.xids()[1..], [xid::PING]);
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(2000)));
}

/// `ClientCnxn.readTimeout`.
#[test]
fn nothing_heard_for_two_thirds_of_the_timeout_is_a_dead_connection() {
    let mut scenario = Scenario::connected();
    scenario.wait(ms(2000));
    scenario.flush();
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
        scenario.get("/a", 1);
        scenario.flush();
        scenario.wait(ms(1700));
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert!(!scenario.is_broken());
}

/// Curator's simulated expiration (CURATOR-405).
#[test]
fn without_a_connection_for_the_session_timeout_the_session_is_lost() {
    let mut scenario = Scenario::connected();
    let lease = scenario.machine.lease().unwrap().clone();
    scenario.watch(WatchKind::Data, "/w", 1);
    scenario.flush();
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.cut();
    scenario.completions();
    scenario.wait(ms(5699));
    assert!(!lease.is_lost());
    scenario.get("/queued", 2);
    scenario.wait(ms(1));
    assert!(lease.is_lost());
    assert_eq!(
        scenario.completions(),
        [(2, Err((ErrorKind::SessionExpired, Outcome::NotApplied)))]
    );
    assert_eq!(scenario.watch_events(), [(1, EventType::None)]);
    scenario.connect();
    let request = &scenario.wire.last().unwrap().1;
    assert!(
        request.contains("last_zxid_seen: 0") && request.contains("session_id: 0x0"),
        "{request}"
    );
}

/// ZOOKEEPER-4921: what never was cannot expire.
#[test]
fn a_session_that_was_never_made_does_not_expire() {
    let mut scenario = Scenario::new(config());
    scenario.connect();
    scenario.cut();
    scenario.wait(ms(60_000));
    assert_eq!(scenario.states(), [ConnectionState::Suspended]);
}
