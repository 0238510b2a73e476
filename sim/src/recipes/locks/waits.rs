//! Acquires in progress: once no fault has an effect any more, a lock that is free for one of them is soon granted.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Since when each group is free for one of its acquires.
    free_since: BTreeMap<Group, Nanos>,
    next_look: Nanos,
}

/// Locks that acquires have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    locks: BTreeSet<String>,
    /// The acquires, where the next one begins to wait anew when one gives up.
    acquires: BTreeSet<u64>,
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
        for (locks, acquires) in self.groups() {
            if let Some((within, is_renewed)) = self.is_free(&core, now, held, &locks, &acquires) {
                let acquires = if is_renewed { acquires } else { BTreeSet::new() };
                let group = Group { locks, acquires };
                let mut since = *self.free_since.get(&group).unwrap_or(&now);
                if now > since + within {
                    let locks: Vec<_> = group.locks.iter().map(String::as_str).collect();
                    found.violation(format!("{} is free, but not granted", locks.join(" and ")));
                    since = now + 1_000 * GRANTED_WITHIN;
                }
                free.insert(group, since);
            }
        }
        self.free_since = free;
    }

    /// The locks that are waited for, those together that one acquire waits for, with their acquires.
    fn groups(&self) -> Vec<(BTreeSet<String>, BTreeSet<u64>)> {
        let mut groups: Vec<(BTreeSet<String>, BTreeSet<u64>)> = Vec::new();
        for (number, (_, parts)) in &self.open {
            let mut locks: BTreeSet<_> = parts.iter().map(|part| part.lock.clone()).collect();
            let mut acquires = BTreeSet::from([*number]);
            for group in
                groups.extract_if(.., |(of, _)| !of.is_disjoint(&locks)).collect::<Vec<_>>()
            {
                locks.extend(group.0);
                acquires.extend(group.1);
            }
            groups.push((locks, acquires));
        }
        groups
    }

    /// Within which time one of these acquires must be granted, and whether that time begins again when the acquires
    /// change; `None`: none must.
    fn is_free(
        &self,
        core: &Core,
        now: Nanos,
        held: &BTreeMap<u64, Belief>,
        locks: &BTreeSet<String>,
        acquires: &BTreeSet<u64>,
    ) -> Option<(Nanos, bool)> {
        let waiting = || acquires.iter().filter_map(|number| self.open.get(number));
        let concerns = |belief: &&Belief| belief.parts.iter().any(|of| locks.contains(&of.lock));
        let beliefs = || held.values().filter(concerns);
        let pids = waiting().map(|(pid, _)| *pid).chain(beliefs().map(|belief| belief.pid));
        let is_settled =
            pids.clone().all(|pid| core.process(pid).is_running() && core.is_settled(pid, now));
        if !is_settled || !locks.iter().all(|lock| causes::is_queue_of(core, lock, pids.clone())) {
            return None;
        }
        let modes = || waiting().flat_map(|(_, parts)| parts.iter().map(|part| part.mode));
        // Several parts are acquired one after the other.
        let most = waiting().map(|(_, parts)| parts.len()).max()?;
        let within = GRANTED_WITHIN * u64::try_from(most).unwrap_or(u64::MAX);
        let lock = locks.first()?;
        match modes().next()? {
            Mode::Lease(limit) => {
                // Two acquires that have some leases each may wait for each other.
                let wanted = if most > 1 && acquires.len() > 1 { usize::MAX } else { most };
                let limit = count_of(core, lock).unwrap_or(limit);
                let left = limit.saturating_sub(beliefs().count());
                (wanted <= left).then_some((within, most > 1))
            }
            Mode::Shared if modes().all(|mode| mode == Mode::Shared) => {
                let mut held = beliefs().flat_map(|belief| &belief.parts);
                let is_beside =
                    held.all(|part| !locks.contains(&part.lock) || part.mode == Mode::Shared);
                is_beside.then_some((within, false))
            }
            _ if beliefs().next().is_some() => None,
            // Contenders wait for the claim of a lost holder, from when each of them is the first one; twice, if somebody
            // writes the record meanwhile.
            Mode::Strict if !is_released(core, lock) => {
                let claim = core.disturbances.session_over_for_client_at(0);
                let written_at = core.servers.truth.of(lock).next_back().map_or(0, |last| last.at);
                (written_at + claim < now).then_some((within + 2 * claim, true))
            }
            _ => Some((within, most > 1)),
        }
    }
}
