//! The result of an operation on an atomic value.

use std::time::Duration;

/// The result of an operation: the value before it, and, if it succeeded, the value after it.
///
/// Source: Curator's `AtomicValue`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtomicValue<T> {
    /// The value before the operation; after a failure, the last value that was read.
    ///
    /// Source: `AtomicValue.preValue`.
    pub pre_value: T,
    /// The value after the operation; `None` if it did not succeed, and then the value was not changed.
    ///
    /// Source: `AtomicValue.postValue`, which is 0 for a number after a failure.
    pub post_value: Option<T>,
    /// The number of attempts, and their duration.
    pub stats: AtomicStats,
}

impl<T> AtomicValue<T> {
    /// Whether the operation succeeded. If it did not, another writer was faster, or the value was not the expected one.
    ///
    /// Source: `AtomicValue.succeeded`.
    #[must_use]
    pub const fn succeeded(&self) -> bool {
        self.post_value.is_some()
    }

    /// Converts both values.
    pub(super) fn try_map<U, E>(
        self,
        convert: impl Fn(T) -> Result<U, E>,
    ) -> Result<AtomicValue<U>, E> {
        Ok(AtomicValue {
            pre_value: convert(self.pre_value)?,
            post_value: self.post_value.map(convert).transpose()?,
            stats: self.stats,
        })
    }
}

/// The attempts of an operation. All are zero for a read and for a compare-and-set, which has one attempt.
///
/// Source: Curator's `AtomicStats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtomicStats {
    /// The number of attempts without the lock.
    pub optimistic_tries: u32,
    /// The duration of the attempts without the lock, pauses included.
    pub optimistic_time: Duration,
    /// The number of attempts under the lock.
    pub promoted_lock_tries: u32,
    /// The duration of the attempts under the lock, without the wait for the lock.
    pub promoted_time: Duration,
}
