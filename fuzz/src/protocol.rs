//! docent-protocol under any bytes: what holds whatever a peer sends.
//!
//! Each function is one target. It panics when a promise is broken; that bytes are refused is none.
//! `protocol/tests/corpus.rs` includes this file and replays `corpus/` with it.

use arbitrary::Unstructured;
use docent_protocol::{
    Decode, Encode, OpCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    follow::{Direction, Follower, Frame, Message, ReplyBody},
    frame,
    generate::Generator,
    jute::Reader,
    multi::{MultiReply, MultiRequest},
    path::{self, PathError},
    raw,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
};

/// Something that holds for any bytes.
pub type Check = fn(&[u8]);

/// The table: a corpus directory's name and its check.
pub const TARGETS: &[(&str, Check)] = &[
    ("frames", frames),
    ("handshake", handshake),
    ("requests", requests),
    ("replies", replies),
    ("events", events),
    ("multi", multi),
    ("path", path),
    ("follower", follower),
    ("conversation", conversation),
];

/// Bytes as a sequence of frames.
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

/// A record is read: encoded and read again, it must be the same.
fn there_and_back<'a, T>(data: &'a [u8], out: &'a mut Vec<u8>)
where
    T: Decode<'a> + Encode + PartialEq + std::fmt::Debug,
{
    let mut reader = Reader::new(data);
    let Ok(value) = T::decode(&mut reader) else { return };
    assert_eq!(reader.offset() + reader.rest().len(), data.len());
    value.encode(out);
    // Booleans become 0 or 1; nothing becomes longer.
    assert!(out.len() <= reader.offset());
    let mut reader = Reader::new(out);
    let again = T::decode(&mut reader).expect("what was encoded decodes");
    assert!(reader.is_empty());
    assert_eq!(again, value);
}

/// Both handshakes.
pub fn handshake(data: &[u8]) {
    there_and_back_of_connect_request(data);
    let mut reader = Reader::new(data);
    let Ok(reply) = HandshakeReply::decode(&mut reader) else { return };
    let mut out = Vec::new();
    reply.encode(&mut out);
    assert_eq!(HandshakeReply::decode(&mut Reader::new(&out)), Ok(reply));
    let _ = format!("{reply:?}");
}

fn there_and_back_of_connect_request(data: &[u8]) {
    let Ok(request) = ConnectRequest::decode(&mut Reader::new(data)) else { return };
    let mut out = Vec::new();
    request.encode(&mut out);
    assert_eq!(ConnectRequest::decode(&mut Reader::new(&out)), Ok(request));
    let _ = format!("{request} {request:?}");
}

/// A request, header first.
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
    told(&Frame {
        direction: Direction::ToServer,
        payload: data,
        message: Message::Request { header, request },
        left_over: &[],
    });
}

/// A reply: the operation it answers, its header, its body.
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
    told(&Frame {
        direction: Direction::ToClient,
        payload: data,
        message: Message::Reply { header, op: Some(op), body: ReplyBody::Record(reply) },
        left_over: &[],
    });
}

/// The body of a watch event.
pub fn events(data: &[u8]) {
    there_and_back::<WatcherEvent<'_>>(data, &mut Vec::new());
}

/// The bodies of multi and multiRead, both ways.
pub fn multi(data: &[u8]) {
    there_and_back::<MultiRequest<'_>>(data, &mut Vec::new());
    there_and_back::<MultiReply<'_>>(data, &mut Vec::new());
}

/// The rules of paths against the same rules written down once more, slowly.
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
        // A negative number may have one zero more than Java would write.
        assert_eq!(text.parse::<i32>(), Ok(number));
        assert!(format!("{number:010}").len() <= text.len());
    }
}

/// Pieces of a connection: a byte of direction, two of length, and that many.
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

/// A frame told in every way there is.
fn told(frame: &Frame<'_>) -> String {
    let line = frame.to_string();
    assert!(!line.contains(['\n', '\r', '\x1b']), "{line:?}");
    let _ = format!("{frame:?}");
    let json = serde_json::to_string(frame).expect("any frame has a serialized form");
    assert!(!json.contains('\n'));
    line
}

const SMALL_LIMIT: usize = 4096;

/// Both directions of a connection, in pieces: the pieces make no difference, memory is bounded, all can be
/// told.
pub fn follower(data: &[u8]) {
    let mut whole = Follower::with_limit(SMALL_LIMIT);
    let mut slow = Follower::with_limit(SMALL_LIMIT);
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
                told(&frame)
            });
        }
        assert!(input.is_empty());
        let mut slow_lines = Vec::new();
        let mut text = String::new();
        for byte in piece {
            let mut input = std::slice::from_ref(byte);
            while let Some(frame) = slow.feed(direction, &mut input) {
                // Text has no frames: it comes as it is fed.
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

/// A generated connection: one without mistakes is read to the last byte; one with them does no harm, here
/// or to a server.
pub fn conversation(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mistakes = u.arbitrary().unwrap_or_default();
    let generator = Generator { mistakes, harmful: false };
    let Ok(conversation) = generator.conversation(&mut u) else { return };
    let mut follower = Follower::new();
    for (direction, bytes) in &conversation.0 {
        let mut input = &bytes[..];
        let mut count = 0;
        while let Some(frame) = follower.feed(*direction, &mut input) {
            count += 1;
            let line = told(&frame);
            if let Message::Request { request, .. } = &frame.message {
                assert!(mistakes || !raw::is_harmful(request), "{line}");
            }
            if !mistakes {
                assert!(frame.is_exact(), "{line}");
                if let Message::Reply { header, body, .. } = &frame.message {
                    let is_read = matches!(body, ReplyBody::Record(_));
                    assert_eq!(is_read, header.err.is_ok(), "{line}");
                }
            }
        }
        assert!(mistakes || count == 1);
    }
    assert!(mistakes || follower.pending() == 0);
}
