//! Closing: in each state of the session, closeSession is sent last and answered, or the close reports that it was not.

use super::*;

impl Scenario {
    /// Whether closeSession was the last thing that was sent.
    fn sent_close(&mut self) -> bool {
        self.flush();
        self.last_sent() == "CloseSession"
    }

    fn answer_close(&mut self, err: ErrorCode) {
        assert!(self.sent_close());
        self.reply_to_last(6, err);
    }
}

const CLOSED: Completed = refused(ErrorKind::Closed);

// Case (Failure cases, 33): close with requests pending, or first by the server.
// Case (Contracts of a call): close.
#[test]
fn close_goes_behind_all_requests_and_waits_for_its_reply() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.close(9);
    scenario.send_get("/late", 2);
    assert_eq!(scenario.last_sent(), "CloseSession");
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.reply(2, 6, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(2, CLOSED), (1, Ok(5)), (9, Ok(6))]);
    assert!(scenario.machine.is_ended());
}

/// The server deletes the session's nodes, and grants their locks to others, before its reply arrives.
// Case (Found in docent itself): a guard that was kept across `close` counted as held until the
// reply, while the server had granted its lock to the next contender.
#[test]
fn a_close_ends_all_claims_before_it_is_sent() {
    let mut scenario = Scenario::connected();
    let claim = scenario.machine.lease().unwrap().claim();
    assert!(claim.is_valid(scenario.now) && claim.lease().proven_until() > scenario.now);
    scenario.close(9);
    assert!(!claim.is_valid(scenario.now));
    assert!(claim.lease().proven_until() <= scenario.now);
    assert!(scenario.sent_close());
}

#[test]
fn a_close_without_an_answer_ends_in_time_and_says_so() {
    let mut scenario = Scenario::connected();
    scenario.close(9);
    scenario.flush();
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(1000)));
    scenario.wait(ms(1000));
    assert_eq!(scenario.completions(), [(9, LATE)]);
    assert!(scenario.machine.is_ended());
}

// Case (Found in docent itself): `close` right behind a change of the server list, during the pause
// before a reconnect, or while its connection broke, left the session (ten of ten).
#[test]
fn a_close_without_a_connection_goes_out_on_the_next() {
    let mut scenario = Scenario::connected();
    scenario.send_get("/sent", 1);
    scenario.cut();
    scenario.get("/queued", 2);
    scenario.close(9);
    scenario.get("/late", 3);
    assert_eq!(scenario.completions(), [(1, Err(LOST)), (3, CLOSED)]);
    scenario.attempt_at_once();
    scenario.machine.handle_connected(scenario.now);
    scenario.flush();
    scenario.accept(7, 6000);
    assert!(scenario.wire.iter().any(|(_, request)| request.contains("/queued")));
    scenario.reply(2, 5, ErrorCode::Ok, b"");
    scenario.answer_close(ErrorCode::Ok);
    assert_eq!(scenario.completions(), [(2, Ok(5)), (9, Ok(6))]);
    assert!(scenario.machine.is_ended());
}

/// Queued requests wait as before; only the close itself ends at its time.
#[test]
fn a_close_that_finds_no_connection_says_so_when_its_time_is_up() {
    let mut scenario = Scenario::connected();
    scenario.cut();
    scenario.get("/queued", 1);
    scenario.close(9);
    for _ in 0..3 {
        scenario.connect();
        scenario.cut();
    }
    assert_eq!(scenario.completions(), []);
    scenario.wait(ms(1000));
    assert_eq!(scenario.completions(), [(1, CLOSED), (9, Err(LOST))]);
    assert!(scenario.machine.is_ended() && scenario.machine.state().is_none());
}

#[test]
fn a_close_while_the_server_is_left_stays_with_it() {
    let two = [host("two")];
    // The close comes before, or after, the last reply that the move waits for.
    for answered in [false, true] {
        let mut scenario = Scenario::connected();
        scenario.send_get("/sent", 1);
        scenario.machine.update_server_list(&two);
        if answered {
            scenario.reply(1, 5, ErrorCode::Ok, b"");
            assert!(scenario.is_broken());
        }
        scenario.close(9);
        assert!(!scenario.is_broken());
        // Another change of the list does not end it, either.
        scenario.machine.update_server_list(&[host("three")]);
        assert!(scenario.sent_close());
        if !answered {
            scenario.reply(1, 5, ErrorCode::Ok, b"");
        }
        assert!(!scenario.is_broken());
        scenario.answer_close(ErrorCode::Ok);
        assert_eq!(scenario.completions(), [(1, Ok(5)), (9, Ok(6))]);
    }
}

/// The server may have created a session although its reply has not arrived.
// Case (Found in docent itself): a close during the first handshake left the session that came of
// it.
#[test]
fn a_close_during_the_first_handshake_ends_the_session_that_comes_of_it() {
    let mut scenario = Scenario::connecting(config());
    scenario.close(9);
    assert_eq!(scenario.completions(), []);
    scenario.accept(7, 6000);
    scenario.answer_close(ErrorCode::Ok);
    assert_eq!(scenario.completions(), [(9, Ok(6))]);

    // If the server made none, no other one is made.
    for refused in [false, true] {
        let mut scenario = Scenario::connecting(config());
        scenario.close(9);
        if refused {
            scenario.refuse();
        }
        scenario.cut();
        assert_eq!(scenario.completions(), [(9, Ok(0))]);
        assert_eq!(scenario.machine.poll_connect(scenario.now), Connect::Ended);
    }
}

#[test]
fn a_close_before_there_was_a_session_is_a_success() {
    for connecting in [false, true] {
        let mut scenario = Scenario::new(config());
        scenario.get("/queued", 1);
        if connecting {
            scenario.attempt_at_once();
        }
        scenario.machine.close(Some(9), Instant::ZERO);
        assert_eq!(scenario.completions(), [(1, CLOSED), (9, Ok(0))]);
    }
}

#[test]
fn a_session_that_expires_while_it_is_closed_is_closed_if_a_server_says_so() {
    // Reported by a server.
    let mut scenario = Scenario::connected();
    scenario.cut();
    scenario.close(9);
    scenario.connect();
    scenario.refuse();
    assert_eq!(scenario.completions(), [(9, Ok(0))]);
    use ConnectionState::{Connected, Lost, Suspended};
    assert_eq!(scenario.states(), [Connected, Suspended, Lost]);

    // In the answer to closeSession itself.
    let mut scenario = Scenario::connected();
    scenario.close(9);
    scenario.answer_close(ErrorCode::SessionExpired);
    assert_eq!(scenario.completions(), [(9, Ok(6))]);

    // By the client's clock.
    let mut scenario = Scenario::connected();
    scenario.cut();
    scenario.wait(ms(5500));
    scenario.close(9);
    scenario.wait(ms(500));
    assert_eq!(scenario.completions(), [(9, Err(LOST))]);
    assert!(scenario.machine.is_ended());
    assert_eq!(scenario.states(), [Connected, Suspended, Lost]);
}

/// `ReadOnlyRequestProcessor`: since 3.7, a read-only server refuses to end a session of the quorum. Older ones
/// reply OK, but the quorum does not learn of it.
// Case (Found in docent itself): a close that a read-only server refused, or only said yes to,
// passed for one.
#[test]
fn a_read_only_server_ends_no_session_of_the_quorums() {
    for err in [ErrorCode::NotReadOnly, ErrorCode::Ok] {
        let mut scenario = Scenario::connected_with(config().with_read_only(true));
        scenario.cut_and_connect();
        scenario.accept_read_only(7);
        scenario.close(9);
        // A read-write server that is found now changes nothing: closeSession is on its way already.
        let other = host("one");
        scenario.machine.handle_probe(&other, true);
        assert!(!scenario.is_broken());
        scenario.answer_close(err);
        assert!(scenario.is_broken(), "to be tried elsewhere");
        scenario.cut_and_connect();
        assert!(scenario.last_sent().contains("read_only: Some(false)"));
        scenario.accept_read_only(7);
        assert!(scenario.is_broken());
        scenario.cut_and_resume();
        scenario.answer_close(ErrorCode::Ok);
        assert_eq!(scenario.completions(), [(9, Ok(6))]);
    }
}

#[test]
fn the_session_of_a_read_only_server_is_ended_by_it_or_forgotten() {
    for cut in [false, true] {
        let mut scenario = Scenario::connecting(config().with_read_only(true));
        scenario.accept_read_only(77);
        scenario.close(9);
        if cut {
            scenario.cut();
        } else {
            scenario.answer_close(ErrorCode::Ok);
        }
        assert!(matches!(scenario.completions()[..], [(9, Ok(_))]));
    }
}

#[test]
fn a_refused_close_is_sent_again_elsewhere() {
    let mut scenario = Scenario::connected();
    scenario.close(9);
    scenario.answer_close(ErrorCode::SessionMoved);
    assert!(scenario.is_broken());
    assert_eq!(scenario.machine.metrics().error_replies, 1);
    scenario.cut();
    assert_eq!(scenario.completions(), []);
    scenario.resume();
    scenario.answer_close(ErrorCode::Ok);
    assert_eq!(scenario.completions(), [(9, Ok(6))]);
    assert_eq!(scenario.machine.metrics().error_replies, 1);
}

// Case (Found in docent itself): a second `close` failed while the first was waited for.
#[test]
fn all_calls_to_close_end_alike_at_the_earliest_of_their_times() {
    let mut scenario = Scenario::connected();
    let now = scenario.now;
    scenario.machine.close(Some(1), now + ms(1000));
    scenario.machine.close(Some(2), now + ms(500));
    scenario.machine.close(Some(3), now + ms(2000));
    // The last drop of a client: no caller waits for it.
    scenario.machine.close(None, now);
    scenario.flush();
    assert_eq!(scenario.xids(), [0, 1], "one closeSession");
    assert_eq!(scenario.machine.poll_timeout(), Some(now + ms(500)));
    scenario.reply(1, 6, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(6)), (2, Ok(6)), (3, Ok(6))]);
    scenario.machine.close(Some(4), now);
    assert_eq!(scenario.completions(), [(4, CLOSED)]);
}

#[test]
fn a_full_queue_does_not_keep_a_close_from_its_place_at_the_end() {
    for when_full in [crate::config::WhenFull::Fail, crate::config::WhenFull::Wait] {
        let config =
            config().with_when_full(when_full).with_max_requests(1).with_max_pending_bytes(1);
        let mut scenario = Scenario::connected_with(config);
        scenario.get("/a", 1);
        scenario.machine.wait_for_capacity(2);
        scenario.close(9);
        assert_eq!(scenario.completions(), [(2, CLOSED)]);
        scenario.machine.wait_for_capacity(3);
        scenario.add_auth("digest", b"u:p", 4);
        assert_eq!(scenario.completions(), [(3, CLOSED), (4, CLOSED)]);
        scenario.flush();
        scenario.reply(1, 5, ErrorCode::Ok, b"");
        scenario.answer_close(ErrorCode::Ok);
        assert_eq!(scenario.completions(), [(1, Ok(5)), (9, Ok(6))]);
    }
}

/// The text names the reason of the end, if there is one, and no failure of an earlier connection.
#[test]
fn only_the_end_itself_is_the_reason_of_later_failures() {
    let text = |end: fn(&mut Scenario)| {
        let mut scenario = Scenario::connected();
        scenario.cut_and_resume();
        end(&mut scenario);
        assert!(scenario.machine.is_ended());
        scenario.machine.refusal().to_string()
    };
    let closed = |scenario: &mut Scenario| {
        let until = scenario.now + ms(1000);
        scenario.machine.close(None, until);
        scenario.wait(ms(1000));
    };
    assert_eq!(text(closed), "the client is closed");
    assert_eq!(text(|scenario| scenario.machine.abandon()), "the client is closed");
    assert_eq!(text(|s| s.machine.abandon_because("it ends")), "the client is closed: it ends");
}
