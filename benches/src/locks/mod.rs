//! `bench locks`: lock services behind one command line, measured side by side.
//!
//! `bench locks client SERVICE WORKLOAD OPTIONS` is one client process: it runs one workload and prints one line of
//! JSON. The other commands start servers, run such processes against them, and keep the measured values in `results`,
//! from which the report is written.

mod agent;
mod faults;
mod matrix;
mod report;
mod resource;
mod results;
mod servers;
mod services;
mod speed;
mod workloads;

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use xtask::{Arguments, Result};

pub(crate) fn run(arguments: &Arguments, words: &[&str]) -> Result<()> {
    match words {
        ["client", service, "agent"] => agent::run(service, arguments),
        ["client", service, workload] => workloads::run(service, workload, arguments),
        ["report"] => report::run(),
        services => match arguments.text("fault") {
            Some(fault) => faults::run(arguments, fault),
            None => {
                speed::run(arguments, services)?;
                matrix::run(arguments, services)?;
                report::run()
            }
        },
    }
}

/// Returns a command that runs this program.
fn this_program() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("locks");
    Ok(command)
}

/// A number that differs from run to run.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The wall clock in microseconds, which all processes of the machine share.
fn microseconds() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
