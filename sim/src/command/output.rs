//! Standard output, and the progress on standard error.

use std::{
    fmt::Display,
    io::{ErrorKind, Write as _, stdout},
    process::{self, ExitCode},
};

use docent_sim::run::batch::Totals;
use indicatif::{ProgressBar, ProgressStyle};

/// Prints a text that has its own line ends. The command exits if the reader has closed standard output.
pub(super) fn print(text: impl Display) {
    let mut out = stdout().lock();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("cargo xtask sim: standard output: {error}");
        }
        process::exit(74);
    }
}

/// Prints a line.
pub(super) fn line(text: impl Display) {
    print(format_args!("{text}\n"));
}

/// A progress bar; hidden if standard error is no terminal.
pub(super) fn progress(seeds: u64) -> ProgressBar {
    let bar = ProgressBar::new(seeds);
    let template = "[{bar:40}] {pos}/{len} seeds, {per_sec}, {eta} left {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Prints the last line.
pub(super) fn conclude(totals: Totals) -> ExitCode {
    line(&totals);
    ExitCode::from(u8::from(totals.violations > 0))
}
