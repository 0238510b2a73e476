//! Answers, and where the machine puts them.

use std::{collections::VecDeque, fmt};

use bytes::Bytes;

use crate::Error;

/// The largest buffer, in bytes, in which frames are left together with others. See [`Session::handle_input`](super::Session::handle_input).
pub(crate) const MAX_SHARED_INPUT: usize = 256 * 1024;

/// The most memory kept for a part of a reply that is not copied, in multiples of the part's size.
pub(crate) const MAX_MEMORY_FACTOR: usize = 64;

/// Receives the replies of a machine: a queue that is polled, or anything that gets them to their callers sooner.
pub trait Answers<T> {
    /// Takes a reply, with the token that was given to [`Session::submit`](super::Session::submit). `after_events`:
    /// events that came before the reply are not polled yet, and are to be delivered before it.
    fn put(&mut self, token: T, result: Result<Reply<'_>, Error>, after_events: bool);

    /// The request of this token was queued with this xid, or refused: 0. Credentials have a number below 0 instead.
    /// Called before any reply is put.
    fn note_queued(&mut self, token: &T, xid: i32) {
        let _ = (token, xid);
    }

    /// Whether a caller still waits for the reply. A queue drops tokens without one.
    fn is_wanted(&self, token: &T) -> bool {
        let _ = token;
        true
    }

    /// Whether there is nothing to take out.
    fn is_empty(&self) -> bool;

    /// Frees the memory of a burst, except for this number of entries.
    fn shrink_to(&mut self, entries: usize);
}

/// The answer to a request.
#[derive(Debug)]
pub struct Completion<T> {
    /// The token passed to [`Session::submit`](super::Session::submit).
    pub token: T,
    /// The reply, or what became of the request.
    pub result: Result<Body, Error>,
}

/// To be polled by [`Session::poll_completion`](super::Session::poll_completion).
impl<T> Answers<T> for VecDeque<Completion<T>> {
    fn put(&mut self, token: T, result: Result<Reply<'_>, Error>, _: bool) {
        self.push_back(Completion { token, result: result.map(|reply| reply.to_body()) });
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    fn shrink_to(&mut self, entries: usize) {
        Self::shrink_to(self, entries);
    }
}

/// A reply without an error.
#[derive(Clone)]
pub struct Body {
    /// The zxid of its header.
    pub zxid: i64,
    /// The record, not decoded. It can be a part of memory with other answers in it, which stays as long as it does:
    /// at most 64 times its size.
    pub bytes: Bytes,
}

/// Without the record, which may have data in it.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("zxid", &format_args!("{:#x}", self.zxid))
            .field("len", &self.bytes.len())
            .finish()
    }
}

/// A reply without an error, where it was read.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    zxid: i64,
    bytes: &'a [u8],
    /// What `bytes` is a part of, if it can be shared.
    memory: Option<&'a Bytes>,
    /// Shorter replies are copied out of it.
    copy_below: usize,
}

/// Without the record, which may have data in it.
impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("zxid", &format_args!("{:#x}", self.zxid))
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Reply<'a> {
    pub(crate) const fn new(zxid: i64, bytes: &'a [u8]) -> Self {
        Self { zxid, bytes, memory: None, copy_below: 0 }
    }

    /// The bytes are a part of this memory, which can be shared. Shorter replies are copied out of it.
    pub(crate) const fn within(self, memory: &'a Bytes, copy_below: usize) -> Self {
        Self { memory: Some(memory), copy_below, ..self }
    }

    /// An answer that says no more than that it is one.
    pub(crate) const fn empty(zxid: i64) -> Self {
        Self::new(zxid, &[])
    }

    /// The zxid of its header.
    #[must_use]
    pub const fn zxid(&self) -> i64 {
        self.zxid
    }

    /// The record, not decoded.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The memory the bytes are a part of, and where in it they begin, if it can be shared.
    #[must_use]
    #[inline]
    pub(crate) fn memory(&self) -> Option<(&'a Bytes, usize)> {
        let memory = self.memory?;
        Some((memory, self.bytes.as_ptr().addr().saturating_sub(memory.as_ptr().addr())))
    }

    /// The number of bytes that a part of it should have at least to be kept with that memory: a shorter part is to be
    /// copied. For a part that is not copied at most 64 times its size is kept.
    #[must_use]
    pub(crate) const fn copy_below(&self) -> usize {
        self.copy_below
    }

    /// The reply without what it borrows.
    #[must_use]
    pub fn to_body(&self) -> Body {
        Body { zxid: self.zxid, bytes: self.keep(self.bytes) }
    }

    /// A part of the record, for the caller to own. A short part is copied, so that it does not keep the memory of other
    /// replies.
    pub(crate) fn keep(&self, part: &[u8]) -> Bytes {
        match self.memory {
            Some(memory) if part.len() >= self.copy_below => memory.slice_ref(part),
            _ => Bytes::copy_from_slice(part),
        }
    }
}
