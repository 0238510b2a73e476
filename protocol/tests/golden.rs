//! Frames of real servers: each decodes with no bytes left over and encodes to the same bytes.
//!
//! `data/golden.json` is one long recording of 3.8.0, `data/golden-versions.json` records the same requests to
//! 3.4.14, 3.6.3, 3.8.0 and 3.9.5. An entry is `{op, direction, hex, note, conn, server, seq}`; an empty `hex`
//! means that the server closed the connection.
//!
//! The frames are decoded in two ways: each frame alone, as the message that the recording names, and each
//! connection through a `Dissector`, which has to determine the messages.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use docent_protocol::{
    Decode, DecodeErrorKind, Encode, ErrorCode, OpCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    dissect::{Direction, Dissector, Message},
    frame,
    jute::Reader,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
    xid,
};
use serde_json::Value;

/// A kind of frame that does not round-trip. The recording's client sent all of them on purpose.
struct Exception {
    op: &'static str,
    /// The complete note of the entry.
    note: &'static str,
    /// The result of [`round_trip`].
    error: &'static str,
    /// The number of such frames in the recordings.
    count: usize,
}

const fn exception(
    op: &'static str,
    note: &'static str,
    error: &'static str,
    count: usize,
) -> Exception {
    Exception { op, note, error, count }
}

/// The only exceptions. All are requests: every frame sent by a server round-trips.
const EXCEPTIONS: [Exception; 13] = [
    // Truncated, to record the server's MARSHALLINGERROR or its closing the connection.
    exception("getData", "getData short body", "path at byte 8 is cut off", 3),
    exception("create", "create short body", "path at byte 8 is cut off", 4),
    exception("multi", "no terminator", "type at byte 30 is cut off", 4),
    exception("setWatches", "short", "existWatches at byte 20 is cut off", 1),
    exception("sasl", "no token", "token at byte 8 is cut off", 2),
    exception("auth", "auth empty body", "type at byte 8 is cut off", 2),
    exception("auth", "auth", "type at byte 8 is cut off", 3),
    exception("connect", "empty first frame", "protocolVersion at byte 0 is cut off", 6),
    exception("connect", "truncated ConnectRequest", "sessionId at byte 16 is cut off", 5),
    // Operations not allowed in a multi, to record the server's rejection. Their length is unknown.
    exception("multi", "setACL inside", "type at byte 17 has the value 7", 4),
    exception("multiRead", "exists inside", "type at byte 17 has the value 3", 4),
    exception("multiRead", "getChildren2 inside", "type at byte 17 has the value 12", 3),
    // Servers ignore the `err` of an operation's header. Decoding drops it, and encoding writes -1.
    exception("multi", "request header err 0", "other bytes", 4),
];

struct Entry {
    op: String,
    direction: Direction,
    note: String,
    server: String,
    connection: String,
    seq: u64,
    hex: Vec<u8>,
}

impl Entry {
    /// The operation's code. The recording calls operations without a name `unknown`.
    fn op_code(&self) -> OpCode {
        let named = OpCode::NAMED.iter().find(|code| code.name() == Some(&self.op));
        named.copied().unwrap_or(OpCode::Unknown(0))
    }
}

fn recordings() -> Vec<Entry> {
    [include_str!("data/golden.json"), include_str!("data/golden-versions.json")]
        .into_iter()
        .flat_map(entries)
        .collect()
}

fn entries(text: &str) -> Vec<Entry> {
    let values: Vec<Value> = serde_json::from_str(text).unwrap();
    let field = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    values
        .iter()
        .map(|value| Entry {
            op: field(value, "op"),
            direction: Direction::from_name(&field(value, "direction")).unwrap(),
            note: field(value, "note"),
            server: field(value, "server"),
            connection: field(value, "conn"),
            seq: value["seq"].as_u64().unwrap(),
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

/// Decodes the payload as the message that the recording names, and encodes it again. The error says why the
/// result is not the same bytes.
fn round_trip(entry: &Entry, payload: &[u8]) -> Result<(), String> {
    let mut out = Vec::new();
    let mut reader = Reader::new(payload);
    let text = |error| format!("{error}");
    match (entry.op.as_str(), entry.direction) {
        ("connect", Direction::ToServer) => {
            ConnectRequest::decode(&mut reader).map_err(text)?.encode(&mut out);
        }
        ("connect", Direction::ToClient) => {
            HandshakeReply::decode(&mut reader).map_err(text)?.encode(&mut out);
        }
        (_, Direction::ToServer) => {
            let header = RequestHeader::decode(&mut reader).map_err(text)?;
            header.encode(&mut out);
            Request::decode(header.op, &mut reader).map_err(text)?.encode(&mut out);
        }
        (op, Direction::ToClient) => {
            let header = ReplyHeader::decode(&mut reader).map_err(text)?;
            header.encode(&mut out);
            if op == "notification" {
                assert_eq!(header.xid, xid::NOTIFICATION);
                WatcherEvent::decode(&mut reader).map_err(text)?.encode(&mut out);
            } else if header.err == ErrorCode::Ok {
                Reply::decode(entry.op_code(), &mut reader).map_err(text)?.encode(&mut out);
            } else {
                // The bytes after an error are no record.
                out.extend_from_slice(reader.rest());
                reader = Reader::new(&[]);
            }
        }
    }
    match reader.rest().len() {
        0 if out == payload => Ok(()),
        0 => Err("other bytes".to_owned()),
        left => Err(format!("{left} bytes left over")),
    }
}

/// Whether the entry is not a message of the protocol: the end of a connection, a four-letter word, a bare length.
fn is_no_message(entry: &Entry) -> bool {
    entry.hex.is_empty() || matches!(entry.op.as_str(), "4lw" | "frame")
}

#[test]
fn every_frame_round_trips() {
    let (mut frames, mut counts, mut unlisted) = (0, [0; EXCEPTIONS.len()], Vec::new());
    for entry in recordings().iter().filter(|entry| !is_no_message(entry)) {
        frames += 1;
        let Some((payload, [])) = frame::split(&entry.hex, usize::MAX).unwrap() else {
            panic!("{} {}: incomplete frame", entry.server, entry.note)
        };
        let Err(error) = round_trip(entry, payload) else { continue };
        let index = EXCEPTIONS.iter().position(|exception| {
            (exception.op, exception.note, exception.error) == (&entry.op, &entry.note, &error)
        });
        match index {
            Some(index) if entry.direction == Direction::ToServer => counts[index] += 1,
            _ => unlisted.push(format!(
                "{} {} {} | {}: {error}",
                entry.server, entry.direction, entry.op, entry.note
            )),
        }
    }
    println!("{frames} frames, {} exceptions", counts.iter().sum::<usize>());
    assert!(unlisted.is_empty(), "{}", unlisted.join("\n"));
    for (exception, count) in EXCEPTIONS.iter().zip(counts) {
        assert_eq!(count, exception.count, "{} | {}", exception.op, exception.note);
    }
}

/// The frames whose length makes a server close the connection.
#[test]
fn lengths_that_servers_reject_are_errors() {
    let lengths: Vec<_> = recordings()
        .into_iter()
        .filter(|entry| entry.op == "frame" && !entry.hex.is_empty())
        .map(|entry| frame::split(&entry.hex, frame::DEFAULT_LIMIT).unwrap_err().kind())
        .collect();
    assert_eq!(
        lengths,
        [
            DecodeErrorKind::FrameTooLarge { len: 0x10_0000, limit: frame::DEFAULT_LIMIT },
            DecodeErrorKind::InvalidLength(-1),
        ]
    );
}

/// The entries of each recorded connection, in the order of recording.
fn connections() -> BTreeMap<(String, String), Vec<Entry>> {
    let mut connections = BTreeMap::<_, Vec<Entry>>::new();
    for entry in recordings() {
        let key = (entry.server.clone(), entry.connection.clone());
        connections.entry(key).or_default().push(entry);
    }
    for entries in connections.values_mut() {
        entries.sort_by_key(|entry| entry.seq);
    }
    connections
}

#[test]
fn a_dissector_determines_the_message_of_every_frame() {
    let (mut frames, mut unlisted) = (0, Vec::new());
    for ((server, connection), entries) in connections() {
        let begins = matches!(entries[0].op.as_str(), "connect" | "4lw");
        let mut dissector = if begins { Dissector::new() } else { Dissector::established() };
        for entry in entries.iter().filter(|entry| !entry.hex.is_empty() && entry.op != "frame") {
            let mut input = &entry.hex[..];
            let frame = dissector.feed(entry.direction, &mut input).unwrap();
            assert!(input.is_empty());
            frames += 1;
            let expected = match (&frame.message, entry.op.as_str()) {
                (Message::ConnectRequest(_) | Message::ConnectReply(_), "connect") => true,
                (Message::Event { .. }, "notification") => true,
                (Message::FourLetterWord(_) | Message::Text(_), "4lw") => true,
                // The recording has no names for operations unknown to servers and for a reply to
                // createSession.
                (Message::Request { header: RequestHeader { op, .. }, .. }, "unknown")
                | (Message::Reply { op: Some(op), .. }, "unknown") => {
                    op.name().is_none() || *op == OpCode::CreateSession
                }
                (Message::Request { .. } | Message::Reply { .. }, _) => {
                    frame.op() == Some(entry.op_code())
                }
                _ => false,
            };
            let is_exception = entry.op != "4lw" && round_trip(entry, frame.payload).is_err();
            if is_exception {
                assert!(!frame.is_exact(), "{frame}");
            } else if !(expected && frame.is_exact()) {
                unlisted
                    .push(format!("{server} {connection} {} | {}: {frame}", entry.op, entry.note));
            }
        }
    }
    println!("{frames} frames");
    assert!(unlisted.is_empty(), "{}", unlisted.join("\n"));
}
