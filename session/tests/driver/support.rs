//! The scripted server: connections without sockets, frames by hand.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use docent_protocol::{
    AddWatchMode, Encode, ErrorCode, EventType, KeeperState, OpCode, Stat, WatcherEvent,
    connect::{ConnectRequest, ConnectResponse},
    frame,
    jute::{Decode, Reader},
    reply::{GetDataReply, ReplyHeader, StatReply},
    request::{Request, RequestHeader},
    xid,
};
use docent_session::{
    Client, Config, ConnectionState, Error, ErrorKind, Events, Outcome, Watcher,
    config::Host,
    runtime::{Clock, Connecting, Transport},
    session::StateEvent,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
};

/// The limit of each wait, on the paused clock.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The current instant, from which the test measures.
#[expect(clippy::disallowed_methods, reason = "the clock of the test")]
pub(crate) fn stopwatch() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Fails the test if the future is not ready within [`LONG`].
pub(crate) async fn within_limit<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(LONG, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// Waits until a condition holds, at most 20 s in real time: far less than a session lasts in these tests.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = stopwatch() + ms(20_000);
    while !holds().await {
        assert!(stopwatch() < until, "not in time: {what}");
        tokio::time::sleep(ms(1)).await;
    }
}

/// The network: hands the server's ends of connections to the test.
#[derive(Debug)]
pub(crate) struct Net {
    arrivals: mpsc::UnboundedReceiver<(Host, DuplexStream)>,
    attempts: Arc<AtomicUsize>,
}

/// The client's side of the network.
pub(crate) struct Dialer {
    server: mpsc::UnboundedSender<(Host, DuplexStream)>,
    attempts: Arc<AtomicUsize>,
    /// How many bytes a connection takes before its writer has to wait.
    capacity: usize,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

impl Transport for Dialer {
    fn connect<'a>(&'a self, host: &'a Host, _within: Duration) -> Connecting<'a> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let (ours, theirs) = duplex(self.capacity);
            match self.server.send((host.clone(), theirs)) {
                Ok(()) => Ok(Box::new(ours) as _),
                Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

pub(crate) fn net() -> (Dialer, Net) {
    net_with_capacity(1 << 20)
}

pub(crate) fn net_with_capacity(capacity: usize) -> (Dialer, Net) {
    let (server, arrivals) = mpsc::unbounded_channel();
    let attempts = Arc::new(AtomicUsize::new(0));
    (Dialer { server, attempts: Arc::clone(&attempts), capacity }, Net { arrivals, attempts })
}

impl Net {
    /// The next connection.
    pub(crate) async fn accept(&mut self) -> Conn {
        let (host, stream) = within_limit("a connection", self.arrivals.recv()).await.unwrap();
        Conn { host, stream, buffer: BytesMut::new() }
    }

    /// The next connection, up to a session with a timeout of 6 s; and its request.
    pub(crate) async fn serve(&mut self, session_id: i64) -> (Conn, Asked) {
        self.serve_for(session_id, 6000).await
    }

    /// Like [`serve`](Self::serve), with another timeout, in milliseconds.
    pub(crate) async fn serve_for(&mut self, session_id: i64, time_out: i32) -> (Conn, Asked) {
        let mut conn = self.accept().await;
        let asked = conn.handshake().await;
        conn.grant(session_id, time_out).await;
        (conn, asked)
    }

    /// The number of requested connections.
    pub(crate) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Counts the attempts, for tests that have given the network away.
    pub(crate) fn counter(&self) -> impl Fn() -> usize + use<> {
        let attempts = Arc::clone(&self.attempts);
        move || attempts.load(Ordering::Relaxed)
    }

    /// Whether no connection waits to be accepted.
    pub(crate) fn has_no_arrivals(&self) -> bool {
        self.arrivals.is_empty()
    }
}

/// A handshake request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) session_id: i64,
    pub(crate) last_zxid: i64,
    pub(crate) time_out: i32,
    pub(crate) password: Vec<u8>,
    pub(crate) read_only: bool,
}

/// The server's end of a connection.
pub(crate) struct Conn {
    pub(crate) host: Host,
    pub(crate) stream: DuplexStream,
    buffer: BytesMut,
}

pub(crate) const PASSWORD: &[u8; 16] = b"0123456789abcdef";

impl Conn {
    /// The payload of the next frame; `None` when the client has closed.
    pub(crate) async fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((payload, rest)) = frame::split(&self.buffer, usize::MAX).unwrap() {
                let payload = payload.to_vec();
                self.buffer = BytesMut::from(rest);
                return Some(payload);
            }
            let read = self.stream.read_buf(&mut self.buffer);
            if within_limit("a frame from the client", read).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn handshake(&mut self) -> Asked {
        let payload = self.frame().await.expect("a handshake");
        let request = ConnectRequest::decode(&mut Reader::new(&payload)).unwrap();
        Asked {
            session_id: request.session_id,
            last_zxid: request.last_zxid_seen,
            time_out: request.time_out,
            password: request.passwd.unwrap_or_default().to_vec(),
            read_only: request.read_only.unwrap_or(false),
        }
    }

    pub(crate) async fn grant(&mut self, session_id: i64, time_out: i32) {
        self.send(&granted(session_id, time_out)).await;
    }

    /// The next request that is no ping: its xid, and itself as text. Pings are answered.
    pub(crate) async fn request(&mut self) -> (i32, String) {
        within_limit("a request", self.maybe_request()).await.expect("a request before the end")
    }

    /// Like [`request`](Self::request); `None` when the client has closed.
    pub(crate) async fn maybe_request(&mut self) -> Option<(i32, String)> {
        loop {
            let payload = self.frame().await?;
            let mut reader = Reader::new(&payload);
            let header = RequestHeader::decode(&mut reader).unwrap();
            if header.op == OpCode::Ping {
                self.reply(xid::PING, 1, ErrorCode::Ok, &[]).await;
                continue;
            }
            let request = Request::decode(header.op, &mut reader).unwrap();
            return Some((header.xid, format!("{request:?}")));
        }
    }

    /// The next four-letter word.
    pub(crate) async fn word(&mut self) -> [u8; 4] {
        let mut word = [0; 4];
        within_limit("a question", self.stream.read_exact(&mut word)).await.unwrap();
        word
    }

    pub(crate) async fn send(&mut self, record: &impl Encode) {
        let mut out = Vec::new();
        frame::put_record(&mut out, usize::MAX, record).unwrap();
        self.send_bytes(&out).await;
    }

    /// The client may have gone, which is no failure.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn reply(&mut self, xid: i32, zxid: i64, err: ErrorCode, body: &[u8]) {
        self.send_bytes(&reply(xid, zxid, err, body)).await;
    }

    /// Replies to the next request.
    pub(crate) async fn reply_next(&mut self, zxid: i64, err: ErrorCode, body: &[u8]) {
        let (xid, _) = self.request().await;
        self.reply(xid, zxid, err, body).await;
    }

    /// Answers the next request, a getData, and returns the request.
    pub(crate) async fn answer_data(&mut self, data: &[u8]) -> String {
        let (xid, request) = self.request().await;
        self.data(xid, data).await;
        request
    }

    /// Answers a getData.
    pub(crate) async fn data(&mut self, xid: i32, data: &[u8]) {
        self.reply(xid, 9, ErrorCode::Ok, &get_data_body(data)).await;
    }

    pub(crate) async fn event(&mut self, event_type: EventType, path: &str) {
        let state = KeeperState::SyncConnected;
        let body = encoded(&WatcherEvent { event_type, state, path: path.into() });
        self.reply(xid::NOTIFICATION, -1, ErrorCode::Ok, &body).await;
    }

    /// Waits for closeSession, confirms it, and waits for the client to go.
    pub(crate) async fn confirm_close(&mut self) {
        let (xid, request) = self.request().await;
        assert_eq!(request, "CloseSession");
        self.reply(xid, 10, ErrorCode::Ok, &[]).await;
        assert_eq!(self.maybe_request().await, None);
    }

    /// Answers everything, with a Stat or data, until the client goes.
    pub(crate) async fn answer_all(&mut self) {
        while let Some((xid, request)) = self.maybe_request().await {
            if request.starts_with("GetData") {
                self.data(xid, b"x").await;
            } else if request.starts_with("Exists") {
                self.reply(xid, 9, ErrorCode::Ok, &stat_body()).await;
            } else {
                self.reply(xid, 9, ErrorCode::Ok, &[]).await;
            }
        }
    }
}

/// The reply to a handshake. Session 0: no session.
pub(crate) fn granted(session_id: i64, time_out: i32) -> ConnectResponse<'static> {
    let passwd: &[u8] = if session_id == 0 { &[0; 16] } else { PASSWORD };
    let (passwd, read_only) = (Some(passwd), Some(false));
    ConnectResponse { protocol_version: 0, time_out, session_id, passwd, read_only }
}

pub(crate) fn reply(xid: i32, zxid: i64, err: ErrorCode, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, usize::MAX, |out| {
        ReplyHeader { xid, zxid, err }.encode(out);
        out.extend_from_slice(body);
    })
    .unwrap();
    out
}

pub(crate) fn encoded(record: &impl Encode) -> Vec<u8> {
    let mut body = Vec::new();
    record.encode(&mut body);
    body
}

pub(crate) fn get_data_body(data: &[u8]) -> Vec<u8> {
    encoded(&GetDataReply { data: Some(data), stat: Stat::default() })
}

pub(crate) fn stat_body() -> Vec<u8> {
    encoded(&StatReply { stat: Stat::default() })
}

/// One server, a session of 6 s, 3 s for a connection.
pub(crate) fn config() -> Config {
    Config::new("one:1")
        .unwrap()
        .with_session_timeout(ms(6000))
        .with_connection_timeout(ms(3000))
        .with_seed(1)
}

pub(crate) fn start(config: Config, dialer: Dialer) -> Client {
    config.with_clock(Clock::tokio()).with_transport(dialer).start().unwrap()
}

/// A client with the session 7, and the server's end of its connection.
pub(crate) async fn connected() -> (Client, Conn, Net) {
    connected_with(config(), 6000).await
}

/// Like [`connected`], with these settings and this session timeout, in milliseconds.
pub(crate) async fn connected_with(config: Config, time_out: i32) -> (Client, Conn, Net) {
    let (dialer, mut net) = net();
    let client = start(config, dialer);
    let (conn, _) = net.serve_for(7, time_out).await;
    client.wait_until_connected(LONG).await.unwrap();
    (client, conn, net)
}

/// Closes a client, which the server confirms.
pub(crate) async fn close(client: &Client, conn: &mut Conn) {
    let close = client.close();
    conn.confirm_close().await;
    within_limit("close", close).await.unwrap();
}

/// Reads a node, and so handles everything that was sent before the answer.
pub(crate) async fn read(client: &Client, conn: &mut Conn, path: &str) {
    let call = client.get_data(path);
    conn.answer_data(b"").await;
    within_limit("a read", call).await.unwrap();
}

/// Adds a persistent watch, which the server confirms.
pub(crate) async fn watch(
    client: &Client,
    conn: &mut Conn,
    path: &str,
    mode: AddWatchMode,
) -> Watcher {
    let call = client.add_watch(path, mode);
    conn.reply_next(5, ErrorCode::Ok, &[0; 4]).await;
    within_limit("the watch", call).await.unwrap()
}

/// Asserts the next state.
pub(crate) async fn next_is(states: &mut Events<StateEvent>, expected: ConnectionState) {
    assert_eq!(within_limit("a state", states.next()).await, Some(expected.into()));
}

pub(crate) const LOST: (ErrorKind, Outcome) = (ErrorKind::ConnectionLoss, Outcome::Unknown);
pub(crate) const CLOSED: (ErrorKind, Outcome) = (ErrorKind::Closed, Outcome::NotApplied);

/// The kind of an error, and its outcome.
pub(crate) fn refusal<R: fmt::Debug>(result: Result<R, Error>) -> (ErrorKind, Outcome) {
    let error = result.unwrap_err();
    (error.kind(), error.outcome())
}

/// The number of pending requests, and the number of watches.
pub(crate) fn pending_and_watches(client: &Client) -> (usize, usize) {
    let metrics = client.metrics();
    (metrics.pending, metrics.watches)
}
