//! Points in time, as numbers that somebody else reads from a clock.

use core::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

/// A point in time on a clock that never goes back, in nanoseconds since some moment in the past.
///
/// Not `std::time::Instant`: that one cannot be made from a number, so no test could choose it, and on
/// Linux it stands still while the machine is suspended, when a session does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The earliest one.
    pub const ZERO: Self = Self(0);

    /// So many nanoseconds after [`ZERO`](Self::ZERO).
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// So long after [`ZERO`](Self::ZERO); the last representable one if that is over 584 years.
    #[must_use]
    pub fn from_duration(since_zero: Duration) -> Self {
        Self(nanos(since_zero))
    }

    /// Nanoseconds since [`ZERO`](Self::ZERO).
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` it is; zero if it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Stops at the last representable instant.
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

/// Stops at [`ZERO`](Instant::ZERO).
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}
