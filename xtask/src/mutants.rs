//! `cargo xtask mutants`: whether a test notices when a line of the core says something else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use xtask::{
    Result,
    workspace::{cargo, root},
};

/// The files whose rules must not change unnoticed: the codec, watches, requests, hosts, and how a lock is granted.
const CORE: &[&str] = &[
    "protocol/src/frame.rs",
    "protocol/src/jute/mod.rs",
    "protocol/src/jute/list.rs",
    "protocol/src/jute/field.rs",
    "protocol/src/multi.rs",
    "protocol/src/text.rs",
    "session/src/machine/hosts.rs",
    "session/src/machine/buffer_pool.rs",
    "session/src/machine/requests/mod.rs",
    "session/src/machine/submit.rs",
    "session/src/machine/receive.rs",
    "session/src/machine/flow_control.rs",
    "session/src/machine/unset.rs",
    "session/src/machine/watch_modes.rs",
    "session/src/machine/watch_requests.rs",
    "session/src/machine/watch_table/mod.rs",
    "session/src/machine/watch_table/event.rs",
    "session/src/machine/watch_table/kind.rs",
    "session/src/machine/watch_table/mode.rs",
    "session/src/machine/watch_table/watchers.rs",
    "session/src/machine/watch_table/replay.rs",
    "recipes/src/sent_creates.rs",
    "recipes/src/protection/mod.rs",
    "recipes/src/protection/our_node.rs",
    "recipes/src/locks/lease.rs",
    "recipes/src/locks/inter_process_read_write_lock.rs",
    "recipes/src/locks/lock_internals.rs",
    "recipes/src/locks/standard_lock_internals_driver.rs",
];

/// How the mutants of a directory are tested. A mutant costs seconds in the first round, and up to a minute in
/// the second, which tests only the survivors of the first.
struct Tests {
    directory: &'static str,
    /// The first round: the unit tests of the directory's own package, with these features.
    package: &'static str,
    features: &'static str,
    /// The second round: packages, and arguments of `cargo test`.
    packages: &'static [&'static str],
    arguments: &'static [&'static str],
}

const TESTS: &[Tests] = &[
    Tests {
        directory: "protocol/",
        package: "docent-protocol",
        features: "",
        packages: &["docent-protocol"],
        arguments: &["--lib", "--tests"],
    },
    Tests {
        directory: "session/",
        package: "docent-session",
        features: "docent-session/sasl",
        packages: &["docent-session"],
        arguments: &["--lib", "--tests", "--features=docent-session/sasl"],
    },
    Tests {
        directory: "recipes/",
        package: "docent-recipes",
        features: "",
        packages: &["docent-tests"],
        // These need Java, or minutes for each mutant.
        arguments: &[
            "--test",
            "locks",
            "--test",
            "parity",
            "--",
            "--skip=interop::",
            "--skip=killed_server::",
        ],
    },
];

/// The number of cases of each property test in the first round; proptest's default is 256.
const FIRST_CASES: &str = "16";

/// The least time limit of the tests of the second round, in seconds.
const MIN_SECOND_TIMEOUT: u64 = 120;

/// The survivors that are no fault of the tests, each with its reason.
const EXCEPTIONS: &str = "xtask/mutants.txt";

/// Runs the mutants of the files, or of the core; fails when one survives without a reason.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let files: Vec<&str> = match arguments {
        [] => CORE.to_vec(),
        files => files.iter().map(String::as_str).collect(),
    };
    for file in &files {
        if let Some(reason) = refusal(file) {
            eprintln!("xtask: {file}: {reason}");
            return Ok(crate::usage());
        }
    }
    let exceptions = exceptions(&fs::read_to_string(root().join(EXCEPTIONS))?)?;
    install()?;
    let mut found = Found::default();
    for tests in TESTS {
        let files: Vec<_> = files.iter().filter(|file| file.starts_with(tests.directory)).collect();
        if files.is_empty() {
            continue;
        }
        let output = root().join("target/mutants").join(tests.directory.trim_end_matches('/'));
        fs::create_dir_all(&output)?;
        let round = |packages: &[&str], arguments: &[&str], first: bool| -> Result<Found> {
            let mut command = cargo();
            command.args(["mutants", "--workspace", "--no-shuffle"]);
            command.args(["--minimum-test-timeout", "30"]);
            command.arg("--output").arg(&output);
            command.args(files.iter().flat_map(|file| ["--file", file]));
            command.args(packages.iter().flat_map(|package| ["--test-package", package]));
            if first {
                command.env("PROPTEST_CASES", FIRST_CASES);
            } else {
                // cargo-mutants would try these tests on the package of the mutants, which may have none of them.
                let limit = unmutated(packages, arguments)?.as_secs() * 5 + MIN_SECOND_TIMEOUT;
                command.args(["--iterate", "--baseline", "skip", "--timeout", &limit.to_string()]);
            }
            command.arg("--").args(arguments);
            // The panics of mutants are not read, and without debug information each is built in half the time.
            command.env("CARGO_PROFILE_DEV_DEBUG", "0");
            let status = command.stdin(Stdio::null()).status()?;
            // 0: all were noticed; 2: some were not; 3: some ran into the timeout, which is a notice too.
            if !matches!(status.code(), Some(0 | 2 | 3)) {
                let directory = tests.directory;
                return Err(format!("cargo mutants of {directory} ended with {status}").into());
            }
            Found::read(&output.join("mutants.out"))
        };
        let first = round(&[tests.package], &["--lib", "--features", tests.features], true)?;
        if first.survivors.is_empty() {
            found.add(first);
        } else {
            found.add(first.followed_by(round(tests.packages, tests.arguments, false)?));
        }
    }
    let unexplained = found.survivors.iter().filter(|mutant| !exceptions.contains_key(*mutant));
    let unexplained: Vec<_> = unexplained.collect();
    unexplained.iter().for_each(|mutant| println!("survived without a reason: {mutant}"));
    let of_files = |mutant: &str| files.iter().any(|file| mutant.starts_with(&format!("{file}: ")));
    for mutant in exceptions.keys().filter(|mutant| of_files(mutant)) {
        if !found.survivors.contains(mutant) {
            println!("a reason that is not needed, in {EXCEPTIONS}: {mutant}");
        }
    }
    println!(
        "{} mutants: {} noticed, {} survived with a reason, {} without, {} did not compile",
        found.noticed + found.timed_out + found.survived + found.not_compiled,
        found.noticed + found.timed_out,
        found.survivors.len() - unexplained.len(),
        unexplained.len(),
        found.not_compiled
    );
    Ok(if unexplained.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests of the second round on the code as it is, and returns how long they take. They must pass.
fn unmutated(packages: &[&str], arguments: &[&str]) -> Result<Duration> {
    let test = |build_only: bool| -> Result<()> {
        let mut command = cargo();
        command.arg("test").args(packages.iter().flat_map(|package| ["--package", package]));
        command.args(build_only.then_some("--no-run")).args(arguments);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("without a mutant: {status}").into()) }
    };
    test(true)?;
    let start = Instant::now();
    test(false)?;
    Ok(start.elapsed())
}

/// Why the mutants of a file cannot be run, if so.
fn refusal(file: &str) -> Option<String> {
    if file.starts_with('-') {
        return Some("no option of mutants".to_owned());
    }
    let directories: Vec<_> = TESTS.iter().map(|tests| tests.directory).collect();
    if !directories.iter().any(|directory| file.starts_with(directory)) {
        return Some(format!("not in one of {}", directories.join(", ")));
    }
    let is_source = Path::new(file).extension().is_some_and(|extension| extension == "rs");
    (!is_source || !root().join(file).is_file()).then(|| "no such source file".to_owned())
}

/// Installs cargo-mutants if it is missing.
fn install() -> Result<()> {
    let mut version = cargo();
    version.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if version.status()?.success() {
        return Ok(());
    }
    println!("xtask: installing cargo-mutants");
    let status = cargo().args(["install", "--locked", "cargo-mutants"]).status()?;
    if status.success() { Ok(()) } else { Err("cargo-mutants cannot be installed".into()) }
}

/// The mutants that need no test, each with its reason: a line `FILE: CHANGE`, and the reason in indented lines below
/// it. Empty lines and those that begin with `#` say nothing.
fn exceptions(text: &str) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::<String, String>::new();
    let mut last: Option<String> = None;
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            let reason = last.as_ref().and_then(|mutant| all.get_mut(mutant));
            let reason =
                reason.ok_or_else(|| format!("{EXCEPTIONS}: a reason of nothing: {line}"))?;
            reason.push_str(line.trim());
            reason.push(' ');
            continue;
        }
        if all.insert(line.to_owned(), String::new()).is_some() {
            return Err(format!("{EXCEPTIONS}: twice: {line}").into());
        }
        last = Some(line.to_owned());
    }
    match all.iter().find(|(_, reason)| reason.is_empty()) {
        Some((mutant, _)) => Err(format!("{EXCEPTIONS}: no reason for: {mutant}").into()),
        None => Ok(all),
    }
}

/// What became of mutants.
#[derive(Debug, Default)]
struct Found {
    noticed: usize,
    timed_out: usize,
    survived: usize,
    not_compiled: usize,
    /// Without their places in the file: two that are alike in one function are one.
    survivors: BTreeSet<String>,
}

impl Found {
    /// Reads what cargo-mutants has written into its directory.
    fn read(directory: &Path) -> Result<Self> {
        let lines = |name: &str| -> Result<Vec<String>> {
            let text = fs::read_to_string(directory.join(name))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let survivors = lines("missed.txt")?;
        Ok(Self {
            noticed: lines("caught.txt")?.len(),
            timed_out: lines("timeout.txt")?.len(),
            survived: survivors.len(),
            not_compiled: lines("unviable.txt")?.len(),
            survivors: survivors.iter().map(|line| without_place(line)).collect(),
        })
    }

    /// The result of two rounds. The second has tested all mutants that the first has neither noticed nor failed to
    /// compile, those that ran into the timeout among them.
    fn followed_by(self, second: Self) -> Self {
        Self {
            noticed: self.noticed + second.noticed,
            not_compiled: self.not_compiled + second.not_compiled,
            ..second
        }
    }

    fn add(&mut self, other: Self) {
        self.noticed += other.noticed;
        self.timed_out += other.timed_out;
        self.survived += other.survived;
        self.not_compiled += other.not_compiled;
        self.survivors.extend(other.survivors);
    }
}

/// `a/b.rs:12:3: change` without the line and the column, which other changes move.
fn without_place(mutant: &str) -> String {
    let Some((place, change)) = mutant.split_once(": ") else { return mutant.to_owned() };
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {change}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_known_by_its_file_and_change() {
        let mutant = "protocol/src/jute/mod.rs:12:30: replace < with <= in Reader<'a>::take";
        assert_eq!(
            without_place(mutant),
            "protocol/src/jute/mod.rs: replace < with <= in Reader<'a>::take"
        );
        assert_eq!(without_place("rubbish"), "rubbish");
    }

    #[test]
    fn each_mutant_of_two_rounds_counts_once() {
        let found = |noticed, timed_out, not_compiled, survivors: &[&str]| Found {
            noticed,
            timed_out,
            survived: survivors.len(),
            not_compiled,
            survivors: survivors.iter().map(ToString::to_string).collect(),
        };
        // Of 10 mutants, 4 are tested again: 3 survivors and a timeout.
        let mut all = found(5, 1, 1, &["a", "b", "c"]).followed_by(found(2, 1, 0, &["c"]));
        assert_eq!((all.noticed, all.timed_out, all.survived, all.not_compiled), (7, 1, 1, 1));
        all.add(found(1, 0, 0, &["d"]));
        assert_eq!((all.noticed, all.survived), (8, 2));
        assert!(all.survivors.iter().eq(["c", "d"]));
    }

    #[test]
    fn each_exception_has_a_reason() {
        let text = "# why\n\na.rs: one\n    because\n    of it\nb.rs: two\n  too\n";
        let all = exceptions(text).unwrap();
        assert_eq!(all["a.rs: one"], "because of it ");
        assert_eq!(all.len(), 2);
        for (text, part) in [
            ("a.rs: one\nb.rs: two\n  because", "no reason for: a.rs: one"),
            ("  because", "a reason of nothing"),
            ("a: b\n  c\na: b\n  c", "twice: a: b"),
        ] {
            let error = exceptions(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_exceptions_and_the_core_are_there() {
        exceptions(&fs::read_to_string(root().join(EXCEPTIONS)).unwrap()).unwrap();
        for file in CORE {
            assert_eq!(refusal(file), None, "{file}");
        }
        for file in ["--all", "protocol/src/none.rs", "protocol/src", "README.md", "src/lib.rs"] {
            assert!(refusal(file).is_some(), "{file}");
        }
    }
}
