//! The errors of this crate, which are those of the session.

use docent_session::{Error, ErrorKind, Outcome};

use crate::instance_serializer::SerializerError;

/// The data of a node is not an instance.
pub(crate) fn unreadable(path: &str, error: &SerializerError) -> Error {
    Error::new(ErrorKind::BadReply, Outcome::NotApplied)
        .with_path(path)
        .with_detail(format_args!("the data is not a service instance: {error}"))
}

/// An instance that cannot be written; nothing was sent.
pub(crate) fn unwritable(name: &str, id: &str, error: &SerializerError) -> Error {
    let why =
        format_args!("the instance {id:?} of the service {name:?} cannot be written: {error}");
    Error::refused(ErrorKind::BadArguments, why)
}

/// A service or an instance that has no path; nothing was sent.
pub(crate) fn invalid_path(what: &str, name: &str, why: impl std::fmt::Display) -> Error {
    Error::refused(ErrorKind::InvalidPath, format_args!("{name:?} cannot be {what}: {why}"))
}

/// The discovery was closed.
pub(crate) fn closed(base_path: &str) -> Error {
    Error::refused(
        ErrorKind::Closed,
        format_args!("the service discovery of {base_path} is closed"),
    )
}

/// An update of an instance that this discovery has not registered.
pub(crate) fn not_registered(name: &str, id: &str) -> Error {
    let why = format_args!("the instance {id:?} of the service {name:?} is not registered here");
    Error::refused(ErrorKind::BadArguments, why)
}

/// The kind of a node cannot be changed.
pub(crate) fn other_type(name: &str, id: &str) -> Error {
    let why = format_args!(
        "the instance {id:?} of the service {name:?} is registered with another service type; \
         unregister it first"
    );
    Error::refused(ErrorKind::BadArguments, why)
}
