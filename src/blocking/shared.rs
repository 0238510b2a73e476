//! Values that processes share: [`docent::recipes::shared`](crate::recipes::shared) with methods that wait.

use bytes::Bytes;

use super::{Client, Receiver, context::Context};
use crate::{Error, LockOptions, VersionedValue};

/// A value that many processes read, write and subscribe to.
///
/// As [`SharedValue`](crate::SharedValue).
#[derive(Clone)]
pub struct SharedValue {
    inner: crate::SharedValue,
    context: Context,
}

impl SharedValue {
    forward! { SharedValue;
        /// Creates the node with `seed_value` if it is missing, and starts to watch it.
        new async fn start(client, path: &str, seed_value: impl Into<Bytes>);
        /// As [`start`](Self::start), with options.
        new async fn start_with(client, path: &str, seed_value: impl Into<Bytes>, options: &LockOptions);
        /// Writes the value unconditionally.
        async fn set_value(&self, value: impl Into<Bytes>) -> Result<(), Error>;
        /// Writes the value if `previous` is still the current version; returns false if not.
        async fn try_set_value(&self, previous: &VersionedValue, value: impl Into<Bytes>) -> Result<bool, Error>;
        /// The last known value.
        #[must_use]
        fn value(&self) -> Bytes;
        /// The last known value with its version.
        #[must_use]
        fn versioned_value(&self) -> VersionedValue;
    }

    /// Receives later values; of several in quick succession, possibly only the last.
    ///
    /// As [`SharedValue::subscribe`](crate::SharedValue::subscribe).
    #[must_use]
    pub fn subscribe(&self) -> Receiver<VersionedValue> {
        Receiver { inner: self.inner.subscribe(), context: self.context.clone() }
    }
}

/// A number that many processes read, write and subscribe to.
///
/// As [`SharedCount`](crate::SharedCount).
#[derive(Clone)]
pub struct SharedCount {
    pub(super) inner: crate::SharedCount,
    context: Context,
}

impl SharedCount {
    forward! { SharedCount;
        /// Creates the node with `seed_value` if it is missing, and starts to watch it.
        new async fn start(client, path: &str, seed_value: i32);
        /// As [`start`](Self::start), with options.
        new async fn start_with(client, path: &str, seed_value: i32, options: &LockOptions);
        /// Writes the number unconditionally.
        async fn set_count(&self, count: i32) -> Result<(), Error>;
        /// Writes the number if `previous` is still the current version; returns false if not.
        async fn try_set_count(&self, previous: &VersionedValue, count: i32) -> Result<bool, Error>;
        /// The last known number.
        #[must_use]
        fn count(&self) -> i32;
        /// The last known number with its version.
        #[must_use]
        fn versioned_value(&self) -> VersionedValue;
    }

    /// Receives later values; of several in quick succession, possibly only the last.
    ///
    /// As [`SharedCount::subscribe`](crate::SharedCount::subscribe).
    #[must_use]
    pub fn subscribe(&self) -> Receiver<VersionedValue> {
        Receiver { inner: self.inner.subscribe(), context: self.context.clone() }
    }
}

debug_as_inner!(SharedValue SharedCount);
