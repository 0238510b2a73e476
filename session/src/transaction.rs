//! Several operations in one request: writes that all happen or none, reads of one moment.

use std::{
    borrow::Cow,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::BytesMut;
use docent_protocol::{
    Acl, CreateMode, Decode as _, DecodeError, Encode, ErrorCode, OpCode, Stat, acl,
    call::{Call, Multi, MultiRead, Read, Write},
    jute::Reader,
    multi::{MultiReply, MultiResult},
    reply::GetChildrenReply,
};

use crate::{
    Children, Client, Error, ErrorKind, Node, Outcome, Response,
    chroot::Chroot,
    client::{ANY_VERSION, check, check_new, whole},
    response::keep,
    state::Body,
};

/// Writes that are made all or none, in order: multi.
///
/// ```no_run
/// # use docent_session::{Client, Error};
/// # use docent_protocol::CreateMode;
/// # async fn pay(client: &Client, version: i32) -> Result<(), Error> {
/// let results = client
///     .transaction()
///     .check("/locks/bank/lock-0000000007", None)
///     .set_data("/account", b"90", Some(version))
///     .create("/journal/entry-", b"-10", CreateMode::PersistentSequential)
///     .commit()
///     .await?;
/// # let _ = results;
/// # Ok(())
/// # }
/// ```
///
/// Source: `org.apache.zookeeper.Transaction`, `Op`.
#[derive(Clone)]
#[must_use = "nothing is sent before it is committed"]
pub struct Transaction<'a> {
    client: &'a Client,
    writes: Vec<Step<'a>>,
    refused: Option<Error>,
}

/// One write, kept until all are there.
#[derive(Clone)]
struct Step<'a> {
    /// As the caller gave it.
    path: &'a str,
    server_path: Cow<'a, str>,
    write: StepKind<'a>,
}

#[derive(Clone, Copy)]
enum StepKind<'a> {
    Create { data: &'a [u8], acl: &'a [Acl<'a>], mode: CreateMode },
    Delete { version: i32 },
    SetData { data: &'a [u8], version: i32 },
    Check { version: i32 },
}

/// What one write of a [`Transaction`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionResult {
    /// A node was created.
    Created {
        /// Its path, with its digits if it is sequential.
        path: String,
        /// The facts about it. Servers tell them for containers and TTL nodes only.
        stat: Option<Stat>,
    },
    /// A node was deleted.
    Deleted,
    /// Data were written; the node's new Stat.
    DataSet(Stat),
    /// The version was right.
    Checked,
}

impl<'a> Transaction<'a> {
    pub(crate) const fn new(client: &'a Client) -> Self {
        Self { client, writes: Vec::new(), refused: None }
    }

    /// Creates a node that everybody may use.
    pub fn create(self, path: &'a str, data: &'a [u8], mode: CreateMode) -> Self {
        self.create_with_acl(path, data, mode, acl::OPEN_ACL_UNSAFE)
    }

    /// Creates a node, with an ACL.
    pub fn create_with_acl(
        self,
        path: &'a str,
        data: &'a [u8],
        mode: CreateMode,
        acl: &'a [Acl<'a>],
    ) -> Self {
        let server_path = self.client.new_path(path, mode);
        let write = StepKind::Create { data, acl, mode };
        self.push(check_new(path, mode), Step { path, server_path, write })
    }

    /// Deletes a node, if it has this version; `None` is any.
    pub fn delete(self, path: &'a str, version: Option<i32>) -> Self {
        self.push_plain(path, StepKind::Delete { version: version.unwrap_or(ANY_VERSION) })
    }

    /// Writes data, if the node has this version; `None` is any.
    pub fn set_data(self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Self {
        self.push_plain(path, StepKind::SetData { data, version: version.unwrap_or(ANY_VERSION) })
    }

    /// Fails all of it unless the node exists and has this version; `None` is any.
    pub fn check(self, path: &'a str, version: Option<i32>) -> Self {
        self.push_plain(path, StepKind::Check { version: version.unwrap_or(ANY_VERSION) })
    }

    /// How many operations there are so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are none; an empty transaction may be committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Sends them, in one request. One result for each operation.
    ///
    /// # Errors
    ///
    /// The error of the first operation that failed, with its number ([`Error::index`], from 0), operation
    /// and path; nothing was applied then. Without a number, the whole was refused: `MarshallingError` (an
    /// operation the server does not know), `NotReadOnly`, `RequestTooLarge`; or `ConnectionLoss` with
    /// [`Outcome::Unknown`]: all of it or nothing may have been applied.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the answer, not the request.
    ///
    /// Source: op 14.
    pub fn commit(self) -> TransactionResponse {
        let steps = self.writes.iter().map(|step| (step.op_code(), step.path.into())).collect();
        let response = match self.refused {
            Some(error) => Response::refused(error, whole, OpCode::Multi, ""),
            None => {
                let writes: Vec<Write<'_>> = self.writes.iter().map(Step::write).collect();
                let answer = self.client.call("", &Multi(&writes));
                Response::waiting(answer, whole, OpCode::Multi, Chroot::default())
            }
        };
        TransactionResponse { response, steps, chroot: self.client.chroot.clone() }
    }

    fn push_plain(self, path: &'a str, write: StepKind<'a>) -> Self {
        let server_path = self.client.chroot.prefix(path);
        self.push(check(path), Step { path, server_path, write })
    }

    /// The first refusal counts.
    fn push(mut self, checked: Result<(), Error>, step: Step<'a>) -> Self {
        if let Err(error) = checked
            && self.refused.is_none()
        {
            let error = error.with_index(self.writes.len());
            self.refused = Some(error.with_operation(step.op_code(), step.path));
        }
        self.writes.push(step);
        self
    }
}

impl Step<'_> {
    fn write(&self) -> Write<'_> {
        let path = &self.server_path;
        match self.write {
            StepKind::Create { data, acl, mode } => Write::create(path, Some(data), acl, mode),
            StepKind::Delete { version } => Write::delete(path, version),
            StepKind::SetData { data, version } => Write::set_data(path, Some(data), version),
            StepKind::Check { version } => Write::check(path, version),
        }
    }

    fn op_code(&self) -> OpCode {
        match self.write {
            StepKind::Create { acl, mode, .. } => {
                docent_protocol::call::Create::new("", None, acl, mode).op_code()
            }
            StepKind::Delete { .. } => OpCode::Delete,
            StepKind::SetData { .. } => OpCode::SetData,
            StepKind::Check { .. } => OpCode::Check,
        }
    }
}

/// Paths and numbers, no data.
impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.writes.iter().map(|step| (step.op_code(), step.path));
        f.debug_list().entries(steps).finish()
    }
}

/// The answer to a [`Transaction`].
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
#[derive(Debug)]
pub struct TransactionResponse {
    response: Response<Body>,
    steps: Vec<(OpCode, Box<str>)>,
    chroot: Chroot,
}

impl Future for TransactionResponse {
    type Output = Result<Vec<TransactionResult>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Pin::new(&mut this.response).poll(cx).map(|body| this.finish(&body?))
    }
}

impl TransactionResponse {
    fn finish(&self, body: &Body) -> Result<Vec<TransactionResult>, Error> {
        let reply: MultiReply<'_> = MultiReply::decode(&mut Reader::new(&body.bytes))
            .map_err(|error| bad_reply(OpCode::Multi, error))?;
        // Rolled-back operations have the code Ok: the first other one is the cause.
        for (index, result) in reply.iter().enumerate() {
            if let MultiResult::Error(code) = result
                && let Some(kind) = ErrorKind::from_code(code)
            {
                return Err(self.failed(index, kind));
            }
        }
        let results: Vec<_> = reply.iter().filter_map(|result| self.result(result)).collect();
        if results.len() != self.steps.len() {
            let text = format!("{} results to {} operations", results.len(), self.steps.len());
            return Err(bad_reply(OpCode::Multi, text));
        }
        Ok(results)
    }

    fn failed(&self, index: usize, kind: ErrorKind) -> Error {
        let error = Error::new(kind, Outcome::NotApplied).with_index(index);
        match self.steps.get(index) {
            Some((op, path)) => error.with_operation(*op, path),
            None => error.with_operation(OpCode::Multi, ""),
        }
    }

    /// What the server says it is, whatever was asked (ZOOKEEPER-4026).
    fn result(&self, result: MultiResult<'_>) -> Option<TransactionResult> {
        let created = |path: docent_protocol::Text<'_>, stat| TransactionResult::Created {
            path: self.chroot.strip(&path.to_str()).to_owned(),
            stat,
        };
        Some(match result {
            MultiResult::Create(reply) => created(reply.path, None),
            MultiResult::Create2(reply) => created(reply.path, Some(reply.stat)),
            MultiResult::Delete => TransactionResult::Deleted,
            MultiResult::SetData(reply) => TransactionResult::DataSet(reply.stat),
            MultiResult::Check => TransactionResult::Checked,
            _ => return None,
        })
    }
}

/// What one read of a [`Client::multi_read`] found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ReadResult {
    /// Data and Stat.
    GetData(Node),
    /// The children.
    GetChildren(Children),
}

impl Client {
    /// Begins a [`Transaction`].
    pub const fn transaction(&self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Reads several nodes at one moment, in one request. Each read fails for itself. Servers since 3.6.0.
    ///
    /// # Errors
    ///
    /// Of all of it: an invalid path, `Unimplemented` from older servers, which then close the connection. Of
    /// one read: `NoNode`, `NoAuth`, with its number ([`Error::index`]), operation and path.
    ///
    /// Source: op 22.
    pub fn multi_read(&self, reads: &[Read<'_>]) -> MultiReadResponse {
        let steps = reads
            .iter()
            .map(|read| match read {
                Read::GetData(path) => (OpCode::GetData, Box::from(*path)),
                Read::GetChildren(path) => (OpCode::GetChildren, Box::from(*path)),
            })
            .collect();
        let response = match self.server_reads(reads) {
            Err(error) => Response::refused(error, whole, OpCode::MultiRead, ""),
            Ok(paths) => {
                let reads: Vec<Read<'_>> = reads
                    .iter()
                    .zip(&paths)
                    .map(|(read, path)| match read {
                        Read::GetData(_) => Read::GetData(path),
                        Read::GetChildren(_) => Read::GetChildren(path),
                    })
                    .collect();
                let answer = self.call("", &MultiRead(&reads));
                Response::waiting(answer, whole, OpCode::MultiRead, Chroot::default())
            }
        };
        MultiReadResponse { response, steps }
    }

    fn server_reads<'a>(&self, reads: &[Read<'a>]) -> Result<Vec<Cow<'a, str>>, Error> {
        reads
            .iter()
            .enumerate()
            .map(|(index, Read::GetData(path) | Read::GetChildren(path))| {
                check(path).map_err(|error| error.with_index(index))?;
                Ok(self.chroot.prefix(path))
            })
            .collect()
    }
}

/// The answer to a [`Client::multi_read`]: a result for each read.
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
#[derive(Debug)]
pub struct MultiReadResponse {
    response: Response<Body>,
    steps: Vec<(OpCode, Box<str>)>,
}

impl Future for MultiReadResponse {
    type Output = Result<Vec<Result<ReadResult, Error>>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Pin::new(&mut this.response).poll(cx).map(|body| this.finish(&body?))
    }
}

impl MultiReadResponse {
    fn finish(&self, body: &Body) -> Result<Vec<Result<ReadResult, Error>>, Error> {
        let bad_reply = |error: &dyn fmt::Display| bad_reply(OpCode::MultiRead, error);
        let reply: MultiReply<'_> =
            MultiReply::decode(&mut Reader::new(&body.bytes)).map_err(|error| bad_reply(&error))?;
        let results: Result<Vec<_>, Error> = reply
            .iter()
            .enumerate()
            .map(|(index, result)| match result {
                MultiResult::GetData(reply) => {
                    let data = reply
                        .data
                        .map(|data| keep(&body.bytes, data, COPY_BELOW))
                        .unwrap_or_default();
                    Ok(Ok(ReadResult::GetData(Node { data, stat: reply.stat })))
                }
                MultiResult::GetChildren(reply) => children(reply)
                    .map(|children| Ok(ReadResult::GetChildren(children)))
                    .map_err(|error| bad_reply(&error)),
                MultiResult::Error(code) => Ok(Err(self.failed(index, code))),
                _ => Err(bad_reply(&"the result of a write")),
            })
            .collect();
        let results = results?;
        if results.len() != self.steps.len() {
            let text = format!("{} results to {} reads", results.len(), self.steps.len());
            return Err(bad_reply(&text));
        }
        Ok(results)
    }

    fn failed(&self, index: usize, code: ErrorCode) -> Error {
        let kind = ErrorKind::from_code(code).unwrap_or(ErrorKind::BadReply);
        let error = Error::new(kind, Outcome::NotApplied).with_index(index);
        match self.steps.get(index) {
            Some((op, path)) => error.with_operation(*op, path),
            None => error.with_operation(OpCode::MultiRead, ""),
        }
    }
}

/// What is shorter is copied out of the reply.
const COPY_BELOW: usize = 4096;

/// The list by itself, as [`Children`] keeps it.
fn children(reply: GetChildrenReply<'_>) -> Result<Children, DecodeError> {
    let mut body = BytesMut::new();
    reply.encode(&mut body);
    let body = body.freeze();
    Children::read(&mut Reader::new(&body), |list| body.slice_ref(list))
}

fn bad_reply(op: OpCode, error: impl fmt::Display) -> Error {
    Error::new(ErrorKind::BadReply, Outcome::Unknown).with_detail(error).with_operation(op, "")
}
