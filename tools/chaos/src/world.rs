//! The state that the threads of a run share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::history::{History, now};
use crate::members::Members;
use crate::network::Network;
use crate::peers::Peer;

pub(crate) struct World {
    pub(crate) seed: u64,
    /// The time at which the run began.
    pub(crate) start: u64,
    pub(crate) history: History,
    pub(crate) network: Arc<Network>,
    pub(crate) members: Members,
    /// The long-lived clients, which faults may hit, followed by the short-lived ones.
    pub(crate) peers: Vec<Arc<Peer>>,
    /// The number of hosts that have a client.
    pub(crate) hosts: usize,
    pub(crate) counters: Counters,
    /// The sets in memory that clients change under a lock: the naive and the proven one.
    pub(crate) naive_set: Mutex<BTreeSet<u64>>,
    pub(crate) proven_set: Mutex<BTreeSet<u64>>,
    stops: AtomicBool,
}

/// The counters of the progress lines.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) holds: Counter,
    pub(crate) guarded: Counter,
    pub(crate) operations: Counter,
    pub(crate) faults: Counter,
    pub(crate) elements: Counter,
    pub(crate) stuck: Counter,
}

/// A number that several threads increase.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Increases the number and returns the previous one.
    pub(crate) fn add(&self, number: u64) -> u64 {
        self.0.fetch_add(number, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl World {
    pub(crate) fn new(
        seed: u64,
        history: History,
        network: Arc<Network>,
        members: Members,
        peers: Vec<Arc<Peer>>,
        hosts: usize,
    ) -> Self {
        Self {
            seed,
            start: now(),
            history,
            network,
            members,
            peers,
            hosts,
            counters: Counters::default(),
            naive_set: Mutex::default(),
            proven_set: Mutex::default(),
            stops: AtomicBool::new(false),
        }
    }

    pub(crate) fn peer(&self, index: usize) -> &Peer {
        #[expect(clippy::indexing_slicing, reason = "a plan names clients that exist")]
        &self.peers[index]
    }

    /// Sleeps until a time, or until the run stops.
    pub(crate) fn sleep_until(&self, until: u64) {
        while !self.is_stopping() {
            let left = until.saturating_sub(now());
            if left == 0 {
                return;
            }
            thread::sleep(Duration::from_nanos(left).min(Duration::from_millis(100)));
        }
    }

    pub(crate) fn sleep_ms(&self, ms: u64) {
        self.sleep_until(now() + ms * MILLISECOND);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

/// The number of nanoseconds in a millisecond.
pub(crate) const MILLISECOND: u64 = 1_000_000;
