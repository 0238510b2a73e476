//! What happened to an operation.

use std::fmt;

use docent_protocol::{ErrorCode, OpCode};

/// Why an operation failed, and whether it may have happened all the same.
///
/// [`kind`](Self::kind) is what to match on; [`outcome`](Self::outcome) decides whether trying again is
/// safe. Names the operation and the path. One word in size, and `Clone`, since one lost connection
/// fails many callers.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    op: Option<OpCode>,
    path: Option<Box<str>>,
    index: Option<usize>,
    detail: Option<Box<str>>,
}

/// Whether a failed operation took effect, as far as anyone can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It did not: it was refused, or never left this process. Safe to try again.
    NotApplied,
    /// It may have: the connection broke after the request was handed to the socket.
    Unknown,
}

/// What went wrong. The names are ZooKeeper's where ZooKeeper has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The node, or the parent of a node to create, does not exist.
    NoNode,
    /// The ACL does not allow it.
    NoAuth,
    /// The version does not match.
    BadVersion,
    /// Ephemeral nodes have no children.
    NoChildrenForEphemerals,
    /// The node exists already.
    NodeExists,
    /// The node has children.
    NotEmpty,
    /// The ACL is empty, or names an id that is not valid.
    InvalidAcl,
    /// No such watch.
    NoWatcher,
    /// The server is read-only.
    NotReadOnly,
    /// The server did not accept an argument.
    BadArguments,
    /// The server could not read the request.
    MarshallingError,
    /// The server does not know the operation, or has it switched off.
    Unimplemented,
    /// The session is attached to another server.
    SessionMoved,
    /// A hard quota is used up.
    QuotaExceeded,
    /// The server is overloaded and did not execute it.
    ThrottledOp,
    /// The server requires authentication.
    SessionClosedRequireSaslAuth,
    /// An ephemeral node on a session that is local to its server.
    EphemeralOnLocalSession,
    /// reconfig is switched off.
    ReconfigDisabled,
    /// reconfig: the new quorum is not connected and synced.
    NewConfigNoQuorum,
    /// reconfig: another one is running.
    ReconfigInProgress,
    /// In a multi: an operation behind the one that failed.
    RuntimeInconsistency,
    /// Another code of the server's.
    Server(i32),

    /// The connection broke, or was not there for as long as the configuration allows.
    ConnectionLoss,
    /// The session has ended: the server said so, or it was out of reach for too long.
    SessionExpired,
    /// Authentication was refused; the client is of no further use.
    AuthFailed,
    /// The client was closed.
    Closed,
    /// No answer in the time allowed.
    OperationTimeout,
    /// The request is larger than `jute.maxbuffer`: the server would have closed the connection.
    RequestTooLarge,
    /// The reply is larger than the limit of this client.
    ReplyTooLarge,
    /// The reply is not what the operation promises.
    BadReply,
    /// As many requests are waiting as the configuration allows.
    TooManyRequests,
    /// The path breaks a rule; nothing was sent.
    InvalidPath,
    /// The connect string or another setting breaks a rule; nothing was sent.
    InvalidConfig,
}

impl ErrorKind {
    /// The kind of a reply's code; `None` for `Ok`.
    #[must_use]
    pub const fn from_code(code: ErrorCode) -> Option<Self> {
        Some(match code {
            ErrorCode::Ok => return None,
            ErrorCode::NoNode => Self::NoNode,
            ErrorCode::NoAuth => Self::NoAuth,
            ErrorCode::BadVersion => Self::BadVersion,
            ErrorCode::NoChildrenForEphemerals => Self::NoChildrenForEphemerals,
            ErrorCode::NodeExists => Self::NodeExists,
            ErrorCode::NotEmpty => Self::NotEmpty,
            ErrorCode::InvalidAcl => Self::InvalidAcl,
            ErrorCode::NoWatcher => Self::NoWatcher,
            ErrorCode::NotReadOnly => Self::NotReadOnly,
            ErrorCode::BadArguments => Self::BadArguments,
            ErrorCode::MarshallingError => Self::MarshallingError,
            ErrorCode::Unimplemented => Self::Unimplemented,
            ErrorCode::SessionMoved => Self::SessionMoved,
            ErrorCode::SessionExpired => Self::SessionExpired,
            ErrorCode::QuotaExceeded => Self::QuotaExceeded,
            ErrorCode::ThrottledOp => Self::ThrottledOp,
            ErrorCode::AuthFailed => Self::AuthFailed,
            ErrorCode::SessionClosedRequireSaslAuth => Self::SessionClosedRequireSaslAuth,
            ErrorCode::EphemeralOnLocalSession => Self::EphemeralOnLocalSession,
            ErrorCode::ReconfigDisabled => Self::ReconfigDisabled,
            ErrorCode::NewConfigNoQuorum => Self::NewConfigNoQuorum,
            ErrorCode::ReconfigInProgress => Self::ReconfigInProgress,
            ErrorCode::RuntimeInconsistency => Self::RuntimeInconsistency,
            ErrorCode::ConnectionLoss => Self::ConnectionLoss,
            ErrorCode::OperationTimeout | ErrorCode::RequestTimeout => Self::OperationTimeout,
            other => Self::Server(other.number()),
        })
    }

    /// What it says by itself.
    const fn text(self) -> &'static str {
        match self {
            Self::NoNode => "no such node",
            Self::NoAuth => "not allowed by the ACL",
            Self::BadVersion => "the version does not match",
            Self::NoChildrenForEphemerals => "ephemeral nodes have no children",
            Self::NodeExists => "the node exists already",
            Self::NotEmpty => "the node has children",
            Self::InvalidAcl => "the ACL is not valid",
            Self::NoWatcher => "no such watch",
            Self::NotReadOnly => "the server is read-only",
            Self::BadArguments => "the server did not accept the arguments",
            Self::MarshallingError => "the server could not read the request",
            Self::Unimplemented => "the server does not know the operation or has it switched off",
            Self::SessionMoved => "the session has moved to another server",
            Self::QuotaExceeded => "the quota is used up",
            Self::ThrottledOp => "the server is overloaded",
            Self::SessionClosedRequireSaslAuth => "the server requires authentication",
            Self::EphemeralOnLocalSession => "a local session cannot have ephemeral nodes",
            Self::ReconfigDisabled => "reconfig is switched off",
            Self::NewConfigNoQuorum => "the new quorum is not connected and synced",
            Self::ReconfigInProgress => "another reconfig is running",
            Self::RuntimeInconsistency => "an earlier operation of the multi failed",
            Self::Server(_) => "the server answered with an error",
            Self::ConnectionLoss => "the connection was lost",
            Self::SessionExpired => "the session has expired",
            Self::AuthFailed => "authentication was refused",
            Self::Closed => "the client is closed",
            Self::OperationTimeout => "no answer in time",
            Self::RequestTooLarge => "the request is too large",
            Self::ReplyTooLarge => "the reply is too large",
            Self::BadReply => "the reply cannot be read",
            Self::TooManyRequests => "too many requests are waiting",
            Self::InvalidPath => "the path is not valid",
            Self::InvalidConfig => "the configuration is not valid",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(code) => write!(f, "the server answered with error {code}"),
            other => f.write_str(other.text()),
        }
    }
}

impl Error {
    /// An error of this kind that concerns no operation.
    #[must_use]
    pub fn new(kind: ErrorKind, outcome: Outcome) -> Self {
        Self(Box::new(Inner { kind, outcome, op: None, path: None, index: None, detail: None }))
    }

    /// An error about something that was refused before it was sent.
    #[must_use]
    pub fn refused(kind: ErrorKind, detail: impl fmt::Display) -> Self {
        Self::new(kind, Outcome::NotApplied).with_detail(detail)
    }

    /// Says more about it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl fmt::Display) -> Self {
        self.0.detail = Some(detail.to_string().into_boxed_str());
        self
    }

    /// Says which operation it was, on which path as the caller knows it.
    #[must_use]
    pub fn with_operation(mut self, op: OpCode, path: &str) -> Self {
        self.0.op = Some(op);
        self.0.path = Some(path.into());
        self
    }

    /// Says which operation of several it was, from 0.
    #[must_use]
    pub fn with_index(mut self, index: usize) -> Self {
        self.0.index = Some(index);
        self
    }

    /// What went wrong, to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the operation may have happened anyway.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// What else is known about it.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The operation, if it was one.
    #[must_use]
    pub fn operation(&self) -> Option<OpCode> {
        self.0.op
    }

    /// The path it was about, as the caller gave it.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// Which operation of a transaction or a multi read it was, from 0.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        self.0.index
    }

    /// Whether the same call may go well after a reconnect: what Curator's retry loop tries again.
    ///
    /// Source: `SessionFailedRetryPolicy`, `RetryPolicy.allowRetry(Throwable)` of Curator.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::ConnectionLoss
                | ErrorKind::OperationTimeout
                | ErrorKind::SessionMoved
                | ErrorKind::SessionExpired
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, outcome, op, path, index, detail } = &*self.0;
        if let Some(index) = index {
            write!(f, "operation {index}: ")?;
        }
        if let Some(op) = op {
            write!(f, "{op}")?;
            match path.as_deref() {
                Some(path) if !path.is_empty() => write!(f, " {path}: ")?,
                _ => f.write_str(": ")?,
            }
        }
        write!(f, "{kind}")?;
        if let Some(detail) = detail {
            write!(f, ": {detail}")?;
        }
        if *outcome == Outcome::Unknown {
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

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn every_code_but_ok_has_a_kind() {
        for &code in ErrorCode::NAMED {
            assert_eq!(ErrorKind::from_code(code).is_none(), code.is_ok(), "{code}");
        }
        assert_eq!(ErrorKind::from_code(ErrorCode::Unknown(-999)), Some(ErrorKind::Server(-999)));
    }

    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }
}
