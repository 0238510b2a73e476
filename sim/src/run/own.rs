//! Runs a user's program: its processes, with the faults that a seed draws, and its checks.

use std::{sync::Arc, time::Duration};

use docent::Client;

use super::{
    Outcome, Watch,
    simulate::{Main, MainOf, Program, Until, simulate},
};
use crate::{
    checks::sessions,
    faults::{Fault, FaultKind, draw::faults},
    plan::{
        ClientPlan, Plan, PlanStep, ProcessPlan,
        draw::{Setting, empty, generator},
    },
    world::{World, check::Checks, history::What, time::Pid},
};

/// A process of the program.
pub struct Process {
    world: World,
    pid: Pid,
    client: ClientPlan,
}

impl Process {
    /// Its number, from 0.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.pid
    }

    /// Starts a client with settings that the seed has drawn. Faults and checks of sessions concern the client that was
    /// started last.
    #[must_use]
    pub fn start_client(&self) -> Client {
        let client = self.client.config(&self.world, self.pid).start().expect("valid settings");
        sessions::follow(&self.world, self.pid, &client);
        let noted = sessions::note_states(self.world.clone(), self.pid, &client);
        self.world.spawn(self.pid, noted);
        client
    }

    /// Waits, by the clock of the process. Wait only with this, for docent, or for other tasks of the process: the
    /// system's time does not pass.
    pub async fn sleep(&self, duration: Duration) {
        self.world.sleep(self.pid, duration).await;
    }

    /// Adds to the history.
    pub fn say(&self, text: impl Into<String>) {
        self.world.record(What::Worker { pid: self.pid, worker: 0, text: text.into() });
    }
}

impl Plan<()> {
    /// Draws servers, processes without steps, and faults for a program.
    #[must_use]
    pub fn draw(seed: u64, processes: usize) -> Self {
        let rng = &mut generator(seed, "own");
        let mut plan = empty::<()>(seed, rng);
        let setting = Setting::draw(rng, &plan, true);
        for _ in 0..processes {
            let client = setting.client(rng);
            plan.processes.push(setting.process(rng, client, Vec::new()));
        }
        plan.faults = faults(rng, processes, plan.servers.count, plan.peace_at_ms);
        plan
    }

    /// The servers are also replaced by a backup of theirs before the faults end. What they acknowledged since the backup
    /// is gone, sessions and nodes come back, and zxids, versions and fencing tokens begin again.
    #[must_use]
    pub fn with_restored_backup(mut self) -> Self {
        // A backup would bring permissions back that were taken for a while.
        self.faults.retain(|fault| !matches!(fault.kind, FaultKind::Deny { .. }));
        let part_ms = self.peace_at_ms / 3;
        let rng = &mut generator(self.seed, "backup");
        let (at_ms, age_ms, for_ms) = (rng.u64(..part_ms), rng.u64(..part_ms), rng.u64(..part_ms));
        self.faults.push(Fault { at_ms, kind: FaultKind::RestoreBackup { age_ms, for_ms } });
        self
    }
}

/// Runs a program: `main` in each of the processes of the plan, and these checks. Each process ends by itself, with its
/// clients closed or dropped.
///
/// # Panics
///
/// As [`run_watched`](super::run_watched).
pub fn run_program<F>(
    plan: &Plan<()>,
    checks: Checks,
    main: impl Fn(Process) -> F + Send + Sync + 'static,
) -> Outcome
where
    F: Future<Output = ()> + Send + 'static,
{
    let main = main_of(move |process, _| main(process));
    let program = Program::new(main, checks, Until::Settled);
    simulate(plan, &Watch::default(), program).0
}

/// Runs a program with a plan until all its processes have ended, or until the peace, with this number of polls and events at
/// most. Only `checks` look at it.
///
/// # Panics
///
/// As [`run_watched`](super::run_watched).
pub fn run_plan<S, F>(
    plan: &Plan<S>,
    watch: &Watch,
    (checks, steps): (Checks, u64),
    main: impl Fn(Process, ProcessPlan<S>) -> F + Send + Sync + 'static,
) -> Outcome
where
    S: PlanStep + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let until = Until::Peace { steps };
    simulate(plan, watch, Program::new(main_of(main), checks, until)).0
}

fn main_of<S, F>(main: impl Fn(Process, ProcessPlan<S>) -> F + Send + Sync + 'static) -> MainOf<S>
where
    S: Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |world: World, pid, plan: ProcessPlan<S>| {
        let process = Process { world: world.clone(), pid, client: plan.client.clone() };
        let of_process = main(process, plan);
        let main: Main = Box::pin(async move {
            of_process.await;
            world.core().process_mut(pid).is_finished = true;
            world.record(What::Finished(pid));
        });
        main
    })
}
