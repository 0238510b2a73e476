//! The world of one seed: virtual time, one queue of events, the tasks of all processes.
//!
//! Everything runs on one thread. The loop polls the tasks that were woken; when none is left, it takes the next event
//! and sets the time to it. Nothing waits for real time, and every choice is drawn from the seed, so a seed always
//! gives the same history.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use fastrand::Rng;

use crate::{
    belief::Beliefs,
    calls::Calls,
    history::{History, What},
    network::{Arrival, Network},
    process::{Pid, Process, ProcessState},
    run::panic_text,
    servers::Servers,
};

/// Nanoseconds of true time since the start of the world. Processes see it through their own clocks.
pub type Nanos = u64;

/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// One second.
pub const SECOND: Nanos = 1_000 * MILLISECOND;

pub(crate) type TaskId = u64;

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is done at an instant.
pub(crate) type Action = Box<dyn FnOnce(&World) + Send>;

/// A handle of the world. Clones share it.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    core: Mutex<Core>,
    now: AtomicU64,
    ready: Arc<Mutex<Vec<TaskId>>>,
    beliefs: Mutex<Beliefs>,
    calls: Mutex<Calls>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// The state of the world. It is locked for computation only; no task is polled or dropped meanwhile.
pub(crate) struct Core {
    /// The choices of the scheduler and of the network.
    pub(crate) rng: Rng,
    queue: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    tasks: BTreeMap<TaskId, Task>,
    next_task: TaskId,
    pub(crate) processes: Vec<Process>,
    pub(crate) network: Network,
    pub(crate) servers: Servers,
    pub(crate) history: History,
    /// One in this many polls is put off; 0: none.
    pub(crate) puts_off_one_in: u32,
    /// The number of polls and events so far.
    pub(crate) steps: u64,
    /// Whether the history has requests, replies and events.
    pub(crate) shows_frames: bool,
    /// The end of all faults.
    pub(crate) peace_at: Nanos,
    /// How long a member takes to notice that it is cut off, in milliseconds.
    pub(crate) cut_limit_ms: u64,
    /// When a member might not have known that it is cut off the others.
    pub(crate) cuts: Vec<(Nanos, Nanos)>,
    /// When servers were made to refuse requests.
    pub(crate) throttled: Vec<Nanos>,
    /// The sync limit of the members and two ticks: then members have given each other up.
    pub(crate) sync_limit_ms: u64,
    /// The longest session timeout.
    pub(crate) longest_timeout: Nanos,
    /// Until when a fault concerns all processes.
    pub(crate) disturbed_until: Nanos,
}

struct Task {
    pid: Pid,
    /// `None` while it is polled.
    future: Option<TaskFuture>,
    waker: Arc<TaskWaker>,
}

struct Scheduled {
    at: Nanos,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

pub(crate) enum Event {
    /// A task whose poll was put off.
    Poll(TaskId),
    /// A timer is due.
    Wake(Waker),
    /// Something arrives at an end of a connection.
    Arrival(Arrival),
    /// A fault begins or ends, a process starts.
    Action(Action),
}

struct TaskWaker {
    id: TaskId,
    ready: Arc<Mutex<Vec<TaskId>>>,
    is_queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push(self.id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a run of the world ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The time given was reached, or the condition.
    Reached,
    /// Too many steps without the time going on, or altogether: a task that wakes itself for ever.
    Livelock,
    /// A task panicked: its message and place.
    Panic(String),
}

/// The number of steps at one instant after which nothing will ever happen.
const STEPS_AT_ONE_INSTANT: u64 = 200_000;

/// The number of steps of a whole run: a thousand times the usual number. Timers that are due after a nanosecond let
/// the time go on, but not far.
const STEPS: u64 = 50_000_000;

impl World {
    /// An empty world around these servers.
    pub fn new(seed: u64, servers: Servers) -> Self {
        let core = Core {
            rng: Rng::with_seed(seed),
            queue: BinaryHeap::new(),
            sequence: 0,
            tasks: BTreeMap::new(),
            next_task: 0,
            processes: Vec::new(),
            network: Network::default(),
            servers,
            history: History::default(),
            puts_off_one_in: 0,
            steps: 0,
            shows_frames: false,
            peace_at: 0,
            cut_limit_ms: 0,
            cuts: Vec::new(),
            throttled: Vec::new(),
            sync_limit_ms: 0,
            longest_timeout: 0,
            disturbed_until: 0,
        };
        let inner = Inner {
            core: Mutex::new(core),
            now: AtomicU64::new(0),
            ready: Arc::default(),
            beliefs: Mutex::default(),
            calls: Mutex::default(),
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

    pub(crate) fn beliefs(&self) -> MutexGuard<'_, Beliefs> {
        lock(&self.inner.beliefs)
    }

    /// The calls on registers. No other lock is taken while it is held.
    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls> {
        lock(&self.inner.calls)
    }

    /// The processes that still have tasks.
    pub(crate) fn processes_with_tasks(&self) -> Vec<Pid> {
        let core = self.core();
        let pids: std::collections::BTreeSet<_> =
            core.tasks.values().map(|task| task.pid).collect();
        pids.into_iter().collect()
    }

    /// What has happened so far; `None` while the world is locked.
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

    pub(crate) fn at(&self, at: Nanos, action: impl FnOnce(&Self) + Send + 'static) {
        self.core().schedule(at, Event::Action(Box::new(action)));
    }

    /// Runs a task in a process. A process that has ended drops it.
    pub(crate) fn spawn(&self, pid: Pid, future: impl Future<Output = ()> + Send + 'static) {
        // Inside a runtime tokio's own primitives yield after some polls, which only another poll of the whole world
        // would end.
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
        core.tasks.insert(id, Task { pid, future: Some(future), waker: Arc::clone(&waker) });
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
            self.check_beliefs();
            if done(self) {
                return End::Reached;
            }
            let mut core = self.core();
            let event = core.queue.peek().map(|Reverse(scheduled)| scheduled.at);
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
            if core.steps > STEPS {
                return End::Livelock;
            }
            if event == Some(next) {
                let Some(Reverse(scheduled)) = core.queue.pop() else { continue };
                drop(core);
                self.handle(scheduled.event);
            } else {
                core.pass_time(self.elapsed());
            }
        }
    }

    fn handle(&self, event: Event) {
        match event {
            Event::Poll(id) => lock(&self.inner.ready).push(id),
            Event::Wake(waker) => waker.wake(),
            Event::Arrival(arrival) => self.core().arrive(self.elapsed(), arrival),
            Event::Action(action) => action(self),
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
            let at = core.rng.usize(..ready.len());
            let id = ready.swap_remove(at);
            drop(ready);
            let Some(pid) = core.tasks.get(&id).map(|task| task.pid) else { continue };
            let process = core.process_mut(pid);
            if process.state == ProcessState::Stopped {
                process.parked.push(id);
                continue;
            }
            let one_in = core.puts_off_one_in;
            if one_in > 0 && core.rng.u32(..one_in) == 0 {
                let delay = core.rng.u64(1..=20 * MILLISECOND);
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
        let waker = Arc::clone(&task.waker);
        drop(core);
        waker.is_queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(waker);
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        match polled {
            Ok(Poll::Pending) => {
                if let Some(task) = self.core().tasks.get_mut(&id) {
                    task.future = Some(future);
                    return None;
                }
                // Its process ended meanwhile.
                drop(future);
                None
            }
            Ok(Poll::Ready(())) => {
                self.core().tasks.remove(&id);
                drop(future);
                None
            }
            Err(panic) => {
                // Its destructors may panic again.
                mem::forget(future);
                Some(End::Panic(panic_text(&*panic)))
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

    /// Ends the world: all its tasks, which hold it.
    pub(crate) fn end(&self) {
        let count = self.core().processes.len();
        (0..count).for_each(|pid| {
            self.core().process_mut(pid).state = ProcessState::Dead;
            self.drop_tasks(pid);
        });
        let queue = mem::take(&mut self.core().queue);
        drop(queue);
        let beliefs = mem::take(&mut *self.beliefs());
        drop(beliefs);
    }
}

impl Core {
    pub(crate) fn schedule(&mut self, at: Nanos, event: Event) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled { at, sequence, event }));
    }

    /// Until when faults concern a process.
    pub(crate) fn disturbed_until(&self, pid: Pid) -> Nanos {
        self.process(pid).disturbed_until.max(self.disturbed_until)
    }

    /// Since when nothing concerns a process, and its client has kept its state: what it has queued has been sent.
    pub(crate) fn undisturbed_since(&self, pid: Pid) -> Nanos {
        self.disturbed_until(pid).max(self.process(pid).state_changed_at)
    }

    /// Whether nothing has concerned a process for a while before `from`, and nothing does now: a connection may have been
    /// dead for a session timeout before its client notices.
    pub(crate) fn is_calm(&self, pid: Pid, from: Nanos, now: Nanos) -> bool {
        let since = self.undisturbed_since(pid) + self.longest_timeout + SECOND;
        since < from && !self.network.has_trap(pid) && !self.refuses(now)
    }

    /// Whether servers may have refused requests lately.
    pub(crate) fn refuses(&self, now: Nanos) -> bool {
        self.throttled.iter().any(|at| (*at..at + 15 * SECOND).contains(&now))
    }

    /// Notes that a fault concerns a process, or all, until this time.
    pub(crate) fn disturb(&mut self, pid: Option<Pid>, until: Nanos) {
        let noted = match pid {
            Some(pid) => &mut self.process_mut(pid).disturbed_until,
            None => &mut self.disturbed_until,
        };
        *noted = until.max(*noted);
    }

    pub(crate) fn process(&self, pid: Pid) -> &Process {
        &self.processes[pid]
    }

    pub(crate) fn process_mut(&mut self, pid: Pid) -> &mut Process {
        &mut self.processes[pid]
    }
}
