//! A process: its clock, its randomness and its state.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard},
};

use docent::SessionToken;
use fastrand::Rng;

use super::{
    lock::lock,
    time::{Nanos, Pid},
};

/// Whether a process runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// Its tasks are polled.
    #[default]
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

#[derive(Default)]
pub(crate) struct Process {
    pub(crate) state: ProcessState,
    /// Whether its sockets end silently.
    pub(crate) is_powered_off: bool,
    pub(super) clock: Arc<DriftingClock>,
    /// The least and the greatest error of its clock's rate so far, in millionths.
    pub(crate) drifts_ppm: (i64, i64),
    pub(super) stopped_at: Nanos,
    /// Until when one of its tasks is not polled.
    pub(crate) starved_until: Nanos,
    /// The delay of timers that were set before the last jumps of the clock.
    timers_late_by: Nanos,
    /// Until when there may be such timers, or a session at the servers that the client gave up because of a jump.
    pub(crate) jump_felt_until: Nanos,
    /// The number of stops, and of jumps of its clock.
    pub(crate) interruptions: u64,
    /// The number of steps that its workers have reported.
    pub(crate) steps: u64,
    /// When the state of its client last changed.
    pub(crate) state_changed_at: Nanos,
    /// The token of the session that its client had last.
    pub(crate) token: Option<SessionToken>,
    /// The session that its client had last.
    pub(crate) session: Option<i64>,
    /// The session of another process that its client resumed.
    pub(crate) resumed: Option<i64>,
    /// The end of the last fault that concerns it.
    pub(crate) disturbed_until: Nanos,
    /// The number of clients that it has started.
    pub(crate) clients: u64,
    /// Whether its client makes planned reconnects.
    pub(crate) reconnects: bool,
    /// Whether not every member keeps its session: its client accepts read-only servers, or does not know all members.
    pub(crate) relies_on_few: bool,
    /// Whether the close of its client has begun.
    pub(crate) is_closing: bool,
    /// Whether all its workers are done and its client is closed.
    pub(crate) is_finished: bool,
    pub(super) rng: Rng,
    /// The tasks that were woken while it was stopped.
    pub(crate) parked: Vec<u64>,
}

impl Process {
    pub(super) fn new(offset: Nanos, drift_ppm: i64, seed: u64) -> Self {
        let clock = DriftingClock::default();
        *clock.point() = (0, offset, drift_ppm);
        let (clock, drifts_ppm) = (Arc::new(clock), (drift_ppm, drift_ppm));
        Self { clock, drifts_ppm, rng: Rng::with_seed(seed), ..Self::default() }
    }

    /// The error of its clock's rate, in millionths.
    pub(crate) fn drift_ppm(&self) -> i64 {
        self.clock.point().2
    }

    /// Changes the rate of its clock.
    pub(crate) fn set_drift(&mut self, now: Nanos, drift_ppm: i64) {
        let local = self.clock.local(now);
        *self.clock.point() = (now, local, drift_ppm);
        let (least, greatest) = self.drifts_ppm;
        self.drifts_ppm = (least.min(drift_ppm), greatest.max(drift_ppm));
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == ProcessState::Running
    }

    /// Lets its clock jump ahead. No timer of a client with a session is set for longer than its timeout, `longest`.
    pub(super) fn jump(&mut self, by: Nanos, now: Nanos, longest: Nanos) {
        self.timers_late_by = (self.timers_late_at(now) + by).min(longest);
        self.jump_felt_until = now + longest;
        self.interruptions += 1;
        self.clock.point().1 += by;
    }

    /// The delay of a timer that was due at this time.
    pub(crate) const fn timers_late_at(&self, at: Nanos) -> Nanos {
        if at <= self.jump_felt_until { self.timers_late_by } else { 0 }
    }
}

/// The clock of a process: a point in true time, what it shows then, and the error of its rate from then on, in
/// millionths.
#[derive(Debug, Default)]
pub(super) struct DriftingClock(Mutex<(Nanos, Nanos, i64)>);

impl DriftingClock {
    pub(super) fn point(&self) -> MutexGuard<'_, (Nanos, Nanos, i64)> {
        lock(&self.0)
    }

    pub(super) fn local(&self, now: Nanos) -> Nanos {
        let (since, shown, drift_ppm) = *self.point();
        shown + scale(now - since, 1_000_000 + drift_ppm, 1_000_000)
    }
}

pub(super) fn scale(nanos: Nanos, by: i64, over: i64) -> Nanos {
    let scaled = i128::from(nanos) * i128::from(by) / i128::from(over.max(1));
    Nanos::try_from(scaled).unwrap_or(Nanos::MAX)
}

/// The address of a process.
pub(crate) fn address(pid: Pid) -> IpAddr {
    let [.., high, low] = pid.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low).into()
}
