//! Memory: decoding allocates nothing, and a frame's lengths and counts never decide how much is.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use allocation_counter::measure;
use arbitrary::Unstructured;
use docent_protocol::{
    Decode, Encode, OpCode, Text,
    follow::{Direction, Follower},
    generate::Generator,
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

/// Frames with mistakes, lengths and counts that lie among them, as any operation's request and reply.
#[test]
fn no_length_or_count_makes_a_decoder_allocate() {
    let generator = Generator { mistakes: true, harmful: true };
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

/// A count of two thousand million in a body of a hundred bytes, at every place.
#[test]
fn lying_counts_cost_nothing() {
    for place in 0..96 {
        let mut payload = [0; 100];
        payload[place..place + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        let info = measure(|| {
            for op in OpCode::NAMED {
                let _ = Request::decode(*op, &mut Reader::new(&payload));
                let _ = Reply::decode(*op, &mut Reader::new(&payload));
            }
        });
        assert_eq!(info.count_total, 0);
    }
}

/// A follower holds what it was fed of one frame, and grows as bytes come, not as a length promises.
#[test]
fn a_follower_holds_no_more_than_it_was_fed() {
    let info = measure(|| {
        let mut follower = Follower::new();
        for _ in 0..100 {
            // "A frame of 15 MiB follows."
            let mut input = &[0x00, 0xF0, 0x00, 0x00, 1, 2, 3][..];
            assert!(follower.feed(Direction::ToServer, &mut input).is_none());
        }
        assert_eq!(follower.buffered(Direction::ToServer), 700);
    });
    assert!(info.bytes_max <= 4 * 700, "{} bytes", info.bytes_max);
}

/// Text is about as long as the frame is.
#[test]
fn telling_a_frame_takes_memory_in_proportion() {
    for round in 0..500_u32 {
        let seed: Vec<u8> =
            (0..400_u32).map(|at| (at.wrapping_mul(round + 3) >> 2) as u8).collect();
        let generator = Generator { mistakes: true, harmful: true };
        let conversation = generator.conversation(&mut Unstructured::new(&seed)).unwrap();
        let mut follower = Follower::new();
        for (direction, bytes) in &conversation.0 {
            let payload = bytes.get(4..).unwrap_or_default();
            let info = measure(|| {
                let frame = follower.payload(*direction, payload);
                let _ = frame.to_string();
                let _ = serde_json::to_string(&frame).unwrap();
            });
            // A byte may become `\u{fffd}`; an object repeats its field names. Buffers double.
            let limit = 64 * payload.len() as u64 + 4096;
            assert!(info.bytes_max <= limit, "{} of {} bytes", info.bytes_max, payload.len());
        }
    }
}

/// Feeds a frame of that size in two pieces, so that it has to be put together.
fn feed_in_pieces(follower: &mut Follower, frame: &[u8]) {
    let (mut front, mut back) = frame.split_at(4);
    assert!(follower.feed(Direction::ToServer, &mut front).is_none());
    assert!(follower.feed(Direction::ToServer, &mut back).is_some());
}

fn frame_of(payload: usize) -> Vec<u8> {
    let mut frame = u32::try_from(payload).unwrap().to_be_bytes().to_vec();
    frame.resize(4 + payload, 0);
    frame
}

/// A buffer of an ordinary size is used again; one that a large frame has blown up is given back.
#[test]
fn a_follower_keeps_small_buffers_only() {
    const KEPT: usize = 64 << 10;
    let small = frame_of(100);
    for (size, is_kept) in [(1000, true), (KEPT - 4, true), (KEPT - 3, false), (4 * KEPT, false)] {
        let large = frame_of(size);
        let mut follower = Follower::new();
        feed_in_pieces(&mut follower, &large);
        let info = measure(|| feed_in_pieces(&mut follower, &small[..]));
        let requests = 1; // Room for pending requests comes with the first one.
        assert_eq!(info.count_total <= requests, is_kept, "{size}: {}", info.count_total);
        assert_eq!(info.bytes_current < 0, !is_kept, "{size}: {}", info.bytes_current);
    }
}
