//! Registers: nodes below `/r` that are read, written and watched, by clients that come and go.

mod run;
mod steps;
mod watch;

use std::ops::RangeInclusive;

use fastrand::Rng;

pub use self::steps::*;
use super::{
    calls::Calls,
    recipe::Recipe,
    step::{self, Plan, VisitEnd, VisitStep},
    worker::Worker,
};
use crate::{
    faults::{
        Fault, FaultKind, KillKind,
        draw::{one_in, pick},
    },
    plan::{
        ClientPlan,
        draw::{Setting, weighted},
    },
    world::check::Checks,
};

/// Which steps a plan has, and how often.
pub(super) struct Registers {
    register: u32,
    burst: u32,
    watch: u32,
    client: u32,
    visit: u32,
    nodes: u8,
}

impl Recipe for Registers {
    type Step = Step;
    const WEIGHT: u32 = 6;
    const STEPS: RangeInclusive<usize> = 4..=30;
    const PAUSE_MS: u64 = 800;

    fn draw(rng: &mut Rng) -> Self {
        Self {
            register: pick(rng, &[2, 6, 6]),
            burst: pick(rng, &[0, 1, 4]),
            watch: pick(rng, &[0, 2, 6]),
            client: pick(rng, &[0, 0, 1]),
            visit: pick(rng, &[0, 0, 1]),
            nodes: rng.u8(1..=3),
        }
    }

    fn step(&self, rng: &mut Rng, setting: &Setting) -> Option<step::Step> {
        let weights = [self.register, self.burst, self.watch, self.client, self.visit, 3];
        let choices: Vec<_> = weights.into_iter().zip(0..).collect();
        let step = match weighted(rng, &choices) {
            0 => Step::Register(self.register(rng)),
            1 => Step::Burst((0..rng.usize(2..12)).map(|_| self.register(rng)).collect()),
            2 => Step::Watch(self.watch(rng)),
            3 => Step::Client(client_step(rng, setting.members)),
            4 => return Some(step::Step::Visit(self.visit(rng, setting))),
            _ => return None,
        };
        Some(step.into())
    }

    fn client(&self, rng: &mut Rng, setting: &Setting) -> ClientPlan {
        ClientPlan {
            is_dropped: false,
            max_request_bytes: one_in(rng, 6).then(|| rng.usize(60..400)),
            max_pending_bytes: one_in(rng, 6).then(|| rng.usize(100..2_000)),
            connection_timeout_ms: one_in(rng, 4).then(|| rng.u64(1_000..8_000)),
            ..setting.queueing_client(rng)
        }
    }

    /// Lets some processes resume the session of another one.
    fn adjust(rng: &mut Rng, plan: &mut Plan) {
        // The end of a holder's session matters most. Only sessions of earlier processes are resumed: those of
        // elections, whose nodes would stay with the session, come later.
        let holders = plan.holders();
        for process in 1..plan.processes.len() {
            let is_of_registers = |step: &step::Step| {
                use step::Step::{Registers, Sleep, Visit};
                matches!(step, Registers(_) | Visit(_) | Sleep { .. })
            };
            let has_registers_only =
                plan.processes[process].workers.iter().flatten().all(is_of_registers);
            if !has_registers_only || plan.peace_at_ms < 2_000 || !one_in(rng, 3) {
                continue;
            }
            let holders: Vec<_> = holders.iter().copied().filter(|of| *of < process).collect();
            let of =
                rng.choice(holders).filter(|_| rng.bool()).unwrap_or_else(|| rng.usize(..process));
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

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Register(step) => run::burst(worker, &[step]).await,
            Step::Burst(steps) => run::burst(worker, &steps).await,
            Step::Watch(step) => watch::run(worker, &step).await,
            Step::Client(step) => run::use_client(worker, &step).await,
        }
    }

    async fn finish(worker: &Worker) {
        watch::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(Calls::default())
    }
}

impl Registers {
    fn visit(&self, rng: &mut Rng, setting: &Setting) -> VisitStep {
        let ends = [
            VisitEnd::Close,
            VisitEnd::CloseTwice,
            VisitEnd::CancelledClose,
            VisitEnd::Drop,
            VisitEnd::Resume,
        ];
        // A visitor has no visitors.
        let visitor = Self { visit: 0, ..*self };
        VisitStep {
            client: self.client(rng, setting),
            steps: (0..rng.usize(..6)).map(|_| visitor.step_or_pause(rng, setting)).collect(),
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
