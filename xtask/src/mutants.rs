//! `cargo xtask mutants`: whether a test fails when a line of the core is changed. `.cargo/mutants.toml` excludes the
//! mutants that make no difference.

use std::{
    fs,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use xtask::{
    Result,
    command::{run as run_to_end, succeeds},
    workspace::{cargo, root},
};

/// The files whose rules must not change unnoticed: the codec, watches, requests, hosts, and how a lock is granted.
const CORE: [&str; 24] = [
    "protocol/src/frame.rs",
    "protocol/src/jute/mod.rs",
    "protocol/src/jute/list.rs",
    "protocol/src/jute/field.rs",
    "protocol/src/multi.rs",
    "protocol/src/text.rs",
    "session/src/machine/hosts.rs",
    "session/src/machine/buffer_pool.rs",
    "session/src/machine/requests/deadlines.rs",
    "session/src/machine/requests/mod.rs",
    "session/src/machine/submit.rs",
    "session/src/machine/receive.rs",
    "session/src/machine/flow_control.rs",
    "session/src/machine/unset.rs",
    "session/src/machine/watch_modes.rs",
    "session/src/machine/watch_requests.rs",
    "session/src/machine/watch_table/*.rs",
    "recipes/src/sent_creates.rs",
    "recipes/src/protection/mod.rs",
    "recipes/src/protection/our_node.rs",
    "recipes/src/locks/lease.rs",
    "recipes/src/locks/inter_process_read_write_lock.rs",
    "recipes/src/locks/lock_internals.rs",
    "recipes/src/locks/standard_lock_internals_driver.rs",
];

/// How the mutants of a package are tested. A mutant takes seconds in the first round, and up to a minute in the
/// second, which tests only the survivors of the first.
struct Tests {
    directory: &'static str,
    /// The first round: the unit tests of the package itself, with these features.
    package: &'static str,
    features: &'static str,
    /// The second round: a package, and arguments of `cargo test`.
    second: &'static str,
    arguments: &'static str,
}

const TESTS: [Tests; 3] = [
    Tests {
        directory: "protocol/",
        package: "docent-protocol",
        features: "",
        second: "docent-protocol",
        arguments: "--lib --tests",
    },
    Tests {
        directory: "session/",
        package: "docent-session",
        features: "docent-session/sasl",
        second: "docent-session",
        arguments: "--lib --tests --features=docent-session/sasl",
    },
    Tests {
        directory: "recipes/",
        package: "docent-recipes",
        features: "",
        second: "docent-tests",
        // The skipped tests need Java, or minutes for each mutant.
        arguments: "--test locks --test parity -- --skip=interop:: --skip=killed_server::",
    },
];

/// The number of cases of each property test in the first round; proptest's default is 256.
const FIRST_CASES: &str = "16";

/// The shortest time limit of the tests of the second round.
const MIN_SECOND_TIMEOUT: Duration = Duration::from_secs(120);

/// Tests the mutants of the given files, or of the core. Fails if one survives.
pub(crate) fn run(files: &[String]) -> Result<ExitCode> {
    for file in files {
        let is_ours = TESTS.iter().any(|tests| file.starts_with(tests.directory));
        if !is_ours || !root().join(file).is_file() {
            eprintln!("xtask: {file}: not a source file of protocol, session or recipes");
            return Ok(crate::usage());
        }
    }
    if !succeeds(cargo().args(["mutants", "--version"])) {
        println!("xtask: installing cargo-mutants");
        run_to_end(cargo().args(["install", "--locked", "cargo-mutants"]))?;
    }
    let named: Vec<_> = files.iter().map(String::as_str).collect();
    let files = if named.is_empty() { &CORE[..] } else { &named };
    let mut code = ExitCode::SUCCESS;
    for tests in TESTS {
        let of_package: Vec<_> =
            files.iter().copied().filter(|file| file.starts_with(tests.directory)).collect();
        if !of_package.is_empty() {
            let has_survivors =
                tests.first_round(&of_package)? && tests.second_round(&of_package)?;
            code = if has_survivors { ExitCode::FAILURE } else { code };
        }
    }
    Ok(code)
}

impl Tests {
    fn command(&self, files: &[&str], tested: &str) -> Result<Command> {
        let output = root().join("target/mutants").join(self.directory);
        fs::create_dir_all(&output)?;
        let mut command = cargo();
        command.args(["mutants", "--no-shuffle", "--package", self.package]);
        command.args(["--test-package", tested, "--output"]).arg(output);
        command.args(files.iter().flat_map(|file| ["--file", *file]));
        // Nobody reads the panics of mutants, and without debug information the build takes half the time.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        Ok(command)
    }

    fn first_round(&self, files: &[&str]) -> Result<bool> {
        let mut command = self.command(files, self.package)?;
        command.args(["--", "--lib", "--features", self.features]);
        has_survivors(command.env("PROPTEST_CASES", FIRST_CASES), &[2, 3])
    }

    /// Tests the survivors of the first round. A mutant that makes a test run into the time limit counts as noticed.
    fn second_round(&self, files: &[&str]) -> Result<bool> {
        let mut command = self.command(files, self.second)?;
        // The baseline is skipped: cargo-mutants would run these tests in the package of the mutants,
        // which may not have them.
        let limit = self.unmutated()? * 5 + MIN_SECOND_TIMEOUT;
        command.args(["--iterate", "--baseline", "skip", "--timeout"]);
        command.arg(limit.as_secs().to_string()).arg("--").args(self.arguments.split(' '));
        has_survivors(&mut command, &[2])
    }

    /// Runs the tests of the second round on the unchanged code, where they must pass. Returns how long they take.
    fn unmutated(&self) -> Result<Duration> {
        let test = |build_only: bool| {
            let mut command = cargo();
            command.args(["test", "--package", self.second]);
            command.args(build_only.then_some("--no-run")).args(self.arguments.split(' '));
            run_to_end(command.stdin(Stdio::null()).stdout(Stdio::null()))
        };
        test(true)?;
        let start = Instant::now();
        test(false)?;
        Ok(start.elapsed())
    }
}

/// Runs cargo-mutants, which prints the survivors. Its exit code is 2 if some were not noticed, and 3 if some were
/// noticed only by the time limit.
fn has_survivors(command: &mut Command, codes: &[i32]) -> Result<bool> {
    let status = command.stdin(Stdio::null()).status()?;
    match status.code() {
        Some(code) if codes.contains(&code) => Ok(true),
        Some(0 | 3) => Ok(false),
        _ => Err(format!("cargo mutants: {status}").into()),
    }
}
