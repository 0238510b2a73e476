//! A simulator: full clients with the real driver and the real recipes, on the embedded ensemble, in one thread and in
//! virtual time. A seed decides everything. docs/SIMULATION.md is the guide.

mod atomics;
pub mod batch;
mod belief;
mod calls;
pub mod diagram;
pub mod draw;
mod faults;
pub mod history;
mod kept;
mod leaders;
mod network;
mod nodes;
pub mod plan;
pub mod plants;
mod process;
pub mod run;
mod servers;
mod services;
pub mod shrink;
mod truth;
mod workload;
mod world;
