//! Answers, and where the machine puts them.

use std::{collections::VecDeque, fmt};

use bytes::Bytes;
use docent_protocol::{Decode, DecodeError, jute::Reader};

use crate::Error;

/// What is shorter is copied out of a reply: at most 64 times as much stays in memory for what is not.
const COPY_BELOW: usize = 4096;

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
    /// The record, not decoded. A long one is a part of the buffer it was read into, which it keeps in memory: copy
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

impl Body {
    pub(crate) fn as_reply(&self) -> Reply<'_> {
        Reply::of_frame(self.zxid, &self.bytes, &self.bytes)
    }
}

/// A reply without an error, where it was read.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    zxid: i64,
    bytes: &'a [u8],
    /// What `bytes` is a part of, if it can be shared.
    frame: Option<&'a Bytes>,
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
        Self { zxid, bytes, frame: None }
    }

    /// `bytes` is a part of `frame`.
    pub(crate) const fn of_frame(zxid: i64, bytes: &'a [u8], frame: &'a Bytes) -> Self {
        Self { zxid, bytes, frame: Some(frame) }
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

    /// The bytes as a part of the buffer they were read into, if that can be had: long replies only.
    pub(crate) fn shared(&self) -> Option<Bytes> {
        self.frame.map(|frame| frame.slice_ref(self.bytes))
    }

    /// The reply without what it borrows.
    #[must_use]
    pub fn to_body(&self) -> Body {
        let bytes = self.shared().unwrap_or_else(|| Bytes::copy_from_slice(self.bytes));
        Body { zxid: self.zxid, bytes }
    }

    /// A part of it that goes to the caller. Copied if it is small: one that is kept for long must not keep what
    /// else was read with it.
    #[inline]
    pub(crate) fn keep(&self, part: &[u8]) -> Bytes {
        match self.frame {
            Some(frame) if part.len() >= COPY_BELOW => frame.slice_ref(part),
            _ => Bytes::copy_from_slice(part),
        }
    }

    #[inline]
    pub(crate) fn read<R: Decode<'a>>(&self) -> Result<R, DecodeError> {
        R::decode(&mut Reader::new(self.bytes))
    }
}
