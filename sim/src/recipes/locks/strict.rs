//! Holds of strict mutexes: each lasts until its proven bound, whatever becomes of its process and its node.

use std::collections::BTreeMap;

use docent::{EventType, runtime::Instant};

use super::belief::Belief;
use crate::{
    checks::proof::work_until,
    world::{
        check::{Findings, View},
        core::Core,
        history::What,
        time::{Nanos, Pid},
        truth::Applied,
    },
};

/// The holds of strict mutexes that no release has ended, by lock and number.
#[derive(Default)]
pub(super) struct StrictHolds(BTreeMap<String, BTreeMap<u64, StrictHold>>);

struct StrictHold {
    pid: Pid,
    name: String,
    path: String,
    /// The true time of the proven bound, which outlives the process: others rely on it, such as a watchdog.
    until: Nanos,
    /// The same by the clock of the process.
    proven_until: Instant,
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

    /// Notes until when a hold is proven. A violation: it begins within another one.
    pub(super) fn note(&mut self, view: &View<'_>, id: u64, belief: &Belief, found: &mut Findings) {
        let Some(part) = belief.parts.first().filter(|_| belief.is_strict()) else { return };
        let now = view.now;
        let proven_until = work_until(belief.guard.proven_until());
        let left = proven_until.duration_since(belief.client.now());
        let left = u128::from(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        let core = view.core();
        let rate = u128::try_from(1_000_000 + core.process(belief.pid).drift_ppm());
        let left = left * 1_000_000 / rate.unwrap_or(1_000_000);
        let until = now + u64::try_from(left).unwrap_or(u64::MAX - now);
        let of_lock = self.0.entry(part.lock.clone()).or_default();
        let known = of_lock.get(&id).map(|hold| hold.proven_until);
        let is_new = known.is_none();
        let path = belief.guard.path().to_owned();
        if core.shows_frames && until > now && known != Some(proven_until) {
            found.push(What::HeldUntil { pid: belief.pid, path: path.clone(), until });
        }
        let hold = StrictHold { pid: belief.pid, name: belief.name(), path, until, proven_until };
        let other = of_lock.values().find(|other| is_new && other.until > now).map(|other| {
            let text = format!("{} begins within the hold of {}", hold.name, other.name);
            match excuse(&core, &part.lock, &other.path) {
                Some(excuse) => What::Counted { excuse, text },
                None => What::Violation(text),
            }
        });
        of_lock.insert(id, hold);
        other.into_iter().for_each(|other| found.push(other));
    }
}

/// The excuse for a hold that the next holder could not know of. `StrictMutex` documents it.
const WITHOUT_RECORD: &str = "the record of a strict mutex deleted by another client";

/// Why a strict hold may overlap with a later one.
pub(super) fn excuse(core: &Core, lock: &str, path: &str) -> Option<&'static str> {
    let is_creation = |applied: &&Applied| applied.change.event_type == EventType::NodeCreated;
    let created = |path| core.servers.truth.of(path).rfind(is_creation).map(|of| of.change.zxid);
    let is_without_record =
        core.disturbances.is_invalidated_by_others(lock) && created(lock) > created(path);
    is_without_record.then_some(WITHOUT_RECORD)
}

/// When the record of a strict mutex was first written with this node as its holder.
pub(super) fn granted_at(core: &Core, lock: &str, path: &str) -> Nanos {
    let name = path.rsplit('/').next().unwrap_or_default();
    let names_it = |applied: &&Applied| {
        let record = applied.change.node.as_ref();
        record.is_some_and(|(data, _)| String::from_utf8_lossy(data).contains(name))
    };
    core.servers.truth.of(lock).find(names_it).map_or(0, |grant| grant.at)
}

/// Whether the last holder of a strict mutex has released it.
pub(super) fn is_released(core: &Core, lock: &str) -> bool {
    let record = core.ensemble().node(lock).map(|(data, _)| data).unwrap_or_default();
    String::from_utf8_lossy(&record).contains(" free ")
}
