//! Compares two traces.
//!
//! Both are texts: a [`Trace::text`](super::Trace::text), or a section of a file of reference traces.
//! The comparison covers, client by client, operation, path, data, ACL, flags, versions, watch flags, results and
//! order. Irrelevant differences are normalized first:
//!
//! * The relative speed of clients: each client's lines are compared separately.
//! * Requests sent before the previous reply arrived: each client's requests and its replies are two lists, unless
//!   [`interleaved`](CompareOptions::interleaved) is set.
//! * GUIDs: `A1` is the first GUID in a create of client A, and so on.
//! * The order of children, the granted timeout, comments, notes about faults, ends of connections.

use std::{collections::BTreeMap, fmt};

/// Defines which traces count as equal.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    /// Pairs of equivalent paths: in the expected trace, in the actual trace.
    pub roots: Option<(String, String)>,
    /// Compares a client's requests and replies as one list.
    pub interleaved: bool,
    /// Leaves out lines of these operations, by ZooKeeper's names (`checkWatches`, `closeSession`).
    pub without: Vec<String>,
    /// Pairs of equivalent client names: in the expected trace, in the actual trace. Other clients have the same name
    /// in both.
    pub clients: Vec<(String, String)>,
}

impl CompareOptions {
    /// Treats `expected` in the expected trace as equal to `actual` in the actual one. Only whole path components match.
    #[must_use]
    pub fn roots(mut self, expected: &str, actual: &str) -> Self {
        self.roots = Some((expected.to_owned(), actual.to_owned()));
        self
    }

    /// Leaves out lines of an operation.
    #[must_use]
    pub fn without(mut self, op: &str) -> Self {
        self.without.push(op.to_owned());
        self
    }
}

/// The differences between two traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    parts: Vec<(String, Vec<Line>)>,
}

/// A line of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Both(String),
    Missing(String),
    Extra(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the traces differ (- expected, + actual)")?;
        for (title, lines) in &self.parts {
            write!(f, "\n{title}")?;
            for line in lines {
                match line {
                    Line::Both(line) => write!(f, "\n    {line}")?,
                    Line::Missing(line) => write!(f, "\n  - {line}")?,
                    Line::Extra(line) => write!(f, "\n  + {line}")?,
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for Difference {}

/// Compares two traces.
///
/// # Errors
///
/// The differences, list by list.
pub fn compare(expected: &str, actual: &str, options: &CompareOptions) -> Result<(), Difference> {
    let root = |side: usize| {
        options.roots.as_ref().map(|(expected, actual)| if side == 0 { expected } else { actual })
    };
    let expected = normal(expected, root(0), options, true);
    let actual = normal(actual, root(1), options, false);
    let mut titles: Vec<&(String, &str)> = expected.keys().chain(actual.keys()).collect();
    titles.sort();
    titles.dedup();
    let none = Vec::new();
    let parts: Vec<_> = titles
        .into_iter()
        .filter_map(|title| {
            let (left, right) =
                (expected.get(title).unwrap_or(&none), actual.get(title).unwrap_or(&none));
            (left != right).then(|| (format!("{} {}:", title.0, title.1), diff(left, right)))
        })
        .collect();
    if parts.is_empty() { Ok(()) } else { Err(Difference { parts }) }
}

/// The lists of a trace, by client and kind.
type Lists = BTreeMap<(String, &'static str), Vec<String>>;

/// The parts of a trace line.
struct Parsed<'a> {
    client: &'a str,
    request: bool,
    rest: String,
}

fn parse<'a>(line: &'a str, root: Option<&String>) -> Option<Parsed<'a>> {
    let line = line.split("   [[").next()?.trim_end();
    let (client, request, rest) = if let Some((client, rest)) = line.split_once(" -> ") {
        (client, true, rest)
    } else {
        let (client, rest) = line.split_once(" <- ")?;
        (client, false, rest)
    };
    if client.is_empty() || client.contains(char::is_whitespace) || client.starts_with('#') {
        return None;
    }
    let rest = root.map_or_else(|| rest.to_owned(), |root| replace_root(rest, root));
    Some(Parsed { client, request, rest: sorted_children(&without_timeout(&rest)) })
}

fn normal(trace: &str, root: Option<&String>, options: &CompareOptions, expected: bool) -> Lists {
    let parsed: Vec<_> = trace.lines().filter_map(|line| parse(line, root)).collect();
    let mut guids = Guids::default();
    for line in parsed.iter().filter(|line| line.request && line.rest.starts_with("create")) {
        guids.learn(line.client, &line.rest);
    }
    let mut lists = Lists::new();
    for line in parsed {
        let op = line.rest.split(['(', ' ']).next().unwrap_or_default();
        if options.without.iter().any(|left_out| left_out == op) {
            continue;
        }
        let kind = match (options.interleaved, line.request) {
            (true, _) => "lines",
            (false, true) => "requests",
            (false, false) => "answers",
        };
        let client = options
            .clients
            .iter()
            .find(|(_, actual)| !expected && actual == line.client)
            .map_or(line.client, |(expected, _)| expected);
        let arrow = if line.request { "->" } else { "<-" };
        let text = guids.name(&line.rest);
        lists.entry((client.to_owned(), kind)).or_default().push(format!("{arrow} {text}"));
    }
    lists
}

/// Replaces `/s02/x` by `/ROOT/x`; `/s021` stays.
fn replace_root(text: &str, root: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(root) {
        let (before, found) = rest.split_at(at);
        let after = found.strip_prefix(root).unwrap_or_default();
        let begins = before.chars().next_back().is_none_or(|c| !is_name(c));
        let ends = after.chars().next().is_none_or(|c| !is_name(c));
        out.push_str(before);
        out.push_str(if begins && ends { "/ROOT" } else { root });
        rest = after;
    }
    out + rest
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.')
}

fn without_timeout(rest: &str) -> String {
    match rest.strip_prefix("connected timeout=") {
        Some(timeout) if timeout.starts_with("0 ") => "connected (SESSION EXPIRED)".to_owned(),
        Some(_) => "connected".to_owned(),
        None => rest.to_owned(),
    }
}

fn sorted_children(rest: &str) -> String {
    let Some((front, list)) = rest.split_once("children=[") else { return rest.to_owned() };
    let Some((list, tail)) = list.split_once(']') else { return rest.to_owned() };
    let mut names: Vec<_> = list.split(", ").collect();
    // Sorts by the name's suffix after the GUID: the GUID differs from run to run.
    names.sort_by_key(|name| (name.rsplit('-').next(), *name));
    format!("{front}children=[{}]{tail}", names.join(", "))
}

/// Names for GUIDs: the client that created the GUID, and its number among that client's GUIDs.
#[derive(Default)]
struct Guids<'a> {
    known: Vec<(String, String)>,
    made: BTreeMap<&'a str, usize>,
}

impl<'a> Guids<'a> {
    fn learn(&mut self, client: &'a str, text: &str) {
        for (_, guid) in guids_in(text) {
            if !self.known.iter().any(|(known, _)| known == guid) {
                let number = self.made.entry(client).or_default();
                *number += 1;
                self.known.push((guid.to_owned(), format!("{client}{number}")));
            }
        }
    }

    fn name(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut copied = 0;
        for (at, guid) in guids_in(text) {
            out.push_str(text.get(copied..at).unwrap_or_default());
            let name = self.known.iter().find(|(known, _)| known == guid);
            out.push_str(name.map_or("foreign", |(_, name)| name));
            copied = at + guid.len();
        }
        out + text.get(copied..).unwrap_or_default()
    }
}

/// The text between `_c_` and the dash that ends it: `G1`, or a GUID.
fn guids_in(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("_c_").filter_map(|(at, mark)| {
        let start = at + mark.len();
        let rest = text.get(start..)?;
        let masked = rest.split('-').next().unwrap_or_default();
        let is_masked = masked.strip_prefix('G').is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_masked { Some((start, masked)) } else { rest.get(..36).map(|guid| (start, guid)) }
    })
}

/// A diff by the longest common subsequence. If the product of the lengths is above the limit,
/// all lines of both lists are reported as differences.
fn diff(left: &[String], right: &[String]) -> Vec<Line> {
    const LIMIT: usize = 4_000_000;
    if left.len().saturating_mul(right.len()) > LIMIT {
        let missing = left.iter().cloned().map(Line::Missing);
        return missing.chain(right.iter().cloned().map(Line::Extra)).collect();
    }
    let width = right.len() + 1;
    let mut table = vec![0_u32; (left.len() + 1) * width];
    let at = |table: &[u32], i: usize, j: usize| table.get(i * width + j).copied().unwrap_or(0);
    for (i, l) in left.iter().enumerate().rev() {
        for (j, r) in right.iter().enumerate().rev() {
            let best = if l == r {
                at(&table, i + 1, j + 1) + 1
            } else {
                at(&table, i + 1, j).max(at(&table, i, j + 1))
            };
            if let Some(cell) = table.get_mut(i * width + j) {
                *cell = best;
            }
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    loop {
        match (left.get(i), right.get(j)) {
            (Some(l), Some(r)) if l == r => {
                lines.push(Line::Both(l.clone()));
                (i, j) = (i + 1, j + 1);
            }
            (Some(l), r) if r.is_none() || at(&table, i + 1, j) >= at(&table, i, j + 1) => {
                lines.push(Line::Missing(l.clone()));
                i += 1;
            }
            (_, Some(r)) => {
                lines.push(Line::Extra(r.clone()));
                j += 1;
            }
            (Some(_), None) | (None, None) => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURATOR: &str = "\
A -> connect sid=0
A <- connected timeout=20000
B -> create2(15) /s02/_c_G2-lock- data=\"x\" acl=31:world:anyone flags=3
A -> create2(15) /s02/_c_G1-lock- data=\"x\" acl=31:world:anyone flags=3   [[inject DROP_REPLY]]
   # A holds
B -> getChildren2(12) /s02 watch=false
B <- getChildren2 OK children=[_c_G1-lock-0000000000, _c_G2-lock-0000000001]
";

    /// Traces with different roots, GUIDs, orders of children and clients, and comments compare as equal.
    #[test]
    fn allowed_differences_are_ignored() {
        let ours = "\
A -> connect sid=0
A <- connected timeout=6000
A -> create2(15) /t/7/_c_0b2f3f0e-92c2-4f0a-8f7b-bbbbbbbbbbbb-lock- data=\"x\" acl=31:world:anyone flags=3
B -> create2(15) /t/7/_c_0b2f3f0e-92c2-4f0a-8f7b-aaaaaaaaaaaa-lock- data=\"x\" acl=31:world:anyone flags=3
B -> getChildren2(12) /t/7 watch=false
B <- getChildren2 OK children=[_c_0b2f3f0e-92c2-4f0a-8f7b-aaaaaaaaaaaa-lock-0000000001, _c_0b2f3f0e-92c2-4f0a-8f7b-bbbbbbbbbbbb-lock-0000000000]
";
        let options = CompareOptions::default().roots("/s02", "/t/7");
        assert_eq!(compare(CURATOR, ours, &options).map_err(|d| d.to_string()), Ok(()));
    }

    #[test]
    fn a_flag_a_watch_or_an_order_is_a_difference() {
        for (from, to) in [
            ("flags=3", "flags=1"),
            ("watch=false", "watch=true"),
            ("data=\"x\"", "data=<empty>"),
            ("/s02 watch", "/s02/ watch"),
            ("G1-lock-0000000000", "G9-lock-0000000000"),
        ] {
            let changed = CURATOR.replace(from, to);
            assert!(compare(CURATOR, &changed, &CompareOptions::default()).is_err(), "{to}");
        }
    }

    #[test]
    fn a_difference_can_be_read() {
        let without = CURATOR.replace("B -> getChildren2(12) /s02 watch=false\n", "");
        let difference = compare(CURATOR, &without, &CompareOptions::default()).unwrap_err();
        assert_eq!(
            difference.to_string(),
            "the traces differ (- expected, + actual)\nB requests:\n    \
             -> create2(15) /s02/_c_B1-lock- data=\"x\" acl=31:world:anyone flags=3\n  \
             - -> getChildren2(12) /s02 watch=false"
        );
    }
}
