//! Numbers and values that are changed by compare-and-set: [`docent::recipes::atomic`](crate::recipes::atomic) with
//! methods that wait.

use std::fmt;

use bytes::Bytes;

use super::{Client, context::Context};
use crate::{AtomicNumber, AtomicOptions, AtomicValue, Error};

/// A number of 64 bits that processes count with.
pub type DistributedAtomicLong = DistributedAtomicNumber<i64>;

/// A number of 32 bits that processes count with.
pub type DistributedAtomicInteger = DistributedAtomicNumber<i32>;

/// A number that processes count with.
///
/// As [`DistributedAtomicNumber`](crate::DistributedAtomicNumber).
#[derive(Clone)]
pub struct DistributedAtomicNumber<N> {
    inner: crate::DistributedAtomicNumber<N>,
    #[expect(dead_code, reason = "its drop waits for the end of the session")]
    context: Context,
}

impl<N: AtomicNumber> DistributedAtomicNumber<N> {
    forward! { DistributedAtomicNumber;
        /// A number at this path, with the default options. Sends nothing.
        new fn new(client, path: &str);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, options: AtomicOptions);
        /// Reads the number.
        async fn get(&self) -> Result<AtomicValue<N>, Error>;
        /// Adds one.
        async fn increment(&self) -> Result<AtomicValue<N>, Error>;
        /// Subtracts one.
        async fn decrement(&self) -> Result<AtomicValue<N>, Error>;
        /// Adds a number.
        async fn add(&self, delta: N) -> Result<AtomicValue<N>, Error>;
        /// Subtracts a number.
        async fn subtract(&self, delta: N) -> Result<AtomicValue<N>, Error>;
        /// Writes the number, as far as no other client writes at the same time.
        async fn try_set(&self, number: N) -> Result<AtomicValue<N>, Error>;
        /// Writes the number if it is `expected`.
        async fn compare_and_set(&self, expected: N, number: N) -> Result<AtomicValue<N>, Error>;
        /// Writes the number unconditionally.
        async fn force_set(&self, number: N) -> Result<(), Error>;
        /// Creates the node with this number; returns false if it exists.
        async fn initialize(&self, number: N) -> Result<bool, Error>;
        /// The path of the number.
        #[must_use]
        fn path(&self) -> &str;
    }
}

impl<N> fmt::Debug for DistributedAtomicNumber<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A value that is changed by compare-and-set.
///
/// As [`DistributedAtomicValue`](crate::DistributedAtomicValue).
#[derive(Clone)]
pub struct DistributedAtomicValue {
    inner: crate::DistributedAtomicValue,
    #[expect(dead_code, reason = "its drop waits for the end of the session")]
    context: Context,
}

debug_as_inner!(DistributedAtomicValue);

impl DistributedAtomicValue {
    forward! { DistributedAtomicValue;
        /// A value at this path, with the default options. Sends nothing.
        new fn new(client, path: &str);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, options: AtomicOptions);
        /// Reads the value.
        async fn get(&self) -> Result<AtomicValue<Option<Bytes>>, Error>;
        /// Writes the value, as far as no other client writes at the same time.
        async fn try_set(&self, value: impl Into<Bytes>) -> Result<AtomicValue<Option<Bytes>>, Error>;
        /// Writes the value if it is `expected`.
        async fn compare_and_set(&self, expected: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<AtomicValue<Option<Bytes>>, Error>;
        /// Writes the value unconditionally.
        async fn force_set(&self, value: impl AsRef<[u8]>) -> Result<(), Error>;
        /// Creates the node with this value; returns false if it exists.
        async fn initialize(&self, value: impl AsRef<[u8]>) -> Result<bool, Error>;
        /// The path of the value.
        #[must_use]
        fn path(&self) -> &str;
    }
}
