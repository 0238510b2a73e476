//! Requests that wait for capacity instead of being refused.

use super::*;
use crate::config::WhenFull;

fn waiting(max_requests: usize) -> Scenario {
    let config = config().with_when_full(WhenFull::Wait).with_max_requests(max_requests);
    Scenario::connected_with(config)
}

#[test]
fn requests_over_the_capacity_wait_and_are_sent_in_call_order() {
    let by_bytes = config().with_max_pending_bytes(50).with_when_full(WhenFull::Wait);
    for scenario in [waiting(2), Scenario::connected_with(by_bytes)] {
        wait_and_are_sent_in_call_order(scenario);
    }
}

fn wait_and_are_sent_in_call_order(mut scenario: Scenario) {
    scenario.send_each("/a", 1..=5);
    assert_eq!(scenario.xids(), [0, 1, 2]);
    assert!(!scenario.machine.wants_write(), "nothing to write without capacity");
    assert_eq!(scenario.machine.metrics().in_flight, 2);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert!(scenario.machine.wants_write());
    scenario.flush();
    assert_eq!(scenario.xids(), [0, 1, 2, 3]);
    for xid in 2..=5 {
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
        scenario.flush();
    }
    let done: Vec<_> = scenario.completions().into_iter().map(|(token, _)| token).collect();
    assert_eq!(done, [1, 2, 3, 4, 5]);
    assert_eq!(scenario.machine.metrics().outgoing_bytes, 0);
}

#[test]
fn a_cut_fails_requests_in_flight_and_sends_those_that_waited() {
    let mut scenario = waiting(2);
    scenario.send_each("/a", 1..=4);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.flush();
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Ok(5)), (2, Err(LOST)), (3, Err(LOST))]);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, 1, 2, 3, 0, 4]);
}

#[test]
fn a_close_is_sent_after_waiting_requests() {
    let mut scenario = waiting(1);
    scenario.get("/a", 1);
    scenario.get("/b", 2);
    scenario.close(9);
    for xid in 1..=3 {
        scenario.flush();
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert_eq!(scenario.completions(), [(1, Ok(5)), (2, Ok(5)), (9, Ok(5))]);
    assert!(scenario.last_sent().contains("CloseSession"));
}

/// The time of each reply counts from when its request was sent, not from the call.
#[test]
fn waiting_moves_no_deadline() {
    let mut scenario = waiting(1);
    scenario.get("/a", 1);
    scenario.send_get("/b", 2);
    scenario.wait(ms(500));
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.flush();
    let sent_at = scenario.now;
    scenario.wait(ms(500));
    scenario.reply(2, 5, ErrorCode::Ok, b"");
    let lease = scenario.machine.lease().unwrap();
    assert_eq!(lease.deadline(), sent_at + ms(6000) - ms(300));
}

/// The cost of a request does not depend on the length of the queue, even if requests leave one by one.
#[test]
fn a_long_line_is_not_moved_for_each_that_leaves() {
    let mut scenario = waiting(1);
    scenario.get_each("/a", 1..=1000);
    let length = scenario.machine.requests.buffered();
    for xid in 1..=100 {
        scenario.flush();
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert_eq!(scenario.machine.requests.buffered(), length, "still where it was");
    for xid in 101..=1000 {
        scenario.flush();
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
        if xid == 600 {
            assert!(
                scenario.machine.requests.buffered() <= length / 2,
                "sent requests are released"
            );
        }
    }
    assert_eq!(scenario.completions().len(), 1000);
    assert_eq!(scenario.machine.requests.buffered(), 0);
}

/// The last write on a connection ignores the limit: no reply will free capacity any more.
#[test]
fn without_the_limit_in_flight_all_requests_leave_at_once() {
    let mut scenario = waiting(1);
    scenario.send_each("/a", 1..=3);
    assert_eq!(scenario.xids(), [0, 1]);
    scenario.machine.lift_limit_in_flight();
    scenario.flush();
    assert_eq!(scenario.xids(), [0, 1, 2, 3]);
}

/// The time of such a request counts from the loss of the connection, and ends with the next connection.
#[test]
fn a_request_without_capacity_waits_for_a_connection_up_to_its_limit() {
    let mut scenario = waiting(1);
    let limit = config().connection_timeout();
    scenario.send_each("/a", 1..=4);
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Err(LOST))]);
    scenario.wait(ms(1000));
    scenario.resume();
    scenario.wait(limit);
    assert_eq!(scenario.completions(), [], "connected: they wait for room");
    scenario.reply(2, 5, ErrorCode::Ok, b"");
    scenario.flush();
    scenario.reply(3, 5, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(2, Ok(5)), (3, Ok(5))]);
    scenario.cut();
    scenario.wait(limit - ms(1));
    assert_eq!(scenario.completions(), []);
    scenario.wait(ms(1));
    assert_eq!(scenario.completions(), [(4, refused(ErrorKind::ConnectionLoss))]);
}

/// The number of requests is one at which visiting or moving all of them for each call would take minutes.
// Case (Found in docent itself): with a request timeout, each call looked at all of the machine's
// own requests in front of it, and those moved one by one when requests timed out.
#[test]
fn many_of_the_machines_own_requests_cost_later_calls_nothing() {
    const MANY: u32 = 100_000;
    for in_flight in [0, MANY] {
        let config = config()
            .with_request_timeout(ms(1000))
            .with_session_timeout(ms(40_000))
            .with_max_requests(usize::MAX)
            .with_max_pending_bytes(usize::MAX);
        let mut scenario = Scenario::connected_for(config, 40_000);
        (0..in_flight).for_each(|token| scenario.send_get("/in-flight", token));
        let now = scenario.now;
        for _ in 0..MANY {
            let own = Exists(ReadRequest { path: "/own".into(), watch: false });
            scenario.machine.enqueue(&own, None, Effect::Reserved, || now);
        }
        for token in in_flight..in_flight + MANY {
            scenario.get("/waits", token);
            assert_eq!(scenario.machine.poll_timeout(), Some(now + ms(1000)));
        }
        scenario.wait(ms(1000));
        let tokens: Vec<_> = scenario.completions().into_iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, (0..in_flight + MANY).collect::<Vec<_>>());
        assert_eq!(scenario.machine.pending(), (in_flight + MANY) as usize);
        scenario.flush();
        let mut sent = scenario.wire.iter().rev().take(MANY as usize);
        assert!(sent.all(|(_, request)| request.contains("/own")));
    }
}

/// An alarm for a request completed meanwhile comes early, and is set again for the next one.
#[test]
fn the_alarm_of_a_request_timeout_moves_on_with_the_requests() {
    let mut scenario = Scenario::connected_with(config().with_request_timeout(ms(1000)));
    let start = scenario.now;
    scenario.send_get("/first", 1);
    scenario.wait(ms(400));
    scenario.send_get("/second", 2);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(scenario.machine.poll_timeout(), Some(start + ms(1000)));
    scenario.wait(ms(600));
    assert_eq!(scenario.completions(), [(1, Ok(5))]);
    assert_eq!(scenario.machine.poll_timeout(), Some(start + ms(1400)));
    scenario.wait(ms(400));
    assert_eq!(scenario.completions(), [(2, LATE)]);
    scenario.reply(2, 5, ErrorCode::Ok, b"");
    assert_ne!(scenario.machine.poll_timeout(), Some(start + ms(1400)));
}

/// Answers of which only one in a thousand is still wanted by its caller.
#[derive(Default)]
struct Rarely(Vec<u32>);

impl Answers<u32> for Rarely {
    fn put(&mut self, token: u32, _: Result<Reply<'_>, Error>, _: bool) {
        self.0.push(token);
    }

    fn is_wanted(&self, token: &u32) -> bool {
        token.is_multiple_of(1000)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shrink_to(&mut self, _: usize) {}
}

/// `select!` drops futures of `ready` while the queue stays full.
// Case (Found in docent itself): each future of `ready` that was dropped while the queue was full
// stayed in its line.
#[test]
fn a_dropped_wait_for_capacity_leaves_nothing() {
    let config = config().with_max_requests(1);
    let mut machine: Session<_, u32, _> = Session::with_answers(config, 1, Rarely::default());
    let operation = GetData(ReadRequest { path: "/a".into(), watch: false });
    machine.submit(&operation, 0, None, || Instant::ZERO);
    for token in 1..=10_000 {
        machine.wait_for_capacity(token);
    }
    assert!(machine.requests.waiters() <= 32, "{} wait", machine.requests.waiters());
    assert!(machine.answers_mut().0.iter().all(|token| token % 1000 > 0), "still waited for");
    machine.close(None, Instant::ZERO);
    let mut answered = std::mem::take(&mut machine.answers_mut().0);
    answered.sort_unstable();
    assert_eq!(answered, (0..=10_000).collect::<Vec<_>>());
}
