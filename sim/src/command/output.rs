//! Standard output, and the progress on standard error.

use std::{
    fmt::Display,
    io::{ErrorKind, Write as _, stdout},
    process::{self, ExitCode},
    time::Duration,
};

use docent_sim::run::batch::Totals;
use indicatif::{ProgressBar, ProgressStyle};

/// Standard output. A reader that closes it ends the command.
#[derive(Debug, Default)]
pub(super) struct Output;

impl Output {
    /// Prints a text that ends its own lines.
    pub(super) fn print(&self, text: impl Display) {
        let mut out = stdout().lock();
        if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
            if error.kind() != ErrorKind::BrokenPipe {
                eprintln!("cargo xtask sim: standard output: {error}");
            }
            process::exit(74);
        }
    }

    /// Prints a line.
    pub(super) fn line(&self, text: impl Display) {
        self.print(format_args!("{text}\n"));
    }
}

/// A progress bar; hidden if standard error is no terminal.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(seeds: u64) -> Self {
        let bar = ProgressBar::new(seeds);
        let template = "[{bar:40}] {pos}/{len} seeds, {per_sec}, {eta} left {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Without a known end.
    pub(super) fn spinner() -> Self {
        let spinner = ProgressBar::new_spinner();
        spinner.enable_steady_tick(Duration::from_millis(200));
        Self(spinner)
    }

    pub(super) fn advance(&self) {
        self.0.inc(1);
    }

    pub(super) fn say(&self, text: impl Into<String>) {
        self.0.set_message(text.into());
    }

    /// Prints something that the bar must not overwrite.
    pub(super) fn hidden_for(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Prints the last line.
pub(super) fn conclude(output: &Output, totals: Totals) -> ExitCode {
    output.line(totals);
    ExitCode::from(u8::from(totals.violations > 0))
}
