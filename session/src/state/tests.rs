//! The machine's rules, each a story: frames by hand, instants by hand, numbers for tokens and watchers.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use docent_protocol::{
    Encode, ErrorCode, EventType, KeeperState, WatcherEvent,
    call::{Delete, Exists, GetChildren, GetData},
    connect::{ConnectRequest, ConnectResponse, HandshakeReply},
    frame,
    jute::{Decode, Reader},
    reply::ReplyHeader,
    request::{DeleteRequest, ReadRequest, Request, RequestHeader},
    xid,
};

use super::*;
use crate::WatchKind;

mod replies;
mod room;
#[cfg(feature = "sasl")]
mod sasl;
mod sessions;
mod stories;
mod watching;

type Machine = Session<u32, u32>;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What became of a request: the zxid of its reply, or the error.
type Told = Result<i64, (ErrorKind, Outcome)>;

/// A machine, its clock, and the server's side of its bytes.
struct Story {
    machine: Machine,
    now: Instant,
    /// Requests given out by the machine: xid, and the request as text.
    wire: Vec<(i32, String)>,
}

fn config() -> Config {
    Config::new("one:1").unwrap().with_session_timeout(ms(6000)).with_connection_timeout(ms(3000))
}

impl Story {
    fn new(config: Config) -> Self {
        Self { machine: Session::new(config, 1), now: Instant::ZERO + ms(1000), wire: Vec::new() }
    }

    /// Up to a session with the id 7 and a timeout of 6 s.
    fn connected() -> Self {
        let mut story = Self::new(config());
        story.connect();
        story.accept(7, 6000);
        story
    }

    fn connect(&mut self) {
        for _ in 0..10 {
            match self.machine.poll_connect(self.now) {
                Connect::To(..) => {
                    self.machine.handle_connected(self.now);
                    return self.flush();
                }
                Connect::At(at) => self.now = at,
                other => panic!("{other:?}"),
            }
        }
        panic!("never asked to connect");
    }

    fn accept(&mut self, session_id: i64, time_out: i32) {
        self.feed(&HandshakeReply::Response(ConnectResponse {
            protocol_version: 0,
            time_out,
            session_id,
            passwd: Some(b"0123456789abcdef"),
            read_only: Some(false),
        }));
        self.flush();
    }

    fn refuse(&mut self) {
        self.accept(0, 0);
    }

    /// Gives the machine one frame of these records.
    fn feed(&mut self, payload: &impl Encode) {
        let mut out = Vec::new();
        frame::put_record(&mut out, usize::MAX, payload).unwrap();
        self.feed_bytes(&out);
    }

    fn feed_bytes(&mut self, bytes: &[u8]) {
        self.machine.handle_input(self.now, &mut BytesMut::from(bytes));
    }

    fn reply(&mut self, xid: i32, zxid: i64, err: ErrorCode, body: &[u8]) {
        self.feed(&Parts(ReplyHeader { xid, zxid, err }, body));
    }

    fn event(&mut self, event_type: EventType, path: &str) {
        let mut body = Vec::new();
        WatcherEvent { event_type, state: KeeperState::SyncConnected, path: path.into() }
            .encode(&mut body);
        self.reply(xid::NOTIFICATION, -1, ErrorCode::Ok, &body);
    }

    /// Takes what the machine wants written, frame by frame.
    fn flush(&mut self) {
        let mut out = Vec::new();
        self.machine.poll_transmit(self.now, &mut out);
        let mut rest = &out[..];
        while let Some((payload, tail)) = frame::split(rest, usize::MAX).unwrap() {
            rest = tail;
            let mut reader = Reader::new(payload);
            // A handshake's first eight bytes are two zeros, which no request's are.
            let header = RequestHeader::decode(&mut reader).unwrap();
            self.wire.push(if header.xid == 0 {
                (0, format!("{:?}", ConnectRequest::decode(&mut Reader::new(payload)).unwrap()))
            } else {
                (header.xid, format!("{:?}", Request::decode(header.op, &mut reader).unwrap()))
            });
        }
        assert!(rest.is_empty(), "half a frame was handed out");
    }

    fn get(&mut self, path: &str, token: u32) {
        let now = self.now;
        let call = GetData(ReadRequest { path: path.into(), watch: false });
        self.machine.submit(&call, token, None, || now);
    }

    fn delete(&mut self, path: &str, token: u32) {
        let now = self.now;
        let call = Delete(DeleteRequest { path: path.into(), version: -1 });
        self.machine.submit(&call, token, None, || now);
    }

    fn watch(&mut self, kind: WatchKind, path: &str, token: u32) {
        let now = self.now;
        let watch = Some(Registration { kind, path: path.into(), watcher: token });
        let read = ReadRequest { path: path.into(), watch: true };
        match kind {
            WatchKind::Data => self.machine.submit(&GetData(read), token, watch, || now),
            WatchKind::Exist => self.machine.submit(&Exists(read), token, watch, || now),
            WatchKind::Child => self.machine.submit(&GetChildren(read), token, watch, || now),
            other => panic!("{other:?} takes add_watch"),
        }
    }

    fn cut(&mut self) {
        let why = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown);
        let host = Host { name: "one".into(), port: 1 };
        self.machine.handle_disconnected(self.now, &host, &why);
    }

    fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.machine.handle_timeout(self.now);
    }

    fn done(&mut self) -> Vec<(u32, Told)> {
        std::iter::from_fn(|| self.machine.poll_completion())
            .map(|done| {
                let result = done.result.map(|body| body.zxid);
                (done.token, result.map_err(|error| (error.kind(), error.outcome())))
            })
            .collect()
    }

    fn states(&mut self) -> Vec<ConnectionState> {
        std::iter::from_fn(|| self.machine.poll_event())
            .filter_map(|event| match event {
                Event::State(state) => Some(state),
                _ => None,
            })
            .collect()
    }

    fn told(&mut self) -> Vec<(u32, EventType)> {
        std::iter::from_fn(|| self.machine.poll_event())
            .filter_map(|event| match event {
                Event::Watch { watcher, event } => Some((watcher, event.event_type)),
                _ => None,
            })
            .collect()
    }

    fn xids(&self) -> Vec<i32> {
        self.wire.iter().map(|(xid, _)| *xid).collect()
    }

    fn is_broken(&self) -> bool {
        self.machine.wants_disconnect().is_some()
    }
}

/// A header and a body.
struct Parts<'a>(ReplyHeader, &'a [u8]);

impl Encode for Parts<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        self.0.encode(out);
        out.put_slice(self.1);
    }
}

const LOST: (ErrorKind, Outcome) = (ErrorKind::ConnectionLoss, Outcome::Unknown);

// The handshake.

#[test]
fn the_first_handshake_asks_for_a_new_session() {
    let mut story = Story::new(config());
    story.connect();
    let request = &story.wire[0].1;
    assert!(
        request
            .contains("last_zxid_seen: 0, time_out: 6000, session_id: 0x0, read_only: Some(false)"),
        "{request}"
    );
}

#[test]
fn a_second_connection_brings_id_zxid_and_the_timeout_first_asked_for() {
    let mut story = Story::new(config());
    story.connect();
    story.accept(0x17, 4000);
    story.get("/a", 1);
    story.flush();
    story.reply(1, 99, ErrorCode::Ok, b"");
    story.cut();
    story.connect();
    let request = &story.wire.last().unwrap().1;
    assert!(request.contains("last_zxid_seen: 99, time_out: 6000, session_id: 0x17"), "{request}");
}

#[test]
fn requests_wait_for_the_session_and_leave_in_call_order() {
    let mut story = Story::new(config());
    story.get("/a", 1);
    story.connect();
    story.get("/b", 2);
    story.flush();
    assert_eq!(story.xids(), [0], "nothing but the handshake before it is answered");
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, 1, 2]);
}

#[test]
fn the_granted_timeout_sets_the_intervals() {
    let mut story = Story::new(config());
    story.connect();
    story.accept(7, 3000);
    assert_eq!(story.machine.timeouts().ping, ms(1000));
    assert_eq!(story.machine.timeouts().read, ms(2000));
}

/// reliability case 6, pitfall 25: a read-only server of 3.7+ answers with a reply header.
#[test]
fn a_reply_header_instead_of_a_handshake_is_a_server_to_leave() {
    let mut story = Story::new(config());
    story.connect();
    story.feed(&ReplyHeader { xid: 0, zxid: 2, err: ErrorCode::NotReadOnly });
    let error = story.machine.wants_disconnect().unwrap();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!(story.machine.state(), None);
}

/// reliability case 5, pitfall 8.
#[test]
fn http_instead_of_a_handshake_is_named() {
    let mut story = Story::new(config());
    story.connect();
    story.feed_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = story.machine.wants_disconnect().unwrap();
    assert!(error.to_string().contains("HTTP/1.1 400 Bad"), "{error}");
}

/// pitfall 7.
#[test]
fn a_handshake_without_the_read_only_byte_is_accepted() {
    let mut story = Story::new(config());
    story.connect();
    story.feed(&ConnectResponse {
        protocol_version: 0,
        time_out: 6000,
        session_id: 7,
        passwd: Some(&[1; 16]),
        read_only: None,
    });
    assert!(story.machine.is_connected());
}

/// pitfall 22.
#[test]
fn a_server_that_takes_the_connection_and_says_nothing_is_given_up() {
    let mut story = Story::new(config());
    story.connect();
    let deadline = story.machine.poll_timeout().unwrap();
    assert!(deadline.since(story.now) <= ms(6000));
    story.now = deadline;
    story.machine.handle_timeout(deadline);
    assert!(story.is_broken());
}

// Replies.

#[test]
fn replies_complete_requests_in_order() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.delete("/b", 2);
    story.flush();
    story.reply(1, 5, ErrorCode::Ok, b"x");
    story.reply(2, 6, ErrorCode::NoNode, b"");
    assert_eq!(story.done(), [(1, Ok(5)), (2, Err((ErrorKind::NoNode, Outcome::NotApplied)))]);
    assert_eq!(story.machine.pending(), 0);
}

/// reliability case 8: never a wrong answer.
#[test]
fn a_reply_out_of_order_breaks_the_connection_and_answers_nobody() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.get("/b", 2);
    story.flush();
    story.reply(2, 5, ErrorCode::Ok, b"");
    assert!(story.is_broken());
    assert_eq!(story.done(), []);
    story.cut();
    assert_eq!(story.done(), [(1, Err(LOST)), (2, Err(LOST))]);
}

#[test]
fn a_reply_to_what_was_not_sent_breaks_the_connection() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.reply(1, 5, ErrorCode::Ok, b"");
    assert!(story.is_broken());
}

/// pitfall 27: `Unimplemented` for an unknown operation overtakes.
#[test]
fn the_refusal_of_an_unknown_operation_may_overtake() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.get("/b", 2);
    story.flush();
    story.reply(2, -1, ErrorCode::Unimplemented, b"");
    assert!(!story.is_broken());
    story.cut();
    assert_eq!(
        story.done(),
        [(2, Err((ErrorKind::Unimplemented, Outcome::NotApplied))), (1, Err(LOST))]
    );
}

/// pitfall 14.
#[test]
fn xids_wrap_to_one() {
    let mut story = Story::connected();
    story.machine.last_xid = i32::MAX - 1;
    story.get("/a", 1);
    story.get("/b", 2);
    story.flush();
    assert_eq!(story.xids()[1..], [i32::MAX, 1]);
}

/// reliability case 38 of peers, pitfall 19: only that request fails.
#[test]
fn a_reply_over_the_limit_fails_only_its_own_request() {
    let mut config = config();
    config.max_reply_bytes = 100;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story.get("/big", 1);
    story.get("/small", 2);
    story.flush();
    let mut bytes = Vec::new();
    let reply = |xid| ReplyHeader { xid, zxid: 5, err: ErrorCode::Ok };
    frame::put_record(&mut bytes, usize::MAX, &Parts(reply(1), &[0; 1000])).unwrap();
    frame::put_record(&mut bytes, usize::MAX, &Parts(reply(2), b"")).unwrap();
    let mut input = BytesMut::new();
    for byte in bytes {
        input.put_u8(byte);
        let now = story.now;
        story.machine.handle_input(now, &mut input);
    }
    assert_eq!(story.done(), [(1, Err((ErrorKind::ReplyTooLarge, Outcome::Unknown))), (2, Ok(5))]);
}

/// The server's error says more than the size.
#[test]
fn an_error_in_a_reply_over_the_limit_is_told() {
    let mut config = config();
    config.max_reply_bytes = 100;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story.get("/big", 1);
    story.flush();
    story.reply(1, 5, ErrorCode::NoNode, &[0; 1000]);
    assert_eq!(story.done(), [(1, Err((ErrorKind::NoNode, Outcome::NotApplied)))]);
}

/// What has no name may be anything, a partial success included.
#[test]
fn an_error_without_a_name_leaves_the_outcome_open() {
    let mut story = Story::connected();
    story.delete("/a", 1);
    story.flush();
    story.reply(1, 5, ErrorCode::Unknown(-99), b"");
    assert_eq!(story.done(), [(1, Err((ErrorKind::Server(-99), Outcome::Unknown)))]);
}

#[test]
fn what_is_left_of_a_broken_stream_is_not_the_next_one_s() {
    let mut story = Story::connected();
    let mut input = BytesMut::from(&[0xFF; 8][..]);
    story.machine.handle_input(story.now, &mut input);
    assert!(story.is_broken());
    story.cut();
    story.machine.handle_input(story.now, &mut input);
    assert!(input.is_empty() && !story.is_broken());
}

#[test]
fn nothing_is_sent_on_a_connection_that_is_given_up() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.feed_bytes(&[0xFF; 4]);
    story.flush();
    assert_eq!(story.xids(), [0]);
    story.cut();
    assert_eq!(story.done(), []);
}

/// The buffers hold data and credentials, the identity a password.
#[test]
fn debug_shows_neither_password_nor_data() {
    let mut story = Story::new(config().with_auth("digest", b"user:secret"));
    story.connect();
    story.accept(7, 6000);
    story.get("/a", 1);
    let text = format!("{:?}", story.machine);
    assert!(text.contains("0x7") && !text.contains("48, 49, 50"), "{text}");
    assert!(!text.contains("115, 101, 99"), "{text}");
}

#[test]
fn a_request_over_the_limit_is_refused_and_nothing_of_it_is_sent() {
    let mut config = config();
    config.max_request_bytes = 64;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story.get(&format!("/{}", "x".repeat(64)), 1);
    story.get("/a", 2);
    story.flush();
    assert_eq!(story.xids()[1..], [1]);
    assert_eq!(story.done(), [(1, Err((ErrorKind::RequestTooLarge, Outcome::NotApplied)))]);
}

#[test]
fn more_requests_than_allowed_are_refused() {
    let mut config = config();
    config.max_requests = 2;
    let mut story = Story::new(config);
    for token in 1..=3 {
        story.get("/a", token);
    }
    assert_eq!(story.done(), [(3, Err((ErrorKind::TooManyRequests, Outcome::NotApplied)))]);
}

/// pitfall 16: neither notifications nor pings say where the session stands.
#[test]
fn the_last_zxid_is_taken_from_replies_only() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.flush();
    story.reply(1, 50, ErrorCode::Ok, b"");
    story.event(EventType::NodeDeleted, "/a");
    story.reply(xid::PING, 900, ErrorCode::Ok, b"");
    story.get("/a", 2);
    story.flush();
    story.reply(2, -1, ErrorCode::Unimplemented, b"");
    assert_eq!(story.machine.last_zxid, 50);
}

// Lost connections.

/// design.md 3.4: what was handed over is unknown, what was not stays queued.
#[test]
fn a_cut_fails_what_was_sent_and_keeps_what_was_not() {
    let mut story = Story::connected();
    story.get("/sent", 1);
    story.flush();
    story.get("/unsent", 2);
    story.cut();
    assert_eq!(story.done(), [(1, Err(LOST))]);
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, 1, 0, 2]);
    story.reply(2, 9, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(2, Ok(9))]);
}

#[test]
fn without_a_connection_a_request_waits_only_so_long() {
    let mut story = Story::new(config());
    story.get("/a", 1);
    story.wait(ms(1000));
    story.get("/bb", 2);
    story.wait(ms(2000));
    assert_eq!(story.done(), [(1, Err((ErrorKind::ConnectionLoss, Outcome::NotApplied)))]);
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, 2], "the other one goes out whole");
}

#[test]
fn states_are_told_as_curator_tells_them() {
    let mut story = Story::connected();
    story.cut();
    story.connect();
    story.accept(7, 6000);
    use ConnectionState::{Connected, Reconnected, Suspended};
    assert_eq!(story.states(), [Connected, Suspended, Reconnected]);
}

// Time.

/// reliability case 26.
#[test]
fn a_ping_goes_out_after_a_third_of_the_timeout() {
    let mut story = Story::connected();
    assert_eq!(story.machine.poll_timeout(), Some(story.now + ms(2000)));
    story.wait(ms(2000));
    story.flush();
    assert_eq!(story.xids()[1..], [xid::PING]);
    assert_eq!(story.machine.poll_timeout(), Some(story.now + ms(2000)));
}

/// pitfall 20; reliability case 27.
#[test]
fn nothing_heard_for_two_thirds_of_the_timeout_is_a_dead_connection() {
    let mut story = Story::connected();
    story.wait(ms(2000));
    story.flush();
    story.wait(ms(1999));
    assert!(!story.is_broken());
    story.wait(ms(1));
    assert!(story.is_broken());
}

#[test]
fn anything_heard_keeps_the_connection() {
    let mut story = Story::connected();
    for _ in 0..5 {
        story.wait(ms(3000));
        story.event(EventType::NodeCreated, "/x");
    }
    assert!(!story.is_broken());
}

/// Curator's simulated expiration, CURATOR-405; pitfall 21.
#[test]
fn without_a_connection_for_the_session_timeout_the_session_is_lost() {
    let mut story = Story::connected();
    let lease = story.machine.lease().unwrap().clone();
    story.watch(WatchKind::Data, "/w", 1);
    story.flush();
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.cut();
    story.done();
    story.wait(ms(5999));
    assert!(!lease.is_lost());
    story.get("/queued", 2);
    story.wait(ms(1));
    assert!(lease.is_lost());
    assert_eq!(story.done(), [(2, Err((ErrorKind::SessionExpired, Outcome::NotApplied)))]);
    assert_eq!(story.told(), [(1, EventType::None)]);
    story.connect();
    let request = &story.wire.last().unwrap().1;
    assert!(
        request.contains("last_zxid_seen: 0") && request.contains("session_id: 0x0"),
        "{request}"
    );
}

/// ZOOKEEPER-4921: what never was cannot expire.
#[test]
fn a_session_that_was_never_made_does_not_expire() {
    let mut story = Story::new(config());
    story.connect();
    story.cut();
    story.wait(ms(60_000));
    assert_eq!(story.states(), [ConnectionState::Suspended]);
}

// Expiry.

#[test]
fn a_refused_session_is_lost_and_a_new_one_is_made() {
    let mut story = Story::connected();
    story.get("/sent", 1);
    story.flush();
    story.get("/queued", 2);
    story.cut();
    story.connect();
    story.refuse();
    assert!(story.is_broken());
    story.cut();
    assert_eq!(
        story.done(),
        [(1, Err(LOST)), (2, Err((ErrorKind::SessionExpired, Outcome::NotApplied)))]
    );
    story.connect();
    story.accept(8, 6000);
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};
    assert_eq!(story.states(), [Connected, Suspended, Lost, Reconnected]);
    assert_eq!(story.machine.lease().unwrap().session_id(), 8);
}

/// pitfall 23: ClickHouse Keeper hands out another session without a word.
#[test]
fn another_session_than_the_one_asked_for_is_an_expiry() {
    let mut story = Story::connected();
    story.cut();
    story.connect();
    story.accept(8, 6000);
    assert!(story.is_broken());
    assert_eq!(story.machine.state(), Some(ConnectionState::Lost));
    assert!(story.machine.lease().is_none());
}

/// pitfall 28: a server that closes without a word says nothing about the session.
#[test]
fn a_server_that_closes_without_a_word_is_not_an_expiry() {
    let mut story = Story::connected();
    for _ in 0..3 {
        story.cut();
        story.connect();
    }
    assert!(!story.machine.lease().unwrap().is_lost());
}

// What a session may be believed for.

#[test]
fn an_answer_moves_the_deadline_to_when_its_request_was_sent() {
    let mut story = Story::connected();
    let lease = story.machine.lease().unwrap().clone();
    let margin = story.machine.timeouts().margin;
    let sent_at = story.now;
    story.get("/a", 1);
    story.flush();
    story.now = story.now + ms(1500);
    story.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(lease.deadline(), sent_at + ms(6000) - margin);
}

#[test]
fn each_answer_counts_from_its_own_batch() {
    let mut story = Story::connected();
    let lease = story.machine.lease().unwrap().clone();
    story.get("/a", 1);
    story.get("/b", 2);
    story.flush();
    let first = story.now;
    story.now = story.now + ms(500);
    story.get("/c", 3);
    story.flush();
    let second = story.now;
    story.now = story.now + ms(500);
    let lasts = ms(6000) - story.machine.timeouts().margin;
    for (xid, sent_at) in [(1, first), (2, first), (3, second)] {
        story.reply(xid, 5, ErrorCode::Ok, b"");
        assert_eq!(lease.deadline(), sent_at + lasts, "xid {xid}");
    }
}

#[test]
fn a_ping_renews_from_when_it_was_made() {
    let mut story = Story::connected();
    let lease = story.machine.lease().unwrap().clone();
    story.wait(ms(2000));
    let made = story.now;
    story.flush();
    story.now = story.now + ms(700);
    story.reply(xid::PING, 5, ErrorCode::Ok, b"");
    assert_eq!(lease.deadline(), made + ms(6000) - story.machine.timeouts().margin);
}

/// lock-safety R0: from the connect that made the session, with the smaller timeout, never renewed.
#[test]
fn the_proof_only_ever_gets_shorter() {
    let mut story = Story::connected();
    let lease = story.machine.lease().unwrap().clone();
    let created = Instant::ZERO + ms(1000);
    assert_eq!(lease.proven_until(), created + ms(5940));
    story.get("/a", 1);
    story.flush();
    story.now = story.now + ms(1000);
    story.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(lease.proven_until(), created + ms(5940));
    story.cut();
    story.connect();
    story.accept(7, 3000);
    assert_eq!(lease.proven_until(), created + ms(2970));
    story.cut();
    story.connect();
    story.accept(7, 60_000);
    assert_eq!(lease.proven_until(), created + ms(2970));
}

// Watches.

#[test]
fn a_watch_is_there_once_its_reply_is() {
    let mut story = Story::connected();
    story.watch(WatchKind::Data, "/a", 1);
    story.watch(WatchKind::Data, "/missing", 2);
    story.watch(WatchKind::Exist, "/missing", 3);
    story.flush();
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.reply(2, 5, ErrorCode::NoNode, b"");
    story.reply(3, 5, ErrorCode::NoNode, b"");
    assert_eq!(story.machine.watches(), 2, "getData on a missing node leaves none");
    story.event(EventType::NodeDataChanged, "/a");
    story.event(EventType::NodeCreated, "/missing");
    assert_eq!(story.told(), [(1, EventType::NodeDataChanged), (3, EventType::NodeCreated)]);
    assert_eq!(story.machine.watches(), 0);
}

/// A read that nobody waits for any more.
#[test]
fn a_cancelled_watch_is_not_registered_by_its_reply() {
    let mut story = Story::connected();
    story.watch(WatchKind::Data, "/a", 1);
    story.watch(WatchKind::Data, "/a", 2);
    story.flush();
    story.machine.cancel_watch("/a", &1, || Instant::ZERO);
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.reply(2, 5, ErrorCode::Ok, b"");
    assert_eq!(story.machine.watches(), 1);
    story.machine.cancel_watch("/a", &2, || Instant::ZERO);
    assert_eq!(story.machine.watches(), 0);
}

/// reliability case 16.
#[test]
fn an_event_for_nobody_is_dropped_quietly() {
    let mut story = Story::connected();
    story.event(EventType::NodeDeleted, "/nobody");
    assert_eq!(story.told(), []);
    assert!(!story.is_broken());
}

/// pitfalls 32, 33; ClientCnxn's order: credentials, watches, then requests.
#[test]
fn a_reconnect_sets_credentials_and_watches_before_anything_else() {
    let mut story = Story::new(config().with_auth("digest", b"u:p"));
    story.connect();
    story.accept(7, 6000);
    story.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    story.watch(WatchKind::Data, "/d", 1);
    story.watch(WatchKind::Exist, "/e", 2);
    story.watch(WatchKind::Child, "/c", 3);
    story.flush();
    for (xid, err) in [(1, ErrorCode::Ok), (2, ErrorCode::NoNode), (3, ErrorCode::Ok)] {
        story.reply(xid, 77, err, b"");
    }
    story.get("/unsent", 4);
    story.cut();
    story.wire.clear();
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, xid::AUTH, xid::SET_WATCHES, 4]);
    let replay = &story.wire[2].1;
    assert!(
        replay.contains("relative_zxid: 77")
            && replay
                .contains(r#"data_watches: ["/d"], exist_watches: ["/e"], child_watches: ["/c"]"#),
        "{replay}"
    );
    // The catch-up event comes before the reply (reliability case 12).
    story.event(EventType::NodeDeleted, "/d");
    story.reply(xid::SET_WATCHES, 80, ErrorCode::Ok, b"");
    assert_eq!(story.told(), [(1, EventType::NodeDeleted)]);
    assert!(!story.is_broken());
}

#[test]
fn auth_replies_come_out_of_turn_and_reach_their_callers() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.machine.add_auth(Credential::new("digest", b"u:p"), 2);
    story.flush();
    story.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    story.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(2, Ok(0)), (1, Ok(5))]);
}

#[test]
fn credentials_that_were_not_answered_are_asked_again_for_their_caller() {
    let mut story = Story::connected();
    story.machine.add_auth(Credential::new("digest", b"u:p"), 1);
    story.flush();
    story.cut();
    story.connect();
    story.accept(7, 6000);
    assert_eq!(story.xids(), [0, xid::AUTH, 0, xid::AUTH]);
    story.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    assert_eq!(story.done(), [(1, Ok(0))]);
}

/// reliability case 36: final, no loop.
#[test]
fn refused_credentials_end_the_client() {
    let mut story = Story::connected();
    story.get("/a", 1);
    story.machine.add_auth(Credential::new("nosuch", b"x"), 2);
    story.flush();
    story.reply(xid::AUTH, 0, ErrorCode::AuthFailed, b"");
    assert!(story.machine.is_ended());
    assert_eq!(
        story.done(),
        [
            (2, Err((ErrorKind::AuthFailed, Outcome::NotApplied))),
            (1, Err((ErrorKind::AuthFailed, Outcome::Unknown)))
        ]
    );
    assert_eq!(story.machine.poll_connect(story.now), Connect::Ended);
}

/// pitfall 26.
#[test]
fn a_ping_may_be_told_that_authentication_is_required() {
    let mut story = Story::connected();
    story.wait(ms(2000));
    story.flush();
    story.reply(xid::PING, 0, ErrorCode::SessionClosedRequireSaslAuth, b"");
    assert!(story.machine.is_ended());
}

// Closing.

#[test]
fn close_goes_behind_all_requests_and_waits_for_its_reply() {
    let mut story = Story::connected();
    story.get("/a", 1);
    let until = story.now + ms(1000);
    story.machine.close(Some(9), until);
    story.get("/late", 2);
    story.flush();
    assert_eq!(story.wire.last().unwrap().1, "CloseSession");
    story.reply(1, 5, ErrorCode::Ok, b"");
    story.reply(2, 6, ErrorCode::Ok, b"");
    assert_eq!(
        story.done(),
        [(2, Err((ErrorKind::Closed, Outcome::NotApplied))), (1, Ok(5)), (9, Ok(6))]
    );
    assert!(story.machine.is_ended());
}

/// reliability case 33.
#[test]
fn a_close_without_an_answer_ends_in_time_and_says_so() {
    let mut story = Story::connected();
    let until = story.now + ms(1000);
    story.machine.close(Some(9), until);
    story.flush();
    assert_eq!(story.machine.poll_timeout(), Some(until));
    story.wait(ms(1000));
    assert_eq!(story.done(), [(9, Err((ErrorKind::OperationTimeout, Outcome::Unknown)))]);
    assert!(story.machine.is_ended());
}

#[test]
fn a_close_without_a_connection_ends_at_once_and_says_that_the_session_stays() {
    let mut story = Story::connected();
    story.cut();
    story.get("/queued", 1);
    let until = story.now + ms(1000);
    story.machine.close(Some(9), until);
    assert_eq!(story.done(), [(1, Err((ErrorKind::Closed, Outcome::NotApplied))), (9, Err(LOST))]);
}

#[test]
fn a_close_before_there_was_a_session_is_a_success() {
    let mut story = Story::new(config());
    story.machine.close(Some(9), Instant::ZERO);
    assert_eq!(story.done(), [(9, Ok(0))]);
}
