//! The primitives through which threads meet: those of the standard library.
//!
//! With `--cfg docent_threads` they are those of shuttle, which runs small scenarios in every order of their threads:
//! docs/SIMULATION.md. `Arc` is for reply slots, whose number of references says who still uses them.

#[cfg(not(docent_threads))]
pub(crate) use std::{
    sync::{Arc, Mutex, MutexGuard, atomic},
    thread_local,
};

#[cfg(docent_threads)]
pub(crate) use docent_threads_sync::{Arc, Mutex, MutexGuard, atomic, thread_local};
