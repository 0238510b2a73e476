//! How fast the embedded server starts, how many sessions and nodes it takes, and how many operations a
//! second it answers; beside a real server when `DOCENT_TEST_CONNECT` names one.
//!
//! `cargo bench -p docent-testing`. One connection, 100 requests in flight, over loopback.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use docent_protocol::{
    CreateMode,
    acl::OPEN_ACL_UNSAFE,
    connect::ConnectRequest,
    frame,
    operation::{self, Operation},
    request::ReadRequest,
};
use docent_testing::TestingServer;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

const LIMIT: usize = 1 << 24;
const WINDOW: usize = 100;

struct Client<S> {
    stream: S,
    input: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn new(stream: S) -> Self {
        let mut client = Self { stream, input: BytesMut::new() };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            time_out: 60_000,
            session_id: 0,
            passwd: Some(&[0; 16]),
            read_only: Some(false),
        };
        let mut out = Vec::new();
        frame::put_record(&mut out, LIMIT, &request).unwrap();
        client.stream.write_all(&out).await.unwrap();
        client.frames(1).await;
        client
    }

    /// Reads `count` frames.
    async fn frames(&mut self, mut count: usize) {
        while count > 0 {
            match frame::split(&self.input, LIMIT).unwrap() {
                Some((payload, _)) => {
                    let len = frame::LENGTH_SIZE + payload.len();
                    self.input.advance(len);
                    count -= 1;
                }
                None => assert_ne!(self.stream.read_buf(&mut self.input).await.unwrap(), 0),
            }
        }
    }

    /// Sends `count` calls, a window at a time.
    async fn calls<C: Operation>(&mut self, count: usize, call: impl Fn(usize) -> C) {
        let mut out = Vec::new();
        for first in (0..count).step_by(WINDOW) {
            out.clear();
            let now = WINDOW.min(count - first);
            for at in first..first + now {
                frame::put_operation(&mut out, LIMIT, 1, &call(at)).unwrap();
            }
            self.stream.write_all(&out).await.unwrap();
            self.frames(now).await;
        }
    }
}

fn report(what: &str, count: usize, took: Duration) {
    let rate = count as f64 / took.as_secs_f64();
    println!("{what:<40} {count:>8} in {:>9.1} ms  {rate:>10.0} /s", took.as_secs_f64() * 1e3);
}

async fn operations(name: &str, addr: &str) {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut client = Client::new(stream).await;
    let root = format!("/bench-{}", std::process::id());
    let create = |path: String| OwnedCreate(path);
    client.calls(1, |_| create(root.clone())).await;
    let count = 20_000;
    let before = Instant::now();
    client.calls(count, |at| create(format!("{root}/n{at:06}"))).await;
    report(&format!("{name}: create"), count, before.elapsed());
    let path = format!("{root}/n000000");
    let before = Instant::now();
    let read = || ReadRequest { path: path.as_str().into(), watch: false };
    client.calls(count * 5, |_| operation::GetData(read())).await;
    report(&format!("{name}: getData"), count * 5, before.elapsed());
    let before = Instant::now();
    client.calls(count, |at| OwnedDelete(format!("{root}/n{at:06}"))).await;
    report(&format!("{name}: delete"), count, before.elapsed());
    client.calls(1, |_| OwnedDelete(root.clone())).await;
}

/// Calls that own their path.
struct OwnedCreate(String);
struct OwnedDelete(String);

impl docent_protocol::Encode for OwnedCreate {
    fn encode(&self, out: &mut impl bytes::BufMut) {
        operation::Create::new(&self.0, Some(b"x"), OPEN_ACL_UNSAFE, CreateMode::Persistent)
            .encode(out);
    }
}

impl Operation for OwnedCreate {
    type Reply<'r> = docent_protocol::reply::PathReply<'r>;

    fn op_code(&self) -> docent_protocol::OpCode {
        docent_protocol::OpCode::Create
    }
}

impl docent_protocol::Encode for OwnedDelete {
    fn encode(&self, out: &mut impl bytes::BufMut) {
        let path = self.0.as_str().into();
        docent_protocol::request::DeleteRequest { path, version: -1 }.encode(out);
    }
}

impl Operation for OwnedDelete {
    type Reply<'r> = docent_protocol::reply::EmptyReply;

    fn op_code(&self) -> docent_protocol::OpCode {
        docent_protocol::OpCode::Delete
    }
}

#[tokio::main]
async fn main() {
    let before = Instant::now();
    let server = TestingServer::start().await.unwrap();
    report("start", 1, before.elapsed());

    operations("embedded", &server.connect_string()).await;
    match std::env::var("DOCENT_TEST_CONNECT") {
        Ok(real) => operations("real", &real).await,
        Err(_) => println!("DOCENT_TEST_CONNECT is not set: no real server beside it"),
    }

    let before = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..10_000 {
        clients.push(Client::new(server.connect().unwrap()).await);
    }
    report("sessions, each with a connection", clients.len(), before.elapsed());
    assert!(server.session_ids().len() >= 10_000);

    let before = Instant::now();
    let mut client = clients.swap_remove(0);
    client.calls(100_000, |at| OwnedCreate(format!("/n{at:06}"))).await;
    report("nodes, beside those sessions", 100_000, before.elapsed());
}
