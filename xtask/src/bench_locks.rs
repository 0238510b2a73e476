//! `cargo xtask bench-locks`: compares lock services, on servers of its own. The program in `benches/locks` measures;
//! this command installs the servers and builds it.

use std::{
    env,
    process::{Command, ExitCode},
};

use xtask::{
    Result,
    workspace::{cargo, root},
};

use crate::packages;

/// The files that are needed, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 7] = [
    ("redis-server", "redis-server"),
    ("etcd", "etcd-server"),
    ("mariadbd", "mariadb-server"),
    ("/usr/lib/postgresql/15/bin/postgres", "postgresql"),
    ("pgbouncer", "pgbouncer"),
    ("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "libfaketime"),
    (PROTOC, "protobuf-compiler"),
];

/// The compiler that the build of etcd-client runs.
const PROTOC: &str = "protoc";

/// Measures and writes docs/LOCK-SERVICES.md; with `--fault`, runs one fault and prints its line.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (mut quick, mut fault, mut save) = (false, None, false);
    let (mut services, mut options) = (Vec::new(), Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => quick = true,
            "--save" => save = true,
            "--fault" => fault = words.next(),
            "--service" | "--rounds" | "--parallel" | "--fsync" => {
                let Some(value) = words.next() else { return Ok(crate::usage()) };
                options.extend([word.as_str(), value.as_str()]);
            }
            option if option.starts_with('-') => return Ok(crate::usage()),
            service => services.push(service),
        }
    }
    if let Err(error) = fetch_programs() {
        // Their rows say that they are missing.
        eprintln!("xtask: {error}");
    }
    if let Err(error) = packages::java() {
        eprintln!("xtask: {error}");
    }
    build()?;
    let steps: Vec<Vec<&str>> = match fault {
        Some(fault) => {
            let mut step = vec!["fault", fault.as_str()];
            step.extend(options);
            step.extend(save.then_some("--save"));
            vec![step]
        }
        None => {
            let step = |name: &'static str| {
                let mut step = vec![name];
                step.extend(quick.then_some("--quick"));
                step.extend(options.iter().copied());
                step.extend(services.iter().copied());
                step
            };
            vec![step("speed"), step("faults"), vec!["report"]]
        }
    };
    for step in steps {
        let status = Command::new(directory().join("target/release/locks")).args(&step).status()?;
        if !status.success() {
            eprintln!("xtask: locks {}: {status}", step.join(" "));
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn directory() -> std::path::PathBuf {
    root().join("benches/locks")
}

/// Builds the program, in the target directory of its own workspace.
fn build() -> Result<()> {
    let mut command = cargo();
    command.current_dir(directory()).args(["build", "--release", "--quiet"]);
    if !is_installed(PROTOC) {
        // The row of etcd says that it is missing.
        command.arg("--no-default-features");
    }
    command.env_remove("CARGO_TARGET_DIR");
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo build in benches/locks: {status}").into())
    }
}

/// Fetches the packages of missing programs.
fn fetch_programs() -> Result<()> {
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| !is_installed(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages::fetch("lock-services", &packages)
}

/// Whether a program is in PATH, or where Debian keeps those for administrators.
fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin".into()]);
    directories.into_iter().any(|directory| directory.join(program).is_file())
}
