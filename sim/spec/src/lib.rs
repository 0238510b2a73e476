//! The locks as specifications: states, actions and invariants, which stateright explores, and which traces of the simulator
//! are compared with. docs/SIMULATION.md describes both.

// Laid out by hand: one action or one rule is one line where it can be.
#[rustfmt::skip]
pub mod lock_internals;
#[rustfmt::skip]
pub mod strict_mutex;
mod trace;
#[rustfmt::skip]
pub mod zookeeper;

pub use trace::Trace;

/// A rule in words, and as a formula that holds in every state.
pub type Invariant<M, S> = (&'static str, fn(&M, &S) -> bool);
