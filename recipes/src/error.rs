//! The errors of the recipes, which are those of the session and some more kinds.

use std::time::Duration;

use docent_session::{Client, Error, ErrorKind, Outcome};

/// Takes a missing node for one of which nothing is left: without children, or deleted.
pub(crate) fn default_if_missing<T: Default>(result: Result<T, Error>) -> Result<T, Error> {
    match result {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(T::default()),
        other => other,
    }
}

/// The lock at `path` is no longer held.
pub(crate) fn lock_lost(path: &str) -> Error {
    Error::new(ErrorKind::LockLost, Outcome::NotApplied).with_path(path)
}

/// The numbers of the nodes below `path` have no order.
pub(crate) fn sequence_exhausted(path: &str) -> Error {
    Error::new(ErrorKind::SequenceExhausted, Outcome::NotApplied).with_path(path)
}

/// The time of an acquire is up, and no reply has shown whether the lock at `path` is free; without a path, whether one of
/// several locks is.
pub(crate) async fn unanswered(client: &Client, path: Option<&str>) -> Error {
    let error = Error::new(ErrorKind::Unanswered, Outcome::NotApplied);
    let error = match path {
        Some(path) => error.with_path(path),
        None => error,
    };
    // With no time, it reports the state of the connection.
    match client.wait_until_connected(Duration::ZERO).await {
        Ok(()) => error.with_detail("there is a connection, but no reply yet"),
        Err(lost) if lost.kind() == ErrorKind::ConnectionLoss => {
            error.with_detail(lost.detail().unwrap_or_default()).caused_by(lost)
        }
        Err(ended) => ended,
    }
}

/// A foreign node at or below the path of a strict mutex.
pub(crate) fn foreign_node(path: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::ForeignNode, Outcome::NotApplied).with_path(path).with_detail(why)
}

/// A record of a strict mutex that was copied from another ensemble.
pub(crate) fn foreign_record(path: &str, token: i64, zxid: i64) -> Error {
    Error::new(ErrorKind::ForeignRecord, Outcome::NotApplied).with_path(path).with_detail(format_args!(
        "its token {token} is not below the zxid {zxid} of its write; when no client uses the lock, delete the node, and \
         let the protected resource forget the tokens it has seen"
    ))
}

/// A record of a strict mutex that cannot be read.
pub(crate) fn bad_record(path: &str) -> Error {
    Error::new(ErrorKind::BadReply, Outcome::NotApplied).with_path(path).with_detail(
        "the record of the strict mutex cannot be read: damaged, or of a later version",
    )
}

/// An invalid argument; nothing was sent.
pub(crate) fn bad_arguments(why: impl std::fmt::Display) -> Error {
    Error::refused(ErrorKind::BadArguments, why)
}

/// A path that a recipe cannot use; nothing was sent.
pub(crate) fn invalid_path(why: impl std::fmt::Display) -> Error {
    Error::refused(ErrorKind::InvalidPath, why)
}

/// After a close, our node at or below `path` may still exist. The background deletes it.
pub(crate) fn not_yet_deleted(path: &str) -> Error {
    Error::new(ErrorKind::OperationTimeout, Outcome::Unknown)
        .with_path(path)
        .with_detail("node not yet deleted; retrying in the background")
}

/// Our own node is not among the children.
///
/// Source: `StandardLockInternalsDriver.validateOurIndex`.
pub(crate) fn own_node_missing(name: &str) -> Error {
    Error::new(ErrorKind::NoNode, Outcome::NotApplied)
        .with_detail(format_args!("sequential path not found: {name}"))
}
