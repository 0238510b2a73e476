//! Replies that take long: how long they keep their connection.

use super::*;

/// An idle session, and the limit of its replies in bytes.
fn idle(limit: usize) -> Scenario {
    let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(limit));
    scenario.states();
    scenario
}

impl Scenario {
    /// The reply to a request that is sent now, in 50 parts, one after each `pause`; returns the number of parts that
    /// have arrived when the connection is closed.
    fn slow_reply(&mut self, pause: Duration) -> usize {
        self.slow_frame(1, pause)
    }

    /// The same with a frame of this xid.
    fn slow_frame(&mut self, xid: i32, pause: Duration) -> usize {
        self.send_get("/long", 1);
        let frame = reply_frame(xid, &[0; 4980]);
        let (mut input, mut arrived) = (BytesMut::new(), 0);
        for bytes in frame.chunks(100) {
            self.wait_and_flush(pause);
            if self.is_broken() {
                break;
            }
            input.extend_from_slice(bytes);
            self.machine.handle_input(self.now, &mut input);
            arrived += 1;
        }
        arrived
    }
}

/// The reply takes more than two thirds of the timeout, and is never silent. Its header shows that the session lived
/// when the request was sent: the whole timeout is left from there.
#[test]
fn a_long_answer_keeps_the_connection_while_it_comes() {
    for limit in [1 << 20, 100] {
        let mut scenario = idle(limit);
        scenario.now += ms(1500);
        let claim = scenario.lease().claim();
        assert_eq!(scenario.slow_reply(ms(110)), 50, "{limit}");
        assert_eq!(scenario.completions().len(), 1);
        assert!(claim.is_valid(scenario.now) && scenario.states().is_empty(), "{limit}");
    }
}

/// No other reply arrives behind such a reply, so nothing renews the lease: the claims end, and with them the connection
/// and the session.
// Case (Found in docent itself): a reply of which one byte came now and then kept its connection
// for ever, behind the end of the lease, without SUSPENDED and LOST; so did a reply above the
// limit, and one of a read-only server.
#[test]
fn an_answer_that_takes_longer_than_the_session_ends_with_it() {
    for limit in [1 << 20, 100] {
        let mut scenario = idle(limit);
        let (lease, sent_at) = (scenario.lease(), scenario.now);
        assert!(scenario.slow_reply(ms(200)) < 50);
        assert!(lease.is_lost() && scenario.now < sent_at + ms(6000), "{limit}");
        assert_eq!(scenario.states(), [ConnectionState::Lost], "{limit}");
        scenario.cut_and_connect();
        assert_contains(scenario.last_sent(), &["session_id: 0x0"]);
    }
}

/// An event is no reply, and so shows nothing of the request behind it.
#[test]
fn a_part_of_an_event_keeps_no_connection() {
    assert!(idle(1 << 20).slow_frame(xid::NOTIFICATION, ms(110)) < 50);
}

/// A read-only server renews no lease, so a part of its reply proves nothing about the session.
#[test]
fn a_part_of_an_answer_keeps_no_connection_to_a_read_only_server() {
    for limit in [1 << 20, 100] {
        let config = config().with_read_only(true).with_max_reply_bytes(limit);
        let mut scenario = Scenario::connecting(config);
        scenario.accept_read_only(77);
        assert!(scenario.slow_reply(ms(200)) < 25);
    }
}

/// The replies to one burst take longer than the session timeout. The session is kept while they arrive, but they prove
/// no claim: their requests were sent too long ago.
#[test]
fn a_server_that_answers_later_than_the_timeout_keeps_its_session() {
    let mut scenario = Scenario::connected();
    let claim = scenario.lease().claim();
    scenario.send_each("/a", 1..=100);
    for xid in 1..=80 {
        scenario.wait(ms(100));
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
        assert!(!scenario.is_broken() && claim.is_valid(scenario.now) == (xid < 58), "{xid}");
    }
    assert_eq!(scenario.completions().len(), 80);
    scenario.wait(ms(900));
    assert!(!scenario.is_broken() && !claim.lease().is_lost());
    scenario.wait(ms(200));
    assert!(scenario.is_broken() && claim.lease().is_lost());
    assert_eq!(scenario.completions().iter().filter(|(_, done)| done.is_err()).count(), 20);
}

/// The send time of a request is when the socket took its bytes.
#[test]
fn each_part_of_a_long_burst_counts_from_when_it_was_taken() {
    let mut scenario = Scenario::connected();
    let lasts = ms(6000) - scenario.machine.timeouts().margin;
    let path = format!("/{}", "x".repeat(999));
    scenario.get_each(&path, 1..=1000);
    let mut next = 1;
    while scenario.machine.wants_write() {
        assert!(scenario.flush_part());
        let sent = scenario.xids().len() as i32;
        assert!(sent > next && (sent - next) * 1018 <= 256 * 1024, "{next} to {sent}");
        scenario.now += ms(4000);
        scenario.reply_each(next..sent);
        assert_eq!(scenario.lease().deadline(), scenario.now - ms(4000) + lasts);
        next = sent;
    }
    assert_eq!(scenario.completions().len(), 1000);
}
