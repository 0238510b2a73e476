//! The runtime of the clients of a process: its clock, timers, tasks, connections and randomness.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use docent::{
    config::Host,
    runtime::{Clock, Instant, LocalAddress, Runtime, Task, Timer, Transport},
};

use super::{
    World,
    core::Event,
    process::{address, scale},
    time::{Nanos, Pid},
    transport::SimTransport,
};

impl World {
    /// The runtime of a process.
    pub(crate) fn runtime(&self, pid: Pid) -> SimRuntime {
        SimRuntime { world: self.clone(), pid }
    }

    /// Waits, by the clock of a process.
    pub(crate) async fn sleep(&self, pid: Pid, duration: Duration) {
        self.runtime(pid).timer(duration).await;
    }
}

/// The runtime of the clients of a process.
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
        let clock = Arc::clone(&self.world.core().process(self.pid).clock);
        let world = self.world.clone();
        Clock::from_fn(move || Instant::from_nanos(clock.local(world.now())))
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(SimTransport { world: self.world.clone(), pid: self.pid })
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        let (world, pid) = (self.world.clone(), self.pid);
        let mut timer = Box::pin(SimTimer { world, pid, due: 0, scheduled: None });
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

struct SimTimer {
    world: World,
    pid: Pid,
    due: Nanos,
    /// When the last task that polled is woken, and its waker.
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
            self.world.core().schedule(due, Event::Wake(self.pid, cx.waker().clone()));
            self.scheduled = Some((due, cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl Timer for SimTimer {
    fn reset(mut self: Pin<&mut Self>, after: Duration) {
        let after = Nanos::try_from(after.as_nanos()).unwrap_or(Nanos::MAX / 4);
        // Never too early by its own clock: rounded up.
        let drift_ppm = self.world.core().process(self.pid).drift_ppm();
        let wait = scale(after, 1_000_000, 1_000_000 + drift_ppm);
        // No time passes in a directed run while messages are in flight. A timer without time must not wait for them.
        let is_over = after == 0 && self.world.core().director.is_some();
        let wait = wait.saturating_add(u64::from(!is_over));
        self.due = self.world.now().saturating_add(wait);
    }
}
