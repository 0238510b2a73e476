//! What the specifications of all locks have in common.

use std::{
    collections::HashSet,
    fmt::Debug,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
};

use crate::world::history::Record;

/// The steps of a specification that records of a history show.
pub(super) trait Steps: Send {
    /// Whether a record is a step of the specification, or none of its business. `next`: the records behind it.
    fn take(&mut self, record: &Record, next: &[Record]) -> bool;

    /// A hash of the states that the records may have led to, and of what is remembered of them.
    fn digest(&self) -> u64;

    /// Some of these states.
    fn shown(&self) -> String;
}

pub(super) fn shown<S: Debug>(states: &HashSet<S>) -> String {
    states.iter().take(4).map(|state| format!(" | {state:?}")).collect()
}

/// A hash of states, in no order, and of a memory.
pub(super) fn digest(states: &HashSet<impl Hash>, memory: impl Hash) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let all = states.iter().map(|state| hasher.hash_one(state));
    hasher.hash_one((all.fold(0, u64::wrapping_add), memory))
}
