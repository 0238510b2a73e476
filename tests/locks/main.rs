//! Tests of every kind of lock, each run on the embedded server and on a real one.
//!
//! Those that are ported from Curator's tests of its lock package have the Java name above them. Rules that a recorded
//! scenario pins are in `tests/parity`.

#[macro_use]
extern crate docent_tests as support;

mod any_lock;
mod cancellation;
mod cleanup;
mod deleted_nodes;
mod framework;
mod hand_off;
mod interop;
mod killed_server;
mod multi;
mod mutex;
mod old_servers;
mod protected;
mod read_write;
mod refused;
mod renewal;
mod runtimes;
mod semaphore;
mod sessions;
mod shared;
mod stale;
mod steps;
mod strict;
mod time;
mod tokens;
mod watches;

use std::time::Duration;

use docent::{
    Client, CreateMode,
    locks::{InterProcessMutex, LockOptions},
    nodes::ProtectedOptions,
    retry::RetryNTimes,
};
use support::{fixture::Fixture, ms};

/// Enough retries for every fault of these tests.
fn options() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(10, Duration::from_millis(100)))
}

/// A mutex at the path of the fixture.
fn mutex(fixture: &Fixture, client: &Client) -> InterProcessMutex {
    InterProcessMutex::with_options(client, &fixture.path, options()).unwrap()
}

/// No retries.
/// A protected create in this mode, with the retries of [`options`].
fn protected(mode: CreateMode) -> ProtectedOptions<'static> {
    ProtectedOptions::new(mode).with_retry_policy(RetryNTimes::new(10, Duration::from_millis(100)))
}

fn no_retries() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(0, Duration::ZERO))
}
