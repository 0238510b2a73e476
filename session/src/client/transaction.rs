//! Several operations in one request: atomic writes, and reads at one moment.

use std::{
    borrow::Cow,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use docent_protocol::{
    Decode as _, DecodeError, Encode, OpCode, Stat,
    jute::Reader,
    multi::{MultiReply, MultiResult},
    operation::{Multi, MultiRead, Read, Write},
    reply::GetChildrenReply,
};

use super::{
    arguments::{ANY_VERSION, check},
    children::Children,
    chroot::Chroot,
    client::Client,
    create_options::CreateOptions,
    exchange::client_path,
    response::{Node, Response},
};
use crate::{
    Error, ErrorKind, Outcome,
    machine::{Body, Reply},
};

/// A list of writes that are applied in order and atomically: multi.
///
/// The methods that add a write return the transaction, for a chain, and take it by reference, for a loop. Paths, data
/// and ACLs are copied into the request when they are added.
///
/// ```
/// # use docent_session::{Client, Error};
/// # use docent_protocol::CreateMode;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = Client::connect(&server.connect_string()).await?;
/// client
///     .transaction()
///     .create("/account", b"100", CreateMode::Persistent)
///     .create("/journal", b"", CreateMode::Persistent)
///     .commit()
///     .await?;
///
/// let mut transaction = client.transaction();
/// transaction.set_data("/account", b"60", Some(0));
/// for (number, amount) in [b"-10", b"-30"].into_iter().enumerate() {
///     transaction.create(&format!("/journal/{number}"), amount, CreateMode::Persistent);
/// }
/// let results = transaction.commit().await?;
/// assert_eq!(results.len(), transaction.len());
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: `org.apache.zookeeper.Transaction`, `Op`.
#[derive(Clone)]
#[must_use = "nothing is sent before it is committed"]
pub struct Transaction<'a> {
    client: &'a Client,
    writes: Multi,
    /// Shared with the responses of commits.
    steps: Arc<Vec<Step>>,
    refused: Option<Error>,
}

/// One write or read, for its error and its result.
#[derive(Debug, Clone)]
struct Step {
    op: OpCode,
    /// The caller's path.
    path: Box<str>,
    /// The chroot that the path is below.
    chroot: Chroot,
    /// Whether it creates a node whose name the server completes.
    is_sequential: bool,
}

impl Step {
    /// The error of this operation in a reply.
    fn named(&self, error: Error) -> Error {
        self.chroot.named(error.with_operation(self.op, &self.path))
    }
}

/// The result of one write of a [`Transaction`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionResult {
    /// A node was created.
    Created {
        /// Its path, with the digits of a sequential node.
        path: String,
        /// The Stat. Servers send it for containers and TTL nodes only.
        stat: Option<Stat>,
    },
    /// A node was deleted.
    Deleted,
    /// Data were written; this is the new Stat of the node.
    DataSet(Stat),
    /// The version matched.
    Checked,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self { client, writes: Multi::new(), steps: Arc::default(), refused: None }
    }

    /// Creates a node. `options` is a [`CreateMode`](docent_protocol::CreateMode), or [`CreateOptions`] with an ACL. A
    /// transaction creates no parents: with them, it fails with `BadArguments`, and nothing is sent.
    pub fn create<'o>(
        &mut self,
        path: &str,
        data: &[u8],
        options: impl Into<CreateOptions<'o>>,
    ) -> &mut Self {
        let options = options.into();
        let server_path = self.client.new_path(path, options.mode());
        let write = Write::create(&server_path, Some(data), options.acl(), options.mode());
        let checked = match options.parents() {
            None => options.check(path),
            Some(_) => {
                let why = "a transaction creates no parents; call `ensure_path` before it";
                Err(Error::refused(ErrorKind::BadArguments, why))
            }
        };
        self.push(checked, self.client, path, &write)
    }

    /// Deletes a node if it has this version; `None` matches any version.
    pub fn delete(&mut self, path: &str, version: Option<i32>) -> &mut Self {
        let server_path = self.client.chroot.prefix(path);
        let write = Write::delete(&server_path, version.unwrap_or(ANY_VERSION));
        self.push(check(path), self.client, path, &write)
    }

    /// Writes data if the node has this version; `None` matches any version.
    pub fn set_data(&mut self, path: &str, data: &[u8], version: Option<i32>) -> &mut Self {
        let server_path = self.client.chroot.prefix(path);
        let write = Write::set_data(&server_path, Some(data), version.unwrap_or(ANY_VERSION));
        self.push(check(path), self.client, path, &write)
    }

    /// Fails the whole transaction unless the node exists and has this version; `None` matches any version.
    pub fn check(&mut self, path: &str, version: Option<i32>) -> &mut Self {
        self.check_of(self.client, path, version)
    }

    /// As [`check`](Self::check), for a path of another client of the same ensemble, which may have another chroot.
    pub fn check_of(&mut self, client: &Client, path: &str, version: Option<i32>) -> &mut Self {
        let server_path = client.chroot.prefix(path);
        let write = Write::check(&server_path, version.unwrap_or(ANY_VERSION));
        self.push(check(path), client, path, &write)
    }

    /// The number of operations so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The size of the operations in bytes, as they are sent. The server's `jute.maxbuffer`, about 1 MiB by default,
    /// limits the whole request, which is 21 bytes larger.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        self.writes.encoded_len()
    }

    /// Removes all operations, to begin the next transaction.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.steps = Arc::default();
        self.refused = None;
    }

    /// Sends the operations in one request. Returns one result for each operation. An empty transaction is sent too; it
    /// succeeds without results.
    ///
    /// The operations stay in the transaction: another commit sends all of them again.
    ///
    /// # Errors
    ///
    /// The error of the first operation that failed, with its index ([`Error::index`], from 0), operation and path;
    /// nothing was applied then. An invalid path is such an error, `InvalidPath`, and so is a write that would stop the
    /// server, `BadArguments` (as of [`Client::create`] and [`Client::set_data`]); nothing was sent then. An error
    /// without an index concerns the whole transaction: `MarshallingError` (the server does not know an operation),
    /// `NotReadOnly`, `RequestTooLarge`; or `ConnectionLoss` with [`Outcome::Unknown`]: either all operations or none
    /// may have been applied.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future discards the reply; the request is still sent.
    ///
    /// Source: op 14.
    pub fn commit(&self) -> TransactionResponse {
        self.commit_with(|checked, writes| self.client.request_if(checked, "", writes))
    }

    /// As [`commit`](Self::commit), with a function that queues the request unless an operation was refused.
    pub(super) fn commit_with(
        &self,
        request: impl FnOnce(Result<(), Error>, &Multi) -> Response<Body>,
    ) -> TransactionResponse {
        let checked = self.refused.clone().map_or(Ok(()), Err);
        let response = request(checked, &self.writes);
        TransactionResponse { response, steps: Arc::clone(&self.steps) }
    }

    /// As [`commit`](Self::commit), for [`Client::renew_proof`].
    pub(super) fn commit_as_proof(&self) -> TransactionResponse {
        let shared = &self.client.handle.shared;
        let now = || shared.clock().now();
        let send = || {
            shared.request("", |machine, token| {
                machine.reattach(now());
                machine.submit_proof(&self.writes, token, now);
            })
        };
        self.commit_with(|checked, writes| self.client.exchange(checked, "", writes, send))
    }

    /// Adds a write; the first refusal is kept.
    fn push(
        &mut self,
        checked: Result<(), Error>,
        client: &Client,
        path: &str,
        write: &Write<'_>,
    ) -> &mut Self {
        if let Err(error) = checked
            && self.refused.is_none()
        {
            let error = error.with_index(self.steps.len());
            self.refused = Some(error.with_operation(write.op_code(), path));
        }
        self.writes.push(write);
        Arc::make_mut(&mut self.steps).push(Step {
            op: write.op_code(),
            path: path.into(),
            chroot: client.chroot.clone(),
            is_sequential: write.is_sequential(),
        });
        self
    }
}

/// Shows operations and paths, without the data.
impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| (step.op, &step.path))).finish()
    }
}

/// The reply to a [`Transaction`].
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
#[derive(Debug)]
pub struct TransactionResponse {
    pub(super) response: Response<Body>,
    steps: Arc<Vec<Step>>,
}

impl Future for TransactionResponse {
    type Output = Result<Vec<TransactionResult>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let reply = Pin::new(&mut this.response).poll(cx);
        reply.map(|body| this.finish(&body.map_err(|error| this.named(error))?))
    }
}

impl TransactionResponse {
    /// Names the operation of an error that was found before anything was sent.
    fn named(&self, error: Error) -> Error {
        match error.index().and_then(|index| self.steps.get(index)) {
            Some(step) => error.with_operation(step.op, &step.path),
            None => error,
        }
    }

    fn finish(&self, body: &Body) -> Result<Vec<TransactionResult>, Error> {
        let reply: MultiReply<'_> = MultiReply::decode(&mut Reader::new(&body.bytes))
            .map_err(|error| bad_reply(OpCode::Multi, error).caused_by(error))?;
        // Rolled-back operations have the code Ok: the first operation with another code is the cause.
        for (index, result) in reply.iter().enumerate() {
            if let MultiResult::Error(code) = result
                && let Some(kind) = ErrorKind::from_code(code)
            {
                return Err(self.failed(index, kind));
            }
        }
        let count = reply.iter().count();
        if count != self.steps.len() {
            let text = format!("{count} results for {} operations", self.steps.len());
            return Err(bad_reply(OpCode::Multi, text));
        }
        let results = self.steps.iter().zip(reply.iter());
        results
            .map(|(step, result)| {
                self.result(step, result)?
                    .ok_or_else(|| bad_reply(OpCode::Multi, wrong_result(step)))
            })
            .collect()
    }

    fn failed(&self, index: usize, kind: ErrorKind) -> Error {
        let error = Error::new(kind, Outcome::NotApplied).with_index(index);
        match self.steps.get(index) {
            Some(step) => step.named(error),
            None => error.with_operation(OpCode::Multi, ""),
        }
    }

    /// The result of an operation, unless it is of another one. A create may have either result of a create
    /// (ZOOKEEPER-4026).
    fn result(
        &self,
        step: &Step,
        result: MultiResult<'_>,
    ) -> Result<Option<TransactionResult>, Error> {
        let op = step.op;
        let created = |path: docent_protocol::Text<'_>, stat| {
            let path = path.to_str().into_owned();
            let path = client_path(&step.chroot, path, &step.path, step.is_sequential);
            path.map(|path| TransactionResult::Created { path, stat })
                .map_err(|error| error.with_operation(op, &step.path))
        };
        let is_create = matches!(
            op,
            OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl
        );
        Ok(Some(match (op, result) {
            (_, MultiResult::Create(reply)) if is_create => created(reply.path, None)?,
            (_, MultiResult::Create2(reply)) if is_create => created(reply.path, Some(reply.stat))?,
            (OpCode::Delete, MultiResult::Delete) => TransactionResult::Deleted,
            (OpCode::SetData, MultiResult::SetData(reply)) => {
                TransactionResult::DataSet(reply.stat)
            }
            (OpCode::Check, MultiResult::Check) => TransactionResult::Checked,
            _ => return Ok(None),
        }))
    }
}

/// The result of one read of a [`Client::multi_read`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ReadResult {
    /// The data and the Stat.
    GetData(Node),
    /// The children.
    GetChildren(Children),
}

/// # Transactions
impl Client {
    /// Starts a [`Transaction`].
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Reads several nodes at one moment, in one request. Each read fails on its own. Servers since 3.6.0.
    ///
    /// # Errors
    ///
    /// Of the whole call: an invalid path, or `Unimplemented` from older servers
    /// ([missing operations](#missing-operations)). Of one read: `NoNode`, `NoAuth`, with its index ([`Error::index`]),
    /// operation and path.
    ///
    /// Source: op 22.
    pub fn multi_read(&self, reads: &[Read<'_>]) -> MultiReadResponse {
        let steps = reads
            .iter()
            .map(|read| {
                let (op, path) = step(read);
                let (path, chroot) = (Box::from(path), self.chroot.clone());
                Step { op, path, chroot, is_sequential: false }
            })
            .collect();
        let response = match self.server_reads(reads) {
            Err(error) => self.request_if(Err(error), "", &MultiRead(&[])),
            Ok(paths) => {
                let reads: Vec<Read<'_>> = reads
                    .iter()
                    .zip(&paths)
                    .map(|(read, path)| match read {
                        Read::GetData(_) => Read::GetData(path),
                        Read::GetChildren(_) => Read::GetChildren(path),
                    })
                    .collect();
                self.request_if(Ok(()), "", &MultiRead(&reads))
            }
        };
        MultiReadResponse { response, steps }
    }

    fn server_reads<'a>(&self, reads: &[Read<'a>]) -> Result<Vec<Cow<'a, str>>, Error> {
        reads
            .iter()
            .enumerate()
            .map(|(index, read)| {
                let (op, path) = step(read);
                check(path).map_err(|error| error.with_index(index).with_operation(op, path))?;
                Ok(self.chroot.prefix(path))
            })
            .collect()
    }
}

/// The operation and the path of a read, for its errors.
const fn step<'a>(read: &Read<'a>) -> (OpCode, &'a str) {
    match *read {
        Read::GetData(path) => (OpCode::GetData, path),
        Read::GetChildren(path) => (OpCode::GetChildren, path),
    }
}

/// The reply to a [`Client::multi_read`]: a result for each read.
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
#[derive(Debug)]
pub struct MultiReadResponse {
    /// The record, and the size in bytes below which a part of it is copied.
    pub(super) response: Response<(Body, usize)>,
    steps: Vec<Step>,
}

impl Future for MultiReadResponse {
    type Output = Result<Vec<Result<ReadResult, Error>>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Pin::new(&mut this.response).poll(cx).map(|answer| {
            let (body, copy_below) = answer?;
            this.finish(&body, copy_below)
        })
    }
}

impl MultiReadResponse {
    fn finish(
        &self,
        body: &Body,
        copy_below: usize,
    ) -> Result<Vec<Result<ReadResult, Error>>, Error> {
        let bad_reply = |error: &dyn fmt::Display| bad_reply(OpCode::MultiRead, error);
        let reply: MultiReply<'_> = MultiReply::decode(&mut Reader::new(&body.bytes))
            .map_err(|error| bad_reply(&error).caused_by(error))?;
        let stored = Reply::new(body.zxid, &body.bytes).within(&body.bytes, copy_below);
        let count = reply.iter().count();
        if count != self.steps.len() {
            let text = format!("{count} results for {} reads", self.steps.len());
            return Err(bad_reply(&text));
        }
        let results = self.steps.iter().zip(reply.iter()).enumerate();
        results
            .map(|(index, (step, result))| match (step.op, result) {
                (OpCode::GetData, MultiResult::GetData(reply)) => {
                    let data = reply.data.map(|data| stored.keep(data)).unwrap_or_default();
                    Ok(Ok(ReadResult::GetData(Node { data, stat: reply.stat })))
                }
                (OpCode::GetChildren, MultiResult::GetChildren(reply)) => children(reply)
                    .map(|children| Ok(ReadResult::GetChildren(children)))
                    .map_err(|error| bad_reply(&error).caused_by(error)),
                (_, MultiResult::Error(code)) => {
                    let kind = ErrorKind::from_code(code).unwrap_or(ErrorKind::BadReply);
                    let error = Error::new(kind, Outcome::NotApplied).with_index(index);
                    Ok(Err(step.named(error)))
                }
                _ => Err(bad_reply(&wrong_result(step))),
            })
            .collect()
    }
}

/// The list alone, as [`Children`] stores it.
fn children(reply: GetChildrenReply<'_>) -> Result<Children, DecodeError> {
    let mut body = BytesMut::new();
    reply.encode(&mut body);
    let body = body.freeze();
    Children::read(&mut Reader::new(&body), |list| body.slice_ref(list))
}

fn wrong_result(Step { op, path, .. }: &Step) -> String {
    format!("the result of {op} {path} is that of another operation")
}

fn bad_reply(op: OpCode, error: impl fmt::Display) -> Error {
    Error::new(ErrorKind::BadReply, Outcome::Unknown).with_detail(error).with_operation(op, "")
}
