//! The rules of the machine, each as a scenario: frames and instants made by hand, numbers for tokens and watchers.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, BytesMut};
use docent_protocol::{
    Encode, ErrorCode, EventType, KeeperState, WatcherEvent, WatcherType,
    connect::{ConnectRequest, ConnectResponse},
    frame,
    jute::{Decode, Reader},
    operation::{Delete, Exists, GetChildren, GetData},
    reply::ReplyHeader,
    request::{DeleteRequest, ReadRequest, Request, RequestHeader},
    xid,
};

use super::{
    answers::{Answers, Reply},
    connect_string::Host,
    connection_state::ConnectionState,
    effect::Effect,
    lease::SessionLease,
    session::{Connect, Event, Session},
    settings::Credential,
    watch_table::{Registration, WatchKind, WatchedEvent},
};
use crate::{Error, ErrorKind, Outcome, config::Config, time::Instant};

mod close;
mod connection;
mod cost;
mod credentials;
mod failback;
mod flow_control;
mod handshake;
mod lease;
mod limits;
mod long_replies;
mod missing_operations;
mod proof;
mod replies;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(feature = "sasl")]
mod sasl_steps;
mod scenarios;
mod sessions;
mod watches;

type Machine = Session<u32, u32>;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The result of a request: the zxid of its reply, or the error.
type Completed = Result<i64, (ErrorKind, Outcome)>;

/// A machine, its clock, and the server's side of its bytes.
struct Scenario {
    machine: Machine,
    now: Instant,
    /// Requests given out by the machine: xid, and the request as text.
    wire: Vec<(i32, String)>,
}

fn config() -> Config {
    Config::new("one:1").unwrap().with_session_timeout(ms(6000)).with_connection_timeout(ms(3000))
}

impl Scenario {
    fn new(config: Config) -> Self {
        Self { machine: Session::new(config, 1), now: Instant::ZERO + ms(1000), wire: Vec::new() }
    }

    /// Up to a session with the id 7 and a timeout of 6 s.
    fn connected() -> Self {
        Self::connected_with(config())
    }

    fn connected_with(config: Config) -> Self {
        Self::connected_for(config, 6000)
    }

    /// With another timeout, in milliseconds.
    fn connected_for(config: Config, time_out: i32) -> Self {
        let mut scenario = Self::connecting(config);
        scenario.accept(7, time_out);
        scenario
    }

    /// Up to a handshake without a reply.
    fn connecting(config: Config) -> Self {
        let mut scenario = Self::new(config);
        scenario.connect();
        scenario
    }

    /// The next connection, on which the server grants or resumes that session.
    fn resume(&mut self) {
        self.connect();
        self.accept(7, 6000);
    }

    fn connect(&mut self) {
        self.attempt();
        self.machine.handle_connected(self.now);
        self.flush();
    }

    /// The next attempt, after its pause: its server and its deadline.
    fn attempt(&mut self) -> (Host, Instant) {
        for _ in 0..10 {
            match self.machine.poll_connect(self.now) {
                Connect::To(host, deadline) => return (host, deadline),
                Connect::At(at) => self.now = at,
                other => panic!("{other:?}"),
            }
        }
        panic!("never asked to connect");
    }

    /// Like [`attempt`](Self::attempt), of a machine that must not pause before it.
    #[track_caller]
    fn attempt_at_once(&mut self) -> (Host, Instant) {
        let before = self.now;
        let attempt = self.attempt();
        assert_eq!(self.now, before, "a pause before the attempt");
        attempt
    }

    fn cut_and_connect(&mut self) {
        self.cut();
        self.connect();
    }

    fn cut_and_accept(&mut self, session_id: i64, time_out: i32) {
        self.cut_and_connect();
        self.accept(session_id, time_out);
    }

    fn cut_and_resume(&mut self) {
        self.cut();
        self.resume();
    }

    fn accept(&mut self, session_id: i64, time_out: i32) {
        self.feed(&granted(session_id, time_out));
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

    /// Sends all requests, and replies to the last one.
    fn reply_to_last(&mut self, zxid: i64, err: ErrorCode) {
        self.flush();
        self.reply(self.last_xid(), zxid, err, b"");
    }

    /// Replies to these requests with success and the zxid 5.
    fn reply_each(&mut self, xids: impl IntoIterator<Item = i32>) {
        xids.into_iter().for_each(|xid| self.reply(xid, 5, ErrorCode::Ok, b""));
    }

    fn last_xid(&self) -> i32 {
        self.wire.last().expect("a request").0
    }

    /// The last request, as text.
    fn last_sent(&self) -> &str {
        &self.wire.last().expect("a request").1
    }

    /// The text of each request that was sent.
    fn sent(&self) -> Vec<&str> {
        self.wire.iter().map(|(_, request)| &**request).collect()
    }

    fn event(&mut self, event_type: EventType, path: &str) {
        self.reply(xid::NOTIFICATION, -1, ErrorCode::Ok, &event_body(event_type, path));
    }

    /// Takes what the machine wants written, frame by frame.
    fn flush(&mut self) {
        while self.flush_part() {}
    }

    /// Like [`flush`](Self::flush), for one write. Returns whether there was one.
    fn flush_part(&mut self) -> bool {
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
        !out.is_empty()
    }

    /// The time of a call.
    fn clock(&self) -> impl Fn() -> Instant + use<> {
        let now = self.now;
        move || now
    }

    fn get(&mut self, path: &str, token: u32) {
        let operation = GetData(ReadRequest { path: path.into(), watch: false });
        self.machine.submit(&operation, token, None, self.clock());
    }

    fn get_each(&mut self, path: &str, tokens: impl IntoIterator<Item = u32>) {
        tokens.into_iter().for_each(|token| self.get(path, token));
    }

    /// Several of them, written together.
    fn send_each(&mut self, path: &str, tokens: impl IntoIterator<Item = u32>) {
        self.get_each(path, tokens);
        self.flush();
    }

    /// A getData that is written.
    fn send_get(&mut self, path: &str, token: u32) {
        self.get(path, token);
        self.flush();
    }

    /// A getData that is sent, and answered with this zxid.
    fn read(&mut self, path: &str, token: u32, zxid: i64) {
        self.get(path, token);
        self.reply_to_last(zxid, ErrorCode::Ok);
    }

    /// Credentials that are sent.
    fn send_auth(&mut self, scheme: &str, auth: &[u8], token: u32) {
        self.add_auth(scheme, auth, token);
        self.flush();
    }

    fn add_auth(&mut self, scheme: &str, auth: &[u8], token: u32) {
        self.machine.add_auth(Credential::new(scheme, auth), token, self.clock());
    }

    fn delete(&mut self, path: &str, token: u32) {
        self.machine.submit(&delete(path), token, None, self.clock());
    }

    /// Calls close with a limit of one second.
    fn close(&mut self, token: u32) {
        self.machine.close(Some(token), self.now + ms(1000));
    }

    fn cancel_watch(&mut self, path: &str, watcher: u32) {
        self.machine.cancel_watch(path, &watcher, self.clock());
    }

    fn watch(&mut self, kind: WatchKind, path: &str, token: u32) {
        let watch = Some(Registration { kind, path: path.into(), watcher: token });
        let read = ReadRequest { path: path.into(), watch: true };
        match kind {
            WatchKind::Data => self.machine.submit(&GetData(read), token, watch, self.clock()),
            WatchKind::Exist => self.machine.submit(&Exists(read), token, watch, self.clock()),
            WatchKind::Child => self.machine.submit(&GetChildren(read), token, watch, self.clock()),
            other => panic!("{other:?} takes add_watch"),
        }
    }

    /// A watch whose request is written.
    fn send_watch(&mut self, kind: WatchKind, path: &str, token: u32) {
        self.watch(kind, path, token);
        self.flush();
    }

    /// A watch that the server has confirmed.
    fn set_watch(&mut self, kind: WatchKind, path: &str, token: u32) {
        self.watch(kind, path, token);
        self.reply_to_last(5, ErrorCode::Ok);
    }

    /// The connection or the attempt ends.
    fn cut(&mut self) {
        let server = self.machine.connection.host().cloned();
        self.cut_from(&server.unwrap_or_else(|| host("one")));
    }

    fn cut_from(&mut self, server: &Host) {
        let why = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown);
        self.machine.handle_disconnected(self.now, server, &why);
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.machine.handle_timeout(self.now);
    }

    fn wait_and_flush(&mut self, duration: Duration) {
        self.wait(duration);
        self.flush();
    }

    fn completions(&mut self) -> Vec<(u32, Completed)> {
        std::iter::from_fn(|| self.machine.poll_completion())
            .map(|done| {
                let result = done.result.map(|body| body.zxid);
                (done.token, result.map_err(|error| (error.kind(), error.outcome())))
            })
            .collect()
    }

    /// Takes all events, and returns those that `pick` wants.
    fn events<T>(&mut self, pick: impl FnMut(Event<u32>) -> Option<T>) -> Vec<T> {
        std::iter::from_fn(|| self.machine.poll_event()).filter_map(pick).collect()
    }

    fn states(&mut self) -> Vec<ConnectionState> {
        self.events(|event| match event {
            Event::State(state) => Some(state),
            _ => None,
        })
    }

    fn watch_events_as<T>(&mut self, part: impl Fn(&WatchedEvent) -> T) -> Vec<(u32, T)> {
        self.events(|event| match event {
            Event::Watch { watcher, event } => Some((watcher, part(&event))),
            _ => None,
        })
    }

    fn watch_events(&mut self) -> Vec<(u32, EventType)> {
        self.watch_events_as(|event| event.event_type)
    }

    fn xids(&self) -> Vec<i32> {
        self.wire.iter().map(|(xid, _)| *xid).collect()
    }

    fn lease(&self) -> Arc<SessionLease> {
        Arc::clone(self.machine.lease().expect("a session"))
    }

    fn is_broken(&self) -> bool {
        self.machine.wants_disconnect().is_some()
    }
}

/// The reply to a handshake.
const fn granted(session_id: i64, time_out: i32) -> ConnectResponse<'static> {
    ConnectResponse {
        protocol_version: 0,
        time_out,
        session_id,
        passwd: Some(b"0123456789abcdef"),
        read_only: Some(false),
    }
}

fn host(name: &str) -> Host {
    Host { name: name.into(), port: 1 }
}

fn delete(path: &str) -> Delete<'_> {
    Delete(DeleteRequest { path: path.into(), version: -1 })
}

#[track_caller]
fn assert_contains(text: impl ToString, parts: &[&str]) {
    let text = text.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

/// The body of an event.
fn event_body(event_type: EventType, path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let state = KeeperState::SyncConnected;
    WatcherEvent { event_type, state, path: path.into() }.encode(&mut body);
    body
}

/// The frame of a successful reply with the zxid 5.
fn reply_frame(xid: i32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = ReplyHeader { xid, zxid: 5, err: ErrorCode::Ok };
    frame::put_record(&mut out, usize::MAX, &Parts(header, body)).unwrap();
    out
}

/// A header and a body.
struct Parts<'a>(ReplyHeader, &'a [u8]);

impl Encode for Parts<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        self.0.encode(out);
        out.put_slice(self.1);
    }
}

/// The result of a request that was not applied.
const fn refused(kind: ErrorKind) -> Completed {
    Err((kind, Outcome::NotApplied))
}

/// The result of a sent request whose time limit has passed.
const LATE: Completed = Err((ErrorKind::OperationTimeout, Outcome::Unknown));

const LOST: (ErrorKind, Outcome) = (ErrorKind::ConnectionLoss, Outcome::Unknown);
