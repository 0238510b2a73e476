//! The lower bound: the cost of the measured workloads without a client. It has a blocking socket, one buffer in each
//! direction, the codec, and a copy of the bytes that a caller would receive. The command line is that of `bench_peer`.

#[allow(dead_code, reason = "bench_peer uses all of it")]
#[path = "bench_peer/measure.rs"]
mod measure;

use std::{
    hint::black_box,
    io::{Read, Write},
    net::TcpStream,
    time::Instant,
};

use docent::OpCode;
use docent_protocol::{
    Decode,
    connect::ConnectRequest,
    frame,
    jute::Reader,
    reply::{GetDataReply, ReplyHeader},
    request::{ReadRequest, RequestHeader},
};
use measure::{Arguments, SAMPLED, Timed, fail, must, sample};

const PEER: &str = "raw";
const LIMIT: usize = 64 * 1024 * 1024;

struct Raw {
    stream: TcpStream,
    input: Vec<u8>,
    /// The part of `input` that has been read from the socket but not yet consumed.
    filled: std::ops::Range<usize>,
    output: Vec<u8>,
    xid: i32,
}

impl Raw {
    fn connect(address: &str) -> Self {
        let stream = must(TcpStream::connect(address));
        must(stream.set_nodelay(true));
        let input = vec![0; 1024 * 1024];
        let mut raw = Self { stream, input, filled: 0..0, output: Vec::new(), xid: 0 };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            time_out: 30_000,
            session_id: 0,
            passwd: Some(&[0; 16]),
            read_only: Some(false),
        };
        must(frame::put_record(&mut raw.output, LIMIT, &request));
        raw.flush();
        raw.next(|_| ());
        raw
    }

    fn queue(&mut self, op: OpCode, path: &str) {
        use docent_protocol::Encode as _;
        self.xid += 1;
        let xid = self.xid;
        must(frame::put(&mut self.output, LIMIT, |out| {
            RequestHeader { xid, op }.encode(out);
            ReadRequest { path: path.into(), watch: false }.encode(out);
        }));
    }

    fn flush(&mut self) {
        if !self.output.is_empty() {
            must(self.stream.write_all(&self.output));
            self.output.clear();
        }
    }

    /// Passes the payload of the next frame to `take`. Reads from the socket only if no complete frame is buffered.
    fn next<R>(&mut self, take: impl FnOnce(&[u8]) -> R) -> R {
        loop {
            let rest = self.input.get(self.filled.clone()).unwrap_or_default();
            if let Some((payload, behind)) = must(frame::split(rest, LIMIT)) {
                let result = take(payload);
                self.filled.start = self.filled.end - behind.len();
                return result;
            }
            self.flush();
            self.input.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            let room = self.input.get_mut(self.filled.end..).unwrap_or_default();
            match must(self.stream.read(room)) {
                0 => fail("the server closed the connection, or a frame is too large"),
                count => self.filled.end += count,
            }
        }
    }
}

/// A copy of the data in a getData reply.
fn data(payload: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(payload);
    let header = must(ReplyHeader::decode(&mut reader));
    if !header.err.is_ok() {
        fail(header.err);
    }
    must(GetDataReply::decode(&mut reader)).data.unwrap_or_default().to_vec()
}

fn main() {
    let arguments = Arguments::read();
    let mut raw = Raw::connect(&arguments.address);
    let mut get = |window: usize, n: usize, mut timed: Option<&mut Timed>| {
        let mut began = std::collections::VecDeque::with_capacity(window);
        for index in 0..n + window {
            if index >= window {
                black_box(raw.next(data));
                if let (Some(Some(from)), Some(timed)) = (began.pop_front(), timed.as_deref_mut()) {
                    timed.ended(from);
                }
            }
            if index < n {
                began.push_back(if window == 1 { Some(Instant::now()) } else { sample(index) });
                raw.queue(OpCode::GetData, "/bench/node");
            }
        }
    };
    let timed = match arguments.workload.as_str() {
        "get-seq" | "get-pipe" => {
            let sequential = arguments.workload == "get-seq";
            let window = if sequential { 1 } else { arguments.window() };
            get(window, arguments.warm_up(), None);
            let mut timed = Timed::begin(arguments.n / if sequential { 1 } else { SAMPLED } + 1);
            get(window, arguments.n, Some(&mut timed));
            timed
        }
        "children-10k" => {
            let mut list = || {
                raw.queue(OpCode::GetChildren, "/bench/kids");
                // Only copied: no name is read.
                black_box(raw.next(<[u8]>::to_vec));
            };
            for _ in 0..arguments.warm_up() {
                list();
            }
            let mut timed = Timed::begin(arguments.n);
            for _ in 0..arguments.n {
                let from = Instant::now();
                list();
                timed.ended(from);
            }
            timed
        }
        other => fail(format_args!("no workload {other}")),
    };
    timed.finish(PEER, &arguments.workload, arguments.n);
}
