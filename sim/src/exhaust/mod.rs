//! Runs a small plan in every order that its scope allows: of all messages and timers, and with faults at any point.
//!
//! A run is a script of choices (`world/directed.rs`). Each choice point of a run gives further scripts, one for each other
//! alternative, until none is left. docs/SIMULATION.md says what that proves, and what it does not.

pub mod brute_force;
mod parallel;
pub mod schedule;
pub mod scope;
mod search;

pub use parallel::{in_parallel, thousands};
pub use schedule::Schedule;
pub use scope::Scope;
pub use search::{Found, Report, search};
