//! A scenario file: its head, its script, and the frames of both sides.
//!
//! ```text
//! why: N1: Curator does not search again, and loses its node | a search precedes every create but the first
//!
//! --- script
//! start A
//! A: acquire mutex:/s07
//! --- frames
//!   A -> connect sid=0
//! - A -> getChildren2(12) /s07 watch=false
//! + A -> getChildren(8) /s07 watch=false
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    ops::Range,
    path::PathBuf,
};

use super::frames::{self, Alignment, Kind, Line, Rules};

/// A difference from Curator, as in the head: `L1: what Curator does | what docent does`.
pub(crate) struct Difference<'a> {
    /// `recording` if the difference comes from the recording and not from docent.
    pub(crate) name: &'a str,
    /// Whether most scenarios of the area have it.
    pub(crate) is_everywhere: bool,
    /// Curator's behaviour and docent's. One scenario of an area has the text for all.
    pub(crate) text: Option<(&'a str, &'a str)>,
}

/// A scenario, as read from its file.
pub(crate) struct Scenario {
    pub(crate) path: PathBuf,
    /// The name of the file.
    pub(crate) title: String,
    /// The lines of the head: a word and its text.
    head: Vec<(String, String)>,
    /// The number of each line, and its text.
    pub(crate) script: Vec<(usize, String)>,
    /// The text before the frames.
    front: String,
    frames: Vec<Frame>,
    /// The text after the frames.
    back: String,
}

/// A line of the frames.
struct Frame {
    /// Its line in the file.
    number: usize,
    side: Side,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Both,
    Curator,
    Docent,
}

impl Scenario {
    pub(crate) fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let title = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (mut head, mut script, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        let (mut front, mut back, mut part) = (String::new(), String::new(), "head");
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(name) = line.strip_prefix("--- ") {
                part = if part == "frames" { "back" } else { name };
            }
            match part {
                "frames" if !line.starts_with("--- ") => {
                    let (side, text) = match line.split_at_checked(2) {
                        Some(("- ", text)) => (Side::Curator, text),
                        Some(("+ ", text)) => (Side::Docent, text),
                        Some(("  ", text)) => (Side::Both, text),
                        _ => (Side::Both, line),
                    };
                    frames.push(Frame { number, side, text: text.to_owned() });
                    continue;
                }
                "back" => {
                    let _ = writeln!(back, "{line}");
                    continue;
                }
                "script" if !line.is_empty() && !line.starts_with(['-', '#']) => {
                    script.push((number, line.to_owned()));
                }
                "head" if !line.is_empty() => {
                    let split = line.split_once(": ");
                    let (word, text) = split.unwrap_or_else(|| panic!("{title}:{number}: {line}"));
                    head.push((word.to_owned(), text.to_owned()));
                }
                _ => {}
            }
            let _ = writeln!(front, "{line}");
        }
        Self { path, title, head, script, front, frames, back }
    }

    /// The texts of the head's lines that begin with a word.
    pub(crate) fn head<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.head.iter().filter(move |(of, _)| of == word).map(|(_, text)| text.as_str())
    }

    /// The differences after a word: after `why` those that the frames show, after `beside` others.
    pub(crate) fn differences<'a>(&'a self, word: &'a str) -> impl Iterator<Item = Difference<'a>> {
        self.head(word).map(|line| {
            let (name, text) = line.split_once(": ").unwrap_or((line, ""));
            let everywhere = name.strip_prefix("everywhere, ");
            Difference {
                name: everywhere.unwrap_or(name),
                is_everywhere: everywhere.is_some(),
                text: text.split_once(" | "),
            }
        })
    }

    pub(crate) fn has_differences(&self) -> bool {
        self.frames.iter().any(|frame| frame.side != Side::Both)
    }

    fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        for word in self.head("compare").flat_map(|words| words.split(", ")) {
            match word {
                "requests" => drop(rules.kinds.insert(Kind::Request)),
                "replies" => drop(rules.kinds.insert(Kind::Reply)),
                "events" => drop(rules.kinds.insert(Kind::Event)),
                "in any order" => rules.any_order = true,
                "once each" => rules.ignore_repeats = true,
                "and more" => rules.allow_extra_requests = true,
                "looks once" => rules.collapse_repeated_reads = true,
                _ => match word.strip_prefix("without ") {
                    Some(op) => rules.without.push(op.to_owned()),
                    None => panic!("{}: compare: {word}", self.title),
                },
            }
        }
        assert!(!rules.kinds.is_empty(), "{}: nothing is compared", self.title);
        rules
    }

    /// The lines of all frames except those of the side `not`. The index of each is that of its frame.
    fn side(&self, not: Side, rules: &Rules) -> Vec<Line> {
        let text =
            |frame: &Frame| if frame.side == not { String::new() } else { frame.text.clone() };
        let texts: Vec<_> = self.frames.iter().map(text).collect();
        frames::read(texts.iter().map(String::as_str), rules)
    }

    /// Compares the trace with docent's side of the frames.
    pub(crate) fn compare(&self, trace: &str) -> Result<(), String> {
        let rules = self.rules();
        let actual: Vec<&str> = trace.lines().collect();
        let got = frames::read(actual.iter().copied(), &rules);
        let found = frames::align(self.side(Side::Curator, &rules), got, &rules);
        if found.left.is_empty() && found.right.is_empty() {
            return Ok(());
        }
        let (path, mut text) = (self.path.display(), String::new());
        for line in &found.left {
            let Frame { number, text: frame, .. } = &self.frames[line.at];
            let _ = writeln!(text, "{path}:{number}: expected  {}", frame.trim());
        }
        for line in &found.right {
            let _ = writeln!(
                text,
                "{path}: got, line {} of the trace  {}",
                line.at + 1,
                actual[line.at]
            );
        }
        Err(format!("{text}the trace:\n{trace}"))
    }

    /// Writes docent's side of the frames again. Curator's lines stay as they are.
    pub(crate) fn bless(&self, trace: &str) {
        let rules = self.rules();
        let actual: Vec<&str> = trace.lines().collect();
        let got = frames::read(actual.iter().copied(), &rules);
        let curators: Vec<_> = self.frames.iter().filter(|f| f.side != Side::Docent).collect();
        let theirs = frames::read(curators.iter().map(|frame| frame.text.as_str()), &rules);
        let found = frames::align(theirs.clone(), got.clone(), &rules);
        let lines = found.left.iter().chain(&found.right);
        let clients: BTreeSet<_> = lines.map(|line| line.list.0.clone()).collect();
        let (theirs, got) = (as_one_list(theirs, &clients), as_one_list(got, &clients));
        let found = frames::align(theirs, got.clone(), &rules);
        let missing: BTreeMap<_, _> =
            found.left.iter().map(|line| (line.at, line.list.0.as_str())).collect();
        let mut added = places(&found, &got, &missing);
        let mut names =
            Names::new(found.ids.clone(), curators.iter().map(|frame| frame.text.as_str()));
        let mut text = self.front.clone();
        for at in 0..=curators.len() {
            for line in added.remove(&at).unwrap_or_default() {
                let _ = writeln!(text, "+ {}", names.rename(actual[line]));
            }
            if let Some(frame) = curators.get(at) {
                let mark = if missing.contains_key(&at) { '-' } else { ' ' };
                let line = format!("{mark} {}", frame.text);
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        fs::write(&self.path, text + &self.back).unwrap();
    }
}

/// Puts requests and replies of these clients into one list, so that each reply must follow its request.
fn as_one_list(mut lines: Vec<Line>, clients: &BTreeSet<String>) -> Vec<Line> {
    for line in &mut lines {
        if line.list.1 == Kind::Reply && clients.contains(&line.list.0) {
            line.list.1 = Kind::Request;
        }
    }
    lines
}

/// The lines that only docent sends, by the index of Curator's line that they precede.
fn places(
    found: &Alignment,
    got: &[Line],
    missing: &BTreeMap<usize, &str>,
) -> BTreeMap<usize, Vec<usize>> {
    let paired: BTreeMap<_, _> = found.both.iter().map(|(left, right)| (*right, *left)).collect();
    let mut added = BTreeMap::<usize, Vec<usize>>::new();
    // The index after each client's last line in either list.
    let mut last = BTreeMap::<String, usize>::new();
    for (index, line) in got.iter().enumerate() {
        let of_client = last.entry(line.list.0.clone()).or_default();
        if let Some(place) = paired.get(&line.at) {
            *of_client = (*of_client).max(place + 1);
        }
        if !found.right.iter().any(|only| only.at == line.at) {
            continue;
        }
        let next = got[index..].iter().filter(|next| next.list == line.list);
        let next = next.filter_map(|next| paired.get(&next.at)).min();
        let mut place = next.map_or(*of_client, |next| (*of_client).min(*next));
        // It follows the lines that it replaces.
        while missing.get(&place) == Some(&line.list.0.as_str()) {
            place += 1;
        }
        added.entry(place).or_default().push(line.at);
    }
    added
}

/// The names of ids in a file: those of the recording, and new ones for ids that it does not have.
struct Names {
    known: BTreeMap<String, String>,
    last: u32,
}

impl Names {
    fn new<'a>(known: BTreeMap<String, String>, recording: impl Iterator<Item = &'a str>) -> Self {
        let ids = recording.flat_map(|line| {
            let number = |id: Range<usize>| line[id].trim_start_matches('G').parse().ok();
            frames::ids_of(line).into_iter().filter_map(number)
        });
        Self { last: ids.max().unwrap_or(0), known }
    }

    fn rename(&mut self, line: &str) -> String {
        let (mut out, mut copied) = (String::new(), 0);
        for place in frames::ids_of(line) {
            let name = self.known.entry(line[place.clone()].to_owned()).or_insert_with(|| {
                self.last += 1;
                format!("G{}", self.last)
            });
            out.push_str(&line[copied..place.start]);
            out.push_str(name);
            copied = place.end;
        }
        out + &line[copied..]
    }
}
