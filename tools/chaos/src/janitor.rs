//! Removes everything that a run has created, however the run ends.
//!
//! The janitor is a second process of the same program, in its own process group, so that Ctrl-C does not reach it. Its
//! standard input lists what was created. When the input ends, because the run is over, has panicked or was killed, the
//! janitor kills the processes in the run's network namespaces and removes the namespaces, mounts and directories. It
//! touches nothing else.

use std::fs;
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use xtask::Result;

use crate::lock::lock;

/// The argument that makes this program the janitor.
pub(crate) const ARGUMENT: &str = "--janitor";

/// The prefix of the names of everything that a run creates.
pub(crate) const PREFIX: &str = "docent-";

/// The janitor's process. Dropping it closes the list and waits for the removal.
pub(crate) struct Janitor {
    process: Child,
    input: Mutex<Option<ChildStdin>>,
}

impl Janitor {
    pub(crate) fn start() -> Result<Self> {
        let mut process = Command::new(crate::PROGRAM)
            .args([ARGUMENT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let input = process.stdin.take();
        Ok(Self { process, input: Mutex::new(input) })
    }

    /// Registers a thing before it is created, because a run may be killed between the two.
    pub(crate) fn register(&self, what: &str, name: &str) -> Result<()> {
        let mut input = lock(&self.input);
        let input = input.as_mut().ok_or("the run has ended")?;
        writeln!(input, "{what} {name}")?;
        Ok(input.flush()?)
    }

    /// Returns the standard input for a command that creates a registered thing. The janitor starts to remove things
    /// only when every copy of its input is closed, so a command that outlives a killed run creates nothing afterwards.
    pub(crate) fn awaited_input(&self) -> Result<Stdio> {
        let input = lock(&self.input);
        let input = input.as_ref().ok_or("the run has ended")?;
        Ok(input.as_fd().try_clone_to_owned()?.into())
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(lock(&self.input).take());
        let _ = self.process.wait();
    }
}

/// The janitor's main function.
pub(crate) fn run() -> Result<ExitCode> {
    let (mut namespaces, mut mounts, mut directories) = (Vec::new(), Vec::new(), Vec::new());
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Some((what, name)) = line.split_once(' ') else { continue };
        match what {
            "namespace" if name.starts_with(PREFIX) => namespaces.push(name.to_owned()),
            "mount" if is_ours(name) => mounts.push(name.to_owned()),
            "directory" if is_ours(name) => directories.push(name.to_owned()),
            _ => eprintln!("chaos: not removed: {line}"),
        }
    }
    for namespace in &namespaces {
        kill_processes(namespace);
    }
    for mount in &mounts {
        // It may not be mounted yet.
        let _ = quiet("umount").arg(mount).status();
    }
    for namespace in &namespaces {
        let _ = quiet("ip").args(["netns", "delete", namespace]).status();
    }
    for directory in &directories {
        let _ = fs::remove_dir_all(directory);
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a path is within a temporary directory of a run.
fn is_ours(path: &str) -> bool {
    let below =
        Path::new(path).strip_prefix(std::env::temp_dir()).unwrap_or_else(|_| Path::new(""));
    let first = below.components().next();
    first.is_some_and(|first| first.as_os_str().to_string_lossy().starts_with(PREFIX))
        && !path.contains("..")
}

/// Kills the processes of a namespace until there is none: a member may be started while the run ends.
fn kill_processes(namespace: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        let Ok(output) =
            quiet("ip").args(["netns", "pids", namespace]).stdout(Stdio::piped()).output()
        else {
            return;
        };
        let pids = String::from_utf8_lossy(&output.stdout).into_owned();
        if pids.trim().is_empty() {
            return;
        }
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            crate::signal(pid, crate::Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_directories_of_a_run_are_removed() {
        let temporary = std::env::temp_dir();
        let path = |name: &str| temporary.join(name).display().to_string();
        assert!(is_ours(&path("docent-chaos-1-2")) && is_ours(&path("docent-chaos-1-2/disk")));
        for name in ["", "other", "docent-x/../other", "other/docent-x"] {
            assert!(!is_ours(&path(name)), "{name}");
        }
        assert!(!is_ours("/") && !is_ours("/docent-x") && !is_ours("docent-x"));
    }
}
