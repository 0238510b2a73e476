//! `cargo xtask bench` and `cargo xtask bench-locks`: build the program in `benches` and run it.

use std::process::{Command, ExitCode};

use xtask::{
    Result,
    command::{find, run as run_to_end},
    workspace::{cargo, root},
};

use crate::{packages, sim};

/// The programs of the lock services, and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 7] = [
    ("redis-server", "redis-server"),
    ("etcd", "etcd-server"),
    ("mariadbd", "mariadb-server"),
    ("/usr/lib/postgresql/15/bin/postgres", "postgresql"),
    ("pgbouncer", "pgbouncer"),
    ("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "libfaketime"),
    (PROTOC, "protobuf-compiler"),
];

/// The protobuf compiler, which the build of etcd-client runs.
const PROTOC: &str = "protoc";

/// Measures docent beside other clients and Curator, and writes a section of docs/BENCHMARKS.md.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let is_named = arguments.iter().any(|word| !word.starts_with('-'));
    let client = (!is_named).then_some("client");
    let words = client.into_iter().chain(arguments.iter().map(String::as_str));
    start(None, &words.collect::<Vec<_>>())
}

/// Measures lock services, and writes docs/LOCK-SERVICES.md; with `--fault`, runs one fault and prints its values.
pub(crate) fn run_locks(arguments: &[String]) -> Result<ExitCode> {
    // The report marks the services whose programs are missing.
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).collect();
    if !missing.is_empty() && arguments != ["report"] {
        let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
        if let Err(error) = packages::fetch("lock-services", &packages) {
            eprintln!("xtask: {error}");
        }
    }
    if let Err(error) = packages::java() {
        eprintln!("xtask: {error}");
    }
    let features = if find(PROTOC).is_some() { "etcd" } else { "locks" };
    let words: Vec<_> = ["locks"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    start(Some(features), &words)
}

/// Builds the program, in the target directory of its own workspace, and runs it.
fn start(features: Option<&str>, arguments: &[&str]) -> Result<ExitCode> {
    let directory = root().join("benches");
    let mut build = cargo();
    build.current_dir(&directory).args(["build", "--release", "--quiet", "--bin", "bench"]);
    build.args(features.map(|features| format!("--features={features}")));
    run_to_end(build.env_remove("CARGO_TARGET_DIR"))?;
    sim::code(Command::new(directory.join("target/release/bench")).args(arguments).status()?)
}
