//! The reasons of failures, and their messages.

use std::fmt;

use docent_protocol::ErrorCode;

#[cfg(doc)]
use super::{Error, Outcome};

/// The reason of a failure. The names are ZooKeeper's where ZooKeeper has one.
///
/// | task | kinds to expect |
/// |---|---|
/// | create | `NodeExists`, `NoNode` (the parent), `NoChildrenForEphemerals`, `QuotaExceeded`, `RequestTooLarge` |
/// | read, watch | `NoNode`, `NoAuth`, `ReplyTooLarge` |
/// | set, delete | `NoNode`, `BadVersion`, `NotEmpty` |
/// | transaction | any of the above, with [`Error::index`] |
/// | acquire a lock | [`Unanswered`](Self::Unanswered), [`LockLost`](Self::LockLost), [`SequenceExhausted`](Self::SequenceExhausted), [`ForeignNode`](Self::ForeignNode), [`ForeignRecord`](Self::ForeignRecord), `NoAuth`, and those of the connection |
/// | use a lock | [`LockLost`](Self::LockLost) |
/// | connect | `ConnectionLoss` (no server replied), `AuthFailed`, `InvalidConfig` |
/// | every call | `ConnectionLoss`, `SessionExpired`, `OperationTimeout`, `ThrottledOp`, `TooManyRequests`, `InvalidPath`, `Closed` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The node, or the parent of a node to create, does not exist.
    NoNode,
    /// The ACL does not allow the operation.
    NoAuth,
    /// The version does not match.
    BadVersion,
    /// Ephemeral nodes have no children.
    NoChildrenForEphemerals,
    /// The node exists already.
    NodeExists,
    /// The node has children.
    NotEmpty,
    /// The ACL is empty, or contains an invalid id.
    InvalidAcl,
    /// There is no such watch.
    NoWatcher,
    /// The server is read-only.
    NotReadOnly,
    /// An argument is not accepted: by the server, or before anything was sent.
    BadArguments,
    /// The server could not read the request.
    MarshallingError,
    /// The server does not know the operation, or the operation is disabled.
    Unimplemented,
    /// The session is attached to another server. The client closes the connection, and connects again.
    SessionMoved,
    /// A hard quota is exhausted.
    QuotaExceeded,
    /// The server is overloaded and did not execute the operation.
    ThrottledOp,
    /// The server requires authentication.
    SessionClosedRequireSaslAuth,
    /// An ephemeral node on a session that is local to its server.
    EphemeralOnLocalSession,
    /// reconfig is disabled.
    ReconfigDisabled,
    /// reconfig: the new quorum is not connected and synced.
    NewConfigNoQuorum,
    /// reconfig: another reconfiguration is in progress.
    ReconfigInProgress,
    /// multi: an operation after the failed one.
    RuntimeInconsistency,
    /// Any other error code of the server.
    Server(i32),

    /// The connection broke, or there was no connection for the time that the configuration allows.
    ConnectionLoss,
    /// The session has ended: a server reported its expiry, or no server was reachable for the session timeout.
    SessionExpired,
    /// Authentication was refused. The client has ended and cannot be used again.
    AuthFailed,
    /// The client was closed. The text has the reason if that was not by `close`: its session was detached, or the runtime
    /// that it was started in has ended.
    Closed,
    /// No reply within the time limit.
    OperationTimeout,
    /// The request is larger than `jute.maxbuffer`. A server would close the connection.
    RequestTooLarge,
    /// The reply is larger than the limit of this client.
    ReplyTooLarge,
    /// The reply does not have the format that the operation defines. Recipes report data of a node that does not have
    /// their format in the same way, with [`Outcome::NotApplied`] and a detail that names the data.
    BadReply,
    /// The number of pending requests, or their size, has reached its limit in the configuration.
    TooManyRequests,
    /// The path is invalid; nothing was sent.
    InvalidPath,
    /// The connect string or another setting is invalid; nothing was sent.
    InvalidConfig,
    /// A blocking call was made inside an async runtime, whose thread it would block; nothing was sent.
    WouldBlock,

    /// A recipe: the lock is no longer held. Its session has ended, or its node was deleted. [`Error::path`] is the
    /// path of the lock.
    LockLost,
    /// A recipe: the server's sequence counter below [`Error::path`] is exhausted. It has reached 2147483647, or assigns
    /// negative numbers, or one number twice. Such numbers have no order, so no contender acquires the lock. Delete the
    /// path when no client uses it; the server then counts from 0.
    SequenceExhausted,
    /// A recipe: a node at or below [`Error::path`], the path of a strict mutex, belongs to another recipe, such as one
    /// of Curator's locks. Its users do not keep the rules of a strict mutex, so the lock is not granted.
    ForeignNode,
    /// A recipe: the record of the strict mutex at [`Error::path`] was copied from another ensemble, such as by a tool
    /// that restores nodes. Its fencing token is above every one of this ensemble. Delete the path when no client uses
    /// it, and let the resource forget the tokens it has seen.
    ForeignRecord,
    /// A recipe: the time of a timed acquire is up, and no reply has shown whether the lock at [`Error::path`] is
    /// free. There was no connection to a majority of the servers, or its replies took longer. The lock is not held, and
    /// its node is deleted in the background if it was created.
    Unanswered,
}

impl ErrorKind {
    /// The kind of a reply's error code; `None` for `Ok`.
    // Public for docent-cli: the code is a type of docent-protocol.
    #[doc(hidden)]
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

    /// The message of the kind alone.
    const fn text(self) -> &'static str {
        match self {
            Self::NoNode => "no such node",
            Self::NoAuth => "not allowed by the ACL",
            Self::BadVersion => "the version does not match",
            Self::NoChildrenForEphemerals => "ephemeral nodes have no children",
            Self::NodeExists => "the node exists already",
            Self::NotEmpty => "the node has children",
            Self::InvalidAcl => "invalid ACL",
            Self::NoWatcher => "no such watch",
            Self::NotReadOnly => "the server is read-only",
            Self::BadArguments => "invalid arguments",
            Self::MarshallingError => "the server could not decode the request",
            Self::Unimplemented => "the server does not support the operation, or it is disabled",
            Self::SessionMoved => "the session has moved to another server",
            Self::QuotaExceeded => "quota exceeded",
            Self::ThrottledOp => "the server is overloaded",
            Self::SessionClosedRequireSaslAuth => "the server requires authentication",
            Self::EphemeralOnLocalSession => "a local session cannot have ephemeral nodes",
            Self::ReconfigDisabled => "reconfig is disabled",
            Self::NewConfigNoQuorum => "the new quorum is not connected and synced",
            Self::ReconfigInProgress => "another reconfiguration is in progress",
            Self::RuntimeInconsistency => "an earlier operation of the multi failed",
            Self::Server(_) => "the server replied with an error",
            Self::ConnectionLoss => "the connection was lost",
            Self::SessionExpired => "the session has expired",
            Self::AuthFailed => "authentication was refused",
            Self::Closed => "the client is closed",
            Self::OperationTimeout => "the operation timed out",
            Self::RequestTooLarge => "the request is too large",
            Self::ReplyTooLarge => "the reply is too large",
            Self::BadReply => "the reply, or the data in it, cannot be decoded",
            Self::TooManyRequests => "too many pending requests",
            Self::InvalidPath => "invalid path",
            Self::InvalidConfig => "invalid configuration",
            Self::WouldBlock => "a blocking call inside an async runtime",
            Self::LockLost => "the lock was lost",
            Self::SequenceExhausted => {
                "the sequence counter is exhausted: delete the path when no client uses it"
            }
            Self::ForeignNode => "the path of a strict mutex has a node of another recipe",
            Self::ForeignRecord => "the record of the strict mutex is from another ensemble",
            Self::Unanswered => "no reply in time: it is unknown whether the lock is free",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(code) => write!(f, "the server replied with error {code}"),
            other => f.write_str(other.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_but_ok_has_a_kind() {
        for &code in ErrorCode::NAMED {
            assert_eq!(ErrorKind::from_code(code).is_none(), code.is_ok(), "{code}");
        }
        assert_eq!(ErrorKind::from_code(ErrorCode::Unknown(-999)), Some(ErrorKind::Server(-999)));
    }
}
