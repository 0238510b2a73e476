//! The repository itself: its rules, its documents, its examples and its guide.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the functions that they call"
)]

extern crate docent_tests as support;

mod api;
mod blocking;
mod cases;
mod dependencies;
mod examples;
mod guide;
#[cfg(unix)]
mod leader_example;
mod names;
mod tidy;
