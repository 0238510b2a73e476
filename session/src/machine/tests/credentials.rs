//! Credentials: sent first on each connection, and answered out of turn.

use super::*;

// Case (Pitfalls of the wire, 15): auth answers come out of turn; each request completes once.
#[test]
fn auth_replies_come_out_of_turn_and_reach_their_callers() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.send_auth("digest", b"u:p", 2);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(2, Ok(0)), (1, Ok(5))]);
}

#[test]
fn credentials_without_a_reply_are_sent_again_for_their_caller() {
    let mut scenario = Scenario::connected();
    scenario.send_auth("digest", b"u:p", 1);
    scenario.cut_and_resume();
    assert_eq!(scenario.xids(), [0, xid::AUTH, 0, xid::AUTH]);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(0))]);
}

#[test]
fn credentials_without_a_reply_fail_in_time_if_no_server_is_reached() {
    let mut scenario = Scenario::connected();
    // A reply makes the connection usable: until then they have a limit from the start.
    scenario.read("/a", 2, 5);
    assert_eq!(scenario.completions(), [(2, Ok(5))]);
    scenario.send_auth("digest", b"u:p", 1);
    scenario.cut();
    scenario.wait(config().connection_timeout() - ms(1));
    assert_eq!(scenario.completions(), []);
    scenario.wait(ms(1));
    assert_eq!(scenario.completions(), [(1, Err(LOST))]);
}

/// A server answers credentials in the order in which they were sent: first those of the configuration.
// Case (Found in docent itself): no test held these rules: a caller's credentials beside the
// configured ones on each connection; a server list replaced by any other; the characters of a host
// name; how pauses grow.
#[test]
fn a_caller_s_credentials_are_answered_behind_the_configured_ones_on_each_connection() {
    let config = config().with_auth("digest", b"first:p").with_auth("digest", b"second:p");
    let mut scenario = Scenario::connected_with(config);
    for _ in 0..2 {
        scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    }
    scenario.send_auth("digest", b"third:p", 1);
    for answered in 0..3 {
        scenario.cut();
        if answered == 1 {
            scenario.add_auth("digest", b"fourth:p", 2);
        }
        scenario.wire.clear();
        scenario.resume();
        let sent: Vec<_> = scenario.wire.iter().skip(1).map(|(_, request)| request).collect();
        assert_eq!(sent.len(), if answered == 0 { 3 } else { 4 }, "{sent:?}");
        for _ in 0..answered {
            scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
        }
        assert_eq!(scenario.completions(), [], "the configured ones have no caller");
    }
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(0))]);
    scenario.reply(xid::AUTH, 0, ErrorCode::AuthFailed, b"");
    assert_eq!(scenario.completions(), [(2, refused(ErrorKind::AuthFailed))]);
}

/// This holds with and without a connection. Later credentials are sent and answered as usual.
// Case (Found in docent itself): credentials above the servers' limit were sent, and again on each later connection, which
// the server closed: one call with a long argument ended all others until the end of the client.
#[test]
fn credentials_above_the_limit_are_refused_and_never_sent() {
    let refused = |token| (token, refused(ErrorKind::RequestTooLarge));
    // Header, type, and two lengths.
    let longest = 100 - (8 + 4 + 4 + 4) - "digest".len();
    let mut scenario = Scenario::connected_with(config().with_max_request_bytes(100));
    scenario.wire.clear();
    scenario.add_auth("digest", &vec![b'x'; longest + 1], 1);
    scenario.flush();
    assert_eq!((scenario.completions(), scenario.xids()), (vec![refused(1)], vec![]));
    scenario.cut();
    scenario.add_auth("digest", &vec![b'x'; longest + 1], 2);
    assert_eq!(scenario.completions(), [refused(2)]);
    scenario.add_auth("digest", &vec![b'x'; longest], 3);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, xid::AUTH]);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(3, Ok(0))]);
}

/// The state is final: the client does not reconnect.
// Case (Failure cases, 36): refused credentials, credentials after a reconnect.
// Case (Found in docent itself): after a refusal of credentials, calls failed with `Closed`,
// without the reason.
#[test]
fn refused_credentials_end_the_client() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.send_auth("nosuch", b"x", 2);
    scenario.reply(xid::AUTH, 0, ErrorCode::AuthFailed, b"");
    assert!(scenario.machine.is_ended());
    assert_eq!(
        scenario.completions(),
        [(2, refused(ErrorKind::AuthFailed)), (1, Err((ErrorKind::AuthFailed, Outcome::Unknown)))]
    );
    assert_eq!(scenario.machine.poll_connect(scenario.now), Connect::Ended);
}

// Case (Found in docent itself): the error of refused credentials did not say which ones.
#[test]
fn the_scheme_of_refused_credentials_is_named() {
    let config = config().with_auth("first", b"u:secret").with_auth("second", b"u:secret");
    for answered in 0..3 {
        let mut scenario = Scenario::connected_with(config.clone());
        scenario.send_auth("third", b"u:secret", 1);
        for _ in 0..answered {
            scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
        }
        scenario.reply(xid::AUTH, 0, ErrorCode::AuthFailed, b"");
        let error = scenario.machine.refusal().to_string();
        let scheme = ["first", "second", "third"][answered];
        let text = format!("the server refused the credentials of the scheme \"{scheme}\"");
        assert!(error.ends_with(&text), "{error}");
    }
}

/// The server answers pings only; the late reply is dropped, and those of later credentials reach their callers.
// Case (Found in docent itself): `add_auth` waited for ever behind a server that answers only
// pings, with a request timeout, too.
#[test]
fn credentials_without_a_reply_end_by_the_request_timeout() {
    let mut scenario = Scenario::connected_with(config().with_request_timeout(ms(1000)));
    scenario.send_auth("digest", b"u:p", 1);
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(1000)));
    scenario.wait(ms(999));
    assert_eq!(scenario.completions(), []);
    scenario.wait(ms(1));
    let timed_out = (1, LATE);
    assert_eq!(scenario.completions(), [timed_out]);
    scenario.send_auth("digest", b"v:p", 2);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), []);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions().len(), 1);
}

/// ZooKeeper 3.7 and later, with `enforce.auth.enabled`.
// Case (Pitfalls of the wire, 26): a ping is refused for want of authentication.
#[test]
fn a_ping_or_a_request_that_is_refused_for_want_of_authentication_ends_the_client() {
    for xid in [xid::PING, 1] {
        let mut scenario = Scenario::connected();
        scenario.wait(ms(2000));
        scenario.send_get("/a", 1);
        if xid == 1 {
            scenario.reply(xid::PING, 0, ErrorCode::Ok, b"");
        }
        scenario.reply(xid, 0, ErrorCode::SessionClosedRequireSaslAuth, b"");
        assert_eq!(scenario.machine.ended(), Some(ErrorKind::AuthFailed), "{xid}");
        assert_eq!(scenario.completions().len(), 1);
    }
}
