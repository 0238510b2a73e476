//! The measurements of the project: `cargo xtask bench` and `cargo xtask bench-locks` build this program and run it.

#![cfg_attr(not(feature = "locks"), allow(dead_code, reason = "the locks use all of it"))]

mod arguments;
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
    Result,
    workspace::{build, root},
};

use arguments::Arguments;

const USAGE: &str = "\
usage: cargo xtask bench [--quick]          docent and other clients
       cargo xtask bench cache [--quick]    docent's cache and Curator's
       cargo xtask bench holds [--quick]    proven holds and plain ones
       cargo xtask bench-locks [--quick] [--rounds N] [--only NAME,...] [SERVICE...]
                                            the speed of lock services, and faults; then the report
       cargo xtask bench-locks report       the report alone
       cargo xtask bench-locks --fault NAME --service SERVICE [--rounds N] [--parallel N] [--fsync on|off] [--save]";

fn main() -> ExitCode {
    let words: Vec<_> = env::args().skip(1).collect();
    let outcome = Arguments::parse(&words).and_then(|arguments| {
        let words: Vec<_> = arguments.words().iter().map(String::as_str).collect();
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

/// Builds examples of docent as releases, and returns their directory.
fn examples(names: &[&str]) -> Result<PathBuf> {
    let names: Vec<_> = names.iter().flat_map(|name| ["--example", name]).collect();
    build(&[&["--release"], names.as_slice()].concat())?;
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    Ok(root().join(target).join("release/examples"))
}
