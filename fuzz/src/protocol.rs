//! The targets of docent-protocol: properties that hold for any bytes a peer may send.
//!
//! Each function is one target. It panics if its property is violated; bytes that do not decode pass.
//! `protocol/tests/corpus.rs` includes this file and replays `corpus/` with it.

use arbitrary::Unstructured;
use docent_protocol::{
    Decode, Encode, OpCode, WatcherEvent,
    arbitrary::{Conversation, Generator},
    connect::{ConnectRequest, HandshakeReply},
    dissect::{Direction, Dissector, Frame, Message, ReplyBody},
    frame,
    jute::Reader,
    multi::{MultiReply, MultiRequest, MultiResult},
    path::{self, PathError},
    raw,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
};

/// A check of a property for some bytes.
pub type Check = fn(&[u8]);

/// The targets. The name of a target is also that of its corpus directory.
pub const TARGETS: &[(&str, Check)] = &[
    ("frames", frames),
    ("handshake", handshake),
    ("requests", requests),
    ("replies", replies),
    ("events", events),
    ("multi", multi),
    ("path", path),
    ("dissector", dissector),
    ("conversation", conversation),
];

/// A stream of frames: frames that are split off encode to the same bytes, and no payload exceeds the limit.
pub fn frames(data: &[u8]) {
    for limit in [0, 64, frame::DEFAULT_LIMIT, usize::MAX] {
        let mut rest = data;
        let mut again = Vec::new();
        while let Ok(Some((payload, tail))) = frame::split(rest, limit) {
            assert!(payload.len() <= limit);
            assert_eq!(rest.len(), frame::LENGTH_SIZE + payload.len() + tail.len());
            frame::put_record(&mut again, limit, &raw::RawBody(payload)).unwrap();
            rest = tail;
        }
        assert_eq!(again, data[..data.len() - rest.len()]);
    }
}

/// Checks that a record that decodes also round-trips. The encoding has at most as many bytes as were decoded, plus
/// `added`.
fn round_trip<'a, T>(data: &'a [u8], out: &'a mut Vec<u8>, added: fn(&T) -> usize)
where
    T: Decode<'a> + Encode + PartialEq + std::fmt::Debug,
{
    let mut reader = Reader::new(data);
    let Ok(value) = T::decode(&mut reader) else { return };
    assert_eq!(reader.offset() + reader.rest().len(), data.len());
    value.encode(out);
    // The bytes may differ, because booleans are encoded as 0 or 1.
    assert!(out.len() <= reader.offset() + added(&value));
    let mut reader = Reader::new(out);
    let again = T::decode(&mut reader).expect("an encoded value decodes");
    assert!(reader.is_empty());
    assert_eq!(again, value);
}

/// The handshake of either direction.
pub fn handshake(data: &[u8]) {
    round_trip_connect_request(data);
    let mut reader = Reader::new(data);
    let Ok(reply) = HandshakeReply::decode(&mut reader) else { return };
    let mut out = Vec::new();
    reply.encode(&mut out);
    assert_eq!(HandshakeReply::decode(&mut Reader::new(&out)), Ok(reply));
    let _ = format!("{reply:?}");
}

fn round_trip_connect_request(data: &[u8]) {
    let Ok(request) = ConnectRequest::decode(&mut Reader::new(data)) else { return };
    let mut out = Vec::new();
    request.encode(&mut out);
    assert_eq!(ConnectRequest::decode(&mut Reader::new(&out)), Ok(request));
    let _ = format!("{request} {request:?}");
}

/// A request with its header.
pub fn requests(data: &[u8]) {
    let mut reader = Reader::new(data);
    let Ok(header) = RequestHeader::decode(&mut reader) else { return };
    let Ok(request) = Request::decode(header.op, &mut reader) else { return };
    assert_eq!(request.op_code(), header.op);
    let mut out = Vec::new();
    raw::put_request(&mut out, usize::MAX, header.xid, &request).unwrap();
    let (payload, _) = frame::split(&out, usize::MAX).unwrap().unwrap();
    let mut reader = Reader::new(payload);
    assert_eq!(RequestHeader::decode(&mut reader), Ok(header));
    assert_eq!(Request::decode(header.op, &mut reader), Ok(request));
    assert!(reader.is_empty());
    let _ = (request.path(), raw::is_harmful(&request), format!("{request:?}"));
    format_frame(&Frame {
        direction: Direction::ToServer,
        payload: data,
        message: Message::Request { header, request },
        left_over: &[],
    });
}

/// A reply: the operation of its request, its header and its body.
pub fn replies(data: &[u8]) {
    let mut reader = Reader::new(data);
    let Ok(op) = reader.int("op").map(OpCode::from_number) else { return };
    let Ok(header) = ReplyHeader::decode(&mut reader) else { return };
    let Ok(reply) = Reply::decode(op, &mut reader) else { return };
    let mut out = Vec::new();
    reply.encode(&mut out);
    let mut reader = Reader::new(&out);
    assert_eq!(Reply::decode(op, &mut reader), Ok(reply));
    assert!(reader.is_empty());
    let _ = format!("{reply:?}");
    format_frame(&Frame {
        direction: Direction::ToClient,
        payload: data,
        message: Message::Reply { header, op: Some(op), body: ReplyBody::Record(reply) },
        left_over: &[],
    });
}

/// The body of a watch event.
pub fn events(data: &[u8]) {
    round_trip::<WatcherEvent<'_>>(data, &mut Vec::new(), |_| 0);
}

/// The bodies of multi and multiRead requests and replies.
pub fn multi(data: &[u8]) {
    round_trip::<MultiRequest<'_>>(data, &mut Vec::new(), |_| 0);
    // A failed read in a reply of a ClickHouse Keeper has no record. In ZooKeeper's encoding, it has one of 4 bytes.
    round_trip::<MultiReply<'_>>(data, &mut Vec::new(), |reply| {
        4 * reply.iter().filter(|result| matches!(result, MultiResult::Error(_))).count()
    });
}

/// `path::validate`, compared with a second, simple implementation of its rules.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let is_good_name = |name: &str| {
        !matches!(name, "" | "." | "..")
            && name.chars().all(|character| {
                !matches!(u32::from(character), 0..=0x1F | 0x7F..=0x9F | 0xD800..=0xF8FF | 0xFFF0..)
            })
    };
    let expected =
        text == "/" || text.strip_prefix('/').is_some_and(|it| it.split('/').all(is_good_name));
    let result = path::validate(text);
    assert_eq!(result.is_ok(), expected, "{text:?}: {result:?}");
    match result {
        Err(PathError::EmptyComponent(at) | PathError::RelativeComponent(at)) => {
            assert!(text[..at].ends_with('/'));
        }
        Err(PathError::InvalidCharacter(character, at)) => {
            assert!(text[at..].starts_with(character));
        }
        _ => {}
    }
    if expected {
        let parent = path::parent(text);
        assert_eq!(parent.is_none(), text == "/");
        assert!(parent.is_none_or(|parent| path::validate(parent).is_ok()));
    }
    if let Some(number) = path::sequence_number(text) {
        // A negative number may have one more leading zero than Java writes.
        assert_eq!(text.parse::<i32>(), Ok(number));
        assert!(format!("{number:010}").len() <= text.len());
    }
}

/// The pieces of a connection. Each is encoded as one byte of direction, two bytes of length, and the content.
fn pieces(mut data: &[u8]) -> Vec<(Direction, &[u8])> {
    let mut pieces = Vec::new();
    while let Some((&[direction, high, low], rest)) = data.split_first_chunk() {
        let size = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (piece, rest) = rest.split_at(size);
        let direction = if direction & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
        pieces.push((direction, piece));
        data = rest;
    }
    pieces
}

/// Formats a frame in every form, checks the forms, and returns its line.
fn format_frame(frame: &Frame<'_>) -> String {
    let line = frame.to_string();
    assert!(!line.contains(['\n', '\r', '\x1b']), "{line:?}");
    let _ = format!("{frame:?}");
    let json = serde_json::to_string(frame).expect("any frame has a serialized form");
    assert!(!json.contains('\n'));
    line
}

const SMALL_LIMIT: usize = 4096;

/// Both directions of a connection, in pieces: the frames do not depend on how the bytes are split, memory
/// is bounded, and every frame can be formatted.
pub fn dissector(data: &[u8]) {
    let mut whole = Dissector::with_limit(SMALL_LIMIT);
    let mut slow = Dissector::with_limit(SMALL_LIMIT);
    for (direction, piece) in pieces(data) {
        let mut input = piece;
        let mut lines = Vec::new();
        while let Some(frame) = whole.feed(direction, &mut input) {
            if frame.is_exact() {
                assert!(frame.left_over.is_empty());
            }
            let is_text = matches!(frame.message, Message::Text(_));
            lines.push(if is_text {
                frame.payload.iter().map(|b| format!("{b}")).collect()
            } else {
                format_frame(&frame)
            });
        }
        assert!(input.is_empty());
        let mut slow_lines = Vec::new();
        let mut text = String::new();
        for byte in piece {
            let mut input = std::slice::from_ref(byte);
            while let Some(frame) = slow.feed(direction, &mut input) {
                // Text has no frames: it is returned in the pieces in which it was fed.
                if matches!(frame.message, Message::Text(_)) {
                    text.extend(frame.payload.iter().map(|b| format!("{b}")));
                } else {
                    slow_lines.push(frame.to_string());
                }
            }
        }
        if !text.is_empty() {
            slow_lines.push(text);
        }
        assert_eq!(lines, slow_lines);
        assert!(whole.buffered(direction) <= frame::LENGTH_SIZE + SMALL_LIMIT);
        assert_eq!(whole.buffered(direction), slow.buffered(direction));
        assert_eq!(whole.pending(), slow.pending());
    }
}

/// The generated connections of a session. If it is not mutated, every frame decodes completely and all requests are
/// harmless. If it is mutated, nothing panics.
pub fn conversation(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mutate = u.arbitrary().unwrap_or_default();
    let generator = Generator { mutate, harmful: false };
    let Ok(connections) = generator.session(&mut u) else { return };
    for connection in &connections {
        check_connection(connection, mutate);
    }
}

fn check_connection(conversation: &Conversation, mutate: bool) {
    let mut dissector = Dissector::new();
    for (direction, bytes) in &conversation.0 {
        let mut input = &bytes[..];
        let mut count = 0;
        while let Some(frame) = dissector.feed(*direction, &mut input) {
            count += 1;
            let line = format_frame(&frame);
            if let Message::Request { request, .. } = &frame.message {
                assert!(mutate || !raw::is_harmful(request), "{line}");
            }
            if !mutate {
                assert!(frame.is_exact(), "{line}");
                if let Message::Reply { header, body, .. } = &frame.message {
                    let is_record = matches!(body, ReplyBody::Record(_));
                    assert_eq!(is_record, header.err.is_ok(), "{line}");
                }
            }
        }
        assert!(mutate || count == 1);
    }
    assert!(mutate || dissector.pending() == 0);
}
