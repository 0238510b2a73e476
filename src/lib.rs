//! The facade: re-exports.
