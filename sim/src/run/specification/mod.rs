//! Compares the history of a run with frames with the specification of its lock, while the run goes on: each record that the
//! specification has a step for must be such a step. docs/SIMULATION.md says what is compared.

mod lock_internals;
mod steps;
mod strict_mutex;

use self::{lock_internals::LockSteps, steps::Steps, strict_mutex::StrictSteps};
use crate::{
    plan::Plan,
    recipes::{
        locks::{self, LockName, LockStep},
        step,
    },
    world::{director::Follow, history::Record},
};

/// Compares one history.
struct Compared<S> {
    steps: S,
    /// The number of records that were compared.
    count: usize,
    refused: Option<String>,
}

impl<S: Steps> Follow for Compared<S> {
    fn follow(&mut self, records: &[Record]) -> u64 {
        for (at, record) in records.iter().enumerate().skip(self.count) {
            if self.refused.is_none() && !self.steps.take(record, &records[at + 1..]) {
                let states = self.steps.shown();
                let text = format!("no step of the specification: {record}; possible before it");
                self.refused = Some(text + &states);
            }
        }
        self.count = records.len();
        self.steps.digest()
    }

    fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Whether the histories of a plan can be compared.
#[must_use]
pub fn covers(plan: &Plan<step::Step>) -> bool {
    follower(plan, "").is_some()
}

/// Compares the history of a plan with the specification of its lock, in which this mistake is made; empty: none. `None`: the
/// plan is not covered. There is one server, and in each process one worker with one mutex, the same in all.
pub(crate) fn follower(plan: &Plan<step::Step>, mistake: &'static str) -> Option<Box<dyn Follow>> {
    let steps = plan.processes.iter().flat_map(|process| process.workers.iter().flatten());
    let mut lock = None;
    for step in steps.filter(|step| !matches!(step, step::Step::Sleep { .. })) {
        let step::Step::Locks(locks::Step::Lock(step)) = step else { return None };
        let LockStep { owner, options, revocable, .. } = step;
        if owner.is_some() || options.pipelined || *revocable {
            return None;
        }
        if *lock.get_or_insert(&step.lock) != &step.lock {
            return None;
        }
    }
    if plan.servers.count != 1 || plan.processes.iter().any(|of| of.workers.len() != 1) {
        return None;
    }
    match lock? {
        LockName::Mutex(0) => Some(compared(LockSteps::new(plan.processes.len(), mistake))),
        LockName::Strict(0) => Some(compared(StrictSteps::new(plan, mistake)?)),
        _ => None,
    }
}

fn compared(steps: impl Steps + 'static) -> Box<dyn Follow> {
    Box::new(Compared { steps, count: 0, refused: None })
}
