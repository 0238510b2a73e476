//! `cargo xtask check`: checks format, lints, documentation and dependencies.

use std::process::{Command, ExitCode};

use xtask::Result;

use crate::{deny, packages, report::Report, semver, sim, threads};
use xtask::workspace::{LIBRARIES, cargo_with, is_ci, root};

/// The lints of what `cargo xtask test` builds.
const LINTS_OF_TESTS: [&str; 4] =
    ["lints", "lints of the simulator", "lints of the lab's browser", "lints of the threads"];

/// Runs every check, even after one has failed; the lints of what the tests build only with `lints`.
pub(crate) fn run(lints: bool) -> Result<ExitCode> {
    let mut report = Report::default();
    let kerberos = packages::kerberos();
    let is_wanted = |name| lints || !LINTS_OF_TESTS.contains(&name);
    for (name, mut command) in checks(kerberos.is_ok())? {
        if !is_wanted(name) {
            continue;
        }
        println!("== {name}");
        if !command.status()?.success() {
            report.fail(name);
        }
    }
    deny::run(&mut report)?;
    semver::run(&mut report)?;
    if let Err(reason) = kerberos {
        report.skip(packages::GSSAPI, &reason.to_string());
    }
    Ok(report.print(is_ci()))
}

fn checks(has_gssapi: bool) -> Result<Vec<(&'static str, Command)>> {
    let session = "clippy --package docent-session --no-default-features";
    let blocking = "clippy --package docent --lib --no-default-features --features blocking";
    let clippy = |options: &str| {
        let mut command = cargo_with(&options.split(' ').collect::<Vec<_>>());
        command.args(["--", "-D", "warnings"]);
        command
    };
    let mut checks = vec![
        ("format", cargo_with(&["fmt", "--all", "--check"])),
        ("lints", lints(has_gssapi)),
        // The state machine must not depend on its driver.
        ("lints of docent-session without a runtime", clippy(session)),
        (
            "lints of docent-session without a runtime, with SASL",
            clippy(&format!("{session} --features sasl")),
        ),
        // The package of the tests enables this feature only together with the recipes.
        ("lints of docent with the feature blocking alone", clippy(blocking)),
        ("documentation", documentation(has_gssapi)?),
    ];
    if root().join("fuzz/Cargo.toml").is_file() {
        // A separate workspace, which the checks above do not build.
        let mut fuzz = cargo_with(&["check", "--manifest-path", "fuzz/Cargo.toml"]);
        // Nothing is linked, so that any file will do: without one, libFuzzer would be compiled.
        fuzz.env("CUSTOM_LIBFUZZER_PATH", root().join("fuzz/Cargo.toml"));
        fuzz.env("CARGO_TARGET_DIR", root().join("target"));
        checks.push(("fuzz targets", fuzz));
    }
    // Also separate. Its lints are not checked, because its dependencies take too long to build.
    let format = cargo_with(&["fmt", "--manifest-path", "benches/Cargo.toml", "--check"]);
    checks.push(("format of the benchmarks", format));
    // Also separate, with other compiler flags.
    let with = |mut command: Command, arguments: &str| {
        command.args(arguments.split(' '));
        command
    };
    let clippy = "clippy --workspace --locked --all-targets -- -D warnings";
    // Of their own packages: with `--all`, those of docent would be formatted again.
    let simulator = "fmt --check -p docent-sim -p docent-judge -p docent-spec -p docent-lab";
    let of_threads = "fmt --check -p docent-threads -p docent-threads-sync";
    checks.push(("format of the simulator", with(sim::cargo_in_sim(), simulator)));
    checks.push(("lints of the simulator", with(sim::cargo_in_sim(), clippy)));
    checks.push(("format of the lab's browser", with(sim::cargo_in("lab/browser"), "fmt --check")));
    checks.push(("lints of the lab's browser", with(sim::cargo_in("lab/browser"), clippy)));
    checks.push(("format of the threads", with(threads::cargo_in_threads(), of_threads)));
    checks.push(("lints of the threads", with(threads::cargo_in_threads(), clippy)));
    Ok(checks)
}

fn lints(has_gssapi: bool) -> Command {
    let mut command = cargo_with(&["clippy", "--workspace", "--all-targets"]);
    if !has_gssapi {
        command.args(["--exclude", packages::GSSAPI]);
    }
    command.args(["--", "-D", "warnings"]);
    command
}

/// `cargo xtask package`: builds each published crate from its own archive, with the archives of the others.
pub(crate) fn package() -> Result<ExitCode> {
    let mut command = cargo_with(&["package", "--locked"]);
    let gssapi = match packages::kerberos() {
        Ok(()) => Some(packages::GSSAPI),
        Err(reason) => {
            println!("SKIPPED: {}: {reason}", packages::GSSAPI);
            None
        }
    };
    let names = LIBRARIES.into_iter().chain(["docent-cli"]).chain(gssapi);
    command.args(names.flat_map(|name| ["--package", name]));
    Ok(if command.status()?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the pages as docs.rs does: each item with the feature that it needs, which takes an unstable feature of
/// rustdoc.
fn documentation(has_gssapi: bool) -> Result<Command> {
    let mut command = cargo_with(&["doc", "--no-deps", "--lib", "--all-features"]);
    let gssapi = has_gssapi.then_some(packages::GSSAPI);
    command.args(LIBRARIES.into_iter().chain(gssapi).flat_map(|library| ["--package", library]));
    command.env("RUSTDOCFLAGS", "-Dwarnings --cfg docsrs");
    xtask::permit_unstable_documentation(&mut command)?;
    Ok(command)
}
