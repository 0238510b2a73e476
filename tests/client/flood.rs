//! A server that never stops sending, on a transport that is always ready: other tasks must still run. tokio's own
//! sockets hide the problem, because they are pending from time to time.

use docent::watch::KeeperState;
use docent_protocol::{
    Encode as _, ErrorCode, WatcherEvent, connect::ConnectResponse, frame, reply::ReplyHeader, xid,
};
use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

#[path = "../examples/smol/runtime.rs"]
mod smol_runtime;

/// Accepts a session, replies to one request, and then sends events without end.
#[derive(Debug)]
struct Flood;

impl Transport for Flood {
    fn connect<'a>(&'a self, _: &'a Host, _: Duration) -> Connecting<'a> {
        let connection = Connection {
            replies: VecDeque::new(),
            writes: 0,
            flood: event().repeat(2000),
            at: 0,
            waker: None,
        };
        Box::pin(async { Ok(Box::new(connection) as Box<dyn ByteStream>) })
    }
}

#[derive(Debug)]
struct Connection {
    replies: VecDeque<u8>,
    /// The number of writes: the handshake is the first, the addWatch the second.
    writes: usize,
    flood: Vec<u8>,
    /// The number of bytes of `flood` that were read.
    at: usize,
    waker: Option<Waker>,
}

fn framed(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, usize::MAX, encode).unwrap();
    out
}

fn event() -> Vec<u8> {
    framed(|out| {
        ReplyHeader { xid: xid::NOTIFICATION, zxid: -1, err: ErrorCode::Ok }.encode(out);
        let (event_type, state) = (EventType::NodeDataChanged, KeeperState::SyncConnected);
        WatcherEvent { event_type, state, path: "/a".into() }.encode(out);
    })
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(byte) = self.replies.pop_front() {
            buffer.put_slice(&[byte]);
        }
        if self.writes >= 2 {
            let part = &self.flood[self.at..];
            let count = part.len().min(buffer.remaining());
            buffer.put_slice(&part[..count]);
            self.at = (self.at + count) % self.flood.len();
        }
        if buffer.filled().is_empty() {
            self.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes += 1;
        let reply = match self.writes {
            1 => framed(|out| {
                let passwd = Some([7; 16].as_slice());
                let (protocol_version, time_out) = (0, 60_000);
                ConnectResponse {
                    protocol_version,
                    time_out,
                    session_id: 7,
                    passwd,
                    read_only: Some(false),
                }
                .encode(out);
            }),
            2 => framed(|out| ReplyHeader { xid: 1, zxid: 1, err: ErrorCode::Ok }.encode(out)),
            _ => Vec::new(),
        };
        self.replies.extend(reply);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Waits for some events, and returns the duration of a 100 ms sleep that ran at the same time.
async fn sleep_beside_the_flood(runtime: impl docent::runtime::Runtime) -> Duration {
    let mut timer = runtime.timer(Duration::from_millis(100));
    let config = Config::new("flood:1").unwrap().with_runtime(runtime);
    let client = config.with_transport(Flood).start().unwrap();
    let mut watcher = client.add_watch("/a", AddWatchMode::Persistent).await.unwrap();
    for _ in 0..100 {
        watcher.next().await;
    }
    let begin = Instant::now();
    timer.as_mut().reset(Duration::from_millis(100));
    timer.await;
    begin.elapsed()
}

/// Runs a program on its own thread: if its runtime is starved, no timeout of that runtime fires.
#[track_caller]
fn assert_in_time(program: impl FnOnce() -> Duration + Send + 'static) {
    let (sender, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(program()));
    let took = result.recv_timeout(Duration::from_secs(20)).expect("no other task runs");
    assert!(took < Duration::from_secs(2), "100 ms took {took:?}");
    eprintln!("{took:?}");
}

// Case (Found in docent itself): a flood on a stream that is always ready kept all other tasks from
// running: the driver read without a bound.
#[test]
fn a_flood_of_events_leaves_time_to_other_tasks_on_smol() {
    assert_in_time(|| smol::block_on(smol::spawn(sleep_beside_the_flood(smol_runtime::Smol))));
}

#[test]
fn a_flood_of_events_leaves_time_to_other_tasks_on_tokio() {
    assert_in_time(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(sleep_beside_the_flood(runtime.handle().clone()))
    });
}
