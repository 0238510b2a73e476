//! The primitives of docent-session's module `sync`, made of shuttle: each operation on them is a point at which another
//! thread may go on.

use std::{ops::Deref, time::Duration};

pub use shuttle::{
    sync::{Mutex, MutexGuard, atomic},
    thread, thread_local,
};

/// A shared value whose drops are points of the schedule. Those of the standard library, which shuttle takes, are none, and
/// the reply slots count on them.
#[derive(Debug)]
pub struct Arc<T>(std::sync::Arc<T>);

impl<T> Arc<T> {
    pub fn new(value: T) -> Self {
        Self(std::sync::Arc::new(value))
    }

    pub fn strong_count(this: &Self) -> usize {
        std::sync::Arc::strong_count(&this.0)
    }

    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        std::sync::Arc::get_mut(&mut this.0)
    }

    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        std::sync::Arc::ptr_eq(&this.0, &other.0)
    }
}

/// No point of the schedule: slots are cloned under the machine's lock only, as their counts are read.
impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(std::sync::Arc::clone(&self.0))
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        // For shuttle, a sleep is a point of the schedule and nothing else.
        thread::sleep(Duration::ZERO);
    }
}
