//! A clock that both processes share, and that includes the time while the machine is suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since boot.
pub(super) fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How often [`sleep_until`] reads the clock: tokio's timers do not advance while the machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Waits until `time`. After a suspend it returns up to [`POLL_INTERVAL`] late.
pub(super) async fn sleep_until(time: Duration) {
    loop {
        let left = time.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(POLL_INTERVAL)).await;
    }
}
