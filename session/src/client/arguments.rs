//! Arguments of calls: versions on the wire, and paths that are refused before anything is sent.

use docent_protocol::{CreateMode, path};

use crate::{Error, ErrorKind};

/// The wire value of a version that is [`None`].
pub(super) const ANY_VERSION: i32 = -1;

pub(super) fn check(path: &str) -> Result<(), Error> {
    path::validate(path).map_err(|error| invalid_path(path, error))
}

/// The name of a sequential node may consist of its digits alone: `/parent/` is the path for one.
pub(super) fn check_new(path: &str, mode: CreateMode) -> Result<(), Error> {
    if mode.is_sequential() {
        path::validate_sequential(path).map_err(|error| invalid_path(path, error))
    } else {
        check(path)
    }
}

#[cold]
fn invalid_path(path: &str, error: path::PathError) -> Error {
    let detail = format_args!("{path:?}: {error}");
    Error::refused(ErrorKind::InvalidPath, detail).caused_by(error).with_path(path)
}
