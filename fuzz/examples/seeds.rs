//! Writes the seed corpus and the dictionaries from the golden frames of real servers:
//! `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.
//!
//! There is one seed for each kind of frame (target, operation, error, content), the shortest such frame. The seeds of
//! `dissector` are whole connections. Those of `server` are frames of clients in its format (see `src/testing.rs`): one
//! for each operation, and one for each connection that is short enough. Files are named `seed-…`; inputs that a fuzzer
//! adds are not committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use docent_protocol::{
    ErrorCode, EventType, OpCode,
    dissect::{Direction, Dissector, Frame, Message},
};
use serde_json::Value;

/// Maximum size of the seed of a connection, in bytes.
const MAX_CONNECTION_SIZE: usize = 6000;

/// Maximum size of a seed of the target `server`, in bytes.
const MAX_SERVER_SIZE: usize = 1500;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = BTreeMap::<(&str, String), Vec<u8>>::new();
    let mut spoken = BTreeMap::<String, Spoken>::new();
    let mut add = |target: &'static str, name: String, bytes: &[u8]| {
        let seed = seeds.entry((target, name)).or_insert_with(|| bytes.to_vec());
        if bytes.len() < seed.len() {
            *seed = bytes.to_vec();
        }
    };
    for name in ["golden.json", "golden-versions.json"] {
        let text = fs::read_to_string(root.join("../protocol/tests/data").join(name)).unwrap();
        let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
        if name == "golden.json" {
            server_seeds(&entries).into_iter().for_each(|(name, seed)| add("server", name, &seed));
        }
        for ((version, kind), connection) in connections(&entries) {
            let spoken = spoken.entry(version).or_default();
            let begins = kind.starts_with("connect") || kind.starts_with("4lw");
            let mut dissector = if begins { Dissector::new() } else { Dissector::established() };
            let (mut all, mut kinds) = (Vec::new(), kind);
            for (direction, bytes) in &connection {
                let mut input = &bytes[..];
                let Some(frame) = dissector.feed(*direction, &mut input) else { continue };
                spoken.add(&frame);
                if let Some((target, name, seed)) = seed_of(&frame) {
                    add(target, name, &seed);
                }
                add("frames", frame.op().map_or_else(|| "other".into(), name_of), bytes);
                // Connections with frames of the same kinds share one seed.
                let kind =
                    format!("{}-{}", direction.name(), frame.op().map_or("x".into(), name_of));
                if !kinds.contains(&kind) {
                    kinds.push_str(&kind);
                }
                push(&mut all, *direction as u8, bytes);
            }
            if all.len() <= MAX_CONNECTION_SIZE && begins {
                add("dissector", format!("{:08x}", checksum(kinds.as_bytes())), &all);
            }
        }
    }
    for (number, path) in [
        "/",
        "/a",
        "/a/b.c/..d",
        "/straße/日本",
        "",
        "a",
        "/a/",
        "//",
        "/a//b",
        "/a/../b",
        "/.",
        "/a\0b",
        "/ü\u{85}",
        "/\u{F8FF}",
        "/\u{FFFE}",
        "/\u{1F600}",
        "0000000042",
        "-2147483648",
        "2147483648",
    ]
    .into_iter()
    .enumerate()
    {
        add("path", format!("{number:02}"), path.as_bytes());
    }
    for (number, text) in [
        "zk1",
        "zk1, zk2:2182 ,,[::1]:2183/app/a",
        "127.0.0.1:2181/",
        "host/a/../b",
        "[::1",
        "[fe80::1%eth0]:1",
        "h:0",
        "h:65536",
        "h:+80",
        "a:b:c",
        ",",
        "/x",
        "zk1:2181 /app ",
        "zk://u@h",
    ]
    .into_iter()
    .enumerate()
    {
        add("connect_string", format!("{number:02}"), text.as_bytes());
    }
    // Any bytes can be a seed of the generator.
    for (number, step) in [1_u32, 3, 7, 31, 127].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..600_u32).map(|at| (at * at * step % 251) as u8).collect();
        add("conversation", number.to_string(), &bytes);
    }
    let mut total = 0;
    for ((target, name), bytes) in &seeds {
        let directory = root.join("corpus").join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("seed-{name}")), bytes).unwrap();
        total += bytes.len();
    }
    let all = Spoken {
        operations: OpCode::NAMED.iter().copied().collect(),
        events: EventType::NAMED.iter().copied().collect(),
        errors: ErrorCode::NAMED.iter().copied().collect(),
    };
    fs::write(root.join("zookeeper.dict"), dictionary(&all)).unwrap();
    for (version, spoken) in spoken {
        let file = root.join(format!("zookeeper-{version}.dict"));
        fs::write(file, dictionary(&spoken)).unwrap();
    }
    println!("{} seeds, {total} bytes", seeds.len());
}

/// The seeds of the target `server`, by their names.
fn server_seeds(entries: &[Value]) -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::<String, Vec<u8>>::new();
    let mut connections = BTreeMap::<&str, Vec<u8>>::new();
    for entry in entries.iter().filter(|entry| entry["direction"] == "c2s") {
        let bytes = unhex(entry["hex"].as_str().unwrap());
        let op = entry["op"].as_str().unwrap();
        // A whole connection contains its handshake; single frames go to the connection that has one.
        let connection = u8::from(op != "connect");
        let seed = seeds.entry(format!("op-{op}")).or_insert_with(|| vec![3]);
        if seed.len() + bytes.len() < MAX_SERVER_SIZE {
            push(seed, connection, &bytes);
        }
        let name = entry["conn"].as_str().unwrap();
        push(connections.entry(name).or_insert_with(|| vec![2]), 0, &bytes);
    }
    let short = connections.into_iter().filter(|(_, seed)| seed.len() < MAX_SERVER_SIZE);
    seeds.extend(short.map(|(name, seed)| (format!("conn-{name}"), seed)));
    seeds
}

/// Adds bytes in the format of the targets `dissector` and `server`: one byte in front, two bytes of length, the content.
fn push(seed: &mut Vec<u8>, first: u8, bytes: &[u8]) {
    seed.push(first);
    seed.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    seed.extend(bytes.iter().take(u16::MAX.into()));
}

/// What servers of a version were seen to say.
#[derive(Default)]
struct Spoken {
    /// The operations of replies other than that an operation is unknown.
    operations: BTreeSet<OpCode>,
    events: BTreeSet<EventType>,
    errors: BTreeSet<ErrorCode>,
}

impl Spoken {
    fn add(&mut self, frame: &Frame<'_>) {
        match &frame.message {
            Message::Reply { header, op, .. } => {
                let is_known = header.err != ErrorCode::Unimplemented;
                self.operations.extend(op.filter(|op| is_known && op.name().is_some()));
                self.errors.insert(header.err);
            }
            Message::Event { event, .. } => {
                self.events.insert(event.event_type);
            }
            _ => {}
        }
    }
}

/// A connection: the version of its server (`3.8`) and the operation of the first frame, and all frames.
type Connection = ((String, String), Vec<(Direction, Vec<u8>)>);

/// The connections of the recording.
fn connections(entries: &[Value]) -> Vec<Connection> {
    let mut connections = BTreeMap::<String, Vec<&Value>>::new();
    for entry in entries {
        let name = format!("{} {}", entry["server"], entry["conn"]);
        connections.entry(name).or_default().push(entry);
    }
    connections
        .into_values()
        .map(|mut entries| {
            entries.sort_by_key(|entry| entry["seq"].as_u64());
            let kind = entries[0]["op"].as_str().unwrap_or_default().to_owned();
            let server = entries[0]["server"].as_str().unwrap_or_default();
            let version = server.split('.').take(2).collect::<Vec<_>>().join(".");
            let frames = entries
                .into_iter()
                .map(|entry| {
                    let direction =
                        Direction::from_name(entry["direction"].as_str().unwrap()).unwrap();
                    (direction, unhex(entry["hex"].as_str().unwrap()))
                })
                .filter(|(_, bytes)| !bytes.is_empty())
                .collect();
            ((version, kind), frames)
        })
        .collect()
}

/// The seed that a frame gives for its target: target, name, bytes.
fn seed_of(frame: &Frame<'_>) -> Option<(&'static str, String, Vec<u8>)> {
    let payload = frame.payload.to_vec();
    Some(match &frame.message {
        Message::ConnectRequest(_) => ("handshake", format!("c2s-{}", payload.len()), payload),
        Message::ConnectReply(_) => ("handshake", format!("s2c-{}", payload.len()), payload),
        Message::Request { header, .. }
            if header.op == OpCode::Multi || header.op == OpCode::MultiRead =>
        {
            let body = payload.get(8..)?.to_vec();
            ("multi", format!("c2s-{}", operations(&serde_json::to_value(frame).ok()?)), body)
        }
        Message::Request { header, .. } => ("requests", name_of(header.op), payload),
        Message::Reply { header, op: Some(op), .. } => {
            if header.err.is_ok() && matches!(op, OpCode::Multi | OpCode::MultiRead) {
                let body = payload.get(16..)?.to_vec();
                return Some((
                    "multi",
                    format!("s2c-{}", operations(&serde_json::to_value(frame).ok()?)),
                    body,
                ));
            }
            let mut seed = op.number().to_be_bytes().to_vec();
            seed.extend(&payload);
            ("replies", format!("{}-{}", name_of(*op), header.err), seed)
        }
        Message::Event { event, .. } => {
            ("events", event.event_type.to_string(), payload.get(16..)?.to_vec())
        }
        _ => return None,
    })
}

fn name_of(op: OpCode) -> String {
    op.name().map_or_else(|| op.number().to_string(), str::to_owned)
}

/// The joined names of the operations inside a multi.
fn operations(frame: &Value) -> String {
    let items = frame["body"].as_array().cloned().unwrap_or_default();
    let names =
        items.iter().map(|item| item["op"].as_str().or(item["error"].as_str()).unwrap_or("x"));
    let mut names: Vec<_> = names.collect();
    names.truncate(6);
    names.join("-")
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// FNV-1a: gives each connection a short, stable name.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A fuzzer's dictionary: significant numbers in big-endian form, and words.
fn dictionary(spoken: &Spoken) -> String {
    let mut text = String::from("# Written by examples/seeds.rs.\n");
    let mut number = |name: &str, bytes: &[u8]| {
        let escaped: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        text.push_str(&format!("{name}=\"{escaped}\"\n"));
    };
    for op in &spoken.operations {
        number(&format!("op_{op}"), &op.number().to_be_bytes());
    }
    for kind in &spoken.events {
        number(&format!("event_{kind}"), &kind.number().to_be_bytes());
    }
    for error in &spoken.errors {
        number(&format!("err_{error}"), &error.number().to_be_bytes());
    }
    for xid in [-1, -2, -4, -8] {
        number(&format!("xid_{}", i32::abs(xid)), &i32::to_be_bytes(xid));
    }
    for edge in [i32::MAX, i32::MIN, 0xF_FFFF, 0x10_0000] {
        number(&format!("edge_{edge:x}"), &edge.to_be_bytes());
    }
    number("multi_end", &[0xFF, 0xFF, 0xFF, 0xFF, 1, 0xFF, 0xFF, 0xFF, 0xFF]);
    number("surrogates", &[0xED, 0xA0, 0xBD, 0xED, 0xB8, 0x80]);
    for word in
        ["world", "anyone", "digest", "auth", "sasl", "ip", "/zookeeper/config", "ruok", "srvr"]
    {
        text.push_str(&format!("\"{word}\"\n"));
    }
    text
}
