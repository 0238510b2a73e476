//! A hold, as its holder sees it.

use std::sync::Arc;

use docent::{
    Client, EventType, LockGuard, locks::CancellationToken, runtime::Instant, session::SessionLease,
};

use crate::{
    checks::proof::Proof,
    recipes::common::HoldWatch,
    world::{
        check::View,
        time::{Nanos, Pid},
        truth::{Applied, Truth},
    },
};

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// By one owner.
    Exclusive,
    /// By one owner, until its proven bound.
    Strict,
    /// Beside other readers.
    Shared,
    /// Beside other leases, up to this number.
    Lease(usize),
}

/// A lock, and how it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The path of the lock.
    pub(super) lock: String,
    /// The mode of the hold.
    pub(super) mode: Mode,
}

/// A hold, as its holder sees it.
pub(super) struct Belief {
    pub(super) pid: Pid,
    pub(super) worker: usize,
    pub(super) parts: Vec<Part>,
    /// The lock nodes, each of which must belong to `session`.
    pub(super) paths: Vec<String>,
    pub(super) session: i64,
    pub(super) owner: (Pid, u64),
    pub(super) watch: HoldWatch,
    pub(super) token: Option<CancellationToken>,
    pub(super) is_unasked: bool,
    /// The last change of a revocable node before the hold began.
    pub(super) revocable_since: Option<i64>,
    /// When the revocation was requested.
    pub(super) revoked_since: Option<Nanos>,
    /// When the holder began to wait for the end of the hold; `None`: it does not wait.
    pub(super) watching_since: Option<Nanos>,
    /// When the running process could first know that the hold had ended.
    pub(super) over_since: Option<Nanos>,
    /// When a node was first missing while the process was running.
    pub(super) missing_since: Option<Nanos>,
    /// When that node was deleted.
    pub(super) gone_at: Nanos,
    /// Where its proven bound was last seen to lie.
    pub(super) proof: Proof,
    /// The bounds in the history, if that shows the wire.
    pub(super) shown: Option<(Instant, Instant)>,
    /// When the servers deleted the nodes with the session.
    pub(super) ended_at: Option<Nanos>,
    pub(super) client: Client,
    pub(super) lease: Option<Arc<SessionLease>>,
    pub(super) guard: Arc<LockGuard>,
}

impl Belief {
    pub(super) fn who(&self) -> String {
        let modes: Vec<_> = self.parts.iter().map(|part| format!("{:?}", part.mode)).collect();
        format!("p{}.{} ({})", self.pid, self.worker, modes.join(", "))
    }

    pub(super) fn name(&self) -> String {
        let locks: Vec<_> = self.parts.iter().map(|part| part.lock.as_str()).collect();
        format!("{}: {}", locks.join(", "), self.who())
    }

    /// Whether `is_held` would return true to the process.
    pub(super) fn is_believed(&self, view: &View<'_>) -> bool {
        view.is_running(self.pid) && self.over_since.is_none()
    }

    /// Whether the session is lost or its time is up. Does not call `is_held`, which would end the hold.
    pub(super) fn time_is_up(&self) -> bool {
        let now = self.client.now();
        let is_lost =
            self.lease.as_ref().is_none_or(|lease| lease.is_lost() || now > lease.deadline());
        is_lost || self.is_strict() && now >= self.guard.proven_until()
    }

    pub(super) fn writes(&self, lock: &str) -> bool {
        self.parts.iter().any(|part| part.mode == Mode::Exclusive && part.lock == lock)
    }

    /// The limit of a lease of this semaphore, if the hold is one.
    pub(super) fn leases(&self, lock: &str) -> Option<usize> {
        self.parts.iter().find_map(|part| match part.mode {
            Mode::Lease(limit) if part.lock == lock => Some(limit),
            _ => None,
        })
    }

    /// Whether the hold lasts until its proven bound, even if its node is gone.
    pub(super) fn is_strict(&self) -> bool {
        self.parts.iter().all(|part| part.mode == Mode::Strict)
    }
}

/// The token of the write node that a read node continues after a downgrade. Both have the same sequence number, which
/// no other node of the queue has. The numbers begin again when the queue is deleted.
pub(super) fn continued_write(truth: &Truth, part: &Part, path: &str) -> Option<i64> {
    let (_, number) = path.rsplit_once("__READ__").filter(|_| part.mode == Mode::Shared)?;
    let (below, end) = (format!("{}/", part.lock), format!("__WRIT__{number}"));
    let is_creation = |applied: &&Applied| applied.change.event_type == EventType::NodeCreated;
    let queue = truth.of(&part.lock).rfind(is_creation)?.change.zxid;
    let later = truth.changes.iter().rev().take_while(|applied| applied.change.zxid > queue);
    let mut later = later.filter(is_creation).map(|applied| &applied.change);
    let write = later.find(|of| of.path.starts_with(&below) && of.path.ends_with(&end));
    write.map(|write| write.zxid)
}

/// The lock that two holds exclude each other from.
pub(super) fn conflict<'a>(a: &'a Belief, b: &Belief) -> Option<&'a str> {
    if a.owner == b.owner {
        return None;
    }
    let excludes = |one: &Part, other: &Part| {
        let beside = matches!(
            (one.mode, other.mode),
            (Mode::Shared, Mode::Shared) | (Mode::Lease(_), Mode::Lease(_))
        );
        one.lock == other.lock && !beside
    };
    let part = a.parts.iter().find(|one| b.parts.iter().any(|other| excludes(one, other)));
    part.map(|part| part.lock.as_str())
}
