//! The targets of docent-session: properties that hold for any configuration text and any bytes of a server.
//!
//! `session/tests/corpus.rs` includes this file and replays `corpus/` with it.

use std::{collections::VecDeque, time::Duration};

use bytes::BytesMut;
use docent_protocol::{
    AddWatchMode, Encode, ErrorCode, EventType, KeeperState, WatcherEvent, WatcherType,
    connect::ConnectResponse,
    frame,
    jute::{Decode, Reader},
    operation::{Exists, GetChildren, GetData},
    path,
    reply::ReplyHeader,
    request::{ReadRequest, RequestHeader},
    xid,
};
use docent_session::{
    Config, Error, ErrorKind, Outcome, SessionToken,
    config::{ConnectString, Credential, Host},
    machine::{Connect, Registration, ServerStatus, Session},
    runtime::Instant,
    watch::WatchKind,
};

/// A check of a property for some bytes.
pub type Check = fn(&[u8]);

/// The targets. The name of a target is also that of its corpus directory.
pub const TARGETS: &[(&str, Check)] = &[("connect_string", connect_string), ("machine", machine)];

/// An accepted connect string has servers, each with a name and a port, its chroot is a path, and its
/// text parses to the same value. For a refused one, the reason is one line.
pub fn connect_string(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parsed: ConnectString = match text.parse() {
        Ok(parsed) => parsed,
        Err(error) => {
            let reason = format!("{error}");
            assert!(!reason.is_empty() && !reason.contains('\n'), "{reason:?}");
            return;
        }
    };
    assert!(!parsed.hosts().is_empty());
    for host in parsed.hosts() {
        assert!(!host.name.is_empty() && host.port != 0);
        assert!(!host.name.contains([',', '/', '[', ']']) && host.name.trim() == host.name);
    }
    assert!(parsed.chroot().is_none_or(|chroot| chroot != "/" && path::validate(chroot).is_ok()));
    let again: ConnectString = parsed.to_string().parse().expect("the displayed text parses");
    assert_eq!(again, parsed);
}

/// Any calls, server bytes and instants: nothing panics, every token is returned exactly once, no alarm
/// stays due (which would be a busy loop), and the connection is used only as the order of calls permits.
///
/// The first byte is the configuration. Then come steps of two bytes, some of which take further bytes.
pub fn machine(data: &[u8]) {
    let Some((&flags, mut rest)) = data.split_first() else { return };
    let mut scenario = Scenario::new(flags);
    while let Some((&[step, argument], tail)) = rest.split_first_chunk::<2>() {
        rest = tail;
        let taken = scenario.step(step, argument, rest);
        rest = rest.get(taken..).unwrap_or_default();
        scenario.settle();
    }
    scenario.session.abandon();
    scenario.settle();
    scenario.answered.sort_unstable();
    assert_eq!(
        scenario.answered,
        (1..=scenario.given).collect::<Vec<_>>(),
        "each token exactly once"
    );
    assert_eq!(scenario.session.metrics().pending_bytes, 0);
}

struct Scenario {
    session: Session<u32, u32>,
    now: Instant,
    given: u32,
    answered: Vec<u32>,
    /// The xids of the requests sent on this connection that have no reply yet.
    sent: VecDeque<i32>,
    input: BytesMut,
    connected_to: Option<Host>,
}

const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/c"];

impl Scenario {
    fn new(flags: u8) -> Self {
        let mut config = Config::new("one:1,two:2")
            .expect("a valid connect string")
            .with_max_reply_bytes(200)
            .with_max_requests(if flags & 8 != 0 { 3 } else { 1_000_000 })
            .with_max_pending_bytes(if flags & 16 != 0 { 100 } else { 64 << 20 })
            .with_request_timeout((flags & 2 != 0).then_some(Duration::from_millis(700)))
            .with_read_only(flags & 1 != 0)
            .with_session((flags & 4 != 0).then(|| SessionToken::new(7, &[1; 16], 5)));
        if flags & 32 != 0 {
            config = config.with_auth("digest", b"user:password");
        }
        Self {
            session: Session::new(config, u64::from(flags)),
            now: Instant::from_nanos(1),
            given: 0,
            answered: Vec::new(),
            sent: VecDeque::new(),
            input: BytesMut::new(),
            connected_to: None,
        }
    }

    fn token(&mut self) -> u32 {
        self.given += 1;
        self.given
    }

    /// Does one step, and returns how many further bytes it has taken.
    fn step(&mut self, step: u8, argument: u8, rest: &[u8]) -> usize {
        let now = self.now;
        let path = PATHS[usize::from(argument) % PATHS.len()];
        let read = |watch| ReadRequest { path: path.into(), watch };
        match step % 20 {
            0 => {
                let token = self.token();
                self.session.submit(&GetData(read(false)), token, None, || now);
            }
            1 => {
                let token = self.token();
                let kind = [WatchKind::Exist, WatchKind::Child][usize::from(argument / 4) % 2];
                let registration = Registration { kind, path: path.into(), watcher: token };
                if kind == WatchKind::Exist {
                    let make = |watch| Exists(read(watch));
                    self.session.submit_watching(make, token, registration, || now);
                } else {
                    let make = |watch| GetChildren(read(watch));
                    self.session.submit_watching(make, token, registration, || now);
                }
            }
            2 => {
                let token = self.token();
                let mode = AddWatchMode::from(i32::from(argument / 4) % 3);
                self.session.add_watch(mode, token, path.into(), token, || now);
            }
            3 => {
                let (token, watcher) = (self.token(), u32::from(argument / 4));
                self.session.remove_watch(path, &watcher, Some(token), || now);
            }
            4 => {
                let watcher = u32::from(argument / 4);
                self.session.cancel_watch(path, &watcher, || now);
            }
            5 => {
                let token = self.token();
                let kind = WatcherType::from(i32::from(argument / 4) % 7);
                self.session.remove_watches(path.into(), kind, token, || now);
            }
            6 => {
                let token = self.token();
                let credential = Credential::new("digest", b"user:password");
                self.session.add_auth(credential, token, || now);
            }
            7 => {
                let token = self.token();
                self.session.wait_for_capacity(token);
            }
            8 if argument > 200 => {
                let token = self.token();
                self.session.close(Some(token), now + Duration::from_millis(300));
            }
            9 => {
                let hosts = [Host { name: PATHS[usize::from(argument) % 4].to_owned(), port: 1 }];
                self.session.update_server_list(&hosts);
            }
            10 => {
                let host = Host { name: "two".to_owned(), port: 2 };
                self.session.handle_probe(&host, argument < 128);
                let status = ServerStatus::parse(rest);
                let number = u64::from(argument % 4);
                self.session.handle_status(now, number, &host, status);
                if argument.is_multiple_of(16) {
                    let token = self.token();
                    self.session.reconnect(token, now);
                }
            }
            11 => self.now = now + Duration::from_millis(u64::from(argument) * 40),
            12 => self.disconnect("cut"),
            13 => {
                let len = usize::from(argument).min(rest.len());
                self.input.extend_from_slice(&rest[..len]);
                return len;
            }
            14 | 15 => {
                let xid = self.sent.pop_front().unwrap_or(xid::PING);
                let err = if step % 20 == 14 { 0 } else { -i32::from(argument) };
                self.reply(xid, err.into(), &[argument; 9][..usize::from(argument % 9)]);
            }
            16 => {
                let number = i32::from(argument) - 16;
                self.reply(number, ErrorCode::Ok, b"");
            }
            17 => {
                let mut out = Vec::new();
                let response = ConnectResponse {
                    protocol_version: 0,
                    time_out: i32::from(argument) * 100 - 200,
                    session_id: i64::from(argument % 8),
                    passwd: Some(&[1; 16]),
                    read_only: Some(argument & 8 != 0),
                };
                let _ = frame::put_record(&mut out, usize::MAX, &response);
                self.input.extend_from_slice(&out);
            }
            18 => {
                let mut body = Vec::new();
                WatcherEvent {
                    event_type: EventType::from(i32::from(argument / 4) % 9 - 1),
                    state: KeeperState::SyncConnected,
                    path: path.into(),
                }
                .encode(&mut body);
                self.reply(xid::NOTIFICATION, ErrorCode::Ok, &body);
            }
            _ => {}
        }
        0
    }

    fn reply(&mut self, xid: i32, err: ErrorCode, body: &[u8]) {
        let mut out = Vec::new();
        let _ = frame::put(&mut out, usize::MAX, |out| {
            ReplyHeader { xid, zxid: i64::from(self.given), err }.encode(out);
            out.extend_from_slice(body);
        });
        self.input.extend_from_slice(&out);
    }

    fn disconnect(&mut self, why: &str) {
        if let Some(host) = self.connected_to.take() {
            let why = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_detail(why);
            self.session.handle_disconnected(self.now, &host, &why);
            self.sent.clear();
            self.input.clear();
        }
    }

    /// Does what a driver does between two steps.
    fn settle(&mut self) {
        let now = self.now;
        self.session.handle_input(now, &mut self.input);
        self.session.handle_timeout(now);
        self.take();
        if self.session.wants_disconnect().is_some() {
            assert!(self.connected_to.is_some(), "there is a connection to give up");
            self.disconnect("given up");
        }
        if let Connect::To(host, deadline) = self.session.poll_connect(now) {
            assert!(self.connected_to.is_none() && deadline > now);
            self.connected_to = Some(host);
            self.session.handle_connected(now);
        }
        let mut out = Vec::new();
        self.session.poll_transmit(now, &mut out);
        assert!(out.is_empty() || self.connected_to.is_some());
        let mut bytes = &out[..];
        let mut first = true;
        while let Some((payload, tail)) = frame::split(bytes, usize::MAX).expect("our own frames") {
            bytes = tail;
            let header = RequestHeader::decode(&mut Reader::new(payload)).expect("a header");
            // A handshake begins with two zeros, which no request does.
            assert!(header.xid != 0 || first, "the handshake is first");
            first = false;
            if header.xid > 0 {
                self.sent.push_back(header.xid);
            }
        }
        assert!(bytes.is_empty(), "whole frames");
        self.take();
        assert!(
            self.session.poll_timeout().is_none_or(|at| at > now) || self.session.is_broken(),
            "an alarm stays due"
        );
    }

    fn take(&mut self) {
        while let Some(done) = self.session.poll_completion() {
            self.answered.push(done.token);
        }
        while self.session.poll_event().is_some() {}
    }
}
