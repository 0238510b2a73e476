//! The server limits the output queued for a client that does not read.

use super::*;

/// The length of a value, in bytes.
const VALUE: usize = 500_000;

/// The most that the server queues for a client: 8 MiB, and the reply that exceeds it.
const MOST: usize = (8 << 20) + VALUE + 1000;

const READS: i32 = 200;

/// The encoded requests of `count` reads of `/big`.
fn reads(count: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let read = ReadRequest { path: Text::new("/big"), watch: false };
    for xid in 1..=count {
        put_request_parts(&mut out, 1 << 20, xid, OpCode::GetData, &read).unwrap();
    }
    out
}

fn bench(servers: usize) -> (Bench, ConnectionId) {
    let mut bench = Bench::new(Config { servers, ..Config::default() });
    let (id, ..) = bench.connect();
    bench.send(id, 1, OpCode::Create, &create("/big", &[7; VALUE], 0));
    assert_eq!(bench.answers(id).len(), 1);
    (bench, id)
}

/// Reads the queued bytes, piece by piece. Returns the xids of the replies, and the length of the longest piece.
fn read_all(bench: &mut Bench, id: ConnectionId) -> (Vec<i32>, usize) {
    let (mut xids, mut longest) = (Vec::new(), 0);
    while let Some(bytes) = bench.machine.poll_transmit(id) {
        longest = longest.max(bytes.len());
        let mut rest = &bytes[..];
        while let Some((payload, tail)) = docent_protocol::frame::split(rest, 1 << 24).unwrap() {
            xids.push(i32::from_be_bytes(*payload.first_chunk().unwrap()));
            rest = tail;
        }
        assert!(rest.is_empty());
    }
    (xids, longest)
}

// Case (Found in docent itself): the embedded server ran ahead of a client that did not read: 2,000
// pipelined reads of 1 MB, or the same behind a write, took 3.5 GB.
#[test]
fn pipelined_reads_wait_for_the_client_to_read() {
    let (mut bench, id) = bench(1);
    bench.bytes(id, &reads(READS));
    assert!(!bench.machine.wants_input(id));
    let (xids, longest) = read_all(&mut bench, id);
    assert!(longest <= MOST, "{longest} bytes are queued");
    assert_eq!(xids, (1..=READS).collect::<Vec<_>>());
    assert!(bench.machine.wants_input(id));
}

/// The reads wait behind a write; its reply lets them all go on.
#[test]
fn reads_behind_a_write_wait_for_the_client_to_read() {
    let (mut bench, id) = bench(3);
    let leader = bench.machine.leader().unwrap();
    bench.machine.isolate(bench.now, leader);
    let mut out = Vec::new();
    let body = RawBody(&[]);
    put_request_parts(&mut out, 1 << 20, 1, OpCode::Create, &create("/w", b"", 0)).unwrap();
    put_request_parts(&mut out, 1 << 20, 2, OpCode::WhoAmI, &body).unwrap();
    out.extend(reads(READS));
    bench.bytes(id, &out);
    assert_eq!(read_all(&mut bench, id).0, [0; 0]);
    bench.machine.heal(bench.now, Peer::Member(leader), Peer::Member((leader + 1) % 3));
    bench.machine.heal(bench.now, Peer::Member((leader + 1) % 3), Peer::Member(leader));
    let (xids, longest) = read_all(&mut bench, id);
    assert!(longest <= MOST, "{longest} bytes are queued");
    assert_eq!(xids, [1, 2].into_iter().chain(1..=READS).collect::<Vec<_>>());
}

/// The server reads more from a client once its waiting requests are answered.
#[test]
fn more_requests_than_may_wait_are_handled_in_their_order() {
    let (mut bench, id) = bench(3);
    let leader = bench.machine.leader().unwrap();
    bench.machine.isolate(bench.now, leader);
    let mut out = Vec::new();
    for xid in 1..=3000 {
        let path = format!("/n{xid}");
        put_request_parts(&mut out, 1 << 20, xid, OpCode::Create, &create(&path, b"", 0)).unwrap();
    }
    bench.bytes(id, &out);
    assert!(!bench.machine.wants_input(id));
    bench.machine.heal_all(bench.now + Duration::from_millis(1));
    assert_eq!(read_all(&mut bench, id).0, (1..=3000).collect::<Vec<_>>());
    assert!(bench.machine.wants_input(id));
}

/// A request whose reply would have 500 MB.
#[test]
fn a_reply_that_takes_too_much_memory_closes_the_connection() {
    let (mut bench, id) = bench(1);
    let read = || MultiOp::GetData(ReadRequest { path: Text::new("/big"), watch: false });
    let ops: Vec<_> = std::iter::repeat_with(read).take(1000).collect();
    bench.send(id, 2, OpCode::MultiRead, &MultiRequest::new(&ops[..10]));
    assert_eq!(read_all(&mut bench, id).0, [2]);
    bench.send(id, 3, OpCode::MultiRead, &MultiRequest::new(&ops));
    let queued = bench.machine.poll_transmit(id).map_or(0, |bytes| bytes.len());
    assert_eq!(queued, 0);
    assert!(bench.machine.is_closed(id));
}
