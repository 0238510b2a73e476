//! SASL: before anything else on a connection, and what ends it.

use docent_protocol::reply::SaslReply;

use super::*;

const CHALLENGE: &[u8] = b"realm=\"zk-sasl-md5\",nonce=\"N\",charset=utf-8,algorithm=md5-sess";

fn bob() -> Config {
    config().with_sasl("bob", "pw").unwrap()
}

impl Story {
    /// Up to the server's acceptance of the session, and the client's first word.
    fn greeted(config: Config) -> Self {
        let mut story = Self::new(config);
        story.connect();
        story.accept(7, 6000);
        story
    }

    fn answer_sasl(&mut self, xid: i32, err: ErrorCode, token: Option<&[u8]>) {
        let mut body = Vec::new();
        SaslReply { token }.encode(&mut body);
        self.reply(xid, 0, err, &body);
    }

    /// The server's half of an exchange.
    fn authenticate(&mut self) {
        self.challenge();
        self.flush();
        self.prove();
    }

    /// The proof that is expected from then on.
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
        match &self.machine.phase {
            Phase::Authenticating { exchange, .. } => Some(exchange.expectation()),
            _ => None,
        }
    }

    /// One of the things a server may say, for any story.
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

/// pitfall 30: SASL to its end, then credentials, then requests.
#[test]
fn nothing_goes_out_before_sasl_is_over() {
    let mut story = Story::new(bob().with_auth("digest", b"u:p"));
    story.get("/early", 1);
    story.connect();
    story.get("/handshaking", 2);
    story.accept(7, 6000);
    story.get("/authenticating", 3);
    story.flush();
    // The first word is empty, not missing; its xid comes behind those that were given away.
    assert_eq!(story.wire[1..], [(3, "Sasl(SaslRequest { token: 0 bytes })".to_owned())]);
    assert!(!story.machine.is_connected());
    assert_eq!(story.states(), [], "not connected as long as nothing can be asked");

    story.answer_sasl(3, ErrorCode::Ok, Some(CHALLENGE));
    story.flush();
    assert_eq!(story.xids(), [0, 3, 5]);
    story.prove();
    assert_eq!(story.states(), [ConnectionState::Connected]);
    story.flush();
    assert_eq!(story.xids(), [0, 3, 5, xid::AUTH, 1, 2, 4]);
    story.reply(1, 50, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(1, Ok(50))]);
}

#[test]
fn the_response_is_what_servers_want_to_hear() {
    let mut story = Story::greeted(bob());
    story.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
    let mut out = Vec::new();
    story.machine.poll_transmit(story.now, &mut out);
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
    let mut story = Story::greeted(bob());
    let first = story.challenge();
    story.prove();
    story.watch(WatchKind::Data, "/w", 1);
    story.flush();
    story.reply(3, 50, ErrorCode::Ok, b"");
    story.cut();
    story.get("/a", 2);
    story.connect();
    story.accept(7, 6000);
    assert_ne!(story.challenge(), first);
    story.flush();
    story.prove();
    story.flush();
    let again = story.requests();
    let names: Vec<_> =
        again.iter().map(|request| request.split('(').next().unwrap_or_default()).collect();
    assert_eq!(names, ["Sasl", "Sasl", "SetWatches", "GetData"]);
}

/// reliability case 36: final, with the reason.
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
        let mut story = Story::greeted(bob());
        story.get("/a", 1);
        story.machine.add_auth(Credential::new("digest", b"u:p"), 2);
        let mut xid = 1;
        if challenged {
            story.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
            xid = 3;
        }
        story.answer_sasl(xid, err, token);
        assert_eq!(story.machine.ended(), Some(ErrorKind::AuthFailed), "{why}");
        story.get("/late", 3);
        let done: Vec<_> = std::iter::from_fn(|| story.machine.poll_completion()).collect();
        assert_eq!(done.len(), 3, "{done:?}");
        for completion in done {
            let error = completion.result.unwrap_err();
            assert_eq!((error.kind(), error.outcome()), REFUSED, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(story.states(), [ConnectionState::Lost]);
        assert_eq!(story.machine.poll_connect(story.now), Connect::Ended);
    }
}

/// The next server may do better; what waits goes on waiting.
#[test]
fn a_server_that_talks_nonsense_is_left_for_the_next_one() {
    let nonsense: &[(ErrorCode, Option<&[u8]>, &str)] = &[
        (ErrorCode::Ok, Some(b"nonsense"), "no equals sign"),
        (ErrorCode::Ok, Some(b"nonce=\"N\",algorithm=md5"), "another algorithm"),
        (ErrorCode::SystemError, None, "answered SASL with"),
    ];
    for (err, token, why) in nonsense {
        let mut story = Story::greeted(bob());
        story.get("/a", 1);
        story.answer_sasl(1, *err, *token);
        let broken = story.machine.wants_disconnect().unwrap();
        assert!(broken.to_string().contains(why), "{broken}");
        assert_eq!(story.machine.ended(), None);
        story.cut();
        assert_eq!(story.done(), []);
        story.connect();
        story.accept(7, 6000);
        story.authenticate();
        story.flush();
        assert!(story.requests().last().unwrap().starts_with("GetData"));
    }
    let mut story = Story::greeted(bob());
    story.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
    story.answer_sasl(2, ErrorCode::Ok, Some(b"what?"));
    assert!(story.is_broken());
    let mut story = Story::greeted(bob());
    story.answer_sasl(9, ErrorCode::Ok, Some(CHALLENGE));
    assert!(story.is_broken(), "an answer to another question");
    let mut story = Story::greeted(bob());
    story.reply(1, 0, ErrorCode::Ok, b"\0\0\0\x09abc");
    assert!(story.is_broken(), "a token that is cut off");
}

/// As long as no answer comes: no ping, which a server that requires authentication would close at.
#[test]
fn silence_for_the_read_timeout_breaks_the_connection_and_not_the_session() {
    let mut story = Story::greeted(bob());
    story.wait(ms(3999));
    story.flush();
    assert_eq!(story.xids(), [0, 1], "a ping");
    assert!(!story.is_broken());
    assert_eq!(story.machine.poll_timeout(), Some(story.now + ms(1)));
    story.wait(ms(1));
    assert!(story.is_broken());
    story.cut();
    let id = story.machine.session_token().map(|token| token.session_id());
    assert_eq!(id, Some(7), "the session stays");
    assert_eq!(story.states(), [ConnectionState::Suspended]);
}

/// A server that takes sessions and ends every exchange is no progress: pauses grow, and requests fail in
/// time.
#[test]
fn a_server_that_never_ends_the_exchange_does_not_hold_requests_for_ever() {
    let mut story = Story::new(bob());
    let begin = story.now;
    story.get("/a", 1);
    let mut rounds = 0;
    while story.now.since(begin) < ms(3000) {
        story.connect();
        story.accept(7, 6000);
        story.cut();
        rounds += 1;
        assert!(rounds < 100, "a busy loop");
        let why = story.machine.last_failure().unwrap();
        assert!(why.contains("no answer to SASL"), "{why}");
    }
    story.wait(ms(0));
    assert_eq!(story.done(), [(1, Err((ErrorKind::ConnectionLoss, Outcome::NotApplied)))]);
    assert_eq!(story.machine.lease().map(|lease| lease.is_lost()), Some(false));
}

#[test]
fn a_close_in_the_middle_waits_for_its_turn() {
    let mut story = Story::greeted(bob());
    story.get("/a", 1);
    let until = story.now + ms(1000);
    story.machine.close(Some(9), until);
    story.get("/late", 2);
    assert_eq!(story.done(), [(2, Err((ErrorKind::Closed, Outcome::NotApplied)))]);
    story.authenticate();
    story.flush();
    assert_eq!(story.requests()[2..].last(), Some(&"CloseSession"));
    story.reply(2, 50, ErrorCode::Ok, b"");
    story.reply(3, 51, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(1, Ok(50)), (9, Ok(51))]);
    assert!(story.machine.is_ended());
}

#[test]
fn a_close_in_the_middle_ends_in_time_whatever_the_server_does() {
    let mut story = Story::greeted(bob());
    let until = story.now + ms(1000);
    story.machine.close(Some(9), until);
    story.wait(ms(1000));
    assert_eq!(story.done(), [(9, Err((ErrorKind::OperationTimeout, Outcome::Unknown)))]);

    let mut story = Story::greeted(bob());
    story.machine.close(Some(9), until);
    story.cut();
    assert_eq!(story.done(), [(9, Err(LOST))]);
    assert!(story.machine.is_ended());
}

#[test]
fn an_event_in_the_middle_harms_nothing() {
    let mut story = Story::greeted(bob());
    story.event(EventType::NodeCreated, "/x");
    assert!(!story.is_broken());
    story.authenticate();
    assert!(story.machine.is_connected());
}

#[test]
fn debug_shows_nothing_of_an_exchange() {
    let mut story = Story::greeted(bob());
    story.answer_sasl(1, ErrorCode::Ok, Some(CHALLENGE));
    let (_, rspauth) = story.exchange().unwrap();
    let shown = format!("{:?}", story.machine);
    assert!(shown.contains("Authenticating"), "{shown}");
    assert!(!shown.contains("pw") && !shown.contains(&rspauth.unwrap()), "{shown}");
}
