//! The command and all that came of it: its process group, and on Linux also who has left that group.
//!
//! On Linux, whoever signals has made itself a *subreaper*: orphans below it become its children and not those of
//! process 1, so nobody below it can get out of its sight. Elsewhere the process group has to do.

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};

/// The descendants of this process, but for its watchdog, and for those it had before (a shell that has started
/// something may become `docent lock` by exec).
#[derive(Debug)]
pub(super) struct Family {
    /// The command, which leads a process group of its own; once it is known.
    group: Option<Pid>,
    /// A child of ours that is none of them.
    except: Option<Pid>,
    strangers: Strangers,
}

/// Who was there before the command, with all that comes of them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    processes: Vec<linux::Process>,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Signalled {
    /// How many processes live.
    pub(super) alive: usize,
    /// How many of them are somebody else's by now (`sudo`), so that no signal reaches them.
    pub(super) out_of_reach: usize,
}

impl Signalled {
    /// Whether nobody is left who could be ended.
    pub(super) const fn is_over(self) -> bool {
        self.alive == self.out_of_reach
    }
}

impl Family {
    pub(super) const fn new(except: Option<Pid>, strangers: Strangers) -> Self {
        Self { group: None, except, strangers }
    }

    /// The command is there.
    pub(super) const fn set_group(&mut self, group: Pid) {
        self.group = Some(group);
    }

    pub(super) const fn group(&self) -> Option<Pid> {
        self.group
    }

    /// Signals the process group only, as a terminal does.
    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Nobody there: then nobody needs it.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Signals everybody.
    pub(super) fn signal(&self, signal: Signal) -> Signalled {
        self.signal_group(signal);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if [Signal::STOP, Signal::KILL].contains(&signal) {
            // Where every moment counts: most of those outside the group, at once.
            for member in linux::listed(self.except, &self.strangers.processes) {
                let _ = linux::signal(&member, Some(signal));
            }
        }
        self.each(Some(signal))
    }

    /// Counts them.
    pub(super) fn count(&self) -> Signalled {
        self.each(None)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn each(&self, signal: Option<Signal>) -> Signalled {
        let mut result = Signalled::default();
        for member in linux::descendants(self.except, &self.strangers.processes) {
            result.alive += 1;
            // The group has it already.
            let signal = signal.filter(|_| member.group != self.group);
            match linux::signal(&member, signal) {
                Ok(()) => {}
                Err(Errno::PERM) => result.out_of_reach += 1,
                // It has ended meanwhile.
                Err(_) => result.alive -= 1,
            }
        }
        result
    }

    /// Who leads the group is a member until it is waited for, which the caller does first.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn each(&self, _signal: Option<Signal>) -> Signalled {
        let Some(group) = self.group else { return Signalled::default() };
        match rustix::process::test_kill_process_group(group) {
            Ok(()) => Signalled { alive: 1, out_of_reach: 0 },
            Err(Errno::PERM) => Signalled { alive: 1, out_of_reach: 1 },
            Err(_) => Signalled::default(),
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

    /// A process, which another one of the same number is not.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Process {
        pid: Pid,
        parent: i32,
        pub(super) group: Option<Pid>,
        started: u64,
        has_ended: bool,
    }

    /// The living processes below this one, without `except` (whose children count) and without `strangers` (whose
    /// do not).
    pub(super) fn descendants(except: Option<Pid>, strangers: &[Process]) -> Vec<Process> {
        let all: HashMap<i32, Process> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid: i32| Some((pid, look_at(Pid::from_raw(pid)?)?)))
            .collect();
        let ours = getpid().as_raw_nonzero().get();
        let is_stranger = |process: &Process| is_among(strangers, process);
        let is_below = |process: &Process| {
            let mut next = Some(process);
            // A table that was read while it changed has no end, perhaps.
            for _ in 0..all.len() {
                match next {
                    Some(process) if is_stranger(process) => return false,
                    Some(process) if process.parent == ours => return true,
                    Some(process) => next = all.get(&process.parent),
                    None => return false,
                }
            }
            false
        };
        let mut living = Vec::new();
        for process in all.values().filter(|process| is_below(process)) {
            if Some(process.pid) == except {
                continue;
            }
            if !process.has_ended {
                living.push(*process);
            }
        }
        // Parents first: a shell whose child is killed before it would notice, and go on to the next command.
        living.sort_unstable_by_key(|process| (process.started, process.pid.as_raw_nonzero()));
        living
    }

    fn is_among(strangers: &[Process], process: &Process) -> bool {
        strangers.iter().any(|one| (one.pid, one.started) == (process.pid, process.started))
    }

    /// The same by the kernel's lists of children, where it has them: much faster, but some may be missed (children
    /// of other threads than the first, and who comes or goes meanwhile).
    pub(super) fn listed(except: Option<Pid>, strangers: &[Process]) -> Vec<Process> {
        let mut found = Vec::new();
        let mut ahead = vec![getpid()];
        while let Some(pid) = ahead.pop() {
            let number = pid.as_raw_nonzero();
            let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
            let children = children.unwrap_or_default();
            let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
            for process in pids.filter_map(Pid::from_raw).filter_map(look_at) {
                if is_among(strangers, &process) {
                    continue;
                }
                ahead.push(process.pid);
                if Some(process.pid) != except && !process.has_ended {
                    found.push(process);
                }
            }
        }
        found
    }

    /// Waits for orphans that have ended and are our children now, but not for `except`.
    pub(super) fn reap(except: &[Pid]) {
        let ours = getpid().as_raw_nonzero().get();
        for entry in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let process = pid.and_then(Pid::from_raw).and_then(look_at);
            if let Some(process) = process
                && process.parent == ours
                && process.has_ended
                && !except.contains(&process.pid)
            {
                // A child of ours, so its number is nobody else's before this.
                let _ = waitpid(Some(process.pid), WaitOptions::NOHANG);
            }
        }
    }

    pub(super) fn signal(process: &Process, signal: Option<Signal>) -> Result<(), Errno> {
        let Some(signal) = signal else { return test_kill_process(process.pid) };
        let handle = match pidfd_open(process.pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // Kernels before 5.3: the number will have to do.
            Err(Errno::NOSYS) => return rustix::process::kill_process(process.pid, signal),
            Err(error) => return Err(error),
        };
        // The handle is for whoever had the number when it was opened: the one we mean?
        match look_at(process.pid) {
            Some(now) if now.started == process.started => pidfd_send_signal(handle, signal),
            _ => Err(Errno::SRCH),
        }
    }

    fn look_at(pid: Pid) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        parse(pid, &stat)
    }

    /// `pid (name) state parent ...`: the name may have anything in it. See proc(5).
    fn parse(pid: Pid, stat: &str) -> Option<Process> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok().and_then(Pid::from_raw);
        // The 22nd of all.
        let started = fields.nth(16)?.parse().ok()?;
        Some(Process { pid, parent, group, started, has_ended: matches!(state, "Z" | "X") })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_with_brackets_and_spaces_is_only_a_name() {
            let pid = Pid::from_raw(7).unwrap();
            let stat = "7 (a) S 1 (b c) Z 42 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99887 0 0";
            let process = parse(pid, stat).unwrap();
            assert_eq!((process.parent, process.started, process.has_ended), (42, 99887, true));
            assert_eq!(process.group, Some(pid));
            assert_eq!(parse(pid, "7 (a"), None);
        }

        #[test]
        fn a_child_is_found_and_its_end_too() {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let pid = Pid::from_child(&child);
            assert!(descendants(None, &[]).iter().any(|process| process.pid == pid));
            assert!(!descendants(Some(pid), &[]).iter().any(|process| process.pid == pid));
            // A test runs in another thread than the first, whose list it is not in.
            assert_eq!(listed(Some(pid), &[]), []);
            let found = look_at(pid).unwrap();
            assert!(!descendants(None, &[found]).iter().any(|process| process.pid == pid));
            let another = Process { started: found.started + 1, ..found };
            assert_eq!(signal(&another, Some(Signal::KILL)), Err(Errno::SRCH));
            assert_eq!(signal(&found, Some(Signal::KILL)), Ok(()));
            child.wait().unwrap();
            assert!(!descendants(None, &[]).iter().any(|process| process.pid == pid));
        }
    }
}

/// Makes orphans below this process its children. Returns who is there already.
pub(super) fn adopt_orphans() -> Strangers {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Before Linux 3.4: then the process group has to do.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        Strangers { processes: linux::descendants(None, &[]) }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    Strangers::default()
}

/// Waits for orphans that have ended, so that they do not pile up.
pub(super) fn reap_orphans(except: &[Pid]) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    linux::reap(except);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = except;
}
