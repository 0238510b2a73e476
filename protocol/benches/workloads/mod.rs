//! The workloads of both benchmarks: time (`codec.rs`) and instructions (`instructions.rs`).

use docent_protocol::{
    CreateMode, Decode, Encode, ErrorCode, EventType, KeeperState, Stat, Text, WatcherEvent,
    acl::OPEN_ACL_UNSAFE,
    frame,
    jute::{List, Reader},
    multi::{MultiOp, MultiReply, MultiRequest, MultiResult},
    operation::{Create2, GetData},
    reply::{Create2Reply, GetChildrenReply, GetDataReply, ReplyHeader, StatReply},
    request::{CreateRequest, DeleteRequest, ReadRequest, SetDataRequest},
    xid,
};

/// One operation to measure: reads `input`, appends to `output`.
#[derive(Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub input: fn() -> Vec<u8>,
    pub run: fn(&[u8], &mut Vec<u8>) -> u64,
}

pub const WORKLOADS: &[Workload] = &[
    Workload { name: "nothing", input: Vec::new, run: |_, _| 0 },
    Workload { name: "bytes-get", input: get_data_reply, run: read_get_data_by_hand },
    Workload { name: "decode-get", input: get_data_reply, run: decode_get_data },
    Workload { name: "decode-create2", input: create2_reply, run: decode_create2 },
    Workload { name: "bytes-children-10k", input: children_reply, run: walk_lengths },
    Workload { name: "decode-children-10k", input: children_reply, run: decode_children },
    Workload { name: "bytes-mixed-10k", input: mixed_children_reply, run: walk_lengths },
    Workload { name: "decode-mixed-10k", input: mixed_children_reply, run: decode_children },
    Workload { name: "read-children-10k", input: children_reply, run: read_children },
    Workload { name: "decode-multi-100", input: multi_reply, run: decode_multi },
    Workload { name: "decode-event", input: event, run: decode_event },
    Workload { name: "encode-get", input: Vec::new, run: encode_get },
    Workload { name: "encode-create2", input: Vec::new, run: encode_create2 },
    Workload { name: "encode-children-10k", input: children_reply, run: encode_children },
    Workload { name: "encode-multi-100", input: Vec::new, run: encode_multi },
    Workload { name: "encode-event", input: Vec::new, run: encode_event },
];

const STAT: Stat = Stat {
    czxid: 0x264,
    mzxid: 0x278,
    ctime: 1_770_000_000_000,
    mtime: 1_770_000_000_000,
    version: 1,
    cversion: 0,
    aversion: 0,
    ephemeral_owner: 0,
    data_length: 100,
    num_children: 0,
    pzxid: 0x264,
};

const DATA: &[u8] = &[7; 100];

/// The payload of a reply.
fn reply(xid: i32, body: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    ReplyHeader { xid, zxid: 0x278, err: ErrorCode::Ok }.encode(&mut out);
    body.encode(&mut out);
    out
}

fn get_data_reply() -> Vec<u8> {
    reply(1, &GetDataReply { data: Some(DATA), stat: STAT })
}

fn create2_reply() -> Vec<u8> {
    reply(1, &Create2Reply { path: "/lock/_c_b0f6-lock-0000000001".into(), stat: STAT })
}

fn children_reply() -> Vec<u8> {
    listing(|number| format!("lock-{number:010}"))
}

/// A listing in which few neighbours have the same length.
fn mixed_children_reply() -> Vec<u8> {
    listing(|number| format!("lock-{number:0width$}", width = 5 + number * 7 % 11))
}

fn listing(name: impl Fn(usize) -> String) -> Vec<u8> {
    let names: Vec<_> = (0..10_000).map(name).collect();
    let names: Vec<_> = names.iter().map(|name| Text::new(name)).collect();
    reply(1, &GetChildrenReply { children: List::new(&names) })
}

fn multi_reply() -> Vec<u8> {
    let results: Vec<_> = (0..100)
        .map(|number| match number % 3 {
            0 => MultiResult::Create2(Create2Reply { path: "/a/b".into(), stat: STAT }),
            1 => MultiResult::SetData(StatReply { stat: STAT }),
            _ => MultiResult::Delete,
        })
        .collect();
    reply(1, &MultiReply::new(&results))
}

const EVENT: WatcherEvent<'static> = WatcherEvent {
    event_type: EventType::NodeDeleted,
    state: KeeperState::SyncConnected,
    path: Text::new("/lock/_c_b0f6-lock-0000000001"),
};

fn event() -> Vec<u8> {
    reply(xid::NOTIFICATION, &EVENT)
}

/// The minimum for any decoder: loads every field from a known offset.
fn read_get_data_by_hand(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let Some((head, rest)) = input.split_first_chunk::<20>() else { return 0 };
    let header = (int(head, 0), long(head, 4), int(head, 12));
    let Some((data, rest)) = rest.split_at_checked(int(head, 16) as usize) else { return 0 };
    let Some(stat) = rest.first_chunk::<68>() else { return 0 };
    let stat = Stat {
        czxid: long(stat, 0),
        mzxid: long(stat, 8),
        ctime: long(stat, 16),
        mtime: long(stat, 24),
        version: int(stat, 32),
        cversion: int(stat, 36),
        aversion: int(stat, 40),
        ephemeral_owner: long(stat, 44),
        data_length: int(stat, 52),
        num_children: int(stat, 56),
        pzxid: long(stat, 60),
    };
    std::hint::black_box((header, data, stat));
    0
}

#[inline]
fn int<const N: usize>(bytes: &[u8; N], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn long<const N: usize>(bytes: &[u8; N], at: usize) -> i64 {
    (i64::from(int(bytes, at)) << 32) | i64::from(int(bytes, at + 4) as u32)
}

fn decode_get_data(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let mut reader = Reader::new(input);
    let header = ReplyHeader::decode(&mut reader);
    let reply = GetDataReply::decode(&mut reader);
    let _ = std::hint::black_box((header, reply));
    0
}

fn decode_create2(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let mut reader = Reader::new(input);
    let header = ReplyHeader::decode(&mut reader);
    let reply = Create2Reply::decode(&mut reader);
    let _ = std::hint::black_box((header, reply));
    0
}

/// The minimum for a listing: walks from length to length.
fn walk_lengths(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let mut rest = &input[20..];
    let mut count = 0;
    while let Some((len, tail)) = rest.split_first_chunk() {
        let len = i32::from_be_bytes(*len);
        let Some(tail) = usize::try_from(len).ok().and_then(|len| tail.get(len..)) else { break };
        rest = tail;
        count += 1;
    }
    count
}

/// Checks the listing, as a client's connection does before it delivers the reply.
fn decode_children(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let mut reader = Reader::new(input);
    let header = ReplyHeader::decode(&mut reader);
    let reply = GetChildrenReply::decode(&mut reader);
    let _ = std::hint::black_box((header, reply));
    0
}

/// Checks the listing and decodes every name.
fn read_children(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let mut reader = Reader::new(input);
    let header = ReplyHeader::decode(&mut reader);
    let Ok(reply) = GetChildrenReply::decode(&mut reader) else { return 0 };
    std::hint::black_box(header.is_ok());
    reply.children.iter().map(|name| name.as_bytes().len() as u64).sum()
}

fn decode_multi(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let mut reader = Reader::new(input);
    let header = ReplyHeader::decode(&mut reader);
    let reply = MultiReply::decode(&mut reader);
    let _ = std::hint::black_box((header, reply));
    0
}

fn decode_event(input: &[u8], _: &mut Vec<u8>) -> u64 {
    let mut reader = Reader::new(input);
    let header = ReplyHeader::decode(&mut reader);
    let event = WatcherEvent::decode(&mut reader);
    let _ = std::hint::black_box((header, event));
    0
}

fn encode_get(_: &[u8], output: &mut Vec<u8>) -> u64 {
    let operation =
        GetData(ReadRequest { path: "/lock/_c_b0f6-lock-0000000001".into(), watch: true });
    let _ = frame::put_operation(output, frame::DEFAULT_LIMIT, 1, &operation);
    0
}

fn encode_create2(_: &[u8], output: &mut Vec<u8>) -> u64 {
    let operation = Create2::new(
        "/lock/_c_b0f6-lock-",
        Some(DATA),
        OPEN_ACL_UNSAFE,
        CreateMode::EphemeralSequential,
    );
    let _ = frame::put_operation(output, frame::DEFAULT_LIMIT, 1, &operation);
    0
}

fn encode_children(input: &[u8], output: &mut Vec<u8>) -> u64 {
    let mut reader = Reader::new(input);
    let _ = ReplyHeader::decode(&mut reader);
    if let Ok(reply) = GetChildrenReply::decode(&mut reader) {
        reply.encode(output);
    }
    0
}

fn encode_multi(_: &[u8], output: &mut Vec<u8>) -> u64 {
    let create = CreateRequest {
        path: "/a/b".into(),
        data: Some(DATA),
        acl: OPEN_ACL_UNSAFE.into(),
        flags: 0,
    };
    let set = SetDataRequest { path: "/a/b".into(), data: Some(DATA), version: -1 };
    let delete = DeleteRequest { path: "/a/b".into(), version: -1 };
    let ops: [MultiOp<'_>; 100] = std::array::from_fn(|number| match number % 3 {
        0 => MultiOp::Create2(create),
        1 => MultiOp::SetData(set),
        _ => MultiOp::Delete(delete),
    });
    MultiRequest::new(&ops).encode(output);
    0
}

fn encode_event(_: &[u8], output: &mut Vec<u8>) -> u64 {
    let _ = frame::put(output, frame::DEFAULT_LIMIT, |out| {
        ReplyHeader { xid: xid::NOTIFICATION, zxid: -1, err: ErrorCode::Ok }.encode(out);
        EVENT.encode(out);
    });
    0
}
