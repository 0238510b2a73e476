//! Splits the bytes of one direction into frames, with at most one incomplete frame in memory.

use alloc::vec::Vec;

use crate::{DecodeError, DecodeErrorKind, frame};

/// Splits the bytes of one direction into frames.
#[derive(Debug)]
pub(super) struct Reassembler {
    /// The start of a frame, with its length.
    buffer: Vec<u8>,
    /// Whether the buffer's frame was returned; the next call then clears it.
    returned: bool,
    /// Number of bytes still to skip of a frame over the limit.
    skip: usize,
    /// Whether a length was negative: the start of the next frame is unknown.
    desynchronized: bool,
}

/// The output of a [`Reassembler`].
pub(super) enum Reassembled<'a> {
    Payload(&'a [u8]),
    FourLetterWord(&'a [u8], [u8; 4]),
    /// The start of a payload over the limit, or of a frame with a negative length.
    Malformed(&'a [u8], DecodeError),
}

/// Bytes decoded of a payload over the limit: the size of the larger of the two headers, the reply's.
const HEADER_SIZE: usize = 16;

/// Capacity, in bytes, above which a buffer is freed after use.
const KEPT_CAPACITY: usize = 64 << 10;

impl Reassembler {
    pub(super) const fn new() -> Self {
        Self { buffer: Vec::new(), returned: false, skip: 0, desynchronized: false }
    }

    pub(super) fn next<'s, 'i: 's>(
        &'s mut self,
        limit: usize,
        may_be_word: bool,
        input: &mut &'i [u8],
    ) -> Option<Reassembled<'s>> {
        self.clear_returned();
        self.skip(input);
        if self.buffer.is_empty() {
            let frame = frame::split(input, limit);
            if let Ok(Some((payload, rest))) = frame {
                *input = rest;
                return Some(Reassembled::Payload(payload));
            }
        }
        if !self.fill(frame::LENGTH_SIZE, input) {
            return None;
        }
        let &start = self.buffer.first_chunk()?;
        if may_be_word && start.iter().all(u8::is_ascii_lowercase) {
            self.returned = true;
            return Some(Reassembled::FourLetterWord(&self.buffer, start));
        }
        let (size, error) = match (frame::length(&start), frame::split(&start, limit)) {
            (Err(error), _) => {
                self.desynchronized = true;
                (0, Some(error))
            }
            (Ok(len), Err(error)) => (len?.min(HEADER_SIZE), Some(error)),
            (Ok(len), Ok(_)) => (len?, None),
        };
        if !self.fill(frame::LENGTH_SIZE + size, input) {
            return None;
        }
        self.returned = true;
        if let Some(DecodeErrorKind::FrameTooLarge { len, .. }) = error.map(|error| error.kind()) {
            self.skip = len - size;
        }
        let payload = self.buffer.get(frame::LENGTH_SIZE..)?;
        Some(match error {
            None => Reassembled::Payload(payload),
            Some(error) => Reassembled::Malformed(payload, error),
        })
    }

    /// Number of buffered bytes of an incomplete frame.
    pub(super) const fn buffered(&self) -> usize {
        if self.returned { 0 } else { self.buffer.len() }
    }

    fn clear_returned(&mut self) {
        if self.returned {
            self.returned = false;
            self.buffer.clear();
            if self.buffer.capacity() > KEPT_CAPACITY {
                self.buffer = Vec::new();
            }
        }
    }

    /// Drops the rest of a frame over the limit, and all input once the direction is desynchronized.
    fn skip(&mut self, input: &mut &[u8]) {
        let count = if self.desynchronized { input.len() } else { self.skip.min(input.len()) };
        self.skip = self.skip.saturating_sub(count);
        *input = input.get(count..).unwrap_or_default();
    }

    /// Moves bytes into the buffer until it has `size` bytes. Returns whether it has.
    fn fill(&mut self, size: usize, input: &mut &[u8]) -> bool {
        let missing = size.saturating_sub(self.buffer.len()).min(input.len());
        let (taken, rest) = input.split_at_checked(missing).unwrap_or((input, &[]));
        self.buffer.extend_from_slice(taken);
        *input = rest;
        self.buffer.len() >= size
    }
}
