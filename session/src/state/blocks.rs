//! Memory that short replies share.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// How large a block is, in bytes.
pub(super) const BLOCK: usize = 4096;

/// How many are kept for later.
const KEPT: usize = 64;

/// Blocks of memory that short replies are moved into, so that the data in them need not be allocated one by one. A
/// block is used again when nobody has a part of it any more.
#[derive(Default)]
pub(super) struct Blocks {
    used: VecDeque<Bytes>,
}

impl Blocks {
    /// A block that begins with these bytes, which are not more than there is room for in one.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Bytes {
        let mut block = self.reuse().unwrap_or_else(|| BytesMut::with_capacity(BLOCK));
        block.extend_from_slice(bytes);
        let block = block.freeze();
        // The clone is given away: it costs less to clone than what it was made of.
        let shared = block.clone();
        if self.used.len() < KEPT {
            self.used.push_back(block);
        }
        shared
    }

    /// The oldest, unless somebody has a part of it: then it waits, or is left to them if too many wait.
    fn reuse(&mut self) -> Option<BytesMut> {
        if !self.used.front()?.is_unique() {
            if self.used.len() >= KEPT {
                self.used.pop_front();
            }
            return None;
        }
        let mut block = self.used.pop_front()?.try_into_mut().ok()?;
        block.clear();
        Some(block)
    }

    /// Lets go of all.
    pub(super) fn clear(&mut self) {
        self.used = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_used_again_once_nobody_has_a_part_of_it() {
        let mut blocks = Blocks::default();
        let first = blocks.fill(b"first");
        let place = first.as_ptr();
        let part = first.slice(1..3);
        drop(first);
        let second = blocks.fill(b"second");
        assert_ne!(second.as_ptr(), place);
        assert_eq!((&*part, &*second), (&b"ir"[..], &b"second"[..]));

        drop(part);
        let third = blocks.fill(&[3; BLOCK]);
        assert_eq!((third.as_ptr(), third.len()), (place, BLOCK));
    }

    #[test]
    fn not_more_than_so_many_are_kept() {
        let mut blocks = Blocks::default();
        let all: Vec<_> = (0..KEPT + 10).map(|_| blocks.fill(b"bytes")).collect();
        assert_eq!(blocks.used.len(), KEPT);
        assert!(all.iter().take(10).all(Bytes::is_unique), "left to who has them");
        drop(all);
        blocks.clear();
        assert_eq!(blocks.used.capacity(), 0);
    }
}
