//! Values and numbers that processes change by compare-and-set.
//!
//! A change reads the node and writes it if its version is still the same. When another writer was faster, it reads
//! again, as often as a retry policy allows, and then, if the options say so, under an
//! [`InterProcessMutex`](crate::locks::InterProcessMutex).
//!
//! # Lost replies
//!
//! When the connection breaks behind a write, it is unknown whether the write was applied. Sending it again is safe,
//! because its version makes the server apply it at most once. The reply to the repetition settles it:
//!
//! | repetition | node, read after it | outcome |
//! |---|---|---|
//! | succeeds | – | applied once |
//! | `BadVersion` or `NodeExists` | the next version, with other data | another writer was faster: read and write again |
//! | the same | the next version, with the same data | unknown: this write, or an equal one of another client |
//! | the same | any other state, or missing | unknown |
//!
//! An unknown outcome is an [`Error`](crate::Error) whose [`outcome`](crate::Error::outcome) is
//! [`Unknown`](crate::Outcome::Unknown). After every other error of these types, the value was not changed. Not
//! mirrored: Curator takes its own write for that of another client and counts twice (C21, C22 in `docs/CURATOR.md`), or
//! reports a success as a failure (C23, C24).
//!
//! Source: `org.apache.curator.framework.recipes.atomic`.

mod atomic_value;
mod cell;
mod distributed_atomic_number;
mod distributed_atomic_value;
mod options;

pub use atomic_value::{AtomicStats, AtomicValue};
pub use distributed_atomic_number::{
    AtomicNumber, DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicNumber,
};
pub use distributed_atomic_value::DistributedAtomicValue;
pub use options::{AtomicOptions, PromotedToLock};
