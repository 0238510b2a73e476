//! Tests of `docent::blocking`, each on the embedded server and, where possible, on a real one.

extern crate docent_tests as support;

#[macro_use]
mod server;

mod client;
mod end;
mod locks;
mod recipes;
mod runtimes;

use crate::{
    server::Server,
    support::{DEADLINE, eventually_blocking, until_blocking},
};
use docent::{
    AddWatchMode, CacheOptions, Config, CreateMode, CreateOptions, CuratorCache, Error, ErrorKind,
    Outcome,
    blocking::{
        Client, InterProcessMutex, InterProcessSemaphoreV2, LeaderLatch, wait, wait_timeout,
    },
};
use docent_discovery::{ServiceDiscovery, ServiceInstance};
use std::{future::Future, thread, time::Duration};

/// A timeout that expires before the awaited event.
const SHORT: Duration = Duration::from_millis(50);
