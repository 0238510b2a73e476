//! Tests of the data recipes, each run on the embedded server and on a real one where it can be.

#[macro_use]
extern crate docent_tests as support;

mod atomic;
mod barriers;
mod interop;
mod stale;
