//! The result of a test run: counts and names of failures, parsed from the output of `cargo test`.

use std::fmt;

/// The counts of the last line, and the names of failures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// The names of failed tests.
    failed_tests: Vec<String>,
    /// The targets with failed tests, as arguments of `cargo test`.
    failed_targets: Vec<String>,
    /// The targets that do not compile, as cargo names them.
    failed_builds: Vec<String>,
    /// The names below the last `failures:` of the current target.
    listed: Vec<String>,
}

impl Summary {
    /// Reads a line of standard output, which comes from the test programs. An ignored test counts as skipped.
    pub(crate) fn read_stdout(&mut self, line: &str) {
        let line = line.trim_end();
        if line == "failures:" {
            // Printed twice: before the outputs of the failed tests, and before the list of their names.
            self.listed.clear();
        } else if let Some(name) = line.strip_prefix("    ") {
            self.listed.push(name.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let (verdict, counts) = result.split_once(". ").unwrap_or_default();
            self.add_counts(counts);
            if verdict == "FAILED" {
                self.failed_tests.append(&mut self.listed);
            }
            self.listed.clear();
        }
    }

    /// Reads a line of standard error, which comes from cargo. With `--no-fail-fast`, it ends with the failed targets.
    pub(crate) fn read_stderr(&mut self, line: &str) {
        // ``error: could not compile `docent` (test "locks") due to 1 previous error``
        if let Some((_, target)) = line.trim_end().split_once("could not compile `") {
            let target = target.split_once(" due to ").map_or(target, |(target, _)| target);
            self.failed_builds.push(target.replacen('`', "", 1));
        }
        let target = line.trim_end().strip_prefix("    `").and_then(|rest| rest.strip_suffix('`'));
        self.failed_targets.extend(target.map(str::to_owned));
    }

    /// Adds counts such as `3 passed; 0 failed; 1 ignored; 0 measured`.
    fn add_counts(&mut self, counts: &str) {
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let (Some(number), Some(result)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match result {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Counts a run of a program that is a test by itself.
    pub(crate) fn add_run(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.failed_tests.push(name.to_owned());
        }
    }

    /// Adds the results of other tests.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failed_tests.extend(other.failed_tests);
        self.failed_targets.extend(other.failed_targets);
        self.failed_builds.extend(other.failed_builds);
    }

    /// Counts a run that this machine cannot do.
    pub(crate) fn skip_run(&mut self) {
        self.skipped += 1;
    }

    /// Counts tests as skipped that libtest counted as passed, because they returned early.
    pub(crate) fn skip(&mut self, tests: usize) {
        self.passed = self.passed.saturating_sub(tests);
        self.skipped += tests;
    }

    /// Returns the names of the failed tests and targets, one per line.
    pub(crate) fn failures(&self) -> String {
        let mut text = String::new();
        for (title, names) in [
            ("not compiled", &self.failed_builds),
            ("failed tests", &self.failed_tests),
            ("failed targets (arguments for cargo test)", &self.failed_targets),
        ] {
            if !names.is_empty() {
                text += &format!("\n{title}:\n");
                names.iter().for_each(|name| text += &format!("  {name}\n"));
            }
        }
        text
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, .. } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn results_are_summed_and_failures_are_named() {
        let mut summary = Summary::default();
        for line in [
            "test module::two ... FAILED",
            "",
            "failures:",
            "",
            "---- module::two stdout ----",
            "    output that is indented",
            "",
            "failures:",
            "    module::two",
            "",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.1s",
            "    output of a passed test",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        ] {
            summary.read_stdout(line);
        }
        for line in [
            "\u{1b}[91merror\u{1b}[0m: could not compile `docent` (test \"locks\") due to 2 previous errors",
            "error: 1 target failed:",
            "    `-p docent-session --lib`",
        ] {
            summary.read_stderr(line);
        }
        // Those of tests in the background.
        let mut other = Summary::default();
        other.read_stdout("test result: ok. 1 passed; 0 failed; 0 ignored");
        other.add_run("cargo xtask exhaust --quick", false);
        summary.add(other);
        // libtest has counted it as passed.
        summary.skip(1);
        summary.add_run("cargo xtask sim", false);
        assert_eq!(summary.to_string(), "4 passed, 3 failed, 2 skipped");
        assert_eq!(
            summary.failures(),
            "\nnot compiled:\n  docent (test \"locks\")\n\nfailed tests:\n  module::two\n  \
             cargo xtask exhaust --quick\n  cargo xtask sim\n\
             \nfailed targets (arguments for cargo test):\n  -p docent-session --lib\n"
        );
    }
}
