//! The measurements of the project: `cargo xtask bench` and `cargo xtask bench-locks` build this program and run it.

#![cfg_attr(not(feature = "locks"), allow(dead_code, reason = "the locks use all of it"))]

mod cache;
mod client;
mod holds;
#[cfg(feature = "locks")]
mod locks;
mod markdown;
mod process;
mod proxy;
mod statistics;

use std::{env, ffi::OsString, path::PathBuf, process::ExitCode};

use xtask::{
    Arguments, Result,
    workspace::{build, root},
};

const USAGE: &str = "\
usage: cargo xtask bench [--quick]          docent and other clients
       cargo xtask bench cache [--quick]    docent's cache and Curator's
       cargo xtask bench holds [--quick]    proven holds and plain ones
       cargo xtask bench-locks [--quick] [--rounds N] [--only NAME,...] [SERVICE...]
                                            the speed of lock services, and faults; then the report
       cargo xtask bench-locks report       the report alone
       cargo xtask bench-locks --fault NAME --service SERVICE [--rounds N] [--parallel N] [--fsync on|off] [--save]";

/// Options without a value, and options with one, most of which are for the locks.
const FLAGS: [&str; 3] = ["quick", "java", "save"];
const OPTIONS: [&str; 16] = [
    "addresses",
    "agent",
    "contenders",
    "fault",
    "fsync",
    "jobs",
    "lease-ms",
    "locks",
    "name",
    "only",
    "parallel",
    "pids",
    "resource",
    "rounds",
    "seconds",
    "service",
];

fn main() -> ExitCode {
    let words: Vec<_> = env::args().skip(1).collect();
    let outcome = Arguments::parse(&words, &FLAGS, &OPTIONS).and_then(|arguments| {
        let words = arguments.words();
        let quick = arguments.flag("quick");
        match words.as_slice() {
            ["client"] => client::run(quick),
            ["cache"] => cache::run(quick),
            ["holds"] => holds::run(quick),
            #[cfg(feature = "locks")]
            ["locks", words @ ..] => locks::run(&arguments, words),
            _ => Err(USAGE.into()),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds examples of docent in release mode. Returns their directory.
fn examples(names: &[&str]) -> Result<PathBuf> {
    let names: Vec<_> = names.iter().flat_map(|name| ["--example", name]).collect();
    build(&[&["--release"], names.as_slice()].concat())?;
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    Ok(root().join(target).join("release/examples"))
}
