//! The embedded server and the tap.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

mod corpus;
mod differential;
mod foreign;
mod keeper;
mod limits;
mod machine;
mod partition_model;
mod partitions;
mod pauses;
mod reconfig;
mod server;
mod support;
mod tap;
