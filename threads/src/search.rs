//! The schedules of a scenario: random ones, and all with at most a number of preemptions.
//!
//! A preemption takes the processor from a thread that could go on. What runs after a thread that waits or ends costs nothing,
//! and every choice is tried. Most races need one preemption or two, and their number bounds the search.
//!
//! Source: Musuvathi and Qadeer, "Iterative context bounding for systematic testing of multithreaded programs" (2007).

use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use docent_session::planted;
use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner,
    scheduler::{Schedule, Scheduler, Task, TaskId},
};

use crate::scenarios::Scenario;

/// Enough for the deepest call of a scenario, in bytes.
const STACK: usize = 256 * 1024;

/// A longer execution is a loop.
const MAX_STEPS: usize = 20_000;

thread_local! {
    /// Whether the scenario has reached its race.
    static RACES: Cell<bool> = const { Cell::new(false) };
}

/// Begins the race of a scenario. Before it, there is one schedule: the first thread waits until no other can go on.
pub(crate) fn race() {
    shuttle::thread::sleep(Duration::ZERO);
    RACES.set(true);
}

/// Which schedules are run.
#[derive(Debug, Clone)]
pub enum Which {
    /// This number of random ones.
    Random(u64),
    /// All with at most this number of preemptions.
    Bounded(u8),
    /// The one with these choices.
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

/// A failure, and the choices that lead to it.
#[derive(Debug)]
pub struct Found {
    pub failure: String,
    pub choices: Vec<u8>,
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
    let found =
        failure.map(|failure| Found { failure: text(&*failure), choices: search.choices.clone() });
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
    /// The threads that the present schedule chooses, from its race on.
    choices: Vec<u8>,
    /// The number of choices made.
    depth: usize,
    /// The number of preemptions in it.
    preemptions: u8,
    /// What the bounded search has still to try at each choice.
    rest: Vec<Threads>,
    random: fastrand::Rng,
    /// How often, of eight times, a random schedule stays at the present thread.
    stays: u8,
}

/// A set of threads: a bit for each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Threads(u64);

impl Threads {
    fn of(threads: impl Iterator<Item = u8>) -> Self {
        Self(threads.fold(0, |set, thread| set | 1 << thread))
    }

    fn has(self, thread: u8) -> bool {
        self.0 & (1 << thread) != 0
    }

    fn without(self, thread: u8) -> Self {
        Self(self.0 & !(1 << thread))
    }

    /// The one with the lowest number.
    fn first(self) -> Option<u8> {
        (0..64).find(|thread| self.has(*thread))
    }

    /// The one with the highest number.
    fn last(self) -> Option<u8> {
        (0..64).rev().find(|thread| self.has(*thread))
    }
}

impl Search {
    fn new(which: Which, until: Option<Instant>) -> Self {
        Self {
            which,
            until,
            is_late: false,
            schedules: 0,
            choices: Vec::new(),
            depth: 0,
            preemptions: 0,
            rest: Vec::new(),
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
        self.choices.truncate(self.rest.len());
        self.depth = 0;
        self.preemptions = 0;
        RACES.set(false);
        true
    }

    /// Changes the last choice for which another thread is left.
    fn turn_back(&mut self) -> bool {
        while let Some(rest) = self.rest.last_mut() {
            if let Some(next) = rest.first() {
                *rest = rest.without(next);
                self.choices[self.rest.len() - 1] = next;
                return true;
            }
            self.rest.pop();
        }
        false
    }
}

impl Search {
    /// The next thread of the race. `ready` can go on; `present` was running.
    fn choose(&mut self, ready: Threads, present: Option<u8>, runnable: &[&Task]) -> u8 {
        let present = present.filter(|present| ready.has(*present));
        let default =
            present.or_else(|| ready.first()).expect("shuttle asks only if a thread is ready");
        let choice = match &self.which {
            Which::Random(_) => {
                let stays = present.filter(|_| self.random.u8(..8) < self.stays);
                // Also threads in `park`, which may wake up for no reason.
                stays.unwrap_or_else(|| number(runnable[self.random.usize(..runnable.len())].id()))
            }
            Which::Bounded(_) if self.depth < self.rest.len() => self.choices[self.depth],
            Which::Bounded(most) => {
                let may_preempt = present.is_none() || self.preemptions < *most;
                self.rest.push(if may_preempt { ready.without(default) } else { Threads(0) });
                default
            }
            Which::One(choices) => choices.get(self.depth).copied().unwrap_or(default),
        };
        let is_known = runnable.iter().any(|task| number(task.id()) == choice);
        assert!(is_known, "thread {choice} cannot go on: the schedule belongs to other code");
        self.preemptions += u8::from(present.is_some_and(|present| present != choice));
        if self.depth == self.choices.len() {
            self.choices.push(choice);
        }
        self.depth += 1;
        choice
    }
}

fn number(task: TaskId) -> u8 {
    u8::try_from(usize::from(task))
        .ok()
        .filter(|number| *number < 64)
        .expect("a scenario has fewer threads")
}

struct Handle(Rc<RefCell<Search>>);

impl Scheduler for Handle {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.borrow_mut().begin().then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        present: Option<TaskId>,
        _: bool,
    ) -> Option<TaskId> {
        let ready = runnable.iter().filter(|task| task.runnable()).map(|task| number(task.id()));
        let ready = Threads::of(ready);
        let next = if RACES.get() {
            self.0.borrow_mut().choose(ready, present.map(number), runnable)
        } else {
            ready.last()?
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
