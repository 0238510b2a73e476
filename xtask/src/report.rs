//! The result of `cargo xtask check`: the checks that failed, and those that did not run.

use std::process::ExitCode;

/// A check that is in none of the lists has passed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    failed: Vec<&'static str>,
    skipped: Vec<&'static str>,
    /// Skipped, but not counted as a failure in CI either.
    skipped_optional: Vec<&'static str>,
}

impl Report {
    pub(crate) fn fail(&mut self, check: &'static str) {
        self.failed.push(check);
    }

    /// Reports a check that cannot run.
    pub(crate) fn skip(&mut self, check: &'static str, reason: &str) {
        println!("SKIPPED: {check}: {reason}");
        self.skipped.push(check);
    }

    /// Reports a check that cannot run in a CI without a network.
    pub(crate) fn skip_optional(&mut self, check: &'static str, reason: &str) {
        println!("SKIPPED: {check}: {reason}");
        self.skipped_optional.push(check);
    }

    /// Whether the run has failed. In CI, a skipped check is a failure.
    fn has_failed(&self, is_ci: bool) -> bool {
        !self.failed.is_empty() || (is_ci && !self.skipped.is_empty())
    }

    /// The last lines of the run.
    fn summary(&self, is_ci: bool) -> String {
        let mut lines = Vec::new();
        if is_ci && !self.skipped.is_empty() {
            lines.push("CI is set, so a skipped check is a failure".to_owned());
        }
        if !self.failed.is_empty() {
            lines.push(format!("failed: {}", self.failed.join("; ")));
        }
        let skipped: Vec<_> = self.skipped.iter().chain(&self.skipped_optional).copied().collect();
        if !skipped.is_empty() {
            lines.push(format!("skipped: {}", skipped.join("; ")));
        }
        if lines.is_empty() {
            lines.push("all checks passed".to_owned());
        } else if !self.has_failed(is_ci) {
            lines.push("all other checks passed".to_owned());
        }
        lines.join("\n")
    }

    pub(crate) fn print(&self, is_ci: bool) -> ExitCode {
        println!("{}", self.summary(is_ci));
        if self.has_failed(is_ci) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
