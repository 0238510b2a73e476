//! The schedules of a scenario: random ones, and all with at most a number of preemptions.
//!
//! A preemption takes the processor from a thread that could go on. What runs after a thread that waits or ends costs nothing,
//! and every choice is tried. Most races need one preemption or two, and their number bounds the search.
//!
//! Source: Musuvathi and Qadeer, "Iterative context bounding for systematic testing of multithreaded programs" (2007).

use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    thread,
    time::Instant,
};

use docent_session::planted;
use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner,
    scheduler::{Schedule, Scheduler, Task, TaskId},
};

use crate::{
    race::{AT_ONCE, RACES, number},
    scenarios::Scenario,
};

/// Enough for the deepest call of a scenario, in bytes.
const STACK: usize = 256 * 1024;

/// A longer execution is a loop.
const MAX_STEPS: usize = 20_000;

/// Which schedules are run.
#[derive(Debug, Clone)]
pub enum Which {
    /// This number of random ones.
    Random(u64),
    /// All with at most this number of preemptions.
    Bounded(u8),
    /// One: its threads, in turn.
    One(Vec<u8>),
}

/// The result of a search.
#[derive(Debug)]
pub struct Report {
    pub schedules: u64,
    /// Whether all schedules were run.
    pub complete: bool,
    /// The first failure.
    pub found: Option<Found>,
}

/// A failure, and the schedule that leads to it.
#[derive(Debug)]
pub struct Found {
    pub failure: String,
    pub schedule: Vec<u8>,
}

/// Runs schedules of a scenario until one fails. Fewer than asked for, if `until` passes before.
pub fn search(
    scenario: &Scenario,
    plant: Option<&'static str>,
    which: Which,
    until: Option<Instant>,
) -> Report {
    // In a thread of the system: a failure leaves threads of shuttle behind.
    let search = move || search_here(scenario, plant, which, until);
    thread::scope(|scope| scope.spawn(search).join().expect("failures are caught"))
}

fn search_here(
    scenario: &Scenario,
    plant: Option<&'static str>,
    which: Which,
    until: Option<Instant>,
) -> Report {
    planted::plant(plant);
    let search = Rc::new(RefCell::new(Search::new(which, until)));
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let runner = Runner::new(Handle(Rc::clone(&search)), config);
    let run = scenario.run;
    let failure = catch_unwind(AssertUnwindSafe(|| runner.run(run))).err();
    let search = search.borrow();
    let found = failure
        .map(|failure| Found { failure: text(&*failure), schedule: search.schedule.clone() });
    Report { schedules: search.schedules, complete: found.is_none() && !search.is_late, found }
}

fn text(failure: &(dyn Any + Send)) -> String {
    let text = failure.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| failure.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

struct Search {
    which: Which,
    until: Option<Instant>,
    is_late: bool,
    schedules: u64,
    /// The threads of the present schedule, from its race on.
    schedule: Vec<u8>,
    /// The last one of them that was chosen.
    present: Option<u8>,
    /// The choices of the bounded search, each with those that are left to try.
    choices: Vec<(u8, Vec<u8>)>,
    /// The numbers of choices and of preemptions made.
    depth: usize,
    preemptions: u8,
    random: fastrand::Rng,
    /// How often, of eight times, a random schedule stays at the present thread.
    stays: u8,
}

impl Search {
    fn new(which: Which, until: Option<Instant>) -> Self {
        Self {
            which,
            until,
            is_late: false,
            schedules: 0,
            schedule: Vec::new(),
            present: None,
            choices: Vec::new(),
            depth: 0,
            preemptions: 0,
            random: fastrand::Rng::with_seed(0),
            stays: 0,
        }
    }

    /// Whether there is another schedule.
    fn begin(&mut self) -> bool {
        let has_more = match &self.which {
            Which::Random(schedules) => self.schedules < *schedules,
            Which::Bounded(_) => self.schedules == 0 || self.turn_back(),
            Which::One(_) => self.schedules == 0,
        };
        self.is_late = has_more && self.until.is_some_and(|until| Instant::now() >= until);
        if !has_more || self.is_late {
            return false;
        }
        if let Which::Random(_) = self.which {
            self.random = fastrand::Rng::with_seed(self.schedules);
            self.stays = self.random.u8(..8);
        }
        self.schedules += 1;
        self.schedule.clear();
        self.depth = 0;
        self.preemptions = 0;
        self.present = None;
        RACES.set(false);
        AT_ONCE.take();
        true
    }

    /// Changes the last choice for which another thread is left.
    fn turn_back(&mut self) -> bool {
        while let Some((choice, rest)) = self.choices.last_mut() {
            if let Some(next) = rest.pop() {
                *choice = next;
                return true;
            }
            self.choices.pop();
        }
        false
    }

    /// The next thread of the race; `ready` can go on.
    fn choose(&mut self, ready: Vec<u8>, runnable: &[&Task]) -> u8 {
        let present = self.present.filter(|present| ready.contains(present));
        let default = present.unwrap_or(ready[0]);
        let choice = match &self.which {
            Which::Random(_) if present.is_some() && self.random.u8(..8) < self.stays => default,
            // Also threads in `park`, which may wake up for no reason.
            Which::Random(_) => number(runnable[self.random.usize(..runnable.len())].id()),
            Which::Bounded(most) => {
                let is_at_once = |thread: &&u8| AT_ONCE.with_borrow(|all| all.contains(thread));
                match ready.iter().find(is_at_once) {
                    Some(at_once) => *at_once,
                    None => self.next(*most, ready, present, default),
                }
            }
            Which::One(schedule) => schedule.get(self.schedule.len()).copied().unwrap_or(default),
        };
        let is_known = runnable.iter().any(|task| number(task.id()) == choice);
        assert!(is_known, "thread {choice} cannot go on: the schedule belongs to other code");
        self.schedule.push(choice);
        choice
    }

    /// The next choice of the bounded search.
    fn next(&mut self, most: u8, mut ready: Vec<u8>, present: Option<u8>, default: u8) -> u8 {
        if self.depth == self.choices.len() {
            let may_preempt = present.is_none() || self.preemptions < most;
            ready.retain(|thread| may_preempt && *thread != default);
            self.choices.push((default, ready));
        }
        let choice = self.choices[self.depth].0;
        self.depth += 1;
        self.preemptions += u8::from(present.is_some_and(|present| present != choice));
        self.present = Some(choice);
        choice
    }
}

struct Handle(Rc<RefCell<Search>>);

impl Scheduler for Handle {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.borrow_mut().begin().then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], _: Option<TaskId>, _: bool) -> Option<TaskId> {
        let ready = runnable.iter().filter(|task| task.runnable()).map(|task| number(task.id()));
        let ready: Vec<_> = ready.collect();
        let next = if RACES.get() {
            self.0.borrow_mut().choose(ready, runnable)
        } else {
            *ready.last()?
        };
        Some(TaskId::from(usize::from(next)))
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Keeps panics, which are failures of scenarios, off standard error. Called once, before any search.
pub fn quiet() {
    // Shuttle puts its own hook around this one at its first run.
    Runner::new(Handle(Rc::new(RefCell::new(Search::new(Which::Random(1), None)))), Config::new())
        .run(|| {});
    std::panic::set_hook(Box::new(|_| {}));
}
