//! Tests of the leader recipes, each on the embedded server and, where possible, on a real one.

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

use crate::{
    nodes::next,
    support::{
        DEADLINE, eventually,
        fixture::{reply, request},
        has_watches, passes, poll_once, session_id, until, within_deadline,
    },
};
use docent::{
    Acl, Client, Config, ConnectionState, CreateMode, CreateOptions, Error, ErrorKind, Events,
    GroupMember, LeaderLatch, LeaderOptions, LeaderSelector, Leadership, LockOptions, NodeOptions,
    OpCode, Perms, PersistentNode, PersistentTtlNode, leader::LeadershipChange, nodes::NodeEvent,
    retry::RetryNTimes,
};
use docent_testing::{
    TestingServer,
    fault::Fault,
    tap::{Record, TapClient},
};
use std::{sync::Arc, time::Duration};
use support::{fixture::Fixture, ms};
use tokio::sync::oneshot;

/// The next change of a leadership.
async fn change(changes: &mut Events<LeadershipChange>) -> Option<LeadershipChange> {
    within_deadline("a change", changes.next()).await
}

async fn leads(latch: &LeaderLatch) -> Leadership {
    within_deadline("the leadership", latch.leadership()).await.unwrap()
}

/// The retries are enough for every fault of these tests.
fn options() -> LeaderOptions {
    lock_options().into()
}

fn lock_options() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(10, ms(100)))
}
