//! The errors that end a connection.

use std::{fmt, io};

use super::transport::tls_failure;
use crate::{Error, ErrorKind, Outcome};

/// The detail of an error when the server has closed the connection.
pub(super) const CLOSED_BY_SERVER: &str = "the server closed the connection";

pub(super) fn broken(error: io::Error) -> Error {
    let failure = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown);
    match tls_failure(&error) {
        None => failure.with_source(error),
        Some((text, tls)) => {
            let failure = failure.with_detail(format_args!("TLS: {text}"));
            failure.caused_by(error).with_tls_failure(tls)
        }
    }
}

pub(super) fn lost(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_detail(why)
}
