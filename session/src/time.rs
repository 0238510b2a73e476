//! Instants as plain numbers, so that the machine needs no clock.

use core::{
    fmt,
    ops::{Add, AddAssign, Sub, SubAssign},
    time::Duration,
};

/// A point in time on a monotonic clock, in nanoseconds since an arbitrary moment in the past.
///
/// This is not `std::time::Instant`, for two reasons: it cannot be made from a number, so no test could choose it; and
/// on Linux it stands still while the machine is suspended, whereas a session expires.
///
/// It has the arithmetic of `std::time::Instant`, with one difference: no operation panics. `+`, `-`, `+=` and `-=` with
/// a `Duration` stop at the first ([`ZERO`](Self::ZERO)) and the last instant ([`MAX`](Self::MAX), 584 years later).
/// [`checked_add`](Self::checked_add) and [`checked_sub`](Self::checked_sub) return `None` there.
///
/// ```
/// # extern crate docent_session as docent;
/// use std::time::Duration;
/// use docent::runtime::Instant;
///
/// let sent = Instant::from_nanos(5_000_000_000);
/// let answered = sent + Duration::from_millis(3);
/// assert_eq!(answered - sent, Duration::from_millis(3));
/// assert_eq!(sent - answered, Duration::ZERO);
/// assert_eq!(sent.checked_duration_since(answered), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The first instant.
    pub const ZERO: Self = Self(0);

    /// The last instant.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after [`ZERO`](Self::ZERO).
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `since_zero` after [`ZERO`](Self::ZERO), at most [`MAX`](Self::MAX).
    #[must_use]
    pub fn from_duration(since_zero: Duration) -> Self {
        Self::ZERO + since_zero
    }

    /// Nanoseconds since [`ZERO`](Self::ZERO).
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time since `earlier`; `None` if `earlier` is later.
    #[must_use]
    pub fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// As [`duration_since`](Self::duration_since): zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }

    /// The instant `duration` later; `None` if that is after [`MAX`](Self::MAX).
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(nanos(duration)?).map(Self)
    }

    /// The instant `duration` earlier; `None` if that is before [`ZERO`](Self::ZERO).
    #[must_use]
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(nanos(duration)?).map(Self)
    }
}

/// An instant that does not come.
pub(crate) const NEVER: Instant = Instant::MAX;

/// The earlier of two optional instants.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

/// The nanoseconds of a duration, unless no instant is that far from another one.
fn nanos(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_nanos()).ok()
}

/// Saturates at [`Instant::MAX`].
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.checked_add(duration).unwrap_or(Self::MAX)
    }
}

/// Saturates at [`Instant::MAX`].
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// Saturates at [`Instant::ZERO`].
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        self.checked_sub(duration).unwrap_or(Self::ZERO)
    }
}

/// Saturates at [`Instant::ZERO`].
impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

/// As [`duration_since`](Instant::duration_since): zero if the other instant is later.
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANO: Duration = Duration::from_nanos(1);
    const LONGEST: Duration = Duration::from_nanos(u64::MAX);

    #[test]
    fn arithmetic_is_that_of_numbers() {
        let (mut at, second) = (Instant::from_nanos(5), Duration::from_secs(1));
        at += second;
        assert_eq!(at, Instant::from_nanos(1_000_000_005));
        assert_eq!(at, Instant::from_duration(second) + Duration::from_nanos(5));
        at -= second;
        assert_eq!((at, at.as_nanos()), (Instant::from_nanos(5), 5));
        let later = at + second;
        assert_eq!((later - at, later - second), (second, at));
        assert_eq!(later.duration_since(at), second);
        assert_eq!(later.saturating_duration_since(at), second);
        assert_eq!(later.checked_duration_since(at), Some(second));
        assert_eq!((at.checked_add(second), later.checked_sub(second)), (Some(later), Some(at)));
    }

    #[test]
    fn arithmetic_stops_at_the_first_and_the_last_instant() {
        let (first, last) = (Instant::ZERO, Instant::MAX);
        for too_long in [NANO, LONGEST, LONGEST + NANO, Duration::MAX] {
            let (mut up, mut down) = (last, first);
            up += too_long;
            down -= too_long;
            assert_eq!((last + too_long, up, last.checked_add(too_long)), (last, last, None));
            assert_eq!((first - too_long, down, first.checked_sub(too_long)), (first, first, None));
        }
        // Longer than the distance of any two instants.
        for too_long in [LONGEST + NANO, Duration::MAX] {
            assert_eq!((first + too_long, first.checked_add(too_long)), (last, None));
            assert_eq!((last - too_long, last.checked_sub(too_long)), (first, None));
            assert_eq!(Instant::from_duration(too_long), last);
        }
        assert_eq!(
            (first.checked_add(LONGEST), last.checked_sub(LONGEST)),
            (Some(last), Some(first))
        );
        assert_eq!(last - first, LONGEST);
    }

    #[test]
    fn no_time_has_passed_since_a_later_instant() {
        let (now, later) = (Instant::from_nanos(7), Instant::MAX);
        assert_eq!(now - later, Duration::ZERO);
        assert_eq!(now.duration_since(later), Duration::ZERO);
        assert_eq!(now.saturating_duration_since(later), Duration::ZERO);
        assert_eq!(now.checked_duration_since(later), None);
        assert_eq!(now.checked_duration_since(now), Some(Duration::ZERO));
    }
}
