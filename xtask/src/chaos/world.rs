//! What the threads of a run share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::history::{History, now};
use super::members::Members;
use super::network::Network;
use super::peers::Peer;

/// A run.
pub(super) struct World {
    pub(super) seed: u64,
    /// When the run began.
    pub(super) start: u64,
    pub(super) history: History,
    pub(super) network: Arc<Network>,
    pub(super) members: Members,
    /// The clients that faults are about; short-lived clients come behind them.
    pub(super) peers: Vec<Arc<Peer>>,
    /// The number of hosts with a client.
    pub(super) hosts: usize,
    pub(super) counters: Counters,
    /// The sets in memory that clients change under a lock: the naive and the proven one.
    pub(super) naive_set: Mutex<BTreeSet<u64>>,
    pub(super) proven_set: Mutex<BTreeSet<u64>>,
    /// The number of registers.
    pub(super) registers: u64,
    stops: AtomicBool,
}

/// What the last line and the progress show.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) holds: Counter,
    pub(super) guarded: Counter,
    pub(super) operations: Counter,
    pub(super) faults: Counter,
    pub(super) elements: Counter,
    pub(super) stuck: Counter,
}

/// A number that threads increase.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Returns the number before.
    pub(super) fn add(&self, number: u64) -> u64 {
        self.0.fetch_add(number, Ordering::Relaxed)
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The parts of a world that its maker chooses.
pub(super) struct Parts {
    pub(super) seed: u64,
    pub(super) history: History,
    pub(super) network: Arc<Network>,
    pub(super) members: Members,
    pub(super) peers: Vec<Arc<Peer>>,
    pub(super) hosts: usize,
    pub(super) registers: u64,
}

impl World {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { seed, history, network, members, peers, hosts, registers } = parts;
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
            registers,
            stops: AtomicBool::new(false),
        }
    }

    pub(super) fn peer(&self, index: usize) -> &Peer {
        #[expect(clippy::indexing_slicing, reason = "a plan names clients that exist")]
        &self.peers[index]
    }

    /// Sleeps until a time, or until the run stops.
    pub(super) fn sleep_until(&self, until: u64) {
        while !self.is_stopping() {
            let left = until.saturating_sub(now());
            if left == 0 {
                return;
            }
            thread::sleep(Duration::from_nanos(left).min(Duration::from_millis(100)));
        }
    }

    pub(super) fn sleep_ms(&self, ms: u64) {
        self.sleep_until(now() + ms * MILLISECOND);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In nanoseconds.
pub(super) const MILLISECOND: u64 = 1_000_000;
