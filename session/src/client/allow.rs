//! Errors that a caller expects: `None` instead of an error.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{
    response::{Call, Response},
    transaction::{MultiReadResponse, TransactionResponse},
    watcher::{AddWatchResponse, WatchResponse},
};
use crate::{Error, ErrorKind};

/// The result of a call that may fail with one kind of error: the value, or `None` for that error. Returned by
/// [`Response::allow`], and by the method of this name of every other future that a [`Client`](crate::Client) returns
/// for an operation on nodes.
///
/// # Cancel safety
///
/// As the response it was made of: dropping it discards the reply, and the request is still sent.
#[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
#[derive(Debug)]
pub struct Allow<F> {
    response: F,
    kind: ErrorKind,
}

impl<F, R> Future for Allow<F>
where
    F: Future<Output = Result<R, Error>> + Unpin,
{
    type Output = Result<Option<R>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Pin::new(&mut this.response).poll(cx).map(|result| match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == this.kind => Ok(None),
            Err(error) => Err(error),
        })
    }
}

impl<R> Response<R> {
    /// Accepts one kind of error: the result is `None` instead of an error of that kind. Sends nothing more.
    ///
    /// An error of a connection hides its [outcome](Error::outcome) this way: `None` for `ConnectionLoss` says nothing
    /// about a write.
    ///
    /// # Errors
    ///
    /// Those of the request, of any other kind.
    ///
    /// # Example
    ///
    /// ```
    /// # mod docent { pub use docent_protocol::*; pub use docent_session::*; }
    /// use docent::{Client, CreateMode, CreateOptions, ErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = Client::connect(&server.connect_string()).await?;
    /// // Creates the node unless it exists.
    /// client.create("/jobs", b"", CreateMode::Persistent).allow(ErrorKind::NodeExists).await?;
    ///
    /// // Reads a node that may be missing.
    /// if let Some(node) = client.get_data("/config").allow(ErrorKind::NoNode).await? {
    ///     println!("{:?}", node.data);
    /// }
    ///
    /// // A call of several requests: the parents exist afterwards in any case.
    /// let path = "/jobs/nightly/report";
    /// let mode = CreateMode::Persistent;
    /// client.create(path, b"", CreateOptions::new(mode).with_parents()).allow(ErrorKind::NodeExists).await?;
    ///
    /// // Deletes a node unless another client was faster.
    /// let deleted = client.delete("/jobs/1", None).allow(ErrorKind::NoNode).await?.is_some();
    /// # assert!(!deleted);
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub const fn allow(self, kind: ErrorKind) -> Allow<Self> {
        Allow { response: self, kind }
    }
}

impl<R> WatchResponse<R> {
    /// As [`Response::allow`]. Where the result is `None`, no watch is set.
    ///
    /// # Errors
    ///
    /// Those of the request, of any other kind.
    pub const fn allow(self, kind: ErrorKind) -> Allow<Self> {
        Allow { response: self, kind }
    }
}

impl AddWatchResponse {
    /// As [`Response::allow`]. Where the result is `None`, no watch is set.
    ///
    /// # Errors
    ///
    /// Those of the request, of any other kind.
    pub const fn allow(self, kind: ErrorKind) -> Allow<Self> {
        Allow { response: self, kind }
    }
}

impl<R> Call<'_, R> {
    /// As [`Response::allow`], for an error of any of the requests: the one that failed ends the call, and those before
    /// it were applied.
    ///
    /// # Errors
    ///
    /// Those of the requests, of any other kind.
    pub const fn allow(self, kind: ErrorKind) -> Allow<Self> {
        Allow { response: self, kind }
    }
}

impl TransactionResponse {
    /// As [`Response::allow`], for the error of the first operation that failed: with `BadVersion`, for example, the
    /// result is `None` if a version did not match. Nothing was applied then.
    ///
    /// # Errors
    ///
    /// Those of the transaction, of any other kind.
    pub const fn allow(self, kind: ErrorKind) -> Allow<Self> {
        Allow { response: self, kind }
    }
}

impl MultiReadResponse {
    /// As [`Response::allow`], for an error of the whole call, such as `Unimplemented`; the errors of single reads are
    /// in the result.
    ///
    /// # Errors
    ///
    /// Those of the call, of any other kind.
    pub const fn allow(self, kind: ErrorKind) -> Allow<Self> {
        Allow { response: self, kind }
    }
}
