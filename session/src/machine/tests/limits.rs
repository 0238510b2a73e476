//! Limits of the time of single requests, beside or without the request timeout of all.

use super::{super::visited::take_visited, *};

const LATE: Completed = Err((ErrorKind::OperationTimeout, Outcome::Unknown));
const UNSENT: Completed = Err((ErrorKind::OperationTimeout, Outcome::NotApplied));

/// The limits are in no order; a request without one waits on, and each late reply is dropped.
#[test]
fn each_request_ends_at_its_own_limit_and_a_late_reply_is_dropped() {
    let mut scenario = Scenario::connected();
    for (token, limit) in [(1, None), (2, Some(500)), (3, Some(200)), (4, None), (5, Some(300))] {
        scenario.get("/slow", token);
        if let Some(limit) = limit {
            scenario.machine.limit(token.cast_signed(), scenario.now + ms(limit));
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
    for token in 1..=3 {
        scenario.get("/a", token);
    }
    scenario.machine.limit(2, scenario.now + ms(100));
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(2, UNSENT)]);
    scenario.resume();
    assert_eq!(scenario.xids(), [0, 1, 3]);
}

#[test]
fn the_earlier_of_the_limit_and_the_request_timeout_ends_a_request() {
    let mut scenario = Scenario::connected_with(config().with_request_timeout(ms(500)));
    for (token, limit) in [(1, 600), (2, 100)] {
        scenario.get("/slow", token);
        scenario.machine.limit(token.cast_signed(), scenario.now + ms(limit));
    }
    scenario.flush();
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(2, LATE)]);
    scenario.wait(ms(399));
    assert_eq!(scenario.completions(), []);
    scenario.wait(ms(1));
    assert_eq!(scenario.completions(), [(1, LATE)]);
}

/// An answered request, an unknown xid, one that was refused, and one behind the largest xid.
#[test]
fn a_limit_of_another_xid_changes_nothing() {
    let mut scenario = Scenario::connected();
    scenario.machine.last_xid = i32::MAX - 1;
    for token in [1, 2] {
        scenario.get("/a", token);
    }
    scenario.flush();
    for xid in [0, 2, i32::MAX - 1] {
        scenario.machine.limit(xid, scenario.now);
    }
    scenario.reply(i32::MAX, 5, ErrorCode::Ok, b"");
    scenario.machine.limit(i32::MAX, scenario.now);
    scenario.wait(ms(1));
    assert_eq!(scenario.completions(), [(1, Ok(5))]);
    scenario.machine.limit(1, scenario.now);
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
    // The numbers that their callers were told.
    let numbers: Vec<_> =
        scenario.machine.auth_pending.iter().map(|pending| pending.number).collect();
    assert!(numbers[0] < 0 && numbers[0] != numbers[1], "{numbers:?}");
    scenario.machine.limit(numbers[1], scenario.now + ms(100));
    scenario.wait(ms(100));
    assert_eq!(scenario.completions(), [(2, LATE)]);
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(scenario.completions(), [(1, Ok(0))]);
}

/// Each limit is found by its xid, and all that end at one time are found in one pass.
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
        scenario.machine.limit(i32::try_from(token).unwrap(), scenario.now + ms(100));
    }
    assert!(take_visited() <= count * 16);
    scenario.wait(ms(100));
    assert_eq!(scenario.machine.metrics().timed_out, count as u64);
    assert!(take_visited() <= count * 4);
}
