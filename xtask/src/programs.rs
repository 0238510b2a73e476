//! Runs test programs, and counts their results: in the foreground, or beside it at the lowest priority.

use std::{
    env,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Read, Write as _},
    mem,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use xtask::Result;

use crate::summary::Summary;

/// How a sequence of test programs runs.
#[derive(Debug)]
pub(crate) enum Programs {
    /// Their output is forwarded at once.
    Foreground,
    /// With a priority. Their output is kept until the programs in the foreground have ended.
    Background(Priority, Mutex<Vec<u8>>),
}

/// The priority of programs in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// That of programs in the foreground.
    Usual,
    /// For programs that compute: they use the processors while others wait for servers.
    Lowest,
}

impl Programs {
    /// Runs a program and adds the results that it prints to the summary. Returns whether the program succeeded.
    pub(crate) fn run(&self, mut command: Command, summary: &mut Summary) -> Result<bool> {
        if io::stderr().is_terminal() && env::var_os("CARGO_TERM_COLOR").is_none() {
            // Cargo writes to a pipe here, so by itself it would print without colours.
            command.env("CARGO_TERM_COLOR", "always");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if matches!(self, Self::Background(Priority::Lowest, _)) {
            // Its own children inherit the priority.
            let id = child.id().to_string();
            let mut renice = Command::new("renice");
            let _ = renice.args(["-n", "19", "-p", &id]).stdout(Stdio::null()).status();
        }
        let stdout = child.stdout.take().ok_or("a program without standard output")?;
        let stderr = child.stderr.take().ok_or("a program without standard error")?;
        let errors = thread::scope(|scope| -> Result<Vec<String>> {
            let errors = scope.spawn(|| -> io::Result<Vec<String>> {
                let mut lines = Vec::new();
                for_each_line(stderr, |line| {
                    lines.push(String::from_utf8_lossy(line).into_owned());
                    self.show(line, &mut io::stderr())
                })?;
                Ok(lines)
            });
            for_each_line(stdout, |line| {
                summary.read_stdout(&String::from_utf8_lossy(line));
                self.show(line, &mut io::stdout())
            })?;
            Ok(errors.join().map_err(|_| "the reader of standard error panicked")??)
        })?;
        errors.iter().for_each(|line| summary.read_stderr(line));
        Ok(child.wait()?.success())
    }

    /// Forwards or keeps a line of output.
    fn show(&self, line: &[u8], foreground: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Foreground => foreground.write_all(line),
            Self::Background(_, kept) => {
                kept.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
            }
        }
    }

    /// Prints a title above the output of the next programs.
    pub(crate) fn title(&self, text: &str) -> Result<()> {
        Ok(self.show(format!("xtask: {text}\n").as_bytes(), &mut io::stdout())?)
    }
}

/// The arguments of `cargo test` that leave out these test programs, and run the others behind `prefix`: cargo can select test
/// programs, but not exclude them.
pub(crate) fn without<'a>(skipped: impl IntoIterator<Item = &'a str>, prefix: &str) -> [String; 2] {
    let skipped: String = skipped.into_iter().map(|name| format!("{name}-*|")).collect();
    let run = format!("case ${{0##*/}} in {skipped}-) exit;; esac; exec {prefix} \"$0\" \"$@\"");
    ["--config".into(), format!("target.'cfg(all())'.runner = ['sh', '-c', '{run}']")]
}

/// Calls `read` with each line, and its line break.
fn for_each_line(from: impl Read, mut read: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        read(&line)?;
        line.clear();
    }
    Ok(())
}

/// Tests that run beside those in the foreground.
pub(crate) struct Background(Option<JoinHandle<Result<Ran>>>);

/// The results of the tests in the background.
struct Ran {
    succeeded: bool,
    summary: Summary,
    output: Vec<u8>,
}

impl Background {
    /// Starts tests in a thread of their own.
    pub(crate) fn start(
        priority: Priority,
        run: impl FnOnce(&Programs, &mut Summary) -> Result<bool> + Send + 'static,
    ) -> Self {
        Self(Some(thread::spawn(move || {
            let (programs, mut summary) =
                (Programs::Background(priority, Mutex::default()), Summary::default());
            let succeeded = run(&programs, &mut summary)?;
            let output = match programs {
                Programs::Foreground => Vec::new(),
                Programs::Background(_, kept) => {
                    kept.into_inner().unwrap_or_else(PoisonError::into_inner)
                }
            };
            Ok(Ran { succeeded, summary, output })
        })))
    }

    /// Waits for the tests, prints their output and adds their results to the summary. Returns whether they succeeded.
    pub(crate) fn end(mut self, summary: &mut Summary) -> Result<bool> {
        let Some(thread) = mem::take(&mut self.0) else { return Ok(true) };
        let ran = thread.join().map_err(|_| "the tests in the background panicked")??;
        io::stdout().write_all(&ran.output)?;
        summary.add(ran.summary);
        Ok(ran.succeeded)
    }
}

impl Drop for Background {
    /// Waits for the programs, so that none is left after an error in the foreground.
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_background_are_counted_with_the_lowest_priority_and_its_output_is_kept() {
        let mut command = Command::new("sh");
        // The priority is set after the start.
        let wait = "until [ $(nice) = 19 ]; do :; done";
        let result = "echo \"test result: FAILED. 2 passed; 1 failed; $(nice) ignored\"";
        command.args(["-c", &format!("{wait}; {result}; echo late >&2; exit 1")]);
        let (programs, mut summary) =
            (Programs::Background(Priority::Lowest, Mutex::default()), Summary::default());
        assert!(!programs.run(command, &mut summary).unwrap());
        assert_eq!(summary.to_string(), "2 passed, 1 failed, 19 skipped");
        let Programs::Background(_, kept) = programs else { unreachable!() };
        let kept = String::from_utf8(kept.into_inner().unwrap()).unwrap();
        assert!(
            kept.contains("2 passed; 1 failed; 19 ignored\n") && kept.contains("late\n"),
            "{kept}"
        );
    }
}
