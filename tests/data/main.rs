//! Tests of the data recipes, each on the embedded server and, where possible, on a real one.

#[macro_use]
extern crate docent_tests as support;

mod atomic;
mod barriers;
mod interop;
mod stale;

use crate::{
    atomic::lock_options,
    barriers::double::{done, member, spawn_enter, spawn_leave},
    support::{
        DEADLINE,
        fixture::{Fixture, reply, request},
        has_no_request, has_watches, ms, poll_at_most, reaches, until, within_deadline,
    },
};
use docent::{
    AtomicOptions, Client, Config, ConnectionState, CreateMode, DistributedAtomicLong,
    DistributedBarrier, DistributedDoubleBarrier, Error, LockOptions, OpCode, Outcome, SharedValue,
    retry::RetryNTimes,
};
use docent_testing::{fault::Fault, tap::TapClient};
use std::time::Duration;
use tokio::task::JoinHandle;
