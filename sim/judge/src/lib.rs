//! Judges the history of a run on real servers: the reports of clients, with times of one clock. `cargo xtask chaos` writes it;
//! docs/CHAOS.md has the rules.
//!
//! The simulator knows the changes that its servers have applied. Here only the clients' reports are known, so each rule is
//! stated in times that are certain: a request was applied after its call and before its reply.

mod holds;
mod registers;
mod sets;

use std::{collections::BTreeMap, fmt};

/// The judgement of a history.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The rules that were broken, with the time.
    pub violations: Vec<(u64, String)>,
    /// Effects that no client can exclude and no document excludes: overlaps of naive holds, stale reads.
    pub counted: Vec<(u64, String)>,
    /// Names and values.
    pub figures: Vec<(&'static str, String)>,
}

/// Judges a history.
///
/// # Errors
///
/// If a line lacks a field.
pub fn judge(text: &str) -> Result<Judgement, String> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        lines.push(Line::parse(number + 1, line));
    }
    let of = |word: &'static str| lines.iter().filter(move |line| line.word == word);
    let session = match of("run").next() {
        Some(run) => run.number("session")?,
        None => return Err("the history has no line `run`: the run did not end".to_owned()),
    };
    let faults = of("fault").map(Fault::parse).collect::<Result<Vec<_>, _>>()?;
    let mut judgement = Judgement::default();
    judgement.figure("faults", faults.len());
    for kind in
        faults.iter().map(|fault| fault.kind.as_str()).collect::<std::collections::BTreeSet<_>>()
    {
        let count = faults.iter().filter(|fault| fault.kind == kind).count();
        judgement.figures.push(("faults by kind", format!("{kind}={count}")));
    }
    holds::judge(of("hold"), &faults, session, &mut judgement)?;
    sets::judge(&lines, &mut judgement)?;
    registers::judge(of("register"), &mut judgement)?;
    for line in of("stuck") {
        let (client, command) = (line.text("client")?, line.text("command")?);
        let text = format!("{client}: no reply to {command}");
        let at = line.number("at")?;
        let docent = line.text("kind")? == "docent";
        let list = if docent { &mut judgement.violations } else { &mut judgement.counted };
        list.push((at, text));
    }
    for line in of("note") {
        judgement.counted.push((line.number("at")?, line.text("text")?.replace('_', " ")));
    }
    judgement.violations.sort();
    judgement.counted.sort();
    Ok(judgement)
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

    fn violation(&mut self, at: u64, text: impl fmt::Display) {
        self.violations.push((at, text.to_string()));
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

/// A line: a word, and fields without spaces.
struct Line<'a> {
    number: usize,
    word: &'a str,
    fields: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(number: usize, line: &'a str) -> Self {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        Self { number, word, fields: words.filter_map(|field| field.split_once('=')).collect() }
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        let field = self.fields.get(name).copied();
        field.ok_or_else(|| format!("line {}: {} without {name}", self.number, self.word))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("line {}: {name}={text} is not a number", self.number))
    }

    /// A number, or `-` for none.
    fn optional(&self, name: &str) -> Result<Option<u64>, String> {
        if self.text(name)? == "-" { Ok(None) } else { self.number(name).map(Some) }
    }
}

/// A fault that was carried out.
struct Fault {
    kind: String,
    from: u64,
    until: u64,
}

impl Fault {
    fn parse(line: &Line<'_>) -> Result<Self, String> {
        let (kind, from, until) = (line.text("kind")?, line.number("from")?, line.number("until")?);
        Ok(Self { kind: kind.to_owned(), from, until })
    }

    /// Whether it separates, ends or stops members, so that one may not know the decisions of the others.
    fn is_of_members(&self) -> bool {
        !matches!(self.kind.as_str(), "pause-client" | "kill-client" | "cut-client" | "one-server")
    }
}

/// Nanoseconds as seconds, with milliseconds.
fn seconds(nanos: u64) -> String {
    format!("{}.{:03} s", nanos / 1_000_000_000, nanos / 1_000_000 % 1_000)
}
