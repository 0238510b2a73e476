//! The futures of calls, and the values they resolve to.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use docent_protocol::{
    Acl, Decode as _, DecodeError, Encode as _, OpCode, Stat, jute::Reader, reply::GetAclReply,
};

use super::chroot::Chroot;
use crate::{
    Error, ErrorKind, Outcome,
    driver::{PendingReply, Runtime, already_taken},
};

/// The reply to a request, as a future. The request is already queued when the call returns this.
///
/// [`timeout`](Self::timeout) limits its time, [`allow`](Self::allow) accepts a kind of error.
///
/// # Cancel safety
///
/// Dropping it discards the reply. The request is still sent and takes effect.
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
pub struct Response<R> {
    state: State<R>,
    poll: PollFn<R>,
    context: CallContext,
}

/// Polls for a reply and decodes it with [`PendingReply::poll_read`]. There is one function for each kind of reply: a
/// value that is returned through another function is moved once more.
pub(crate) type PollFn<R> =
    fn(&mut PendingReply, &Context<'_>, &CallContext) -> Poll<Result<R, Error>>;

/// The context of a call, kept until its reply: the operation, for errors, and the chroot, for paths.
pub(crate) struct CallContext {
    op: OpCode,
    chroot: Chroot,
}

impl CallContext {
    /// The prefix of the paths in the reply.
    pub(crate) const fn chroot(&self) -> &Chroot {
        &self.chroot
    }

    /// Names the operation in an error, unless the error of one of several operations already names it.
    #[cold]
    pub(crate) fn named(&self, error: Error, path: &str) -> Error {
        self.chroot.named(named(error, self.op, path))
    }
}

enum State<R> {
    Waiting(PendingReply),
    Other(Box<Other<R>>),
}

/// What is not the reply to one request; `None` once the result was returned.
enum Other<R> {
    /// Refused before it was sent.
    Refused(Option<Error>),
    /// Several requests, one after the other.
    Steps(Option<Steps<R>>),
}

/// The first request of several is queued, the others are sent as this is polled.
pub(super) struct Steps<R> {
    /// For the time limit.
    pub(super) runtime: Arc<dyn Runtime>,
    /// The operation and the path of the call, for the error of its time limit.
    pub(super) op: OpCode,
    pub(super) path: String,
    pub(super) future: Pin<Box<dyn Future<Output = Result<R, Error>> + Send + Sync>>,
}

impl<R> Response<R> {
    #[inline]
    pub(crate) fn waiting(
        mut answer: PendingReply,
        poll: PollFn<R>,
        op: OpCode,
        chroot: Chroot,
    ) -> Self {
        if tracing::level_enabled!(tracing::Level::TRACE) {
            answer.trace(op);
        }
        Self { state: State::Waiting(answer), poll, context: CallContext { op, chroot } }
    }

    pub(crate) fn refused(error: Error, poll: PollFn<R>, op: OpCode, path: &str) -> Self {
        let error = named(error, op, path);
        let context = CallContext { op, chroot: Chroot::default() };
        Self { state: State::Other(Box::new(Other::Refused(Some(error)))), poll, context }
    }

    /// This response, continued by `steps` with further requests.
    pub(super) fn followed_by<F>(
        self,
        runtime: &Arc<dyn Runtime>,
        steps: impl FnOnce(Self) -> F,
    ) -> Self
    where
        F: Future<Output = Result<R, Error>> + Send + Sync + 'static,
    {
        let (poll, op) = (self.poll, self.context.op);
        let context = CallContext { op, chroot: Chroot::default() };
        let path = self.path().unwrap_or_default().to_owned();
        let steps = Steps { runtime: Arc::clone(runtime), op, path, future: Box::pin(steps(self)) };
        Self { state: State::Other(Box::new(Other::Steps(Some(steps)))), poll, context }
    }

    /// The request without a reply yet.
    pub(super) const fn pending(&self) -> Option<&PendingReply> {
        match &self.state {
            State::Waiting(answer) => Some(answer),
            State::Other(_) => None,
        }
    }

    /// The path of the call, as far as known.
    fn path(&self) -> Option<&str> {
        match &self.state {
            State::Waiting(answer) => Some(answer.path()),
            State::Other(other) => match &**other {
                Other::Refused(error) => error.as_ref().and_then(Error::path),
                Other::Steps(steps) => steps.as_ref().map(|steps| &*steps.path),
            },
        }
    }

    /// The requests that are not finished yet.
    pub(super) fn steps_mut(&mut self) -> Option<&mut Steps<R>> {
        match &mut self.state {
            State::Waiting(_) => None,
            State::Other(other) => match &mut **other {
                Other::Refused(_) => None,
                Other::Steps(steps) => steps.as_mut(),
            },
        }
    }
}

impl<R> Other<R> {
    #[cold]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, Error>> {
        match self {
            Self::Refused(error) => Poll::Ready(Err(error.take().unwrap_or_else(already_taken))),
            Self::Steps(steps) => {
                let result = match steps {
                    Some(Steps { future, .. }) => future.as_mut().poll(cx),
                    None => return Poll::Ready(Err(already_taken())),
                };
                if result.is_ready() {
                    *steps = None;
                }
                result
            }
        }
    }
}

/// The request was answered without an error, so it was applied, although its reply cannot be decoded.
impl From<DecodeError> for Error {
    #[cold]
    fn from(error: DecodeError) -> Self {
        Self::new(ErrorKind::BadReply, Outcome::Unknown).with_source(error)
    }
}

/// Names the operation in an error, unless the error of one of several operations already names it.
#[cold]
fn named(error: Error, op: OpCode, path: &str) -> Error {
    if error.operation().is_some() { error } else { error.with_operation(op, path) }
}

impl<R> Future for Response<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            State::Waiting(answer) => (this.poll)(answer, cx, &this.context),
            State::Other(other) => other.poll(cx),
        }
    }
}

impl<R> fmt::Debug for Response<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("op", &self.context.op)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

/// The result of a call that sends several requests, one after the other, as this future is polled. Each such method of
/// [`Client`](crate::Client) lists them.
///
/// # Cancel safety
///
/// If it is dropped, some of the requests may have been sent, and take effect.
#[must_use = "nothing is sent until this is awaited"]
pub struct Call<'a, R> {
    /// For the time limit.
    pub(super) runtime: &'a Arc<dyn Runtime>,
    /// The operation and the path of the call, for the error of its time limit.
    pub(super) op: OpCode,
    pub(super) path: &'a str,
    pub(super) future: Pin<Box<dyn Future<Output = Result<R, Error>> + Send + 'a>>,
}

impl<'a, R> Call<'a, R> {
    pub(crate) fn new(
        runtime: &'a Arc<dyn Runtime>,
        op: OpCode,
        path: &'a str,
        steps: impl Future<Output = Result<R, Error>> + Send + 'a,
    ) -> Self {
        Self { runtime, op, path, future: Box::pin(steps) }
    }
}

impl<R> Future for Call<'_, R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<R> fmt::Debug for Call<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, path, .. } = self;
        f.debug_struct("Call").field("op", op).field("path", path).finish_non_exhaustive()
    }
}

/// The data and the Stat of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The data; empty when the node has none. From 64 bytes on, the data may share memory with other replies. This
    /// memory is at most 64 times as large as the data, and is kept as long as they are. `Bytes::copy_from_slice` makes
    /// a copy that keeps nothing else.
    pub data: Bytes,
    /// The Stat of the node.
    pub stat: Stat,
}

/// One id of an authenticated connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The authentication scheme: `ip`, `digest`, `sasl`, `x509`, `super`.
    pub auth_scheme: String,
    /// The id in that scheme; for a digest, the user alone.
    pub user: String,
}

/// The ACL of a node, as the server sent it.
#[derive(Clone, Default)]
pub struct AclEntries {
    /// A [`GetAclReply`] that was decoded once without an error, or encoded here.
    pub(super) body: Bytes,
}

impl AclEntries {
    pub(super) fn copy_of(acl: &[Acl<'_>]) -> Self {
        let mut body = BytesMut::new();
        GetAclReply { acl: acl.into(), stat: Stat::default() }.encode(&mut body);
        Self { body: body.freeze() }
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Acl<'_>> {
        GetAclReply::decode(&mut Reader::new(&self.body))
            .into_iter()
            .flat_map(|reply| reply.acl.iter())
    }

    /// The entries, as [`Client::set_acl`](crate::Client::set_acl) takes them.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Acl<'_>> {
        self.iter().collect()
    }
}

impl fmt::Debug for AclEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
