//! Draws registers, watches, and clients that come and go.

use fastrand::Rng;

use super::steps::{
    ClientStep, RegisterOp, RegisterStep, Step as Using, WatchEnd, WatchStep, WatchTarget,
};
use crate::{
    faults::{
        Fault, FaultKind, KillKind,
        draw::{one_in, pick},
    },
    plan::{
        ClientPlan,
        draw::{Setting, weighted, workers},
    },
    recipes::step::{Plan, Step, VisitEnd, VisitStep},
};

/// Adds processes that read, write and watch a few registers.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    let mix = Mix::draw(rng);
    for _ in 0..setting.processes(rng) {
        let workers = workers(rng, 4..=30, |rng| mix.step(rng, setting, mix.visit));
        let client = client(rng, setting);
        plan.processes.push(setting.process(rng, client, workers));
    }
}

/// Lets some processes go on with the session of another one.
pub(super) fn adjust(rng: &mut Rng, plan: &mut Plan) {
    for process in 1..plan.processes.len() {
        let is_of_registers =
            |step: &Step| matches!(step, Step::Registers(_) | Step::Visit(_) | Step::Sleep { .. });
        let has_registers_only =
            plan.processes[process].workers.iter().flatten().all(is_of_registers);
        if !has_registers_only || !one_in(rng, 5) {
            continue;
        }
        let of = rng.usize(..process);
        let starts_at_ms = rng.u64(1_000..plan.peace_at_ms);
        plan.processes[process].resumes = Some(of);
        plan.processes[process].starts_at_ms = starts_at_ms;
        // Two clients of one session fight for it, and one may close it: no holder of a lock can know that.
        let is_shared =
            plan.processes[of].workers.iter().flatten().all(is_of_registers) && one_in(rng, 4);
        if !is_shared {
            let how = pick(rng, &[KillKind::Killed, KillKind::PoweredOff, KillKind::ShutDown]);
            let at_ms = starts_at_ms - rng.u64(..900);
            plan.faults.push(Fault { at_ms, kind: FaultKind::Kill { process: of, how } });
        }
    }
}

/// Which steps a seed has, and how often.
struct Mix {
    register: u32,
    burst: u32,
    watch: u32,
    client: u32,
    visit: u32,
    nodes: u8,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        let mut weight = |choices: &[u32]| choices[rng.usize(..choices.len())];
        Self {
            register: weight(&[2, 6, 6]),
            burst: weight(&[0, 1, 4]),
            watch: weight(&[0, 2, 6]),
            client: weight(&[0, 0, 1]),
            visit: weight(&[0, 0, 1]),
            nodes: rng.u8(1..=3),
        }
    }

    fn step(&self, rng: &mut Rng, setting: &Setting, visit: u32) -> Step {
        let weights = [self.register, self.burst, self.watch, self.client, visit, 3];
        let choices: Vec<_> = weights.into_iter().zip(0..).collect();
        let step = match weighted(rng, &choices) {
            0 => Using::Register(self.register(rng)),
            1 => Using::Burst((0..rng.usize(2..12)).map(|_| self.register(rng)).collect()),
            2 => Using::Watch(self.watch(rng)),
            3 => Using::Client(client_step(rng, setting.members)),
            4 => return Step::Visit(self.visit(rng, setting)),
            _ => {
                let longest_ms = if one_in(rng, 4) { 3_000 } else { 200 };
                return Step::Sleep { ms: rng.u64(..longest_ms) };
            }
        };
        step.into()
    }

    fn visit(&self, rng: &mut Rng, setting: &Setting) -> VisitStep {
        let ends = [
            VisitEnd::Close,
            VisitEnd::CloseTwice,
            VisitEnd::CancelledClose,
            VisitEnd::Drop,
            VisitEnd::Resume,
        ];
        VisitStep {
            client: client(rng, setting),
            steps: (0..rng.usize(0..6)).map(|_| self.step(rng, setting, 0)).collect(),
            end: pick(rng, &ends),
        }
    }

    fn register(&self, rng: &mut Rng) -> RegisterStep {
        RegisterStep {
            node: rng.u8(..self.nodes),
            op: match rng.u8(..18) {
                0..=3 => RegisterOp::Read,
                4..=5 => RegisterOp::SyncRead,
                6 => RegisterOp::Exists,
                7..=9 => RegisterOp::Set,
                10..=11 => RegisterOp::CompareAndSet,
                12..=14 => RegisterOp::Create,
                15 => RegisterOp::Delete,
                16 => RegisterOp::CompareAndDelete,
                _ => RegisterOp::Multi(rng.u8(..self.nodes)),
            },
            size: pick(rng, &[0, 0, 0, 100, 600, 6_000]),
            cancel_ms: match rng.u8(..10) {
                0 => Some(0),
                1 => Some(rng.u64(1..200)),
                _ => None,
            },
        }
    }

    fn watch(&self, rng: &mut Rng) -> WatchStep {
        let node = rng.u8(..self.nodes);
        let keeps = one_in(rng, 3);
        WatchStep {
            target: match rng.u8(..7) {
                0 | 1 => WatchTarget::Data(node),
                2 => WatchTarget::Exists(node),
                3 => WatchTarget::Children,
                4 | 5 => WatchTarget::Persistent(node),
                _ => WatchTarget::Recursive,
            },
            for_ms: if keeps { rng.u64(..100) } else { rng.u64(..3_000) },
            end: if keeps {
                WatchEnd::Keep
            } else {
                pick(rng, &[WatchEnd::Drop, WatchEnd::Forget, WatchEnd::Remove])
            },
        }
    }
}

fn client_step(rng: &mut Rng, members: usize) -> ClientStep {
    match rng.u8(..12) {
        0 => ClientStep::Close,
        1 => ClientStep::Detach,
        _ => {
            let mut list: Vec<_> = (0..members).filter(|_| !one_in(rng, 2)).collect();
            if list.is_empty() {
                list.push(rng.usize(..members));
            }
            ClientStep::UpdateServerList(list)
        }
    }
}

fn client(rng: &mut Rng, setting: &Setting) -> ClientPlan {
    ClientPlan {
        is_dropped: false,
        max_request_bytes: one_in(rng, 6).then(|| rng.usize(60..400)),
        max_pending_bytes: one_in(rng, 6).then(|| rng.usize(100..2_000)),
        connection_timeout_ms: one_in(rng, 4).then(|| rng.u64(1_000..8_000)),
        ..setting.queueing_client(rng)
    }
}
