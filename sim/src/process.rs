//! A process: its clock, its randomness, its tasks, and the runtime that its clients get.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use docent::session::planted;
use docent::{Clock, Host, Instant, LocalAddress, Runtime, SessionToken, Task, Timer, Transport};
use fastrand::Rng;

use crate::{
    network::SimTransport,
    world::{Event, Nanos, SECOND, World},
};

/// The number of a process, in the order of their start.
pub type Pid = usize;

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// Its tasks are polled.
    Running,
    /// As after SIGSTOP: nothing is polled, its clock goes on, its sockets receive.
    Stopped,
    /// It has ended.
    Dead,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// As after SIGKILL: no destructor has an effect; the kernel closes the sockets.
    Killed,
    /// Nothing is closed: the servers do not notice.
    PoweredOff,
    /// The runtime is dropped, and with it each task, whose destructors run.
    ShutDown,
}

pub(crate) struct Process {
    pub(crate) state: ProcessState,
    /// Whether its sockets end silently.
    pub(crate) is_powered_off: bool,
    /// The error of its clock's rate, in millionths.
    pub(crate) drift_ppm: i64,
    /// By how much its clock has jumped ahead.
    pub(crate) jumped: Arc<AtomicU64>,
    /// For how long its clock stood still.
    stood_still: Arc<AtomicU64>,
    stopped_at: Nanos,
    /// Until when timers that were set before the last jump may be late: they do not know of it.
    pub(crate) timers_late_until: Nanos,
    /// How often it was stopped.
    pub(crate) stops: u64,
    /// What its workers have said.
    pub(crate) steps: u64,
    /// When the state of its client has changed last.
    pub(crate) state_changed_at: Nanos,
    /// The token of that session.
    pub(crate) token: Option<SessionToken>,
    /// The session that its client had last.
    pub(crate) session: Option<i64>,
    /// The session of another process that its client went on with.
    pub(crate) resumed: Option<i64>,
    /// Until when a fault concerns it.
    pub(crate) disturbed_until: Nanos,
    /// Whether all its workers are done and its client is closed.
    pub(crate) is_finished: bool,
    rng: Rng,
    /// The tasks that were woken while it was stopped.
    pub(crate) parked: Vec<u64>,
}

impl Process {
    /// Whether its clock has jumped ahead.
    pub(crate) fn has_jumped(&self) -> bool {
        self.jumped.load(Ordering::Relaxed) > 0
    }
}

/// The clock of a process: a rate and an offset.
#[derive(Debug, Clone, Copy)]
struct DriftingClock {
    offset: Nanos,
    drift_ppm: i64,
}

impl DriftingClock {
    fn local(self, now: Nanos) -> Instant {
        Instant::from_nanos(self.offset + scale(now, 1_000_000 + self.drift_ppm, 1_000_000))
    }
}

fn scale(nanos: Nanos, by: i64, over: i64) -> Nanos {
    let scaled = i128::from(nanos) * i128::from(by) / i128::from(over.max(1));
    Nanos::try_from(scaled).unwrap_or(Nanos::MAX)
}

impl World {
    /// Starts a process whose clock is wrong by this rate.
    pub(crate) fn start_process(&self, drift_ppm: i64, seed: u64) -> Pid {
        let mut core = self.core();
        // Slow enough that a session has ended long before its holder stops believing.
        let is_slow = planted::is("clock-drift") || planted::is("clock-beyond-margin");
        let drift_ppm = if is_slow { -250_000 } else { drift_ppm };
        core.processes.push(Process {
            state: ProcessState::Running,
            is_powered_off: false,
            drift_ppm,
            jumped: Arc::default(),
            stood_still: Arc::default(),
            stopped_at: 0,
            timers_late_until: 0,
            stops: 0,
            steps: 0,
            state_changed_at: 0,
            token: None,
            session: None,
            resumed: None,
            disturbed_until: 0,
            is_finished: false,
            rng: Rng::with_seed(seed),
            parked: Vec::new(),
        });
        core.processes.len() - 1
    }

    /// Stops a running process, as SIGSTOP does.
    pub(crate) fn stop_process(&self, pid: Pid) {
        let now = self.now();
        let mut core = self.core();
        let process = core.process_mut(pid);
        process.stops += 1;
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
                process.stood_still.fetch_add(now - process.stopped_at, Ordering::Relaxed);
            }
            process.state = ProcessState::Running;
            drop(core);
            self.unpark(pid);
        }
    }

    /// Ends a process. What it believed ends with it.
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
        let mut beliefs = self.beliefs();
        if death == Death::ShutDown {
            beliefs.strict.end_all(pid);
        }
        let forgotten = (
            beliefs.take_all(pid),
            beliefs.leaders.take_all(pid),
            beliefs.kept.take_all(pid),
            beliefs.services.take_all(pid),
        );
        drop(beliefs);
        self.drop_tasks(pid);
        drop(forgotten);
        // The destructors may have started tasks.
        self.core().process_mut(pid).state = ProcessState::Dead;
        self.drop_tasks(pid);
    }

    /// Lets the clock of a process jump ahead.
    pub(crate) fn jump(&self, pid: Pid, by: Nanos) {
        let now = self.now();
        let mut core = self.core();
        // No timer of a client with a session is set for longer than its timeout.
        let late_until = now + by.min(core.longest_timeout);
        let process = core.process_mut(pid);
        process.timers_late_until = late_until.max(process.timers_late_until);
        process.jumped.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn is_running(&self, pid: Pid) -> bool {
        self.core().process(pid).state == ProcessState::Running
    }

    pub(crate) fn is_dead(&self, pid: Pid) -> bool {
        self.core().process(pid).state == ProcessState::Dead
    }

    /// The runtime of a process.
    pub(crate) fn runtime(&self, pid: Pid) -> SimRuntime {
        SimRuntime { world: self.clone(), pid }
    }

    /// Waits, by the clock of a process.
    pub(crate) async fn sleep(&self, pid: Pid, duration: Duration) {
        self.runtime(pid).timer(duration).await;
    }
}

/// The surroundings of the clients of a process.
#[derive(Clone)]
pub(crate) struct SimRuntime {
    world: World,
    pid: Pid,
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRuntime({})", self.pid)
    }
}

impl Runtime for SimRuntime {
    fn clock(&self) -> Clock {
        let core = self.world.core();
        let process = core.process(self.pid);
        let (drift_ppm, jumped) = (process.drift_ppm, Arc::clone(&process.jumped));
        let stood_still = Arc::clone(&process.stood_still);
        drop(core);
        let pid = Nanos::try_from(self.pid).unwrap_or(0);
        let clock = DriftingClock { offset: (1 + pid) * 1_000 * SECOND, drift_ppm };
        let world = self.world.clone();
        Clock::from_fn(move || {
            let jumped = Duration::from_nanos(jumped.load(Ordering::Relaxed));
            let stood_still = Duration::from_nanos(stood_still.load(Ordering::Relaxed));
            clock.local(world.now()) + jumped - stood_still
        })
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(SimTransport { world: self.world.clone(), pid: self.pid })
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        let drift_ppm = self.world.core().process(self.pid).drift_ppm;
        let mut timer =
            Box::pin(SimTimer { world: self.world.clone(), drift_ppm, due: 0, scheduled: None });
        timer.as_mut().reset(after);
        timer
    }

    fn spawn(&self, task: Task) {
        self.world.spawn(self.pid, task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> bool {
        self.world.core().process_mut(self.pid).rng.fill(bytes);
        true
    }

    fn local_address<'a>(&'a self, _server: &'a Host) -> LocalAddress<'a> {
        Box::pin(std::future::ready(Some(address(self.pid))))
    }
}

/// The address of a process.
pub(crate) fn address(pid: Pid) -> IpAddr {
    let [.., high, low] = pid.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low).into()
}

struct SimTimer {
    world: World,
    drift_ppm: i64,
    due: Nanos,
    /// The instant for which the task that polled last is to be woken.
    scheduled: Option<(Nanos, std::task::Waker)>,
}

impl Future for SimTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.now() >= self.due {
            return Poll::Ready(());
        }
        let due = self.due;
        let scheduled = self.scheduled.as_ref();
        if scheduled.is_none_or(|(at, waker)| *at != due || !waker.will_wake(cx.waker())) {
            self.world.core().schedule(due, Event::Wake(cx.waker().clone()));
            self.scheduled = Some((due, cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl Timer for SimTimer {
    fn reset(mut self: Pin<&mut Self>, after: Duration) {
        let after = Nanos::try_from(after.as_nanos()).unwrap_or(Nanos::MAX / 4);
        // Never too early by its own clock: rounded up.
        let wait = scale(after, 1_000_000, 1_000_000 + self.drift_ppm).saturating_add(1);
        self.due = self.world.now().saturating_add(wait);
    }
}
