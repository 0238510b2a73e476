//! Answers: the future of a call, and what it resolves to.

use std::{
    borrow::Cow,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use docent_protocol::{
    Decode, DecodeError, OpCode, Stat, Text, frame::LENGTH_SIZE, jute::Reader,
    reply::GetChildrenReply,
};
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Outcome, Watcher, chroot::Chroot, state::Body};

/// The answer to a request that was queued by the call which returned this.
///
/// # Cancel safety
///
/// Dropping it gives up the answer, not the request: that is sent, and takes effect.
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
pub struct Response<R> {
    state: State,
    decode: DecodeFn<R>,
    op: OpCode,
    path: Box<str>,
    chroot: Chroot,
}

/// Reads a body in the caller's task.
pub(crate) type DecodeFn<R> = fn(Body, &Chroot) -> Result<R, DecodeError>;

enum State {
    Waiting(oneshot::Receiver<Result<Body, Error>>),
    /// Refused before it was sent.
    Refused(Error),
    Done,
}

impl<R> Response<R> {
    pub(crate) fn waiting(
        receiver: oneshot::Receiver<Result<Body, Error>>,
        decode: DecodeFn<R>,
        op: OpCode,
        path: &str,
        chroot: Chroot,
    ) -> Self {
        Self { state: State::Waiting(receiver), decode, op, path: path.into(), chroot }
    }

    pub(crate) fn refused(error: Error, decode: DecodeFn<R>, op: OpCode, path: &str) -> Self {
        Self {
            state: State::Refused(error),
            decode,
            op,
            path: path.into(),
            chroot: Chroot::default(),
        }
    }

    fn finish(&self, answer: Result<Body, Error>) -> Result<R, Error> {
        answer
            .and_then(|body| {
                (self.decode)(body, &self.chroot).map_err(|error| {
                    // The request was answered without an error, so it did take effect.
                    Error::new(ErrorKind::BadReply, Outcome::Unknown).with_detail(error)
                })
            })
            .map_err(|error| match error.operation() {
                // One of several, which is already named.
                Some(_) => error,
                None => error.with_operation(self.op, &self.path),
            })
    }
}

impl<R> Future for Response<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.state {
            State::Waiting(receiver) => match Pin::new(receiver).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(answer)) => answer,
                // The session and its task are gone; it answers all it can before it goes.
                Poll::Ready(Err(_)) => Err(Error::new(ErrorKind::Closed, Outcome::Unknown)),
            },
            State::Refused(error) => Err(error.clone()),
            State::Done => Err(again()),
        };
        self.state = State::Done;
        Poll::Ready(self.finish(answer))
    }
}

impl<R> fmt::Debug for Response<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("op", &self.op)
            .field("path", &self.path)
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
                Poll::Ready(watcher.map(|watcher| (value, watcher)).ok_or_else(again))
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
            watcher.map(|watcher| (value, watcher)).ok_or_else(again)
        })
    }
}

/// A future was polled after it was ready: an error rather than a panic.
fn again() -> Error {
    Error::new(ErrorKind::Closed, Outcome::Unknown).with_detail("the answer was taken before")
}

/// Data and Stat of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The data; empty when the node has none.
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
}

impl Children {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        Self::split(body).map(|(children, _)| children)
    }

    /// The names, and what follows them.
    pub(crate) fn split(mut body: Bytes) -> Result<(Self, Bytes), DecodeError> {
        let mut reader = Reader::new(&body);
        let len = GetChildrenReply::decode(&mut reader)?.children.len();
        let rest = body.split_off(body.len() - reader.rest().len());
        Ok((Self { body, len }, rest))
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
        // All of it at once: the lengths between short names are ASCII too, and a look at each name by itself
        // costs five times as much.
        let text = std::str::from_utf8(&self.body).ok();
        let mut at = LENGTH_SIZE;
        (0..self.len).map(move |_| {
            let here = at;
            let len = self.body.get(here..).and_then(<[u8]>::first_chunk);
            // Null is -1, and as good as empty.
            let len = len.map_or(0, |len| usize::try_from(i32::from_be_bytes(*len)).unwrap_or(0));
            let start = here + LENGTH_SIZE;
            at = start + len;
            text.and_then(|text| text.get(start..at)).map_or_else(
                || {
                    let mut reader = Reader::new(self.body.get(here..).unwrap_or_default());
                    reader.text("child").map_or(Cow::Borrowed(""), Text::to_str)
                },
                Cow::Borrowed,
            )
        })
    }

    /// The names, each a string of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(Cow::into_owned).collect()
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
