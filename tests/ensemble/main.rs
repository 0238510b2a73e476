//! The client on ensembles: members are killed, stopped and restarted, or too few for a majority.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the functions that they call"
)]

extern crate docent_tests as support;

mod elections;
mod ensemble;
mod failback;
mod lost_members;
mod moved_session;
mod partitions;
mod proven;
mod read_only;
mod reconfig;
mod resumed_session;
mod strict;
mod tracker;
