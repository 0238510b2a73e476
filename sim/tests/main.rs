//! The simulator, its command line and its checks: one program, because each would link the whole simulator again.

mod command;
mod determinism;
mod diagram;
mod exhaust;
mod own_program;
mod restored;
mod scenarios;
mod search;
mod shrink;
mod specification;
mod wire;
