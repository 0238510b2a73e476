//! The report of a run, as text and as a page of HTML: the figures, the violations, the timeline.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use docent_judge::Judgement;
use xtask::Result;

use super::history::Line;
use super::timeline;

/// The number of counted events that a report shows.
const SHOWN: usize = 200;

/// A history with its judgement.
struct Report<'a> {
    lines: Vec<Line<'a>>,
    judgement: &'a Judgement,
}

/// Judges the history, and writes the report as text and as HTML.
pub(super) fn write(history: &Path, directory: &Path) -> Result<Judgement> {
    let text = fs::read_to_string(history)?;
    let judgement = docent_judge::judge(&text)?;
    let report = Report { lines: text.lines().map(Line::parse).collect(), judgement: &judgement };
    fs::write(directory.join("report.txt"), report.text())?;
    fs::write(directory.join("report.html"), report.html())?;
    for (at, text) in &judgement.violations {
        println!("xtask: VIOLATION at {}: {text}", report.time(*at));
    }
    println!("xtask: report: {}", directory.join("report.html").display());
    let is_zero = |name: &&&str| judgement.value(name).is_none_or(|value| value == "0");
    if let Some(nothing) =
        ["holds", "guarded writes", "operations on registers"].iter().find(is_zero)
    {
        return Err(format!("the run shows nothing: it has no {nothing}").into());
    }
    Ok(judgement)
}

/// The last line of the command.
pub(super) fn last_line(judgement: &Judgement) -> String {
    let figure = |name: &str| judgement.value(name).unwrap_or("0");
    format!(
        "{} holds, {} guarded writes, {} faults, {} violations",
        figure("holds"),
        figure("guarded writes"),
        figure("faults"),
        judgement.violations.len()
    )
}

impl Report<'_> {
    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n\n", self.title(), last_line(self.judgement));
        for (name, value) in &self.judgement.figures {
            let _ = writeln!(text, "{name}: {value}");
        }
        for (name, events) in
            [("violations", &self.judgement.violations), ("counted", &self.judgement.counted)]
        {
            let _ = writeln!(text, "\n{name}: {}", events.len());
            for (at, event) in events.iter().take(SHOWN) {
                let _ = writeln!(text, "{:>10}  {event}", self.time(*at));
            }
        }
        text += "\nfaults:\n";
        for (from, until, line) in self.faults() {
            let (from, until) = (self.time(from), self.time(until));
            let _ = writeln!(
                text,
                "{from:>10} to {until:>10}  {}",
                line.text("text").replace('_', " ")
            );
        }
        text
    }

    fn html(&self) -> String {
        let mut page = String::from(HEAD);
        let class = if self.judgement.violations.is_empty() { "good" } else { "bad" };
        let _ = write!(
            page,
            "<h1>{}</h1>\n<p class={class}>{}</p>\n",
            escape(&self.title()),
            escape(&last_line(self.judgement))
        );
        page += "<h2>Timeline</h2>\n";
        page += timeline::LEGEND;
        let times = |events: &[(u64, String)]| events.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        page += &timeline::draw(
            &self.lines,
            &times(&self.judgement.violations),
            &times(&self.judgement.counted),
        );
        page += "<h2>Figures</h2>\n<table>\n";
        for (name, value) in &self.judgement.figures {
            let _ = writeln!(page, "<tr><td>{}<td class=value>{}", escape(name), escape(value));
        }
        page += "</table>\n";
        for (name, events) in
            [("Violations", &self.judgement.violations), ("Counted", &self.judgement.counted)]
        {
            let _ = writeln!(page, "<h2>{name}: {}</h2>\n<table>", events.len());
            for (at, event) in events.iter().take(SHOWN) {
                let _ =
                    writeln!(page, "<tr><td class=time>{}<td>{}", self.time(*at), escape(event));
            }
            page += "</table>\n";
            if events.len() > SHOWN {
                let _ = writeln!(page, "<p>The first {SHOWN}; history.txt has all events.</p>");
            }
        }
        page += "<h2>Faults</h2>\n<table>\n";
        for (from, until, line) in self.faults() {
            let text = escape(&line.text("text").replace('_', " "));
            let (from, until) = (self.time(from), self.time(until));
            let _ = writeln!(page, "<tr><td class=time>{from}<td class=time>{until}<td>{text}");
        }
        page += "</table>\n";
        page
    }
}

impl<'a> Report<'a> {
    fn title(&self) -> String {
        let Some(run) = self.lines.iter().find(|line| line.word == "run") else {
            return "A run without an end".to_owned();
        };
        let end = run.number("end").unwrap_or(0);
        let seconds = end.saturating_sub(start(&self.lines)) / 1_000_000_000;
        let (seed, members, version) = (run.text("seed"), run.text("members"), run.text("version"));
        format!("Chaos: seed {seed}, {members} members of ZooKeeper {version}, {seconds} s")
    }

    fn faults(&self) -> Vec<(u64, u64, &Line<'a>)> {
        let faults = self.lines.iter().filter(|line| line.word == "fault");
        let times = |line: &Line<'_>| Some((line.number("from")?, line.number("until")?));
        let mut faults: Vec<_> = faults
            .filter_map(|line| times(line).map(|(from, until)| (from, until, line)))
            .collect();
        faults.sort_by_key(|(from, ..)| *from);
        faults
    }

    /// A time since the beginning of the run; `end` for what has none.
    fn time(&self, at: u64) -> String {
        if at == 0 {
            return "end".to_owned();
        }
        let ms = at.saturating_sub(start(&self.lines)) / 1_000_000;
        format!("{}.{:03}", ms / 1_000, ms % 1_000)
    }
}

/// When the run began.
pub(super) fn start(lines: &[Line<'_>]) -> u64 {
    let run = lines.iter().find(|line| line.word == "run");
    run.and_then(|run| run.number("start")).unwrap_or(0)
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html>
<html lang=en><meta charset=utf-8><title>docent: chaos</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1240px; color: #222; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse } td { padding: 2px 14px 2px 0; vertical-align: top }
.value, .time { font-variant-numeric: tabular-nums; white-space: nowrap }
.good, .bad { font-size: 1.15em; font-weight: 600; padding: .4em .8em; border-radius: 6px; display: inline-block }
.good { background: #e2f4e4; color: #14591d } .bad { background: #fbe3e3; color: #8c1111 }
.scroll { overflow-x: auto; border: 1px solid #ddd; border-radius: 6px }
.legend span { display: inline-block; margin-right: 1.4em } .legend i { display: inline-block; width: 1.6em; height: .8em; margin-right: .4em; border-radius: 2px }
svg text { font: 11px system-ui, sans-serif; fill: #333 }
</style>
";

#[cfg(test)]
mod tests {
    use docent_judge::Judgement;

    use super::super::history::Line;
    use super::{Report, last_line};

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

    #[test]
    fn texts_are_escaped_in_the_page() {
        let violations = vec![(2_000_001, "<token>".to_owned())];
        let judgement = Judgement { violations, ..Judgement::default() };
        let line = Line::parse("run seed=1 members=3 version=3.8.0 start=1 end=3000000001");
        let report = Report { lines: vec![line], judgement: &judgement };
        let page = report.html();
        assert!(page.contains("&lt;token&gt;") && !page.contains("<token>"));
        assert!(page.contains("seed 1, 3 members of ZooKeeper 3.8.0, 3 s"));
        assert!(report.text().contains("0.002  <token>"));
    }
}
