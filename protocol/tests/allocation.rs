//! Memory: decoding allocates nothing, and no length or count of a frame determines the size of an allocation.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use allocation_counter::measure;
use arbitrary::Unstructured;
use docent_protocol::{
    Decode, Encode, OpCode, Text,
    arbitrary::Generator,
    dissect::{Direction, Dissector},
    jute::{List, Reader},
    reply::{GetChildrenReply, Reply},
    request::{Request, RequestHeader},
};

#[test]
fn a_listing_of_ten_thousand_is_decoded_without_an_allocation() {
    let names: Vec<_> = (0..10_000).map(|number| format!("lock-{number:010}")).collect();
    let names: Vec<_> = names.iter().map(|name| Text::new(name)).collect();
    let mut bytes = Vec::new();
    GetChildrenReply { children: List::new(&names) }.encode(&mut bytes);
    let info = measure(|| {
        let reply = GetChildrenReply::decode(&mut Reader::new(&bytes)).unwrap();
        let total: usize = reply.children.iter().map(|name| name.as_bytes().len()).sum();
        assert_eq!(total, 150_000);
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn encoding_into_a_buffer_that_is_large_enough_allocates_nothing() {
    let names = [Text::new("a"); 1000];
    let mut bytes = Vec::with_capacity(10_000);
    let info = measure(|| GetChildrenReply { children: List::new(&names) }.encode(&mut bytes));
    assert_eq!(info.count_total, 0);
}

/// Decodes mutated frames, also with wrong lengths and counts, as requests and replies of every operation.
#[test]
fn no_length_or_count_makes_a_decoder_allocate() {
    let generator = Generator { mutate: true, harmful: true };
    for round in 0..2000_u32 {
        let seed: Vec<u8> =
            (0..400_u32).map(|at| (at.wrapping_mul(round + 7) >> 3) as u8).collect();
        let conversation = generator.conversation(&mut Unstructured::new(&seed)).unwrap();
        for (_, bytes) in &conversation.0 {
            let payload = bytes.get(4..).unwrap_or_default();
            let info = measure(|| {
                for op in OpCode::NAMED {
                    let mut reader = Reader::new(payload);
                    let _ = RequestHeader::decode(&mut reader);
                    let _ = Request::decode(*op, &mut reader);
                    let _ = Reply::decode(*op, &mut Reader::new(payload));
                    let _ =
                        Reply::decode(*op, &mut Reader::new(payload.get(16..).unwrap_or_default()));
                }
            });
            assert_eq!(info.count_total, 0);
        }
    }
}

/// A count of 2,147,483,647 in a body of 100 bytes, at every offset.
// Case (Pitfalls of the wire, 10): lying counts and lengths, cut frames.
// Case (What broke other clients): counts and bad UTF-8 end the process.
#[test]
fn counts_beyond_the_body_allocate_nothing() {
    for offset in 0..96 {
        let mut payload = [0; 100];
        payload[offset..offset + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        let info = measure(|| {
            for op in OpCode::NAMED {
                let _ = Request::decode(*op, &mut Reader::new(&payload));
                let _ = Reply::decode(*op, &mut Reader::new(&payload));
            }
        });
        assert_eq!(info.count_total, 0);
    }
}

/// A dissector's buffer grows with the bytes fed, not according to the length field.
#[test]
fn a_dissector_buffers_no_more_than_it_was_fed() {
    let info = measure(|| {
        let mut dissector = Dissector::new();
        for _ in 0..100 {
            // The length field of a frame of 15 MiB, and three bytes of it.
            let mut input = &[0x00, 0xF0, 0x00, 0x00, 1, 2, 3][..];
            assert!(dissector.feed(Direction::ToServer, &mut input).is_none());
        }
        assert_eq!(dissector.buffered(Direction::ToServer), 700);
    });
    assert!(info.bytes_max <= 4 * 700, "{} bytes", info.bytes_max);
}

/// The line and the JSON of a frame take memory in proportion to its size.
#[test]
fn displaying_a_frame_takes_memory_in_proportion_to_its_size() {
    for round in 0..500_u32 {
        let seed: Vec<u8> =
            (0..400_u32).map(|at| (at.wrapping_mul(round + 3) >> 2) as u8).collect();
        let generator = Generator { mutate: true, harmful: true };
        let conversation = generator.conversation(&mut Unstructured::new(&seed)).unwrap();
        let mut dissector = Dissector::new();
        for (direction, bytes) in &conversation.0 {
            let payload = bytes.get(4..).unwrap_or_default();
            let info = measure(|| {
                let frame = dissector.dissect(*direction, payload);
                let _ = frame.to_string();
                let _ = serde_json::to_string(&frame).unwrap();
            });
            // A byte may become `\u{fffd}` (8 bytes), an object repeats its field names, and buffers double.
            let limit = 64 * payload.len() as u64 + 4096;
            assert!(info.bytes_max <= limit, "{} of {} bytes", info.bytes_max, payload.len());
        }
    }
}

/// Feeds a frame in two pieces, so that the dissector has to buffer it.
fn feed_in_pieces(dissector: &mut Dissector, frame: &[u8]) {
    let (mut front, mut back) = frame.split_at(4);
    assert!(dissector.feed(Direction::ToServer, &mut front).is_none());
    assert!(dissector.feed(Direction::ToServer, &mut back).is_some());
}

fn frame_of(payload: usize) -> Vec<u8> {
    let mut frame = u32::try_from(payload).unwrap().to_be_bytes().to_vec();
    frame.resize(4 + payload, 0);
    frame
}

/// A buffer of up to 64 KiB is reused; a larger one is freed.
#[test]
fn a_dissector_keeps_only_small_buffers() {
    const KEPT: usize = 64 << 10;
    let small = frame_of(100);
    for (size, is_kept) in [(1000, true), (KEPT - 4, true), (KEPT - 3, false), (4 * KEPT, false)] {
        let large = frame_of(size);
        let mut dissector = Dissector::new();
        feed_in_pieces(&mut dissector, &large);
        let info = measure(|| feed_in_pieces(&mut dissector, &small[..]));
        let pending = 1; // The first request allocates the queue of pending requests.
        assert_eq!(info.count_total <= pending, is_kept, "{size}: {}", info.count_total);
        assert_eq!(info.bytes_current < 0, !is_kept, "{size}: {}", info.bytes_current);
    }
}
