//! Tests of the data recipes, each run on the embedded server and on a real one where it can be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the functions that they call"
)]

#[macro_use]
extern crate docent_tests as support;

mod atomic;
mod barriers;
mod interop;
mod stale;
