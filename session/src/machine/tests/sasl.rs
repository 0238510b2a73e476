//! SASL: before anything else on a connection, and what ends it.

use docent_protocol::reply::SaslReply;

use super::*;
use crate::machine::connection::Phase;

const CHALLENGE: &[u8] = b"realm=\"zk-sasl-md5\",nonce=\"N\",charset=utf-8,algorithm=md5-sess";

fn bob() -> Config {
    config().with_sasl("bob", "pw")
}

impl Scenario {
    pub(super) fn answer_sasl(&mut self, xid: i32, err: ErrorCode, token: Option<&[u8]>) {
        let mut body = Vec::new();
        SaslReply { token }.encode(&mut body);
        self.reply(xid, 0, err, &body);
    }

    /// The server's half of an exchange.
    pub(super) fn authenticate(&mut self) {
        self.challenge();
        self.flush();
        self.prove();
    }

    /// Sends a challenge. Returns the proof that is expected after it.
    fn challenge(&mut self) -> String {
        let xid = self.exchange().expect("an exchange").0;
        self.answer_sasl(xid, ErrorCode::Ok, Some(CHALLENGE));
        self.exchange().and_then(|(_, rspauth)| rspauth).expect("a response")
    }

    fn prove(&mut self) {
        let (xid, rspauth) = self.exchange().expect("an exchange");
        let last_word = format!("rspauth={}", rspauth.expect("a response"));
        self.answer_sasl(xid, ErrorCode::Ok, Some(last_word.as_bytes()));
    }

    /// The xid that waits for an answer, and the proof it must have.
    fn exchange(&self) -> Option<(i32, Option<String>)> {
        match self.machine.connection.phase() {
            Phase::Authenticating { exchange, .. } => Some(exchange.expectation()),
            _ => None,
        }
    }

    pub(super) fn refuse_sasl(&mut self) {
        let xid = self.exchange().expect("an exchange").0;
        self.answer_sasl(xid, ErrorCode::AuthFailed, None);
    }

    /// One of the replies that a server may send, for random scenarios.
    pub(super) fn say_sasl(&mut self, which: u8) {
        let (xid, rspauth) = self.exchange().unwrap_or((1, None));
        let proof = rspauth.map(|rspauth| format!("rspauth={rspauth}"));
        match (which % 8, &proof) {
            (0..=2, Some(proof)) => {
                self.answer_sasl(xid, ErrorCode::Ok, Some(proof.as_bytes()));
            }
            (0..=4, _) => self.answer_sasl(xid, ErrorCode::Ok, Some(CHALLENGE)),
            (5, _) => self.answer_sasl(xid, ErrorCode::Ok, None),
            (6, _) => self.answer_sasl(xid, ErrorCode::AuthFailed, None),
            _ => self.answer_sasl(xid.wrapping_add(1), ErrorCode::Ok, Some(b"rubbish")),
        }
    }

    /// The requests behind the last handshake.
    fn requests(&self) -> Vec<&str> {
        let last = self.wire.iter().rposition(|(xid, _)| *xid == 0).unwrap();
        self.wire[last + 1..].iter().map(|(_, request)| &**request).collect()
    }
}

const REFUSED: (ErrorKind, Outcome) = (ErrorKind::AuthFailed, Outcome::NotApplied);

/// SASL completes first; credentials follow, then requests.
// Case (Pitfalls of the wire, 30): SASL.
#[test]
fn nothing_goes_out_before_sasl_is_over() {
    let mut scenario = Scenario::new(bob().with_auth("digest", b"u:p"));
    scenario.get("/early", 1);
    scenario.connect();
    scenario.get("/handshaking", 2);
    scenario.accept(7, 6000);
    scenario.send_get("/authenticating", 3);
    // The first token is empty, not missing; its xid follows those that were already given out.
    assert_eq!(scenario.wire[1..], [(3, "Sasl(SaslRequest { token: 0 bytes })".to_owned())]);
    assert!(!scenario.machine.is_connected());
    assert_eq!(scenario.states(), [], "not connected as long as nothing can be asked");

    scenario.answer_sasl(3, ErrorCode::Ok, Some(CHALLENGE));
    scenario.flush();
    assert_eq!(scenario.xids(), [0, 3, 5]);
    scenario.prove();
    assert_eq!(scenario.states(), [ConnectionState::Connected]);
    scenario.flush();
    assert_eq!(scenario.xids(), [0, 3, 5, xid::AUTH, 1, 2, 4]);
    scenario.reply(1, 50, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(50))]);
}

// Case (Found in docent itself): the tokens of SASL were replies above a small limit, and no connection succeeded.
#[test]
fn a_token_is_no_reply_over_the_limit() {
    let mut scenario = Scenario::connected_with(bob().with_max_reply_bytes(37));
    scenario.authenticate();
    assert_eq!(scenario.states(), [ConnectionState::Connected]);
}

#[test]
fn the_response_is_accepted_by_servers() {
    let mut scenario = Scenario::connected_with(bob());
    scenario.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
    let mut out = Vec::new();
    scenario.machine.poll_transmit(scenario.now, &mut out);
    let text = String::from_utf8_lossy(&out);
    let (start, rest) = text.split_once("cnonce=\"").unwrap();
    assert!(
        start.ends_with(
            "charset=utf-8,username=\"bob\",realm=\"zk-sasl-md5\",nonce=\"N\",nc=00000001,"
        ),
        "{start}"
    );
    let (cnonce, rest) = rest.split_once('"').unwrap();
    assert_eq!(cnonce.len(), 32);
    assert!(
        rest.starts_with(",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,response="),
        "{rest}"
    );
}

#[test]
fn each_connection_begins_again_with_a_nonce_of_its_own_and_before_the_watches() {
    let mut scenario = Scenario::connected_with(bob());
    let first = scenario.challenge();
    scenario.prove();
    scenario.send_watch(WatchKind::Data, "/w", 1);
    scenario.reply(3, 50, ErrorCode::Ok, b"");
    scenario.cut();
    scenario.get("/a", 2);
    scenario.resume();
    assert_ne!(scenario.challenge(), first);
    scenario.flush();
    scenario.prove();
    scenario.flush();
    let again = scenario.requests();
    let names: Vec<_> =
        again.iter().map(|request| request.split('(').next().unwrap_or_default()).collect();
    assert_eq!(names, ["Sasl", "Sasl", "SetWatches", "GetData"]);
}

/// The state is final, and the error has the reason.
#[test]
fn a_refusal_ends_the_client_and_says_why() {
    let rubbish: &[u8] = b"rspauth=ea40f60335c427b5527b84dbabcdfffd";
    for (challenged, err, token, why) in [
        (false, ErrorCode::Ok, None, "not configured"),
        (true, ErrorCode::Ok, None, "did not accept"),
        (true, ErrorCode::AuthFailed, None, "refused the SASL user or password"),
        (true, ErrorCode::SessionClosedRequireSaslAuth, None, "refused the SASL user or password"),
        (true, ErrorCode::Ok, Some(rubbish), "has not proved"),
    ] {
        let mut scenario = Scenario::connected_with(bob());
        scenario.get("/a", 1);
        scenario.add_auth("digest", b"u:p", 2);
        let mut xid = 1;
        if challenged {
            scenario.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
            xid = 3;
        }
        scenario.answer_sasl(xid, err, token);
        assert_eq!(scenario.machine.ended(), Some(ErrorKind::AuthFailed), "{why}");
        scenario.get("/late", 3);
        let done: Vec<_> = std::iter::from_fn(|| scenario.machine.poll_completion()).collect();
        assert_eq!(done.len(), 3, "{done:?}");
        for completion in done {
            let error = completion.result.unwrap_err();
            assert_eq!((error.kind(), error.outcome()), REFUSED, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(scenario.states(), [ConnectionState::Lost]);
        assert_eq!(scenario.machine.poll_connect(scenario.now), Connect::Ended);
    }
}

/// Another server may be able to authenticate the client, so pending requests go on waiting.
#[test]
fn a_server_that_talks_nonsense_is_left_for_the_next_one() {
    let nonsense: &[(ErrorCode, Option<&[u8]>, &str)] = &[
        (ErrorCode::Ok, Some(b"nonsense"), "no equals sign"),
        (ErrorCode::Ok, Some(b"nonce=\"N\",algorithm=md5"), "another algorithm"),
        (ErrorCode::SystemError, None, "replied to SASL with"),
    ];
    for (err, token, why) in nonsense {
        let mut scenario = Scenario::connected_with(bob());
        scenario.get("/a", 1);
        scenario.answer_sasl(1, *err, *token);
        assert_contains(scenario.machine.wants_disconnect().unwrap(), &[why]);
        assert_eq!(scenario.machine.ended(), None);
        scenario.cut();
        assert_eq!(scenario.completions(), []);
        scenario.resume();
        scenario.authenticate();
        scenario.flush();
        assert!(scenario.requests().last().unwrap().starts_with("GetData"));
    }
    let mut scenario = Scenario::connected_with(bob());
    scenario.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
    scenario.answer_sasl(2, ErrorCode::Ok, Some(b"what?"));
    assert!(scenario.is_broken());
    let mut scenario = Scenario::connected_with(bob());
    scenario.answer_sasl(9, ErrorCode::Ok, Some(CHALLENGE));
    assert!(scenario.is_broken(), "an answer to another question");
    let mut scenario = Scenario::connected_with(bob());
    scenario.reply(1, 0, ErrorCode::Ok, b"\0\0\0\x09abc");
    assert!(scenario.is_broken(), "a token that is cut off");
}

/// No ping is sent during the exchange: a server that requires authentication would close the connection.
// Case (Found in docent itself): each step of SASL had two thirds of the session timeout to be
// answered in.
#[test]
fn silence_in_the_exchange_breaks_the_connection_in_the_time_of_the_attempt_and_not_the_session() {
    let mut scenario = Scenario::connected_with(bob());
    // One deadline for connecting, the handshake and each step.
    scenario.wait(ms(1000));
    scenario.challenge();
    scenario.flush();
    scenario.wait_and_flush(ms(1999));
    assert_eq!(scenario.xids(), [0, 1, 2], "a ping");
    assert!(!scenario.is_broken());
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(1)));
    scenario.wait(ms(1));
    assert!(scenario.is_broken());
    scenario.cut();
    let id = scenario.machine.session_token().map(|token| token.session_id());
    assert_eq!(id, Some(7), "the session stays");
    assert_eq!(scenario.states(), [ConnectionState::Suspended]);
}

/// A server that takes sessions and ends every exchange is no progress: pauses grow, and requests fail in
/// time.
#[test]
fn a_server_that_never_ends_the_exchange_does_not_hold_requests_for_ever() {
    let mut scenario = Scenario::new(bob());
    let begin = scenario.now;
    scenario.get("/a", 1);
    let mut rounds = 0;
    while scenario.now.duration_since(begin) < ms(3000) {
        scenario.resume();
        scenario.cut();
        rounds += 1;
        assert!(rounds < 100, "a busy loop");
        let why = scenario.machine.last_failure_text().unwrap();
        assert!(why.contains("no reply to SASL"), "{why}");
        // ZOOKEEPER-5043.
        assert!(why.contains("FIPS mode, which has no DIGEST-MD5"), "{why}");
    }
    scenario.wait(ms(0));
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::ConnectionLoss))]);
    assert_eq!(scenario.machine.lease().map(|lease| lease.is_lost()), Some(false));
}

/// ClickHouse Keeper closes a connection on which SASL begins, and knows no session of a closed connection.
// Case (Found in docent itself): after every other attempt with a Keeper, and in the errors of calls, "reported by the
// server" had replaced the reason, that there was no reply to SASL.
#[test]
fn the_end_of_a_session_hides_no_refusal_of_sasl() {
    let mut scenario = Scenario::new(bob());
    let mut texts = Vec::new();
    for session_id in [7, 8, 9, 10] {
        scenario.connect();
        scenario.get("/a", 1);
        scenario.accept(session_id, 6000);
        let host = host("one");
        let closed = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown);
        let why = scenario.machine.wants_disconnect().unwrap_or(closed);
        scenario.machine.handle_disconnected(scenario.now, &host, &why);
        let why = scenario.machine.last_failure_text().unwrap().to_owned();
        assert!(why.contains("no reply to SASL"), "{why}");
        texts.push(why);
    }
    assert_eq!(texts[..2], texts[2..], "no text grows");
    assert!(
        texts[1].contains("the server does not know the session (before: one:1: "),
        "{texts:?}"
    );
    let error = scenario.machine.poll_completion().unwrap().result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionExpired);
    assert!(texts[1].contains(error.detail().unwrap()), "{error}");
}

#[test]
fn a_close_in_the_middle_waits_for_its_turn() {
    let mut scenario = Scenario::connected_with(bob());
    scenario.get("/a", 1);
    scenario.close(9);
    scenario.get("/late", 2);
    assert_eq!(scenario.completions(), [(2, refused(ErrorKind::Closed))]);
    scenario.authenticate();
    scenario.flush();
    assert_eq!(scenario.requests()[2..].last(), Some(&"CloseSession"));
    scenario.reply(2, 50, ErrorCode::Ok, b"");
    scenario.reply(4, 51, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(50)), (9, Ok(51))]);
    assert!(scenario.machine.is_ended());
}

#[test]
fn a_close_in_the_middle_ends_in_time_whatever_the_server_does() {
    let mut scenario = Scenario::connected_with(bob());
    scenario.close(9);
    scenario.wait(ms(1000));
    assert_eq!(scenario.completions(), [(9, LATE)]);

    // The session exists, so another server can end it.
    let mut scenario = Scenario::connected_with(bob());
    scenario.close(9);
    scenario.cut();
    assert_eq!(scenario.completions(), []);
    scenario.resume();
    scenario.authenticate();
    scenario.flush();
    assert_eq!(scenario.requests().last(), Some(&"CloseSession"));
    scenario.cut();
    scenario.wait(ms(1000));
    assert_eq!(scenario.completions(), [(9, Err(LOST))]);
    assert!(scenario.machine.is_ended());
}

#[test]
fn an_event_in_the_middle_harms_nothing() {
    let mut scenario = Scenario::connected_with(bob());
    scenario.event(EventType::NodeCreated, "/x");
    assert!(!scenario.is_broken());
    scenario.authenticate();
    assert!(scenario.machine.is_connected());
}

#[test]
fn debug_shows_nothing_of_an_exchange() {
    let mut scenario = Scenario::connected_with(bob());
    scenario.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
    let (_, rspauth) = scenario.exchange().unwrap();
    let shown = format!("{:?}", scenario.machine);
    assert!(shown.contains("Authenticating"), "{shown}");
    assert!(!shown.contains("pw") && !shown.contains(&rspauth.unwrap()), "{shown}");
}

// Case (Found in docent itself): a machine whose settings had a user that SASL cannot send connected without one.
#[test]
fn a_machine_with_an_invalid_user_ends_before_it_sends_a_request() {
    let mut scenario = Scenario::connected_with(config().with_sasl("", "pw"));
    scenario.send_get("/a", 1);
    assert_eq!(scenario.machine.ended(), Some(ErrorKind::AuthFailed));
    assert_eq!(scenario.requests(), [""; 0]);
}
