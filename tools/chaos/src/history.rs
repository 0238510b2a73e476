//! The history of a run: one line for each event, with times of the machine's monotonic clock, in nanoseconds.
//!
//! A line is a word and fields `name=value`, and no value has a space; `sim/judge/src/line.rs` lists them.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Mutex;

use docent_judge::Line;

use crate::lock::lock;

/// Nanoseconds of the clock that all processes of a machine share, `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

pub(crate) struct History {
    file: Mutex<BufWriter<File>>,
}

impl History {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Mutex::new(BufWriter::new(File::create(path)?)) })
    }

    /// Adds a line. A write error is reported by [`History::finish`].
    pub(crate) fn add(&self, line: impl Display) {
        let _ = writeln!(lock(&self.file), "{line}");
    }

    /// Adds a text that no rule judges.
    pub(crate) fn note(&self, text: &str) {
        let text = text.replace(|c: char| c.is_whitespace() || c == '=', "_");
        self.add(format_args!("note at={} text={text}", now()));
    }

    pub(crate) fn finish(&self) -> io::Result<()> {
        lock(&self.file).flush()
    }
}

/// The text of a value that may be unknown: `-` if it is.
pub(crate) fn known(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The time at which the run of a history began.
pub(crate) fn start(lines: &[Line<'_>]) -> u64 {
    let run = lines.iter().find(|line| line.word == "run");
    run.and_then(|run| run.number("start").ok()).unwrap_or(0)
}
