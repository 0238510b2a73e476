//! The true time, which only the world and its checks see. Processes have clocks of their own.

use std::time::Duration;

/// Nanoseconds of true time since the start of the world.
pub type Nanos = u64;

/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// One second.
pub const SECOND: Nanos = 1_000 * MILLISECOND;

/// The number of a process, in the order of their start.
pub type Pid = usize;

/// The number of a task, in the order of their start.
pub(crate) type TaskId = u64;

pub(super) fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}
