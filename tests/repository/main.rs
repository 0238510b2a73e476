//! The repository itself: its rules, its documents, its examples and its guide.

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
