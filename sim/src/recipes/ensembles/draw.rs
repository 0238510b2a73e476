//! Draws ensembles whose members change, and clients that follow them.

use fastrand::Rng;

use super::steps::{MemberChange, Step as Changing};
use crate::{
    faults::draw::pick,
    plan::draw::Setting,
    recipes::step::{Plan, Step},
};

/// Adds an operator, and clients that follow the members.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    plan.servers.count = 3;
    plan.servers.reconfig = true;
    // 3.4 has no `reconfig`.
    plan.servers.version = Some(pick(rng, &["3.8", "3.9"]).to_owned());
    let mut steps = Vec::new();
    for _ in 0..rng.usize(3..=12) {
        steps.push(Step::Sleep { ms: rng.u64(..4_000) });
        let change = pick(rng, &[MemberChange::Leave, MemberChange::Join, MemberChange::Observe]);
        steps.push(Changing::Reconfigure { member: rng.u8(..3), change }.into());
    }
    let client = setting.client(rng);
    plan.processes.push(setting.process(rng, client, vec![steps]));
    for _ in 0..rng.usize(1..=2) {
        let mut steps = Vec::new();
        for _ in 0..rng.usize(..3) {
            steps.push(Changing::Track { for_ms: rng.u64(..6_000), stays: false }.into());
            steps.push(Step::Sleep { ms: rng.u64(..2_000) });
        }
        let for_ms = rng.u64(1_000..60_000);
        steps.push(Changing::Track { for_ms, stays: true }.into());
        let client = setting.client(rng);
        plan.processes.push(setting.process(rng, client, vec![steps]));
    }
}
