//! Answers, and where the machine puts them.

use std::{collections::VecDeque, fmt};

use bytes::Bytes;

use crate::Error;

/// Where a machine puts its answers: a queue that is polled, or anything that gets them to who waits sooner.
pub trait Answers<T> {
    /// Takes an answer, with what was given to [`Session::submit`](super::Session::submit). `after_events`: there are
    /// events that were not polled yet and came first, so that who waits should hear of them first, too.
    fn put(&mut self, token: T, told: Result<Reply<'_>, Error>, after_events: bool);

    /// Whether there is something to be taken out.
    fn is_empty(&self) -> bool;

    /// Gives back what a burst has made large, but for so many entries.
    fn shrink_to(&mut self, entries: usize);
}

/// The answer to a request.
#[derive(Debug)]
pub struct Completion<T> {
    /// What was given to [`Session::submit`](super::Session::submit).
    pub token: T,
    /// The reply, or what became of the request.
    pub result: Result<Body, Error>,
}

/// To be polled by [`Session::poll_completion`](super::Session::poll_completion).
impl<T> Answers<T> for VecDeque<Completion<T>> {
    fn put(&mut self, token: T, told: Result<Reply<'_>, Error>, _: bool) {
        self.push_back(Completion { token, result: told.map(|reply| reply.to_body()) });
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
    /// The record, not decoded. It can be a part of what was read with it, which it keeps in memory: copy
    /// what is kept for long.
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
    /// What is shorter is copied out of it.
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

    /// The bytes are a part of this memory, which can be shared. What is shorter is copied out of it.
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
    pub fn memory(&self) -> Option<(&'a Bytes, usize)> {
        let memory = self.memory?;
        Some((memory, self.bytes.as_ptr().addr().saturating_sub(memory.as_ptr().addr())))
    }

    /// How many bytes a part of it should have at least to be kept with that memory: what is shorter keeps less as a
    /// copy. At most 64 times as much is kept for a part that is not copied.
    #[must_use]
    pub const fn copy_below(&self) -> usize {
        self.copy_below
    }

    /// The reply without what it borrows.
    #[must_use]
    pub fn to_body(&self) -> Body {
        let bytes = match self.memory {
            Some(memory) => memory.slice_ref(self.bytes),
            None => Bytes::copy_from_slice(self.bytes),
        };
        Body { zxid: self.zxid, bytes }
    }
}
