//! The lessons: each a question, a prediction, a run, and a claim that a test checks.

use serde::Serialize;

use crate::{claim, script::Script, timeline::Timeline};

/// A lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lesson {
    pub name: &'static str,
    pub title: &'static str,
    pub question: &'static str,
    /// The answers to choose from.
    pub choices: Vec<&'static str>,
    /// The number of the right one.
    pub right: usize,
    /// What the run shows.
    pub shows: &'static str,
    pub claims: Vec<&'static str>,
    /// The chapter of the guide, by the name of its file.
    pub chapter: &'static str,
    pub script: String,
}

macro_rules! lessons {
    ($($name:literal,)*) => {
        /// The files of all lessons, in their order.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../lessons/", $name, ".txt")))),*];
    };
}

lessons! {
    "naive-late-release",
    "naive-lost-reply",
    "naive-order",
    "herd",
    "sequential",
    "lost-create",
    "lost-create-guid",
    "lost-twice",
    "paused-holder",
    "token",
    "dying-session",
    "reconnect",
    "read-write",
    "downgrade",
    "semaphore",
    "cut-off-follower",
    "election",
    "strict",
}

/// All lessons.
///
/// # Errors
///
/// The file that is none, and why.
pub fn all() -> Result<Vec<Lesson>, String> {
    FILES
        .iter()
        .map(|(name, text)| parse(name, text).map_err(|error| format!("{name}: {error}")))
        .collect()
}

impl Lesson {
    /// Checks the claims of the lesson on the timeline of its script.
    ///
    /// # Errors
    ///
    /// The first claim that does not hold.
    pub fn check(&self, timeline: &Timeline) -> Result<(), String> {
        self.claims.iter().try_for_each(|claim| claim::check(claim, timeline))
    }
}

/// Parses a file: lines `key: value`, an empty line, and the script. The right choice begins with `*`.
fn parse(name: &'static str, text: &'static str) -> Result<Lesson, String> {
    let (head, script) = text.split_once("\n\n").ok_or("there is no script")?;
    let values = |key: &'static str| {
        head.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(": "))
    };
    let value = |key: &'static str| values(key).next().ok_or_else(|| format!("no {key}"));
    let marked: Vec<_> = values("choice").collect();
    let right = marked.iter().position(|choice| choice.starts_with('*'));
    let choices = marked.iter().map(|choice| choice.trim_start_matches('*').trim()).collect();
    script.parse::<Script>()?;
    Ok(Lesson {
        name,
        title: value("title")?,
        question: value("question")?,
        choices,
        right: right.ok_or("no choice is marked as right")?,
        shows: value("shows")?,
        claims: values("claim").collect(),
        chapter: value("chapter")?,
        script: script.trim().to_owned(),
    })
}
