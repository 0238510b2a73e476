//! How long an operation on the tables of watches and of pending requests takes, by how many there are.
//!
//! `cargo bench -p docent-session`. A column that grows with the number of watches is work that is not needed.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{sync::Arc, time::Instant as Clock};

use bytes::BytesMut;
use docent_protocol::{
    AddWatchMode, ErrorCode, EventType, KeeperState, WatcherEvent,
    connect::{ConnectResponse, HandshakeReply},
    frame,
    jute::Encode,
    operation::GetData,
    reply::ReplyHeader,
    request::ReadRequest,
    xid,
};
use docent_session::{
    Config, Error, ErrorKind, Outcome,
    config::Host,
    machine::{Connect, Registration, Session},
    runtime::Instant,
    watch::WatchKind,
};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const SIZES: [u32; 3] = [1_000, 10_000, 100_000];

struct Parts<'a>(ReplyHeader, &'a [u8]);

impl Encode for Parts<'_> {
    fn encode(&self, out: &mut impl bytes::BufMut) {
        self.0.encode(out);
        out.put_slice(self.1);
    }
}

struct Bench {
    machine: Session<u32, u32>,
    xid: i32,
    paths: Vec<Arc<str>>,
}

impl Bench {
    fn new(count: u32, on_one_path: bool) -> Self {
        let config = Config::new("one:1").unwrap();
        let number = |number| if on_one_path { 0 } else { number };
        let paths = (0..count).map(|n| format!("/watched/{:010}", number(n)).into()).collect();
        Self { machine: Session::new(config, 1), xid: 0, paths }
    }

    fn connect(&mut self) {
        let mut at = NOW;
        while let Connect::At(later) = self.machine.poll_connect(at) {
            at = later;
        }
        self.machine.handle_connected(NOW);
        let reply = HandshakeReply::Response(ConnectResponse {
            protocol_version: 0,
            time_out: 60_000,
            session_id: 7,
            passwd: Some(&[1; 16]),
            read_only: Some(false),
        });
        self.feed(&reply);
        self.machine.poll_transmit(NOW, &mut Vec::new());
    }

    fn feed(&mut self, record: &impl Encode) {
        let mut out = Vec::new();
        frame::put_record(&mut out, usize::MAX, record).unwrap();
        self.machine.handle_input(NOW, &mut BytesMut::from(&out[..]));
    }

    fn answer_all(&mut self) {
        self.machine.poll_transmit(NOW, &mut Vec::new());
        while self.machine.pending() > 0 {
            self.xid += 1;
            let header = ReplyHeader { xid: self.xid, zxid: 5, err: ErrorCode::Ok };
            self.feed(&Parts(header, &[]));
            self.machine.poll_completion();
        }
    }

    fn cut(&mut self) {
        let why = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown);
        let host = Host { name: "one".to_owned(), port: 1 };
        self.machine.handle_disconnected(NOW, &host, &why);
    }

    fn add_all(&mut self) {
        for (number, path) in (0..).zip(self.paths.clone()) {
            self.machine.add_watch(AddWatchMode::Persistent, number, path, number, || NOW);
        }
    }

    fn read_all(&mut self) {
        for (number, path) in (0..).zip(self.paths.clone()) {
            let registration =
                Registration { kind: WatchKind::Data, path: Arc::clone(&path), watcher: number };
            let read = |watch| GetData(ReadRequest { path: (&*path).into(), watch });
            self.machine.submit_watching(read, number, registration, || NOW);
        }
    }

    fn drop_all(&mut self) {
        for (number, path) in (0..).zip(&self.paths) {
            self.machine.cancel_watch(path, &number, || NOW);
        }
    }

    fn deliver_all(&mut self) {
        for path in self.paths.clone() {
            let event = WatcherEvent {
                event_type: EventType::NodeDataChanged,
                state: KeeperState::SyncConnected,
                path: (&*path).into(),
            };
            let mut body = Vec::new();
            event.encode(&mut body);
            let header = ReplyHeader { xid: xid::NOTIFICATION, zxid: -1, err: ErrorCode::Ok };
            self.feed(&Parts(header, &body));
            while self.machine.poll_event().is_some() {}
        }
    }
}

/// Nanoseconds for each of `count`.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn each(count: u32, work: impl FnOnce()) -> f64 {
    let start = Clock::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

fn main() {
    println!("{:44}{:>12}{:>12}{:>12}", "nanoseconds for each of", SIZES[0], SIZES[1], SIZES[2]);
    for (on_one_path, paths) in [(false, "a path each"), (true, "one path")] {
        let mut rows: [(&str, Vec<f64>); 7] = [
            ("queue an addWatch while reconnecting", Vec::new()),
            ("drop its watcher there", Vec::new()),
            ("queue a read that watches", Vec::new()),
            ("answer it", Vec::new()),
            ("deliver its event", Vec::new()),
            ("set a watch again on the next connection", Vec::new()),
            ("drop a persistent watch", Vec::new()),
        ];
        for count in SIZES {
            let mut bench = Bench::new(count, on_one_path);
            rows[0].1.push(each(count, || bench.add_all()));
            rows[1].1.push(each(count, || bench.drop_all()));

            let mut bench = Bench::new(count, on_one_path);
            bench.connect();
            rows[2].1.push(each(count, || bench.read_all()));
            rows[3].1.push(each(count, || bench.answer_all()));
            // On one path, the first event is all there are.
            bench.paths.truncate(if on_one_path { 1 } else { usize::MAX });
            rows[4].1.push(each(count, || bench.deliver_all()));

            let mut bench = Bench::new(count, on_one_path);
            bench.connect();
            bench.add_all();
            bench.answer_all();
            bench.cut();
            rows[5].1.push(each(count, || bench.connect()));
            rows[6].1.push(each(count, || bench.drop_all()));
        }
        for (what, values) in rows {
            print!("{:44}", format!("{what}, {paths}"));
            values.iter().for_each(|value| print!("{value:12.0}"));
            println!();
        }
    }
}
