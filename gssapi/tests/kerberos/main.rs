//! Kerberos with a real ZooKeeper and a real KDC.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

mod credentials;
mod faults;
mod login;
mod support;
