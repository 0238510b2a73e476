//! Draws the plan of a seed: first its recipes, then their processes, then the faults.

use docent_protocol::Perms;
use fastrand::Rng;

use super::{
    dispatch::{DRAWINGS, Drawing},
    step::{NeighbourStep, Plan, Step},
};
use crate::{
    checks::servers,
    faults::{
        Fault, FaultKind,
        draw::{faults, one_in, pick},
    },
    plan::{
        PlanStep,
        draw::{Setting, empty, generator, weighted},
        renewals, sequences,
    },
    world::time::MILLISECOND,
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
        // A client that outlives its work shows for a while which nodes others keep, and which it has left behind.
        if one_in(rng, 3) {
            let ms = rng.u64(setting.peace_at_ms..setting.peace_at_ms + 60_000);
            process.workers.push(vec![Step::Sleep { ms }]);
        }
    }
    add_neighbour(&mut plan, &mut generator(seed, "neighbour"));
    let (processes, members) = (plan.processes.len(), plan.servers.count);
    plan.faults = faults(&mut generator(seed, "faults"), processes, members, plan.peace_at_ms);
    for (drawing, rng) in &mut chosen {
        (drawing.adjust)(rng, &mut plan);
    }
    let has_holders_only =
        chosen.iter().all(|(drawing, _)| ["Locks", "Elections"].contains(&drawing.name));
    sequences::add(&mut plan, &mut generator(seed, "sequences"), has_holders_only);
    renewals::add(&mut plan, &mut generator(seed, "renewals"));
    add_returns(&mut plan, &mut generator(seed, "returns"));
    add_upgrades(&mut plan, &mut generator(seed, "upgrades"));
    keep_events(&mut plan);
    keep_addresses(&mut plan);
    plan.faults.retain(|fault| fault.at_ms < plan.peace_at_ms);
    plan.faults.sort_by_key(|fault| fault.at_ms);
    plan
}

/// Leaves everyone the right to read where the servers send no event of a node that its watcher may not read: the watch is
/// silent then, which no client can know.
fn keep_events(plan: &mut Plan) {
    // Of the versions that are drawn, the default does.
    let upgrades = |fault: &Fault| matches!(fault.kind, FaultKind::Upgrade { .. });
    if plan.servers.version.is_none() || plan.faults.iter().any(upgrades) {
        for fault in &mut plan.faults {
            if let FaultKind::Deny { perms, .. } = &mut fault.kind {
                *perms &= !Perms::READ.number();
            }
        }
    }
}

/// Leaves each address to one server, if clients rely on that.
fn keep_addresses(plan: &mut Plan) {
    if plan.processes.iter().any(|process| process.client.direct_servers) {
        for fault in &mut plan.faults {
            if let FaultKind::Resolve { leads_to, .. } = &mut fault.kind {
                *leads_to = None;
            }
        }
    }
}

/// In half of the plans with three servers of 3.5, upgrades one after the other to the latest version, perhaps with a way
/// back in between.
fn add_upgrades(plan: &mut Plan, rng: &mut Rng) {
    if plan.servers.count != 3 || plan.servers.version.as_deref() != Some("3.5") || rng.bool() {
        return;
    }
    let mut steps: Vec<_> = [0, 1, 2].map(|member| (member, "3.9")).into();
    if one_in(rng, 3) {
        let back = rng.usize(..3);
        steps.splice(back + 1..back + 1, [(back, "3.5"), (back, "3.9")]);
    }
    let pause = plan.peace_at_ms / 8;
    for (at_ms, (member, version)) in (1..).map(|step| step * pause).zip(steps) {
        let kind =
            FaultKind::Upgrade { member, version: version.to_owned(), for_ms: rng.u64(1..pause) };
        plan.add_fault(at_ms, kind);
    }
}

/// In a quarter of the plans, lets a process meddle with the nodes of all recipes.
fn add_neighbour(plan: &mut Plan, rng: &mut Rng) {
    let count = plan.processes.len();
    let Some(process) = plan.processes.get_mut(rng.usize(..count.max(1))) else { return };
    if one_in(rng, 4) {
        let mut step = || match rng.u8(..3) {
            0 => Step::Sleep { ms: rng.u64(..2_000) },
            _ => Step::Neighbour(NeighbourStep { node: rng.u16(..), deletes: one_in(rng, 4) }),
        };
        process.workers.push((0..60).map(|_| step()).collect());
    }
}

/// In a third of the plans with several servers, lets the clients return to a better one.
fn add_returns(plan: &mut Plan, rng: &mut Rng) {
    if plan.servers.count == 1 || !one_in(rng, 3) {
        return;
    }
    let (count, has_changes) = (plan.servers.count, plan.servers.reconfig);
    for process in &mut plan.processes {
        let mut renewals = process.workers.iter_mut().flatten().filter_map(PlanStep::renew_ms);
        let is_proven = renewals.any(|renew_ms| renew_ms.is_some());
        let client = &mut process.client;
        client.failback_ms = Some(pick(rng, &[1_000, 2_000, 6_000]));
        // A client does not return while it renews a proven bound; and a member that has left the ensemble serves no
        // client.
        if !is_proven && !has_changes && one_in(rng, 2) {
            client.prefers = Some(rng.usize(..count));
            let ms = plan.peace_at_ms + servers::judged_after(client) / MILLISECOND;
            process.workers.push(vec![Step::Sleep { ms }]);
        }
    }
}

/// Draws one recipe for a third of the plans, and up to four for the others.
fn choose(rng: &mut Rng) -> Vec<&'static Drawing> {
    let all: Vec<_> = DRAWINGS.iter().zip(0..).map(|(of, at)| (of.weight, at)).collect();
    let count = if one_in(rng, 3) { 1 } else { rng.usize(2..=4) };
    let chosen: std::collections::BTreeSet<usize> =
        (0..count).map(|_| weighted(rng, &all)).collect();
    chosen.into_iter().map(|at| &DRAWINGS[at]).collect()
}
