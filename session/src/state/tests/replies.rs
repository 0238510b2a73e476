//! Replies on their way to who waits for them.

use docent_protocol::{connect::ConnectResponse, raw::RawBody};

use super::*;

/// Answers, and whether each came behind events that nobody had polled.
#[derive(Default)]
struct Noted(Vec<(u32, bool)>);

impl Answers<u32> for Noted {
    fn put(&mut self, token: u32, told: Result<Reply<'_>, Error>, after_events: bool) {
        assert_eq!(told.map(|reply| reply.zxid()).ok(), Some(5));
        self.0.push((token, after_events));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shrink_to(&mut self, _: usize) {}
}

/// So that a client hears of a change before it reads it, answers are told to be behind the events they came behind.
#[test]
fn answers_know_of_the_events_in_front_of_them() {
    let mut machine: Session<u32, u32, Noted> =
        Session::with_answers(config(), 1, Noted::default());
    let now = Instant::ZERO + ms(1000);
    let feed = |machine: &mut Session<u32, u32, Noted>, payload: &[u8]| {
        let mut out = BytesMut::new();
        frame::put_record(&mut out, usize::MAX, &RawBody(payload)).unwrap();
        machine.handle_input(now, &mut out);
    };
    let mut out = Vec::new();
    assert!(matches!(machine.poll_connect(now), Connect::To(..)));
    machine.handle_connected(now);
    machine.poll_transmit(now, &mut out);
    let mut accepted = Vec::new();
    ConnectResponse {
        protocol_version: 0,
        time_out: 6000,
        session_id: 7,
        passwd: Some(&[0; 16]),
        read_only: Some(false),
    }
    .encode(&mut accepted);
    feed(&mut machine, &accepted);
    for token in 1..=3 {
        let call = GetData(ReadRequest { path: "/node".into(), watch: true });
        let watch = Registration { kind: WatchKind::Data, path: "/node".into(), watcher: token };
        machine.submit(&call, token, Some(watch), || now);
    }
    machine.poll_transmit(now, &mut out);
    let parts = |xid, body: &[u8]| {
        let mut out = Vec::new();
        Parts(ReplyHeader { xid, zxid: 5, err: ErrorCode::Ok }, body).encode(&mut out);
        out
    };
    let mut event = Vec::new();
    let (event_type, state) = (EventType::NodeDataChanged, KeeperState::SyncConnected);
    WatcherEvent { event_type, state, path: "/node".into() }.encode(&mut event);
    while machine.poll_event().is_some() {}
    feed(&mut machine, &parts(1, b""));
    feed(&mut machine, &parts(xid::NOTIFICATION, &event));
    feed(&mut machine, &parts(2, b""));
    while machine.poll_event().is_some() {}
    feed(&mut machine, &parts(3, b""));
    assert_eq!(machine.answers_mut().0, [(1, false), (2, true), (3, false)]);
}

/// Many at once are taken by the block; a limit below what is short must not stop there.
#[test]
fn replies_over_a_small_limit_that_come_together_fail_each_by_itself() {
    let mut config = config();
    config.max_reply_bytes = 100;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    let mut bytes = Vec::new();
    for xid in 1..=20 {
        story.get("/node", u32::try_from(xid).unwrap());
        let len = if xid % 2 == 0 { 500 } else { 0 };
        let reply = ReplyHeader { xid, zxid: 5, err: ErrorCode::Ok };
        frame::put_record(&mut bytes, usize::MAX, &Parts(reply, &vec![0; len])).unwrap();
    }
    story.flush();
    story.feed_bytes(&bytes);
    let told = |token: u32| match token % 2 {
        0 => (token, Err((ErrorKind::ReplyTooLarge, Outcome::Unknown))),
        _ => (token, Ok(5)),
    };
    assert_eq!(story.done(), (1..=20).map(told).collect::<Vec<_>>());
}

/// Long ones and short ones, in one buffer and cut anywhere, are what they were.
#[test]
fn replies_of_all_sizes_come_out_as_they_went_in() {
    let sizes = [0, 80, 81, 100, 1000, 1008, 1009, 3000, 70_000, 20, 900, 4000, 16];
    let body = |xid: i32, size: usize| vec![u8::try_from(xid).unwrap(); size];
    let mut bytes = Vec::new();
    let expected: Vec<_> = (1..).zip(sizes.iter().cycle().take(100)).collect();
    for (xid, size) in &expected {
        let reply = ReplyHeader { xid: *xid, zxid: 5, err: ErrorCode::Ok };
        frame::put_record(&mut bytes, usize::MAX, &Parts(reply, &body(*xid, **size))).unwrap();
    }
    for piece in [bytes.len(), 5000, 2048, 333] {
        let mut story = Story::connected();
        for (xid, _) in &expected {
            story.get("/node", u32::try_from(*xid).unwrap());
        }
        story.flush();
        let mut input = BytesMut::new();
        let mut told = Vec::new();
        for piece in bytes.chunks(piece) {
            input.extend_from_slice(piece);
            story.machine.handle_input(story.now, &mut input);
            told.extend(std::iter::from_fn(|| story.machine.poll_completion()));
        }
        assert!(input.is_empty());
        for ((xid, size), done) in expected.iter().zip(&told) {
            assert_eq!(done.token, u32::try_from(*xid).unwrap());
            assert_eq!(done.result.as_ref().unwrap().bytes, body(*xid, **size));
        }
        assert_eq!(told.len(), expected.len());
    }
}
