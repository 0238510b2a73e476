//! The part of a scenario that is searched, and the threads that take no part in it.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use shuttle::scheduler::TaskId;

thread_local! {
    /// Whether the scenario has reached its race.
    pub(crate) static RACES: Cell<bool> = const { Cell::new(false) };
    /// The threads that take no part in it.
    pub(crate) static AT_ONCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lets this thread go on as soon as it can, in the bounded search. For the servers: with replies that come at any time, the
/// search would not end. Random schedules have them.
pub(crate) fn at_once() {
    AT_ONCE.with_borrow_mut(|threads| threads.push(number(shuttle::current::me())));
}

/// Begins the race of a scenario. Before it, there is one schedule: the first thread waits until no other can go on.
pub(crate) fn race() {
    shuttle::thread::sleep(Duration::ZERO);
    RACES.set(true);
}

/// Ends the race before the scenario ends: the rest has one schedule again.
pub(crate) fn calm() {
    RACES.set(false);
}

/// The number of a thread.
pub(crate) fn number(task: TaskId) -> u8 {
    u8::try_from(usize::from(task))
        .ok()
        .filter(|number| *number < 64)
        .expect("a scenario has fewer threads")
}
