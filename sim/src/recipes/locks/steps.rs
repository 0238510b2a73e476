//! Steps with locks, as data.

use serde::{Deserialize, Serialize};

use crate::{
    plan::PlanStep,
    recipes::common::{HoldWatch, Retry},
};

/// A step with locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Acquires a lock, holds it, and releases it.
    Lock(LockStep),
    /// Asks the first holder or waiter of a lock to release it.
    Revoke { lock: LockName },
    /// Deletes the first node in the queue of a lock, as an operator would.
    DeleteNode { lock: LockName },
    /// Changes the number of leases of a `CountedSemaphore`.
    SetCount {
        /// The number of the semaphore.
        number: u8,
        count: u8,
    },
}

impl PlanStep for Step {
    fn lasts_ms(&self) -> u64 {
        if let Self::Lock(step) = self { step.hold_ms } else { 0 }
    }

    fn hold_ms(&mut self) -> Option<&mut u64> {
        if let Self::Lock(step) = self { Some(&mut step.hold_ms) } else { None }
    }

    fn renew_ms(&mut self) -> Option<&mut Option<u64>> {
        if let Self::Lock(step) = self { Some(&mut step.options.renew_ms) } else { None }
    }

    fn never_retry(&mut self) {
        if let Self::Lock(step) = self {
            step.options.retry = Retry::Never;
        }
    }
}

/// One use of a lock.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LockStep {
    pub lock: LockName,
    /// The longest wait for it, in milliseconds; `None`: for ever.
    pub wait_ms: Option<u64>,
    /// The time after which the future of the acquire is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
    /// The number of polls after which the future of the acquire is dropped; `None`: never.
    pub cancel_polls: Option<u32>,
    /// How long it is held.
    pub hold_ms: u64,
    /// How the hold ends.
    pub end: HoldEnd,
    /// The options of the lock object.
    pub options: LockSettings,
    /// Whether the step makes a new lock object. Otherwise the workers of a process share one.
    pub fresh: bool,
    /// Whether the lock is revocable, and released when a revocation is requested. The lock object is then fresh.
    pub revocable: bool,
    /// The owner of a re-entrant acquire. The workers of a process share its owners.
    pub owner: Option<u8>,
    /// The number of leases of a semaphore; 0 and 1: one.
    pub quantity: u8,
    /// How the loss of the lock is noticed.
    pub watch: HoldWatch,
    /// The number of guarded writes to the register of the lock.
    pub writes: u8,
    /// Whether the checker refrains from calling `is_held`, which would end a hold whose time is up.
    pub unasked: bool,
    /// Locks that the same owner acquires while it holds this one.
    pub then: Vec<InnerLock>,
    /// Whether the holds end in the order in which they began. Otherwise the last one ends first.
    pub first_ends_first: bool,
}

/// A lock that an owner acquires while it holds another one of the same path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnerLock {
    pub lock: LockName,
    /// The longest wait for it, in milliseconds; `None`: for ever.
    pub wait_ms: Option<u64>,
    /// How the hold ends.
    pub end: HoldEnd,
    /// Whether the owner ends its first hold before, if it has another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_exit: bool,
}

/// A lock, by its kind and number: locks of equal names are one lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockName {
    /// An `InterProcessMutex`.
    Mutex(u8),
    /// An `InterProcessMutex` in a namespace.
    Namespaced(u8),
    /// An `InterProcessSemaphoreMutex`.
    SemaphoreMutex(u8),
    /// An `InterProcessSemaphoreV2` with a constant number of leases.
    Semaphore {
        number: u8,
        /// The number of leases.
        leases: u8,
    },
    /// An `InterProcessSemaphoreV2` with as many leases as a `SharedCount` says.
    CountedSemaphore(u8),
    /// The read lock of an `InterProcessReadWriteLock`.
    Read(u8),
    /// The write lock of an `InterProcessReadWriteLock`.
    Write(u8),
    /// An `InterProcessMultiLock` of these.
    Multi(Vec<LockName>),
    /// A `StrictMutex`.
    Strict(u8),
}

/// Options of a lock object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LockSettings {
    /// The retry policy.
    pub retry: Retry,
    /// Whether the listing is sent with the create.
    pub pipelined: bool,
    /// How often the proven bound of a hold is renewed; `None`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_ms: Option<u64>,
}

/// How a hold ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldEnd {
    /// `release().await`.
    #[default]
    Release,
    /// The guard is dropped.
    Drop,
    /// `release()` is begun, and its future dropped after the first poll.
    CancelledRelease,
    /// The guard is kept until the process ends.
    Keep,
}

impl Default for LockName {
    fn default() -> Self {
        Self::Mutex(0)
    }
}
