//! Answers: the future of a call, and what it resolves to.

use std::{
    borrow::Cow,
    fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use docent_protocol::{
    Decode, DecodeError, OpCode, Stat, frame::LENGTH_SIZE, jute::Reader, reply::GetChildrenReply,
};

use crate::{
    Error, ErrorKind, Outcome, Watcher,
    answer::{Answer, taken_before},
    chroot::Chroot,
    state::Body,
};

/// The answer to a request that was queued by the call which returned this.
///
/// # Cancel safety
///
/// Dropping it gives up the answer, not the request: that is sent, and takes effect.
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
pub struct Response<R> {
    state: State,
    poll: PollFn<R>,
    request: Request,
}

/// Polls for an answer and reads it: by [`Answer::poll_read`], as one function for each kind of reply, since what is
/// between functions is moved.
pub(crate) type PollFn<R> = fn(&mut Answer, &Context<'_>, &Request) -> Poll<Result<R, Error>>;

/// Declares how replies are read, each as a [`PollFn`].
macro_rules! readers {
    ($($(#[$meta:meta])* $visibility:vis fn $name:ident -> $value:ty = |$reply:pat_param| $read:expr;)+) => {
        $($(#[$meta])* $visibility fn $name(
            answer: &mut $crate::answer::Answer,
            cx: &std::task::Context<'_>,
            request: &$crate::response::Request,
        ) -> std::task::Poll<Result<$value, $crate::Error>> {
            answer.poll_read(cx, request, |$reply: $crate::response::Received<'_>| $read)
        })+
    };
}

pub(crate) use readers;

readers! {
    /// For an answer that says no more than that it is one.
    pub(crate) fn nothing -> () = |_| Ok(());
}

/// A reply on its way to the caller.
pub(crate) struct Received<'a> {
    pub(crate) zxid: i64,
    pub(crate) record: Record<'a>,
    pub(crate) request: &'a Request,
}

/// The record of a reply, not decoded.
pub(crate) enum Record<'a> {
    Short(&'a [u8]),
    /// A part of memory that can be shared; what is shorter than `copy_below` is copied out of it.
    Shared {
        memory: Bytes,
        start: usize,
        len: usize,
        copy_below: usize,
    },
}

/// What was asked, for the answer and its errors.
pub(crate) struct Request {
    op: OpCode,
    chroot: Chroot,
}

impl Request {
    #[cfg(test)]
    pub(crate) fn nothing() -> Self {
        Self { op: OpCode::Unknown(0), chroot: Chroot::default() }
    }

    /// The error of one of several operations is already named.
    #[cold]
    pub(crate) fn named(&self, error: Error, path: &str) -> Error {
        named(error, self.op, path)
    }
}

impl Received<'_> {
    /// The record, not decoded.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.record {
            Record::Short(bytes) => bytes,
            Record::Shared { memory, start, len, .. } => {
                memory.get(*start..*start + *len).unwrap_or_default()
            }
        }
    }

    #[inline(always)]
    pub(crate) fn read<'b, R: Decode<'b>>(&'b self) -> Result<R, DecodeError> {
        R::decode(&mut Reader::new(self.bytes()))
    }

    /// What is in front of the paths of the reply.
    pub(crate) const fn chroot(&self) -> &Chroot {
        &self.request.chroot
    }

    /// A part of the record that goes to the caller.
    pub(crate) fn keep(&self, part: &[u8]) -> Bytes {
        match &self.record {
            Record::Shared { memory, copy_below, .. } => keep(memory, part, *copy_below),
            Record::Short(_) => Bytes::copy_from_slice(part),
        }
    }

    /// The whole record.
    pub(crate) fn body(&self) -> Body {
        Body { zxid: self.zxid, bytes: self.keep(self.bytes()) }
    }

    /// The one part of the record that goes to the caller.
    #[inline(always)]
    pub(crate) fn into_part(self, part: Range<usize>) -> Bytes {
        match self.record {
            Record::Shared { mut memory, start, copy_below, .. } if part.len() >= copy_below => {
                memory.truncate(start + part.end);
                memory.advance((start + part.start).min(memory.len()));
                memory
            }
            _ => self.copy(part),
        }
    }

    #[cold]
    fn copy(&self, part: Range<usize>) -> Bytes {
        Bytes::copy_from_slice(self.bytes().get(part).unwrap_or_default())
    }
}

/// A part of a reply that goes to the caller. Copied if it is small: one that is kept for long must not keep what
/// else was read with it.
pub(crate) fn keep(memory: &Bytes, part: &[u8], copy_below: usize) -> Bytes {
    if part.len() < copy_below { Bytes::copy_from_slice(part) } else { memory.slice_ref(part) }
}

enum State {
    Waiting(Answer),
    /// Refused before it was sent; `None` once that was told.
    Refused(Option<Error>),
}

impl<R> Response<R> {
    pub(crate) const fn waiting(
        answer: Answer,
        poll: PollFn<R>,
        op: OpCode,
        chroot: Chroot,
    ) -> Self {
        Self { state: State::Waiting(answer), poll, request: Request { op, chroot } }
    }

    pub(crate) fn refused(error: Error, poll: PollFn<R>, op: OpCode, path: &str) -> Self {
        let error = named(error, op, path);
        let request = Request { op, chroot: Chroot::default() };
        Self { state: State::Refused(Some(error)), poll, request }
    }
}

/// The request was answered without an error, so it did take effect.
impl From<DecodeError> for Error {
    #[cold]
    fn from(error: DecodeError) -> Self {
        Self::new(ErrorKind::BadReply, Outcome::Unknown).with_detail(error)
    }
}

/// The error of one of several operations is already named.
#[cold]
fn named(error: Error, op: OpCode, path: &str) -> Error {
    if error.operation().is_some() { error } else { error.with_operation(op, path) }
}

impl<R> Future for Response<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            State::Waiting(answer) => (this.poll)(answer, cx, &this.request),
            State::Refused(error) => Poll::Ready(Err(error.take().unwrap_or_else(taken_before))),
        }
    }
}

impl<R> fmt::Debug for Response<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.state {
            State::Waiting(answer) => Some(answer.path()),
            State::Refused(error) => error.as_ref().and_then(Error::path),
        };
        f.debug_struct("Response")
            .field("op", &self.request.op)
            .field("path", &path)
            .finish_non_exhaustive()
    }
}

/// The answer to a read that leaves a watch.
#[must_use = "the request is sent anyway; without awaiting this, its watch is dropped"]
#[derive(Debug)]
pub struct WatchResponse<R> {
    response: Response<R>,
    watcher: Option<Watcher>,
}

impl<R> WatchResponse<R> {
    pub(crate) const fn new(response: Response<R>, watcher: Watcher) -> Self {
        Self { response, watcher: Some(watcher) }
    }
}

impl<R> Future for WatchResponse<R> {
    type Output = Result<(R, Watcher), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.response).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(value)) => {
                let watcher = self.watcher.take().map(Watcher::confirm);
                Poll::Ready(watcher.map(|watcher| (value, watcher)).ok_or_else(taken_before))
            }
        }
    }
}

/// The answer to a [`Client::add_watch`](crate::Client::add_watch): the watch.
#[must_use = "without awaiting this, the watch is removed again"]
#[derive(Debug)]
pub struct AddWatchResponse(pub(crate) WatchResponse<()>);

impl Future for AddWatchResponse {
    type Output = Result<Watcher, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_ok(|((), watcher)| watcher)
    }
}

/// The answer to a question about a node that may not exist.
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
#[derive(Debug)]
pub struct MaybeResponse<R>(pub(crate) Response<R>);

/// The answer to a question about a node that may not exist, and a watch for when that changes.
#[must_use = "the request is sent anyway; without awaiting this, its watch is dropped"]
#[derive(Debug)]
pub struct MaybeWatchResponse<R>(pub(crate) WatchResponse<R>);

impl<R> Future for MaybeResponse<R> {
    type Output = Result<Option<R>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|result| match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error),
        })
    }
}

impl<R> Future for MaybeWatchResponse<R> {
    type Output = Result<(Option<R>, Watcher), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // An exists that finds nothing leaves its watch all the same.
        let this = &mut self.0;
        Pin::new(&mut this.response).poll(cx).map(|result| {
            let value = match result {
                Ok(value) => Some(value),
                Err(error) if error.kind() == ErrorKind::NoNode => None,
                Err(error) => return Err(error),
            };
            let watcher = this.watcher.take().map(Watcher::confirm);
            watcher.map(|watcher| (value, watcher)).ok_or_else(taken_before)
        })
    }
}

/// Data and Stat of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The data; empty when the node has none. From 64 bytes on it may be a part of what was read with it, which then
    /// stays in memory as long as it does: at most 64 times its size. `Bytes::copy_from_slice` makes one that keeps
    /// nothing else.
    pub data: Bytes,
    /// The facts about the node.
    pub stat: Stat,
}

/// The names of a node's children, in no order.
///
/// They stay in the reply they came in: a listing of ten thousand costs one buffer.
#[derive(Clone, Default)]
pub struct Children {
    /// A [`GetChildrenReply`] that was decoded once without an error, and nothing behind it.
    body: Bytes,
    len: usize,
    /// How many bytes each name has with its length, when all have as many.
    name_size: Option<usize>,
}

impl Children {
    /// The names at the front of what is left in `reader`, and `keep` keeps.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        keep: impl FnOnce(&[u8]) -> Bytes,
    ) -> Result<Self, DecodeError> {
        let start = reader.rest();
        let names = GetChildrenReply::decode(reader)?.children;
        let list = start.get(..start.len() - reader.rest().len()).unwrap_or_default();
        Ok(Self { body: keep(list), len: names.len(), name_size: names.element_size() })
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The names. Borrowed unless a server wrote something else than UTF-8; see
    /// [`Text::to_str`](docent_protocol::Text::to_str).
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Cow<'_, str>> {
        let names = self.body.get(LENGTH_SIZE..).unwrap_or_default();
        // All of it at once: the lengths between short names are text too, and a look at each name by itself costs
        // five times as much.
        let (text, rest) = match std::str::from_utf8(names) {
            Ok(text) => (text, &[][..]),
            Err(_) => ("", names),
        };
        Names { text, rest, len: self.len, name_size: self.name_size }
    }

    /// The names, each a string of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(Cow::into_owned).collect()
    }
}

/// The names that are left, each behind its length: as text or, if something in it is none, as bytes. One of the two
/// is empty.
struct Names<'a> {
    text: &'a str,
    rest: &'a [u8],
    len: usize,
    name_size: Option<usize>,
}

impl<'a> Iterator for Names<'a> {
    type Item = Cow<'a, str>;

    #[inline]
    fn next(&mut self) -> Option<Cow<'a, str>> {
        self.len = self.len.checked_sub(1)?;
        let split = match self.name_size {
            Some(size) => first_of_size(self.text, size),
            None => self.text.split_at_checked(LENGTH_SIZE).and_then(|(len, tail)| {
                let len = len.as_bytes().first_chunk()?;
                tail.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)
            }),
        };
        Some(match split {
            Some((name, tail)) => {
                self.text = tail;
                Cow::Borrowed(name)
            }
            None => {
                let (name, rest) = name_of_bytes(self.text, self.rest);
                (self.text, self.rest) = ("", rest);
                match name {
                    Ok(name) => Cow::Borrowed(name),
                    Err(mended) => Cow::Owned(mended.into_string()),
                }
            }
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }

    /// Without counting, and knowing that there is more behind, a name costs two thirds of a `next`. The last one,
    /// and all that are not of one size, are left to that.
    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        if let Some(size) = self.name_size {
            let before = self.text.len();
            while size < self.text.len()
                && let Some((name, tail)) = first_of_size(self.text, size)
            {
                self.text = tail;
                folded = f(folded, Cow::Borrowed(name));
            }
            let taken = (before - self.text.len()).checked_div(size).unwrap_or(0);
            self.len = self.len.saturating_sub(taken);
        }
        for name in self {
            folded = f(folded, name);
        }
        folded
    }
}

impl ExactSizeIterator for Names<'_> {}

/// The name at the front, which has so many bytes with its length, and what follows it. Where that begins does not
/// wait for a length to be read.
#[inline]
fn first_of_size(text: &str, size: usize) -> Option<(&str, &str)> {
    let (name, tail) = text.split_at_checked(size)?;
    Some((name.get(LENGTH_SIZE..)?, tail))
}

/// The name at the front, mended if it is no text, and what follows it.
///
/// Not a `Cow`, which is returned by way of memory: then every name goes that way, also those that do not come from
/// here, in two words that are read again as one before they are there, and takes four times as long. And not a
/// method: then the iterator is in memory as well.
#[cold]
#[inline(never)]
fn name_of_bytes<'a>(text: &'a str, rest: &'a [u8]) -> (Result<&'a str, Box<str>>, &'a [u8]) {
    // The end of a length and the beginning of its name may make one character, which no text is cut in.
    let mut reader = Reader::new(if text.is_empty() { rest } else { text.as_bytes() });
    // It was decoded once without an error.
    let name = match reader.text("child").unwrap_or_default().to_str() {
        Cow::Borrowed(name) => Ok(name),
        Cow::Owned(mended) => Err(mended.into_boxed_str()),
    };
    (name, reader.rest())
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use docent_protocol::Text;
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    fn children(names: &[Option<&[u8]>]) -> Children {
        let mut body = u32::try_from(names.len()).unwrap().to_be_bytes().to_vec();
        for name in names {
            let len = name.map_or(-1, |name| i32::try_from(name.len()).unwrap());
            body.extend(len.to_be_bytes());
            body.extend(name.unwrap_or_default());
        }
        // What follows is not the list's.
        body.extend(b"stat");
        let body = Bytes::from(body);
        let mut reader = Reader::new(&body);
        let children = Children::read(&mut reader, |list| body.slice_ref(list)).unwrap();
        assert_eq!(reader.rest(), b"stat");
        children
    }

    #[test]
    fn names_come_out_as_they_went_in_whatever_they_are() {
        let long = "x".repeat(300);
        for names in [
            &[][..],
            &[Some("")],
            &[Some("a"), Some(""), Some("straße"), Some("日本"), Some("lock-0000000001")],
            // A length over 127 is no text, one of a line feed is.
            &[Some("a"), Some(&long), Some("b")],
            &[Some("ten bytes."), Some("b")],
            &[Some("a"), None, Some("b")],
        ] {
            let bytes: Vec<_> = names.iter().map(|name| name.map(str::as_bytes)).collect();
            let children = children(&bytes);
            let expected: Vec<_> = names.iter().map(|name| name.unwrap_or_default()).collect();
            assert_eq!(children.to_vec(), expected);
            assert_eq!((children.len(), children.iter().len()), (names.len(), names.len()));
            assert_eq!(children.is_empty(), names.is_empty());
        }
    }

    #[test]
    fn a_name_that_is_no_text_is_replaced_and_the_others_are_not() {
        let names =
            children(&[Some(b"a"), Some(b"\xED\xA0\x80"), Some(b"\xFF"), Some("ß".as_bytes())]);
        let names = names.to_vec();
        assert_eq!((&*names[0], &*names[3]), ("a", "ß"));
        assert!(names[1].contains('\u{FFFD}') && names[2].contains('\u{FFFD}'), "{names:?}");
    }

    /// The last byte of a length and the first of its name may make a character: then all of it is text, and the name
    /// is none.
    #[test]
    fn a_character_that_begins_in_a_length_is_none() {
        let odd = [b"\xA9".to_vec(), vec![b'x'; 0xC2]].concat();
        let mended = format!("\u{FFFD}{}", "x".repeat(0xC2));
        let names = children(&[Some(b"a"), Some(&odd), Some(b"b")]);
        assert_eq!(names.to_vec(), ["a", &mended, "b"]);
        let names = children(&[Some(&odd), Some(&odd)]);
        assert_eq!(names.to_vec(), [&*mended, &mended]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// All of one length or not, text or not: names come out as when each is read by itself.
        #[test]
        fn names_are_what_each_is_by_itself(
            lengths in prop_oneof![vec(0..20_usize, 0..40), (0..200_usize, 0..40_usize).prop_map(|(len, count)| vec![len; count])],
            bytes in prop_oneof![Just("lock-0000000001"), Just("straße/日本語")],
            odd in option::weighted(0.3, (0..40_usize, option::of(vec(any::<u8>(), 0..20)))),
        ) {
            let mut names: Vec<_> = lengths
                .iter()
                .map(|len| Some(bytes.bytes().cycle().take(*len).collect::<Vec<u8>>()))
                .collect();
            if let Some((at, odd)) = odd
                && let Some(name) = names.get_mut(at)
            {
                *name = odd;
            }
            let names: Vec<_> = names.iter().map(Option::as_deref).collect();
            let children = children(&names);
            let expected: Vec<_> = names.iter().map(|name| Text::from_bytes(*name).to_str()).collect();
            prop_assert_eq!(children.iter().collect::<Vec<_>>(), &*expected);
            let folded = |from: usize| {
                children.iter().skip(from).fold(Vec::new(), |names, name| [names, Vec::from([name])].concat())
            };
            prop_assert_eq!(folded(0), &*expected);
            prop_assert_eq!(folded(1), expected.iter().skip(1).cloned().collect::<Vec<_>>());
            let mut left = children.iter();
            for (index, name) in expected.iter().enumerate() {
                prop_assert_eq!(left.len(), expected.len() - index);
                prop_assert_eq!(left.next(), Some(name.clone()));
            }
            prop_assert_eq!((left.next(), left.len()), (None, 0));
        }
    }
}
