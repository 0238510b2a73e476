//! A pool of buffers that short replies share.
//!
//! The memory that a reply shares is at most 64 times as large as the reply; the allocation counts, not the slice. A
//! frame for which the read buffer was enlarged takes that memory along and shares it with no other frame.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// The capacity of a buffer, in bytes.
pub(super) const BUFFER_SIZE: usize = 4096;

/// The largest number of buffers kept for reuse.
const KEPT: usize = 64;

/// Buffers that short replies are moved into, so that their data need not be allocated one by one. A buffer is reused
/// once no reply has a part of it.
#[derive(Default)]
pub(super) struct BufferPool {
    used: VecDeque<Bytes>,
}

impl BufferPool {
    /// A buffer that begins with `bytes`, at most [`BUFFER_SIZE`] of them.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Bytes {
        let mut buffer = self.reuse().unwrap_or_else(|| BytesMut::with_capacity(BUFFER_SIZE));
        buffer.extend_from_slice(bytes);
        let buffer = buffer.freeze();
        // The clone is returned: cloning a clone costs less than cloning the original.
        let shared = buffer.clone();
        self.used.push_back(buffer);
        shared
    }

    /// Takes the oldest buffer, if no reply has a part of it. Otherwise it stays in the pool, or is dropped if the pool is
    /// full. Either way the pool has room for one more.
    fn reuse(&mut self) -> Option<BytesMut> {
        if !self.used.front()?.is_unique() {
            if self.used.len() >= KEPT {
                self.used.pop_front();
            }
            return None;
        }
        let mut buffer = self.used.pop_front()?.try_into_mut().ok()?;
        buffer.clear();
        Some(buffer)
    }

    /// Drops all buffers.
    pub(super) fn clear(&mut self) {
        self.used = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_once_no_reply_has_a_part_of_it() {
        let mut pool = BufferPool::default();
        let first = pool.fill(b"first");
        let place = first.as_ptr();
        let part = first.slice(1..3);
        drop(first);
        let second = pool.fill(b"second");
        assert_ne!(second.as_ptr(), place);
        assert_eq!((&*part, &*second), (&b"ir"[..], &b"second"[..]));

        drop(part);
        let third = pool.fill(&[3; BUFFER_SIZE]);
        assert_eq!((third.as_ptr(), third.len()), (place, BUFFER_SIZE));
    }

    #[test]
    fn the_number_of_kept_buffers_is_bounded() {
        let mut pool = BufferPool::default();
        let all: Vec<_> = (0..KEPT + 10).map(|_| pool.fill(b"bytes")).collect();
        assert_eq!(pool.used.len(), KEPT);
        assert!(all.iter().take(10).all(Bytes::is_unique), "they left the pool");
        drop(all);
        pool.clear();
        assert_eq!(pool.used.capacity(), 0);
    }
}
