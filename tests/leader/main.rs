//! Tests of the leader recipes, each run on the embedded server and on a real one where it can be.

#[macro_use]
extern crate docent_tests as support;

mod bad_input;
mod group;
mod interop;
mod latch;
mod latch_faults;
mod nodes;
mod nodes_stale;
mod nodes_written;
mod selector;

use std::time::Duration;

use docent::{LeaderOptions, LockOptions, retry::RetryNTimes};
use support::{fixture::Fixture, ms};

/// Enough retries for every fault of these tests.
fn options() -> LeaderOptions {
    lock_options().into()
}

fn lock_options() -> LockOptions {
    let policy = RetryNTimes::new(10, Duration::from_millis(100));
    LockOptions::default().with_retry_policy(policy)
}
