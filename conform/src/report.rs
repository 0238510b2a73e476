//! The results of a run: lines, JSON and JUnit.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::case::{Case, Level};

/// What a case came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerdictKind {
    /// The server did what it shall.
    Pass,
    /// It did something else.
    Fail,
    /// The case is about other versions, or needs what is not there.
    Skip,
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the case: `GROUP/NAME`.
    pub id: String,
    /// Its group.
    pub group: String,
    /// How much it matters.
    pub level: Level,
    /// What the server shall do.
    pub about: String,
    /// A class and method of ZooKeeper, or an issue.
    pub source: String,
    /// What the case came to.
    pub result: VerdictKind,
    /// The line of the script that was not true, or why the case was skipped.
    pub step: String,
    /// What was expected there.
    pub expected: String,
    /// What came instead, with its frame.
    pub actual: String,
    /// The servers that were asked.
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

/// A line; a failure has three more: the step, what was expected, and what came.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, level, about, source, step, expected, actual, .. } = self;
        match self.result {
            VerdictKind::Pass => write!(f, "pass  {level:<6} {id}"),
            VerdictKind::Skip => write!(f, "skip  {level:<6} {id}: {step}"),
            VerdictKind::Fail => {
                writeln!(f, "FAIL  {level:<6} {id}: {about} ({source})")?;
                writeln!(f, "      step      {step}")?;
                writeln!(f, "      expected  {expected}")?;
                write!(f, "      actual    {actual}")
            }
        }
    }
}

/// The results of a run, in the order of the cases.
#[derive(Debug, Clone)]
pub struct Report {
    /// One for each case.
    pub verdicts: Vec<Verdict>,
    /// What was left on the server, because it could not be deleted: paths with the error of each.
    pub left: Vec<String>,
}

impl Report {
    /// The number of failures of a level.
    #[must_use]
    pub fn failures(&self, level: Level) -> usize {
        let failed = |one: &&Verdict| one.result == VerdictKind::Fail && one.level == level;
        self.verdicts.iter().filter(failed).count()
    }

    /// An array with an object for each case.
    ///
    /// # Errors
    ///
    /// None: all fields are text.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.verdicts)
    }

    /// A JUnit file with a suite for each group.
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

/// The counts.
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

/// Text for XML and HTML, without characters that XML cannot have.
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
