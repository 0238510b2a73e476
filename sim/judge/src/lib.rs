//! Judges the history of a run on real servers, which its clients have reported with times of one clock.
//! `cargo xtask chaos` writes it; docs/CHAOS.md has the rules.
//!
//! The simulator knows the changes that its servers have applied. Here only the clients' reports are known, so each
//! rule is stated in times that are certain: a request was applied after its call and before its reply.

mod excuses;
mod holds;
mod line;
mod registers;
mod sets;

use std::fmt;

use excuses::{Excuses, Wrong};
pub use line::Line;

/// The judgement of a history.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The broken rules, with the times. Each text begins with the name of the rule.
    pub violations: Vec<(u64, String)>,
    /// Effects that no client can prevent and no document rules out, with their excuses.
    pub counted: Vec<(u64, String)>,
    /// Names and values.
    pub figures: Vec<(&'static str, String)>,
}

/// Figures that must not be 0 in a run of all workloads: a rule that had nothing to judge proves nothing.
const NEEDED: [&str; 11] = [
    "holds",
    "holds with a token",
    "holds with a belief",
    "holds with a proven part",
    "elements of the naive set in memory",
    "elements of the proven set in memory",
    "guarded writes",
    "writes of registers",
    "fenced reads of registers",
    "plain reads of registers",
    "reads of registers behind a sync",
];

/// The lines of a history.
///
/// # Errors
///
/// If one is malformed.
pub fn lines(text: &str) -> Result<Vec<Line<'_>>, String> {
    text.lines().enumerate().map(|(number, line)| Line::parse(number + 1, line)).collect()
}

/// Judges a history.
///
/// # Errors
///
/// If the history cannot be judged: a line is malformed or missing, or a rule had nothing to judge.
pub fn judge(text: &str) -> Result<Judgement, String> {
    let lines = lines(text)?;
    let of = |word: &'static str| lines.iter().filter(move |line| line.word == word);
    let run = match of("run").collect::<Vec<_>>().as_slice() {
        [run] => *run,
        [] => return Err("the history has no line `run`: the run did not end".to_owned()),
        _ => return Err("the history has two lines `run`".to_owned()),
    };
    let (start, end) = (run.number("start")?, run.number("end")?);
    // Notes come from the servers' logs, which are read after the run: their times are not checked.
    let mut events = lines.iter().filter(|line| line.word != "note");
    events.try_for_each(|line| line.check_times(start, end))?;
    let excuses = Excuses::new(of("fault"), start, run.number("session")?)?;
    let mut judgement = Judgement::default();
    judgement.figure("faults", of("fault").count());
    for (kind, count) in excuses.kinds() {
        judgement.figure("faults by kind", format_args!("{kind}={count}"));
    }
    let locks = holds::judge(of("hold"), &excuses, &mut judgement)?;
    // A run that is made for a picture has holds only.
    let needed = if run.one_of("work", &["all", "holds"])? == "all" {
        sets::judge(&lines, &locks, &excuses, &mut judgement)?;
        registers::judge(of("register"), &excuses, &mut judgement)?;
        &NEEDED[..]
    } else if lines.iter().any(|line| matches!(line.word, "memory" | "guarded" | "register")) {
        return Err(run.wrong("work"));
    } else {
        &NEEDED[..1]
    };
    let is_zero = |name: &&&str| judgement.value(name).is_none_or(|value| value == "0");
    if let Some(nothing) = needed.iter().find(is_zero) {
        return Err(format!("the run shows nothing: it has no {nothing}"));
    }
    for line in of("stuck") {
        let text = format!("{}: no reply to {}", line.text("client"), line.text("command"));
        let at = line.number("at")?;
        if line.is_docent()? {
            judgement.violation("stuck", at, text);
        } else {
            judgement.counted.push((at, text));
        }
    }
    for line in of("note") {
        judgement.counted.push((line.number("at")?, line.text("text").replace('_', " ")));
    }
    judgement.violations.sort();
    judgement.counted.sort();
    Ok(judgement)
}

/// Whether the first of two clients that acted as holders at once was wrong: the one with the earlier hold. If the order of
/// their holds is not certain, the one whose node was gone, or else docent's.
fn is_stale(is_before: Option<bool>, is_gone: bool, is_other_gone: bool, is_docent: bool) -> bool {
    is_before.unwrap_or(if is_gone == is_other_gone { is_docent } else { is_gone })
}

impl Judgement {
    /// The value of a figure.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.figures.iter().find(|(of, _)| *of == name).map(|(_, value)| value.as_str())
    }

    fn figure(&mut self, name: &'static str, value: impl fmt::Display) {
        self.figures.push((name, value.to_string()));
    }

    fn violation(&mut self, rule: &str, at: u64, text: impl fmt::Display) {
        self.violations.push((at, format!("{rule}: {text}")));
    }

    /// Reports a run in which too many holds lack a token, or operations a session. Up to two, or a tenth, may: their
    /// client had just lost its session.
    fn check_lacking(&mut self, what: &str, lacking: usize, all: usize) {
        if lacking > 2 && lacking * 10 > all {
            self.violation("history", 0, format_args!("{lacking} of {all} {what}"));
        }
    }

    /// Records that two clients acted as holders of one lock at once. It is counted if the wrong one has an excuse, or
    /// if both are Curator's; otherwise it is a violation.
    fn overlap(
        &mut self,
        rule: &str,
        text: &str,
        wrong: Wrong<'_>,
        is_right_docent: bool,
        excuses: &Excuses<'_>,
    ) {
        match excuses.find(wrong) {
            Some(excuse) => self.counted.push((wrong.from, format!("{text} ({excuse})"))),
            None if wrong.is_docent || is_right_docent => {
                self.violation(rule, wrong.from, format_args!("{text}, without an excuse"));
            }
            None => self.counted.push((wrong.from, text.to_owned())),
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.figures {
            writeln!(f, "figure {name}: {value}")?;
        }
        for (at, text) in &self.counted {
            writeln!(f, "counted {at} {text}")?;
        }
        for (at, text) in &self.violations {
            writeln!(f, "violation {at} {text}")?;
        }
        Ok(())
    }
}

/// Nanoseconds as seconds, with milliseconds.
fn seconds(nanos: u64) -> String {
    format!("{}.{:03} s", nanos / 1_000_000_000, nanos / 1_000_000 % 1_000)
}
