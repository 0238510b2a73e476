//! Random sequences of operations, compared with a plain list.

use std::time::Duration;

use docent_protocol::{operation::GetData, request::ReadRequest};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::config::WhenFull;

#[derive(Debug, Clone)]
enum Op {
    /// The length of a path, whether it has a deadline and a token, and whether it is plain.
    Push(u8, bool, bool),
    Discard,
    Transmit(bool),
    Answer,
    Overtake(u8),
    FailSent,
    FailUnsent,
    FailInternal,
    Expire,
    /// Which request, and the time until its own deadline, in seconds.
    Limit(u8, u8),
    TimeOut,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..40_u8, any::<bool>(), any::<bool>()).prop_map(|(len, own, plain)| Op::Push(len, own, plain)),
        1 => Just(Op::Discard),
        4 => any::<bool>().prop_map(Op::Transmit),
        6 => Just(Op::Answer),
        1 => any::<u8>().prop_map(Op::Overtake),
        1 => Just(Op::FailSent),
        1 => Just(Op::FailUnsent),
        1 => Just(Op::FailInternal),
        1 => Just(Op::Expire),
        2 => (any::<u8>(), 0..9_u8).prop_map(|(which, seconds)| Op::Limit(which, seconds)),
        1 => Just(Op::TimeOut),
    ]
}

/// A request in the plain list.
#[derive(Debug, Clone)]
struct Entry {
    xid: i32,
    frame: Vec<u8>,
    has_token: bool,
    deadline: Instant,
    expires: Instant,
}

fn get(len: u8) -> GetData<'static> {
    let path = "/abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz".get(..usize::from(len) + 1);
    GetData(ReadRequest { path: path.unwrap().into(), watch: false })
}

fn xids(requests: impl IntoIterator<Item = Pending<i32, u32>>) -> Vec<i32> {
    requests.into_iter().map(|request| request.xid).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Each request leaves once, in order, and exactly the frames of unsent requests remain.
    #[test]
    fn requests_leave_as_they_leave_a_plain_list(
        ops in vec(op(), 0..60),
        max_requests in 1..8_usize,
        max_bytes in 40..200_usize,
        waits in any::<bool>(),
    ) {
        let mut settings = Settings::new("one:1".parse().unwrap());
        settings.request_timeout = Some(Duration::from_secs(8));
        settings.when_full = if waits { WhenFull::Wait } else { WhenFull::Fail };
        (settings.max_requests, settings.max_pending_bytes) = (max_requests, max_bytes);
        let mut requests: Requests<i32, u32> = Requests::new(&settings);
        let (mut sent, mut unsent): (Vec<Entry>, Vec<Entry>) = (Vec::new(), Vec::new());
        let (mut now, mut xid) = (Instant::from_nanos(1_000_000_000), 0);
        let step = Duration::from_secs(1);
        for op in ops {
            now += step;
            match op {
                Op::Push(len, own, plain) => {
                    xid += 1;
                    let size = requests.encode(1 << 20, xid, &get(len)).unwrap();
                    let mut frame = Vec::new();
                    frame::put_operation(&mut frame, 1 << 20, xid, &get(len)).unwrap();
                    prop_assert_eq!(size, frame.len());
                    let effect = match (own, plain) {
                        (true, _) => Effect::Close,
                        (_, true) => Effect::None,
                        _ => Effect::Reserved,
                    };
                    requests.push(xid, size, (!own).then_some(xid), effect);
                    let expires = now + step * 5;
                    let deadline = (!own).then_some(now + step * 8);
                    requests.limit_last(Some(expires), deadline);
                    let deadline = deadline.unwrap_or(NEVER);
                    unsent.push(Entry { xid, frame, has_token: !own, deadline, expires });
                }
                Op::Discard => {
                    let size = requests.encode(1 << 20, 99, &get(9)).unwrap();
                    requests.discard(size);
                }
                Op::Transmit(has_control) => {
                    let mut control = if has_control { b"control".to_vec() } else { Vec::new() };
                    let (mut expected, mut out) = (control.clone(), Vec::new());
                    prop_assert_eq!(requests.can_send(), {
                        let size = |entries: &[Entry]| entries.iter().map(|entry| entry.frame.len()).sum::<usize>();
                        let fits = |next: &Entry| sent.is_empty()
                            || (sent.len() < max_requests && size(&sent) + next.frame.len() <= max_bytes);
                        unsent.first().is_some_and(|next| !waits || fits(next))
                    });
                    if !requests.can_send() {
                        continue;
                    }
                    requests.transmit(now, &mut control, &mut out);
                    while let Some(next) = unsent.first() {
                        let bytes: usize = sent.iter().map(|entry| entry.frame.len()).sum();
                        let full = sent.len() >= max_requests || bytes + next.frame.len() > max_bytes;
                        if waits && full && !sent.is_empty() {
                            break;
                        }
                        expected.extend_from_slice(&next.frame);
                        sent.push(unsent.remove(0));
                    }
                    prop_assert_eq!(out, expected);
                }
                Op::Answer => {
                    prop_assert!(requests.answer(-7).is_none());
                    let Some(xid) = sent.first().map(|entry| entry.xid) else {
                        prop_assert!(requests.iter().next().is_none_or(|front| requests.in_flight() == 0 && front.xid > 0));
                        continue;
                    };
                    let entry = sent.remove(0);
                    let (token, _) = requests.answer(xid).unwrap();
                    prop_assert_eq!(token, entry.has_token.then_some(xid));
                    prop_assert!(requests.has_answered());
                }
                Op::Overtake(which) => {
                    let index = usize::from(which) % (sent.len() + 1);
                    let xid = sent.get(index).map_or(0, |entry| entry.xid);
                    let timed_out = requests.timed_out;
                    prop_assert_eq!(requests.answer_overtaking(xid).map(|(token, _)| token),
                        sent.get(index).map(|entry| entry.has_token.then_some(xid)));
                    if index < sent.len() {
                        sent.remove(index);
                        prop_assert_eq!(requests.timed_out, timed_out - usize::from(index < timed_out));
                    }
                }
                Op::FailSent => {
                    let expected: Vec<_> = sent.drain(..).map(|entry| entry.xid).collect();
                    prop_assert_eq!(xids(requests.fail_sent()), expected);
                }
                Op::FailUnsent => {
                    let expected: Vec<_> = unsent.drain(..).map(|entry| entry.xid).collect();
                    prop_assert_eq!(xids(requests.fail_unsent()), expected);
                }
                Op::FailInternal => {
                    let expected: Vec<_> =
                        unsent.extract_if(.., |entry| !entry.has_token).map(|entry| entry.xid).collect();
                    prop_assert_eq!(xids(requests.fail_internal()), expected);
                }
                Op::Expire => {
                    let expected: Vec<_> =
                        unsent.extract_if(.., |entry| entry.expires <= now).map(|entry| entry.xid).collect();
                    prop_assert_eq!(xids(requests.expire(now)), expected);
                    prop_assert_eq!(requests.next_expiry(), unsent.first().map(|entry| entry.expires));
                }
                Op::Limit(which, seconds) => {
                    let index = usize::from(which) % (sent.len() + unsent.len() + 1);
                    let within = step * u32::from(seconds);
                    let deadline = now + within;
                    let entry = sent.iter_mut().chain(&mut unsent).nth(index);
                    requests.limit(entry.as_ref().map_or(xid + 1, |entry| entry.xid), now, within);
                    for entry in entry.into_iter().filter(|entry| entry.has_token) {
                        entry.deadline = entry.deadline.min(deadline);
                    }
                }
                Op::TimeOut => {
                    let (timed_out, taken) = requests.time_out(now);
                    let mut tokens: Vec<_> = timed_out.into_iter().map(|(token, _)| token).collect();
                    tokens.sort_unstable();
                    tokens.extend(xids(taken.into_iter().map(|(request, _)| request)));
                    let mut expected = Vec::new();
                    for entry in sent.iter_mut().filter(|entry| entry.deadline <= now) {
                        (entry.has_token, entry.deadline) = (false, NEVER);
                        expected.push(entry.xid);
                    }
                    expected.extend(unsent.extract_if(.., |entry| entry.deadline <= now).map(|entry| entry.xid));
                    prop_assert_eq!(tokens, expected);
                    let first = sent.iter().chain(&unsent).map(|entry| entry.deadline).filter(|at| *at != NEVER).min();
                    prop_assert_eq!(requests.next_deadline(), first);
                    // No deadline is due any more.
                    prop_assert!(!requests.is_deadline_due(now));
                }
            }
            requests.check();
            prop_assert_eq!((requests.in_flight(), requests.len()), (sent.len(), sent.len() + unsent.len()));
            let order: Vec<_> = sent.iter().chain(&unsent).map(|entry| entry.xid).collect();
            prop_assert_eq!(requests.iter().map(|request| request.xid).collect::<Vec<_>>(), order);
        }
        let frames: Vec<u8> = unsent.iter().flat_map(|entry| entry.frame.clone()).collect();
        prop_assert_eq!(requests.outgoing.get(requests.taken..).unwrap_or_default(), &frames[..]);
    }
}

#[test]
fn a_request_without_a_limit_of_time_never_expires() {
    let mut requests: Requests<i32, u32> = Requests::new(&Settings::new("one:1".parse().unwrap()));
    assert_eq!(requests.next_expiry(), None);
    let size = requests.encode(1 << 20, 1, &get(9)).unwrap();
    requests.push(1, size, Some(1), Effect::None);
    assert_eq!(requests.next_expiry(), None);
    let at = Instant::from_nanos(7);
    requests.limit_last(Some(at), None);
    assert_eq!(requests.next_expiry(), Some(at));
}

#[test]
fn a_reply_counts_from_when_its_request_was_sent() {
    let mut requests: Requests<i32, u32> = Requests::new(&Settings::new("one:1".parse().unwrap()));
    let push = |requests: &mut Requests<_, _>, xid| {
        let size = requests.encode(1 << 20, xid, &get(9)).unwrap();
        requests.push(xid, size, Some(xid), Effect::None);
    };
    for batch in 0..3 {
        push(&mut requests, 2 * batch + 1);
        push(&mut requests, 2 * batch + 2);
        let at = Instant::from_nanos(batch.unsigned_abs().into());
        requests.transmit(at, &mut Vec::new(), &mut Vec::new());
    }
    assert_eq!(requests.last_answered_sent_at(), None);
    for xid in 1..=5 {
        requests.answer(xid).unwrap();
        let at = Instant::from_nanos(u64::from(xid.unsigned_abs() - 1) / 2);
        assert_eq!(requests.last_answered_sent_at(), Some(at), "{xid}");
    }
    // No reply to a request that was not sent, although one that was answered early counts as in flight.
    requests.answer_overtaking(6).unwrap();
    push(&mut requests, 7);
    assert_eq!(requests.sent_at_of_next(7), None);
}

/// Searching all waiters for each call would make n calls cost n².
#[test]
fn waiters_are_searched_only_before_their_list_grows() {
    let mut requests: Requests<i32, u32> = Requests::new(&Settings::new("one:1".parse().unwrap()));
    let mut searches = 0;
    for token in 0..1000 {
        searches += usize::from(requests.has_many_waiters());
        requests.wait_for_capacity(token);
    }
    assert!((1..=20).contains(&searches), "{searches}");
}
