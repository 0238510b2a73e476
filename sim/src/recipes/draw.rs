//! Draws the plan of a seed: first its recipes, then their processes, then the faults.

use fastrand::Rng;

use super::{
    dispatch::{DRAWINGS, Drawing},
    step::{Plan, Step},
};
use crate::{
    faults::draw::{faults, one_in},
    plan::{
        draw::{Setting, empty, generator, weighted},
        renewals, sequences,
    },
};

/// The plan of a seed.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    let rng = &mut generator(seed, "plan");
    let mut plan = empty(seed, rng);
    let chosen = choose(rng);
    let setting = Setting::draw(rng, &plan, chosen.len() == 1);
    let mut chosen: Vec<_> =
        chosen.into_iter().map(|drawing| (drawing, generator(seed, drawing.name))).collect();
    for (drawing, rng) in &mut chosen {
        (drawing.add)(rng, &mut plan, &setting);
    }
    for process in &mut plan.processes {
        // A client that outlives its work shows for a while what others keep and what it has left behind.
        if one_in(rng, 3) {
            let ms = rng.u64(setting.peace_at_ms..setting.peace_at_ms + 60_000);
            process.workers.push(vec![Step::Sleep { ms }]);
        }
    }
    let (processes, members) = (plan.processes.len(), plan.servers.count);
    plan.faults = faults(&mut generator(seed, "faults"), processes, members, plan.peace_at_ms);
    for (drawing, rng) in &mut chosen {
        (drawing.adjust)(rng, &mut plan);
    }
    let has_holders_only =
        chosen.iter().all(|(drawing, _)| ["Locks", "Elections"].contains(&drawing.name));
    sequences::add(&mut plan, &mut generator(seed, "sequences"), has_holders_only);
    renewals::add(&mut plan, &mut generator(seed, "renewals"));
    plan.faults.retain(|fault| fault.at_ms < plan.peace_at_ms);
    plan.faults.sort_by_key(|fault| fault.at_ms);
    plan
}

/// Draws one recipe for a third of the plans, and up to four for the others.
fn choose(rng: &mut Rng) -> Vec<&'static Drawing> {
    let all: Vec<_> = DRAWINGS.iter().zip(0..).map(|(of, at)| (of.weight, at)).collect();
    let count = if one_in(rng, 3) { 1 } else { rng.usize(2..=4) };
    let chosen: std::collections::BTreeSet<usize> =
        (0..count).map(|_| weighted(rng, &all)).collect();
    chosen.into_iter().map(|at| &DRAWINGS[at]).collect()
}
