//! Frames of real servers: each decodes with nothing left over and encodes to the same bytes.
//!
//! `data/golden.json` is one long recording on 3.8.0, `data/golden-versions.json` the same questions put
//! to 3.4.14, 3.6.3, 3.8.0 and 3.9.5. An entry is `{op, direction, hex, note, conn, server, seq}`; an empty
//! `hex` means that the server closed the connection.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use docent_protocol::{
    Decode, Encode, ErrorCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    frame,
    jute::Reader,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
    xid,
};
use serde_json::Value;

/// Frames that were sent broken on purpose, or that are not canonical, by what their note begins with.
const EXCEPTIONS: [(&str, &str); 16] = [
    ("getData short body", "a request cut off on purpose"),
    ("create short body", "a request cut off on purpose"),
    ("setACL inside", "an operation that no multi may hold"),
    ("getChildren2 inside", "an operation that no multi may hold"),
    ("exists inside", "an operation that no multi may hold"),
    ("no terminator", "a multi cut off on purpose"),
    ("request header err 0", "servers do not look at the header's err; we write -1"),
    ("empty first frame", "no handshake at all"),
    ("truncated ConnectRequest", "a handshake cut off on purpose"),
    ("short", "a setWatches cut off on purpose"),
    ("no token", "a sasl cut off on purpose"),
    ("auth empty body", "an auth cut off on purpose"),
    ("auth", "an auth cut off on purpose"),
    ("SASL response for", "a reply with an error and a body, which is not decoded"),
    ("server final", "a reply with an error and a body, which is not decoded"),
    ("write op in multiRead", "a reply with an error and a body, which is not decoded"),
];

/// Frames that are not what their operation says, on purpose: their place among the tests is below.
fn is_no_message(entry: &Entry) -> bool {
    entry.hex.is_empty() || matches!(entry.op.as_str(), "4lw" | "frame" | "raw")
}

struct Entry {
    op: String,
    direction: String,
    note: String,
    server: String,
    hex: Vec<u8>,
}

fn entries(text: &str) -> Vec<Entry> {
    let values: Vec<Value> = serde_json::from_str(text).unwrap();
    let field = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    values
        .iter()
        .map(|value| Entry {
            op: field(value, "op"),
            direction: field(value, "direction"),
            note: field(value, "note"),
            server: field(value, "server"),
            hex: unhex(&field(value, "hex")),
        })
        .collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Decodes the payload and encodes it again; what was left over comes back too.
fn there_and_back(entry: &Entry, payload: &[u8]) -> Result<(Vec<u8>, usize), String> {
    let mut out = Vec::new();
    let mut reader = Reader::new(payload);
    let told = |error| format!("{error}");
    match (entry.op.as_str(), entry.direction.as_str()) {
        ("connect", "c2s") => ConnectRequest::decode(&mut reader).map_err(told)?.encode(&mut out),
        ("connect", _) => HandshakeReply::decode(&mut reader).map_err(told)?.encode(&mut out),
        (_, "c2s") => {
            let header = RequestHeader::decode(&mut reader).map_err(told)?;
            header.encode(&mut out);
            Request::decode(header.op, &mut reader).map_err(told)?.encode(&mut out);
        }
        (op, _) => {
            let header = ReplyHeader::decode(&mut reader).map_err(told)?;
            header.encode(&mut out);
            if op == "notification" {
                assert_eq!(header.xid, xid::NOTIFICATION);
                WatcherEvent::decode(&mut reader).map_err(told)?.encode(&mut out);
            } else if header.err == ErrorCode::Ok {
                let op = docent_protocol::OpCode::NAMED
                    .iter()
                    .find(|code| code.name() == Some(op))
                    .copied()
                    .unwrap_or(docent_protocol::OpCode::Unknown(0));
                Reply::decode(op, &mut reader).map_err(told)?.encode(&mut out);
            }
        }
    }
    Ok((out, reader.rest().len()))
}

fn check(text: &str) -> (usize, Vec<String>) {
    let (mut frames, mut odd) = (0, Vec::new());
    for entry in entries(text).iter().filter(|entry| !is_no_message(entry)) {
        frames += 1;
        let mut say = |what: String| {
            if EXCEPTIONS.iter().any(|(note, _)| entry.note.starts_with(note)) {
                return;
            }
            odd.push(format!(
                "{} {} {} | {}: {what}",
                entry.server, entry.direction, entry.op, entry.note
            ));
        };
        match frame::split(&entry.hex, usize::MAX) {
            Ok(Some((payload, []))) => match there_and_back(entry, payload) {
                Ok((out, 0)) if out == payload => {}
                Ok((out, left)) => {
                    say(format!("{left} left over, same bytes: {}", payload.starts_with(&out)));
                }
                Err(error) => say(error),
            },
            other => say(format!("no whole frame: {other:?}")),
        }
    }
    (frames, odd)
}

#[test]
fn golden_frames_of_3_8_0() {
    let (frames, odd) = check(include_str!("data/golden.json"));
    println!("{frames} frames\n{}", odd.join("\n"));
    assert!(odd.is_empty());
}

#[test]
fn golden_frames_of_3_4_to_3_9() {
    let (frames, odd) = check(include_str!("data/golden-versions.json"));
    println!("{frames} frames\n{}", odd.join("\n"));
    assert!(odd.is_empty());
}
