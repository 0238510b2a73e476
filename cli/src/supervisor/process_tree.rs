//! The processes of a command: its process group, and on Linux also the descendants that left that group.
//!
//! On Linux, the signalling process is a *subreaper* (`PR_SET_CHILD_SUBREAPER`): orphaned descendants become its
//! children instead of those of process 1, so no descendant escapes. Other systems have only the process group.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};

/// How often [`ProcessTree::kill_all`] looks for processes.
const PAUSE: Duration = Duration::from_millis(5);

/// The descendants of this process, except its watchdog and the [`Preexisting`] ones.
#[derive(Debug)]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "only Linux knows the processes outside the group")
)]
pub(crate) struct ProcessTree {
    /// The process group of the command, which leads it; `None` before the command is started.
    group: Option<Pid>,
    /// A child of this process that is not part of the command.
    excluded: Option<Pid>,
    preexisting: Preexisting,
}

/// The children that this process had before it started the command, with their descendants. There may be
/// some, because a shell that has background jobs may become `docent` by exec.
#[derive(Debug, Default)]
pub(crate) struct Preexisting {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    processes: Vec<linux::Process>,
}

/// The processes that are still alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Remaining {
    /// The number of live processes.
    pub(super) alive: usize,
    /// The number of these that run as another user (as with `sudo`) and cannot be signalled.
    pub(super) not_permitted: usize,
}

impl Remaining {
    /// Whether no process remains that can be signalled.
    pub(super) const fn is_done(self) -> bool {
        self.alive == self.not_permitted
    }
}

impl ProcessTree {
    pub(crate) const fn new(excluded: Option<Pid>, preexisting: Preexisting) -> Self {
        Self { group: None, excluded, preexisting }
    }

    /// Sets the process group of the command, once it is started.
    pub(super) const fn set_group(&mut self, group: Pid) {
        self.group = Some(group);
    }

    pub(super) const fn group(&self) -> Option<Pid> {
        self.group
    }

    /// Signals the process group only, as a terminal does.
    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Fails if the group is empty.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Signals every process.
    pub(super) fn signal(&self, signal: Signal) -> Remaining {
        self.signal_group(signal);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if [Signal::STOP, Signal::KILL].contains(&signal) {
            // These two are urgent, and the complete walk through /proc is slow: the kernel's lists of children
            // reach most processes outside the group first.
            for process in linux::listed_descendants(self.excluded, &self.preexisting.processes) {
                let _ = linux::signal(&process, Some(signal));
            }
        }
        self.for_each(Some(signal))
    }

    /// Kills every process, and those that they start meanwhile, for at most this time.
    pub(crate) fn kill_all(&self, limit: Duration) {
        let since = Instant::now();
        while !self.signal(Signal::KILL).is_done() && since.elapsed() < limit {
            thread::sleep(PAUSE);
        }
    }

    /// Counts the processes without signalling them.
    pub(super) fn count(&self) -> Remaining {
        self.for_each(None)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn for_each(&self, signal: Option<Signal>) -> Remaining {
        let mut remaining = Remaining::default();
        for process in linux::descendants(self.excluded, &self.preexisting.processes) {
            remaining.alive += 1;
            // `signal_group` has signalled the members of the group.
            let signal = signal.filter(|_| process.group != self.group);
            match linux::signal(&process, signal) {
                Ok(()) => {}
                Err(Errno::PERM) => remaining.not_permitted += 1,
                // It has exited since it was listed.
                Err(_) => remaining.alive -= 1,
            }
        }
        remaining
    }

    /// The group leader counts as a member until it is waited for, which the caller does first.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn for_each(&self, _signal: Option<Signal>) -> Remaining {
        let Some(group) = self.group else { return Remaining::default() };
        match rustix::process::test_kill_process_group(group) {
            Ok(()) => Remaining { alive: 1, not_permitted: 0 },
            Err(Errno::PERM) => Remaining { alive: 1, not_permitted: 1 },
            Err(_) => Remaining::default(),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::{collections::HashMap, fs};

    use rustix::{
        io::Errno,
        process::{
            Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal,
            test_kill_process, waitpid,
        },
    };

    use super::parse_pid;

    /// A process, identified by its process ID and start time: process IDs are reused.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Process {
        pid: Pid,
        parent: i32,
        pub(super) group: Option<Pid>,
        started: u64,
        has_exited: bool,
    }

    /// The live descendants of this process. Leaves out `excluded` but not its children, and `preexisting` with
    /// their descendants.
    pub(super) fn descendants(excluded: Option<Pid>, preexisting: &[Process]) -> Vec<Process> {
        let all: HashMap<i32, Process> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| read_process(parse_pid(entry.ok()?.file_name().to_str()?)?))
            .map(|process| (process.pid.as_raw_nonzero().get(), process))
            .collect();
        let own_pid = getpid().as_raw_nonzero().get();
        let is_descendant = |process: &Process| {
            let mut next = Some(process);
            // Bounded: /proc changes while it is read, so the parents may form a cycle.
            for _ in 0..all.len() {
                match next {
                    Some(process) if contains(preexisting, process) => return false,
                    Some(process) if process.parent == own_pid => return true,
                    Some(process) => next = all.get(&process.parent),
                    None => return false,
                }
            }
            false
        };
        let mut live = Vec::new();
        for process in all.values().filter(|process| is_descendant(process)) {
            if Some(process.pid) == excluded {
                continue;
            }
            if !process.has_exited {
                live.push(*process);
            }
        }
        // Parents first: a shell whose child is killed first continues with its next command.
        live.sort_unstable_by_key(|process| (process.started, process.pid.as_raw_nonzero()));
        live
    }

    fn contains(processes: &[Process], process: &Process) -> bool {
        processes.iter().any(|one| (one.pid, one.started) == (process.pid, process.started))
    }

    /// The same from `/proc/PID/task/PID/children`, if the kernel provides it: much faster, but incomplete. It
    /// misses the children of threads other than the main one, and processes that start or exit meanwhile.
    pub(super) fn listed_descendants(
        excluded: Option<Pid>,
        preexisting: &[Process],
    ) -> Vec<Process> {
        let mut found = Vec::new();
        let mut unvisited = vec![getpid()];
        while let Some(pid) = unvisited.pop() {
            let number = pid.as_raw_nonzero();
            let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
            let children = children.unwrap_or_default();
            let pids = children.split_ascii_whitespace().filter_map(parse_pid);
            for process in pids.filter_map(read_process) {
                if contains(preexisting, &process) {
                    continue;
                }
                unvisited.push(process.pid);
                if Some(process.pid) != excluded && !process.has_exited {
                    found.push(process);
                }
            }
        }
        found
    }

    /// Waits for children of this process that have exited, except those in `excluded`.
    pub(super) fn reap(excluded: &[Pid]) {
        let own_pid = getpid().as_raw_nonzero().get();
        for entry in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
            let process = entry.file_name().to_str().and_then(parse_pid).and_then(read_process);
            if let Some(process) = process
                && process.parent == own_pid
                && process.has_exited
                && !excluded.contains(&process.pid)
            {
                // The process ID of a child is not reused until the child is waited for.
                let _ = waitpid(Some(process.pid), WaitOptions::NOHANG);
            }
        }
    }

    pub(super) fn signal(process: &Process, signal: Option<Signal>) -> Result<(), Errno> {
        let Some(signal) = signal else { return test_kill_process(process.pid) };
        let handle = match pidfd_open(process.pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // Linux before 5.3 has no pidfd, so the process ID is used.
            Err(Errno::NOSYS) => return rustix::process::kill_process(process.pid, signal),
            Err(error) => return Err(error),
        };
        // The process ID may have been reused before the handle was opened.
        match read_process(process.pid) {
            Some(now) if now.started == process.started => pidfd_send_signal(handle, signal),
            _ => Err(Errno::SRCH),
        }
    }

    fn read_process(pid: Pid) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        parse(pid, &stat)
    }

    /// Parses `pid (name) state parent ...`, see proc(5). The name may contain any character.
    fn parse(pid: Pid, stat: &str) -> Option<Process> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = parse_pid(fields.next()?);
        // `starttime`, field 22.
        let started = fields.nth(16)?.parse().ok()?;
        Some(Process { pid, parent, group, started, has_exited: matches!(state, "Z" | "X") })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_process_name_may_contain_parentheses_and_spaces() {
            let pid = Pid::from_raw(7).unwrap();
            let stat = "7 (a) S 1 (b c) Z 42 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99887 0 0";
            let process = parse(pid, stat).unwrap();
            assert_eq!((process.parent, process.started, process.has_exited), (42, 99887, true));
            assert_eq!(process.group, Some(pid));
            assert_eq!(parse(pid, "7 (a"), None);
        }

        // Case (Found in docent itself): `docent lock` panicked when a process of another program
        // was being reaped while it looked for its own: Linux shows process group -1 then.
        #[test]
        fn a_process_that_is_being_reaped_has_no_group() {
            let pid = Pid::from_raw(7).unwrap();
            let stat = "7 (sh) X 0 -1 -1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99887 0 0";
            let process = parse(pid, stat).unwrap();
            assert_eq!((process.group, process.has_exited), (None, true));
        }

        #[test]
        fn a_child_is_found_until_it_exits() {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let pid = Pid::from_child(&child);
            assert!(descendants(None, &[]).iter().any(|process| process.pid == pid));
            assert!(!descendants(Some(pid), &[]).iter().any(|process| process.pid == pid));
            // The test is not the main thread, so the main thread's list does not contain the child.
            assert_eq!(listed_descendants(Some(pid), &[]), []);
            let found = read_process(pid).unwrap();
            assert!(!descendants(None, &[found]).iter().any(|process| process.pid == pid));
            let reused = Process { started: found.started + 1, ..found };
            assert_eq!(signal(&reused, Some(Signal::KILL)), Err(Errno::SRCH));
            assert_eq!(signal(&found, Some(Signal::KILL)), Ok(()));
            child.wait().unwrap();
            assert!(!descendants(None, &[]).iter().any(|process| process.pid == pid));
        }
    }
}

/// Parses a process ID; `None` for 0 and negative numbers. Linux shows -1 for the group of a process that is being
/// reaped.
pub(super) fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().filter(|&pid: &i32| pid > 0).and_then(Pid::from_raw)
}

/// Makes this process a subreaper, which inherits its orphaned descendants. Returns the descendants that exist already.
pub(crate) fn adopt_orphans() -> Preexisting {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Linux before 3.4 has no subreapers; then only the process group is signalled reliably.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        Preexisting { processes: linux::descendants(None, &[]) }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    Preexisting::default()
}

/// Waits for orphans that have exited, so that no zombies accumulate.
pub(super) fn reap_orphans(excluded: &[Pid]) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    linux::reap(excluded);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = excluded;
}
