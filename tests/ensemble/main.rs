//! The client on ensembles whose members are killed, stopped and restarted, or are too few for a
//! majority.

#[macro_use]
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

use crate::{
    ensemble::{Ensemble, TICK},
    lost_members::Frozen,
    support::{
        eventually, passes, reaches,
        real::{RealEnsemble, settings, unique_path},
        session_id, until, within_deadline,
    },
};
use docent::{
    AddWatchMode, Client, Config, ConnectionState, CreateMode, ErrorKind, EventType,
    InterProcessMutex, LockGuard, Outcome,
};
use docent_testing::{TestingCluster, server, tap::Tap};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
