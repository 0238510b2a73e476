//! The cases: text files, one for each group. `cases/README.md` describes their notation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::version::Range;

/// How much a case matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Clients rely on it.
    Must,
    /// Some clients rely on it, or it shows them what went wrong.
    Should,
    /// ZooKeeper does it; no client is known to rely on it.
    May,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
        })
    }
}

/// What a case needs in addition to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Several servers of one ensemble.
    Servers,
    /// Permission to send requests that may harm a server.
    Harmful,
}

/// A case.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name: `GROUP/NAME`.
    pub id: String,
    /// How much the case matters.
    pub level: Level,
    /// What the server must do.
    pub about: String,
    /// A class and method of ZooKeeper, or an issue.
    pub source: String,
    pub(crate) versions: Range,
    pub(crate) needs: Vec<Need>,
    pub(crate) steps: Vec<Step>,
}

impl Case {
    /// The group: the first part of the name.
    #[must_use]
    pub fn group(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }
}

/// A line of the script.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The line as it is in the file.
    pub(crate) text: String,
    pub(crate) versions: Range,
    /// The name of the connection.
    pub(crate) label: String,
    pub(crate) action: Action,
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// `:`
    Control,
    /// `>`
    Send,
    /// `<`
    Expect,
}

macro_rules! groups {
    ($($name:literal)+) => {
        const GROUPS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../cases/", $name, ".txt")))),+];
    };
}

groups! {
    "handshake" "session" "framing" "create" "sequential" "ephemeral" "container" "ttl" "delete" "read" "write" "stat"
    "multi" "multiread" "watch" "persistent" "setwatches" "acl" "auth" "order" "quota" "words" "ensemble" "harmful"
}

/// All cases, in the order of their groups.
///
/// # Errors
///
/// If a line does not follow the notation, which is a defect of this crate. The error names the line.
pub fn all() -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for (group, text) in GROUPS {
        cases.extend(read(group, text).map_err(|error| format!("cases/{group}.txt: {error}"))?);
    }
    Ok(cases)
}

/// Reads the cases of a group.
pub(crate) fn read(group: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let error = |what: &str| format!("line {}: {what}: {line}", index + 1);
        if let Some(head) = line.strip_prefix("# ") {
            cases.push(read_head(group, head).ok_or_else(|| error("not NAME LEVEL [VERSIONS]"))?);
            continue;
        }
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| error("not in a case"))?;
        if let Some(source) = line.strip_prefix("source ") {
            source.clone_into(&mut case.source);
        } else if let Some(need) = line.strip_prefix("needs ") {
            case.needs.push(match need {
                "servers" => Need::Servers,
                "harmful" => Need::Harmful,
                _ => return Err(error("an unknown need")),
            });
        } else if case.source.is_empty() {
            let space = if case.about.is_empty() { "" } else { " " };
            case.about = format!("{}{space}{line}", case.about);
        } else {
            case.steps.push(read_step(line).ok_or_else(|| error("not a step"))?);
        }
    }
    match cases.iter().find(|case| case.steps.is_empty() || case.about.is_empty()) {
        Some(case) => Err(format!("{} has no steps, or says nothing", case.id)),
        None => Ok(cases),
    }
}

fn read_head(group: &str, head: &str) -> Option<Case> {
    let mut words = head.split(' ');
    let id = format!("{group}/{}", words.next()?);
    let level = match words.next()? {
        "MUST" => Level::Must,
        "SHOULD" => Level::Should,
        "MAY" => Level::May,
        _ => return None,
    };
    let versions = match words.next() {
        Some(range) => Range::parse(range)?,
        None => Range::ALL,
    };
    let (about, source) = (String::new(), String::new());
    Some(Case { id, level, about, source, versions, needs: Vec::new(), steps: Vec::new() })
}

fn read_step(line: &str) -> Option<Step> {
    let (versions, rest) = match line.strip_prefix('[') {
        Some(rest) => {
            let (range, rest) = rest.split_once("] ")?;
            (Range::parse(range)?, rest)
        }
        None => (Range::ALL, line),
    };
    let (head, rest) = rest.split_once(' ')?;
    let label_end = head.len().checked_sub(1)?;
    let (label, sign) = (head.get(..label_end)?, head.get(label_end..)?);
    let action = match sign {
        ":" => Action::Control,
        ">" => Action::Send,
        "<" => Action::Expect,
        _ => return None,
    };
    let label = if label.is_empty() { "A" } else { label };
    let words = words(rest)?;
    Some(Step { text: line.to_owned(), versions, label: label.to_owned(), action, words })
}

/// Splits at spaces, except between quotes.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                word.push(c);
            }
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    (!is_quoted && words.iter().all(|word| !word.is_empty())).then_some(words)
}
