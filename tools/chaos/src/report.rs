//! The report of a run: the figures, violations and faults as text, and the timeline as a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use docent_judge::{Judgement, Line};
use xtask::Result;

use crate::history::start;
use crate::timeline;

/// The largest number of counted events that a report lists; the history has all of them.
const SHOWN: usize = 200;

/// A history with its judgement.
pub(crate) struct Report<'a> {
    lines: Vec<Line<'a>>,
    pub(crate) judgement: Judgement,
}

/// Judges the history, and writes the report and the timeline into the directory.
pub(crate) fn write(history: &Path, directory: &Path) -> Result<Judgement> {
    let text = fs::read_to_string(history)?;
    let report = Report::new(&text)?;
    let file = directory.join("report.txt");
    fs::write(&file, report.text())?;
    fs::write(directory.join("timeline.svg"), report.timeline())?;
    let judgement = report.judgement;
    for (at, text) in &judgement.violations {
        println!("chaos: VIOLATION at {}: {text}", time(&report.lines, *at));
    }
    println!("chaos: report: {}", file.display());
    Ok(judgement)
}

/// The last line of the command.
pub(crate) fn last_line(judgement: &Judgement) -> String {
    let figure = |name: &str| judgement.value(name).unwrap_or("0");
    format!(
        "{} holds, {} guarded writes, {} faults, {} violations",
        figure("holds"),
        figure("guarded writes"),
        figure("faults"),
        judgement.violations.len()
    )
}

impl<'a> Report<'a> {
    /// Judges a history.
    pub(crate) fn new(history: &'a str) -> Result<Self> {
        let judgement = docent_judge::judge(history)?;
        Ok(Self { lines: docent_judge::lines(history)?, judgement })
    }

    pub(crate) fn timeline(&self) -> String {
        timeline::draw(&self.title(), &self.lines, &self.judgement)
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n\n", self.title(), last_line(&self.judgement));
        for (name, value) in &self.judgement.figures {
            let _ = writeln!(text, "{name}: {value}");
        }
        for (name, events) in
            [("violations", &self.judgement.violations), ("counted", &self.judgement.counted)]
        {
            let _ = writeln!(text, "\n{name}: {}", events.len());
            for (at, event) in events.iter().take(SHOWN) {
                let _ = writeln!(text, "{:>10}  {event}", time(&self.lines, *at));
            }
        }
        text += "\nfaults:\n";
        for (from, until, what) in self.faults() {
            let (from, until) = (time(&self.lines, from), time(&self.lines, until));
            let _ = writeln!(text, "{from:>10} to {until:>10}  {}", what.replace('_', " "));
        }
        text
    }

    fn title(&self) -> String {
        let Some(run) = self.lines.iter().find(|line| line.word == "run") else {
            return "A run without an end".to_owned();
        };
        let end = run.number("end").unwrap_or_default();
        let seconds = end.saturating_sub(start(&self.lines)) / 1_000_000_000;
        let (seed, members, version) = (run.text("seed"), run.text("members"), run.text("version"));
        format!("Chaos: seed {seed}, {members} members of ZooKeeper {version}, {seconds} s")
    }

    fn faults(&self) -> Vec<(u64, u64, &'a str)> {
        let faults = self.lines.iter().filter(|line| line.word == "fault");
        let fault = |line: &Line<'a>| {
            Some((line.number("from").ok()?, line.number("until").ok()?, line.text("text")))
        };
        let mut faults: Vec<_> = faults.filter_map(fault).collect();
        faults.sort_by_key(|(from, ..)| *from);
        faults
    }
}

/// A time as seconds since the beginning of the run; `end` for 0, which stands for no time.
fn time(lines: &[Line<'_>], at: u64) -> String {
    if at == 0 {
        return "end".to_owned();
    }
    let ms = at.saturating_sub(start(lines)) / 1_000_000;
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}

#[cfg(test)]
mod tests {
    use docent_judge::Judgement;

    use super::last_line;

    #[test]
    fn the_last_line_counts() {
        let figures = [("holds", "12"), ("guarded writes", "3"), ("faults", "4")];
        let judgement = Judgement {
            figures: figures.map(|(name, value)| (name, value.to_owned())).to_vec(),
            violations: vec![(7, "a token".to_owned())],
            ..Judgement::default()
        };
        assert_eq!(last_line(&judgement), "12 holds, 3 guarded writes, 4 faults, 1 violations");
    }
}
