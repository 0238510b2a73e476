//! The locks as a specification: states, actions and invariants, which stateright explores and which the simulator compares
//! its traces with. docs/SIMULATION.md describes both.

// Laid out by hand: one action or one rule is one line, where that can be read.
#[rustfmt::skip]
pub mod lock_internals;
#[rustfmt::skip]
mod zookeeper;
