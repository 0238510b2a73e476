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
mod history;
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

use crate::support::{
    DEADLINE,
    each_lock::each_lock,
    eventually,
    given_up_session::{short_session, wait_until_given_up},
    has_no_request, has_watches, passes,
    peer::{Options, Peer, Side},
    pending_and_watches, poll_at_most, poll_once, reaches, session_id, spawn_acquire,
    traced::Traced,
    until, within_deadline,
};
use docent::{
    Acl, Client, Config, ConnectionState, CreateMode, CreateOptions, Error, ErrorKind, EventType,
    OpCode, Perms, acl, create_protected,
    locks::{
        InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
        InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockGuard, LockInternalsDriver,
        LockOptions, Owner, Revoker,
    },
    nodes::ProtectedOptions,
    retry::RetryNTimes,
    shared::{SharedCount, SharedValue},
};
use docent_testing::{
    TestingCluster, TestingServer,
    fault::Fault,
    server,
    tap::{Record, TapClient, What},
};
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use support::{
    fixture::{Fixture, reply, request},
    ms,
};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};
use tracing::Level;

/// The retries are enough for every fault of these tests.
fn options() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(10, Duration::from_millis(100)))
}

/// A mutex at the path of the fixture.
fn mutex(fixture: &Fixture, client: &Client) -> InterProcessMutex {
    InterProcessMutex::with_options(client, &fixture.path, options()).unwrap()
}

/// A mutex at the path of the fixture, without retries.
fn mutex_without_retries(fixture: &Fixture, client: &Client) -> InterProcessMutex {
    InterProcessMutex::with_options(client, &fixture.path, no_retries()).unwrap()
}

/// A read/write lock at the path of the fixture.
fn pair(fixture: &Fixture, client: &Client) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::with_options(client, &fixture.path, options()).unwrap()
}

/// A semaphore at the path of the fixture.
fn semaphore(fixture: &Fixture, client: &Client, leases: usize) -> InterProcessSemaphoreV2 {
    InterProcessSemaphoreV2::with_options(client, &fixture.path, leases, options()).unwrap()
}

/// A protected create in this mode, with the retries of [`options`].
fn protected(mode: CreateMode) -> ProtectedOptions<'static> {
    ProtectedOptions::new(mode).with_retry_policy(RetryNTimes::new(10, Duration::from_millis(100)))
}

/// No retries.
fn no_retries() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(0, Duration::ZERO))
}
