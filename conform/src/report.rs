//! The results of a run: lines, JSON and JUnit.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::case::{Case, Level};

/// The outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerdictKind {
    /// The server did what it must.
    Pass,
    /// It did something else.
    Fail,
    /// The case is about other versions, or needs something that is not available.
    Skip,
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the case: `GROUP/NAME`.
    pub id: String,
    /// The group of the case.
    pub group: String,
    /// How much the case matters.
    pub level: Level,
    /// What the server must do.
    pub about: String,
    /// A class and method of ZooKeeper, or an issue.
    pub source: String,
    /// The outcome of the case.
    pub result: VerdictKind,
    /// The step of the script that failed, or why the case was skipped.
    pub step: String,
    /// What the step expected.
    pub expected: String,
    /// What the server sent instead, with the frame, or what the client did.
    pub actual: String,
    /// The servers under test.
    pub server: String,
    /// Their version.
    pub version: String,
}

impl Verdict {
    pub(crate) fn new(case: &Case, server: &str, version: &str, result: VerdictKind) -> Self {
        Self {
            id: case.id.clone(),
            group: case.group().to_owned(),
            level: case.level,
            about: case.about.clone(),
            source: case.source.clone(),
            result,
            step: String::new(),
            expected: String::new(),
            actual: String::new(),
            server: server.to_owned(),
            version: version.to_owned(),
        }
    }
}

/// A line; a failure has more: the step, if there is one, what was expected, and what arrived.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, level, about, source, step, expected, actual, .. } = self;
        match self.result {
            VerdictKind::Pass if actual.is_empty() => write!(f, "pass  {level:<6} {id}"),
            VerdictKind::Pass => write!(f, "pass  {level:<6} {id}: {actual}"),
            VerdictKind::Skip => write!(f, "skip  {level:<6} {id}: {step}"),
            VerdictKind::Fail => {
                writeln!(f, "FAIL  {level:<6} {id}: {about} ({source})")?;
                if !step.is_empty() {
                    writeln!(f, "      step      {step}")?;
                }
                writeln!(f, "      expected  {expected}")?;
                write!(f, "      actual    {actual}")
            }
        }
    }
}

/// The results of a run, in the order of the cases.
#[derive(Debug, Clone)]
pub struct Report {
    /// The verdicts, one for each case.
    pub verdicts: Vec<Verdict>,
    /// The nodes that could not be deleted and are left on the server: the path of each, with the error.
    pub left: Vec<String>,
}

impl Report {
    /// The number of failures of a level.
    #[must_use]
    pub fn failures(&self, level: Level) -> usize {
        let failed = |one: &&Verdict| one.result == VerdictKind::Fail && one.level == level;
        self.verdicts.iter().filter(failed).count()
    }

    /// Returns a JSON array with an object for each case.
    ///
    /// # Errors
    ///
    /// None in practice, because all fields are text.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.verdicts)
    }

    /// Returns a JUnit file with a suite for each group.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let mut text =
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"docent conform\">\n"
                .to_owned();
        for suite in self.verdicts.chunk_by(|one, next| one.group == next.group) {
            let group = suite.first().map_or("", |one| one.group.as_str());
            let (tests, failures) = (suite.len(), count(suite, VerdictKind::Fail));
            let skipped = count(suite, VerdictKind::Skip);
            text += &format!(
                "  <testsuite name=\"{group}\" tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skipped}\">\n"
            );
            for verdict in suite {
                text += &test_case(verdict);
            }
            text += "  </testsuite>\n";
        }
        text + "</testsuites>\n"
    }
}

fn test_case(verdict: &Verdict) -> String {
    let Verdict { id, group, level, about, source, step, expected, actual, .. } = verdict;
    let body = match verdict.result {
        VerdictKind::Pass => String::new(),
        VerdictKind::Skip => format!("<skipped message=\"{}\"/>", escaped(step)),
        VerdictKind::Fail => {
            let text =
                format!("step: {step}\nexpected: {expected}\nactual: {actual}\nsource: {source}");
            let about = escaped(about);
            format!("<failure type=\"{level}\" message=\"{about}\">{}</failure>", escaped(&text))
        }
    };
    format!("    <testcase classname=\"{group}\" name=\"{}\">{body}</testcase>\n", escaped(id))
}

pub(crate) fn count(verdicts: &[Verdict], result: VerdictKind) -> usize {
    verdicts.iter().filter(|one| one.result == result).count()
}

/// The numbers of verdicts, by kind.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |kind| count(&self.verdicts, kind);
        let failures = |level| self.failures(level);
        write!(
            f,
            "{} cases: {} passed, {} failed ({} MUST, {} SHOULD, {} MAY), {} skipped",
            self.verdicts.len(),
            count(VerdictKind::Pass),
            count(VerdictKind::Fail),
            failures(Level::Must),
            failures(Level::Should),
            failures(Level::May),
            count(VerdictKind::Skip)
        )
    }
}

/// Escapes a text for XML and HTML, and leaves out characters that XML does not allow.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(c),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
