//! Validates the path of a lock.

use crate::{Error, error};

/// Checks that a path is valid for a lock or a shared value.
pub(crate) fn check_base_path(path: &str) -> Result<(), Error> {
    let refused = |why: &dyn std::fmt::Display| {
        error::invalid_path(format_args!("{path:?} cannot be the path of a lock: {why}"))
    };
    match docent_protocol::path::validate(path) {
        Err(error) => Err(refused(&error).caused_by(error)),
        // Curator accepts it, and fails at each acquire (N10 in `docs/CURATOR.md`).
        Ok(()) if path == "/" => Err(refused(&"lock nodes must not be children of the root")),
        Ok(()) => Ok(()),
    }
}
