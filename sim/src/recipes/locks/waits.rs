//! Acquires in progress: once no fault has an effect any more, a lock that is free for one of them is soon granted.

use std::collections::BTreeMap;

use super::{
    belief::{Belief, Mode, Part},
    check::Holds,
    objects::count_of,
    strict::is_released,
};
use crate::{
    checks::causes::{self, GRANTED_WITHIN},
    world::{
        World,
        check::{Findings, View},
        core::Core,
        time::{MILLISECOND, Nanos, Pid},
    },
};

/// The interval at which the acquires are looked at.
const LOOKS_EVERY: Nanos = 500 * MILLISECOND;

/// The acquires in progress.
#[derive(Default)]
pub(super) struct Waits {
    open: BTreeMap<u64, (Pid, Vec<Part>)>,
    /// Since when each lock is free for one of them.
    free_since: BTreeMap<String, Nanos>,
    next_look: Nanos,
}

/// An acquire in progress, until this is dropped.
pub(super) struct Waiting(World, u64);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.check::<Holds>().waits.open.remove(&self.1);
    }
}

/// An acquire of these locks begins.
pub(super) fn begin(world: &World, pid: Pid, parts: Vec<Part>) -> Waiting {
    let number = world.next_number();
    world.check::<Holds>().waits.open.insert(number, (pid, parts));
    Waiting(world.clone(), number)
}

impl Waits {
    /// Compares the acquires with the holds.
    pub(super) fn look(
        &mut self,
        view: &View<'_>,
        held: &BTreeMap<u64, Belief>,
        found: &mut Findings,
    ) {
        let now = view.now;
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOKS_EVERY;
        let core = view.core();
        let mut free = BTreeMap::new();
        for lock in self.open.values().flat_map(|(_, parts)| parts).map(|part| &part.lock) {
            if !free.contains_key(lock) && self.is_free(&core, now, held, lock) {
                let since = *self.free_since.get(lock).unwrap_or(&now);
                free.insert(lock.clone(), since);
            }
        }
        for (lock, since) in &mut free {
            if now > *since + GRANTED_WITHIN {
                found.violation(format!("{lock} is free, but not granted"));
                *since = now + 1_000 * GRANTED_WITHIN;
            }
        }
        self.free_since = free;
    }

    /// Whether one of the acquires of a lock must be granted.
    fn is_free(&self, core: &Core, now: Nanos, held: &BTreeMap<u64, Belief>, lock: &str) -> bool {
        let waiting = || {
            let waits = self.open.values();
            waits.filter(|(_, parts)| parts.iter().any(|part| part.lock == lock))
        };
        let beliefs =
            || held.values().filter(|belief| belief.parts.iter().any(|of| of.lock == lock));
        let holders = beliefs().map(|belief| belief.pid);
        let pids = waiting().map(|(pid, _)| *pid).chain(holders);
        // An acquire of several locks may have this one already.
        let modes = || waiting().flat_map(|(_, parts)| parts.iter().map(|part| part.mode));
        let is_open = match waiting().flat_map(|(_, parts)| parts).next().map(|part| part.mode) {
            _ if waiting().any(|(_, parts)| parts.len() > 1) => false,
            Some(Mode::Lease(limit)) => {
                let limit = count_of(core, lock).unwrap_or(limit);
                beliefs().count() < limit
            }
            Some(Mode::Shared | Mode::Exclusive) if modes().all(|mode| mode == Mode::Shared) => {
                let mut held = beliefs().flat_map(|belief| &belief.parts);
                held.all(|part| part.lock != lock || part.mode == Mode::Shared)
            }
            // Contenders have to wait for the claim of a lost holder.
            Some(Mode::Strict) => beliefs().next().is_none() && is_released(core, lock),
            _ => beliefs().next().is_none(),
        };
        is_open
            && pids.clone().all(|pid| core.process(pid).is_running() && core.is_settled(pid, now))
            && causes::is_queue_of(core, lock, pids)
    }
}
