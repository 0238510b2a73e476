//! All inputs within a bound: of the decoders, of the frame splitter, and of sequence numbers.
//!
//! A fuzzer finds the inputs that it happens to build; these tests leave none out. The input of a decoder is a sequence of
//! pieces that it treats differently: numbers at the boundaries of lengths and counts, and bytes that leave a number incomplete.
//! Whatever follows a value or an invalid length changes nothing, which is checked with each piece; so only an input that ends
//! too early is continued.

#![allow(clippy::indexing_slicing, reason = "tests")]

use std::iter;

use allocation_counter::measure;
use docent_protocol::{
    Decode, DecodeError, DecodeErrorKind, Encode, OpCode, WatcherEvent,
    connect::{ConnectRequest, HandshakeReply},
    frame,
    jute::Reader,
    reply::{Reply, ReplyHeader},
    request::{Request, RequestHeader},
    sequence_number,
};

/// Lengths, counts, types and halves of longs: none, one, several, null, invalid, and beyond any input. Then two bytes
/// that are booleans and texts, the second of which is not UTF-8, and the zeros of a whole Stat.
const PIECES: [&[u8]; 9] = [
    &0_i32.to_be_bytes(),
    &1_i32.to_be_bytes(),
    &4_i32.to_be_bytes(),
    &(-1_i32).to_be_bytes(),
    &i32::MIN.to_be_bytes(),
    &i32::MAX.to_be_bytes(),
    b"\0",
    b"\xFF",
    &[0; 68],
];

/// The offset behind a decoded value.
type Decoded = Result<usize, DecodeError>;

/// Decodes an input. The reader stands behind the value, which is the same once it was encoded.
macro_rules! decoder {
    ($decode:expr) => {
        |input: &[u8], out: &mut Vec<u8>| -> Decoded {
            let mut reader = Reader::new(input);
            let decoded = $decode(&mut reader);
            let end = reader.offset();
            assert_eq!(reader.rest(), &input[end..]);
            let value = decoded.inspect_err(|error| assert!(error.offset() <= end, "{error}"))?;
            out.clear();
            value.encode(out);
            assert_eq!($decode(&mut Reader::new(out)), Ok(value), "{input:?}");
            Ok(end)
        }
    };
}

/// Decodes an input, and all that begin with it. Returns their number.
fn search(
    decode: &impl Fn(&[u8], &mut Vec<u8>) -> Decoded,
    input: &mut Vec<u8>,
    out: &mut Vec<u8>,
    left: usize,
) -> u64 {
    let found = decode(input, out);
    let is_open = found.is_err_and(|error| error.kind() == DecodeErrorKind::UnexpectedEnd);
    if let Ok(end) = found {
        // It takes no more bytes than it needs.
        assert_eq!(decode(&input[..end], out), found, "{input:?}");
        assert!(end == 0 || decode(&input[..end - 1], out).is_err(), "{input:?}");
    }
    let (len, mut inputs) = (input.len(), 1);
    for piece in PIECES.iter().filter(|_| !is_open || left > 0) {
        input.extend_from_slice(piece);
        if is_open {
            inputs += search(decode, input, out, left - 1);
        } else {
            assert_eq!(decode(input, out), found, "{input:?}");
        }
        input.truncate(len);
    }
    inputs
}

/// Decodes all inputs of up to this number of pieces, without an allocation. Returns their number.
fn decode_all(longest: usize, decode: impl Fn(&[u8], &mut Vec<u8>) -> Decoded) -> u64 {
    let (mut input, mut out) = (Vec::with_capacity(1_000), Vec::with_capacity(1_000));
    let mut inputs = 0;
    let info = measure(|| inputs = search(&decode, &mut input, &mut out, longest));
    assert_eq!(info.count_total, 0);
    inputs
}

/// 1,229,210 inputs of up to five pieces, and of six for multi, whose items take more.
#[test]
fn every_input_of_a_decoder_is_a_value_or_an_error() {
    let mut inputs = decode_all(5, decoder!(RequestHeader::decode));
    inputs += decode_all(5, decoder!(ReplyHeader::decode));
    inputs += decode_all(5, decoder!(WatcherEvent::decode));
    for op in OpCode::NAMED {
        let longest = if matches!(op, OpCode::Multi | OpCode::MultiRead) { 6 } else { 5 };
        let mut none = Reader::new(&[]);
        if !matches!(Request::decode(*op, &mut none), Ok(Request::Other(..))) {
            inputs += decode_all(longest, decoder!(|reader| Request::decode(*op, reader)));
        }
        if !matches!(Reply::decode(*op, &mut none), Ok(Reply::Other(_))) {
            inputs += decode_all(longest, decoder!(|reader| Reply::decode(*op, reader)));
        }
    }
    assert_eq!(inputs, 1_229_210);
}

/// A handshake ends where its frame ends, so it is no prefix of a longer one: 59,049 inputs of five pieces.
#[test]
fn every_input_of_a_handshake_is_a_value_or_an_error() {
    let (request, reply) = (decoder!(ConnectRequest::decode), decoder!(HandshakeReply::decode));
    let (mut input, mut out) = (Vec::with_capacity(1_000), Vec::with_capacity(1_000));
    let info = measure(|| {
        for number in 0..PIECES.len().pow(5) {
            input.clear();
            let digits = iter::successors(Some(number), |left| Some(left / PIECES.len()));
            for digit in digits.take(5) {
                input.extend_from_slice(PIECES[digit % PIECES.len()]);
            }
            let _ = (request(&input, &mut out), reply(&input, &mut out));
        }
    });
    assert_eq!(info.count_total, 0);
}

/// All strings over an alphabet, of up to `longest` symbols.
fn strings(alphabet: &[u8], longest: u32) -> impl Iterator<Item = Vec<u8>> {
    let count = alphabet.len();
    (0..=longest).flat_map(move |len| {
        (0..count.pow(len)).map(move |number| {
            let digits = iter::successors(Some(number), |left| Some(left / count));
            digits.take(len as usize).map(|digit| alphabet[digit % count]).collect()
        })
    })
}

/// 137,257 inputs of up to six bytes, each with four limits.
#[test]
fn every_input_is_split_as_its_length_says() {
    let mut inputs = 0;
    for input in strings(&[0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF, b'a'], 6) {
        inputs += 1;
        for limit in [0, 1, 2, usize::MAX] {
            let split = frame::split(&input, limit);
            let Some((length, rest)) = input.split_first_chunk() else {
                assert_eq!(split, Ok(None), "{input:?}");
                continue;
            };
            let length = i32::from_be_bytes(*length);
            match usize::try_from(length) {
                Err(_) => {
                    let kind = split.map_err(|error| error.kind());
                    assert_eq!(kind, Err(DecodeErrorKind::InvalidLength(length)));
                }
                Ok(len) if len > limit => {
                    let kind = split.map_err(|error| error.kind());
                    assert_eq!(kind, Err(DecodeErrorKind::FrameTooLarge { len, limit }));
                }
                Ok(len) => assert_eq!(split, Ok(rest.split_at_checked(len)), "{input:?}"),
            }
        }
    }
    assert_eq!(inputs, 137_257);
}

/// What a server appends for a number is read as that number, and no other text is read as another one: 265,720 texts of up
/// to eleven characters, and the numbers around each power of two and of ten.
#[test]
fn every_sequence_number_is_that_of_its_text() {
    let mut texts: Vec<_> =
        strings(b"09-", 11).filter_map(|text| String::from_utf8(text).ok()).collect();
    assert_eq!(texts.len(), 265_720);
    let powers = (0..40).map(|bit| 1 << bit).chain((0..12).map(|digit| 10_i64.pow(digit)));
    for power in powers.flat_map(|power| [power, -power]) {
        texts.extend((power - 2..=power + 2).map(|number| format!("{number:010}")));
    }
    for text in texts {
        let (number, found) = (text.parse::<i32>().ok(), sequence_number(&text));
        // `String.format("%010d", number)`
        if number.is_some_and(|number| format!("{number:010}") == text) || found.is_some() {
            assert_eq!(found, number, "{text}");
        }
        assert!(found.is_none() || matches!(text.len(), 10 | 11), "{text}");
    }
}
