//! Tests of `docent::blocking`, each run on the embedded server and on a real one where it can be.

extern crate docent_tests as support;

#[macro_use]
mod server;

mod client;
mod end;
mod locks;
mod recipes;
mod runtimes;
