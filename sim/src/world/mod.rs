//! The world of one seed: virtual time, one queue of events, the tasks of all processes.
//!
//! Everything runs on one thread. The loop polls the tasks that were woken; when none is left, it takes the next event
//! and sets the time to it. Nothing waits for real time, and every choice is drawn from the seed, so a seed always
//! gives the same history.

pub mod check;
pub(crate) mod connections;
pub(crate) mod core;
mod directed;
pub(crate) mod director;
pub(crate) mod disturbances;
pub mod history;
pub(crate) mod lock;
mod network;
pub(crate) mod panics;
pub mod process;
mod runtime;
pub(crate) mod servers;
pub mod time;
mod transport;
pub(crate) mod truth;

use std::{
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake as _, Waker},
    time::Duration,
};

use bytes::Bytes;
use docent_session::planted;

use self::{
    check::{Check, Checks, View},
    core::{Core, Event, LONGEST_PUT_OFF, Task, TaskFuture, TaskWaker},
    director::Directed,
    history::{History, What},
    lock::lock,
    process::{Death, Process, ProcessState},
    servers::Servers,
    time::{Nanos, Pid, SECOND, TaskId},
};

pub use panics::catch_panics;

/// A handle of the world. Clones share it.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    core: Mutex<Core>,
    now: AtomicU64,
    ready: Arc<Mutex<Vec<TaskId>>>,
    checks: Checks,
    /// Those of a directed run.
    faults: Vec<PossibleFault>,
}

/// A fault that may happen at any point.
pub(crate) struct PossibleFault {
    /// The process that it concerns; `None`: all.
    pub(crate) pid: Option<Pid>,
    /// Whether it would have an effect now.
    pub(crate) applies: Box<dyn Fn(&Core) -> bool + Send + Sync>,
    pub(crate) begin: Box<dyn Fn(&World) + Send + Sync>,
}

/// A process may have nodes at or below some paths until this is dropped.
pub(crate) struct Using {
    world: World,
    id: u64,
}

impl Drop for Using {
    fn drop(&mut self) {
        self.world.core().uses.remove(&self.id);
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Why a run of the world ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The given time was reached, or the condition held.
    Reached,
    /// Too many steps at one instant, or in the whole run: a task wakes itself for ever.
    Livelock,
    /// A task panicked: its message and place.
    Panic(String),
    /// Another run has gone on from this state.
    Known,
}

/// The number of steps at one instant above which the run counts as a livelock.
const STEPS_AT_ONE_INSTANT: u64 = 200_000;

impl World {
    /// A world around these servers, in which nothing happens yet.
    pub(crate) fn new(
        seed: u64,
        servers: Servers,
        checks: Checks,
        faults: Vec<PossibleFault>,
    ) -> Self {
        let inner = Inner {
            core: Mutex::new(Core::new(seed, servers)),
            now: AtomicU64::new(0),
            ready: Arc::default(),
            checks,
            faults,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The true time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.inner.now.load(Ordering::Relaxed)
    }

    /// The true time since the start, as servers get it.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now())
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.inner.core)
    }

    /// A check of the run, to which steps report. No other lock is taken while it is held.
    pub(crate) fn check<C: Check>(&self) -> MutexGuard<'_, C> {
        self.inner.checks.get()
    }

    /// The view of the checks.
    pub(crate) fn view(&self) -> View<'_> {
        View::new(self.now(), &self.inner.core)
    }

    /// Adds findings to the history.
    pub(crate) fn record_all(&self, found: check::Findings) {
        found.0.into_iter().for_each(|what| self.record(what));
    }

    /// Lets all checks look at the world.
    fn look(&self) {
        self.record_all(self.inner.checks.look(&self.view()));
    }

    /// Lets all checks judge the run, after its end.
    pub(crate) fn finish(&self) {
        self.record_all(self.inner.checks.finish(&self.view()));
    }

    /// A number that is in no other name of this run.
    pub(crate) fn next_number(&self) -> u64 {
        let mut core = self.core();
        let polled = core.polled;
        if let Some(director) = &mut core.director {
            return director.next_number(polled);
        }
        core.names += 1;
        core.names
    }

    /// A value that no other write has, of at least this size. It names its node.
    pub(crate) fn next_value(&self, path: &str, size: usize) -> Bytes {
        format!("{:x<size$}", format!("{path}={}:", self.next_number())).into()
    }

    /// Until the result is dropped, a process may have nodes at or below these paths.
    pub(crate) fn use_paths(&self, pid: Pid, paths: Vec<String>) -> Using {
        let id = self.next_number();
        self.core().uses.insert(id, (pid, paths));
        Using { world: self.clone(), id }
    }

    /// Until the result is dropped, a process may have nodes at or below this path.
    pub(crate) fn use_path(&self, pid: Pid, path: &str) -> Using {
        self.use_paths(pid, vec![path.to_owned()])
    }

    /// The history so far; `None` while the world is locked.
    pub(crate) fn try_history(&self) -> Option<History> {
        match self.inner.core.try_lock() {
            Ok(core) => Some(core.history.clone()),
            Err(TryLockError::Poisoned(core)) => Some(core.into_inner().history.clone()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Adds to the history.
    pub fn record(&self, what: What) {
        let now = self.now();
        self.core().history.push(now, what);
    }

    /// Does something at an instant.
    pub(crate) fn at(&self, at: Nanos, action: impl FnOnce(&Self) + Send + 'static) {
        let world = self.clone();
        self.core().schedule(at, Event::Action(Box::new(move || action(&world))));
    }

    /// Runs a task in a process. A process that has ended drops it.
    pub(crate) fn spawn(&self, pid: Pid, future: impl Future<Output = ()> + Send + 'static) {
        // Unconstrained: tokio's own primitives would yield after some polls, until the runtime polls the whole world
        // again.
        let future: TaskFuture = Box::pin(tokio::task::unconstrained(future));
        let mut core = self.core();
        if core.process(pid).state == ProcessState::Dead {
            drop(core);
            return drop(future);
        }
        let id = core.next_task;
        core.next_task += 1;
        let ready = Arc::clone(&self.inner.ready);
        let waker = Arc::new(TaskWaker { id, ready, is_queued: AtomicBool::new(false) });
        let task = Task { pid, future: Some(future), waker: Arc::clone(&waker), starved_until: 0 };
        core.tasks.insert(id, task);
        drop(core);
        waker.wake();
    }

    /// Runs until the condition holds, at the latest until the given time. The condition is evaluated whenever time is
    /// about to go on.
    pub(crate) fn run_until(&self, until: Nanos, mut done: impl FnMut(&Self) -> bool) -> End {
        let mut steps_before = self.core().steps;
        loop {
            while let Some(id) = self.next_ready() {
                if let Some(end) = self.poll(id) {
                    return end;
                }
                if self.core().steps - steps_before > STEPS_AT_ONE_INSTANT {
                    return End::Livelock;
                }
            }
            self.look();
            if done(self) {
                return End::Reached;
            }
            match self.direct() {
                Directed::Nothing => {}
                Directed::Moved => continue,
                Directed::Known => return End::Known,
            }
            let mut core = self.core();
            let event = core.queue.first_key_value().map(|((at, _), _)| *at);
            let alarm = core.servers.alarm();
            let next = event.unwrap_or(Nanos::MAX).min(alarm.unwrap_or(Nanos::MAX));
            let now = self.now();
            if next.max(now) > until {
                self.inner.now.store(until.max(now), Ordering::Relaxed);
                return End::Reached;
            }
            if next > now {
                self.inner.now.store(next, Ordering::Relaxed);
                steps_before = core.steps;
            }
            core.steps += 1;
            if core.steps > core.most_steps {
                return End::Livelock;
            }
            if core.director.is_some() && event == Some(next) {
                // A move.
                continue;
            }
            if event == Some(next) {
                let Some((_, event)) = core.queue.pop_first() else { continue };
                drop(core);
                self.handle(event);
            } else {
                core.pass_time(self.elapsed());
            }
        }
    }

    fn handle(&self, event: Event) {
        match event {
            Event::Poll(id) => lock(&self.inner.ready).push(id),
            Event::Wake(_, waker) => waker.wake(),
            Event::Arrival(arrival) => self.core().arrive(self.elapsed(), arrival),
            Event::Action(action) => action(),
        }
    }

    /// Draws one of the woken tasks of the running processes.
    fn next_ready(&self) -> Option<TaskId> {
        let mut core = self.core();
        loop {
            let mut ready = lock(&self.inner.ready);
            if ready.is_empty() {
                return None;
            }
            let at = core.choose_task(&ready);
            let id = ready.swap_remove(at);
            drop(ready);
            let Some((pid, starved_until)) =
                core.tasks.get(&id).map(|task| (task.pid, task.starved_until))
            else {
                continue;
            };
            if starved_until > self.now() {
                core.schedule(starved_until, Event::Poll(id));
                continue;
            }
            let process = core.process_mut(pid);
            if process.state == ProcessState::Stopped {
                process.parked.push(id);
                continue;
            }
            let one_in = core.puts_off_one_in;
            if one_in > 0 && core.rng.u32(..one_in) == 0 {
                let delay = core.rng.u64(1..=LONGEST_PUT_OFF);
                let at = self.now() + delay;
                core.schedule(at, Event::Poll(id));
                continue;
            }
            return Some(id);
        }
    }

    fn poll(&self, id: TaskId) -> Option<End> {
        let mut core = self.core();
        core.steps += 1;
        let task = core.tasks.get_mut(&id)?;
        let mut future = task.future.take()?;
        let (pid, waker) = (task.pid, Arc::clone(&task.waker));
        core.polled = Some(pid);
        drop(core);
        waker.is_queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(waker);
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let mut core = self.core();
        core.polled = None;
        match polled {
            Ok(Poll::Pending) => {
                if let Some(task) = core.tasks.get_mut(&id) {
                    task.future = Some(future);
                    return None;
                }
                // Its process ended meanwhile.
                drop(core);
                drop(future);
                None
            }
            Ok(Poll::Ready(())) => {
                let task = core.tasks.remove(&id);
                drop(core);
                drop((task, future));
                None
            }
            Err(panic) => {
                // Its destructors may panic again.
                mem::forget(future);
                Some(End::Panic(panics::text(&*panic)))
            }
        }
    }

    /// Drops the tasks of a process, in the order of their start.
    pub(crate) fn drop_tasks(&self, pid: Pid) {
        loop {
            let mut core = self.core();
            let first = core.tasks.iter().find(|(_, task)| task.pid == pid).map(|(id, _)| *id);
            let Some(task) = first.and_then(|id| core.tasks.remove(&id)) else { return };
            drop(core);
            drop(task);
        }
    }

    /// Wakes the tasks that were woken while their process was stopped.
    pub(crate) fn unpark(&self, pid: Pid) {
        let parked = mem::take(&mut self.core().process_mut(pid).parked);
        lock(&self.inner.ready).extend(parked);
    }

    /// Ends the world by dropping all its tasks, which refer to it.
    pub(crate) fn end(&self) {
        let count = self.core().processes.len();
        (0..count).for_each(|pid| {
            self.core().process_mut(pid).state = ProcessState::Dead;
            self.drop_tasks(pid);
        });
        let queue = mem::take(&mut self.core().queue);
        drop(queue);
        (0..count).for_each(|pid| drop(self.inner.checks.process_ends(pid, Death::Killed)));
    }

    /// Starts a process whose clock is wrong by this rate.
    pub(crate) fn start_process(&self, drift_ppm: i64, seed: u64) -> Pid {
        let mut core = self.core();
        // Slow enough that a session has ended long before its holder stops believing.
        let is_slow = planted::is("clock-drift") || planted::is("clock-beyond-margin");
        let drift_ppm = if is_slow { -250_000 } else { drift_ppm };
        let offset = (1 + core.processes.len() as u64) * 1_000 * SECOND;
        core.processes.push(Process::new(offset, drift_ppm, seed));
        core.processes.len() - 1
    }

    /// Stops a running process, as SIGSTOP does.
    pub(crate) fn stop_process(&self, pid: Pid) {
        let now = self.now();
        let mut core = self.core();
        let process = core.process_mut(pid);
        process.interruptions += 1;
        if process.state == ProcessState::Running {
            process.stopped_at = now;
            process.state = ProcessState::Stopped;
        }
    }

    /// Continues a stopped process.
    pub(crate) fn continue_process(&self, pid: Pid) {
        let now = self.now();
        let mut core = self.core();
        let process = core.process_mut(pid);
        if process.state == ProcessState::Stopped {
            if planted::is("clock-without-suspend") {
                process.clock.point().1 -= now - process.stopped_at;
            }
            process.state = ProcessState::Running;
            drop(core);
            self.unpark(pid);
        }
    }

    /// Ends a process. The checks forget it.
    pub(crate) fn end_process(&self, pid: Pid, death: Death) {
        let mut core = self.core();
        let process = core.process_mut(pid);
        if process.state == ProcessState::Dead {
            return;
        }
        process.is_powered_off = death == Death::PoweredOff;
        if death != Death::ShutDown {
            process.state = ProcessState::Dead;
        }
        drop(core);
        let left = self.inner.checks.process_ends(pid, death);
        self.drop_tasks(pid);
        drop(left);
        // The destructors may have started tasks.
        self.core().process_mut(pid).state = ProcessState::Dead;
        self.drop_tasks(pid);
    }

    /// Lets the clock of a process jump ahead.
    pub(crate) fn jump(&self, pid: Pid, by: Nanos) {
        let now = self.now();
        let mut core = self.core();
        let longest = core.disturbances.longest_timeout;
        core.process_mut(pid).jump(by, now, longest);
    }

    pub(crate) fn is_dead(&self, pid: Pid) -> bool {
        self.core().process(pid).state == ProcessState::Dead
    }
}
