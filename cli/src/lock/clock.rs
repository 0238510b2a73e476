//! A clock that two processes share, and that goes on while the machine is suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was started.
pub(super) fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How often the clock is looked at: tokio's timers stand still while the machine is suspended, this clock does not.
const LOOK: Duration = Duration::from_millis(250);

/// Waits until then; right after a suspend it may be [a moment](LOOK) late.
pub(super) async fn until(time: Duration) {
    loop {
        let left = time.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}
