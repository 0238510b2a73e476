//! Time limits of single requests, with and without the request timeout for all.

use super::{super::visited::take_visited, *};

const UNSENT: Completed = refused(ErrorKind::OperationTimeout);

impl Scenario {
    fn limit(&mut self, xid: i32, within: Duration) {
        let now = self.now;
        self.machine.limit(xid, now, within);
    }
}

/// The limits are in no order. Requests without a limit go on waiting, and late replies are dropped.
#[test]
fn each_request_ends_at_its_own_limit_and_a_late_reply_is_dropped() {
    let mut scenario = Scenario::connected();
    for (token, limit) in [(1, None), (2, Some(500)), (3, Some(200)), (4, None), (5, Some(300))] {
        scenario.get("/slow", token);
        if let Some(limit) = limit {
            scenario.limit(token.cast_signed(), ms(limit));
        }
    }
    scenario.flush();
    assert_eq!(scenario.machine.poll_timeout(), Some(scenario.now + ms(200)));
    scenario.wait(ms(199));
    assert_eq!(scenario.completions(), []);
    scenario.wait(ms(1));
    assert_eq!(scenario.completions(), [(3, LATE)]);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(1, Ok(5)), (5, LATE)]);
    scenario.wait(ms(200));
    assert_eq!(scenario.completions(), [(2, LATE)]);
    for xid in 2..=5 {
        scenario.reply(xid, 6, ErrorCode::Ok, b"");
    }
    assert_eq!(scenario.completions(), [(4, Ok(6))]);
    assert!(!scenario.is_broken());
    assert_eq!(scenario.machine.metrics().timed_out, 3);
}

#[test]
fn a_request_that_was_unsent_at_its_limit_is_not_sent() {
    let mut scenario = Scenario::new(config());
    scenario.get_each("/a", 1..=3);
    scenario.limit(2, ms(100));
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(2, UNSENT)]);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, 1, 3]);
}

/// The xids are those of an answered request, of no request, of a refused one, and of one behind the largest xid.
#[test]
fn a_limit_of_another_xid_changes_nothing() {
    let mut scenario = Scenario::connected();
    scenario.machine.last_xid = i32::MAX - 1;
    for token in [1, 2] {
        scenario.get("/a", token);
    }
    scenario.flush();
    for xid in [0, 2, i32::MAX - 1] {
        scenario.limit(xid, ms(0));
    }
    scenario.reply(i32::MAX, 5, ErrorCode::Ok, b"");
    scenario.limit(i32::MAX, ms(0));
    scenario.wait(ms(1));
    assert_eq!(scenario.completions(), [(1, Ok(5))]);
    scenario.limit(1, ms(0));
    scenario.wait(ms(0));
    assert_eq!(scenario.completions(), [(2, LATE)]);
}

#[test]
fn credentials_end_at_their_own_limit() {
    let mut scenario = Scenario::connected();
    for token in [1, 2] {
        scenario.add_auth("digest", b"u:p", token);
    }
    scenario.flush();
    // The numbers that the callers have received.
    let numbers: Vec<_> =
        scenario.machine.auth_pending.iter().map(|pending| pending.number).collect();
    assert!(numbers[0] < 0 && numbers[0] != numbers[1], "{numbers:?}");
    scenario.limit(numbers[1], ms(100));
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(2, LATE)]);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(0))]);
}

/// Each limit is found by its xid, and those that end at one time are found in one pass.
#[test]
fn a_limit_visits_few_other_requests() {
    let count = 10_000;
    let mut scenario = Scenario::connected_with(config().with_max_requests(count));
    for token in 1..=count {
        scenario.get("/a", u32::try_from(token).unwrap());
    }
    scenario.flush();
    take_visited();
    for token in 1..=count {
        scenario.limit(i32::try_from(token).unwrap(), ms(100));
    }
    assert!(take_visited() <= count * 16);
    scenario.wait(ms(100));
    assert_eq!(scenario.machine.metrics().timed_out, count as u64);
    assert!(take_visited() <= count * 4);
}

// Case (Found in docent itself): with limits of single calls, each one that ended visited all pending requests.
#[test]
fn limits_that_end_one_after_the_other_visit_few_requests() {
    let count = 2_000;
    let reversed: fn(u32, u32) -> u32 = |count, token| count + 1 - token;
    for (order, is_sent) in [(reversed, true), (|_, token| token, true), (|_, token| token, false)]
    {
        let config =
            config().with_session_timeout(ms(600_000)).with_connection_timeout(ms(600_000));
        let mut scenario =
            Scenario::connected_for(config.with_max_requests(count as usize), 600_000);
        if !is_sent {
            scenario.cut();
        }
        for token in 1..=count {
            scenario.get("/a", token);
            scenario.limit(token.cast_signed(), ms(order(count, token).into()));
        }
        scenario.flush();
        take_visited();
        for ended in 1..=u64::from(count) {
            scenario.wait(ms(1));
            assert_eq!(scenario.machine.metrics().timed_out, ended);
        }
        let visited = take_visited();
        assert!(visited <= count as usize * 8, "{visited}");
    }
}

#[test]
fn limits_of_answered_requests_are_forgotten() {
    let mut scenario = Scenario::connected();
    for token in 1..=10_000 {
        scenario.get("/a", token);
        scenario.limit(token.cast_signed(), ms(5_000));
        scenario.flush();
        scenario.reply(token.cast_signed(), 5, ErrorCode::Ok, b"");
    }
    assert!(scenario.machine.requests.limits() <= 100);
    // A thousand are pending all the time.
    take_visited();
    for token in 10_001..=20_000_u32 {
        scenario.get("/a", token);
        scenario.limit(token.cast_signed(), ms(5_000));
        scenario.flush();
        if token > 11_000 {
            scenario.reply(token.cast_signed() - 1_000, 5, ErrorCode::Ok, b"");
        }
    }
    assert!(scenario.machine.requests.limits() <= 3_000);
    let visited = take_visited();
    assert!(visited <= 10_000 * 16, "{visited}");
    // Then only one is pending.
    for token in 19_001..=20_000 {
        scenario.reply(token, 5, ErrorCode::Ok, b"");
        if token == 19_999 {
            scenario.get("/a", 20_001);
            scenario.limit(20_001, ms(5_000));
            scenario.flush();
        }
    }
    assert!(scenario.machine.requests.limits() <= 100);
    scenario.reply(20_001, 5, ErrorCode::Ok, b"");
    // The limit of the last one that is pending is the next.
    scenario.get("/a", 20_002);
    scenario.limit(20_002, ms(1_000));
    scenario.flush();
    scenario.wait(ms(1_000));
    assert_eq!(scenario.completions().last(), Some(&(20_002, LATE)));
}

// Case (Found in docent itself): the error of a call whose limit had passed did not name the limit.
#[test]
fn an_error_names_the_limit_that_has_passed() {
    let mut scenario = Scenario::connected_with(config().with_request_timeout(ms(500)));
    scenario.get_each("/slow", 1..=2);
    scenario.add_auth("digest", b"u:p", 3);
    scenario.limit(1, ms(250));
    let number = scenario.machine.auth_pending[0].number;
    scenario.limit(number, ms(125));
    scenario.flush();
    scenario.wait(ms(500));
    let mut texts: Vec<_> = std::iter::from_fn(|| scenario.machine.poll_completion())
        .map(|done| (done.token, done.result.unwrap_err().detail().unwrap_or_default().to_owned()))
        .collect();
    texts.sort();
    let texts: Vec<_> = texts.iter().map(|(_, text)| &**text).collect();
    assert_eq!(
        texts,
        [
            "no reply within 250ms, the time limit of the call",
            "no reply within 500ms, the request timeout",
            "no reply within 125ms, the time limit of the call",
        ]
    );
}
