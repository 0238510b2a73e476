//! The error of an operation: its kind, and whether the operation may have been applied.

mod kind;

use std::{fmt, sync::Arc};

pub use docent_protocol::{DecodeError, DecodeErrorKind, OpCode, PathError};

pub use self::kind::ErrorKind;

/// Why a call of the client or of a recipe failed, and whether it may have been applied.
///
/// All crates of docent return this error, so that `?` is enough everywhere. Which part to use:
///
/// | question | answer |
/// |---|---|
/// | What went wrong? | [`kind`](Self::kind), to match on; [`ErrorKind`] has a table by task |
/// | Was it applied? | [`outcome`](Self::outcome): after [`Outcome::Unknown`], only a read of the node shows it |
/// | May the same call succeed later? | [`is_retryable`](Self::is_retryable) |
/// | Where? | [`operation`](Self::operation), [`path`](Self::path), [`index`](Self::index) in a transaction |
/// | What does a user see? | `Display`: one line with all of it. `Debug` is the same line with kind and outcome |
/// | Which error of another crate caused it? | [`source`](std::error::Error::source) |
///
/// An error is one word in size, and `Clone`, because one lost connection fails many requests. Errors are equal when
/// all parts but the source are.
///
/// # The source
///
/// The [`source`](std::error::Error::source) is an [`io::Error`](std::io::Error) for a lost or refused connection (of
/// TLS also), a [`DecodeError`] for an unreadable reply, a [`PathError`] for an invalid path, and an
/// [`InvalidConnectString`](crate::config::InvalidConnectString) for an invalid connect string. `Display` includes its text, so
/// that a line in a log is complete; a report that prints the chain of sources prints that text twice.
///
/// ```
/// # extern crate docent_session as docent;
/// use docent::{Error, ErrorKind, Outcome};
///
/// fn is_ours(error: &Error) -> Option<bool> {
///     match (error.kind(), error.outcome()) {
///         // The node of an earlier try, or of another client.
///         (ErrorKind::NodeExists, _) => Some(false),
///         (_, Outcome::NotApplied) => Some(false),
///         // Only a read of the node shows it.
///         (_, Outcome::Unknown) => None,
///     }
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    op: Option<OpCode>,
    path: Option<Box<str>>,
    index: Option<usize>,
    detail: Option<Box<str>>,
    is_missing_chroot: bool,
    tls: Option<TlsFailure>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl PartialEq for Inner {
    fn eq(&self, other: &Self) -> bool {
        let Self { kind, outcome, op, path, index, detail, .. } = self;
        (kind, outcome, op, path, index, detail)
            == (&other.kind, &other.outcome, &other.op, &other.path, &other.index, &other.detail)
    }
}

impl Eq for Inner {}

/// Whether a failed operation was applied, as far as the client can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The operation was not applied: it was refused, or its request was never sent. A retry is safe.
    NotApplied,
    /// The operation may have been applied: the connection broke after the request was passed to the socket.
    Unknown,
}

/// How a connection failed because of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsFailure {
    /// A later attempt may succeed as it is.
    #[cfg_attr(not(feature = "tls-no-provider"), expect(dead_code, reason = "rustls finds it"))]
    Passing,
    /// Each attempt fails until a certificate or a setting has changed.
    Mismatch,
}

impl Error {
    /// The kind of the error, to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the operation may have been applied.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// The detail in the message.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The operation, if the error is about one.
    #[must_use]
    pub fn operation(&self) -> Option<OpCode> {
        self.0.op
    }

    /// The path of the operation or of the lock, as the caller passed it.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// The index of the operation in a transaction or a multi read, from 0.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        self.0.index
    }

    /// Whether this is a `NoNode` because the chroot of the client does not exist. The text names the chroot.
    ///
    /// True where the one reply proves it, which is for a client with a chroot:
    ///
    /// * the `NoNode` of any operation on the client's `/`: a read, a write, a delete, or one of a transaction or of a
    ///   multi read;
    /// * the `NoNode` of a create of a child of `/`, also in a transaction: its parent is the chroot.
    ///
    /// All other `NoNode`s are plain: `get_data("/a")` fails alike without the node and without the chroot, and no call sends
    /// a further request to find out. A caller does by [`exists("/")`](crate::Client::exists), which returns `None` for a
    /// missing chroot, and no error. [`add_watch`](crate::Client::add_watch) and [`sync`](crate::Client::sync) need no
    /// node, and succeed. `ensure_path` and a create with parents create the chroot.
    #[must_use]
    pub fn is_missing_chroot(&self) -> bool {
        self.0.is_missing_chroot
    }

    /// Whether the connection failed because client and server do not agree on TLS: a certificate is not accepted, or
    /// only one side speaks TLS. The next attempt fails too, until a certificate or a setting has changed.
    ///
    /// [`Config::connect`](crate::Config::connect) returns such an error at once.
    #[must_use]
    pub fn is_tls_mismatch(&self) -> bool {
        self.0.tls == Some(TlsFailure::Mismatch)
    }

    /// Whether the same call may succeed later. True for the errors that Curator's retry loop retries, for `ThrottledOp`,
    /// with which an overloaded server reports that it has not applied the operation, and for `Unanswered`.
    ///
    /// Source: `SessionFailedRetryPolicy`, `RetryPolicy.allowRetry(Throwable)` of Curator; `RequestThrottler` of
    /// ZooKeeper 3.7, which Curator does not handle.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::ConnectionLoss
                | ErrorKind::OperationTimeout
                | ErrorKind::SessionMoved
                | ErrorKind::SessionExpired
                | ErrorKind::ThrottledOp
                | ErrorKind::Unanswered
        )
    }
}

/// # Creating errors
///
/// For drivers of [`machine::Session`](crate::machine::Session), and for tests.
impl Error {
    /// An error of this kind, without an operation.
    #[must_use]
    pub fn new(kind: ErrorKind, outcome: Outcome) -> Self {
        Self(Box::new(Inner {
            kind,
            outcome,
            op: None,
            path: None,
            index: None,
            detail: None,
            is_missing_chroot: false,
            tls: None,
            source: None,
        }))
    }

    /// The error of a request that was refused before it was sent.
    // Public for docent-recipes.
    #[doc(hidden)]
    #[must_use]
    pub fn refused(kind: ErrorKind, detail: impl fmt::Display) -> Self {
        Self::new(kind, Outcome::NotApplied).with_detail(detail)
    }

    /// Says that the operation may have been applied: by an earlier attempt.
    // Public for a machine without the client, which does not use it.
    #[doc(hidden)]
    #[must_use]
    pub fn with_unknown_outcome(mut self) -> Self {
        self.0.outcome = Outcome::Unknown;
        self
    }

    /// Adds a detail to the message.
    // Public for docent-recipes.
    #[doc(hidden)]
    #[must_use]
    pub fn with_detail(mut self, detail: impl fmt::Display) -> Self {
        self.0.detail = Some(detail.to_string().into_boxed_str());
        self
    }

    /// Says that the chroot does not exist.
    // Public for a machine without the client, which does not use it.
    #[doc(hidden)]
    #[must_use]
    pub fn with_missing_chroot(mut self, chroot: &str) -> Self {
        self.0.is_missing_chroot = true;
        self.with_detail(format_args!("the chroot {chroot} does not exist"))
    }

    /// Says that the connection failed because of TLS.
    pub(crate) fn with_tls_failure(mut self, failure: TlsFailure) -> Self {
        self.0.tls = Some(failure);
        self
    }

    /// Whether the text names a reason that is about TLS.
    pub(crate) fn is_about_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Adds the error of another crate as the source, and its text to the message.
    // Public for docent-recipes.
    #[doc(hidden)]
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.with_detail(&source).caused_by(source)
    }

    /// Adds a source whose text is in the detail already.
    // Public for docent-recipes.
    #[doc(hidden)]
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Adds the source of an earlier failure, if it has one, and whether it is about TLS.
    #[must_use]
    pub(crate) fn with_source_of(mut self, earlier: Option<&Self>) -> Self {
        self.0.source = earlier.and_then(|earlier| earlier.0.source.clone());
        self.0.tls = earlier.and_then(|earlier| earlier.0.tls);
        self
    }

    /// Adds the path as the caller passed it.
    // Public for docent-recipes.
    #[doc(hidden)]
    #[must_use]
    pub fn with_path(mut self, path: &str) -> Self {
        self.0.path = Some(path.into());
        self
    }

    /// Adds the operation, and the path as the caller passed it.
    // Public for a machine without the client, which does not use it.
    #[doc(hidden)]
    #[must_use]
    pub fn with_operation(mut self, op: OpCode, path: &str) -> Self {
        self.0.op = Some(op);
        self.with_path(path)
    }

    /// Adds the index of the operation in a transaction or a multi read, from 0.
    // Public for a machine without the client, which does not use it.
    #[doc(hidden)]
    #[must_use]
    pub fn with_index(mut self, index: usize) -> Self {
        self.0.index = Some(index);
        self
    }
}

/// What an operation requires, if there are servers without it.
pub(crate) const fn requirement(op: OpCode) -> Option<&'static str> {
    Some(match op {
        OpCode::Create2 | OpCode::CheckWatches | OpCode::RemoveWatches => "ZooKeeper 3.5.0",
        OpCode::Reconfig => "an ensemble of ZooKeeper 3.5.0",
        OpCode::CreateContainer => "ZooKeeper 3.5.1",
        OpCode::CreateTtl => "ZooKeeper 3.5.3 with zookeeper.extendedTypesEnabled=true",
        OpCode::MultiRead
        | OpCode::GetEphemerals
        | OpCode::GetAllChildrenNumber
        | OpCode::AddWatch => "ZooKeeper 3.6.0",
        OpCode::WhoAmI => "ZooKeeper 3.7.0",
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, outcome, op, path, index, detail, .. } = &*self.0;
        if let Some(index) = index {
            write!(f, "operation {index}: ")?;
        }
        match (op, path.as_deref().filter(|path| !path.is_empty())) {
            (Some(op), Some(path)) => write!(f, "{op} {path}: ")?,
            (Some(op), None) => write!(f, "{op}: ")?,
            (None, Some(path)) => write!(f, "{path}: ")?,
            (None, None) => {}
        }
        write!(f, "{kind}")?;
        let requirement = op.and_then(requirement);
        if let Some(requirement) = requirement.filter(|_| *kind == ErrorKind::Unimplemented) {
            write!(f, "; it requires {requirement}")?;
        }
        if let Some(detail) = detail {
            write!(f, ": {detail}")?;
        }
        if *outcome == Outcome::Unknown && op.is_none_or(OpCode::is_write) {
            f.write_str(" (the operation may have been applied)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {:?}: {self})", self.0.kind, self.0.outcome)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use docent_protocol::ErrorCode;

    use super::*;

    // Case (Found in docent itself): the text of a read that failed said that it may have been
    // applied.
    #[test]
    fn an_error_reads_as_one_line_with_operation_and_path() {
        let error = Error::new(ErrorKind::NoNode, Outcome::NotApplied)
            .with_operation(OpCode::GetData, "/a");
        assert_eq!(error.to_string(), "getData /a: no such node");
        let error = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown)
            .with_operation(OpCode::Create2, "/a");
        assert_eq!(
            error.to_string(),
            "create2 /a: the connection was lost (the operation may have been applied)"
        );
        // A read changes nothing.
        let error = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown)
            .with_operation(OpCode::GetData, "/a");
        assert_eq!(error.to_string(), "getData /a: the connection was lost");
        let error = Error::new(ErrorKind::LockLost, Outcome::NotApplied).with_path("/locks/a");
        assert_eq!(error.to_string(), "/locks/a: the lock was lost");
    }

    #[test]
    fn a_source_is_kept_with_its_type_and_its_text() {
        use std::error::Error as _;

        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let text = refused.to_string();
        let error = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_source(refused);
        assert_eq!(error.detail(), Some(&*text));
        let later = Error::new(ErrorKind::Closed, Outcome::NotApplied).with_source_of(Some(&error));
        for error in [error, later] {
            let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
            assert_eq!(source.unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
        }
    }

    /// An overloaded server has not applied the operation; a permanent refusal is not retried.
    // Case (Found in docent itself): ThrottledOp was not worth a retry.
    #[test]
    fn failures_that_may_pass_are_retryable() {
        for (code, retryable) in [
            (ErrorCode::ConnectionLoss, true),
            (ErrorCode::OperationTimeout, true),
            (ErrorCode::SessionMoved, true),
            (ErrorCode::ThrottledOp, true),
            (ErrorCode::NoNode, false),
            (ErrorCode::Unimplemented, false),
        ] {
            let kind = ErrorKind::from_code(code).unwrap();
            assert_eq!(Error::new(kind, Outcome::NotApplied).is_retryable(), retryable, "{code}");
        }
    }

    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }
}
