//! Replies on their way to their callers.

use super::*;
use crate::machine::answers::{MAX_MEMORY_FACTOR, MAX_SHARED_INPUT};

/// Answers, and whether each came behind events that were not polled yet.
#[derive(Default)]
struct Noted(Vec<(u32, bool)>);

impl Answers<u32> for Noted {
    fn put(&mut self, token: u32, result: Result<Reply<'_>, Error>, after_events: bool) {
        assert_eq!(result.map(|reply| reply.zxid()).ok(), Some(5));
        self.0.push((token, after_events));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shrink_to(&mut self, _: usize) {}
}

/// Up to an accepted session.
fn accept<A: Answers<u32>>(machine: &mut Session<u32, u32, A>, now: Instant) {
    assert!(matches!(machine.poll_connect(now), Connect::To(..)));
    machine.handle_connected(now);
    machine.poll_transmit(now, &mut Vec::new());
    let mut input = BytesMut::new();
    frame::put_record(&mut input, usize::MAX, &granted(7, 6000)).unwrap();
    machine.handle_input(now, &mut input);
}

/// A client must learn of a change before it reads the change, so a reply behind events is marked.
// Case (Failure cases, 11): an event before the reply that caused it.
// Case (Found in docent itself): a reply was delivered before an event that had arrived before it,
// for a moment.
#[test]
fn answers_know_of_the_events_in_front_of_them() {
    let mut machine: Session<u32, u32, Noted> =
        Session::with_answers(config(), 1, Noted::default());
    let now = Instant::ZERO + ms(1000);
    accept(&mut machine, now);
    let mut out = Vec::new();
    let feed = |machine: &mut Session<u32, u32, Noted>, frame: &[u8]| {
        machine.handle_input(now, &mut BytesMut::from(frame));
    };
    for token in 1..=5 {
        let operation = GetData(ReadRequest { path: "/node".into(), watch: true });
        let watch = Registration { kind: WatchKind::Data, path: "/node".into(), watcher: token };
        // Replies without a watch take another code path.
        machine.submit(&operation, token, Some(watch).filter(|_| token <= 3), || now);
    }
    machine.poll_transmit(now, &mut out);
    let event = event_body(EventType::NodeDataChanged, "/node");
    while machine.poll_event().is_some() {}
    feed(&mut machine, &reply_frame(1, b""));
    feed(&mut machine, &reply_frame(xid::NOTIFICATION, &event));
    feed(&mut machine, &reply_frame(2, b""));
    while machine.poll_event().is_some() {}
    feed(&mut machine, &reply_frame(3, b""));
    feed(&mut machine, &reply_frame(4, b""));
    feed(&mut machine, &reply_frame(xid::NOTIFICATION, &event));
    feed(&mut machine, &reply_frame(5, b""));
    assert_eq!(machine.answers_mut().0, [(1, false), (2, true), (3, false), (4, false), (5, true)]);
}

/// Such a frame is too short for a reply, so there is no reason to wait for more of it, even where replies of this
/// length exceed the limit.
#[test]
fn a_frame_shorter_than_a_reply_header_breaks_the_stream() {
    for limit in [1 << 20, 0] {
        for len in 0..16 {
            let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(64));
            scenario.machine.config.max_reply_bytes = limit;
            scenario.send_get("/a", 1);
            let mut frame = u32::try_from(len).unwrap().to_be_bytes().to_vec();
            // The beginning of a reply to our request.
            frame.extend_from_slice(&[&[0, 0, 0, 1][..], &[0; 12]].concat()[..len]);
            // What follows has the length of a header, so that none is taken from two frames.
            frame.extend_from_slice(&[0; 16]);
            scenario.feed_bytes(&frame);
            let why =
                scenario.machine.wants_disconnect().unwrap_or_else(|| panic!("{len} of {limit}"));
            assert!(why.detail().is_some());
            assert_eq!(scenario.completions(), [], "it completes no request");
            scenario.cut();
            assert_eq!(scenario.completions(), [(1, Err(LOST))]);
        }
    }
}

/// Replies that arrive together are handled in blocks; a limit below the length of a short reply must not stop that.
// Case (Found in docent itself): a limit for replies under 1 KiB, and such replies by the block:
// for ever in one place (never released).
#[test]
fn replies_over_a_small_limit_that_come_together_fail_each_by_itself() {
    let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(100));
    let mut bytes = Vec::new();
    for xid in 1..=20 {
        scenario.get("/node", u32::try_from(xid).unwrap());
        let len = if xid % 2 == 0 { 500 } else { 0 };
        bytes.extend(reply_frame(xid, &vec![0; len]));
    }
    scenario.flush();
    scenario.feed_bytes(&bytes);
    let expected = |token: u32| match token % 2 {
        0 => (token, Err((ErrorKind::ReplyTooLarge, Outcome::Unknown))),
        _ => (token, Ok(5)),
    };
    assert_eq!(scenario.completions(), (1..=20).map(expected).collect::<Vec<_>>());
}

/// Replies in one buffer are unchanged, whatever their lengths are and wherever the buffer is cut.
#[test]
fn replies_of_all_sizes_come_out_as_they_went_in() {
    let sizes = [0, 80, 81, 100, 1000, 1008, 1009, 3000, 70_000, 20, 900, 4000, 16];
    let body = |xid: i32, size: usize| vec![u8::try_from(xid).unwrap(); size];
    let mut bytes = Vec::new();
    let expected: Vec<_> = (1..).zip(sizes.iter().cycle().take(100)).collect();
    for (xid, size) in &expected {
        bytes.extend(reply_frame(*xid, &body(*xid, **size)));
    }
    for piece in [bytes.len(), 5000, 2048, 333] {
        let mut scenario = Scenario::connected();
        for (xid, _) in &expected {
            scenario.get("/node", u32::try_from(*xid).unwrap());
        }
        scenario.flush();
        let mut input = BytesMut::new();
        let mut completions = Vec::new();
        for piece in bytes.chunks(piece) {
            input.extend_from_slice(piece);
            scenario.machine.handle_input(scenario.now, &mut input);
            completions.extend(std::iter::from_fn(|| scenario.machine.poll_completion()));
        }
        assert!(input.is_empty());
        for ((xid, size), done) in expected.iter().zip(&completions) {
            assert_eq!(done.token, u32::try_from(*xid).unwrap());
            assert_eq!(done.result.as_ref().unwrap().bytes, body(*xid, **size));
        }
        assert_eq!(completions.len(), expected.len());
    }
}

// Order, xids and limits of the requests.

#[test]
fn replies_complete_requests_in_order() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.delete("/b", 2);
    scenario.flush();
    scenario.reply(1, 5, ErrorCode::Ok, b"x");
    scenario.reply(2, 6, ErrorCode::NoNode, b"");
    assert_eq!(scenario.completions(), [(1, Ok(5)), (2, refused(ErrorKind::NoNode))]);
    assert_eq!(scenario.machine.pending(), 0);
}

/// No caller receives the reply to another request.
// Case (Failure cases, 8): an unexpected reply.
#[test]
fn a_reply_out_of_order_breaks_the_connection_and_completes_no_request() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.send_get("/b", 2);
    scenario.reply(2, 5, ErrorCode::Ok, b"");
    assert!(scenario.is_broken());
    assert_eq!(scenario.completions(), []);
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Err(LOST)), (2, Err(LOST))]);
}

#[test]
fn a_reply_without_a_request_breaks_the_connection() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert!(scenario.is_broken());
}

#[test]
fn a_reply_without_a_ping_breaks_the_connection() {
    let mut scenario = Scenario::connected();
    scenario.reply(xid::PING, 5, ErrorCode::Ok, b"");
    let failure = scenario.machine.connection.failure().unwrap().to_string();
    assert_contains(&failure, &["an unexpected reply to a ping"]);
}

/// The reply `Unimplemented` to an unknown operation overtakes the replies to earlier requests.
// Case (Pitfalls of the wire, 27): an unknown operation's refusal overtakes.
#[test]
fn the_refusal_of_an_unknown_operation_may_overtake() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.send_get("/b", 2);
    scenario.reply(2, -1, ErrorCode::Unimplemented, b"");
    assert!(!scenario.is_broken());
    scenario.cut();
    assert_eq!(scenario.completions(), [(2, refused(ErrorKind::Unimplemented)), (1, Err(LOST))]);
}

#[test]
fn xids_wrap_to_one() {
    let mut scenario = Scenario::connected();
    scenario.machine.last_xid = i32::MAX - 1;
    scenario.get("/a", 1);
    scenario.send_get("/b", 2);
    assert_eq!(scenario.xids()[1..], [i32::MAX, 1]);
}

/// The other requests on the connection get their replies.
// Case (Pitfalls of the wire, 19): a reply over the limit.
#[test]
fn a_reply_over_the_limit_fails_only_its_own_request() {
    let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(100));
    scenario.get("/big", 1);
    scenario.send_get("/small", 2);
    let mut input = BytesMut::new();
    for byte in [reply_frame(1, &[0; 1000]), reply_frame(2, b"")].concat() {
        input.put_u8(byte);
        let now = scenario.now;
        scenario.machine.handle_input(now, &mut input);
    }
    assert_eq!(
        scenario.completions(),
        [(1, Err((ErrorKind::ReplyTooLarge, Outcome::Unknown))), (2, Ok(5))]
    );
}

/// The error of the server says more than that its reply is too long.
// Case (Pitfalls of the wire, 3): an error with a body.
#[test]
fn an_error_in_a_reply_over_the_limit_is_reported() {
    let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(100));
    scenario.send_get("/big", 1);
    scenario.reply(1, 5, ErrorCode::NoNode, &[0; 1000]);
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::NoNode))]);
}

/// An unknown code may mean anything, even a partial success.
#[test]
fn an_error_without_a_name_leaves_the_outcome_open() {
    let mut scenario = Scenario::connected();
    scenario.delete("/a", 1);
    scenario.flush();
    scenario.reply(1, 5, ErrorCode::Unknown(-99), b"");
    assert_eq!(scenario.completions(), [(1, Err((ErrorKind::Server(-99), Outcome::Unknown)))]);
}

// Case (Failure cases, 3): invalid lengths.
#[test]
fn the_rest_of_a_broken_stream_is_not_read_as_the_next_one() {
    // The last one has a length that a frame may have, and no header yet.
    for (rubbish, is_broken) in [
        (&[0xFF; 8][..], true),
        (&[0, 0, 0, 3, 1, 2, 3], true),
        (&[0x7F, 0xFF, 0xFF, 0xFF, 0, 0], false),
    ] {
        let mut scenario = Scenario::connected();
        let mut input = BytesMut::from(rubbish);
        scenario.machine.handle_input(scenario.now, &mut input);
        assert_eq!(scenario.is_broken(), is_broken, "{rubbish:?}");
        scenario.cut();
        scenario.machine.handle_input(scenario.now, &mut input);
        assert!(input.is_empty() && !scenario.is_broken(), "{rubbish:?}");
    }
}

#[test]
fn nothing_is_sent_on_a_connection_that_is_given_up() {
    let mut scenario = Scenario::connected();
    scenario.get("/a", 1);
    scenario.feed_bytes(&[0xFF; 4]);
    scenario.flush();
    assert_eq!(scenario.xids(), [0]);
    scenario.cut();
    assert_eq!(scenario.completions(), []);
}

/// The buffers of a machine have data and credentials in them, and its identity has a password.
#[test]
fn debug_shows_neither_password_nor_data() {
    let mut scenario = Scenario::connected_with(config().with_auth("digest", b"user:secret"));
    scenario.get("/a", 1);
    let text = format!("{:?}", scenario.machine);
    assert!(text.contains("0x7") && !text.contains("48, 49, 50"), "{text}");
    assert!(!text.contains("115, 101, 99"), "{text}");
}

// Case (Contracts of a call): a request over the limit.
#[test]
fn a_request_over_the_limit_is_refused_and_nothing_of_it_is_sent() {
    let mut scenario = Scenario::connected_with(config().with_max_request_bytes(64));
    scenario.get(&format!("/{}", "x".repeat(64)), 1);
    scenario.send_get("/a", 2);
    assert_eq!(scenario.xids()[1..], [1]);
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::RequestTooLarge))]);
}

// Case (What broke other clients): no back-pressure.
// Case (Contracts of a call): the queue is full.
#[test]
fn more_requests_than_allowed_are_refused() {
    let mut scenario = Scenario::new(config().with_max_requests(2));
    scenario.get_each("/a", 1..=3);
    assert_eq!(scenario.completions(), [(3, refused(ErrorKind::TooManyRequests))]);
}

/// A node that cannot be deleted because the queue is full would stay for the session's life.
#[test]
fn a_full_queue_accepts_requests_that_clean_up() {
    for (max_requests, max_pending_bytes) in [(2, usize::MAX), (100, 50)] {
        let config =
            config().with_max_requests(max_requests).with_max_pending_bytes(max_pending_bytes);
        let mut scenario = Scenario::connected_with(config);
        scenario.get_each("/abcdefghij", 1..=3);
        let full = refused(ErrorKind::TooManyRequests);
        assert_eq!(scenario.completions().last(), Some(&(3, full)));
        let delete = delete("/abcdefghij");
        scenario.machine.submit_reserved(&delete, 4, scenario.clock());
        assert_eq!(scenario.completions(), []);
        scenario.flush();
        assert!(scenario.last_sent().contains("Delete"), "{:?}", scenario.wire);
        scenario.reply_each(1..scenario.last_xid() + 1);
        assert_eq!(scenario.completions().last(), Some(&(4, Ok(5))));
        // Not after closeSession, behind which nothing is sent.
        scenario.close(5);
        scenario.machine.submit_reserved(&delete, 6, scenario.clock());
        assert_eq!(scenario.completions(), [(6, refused(ErrorKind::Closed))]);
    }
}

/// The zxids of notifications and pings do not say which state the session has seen.
// Case (Pitfalls of the wire, 16): the last zxid is not an event's.
#[test]
fn the_last_zxid_is_taken_from_replies_only() {
    let mut scenario = Scenario::connected();
    scenario.read("/a", 1, 50);
    let event = event_body(EventType::NodeDeleted, "/a");
    scenario.reply(xid::NOTIFICATION, 99, ErrorCode::Ok, &event);
    scenario.wait_and_flush(ms(2000));
    scenario.reply(xid::PING, 900, ErrorCode::Ok, b"");
    scenario.send_get("/a", 2);
    scenario.reply(2, -1, ErrorCode::Unimplemented, b"");
    scenario.read("/a", 3, 0);
    assert_eq!(scenario.completions().last(), Some(&(3, Ok(0))));
    assert_eq!(scenario.machine.last_zxid, 50);
}

#[test]
fn a_reply_as_long_as_the_limit_may_come_in_pieces() {
    for (over, expected) in [(0, Ok(5)), (1, Err((ErrorKind::ReplyTooLarge, Outcome::Unknown)))] {
        let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(2000));
        scenario.send_get("/big", 1);
        let before = scenario.machine.metrics().bytes_received;
        let bytes = reply_frame(1, &vec![0; 1984 + over]);
        // The first piece is exactly the header.
        let mut input = BytesMut::from(&bytes[..20]);
        scenario.machine.handle_input(scenario.now, &mut input);
        // Over the limit, its header is enough.
        let early = if over > 0 { vec![(1, expected)] } else { vec![] };
        assert_eq!(scenario.completions(), early);
        let len = bytes.len() as u64;
        if over > 0 {
            assert_eq!(scenario.machine.metrics().bytes_received, before + len);
        }
        input.extend_from_slice(&bytes[20..]);
        scenario.machine.handle_input(scenario.now, &mut input);
        assert!(input.is_empty());
        assert_eq!(scenario.machine.metrics().bytes_received, before + len);
        if over == 0 {
            assert_eq!(scenario.completions(), [(1, expected)]);
        }
    }
}

/// Without that event, the state of the watches is unknown.
#[test]
fn an_event_over_the_limit_ends_the_connection_and_says_why() {
    let event = frame::DEFAULT_LIMIT - 16 + 1;
    for (xid, len, said) in [
        (xid::NOTIFICATION, event, "an event of 1048576 bytes"),
        (77, 1000, "xid 77"),
        (0, 1000, "xid 0"),
    ] {
        let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(100));
        scenario.reply(xid, 5, ErrorCode::Ok, &vec![0; len]);
        let why = scenario.machine.wants_disconnect().unwrap();
        assert!(why.detail().unwrap().contains(said), "{why}");
    }
}

/// The event arrives whole and in pieces, between replies below and above the limit.
// Case (Found in docent itself): an event of a path that was longer than the limit of replies ended the connection; the
// next one began with the same event, and so for ever.
#[test]
fn an_event_is_no_reply_over_the_limit() {
    let longest = frame::DEFAULT_LIMIT - (16 + 4 + 4 + 4);
    for (len, step) in [(50, 1), (100, 7), (500, 1000), (3000, 64), (longest, 1 << 20)] {
        let path = format!("/{}", "x".repeat(len - 1));
        let mut scenario = Scenario::connected_with(config().with_max_reply_bytes(100));
        scenario.set_watch(WatchKind::Data, &path, 1);
        scenario.send_each("/a", [2, 3]);
        let event = reply_frame(xid::NOTIFICATION, &event_body(EventType::NodeDeleted, &path));
        let bytes = [reply_frame(2, &[0; 1000]), event, reply_frame(3, b"")].concat();
        let mut input = BytesMut::new();
        for part in bytes.chunks(step) {
            input.extend_from_slice(part);
            scenario.machine.handle_input(scenario.now, &mut input);
        }
        assert!(!scenario.is_broken());
        assert_eq!(scenario.watch_events_as(|event| event.path.to_string()), [(1, path)]);
        assert_eq!(scenario.completions().last(), Some(&(3, Ok(5))));
    }
}

/// Servers send the zxid of the change only since 3.9.
#[test]
fn an_event_has_a_zxid_if_the_server_says_one() {
    for (zxid, expected) in [(-1, None), (0, None), (1, Some(1)), (99, Some(99))] {
        let mut scenario = Scenario::connected();
        scenario.send_watch(WatchKind::Data, "/a", 1);
        scenario.reply(1, 50, ErrorCode::Ok, b"");
        let body = event_body(EventType::NodeDeleted, "/a");
        scenario.reply(xid::NOTIFICATION, zxid, ErrorCode::Ok, &body);
        assert_eq!(scenario.watch_events_as(|event| event.zxid), [(1, expected)]);
    }
}

/// For each reply: how much memory it could share, and the size below which its parts are copied out.
#[derive(Default)]
struct Shared(Vec<Option<(usize, usize)>>);

impl Answers<u32> for Shared {
    fn put(&mut self, _: u32, result: Result<Reply<'_>, Error>, _: bool) {
        let reply = result.unwrap();
        self.0.push(reply.memory().map(|(memory, _)| (memory.len(), reply.copy_below())));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shrink_to(&mut self, _: usize) {}
}

/// The memory that replies of these sizes, in bytes with their headers, share if they come in one piece.
fn shared(sizes: &[usize]) -> Vec<Option<(usize, usize)>> {
    let mut machine: Session<u32, u32, Shared> =
        Session::with_answers(config(), 1, Shared::default());
    let now = Instant::ZERO + ms(1000);
    accept(&mut machine, now);
    let mut input = BytesMut::new();
    for (xid, size) in (1..).zip(sizes) {
        let call = GetData(ReadRequest { path: "/node".into(), watch: false });
        machine.submit(&call, 1, None, || now);
        input.extend(reply_frame(xid, &vec![0; size - 20]));
    }
    machine.poll_transmit(now, &mut Vec::new());
    machine.handle_input(now, &mut input);
    assert!(input.is_empty() && !machine.is_broken());
    std::mem::take(&mut machine.answers_mut().0)
}

/// One allocation for each reply would cost more than all else that is done for it.
#[test]
fn short_replies_that_come_together_share_buffers() {
    // 34 of 120 bytes fit into a buffer of 4096.
    let memory = shared(&[120; 100]);
    let (together, last) = memory.split_at(68);
    assert!(together.iter().all(|memory| *memory == Some((4096, 64))), "{together:?}");
    // 3840 bytes are left: less than a buffer, more than half of one.
    assert_eq!(last, [Some((3840, 64)); 32]);
    // From half a buffer on: the buffer is at most 64 times as large as a part that is not copied.
    assert_eq!(shared(&[128; 16]), [Some((2048, 64)); 16]);
    assert_eq!(shared(&[128; 15]), [None; 15]);
}

/// A frame of 4 KiB or more stays where it was read, and so may its parts; a shorter one is moved into memory of its
/// own.
#[test]
fn long_replies_keep_no_more_than_64_times_their_parts() {
    let parts = |size: usize| shared(&[size])[0].unwrap();
    assert_eq!(parts(1029), (1029, 17));
    assert_eq!(parts(4095), (4095, 64));
    assert_eq!(parts(4096).0, 4096);
    assert!(parts(4096).1 >= 4096);
    // The buffer that was made for it may be twice as large.
    let huge = MAX_SHARED_INPUT / 2;
    assert_eq!(parts(huge), (huge, (2 * huge).div_ceil(MAX_MEMORY_FACTOR)));
    assert_eq!(parts(4 * huge), (4 * huge, (8 * huge).div_ceil(MAX_MEMORY_FACTOR)));
}

/// A frame in the large buffer would keep all of it in memory as long as a caller keeps a part of the frame.
#[test]
fn frames_behind_a_large_frame_are_moved_out_of_its_buffer() {
    for (size, moved) in [(5000, false), (MAX_SHARED_INPUT / 2, true)] {
        let mut scenario = Scenario::connected();
        scenario.send_get("/a", 1);
        // As the driver reads it: a buffer that is just large enough.
        let frame = reply_frame(1, &vec![0; size - 20]);
        let mut input = BytesMut::with_capacity(size + 3);
        input.extend_from_slice(&frame);
        input.extend_from_slice(&[0, 0, 1]);
        let behind = input.as_ptr().addr() + size;
        scenario.machine.handle_input(scenario.now, &mut input);
        assert_eq!(&input[..], [0, 0, 1]);
        assert_eq!(input.as_ptr().addr() != behind, moved, "{size}");
    }
}

/// What follows an invalid frame cannot be trusted.
#[test]
fn nothing_is_answered_behind_what_breaks_the_connection() {
    // Short frames, frames in shared buffers, and long ones.
    for len in [0, 900, 2000] {
        let mut scenario = Scenario::connected();
        scenario.send_each("/a", 1..=9);
        let xids = [1, 77].into_iter().chain(2..=9);
        let bytes: Vec<_> = xids.flat_map(|xid| reply_frame(xid, &vec![0; len])).collect();
        scenario.feed_bytes(&bytes);
        assert_eq!(scenario.completions(), [(1, Ok(5))], "{len}");
        assert!(scenario.is_broken());
    }
}
