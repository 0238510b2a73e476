//! Tests of `docent::blocking`, each run on the embedded server and on a real one where it can be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the functions that they call"
)]

extern crate docent_tests as support;

#[macro_use]
mod server;

mod client;
mod end;
mod locks;
mod recipes;
mod runtimes;
