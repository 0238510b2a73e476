//! A child process that takes commands and prints lines.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use xtask::Result;

/// A running process; killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, input, output })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, command: &str) -> Result<()> {
        Ok(self.input.write_all(format!("{command}\n").as_bytes())?)
    }

    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the process has ended".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Reads a line, which must begin with `word`, and returns the rest of it.
    pub(crate) fn expect(&mut self, word: &str) -> Result<String> {
        let line = self.line()?;
        let rest = line.strip_prefix(word).ok_or_else(|| format!("{line:?} instead of {word}"))?;
        Ok(rest.trim_start().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a process that must print one line of JSON within the time limit.
pub(crate) fn json(command: &mut Command, limit: Duration) -> Result<Value> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let deadline = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(format!("still running after {limit:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(output.status.to_string().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
