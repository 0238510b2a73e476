//! Holds of strict mutexes: each lasts until its proven bound, whatever becomes of its process and its node.

use std::collections::BTreeMap;

use super::belief::Belief;
use crate::{
    checks::proof::{PROVEN_DRIFT_PPM, work_until},
    world::{
        check::View,
        core::Core,
        history::What,
        time::{Nanos, Pid},
    },
};

/// The holds of strict mutexes that no release has ended, by lock and number.
#[derive(Default)]
pub(super) struct StrictHolds(BTreeMap<String, BTreeMap<u64, StrictHold>>);

struct StrictHold {
    pid: Pid,
    name: String,
    /// The true time of the proven bound, which outlives the process: others rely on it, such as a watchdog.
    until: Nanos,
}

impl StrictHolds {
    /// A holder has ended its work.
    pub(super) fn end(&mut self, id: u64) {
        self.0.values_mut().for_each(|holds| drop(holds.remove(&id)));
    }

    /// A process is shut down: its guards are dropped, which releases their locks.
    pub(super) fn end_all(&mut self, pid: Pid) {
        self.0.values_mut().for_each(|holds| holds.retain(|_, hold| hold.pid != pid));
    }

    /// Notes until when a hold is proven. Returns a violation if it begins within another one.
    pub(super) fn note(&mut self, view: &View<'_>, id: u64, belief: &Belief) -> Option<What> {
        let lock = &belief.parts.first().filter(|_| belief.is_strict())?.lock;
        let now = view.now;
        let until = work_until(belief.guard.proven_until());
        let left = until.duration_since(belief.client.now());
        let left = u128::from(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        let core = view.core();
        let rate = u128::try_from(1_000_000 + core.process(belief.pid).drift_ppm());
        let left = left * 1_000_000 / rate.unwrap_or(1_000_000);
        let until = now + u64::try_from(left).unwrap_or(u64::MAX - now);
        let of_lock = self.0.entry(lock.clone()).or_default();
        let is_new = !of_lock.contains_key(&id);
        let hold = StrictHold { pid: belief.pid, name: belief.name(), until };
        let other = of_lock.values().find(|other| is_new && other.until > now).map(|other| {
            let text = format!("{} begins within the hold of {}", hold.name, other.name);
            if is_beyond_drift(&core, other.pid) || is_beyond_drift(&core, belief.pid) {
                What::Counted { excuse: BEYOND_DRIFT, text }
            } else {
                What::Violation(text)
            }
        });
        of_lock.insert(id, hold);
        other
    }
}

/// The excuse for an overlap with a clock that no bound allows for.
pub(super) const BEYOND_DRIFT: &str = "a clock beyond 1 %";

/// Whether the clock of a process is so wrong that no bound allows for it.
pub(super) fn is_beyond_drift(core: &Core, pid: Pid) -> bool {
    let (least, greatest) = core.process(pid).drifts_ppm;
    least < -PROVEN_DRIFT_PPM || greatest > PROVEN_DRIFT_PPM
}

/// Whether the last holder of a strict mutex has released it.
pub(super) fn is_released(core: &Core, lock: &str) -> bool {
    let record = core.ensemble().node(lock).map(|(data, _)| data).unwrap_or_default();
    String::from_utf8_lossy(&record).contains(" free ")
}
