//! Requests that wait for room instead of being refused.

use super::*;
use crate::WhenFull;

fn waiting(max_requests: usize) -> Story {
    let mut config = config().with_when_full(WhenFull::Wait);
    config.max_requests = max_requests;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story
}

#[test]
fn what_has_no_room_waits_and_leaves_in_call_order() {
    let mut story = waiting(2);
    for token in 1..=5 {
        story.get("/a", token);
    }
    story.flush();
    assert_eq!(story.xids(), [0, 1, 2]);
    assert!(!story.machine.wants_write(), "nothing to write as long as there is no room");
    assert_eq!(story.machine.metrics().in_flight, 2);
    story.reply(1, 5, ErrorCode::Ok, b"");
    assert!(story.machine.wants_write());
    story.flush();
    assert_eq!(story.xids(), [0, 1, 2, 3]);
    for xid in 2..=5 {
        story.reply(xid, 5, ErrorCode::Ok, b"");
        story.flush();
    }
    let done: Vec<_> = story.done().into_iter().map(|(token, _)| token).collect();
    assert_eq!(done, [1, 2, 3, 4, 5]);
    assert_eq!(story.machine.metrics().outgoing_bytes, 0);
}

/// One that is larger than the limit goes alone, or it would wait for ever.
#[test]
fn bytes_count_as_requests_do() {
    let mut config = config().with_when_full(WhenFull::Wait);
    config.max_pending_bytes = 60;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    for (token, length) in [(1, 1), (2, 1), (3, 100), (4, 1), (5, 1)] {
        story.get(&format!("/{}", "x".repeat(length)), token);
    }
    let mut batches = Vec::new();
    for xid in 1..=5 {
        let before = story.wire.len();
        story.flush();
        batches.push(story.wire.len() - before);
        story.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert_eq!(batches, [2, 0, 1, 2, 0]);
    assert_eq!(story.done().len(), 5);
}

#[test]
fn a_cut_fails_what_was_in_flight_and_sends_what_waited() {
    let mut story = waiting(2);
    for token in 1..=4 {
        story.get("/a", token);
    }
    story.flush();
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.flush();
    story.cut();
    assert_eq!(story.done(), [(1, Ok(5)), (2, Err(LOST)), (3, Err(LOST))]);
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, 1, 2, 3, 0, 4]);
}

#[test]
fn who_waits_for_too_long_was_never_sent_and_others_follow_whole() {
    let mut config = config().with_when_full(WhenFull::Wait).with_request_timeout(ms(1000));
    config.max_requests = 1;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story.get("/first", 1);
    story.get("/a-longer-one", 2);
    story.flush();
    story.wait(ms(500));
    story.get("/third", 3);
    story.wait(ms(500));
    let timed_out = |outcome| Err((ErrorKind::OperationTimeout, outcome));
    assert_eq!(
        story.done(),
        [(1, timed_out(Outcome::Unknown)), (2, timed_out(Outcome::NotApplied))]
    );
    // The first still takes its place: its answer has not come.
    story.flush();
    assert_eq!(story.xids(), [0, 1]);
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.flush();
    assert_eq!(story.xids(), [0, 1, 3]);
    assert!(story.wire[2].1.contains("/third"), "{:?}", story.wire);
}

#[test]
fn a_close_goes_behind_what_waits() {
    let mut story = waiting(1);
    story.get("/a", 1);
    story.get("/b", 2);
    let until = story.now + ms(1000);
    story.machine.close(Some(9), until);
    for xid in 1..=3 {
        story.flush();
        story.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert_eq!(story.done(), [(1, Ok(5)), (2, Ok(5)), (9, Ok(5))]);
    assert!(story.wire.last().unwrap().1.contains("CloseSession"));
}

/// Each answer counts from when its own request left, not from when it was called for.
#[test]
fn waiting_moves_no_deadline() {
    let mut story = waiting(1);
    story.get("/a", 1);
    story.get("/b", 2);
    story.flush();
    story.wait(ms(500));
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.flush();
    let sent_at = story.now;
    story.wait(ms(500));
    story.reply(2, 5, ErrorCode::Ok, b"");
    let lease = story.machine.lease().unwrap();
    assert_eq!(lease.deadline(), sent_at + ms(6000) - ms(300));
}

/// A long line costs each of its requests the same, however little leaves at once.
#[test]
fn a_long_line_is_not_moved_for_each_that_leaves() {
    let mut story = waiting(1);
    for token in 1..=1000 {
        story.get("/a", token);
    }
    let length = story.machine.outgoing.len();
    for xid in 1..=100 {
        story.flush();
        story.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert_eq!(story.machine.outgoing.len(), length, "still where it was");
    for xid in 101..=1000 {
        story.flush();
        story.reply(xid, 5, ErrorCode::Ok, b"");
    }
    assert_eq!(story.done().len(), 1000);
    assert_eq!(story.machine.outgoing.len(), 0);
}

/// What the machine itself sends waits on between requests that fail, whole and in its place.
#[test]
fn the_machines_own_requests_do_not_time_out_with_others() {
    let mut config = config().with_when_full(WhenFull::Wait).with_request_timeout(ms(1000));
    config.max_requests = 1;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story.watch(WatchKind::Data, "/w", 1);
    story.flush();
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.get("/in-flight", 2);
    story.flush();
    story.get("/waits", 3);
    let now = story.now;
    story.machine.remove_watch("/w", &1, None, || now);
    story.get("/waits-too", 4);
    story.wait(ms(500));
    story.get("/later", 5);
    story.wait(ms(500));
    let tokens: Vec<_> = story.done().into_iter().map(|(token, _)| token).collect();
    assert_eq!(tokens, [1, 2, 3, 4]);
    for xid in [2, 4, 6] {
        story.reply(xid, 5, ErrorCode::Ok, b"");
        story.flush();
    }
    let sent: Vec<_> = story.wire[3..].iter().map(|(xid, _)| *xid).collect();
    assert_eq!(sent, [4, 6]);
    assert!(story.wire[3].1.contains("RemoveWatches") && story.wire[4].1.contains("/later"));
    assert_eq!(story.done(), [(5, Ok(5))]);
}
