//! Lock services behind one command line, measured side by side.
//!
//! `locks SERVICE WORKLOAD OPTIONS` is one client process: it does one workload and prints one line of JSON.
//! `locks speed`, `locks fault NAME` and `locks faults` start servers, run such processes against them, and keep the
//! measured values in `results`; `locks report` writes docs/LOCK-SERVICES.md from those. `cargo xtask bench-locks`
//! installs the servers and runs all of it.

mod agent;
mod arguments;
mod faults;
mod matrix;
mod plots;
mod proxy;
mod report;
mod resource;
mod results;
mod servers;
mod services;
mod speed;
mod statistics;
mod workloads;

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use arguments::Arguments;

/// An error with a message for the user.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of this program's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

const USAGE: &str = "\
usage: locks SERVICE WORKLOAD OPTIONS     one client process; prints one line of JSON
       locks speed [--quick] [--rounds N] [--only WORKLOAD] [SERVICE...]
       locks fault NAME --service SERVICE [--rounds N] [--parallel N] [--fsync on|off]
       locks faults [--quick] [--rounds N] [--only FAULT,...] [SERVICE...]
       locks report

workloads: cycle, count, handoff, throughput, waiters, memory, agent
options of workloads:
  --addresses HOST:PORT,...   the servers; for the file lock, a directory
  --name NAME                 the name of the lock, or a prefix of the names
  --lease-ms N                session timeout or time to live (default 10000)
  --seconds S                 duration (default 1)
  --contenders N              handoff, waiters: the number of contenders (default 8)
  --locks N                   throughput, memory: the number of locks (default 1)
  --pids N,...                the processes of the servers
  --java                      memory: the servers are Java";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let outcome = Arguments::parse(&words).and_then(|arguments| {
        let words: Vec<_> = arguments.words().iter().map(String::as_str).collect();
        match words.as_slice() {
            ["speed", rest @ ..] => speed::run(&arguments, rest),
            ["fault", name] => faults::run(&arguments, name),
            ["faults", rest @ ..] => matrix::run(&arguments, rest),
            ["report"] => report::run(),
            [service, "agent"] => agent::run(service, &arguments),
            [service, workload] => workloads::run(service, workload, &arguments),
            _ => Err(USAGE.into()),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("locks: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A number that differs from run to run.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The wall clock in microseconds, which all processes of the machine share.
pub(crate) fn microseconds() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
