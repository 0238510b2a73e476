//! The clock of a client. Only this file reads clocks.

use std::{fmt, sync::Arc};

use crate::time::Instant;

/// The time source of a client.
///
/// The default clock includes the time during which the machine is suspended, where the platform has such a clock
/// (Linux, Android, macOS, iOS, Windows), because a session expires during that time too. The wall clock is not used.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    System,
    /// Zero is the instant at which the clock was created.
    Tokio(Origin),
    Function(Arc<dyn Fn() -> Instant + Send + Sync>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Tokio(_) => "Tokio",
            Self::Function(_) => "Function",
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Origin(tokio::time::Instant);

impl Clock {
    /// The default clock.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// tokio's clock, which stands still while a test has paused it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn tokio() -> Self {
        Self(Source::Tokio(Origin(tokio::time::Instant::now())))
    }

    /// A clock that asks a function, which must never go back: virtual time, or a clock of another platform. It is called
    /// for every request.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self(Source::Function(Arc::new(now)))
    }

    /// The current time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn now(&self) -> Instant {
        match &self.0 {
            // The system's clock would make the schedules of threads differ.
            Source::System if cfg!(docent_threads) => Instant::from_nanos(1),
            Source::System => system(),
            Source::Function(now) => now(),
            &Source::Tokio(Origin(origin)) => {
                // One nanosecond later than zero, so that no deadline is due at the very start.
                Instant::from_nanos(1) + tokio::time::Instant::now().duration_since(origin)
            }
        }
    }
}

/// A clock that goes on while the machine is suspended. `CLOCK_MONOTONIC` does so on Apple's systems only; the standard
/// library's clock there does not.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn system() -> Instant {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_vendor = "apple")]
    const CLOCK: ClockId = ClockId::Monotonic;
    #[cfg(not(target_vendor = "apple"))]
    const CLOCK: ClockId = ClockId::Boottime;
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The standard library's clock. It goes on while a Windows machine is suspended; on other platforms it may stand still.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn system() -> Instant {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let origin = *ORIGIN.get_or_init(std::time::Instant::now);
    Instant::from_nanos(1) + std::time::Instant::now().duration_since(origin)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // Case (Failure cases, 29): the wall clock jumps; suspend.
    #[test]
    fn the_system_clock_goes_forward() {
        let clock = Clock::system();
        let before = clock.now();
        while clock.now() == before {}
        assert!(clock.now() > before);
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_stands_still_when_paused() {
        let clock = Clock::tokio();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.now().duration_since(before), Duration::from_secs(3));
    }
}
