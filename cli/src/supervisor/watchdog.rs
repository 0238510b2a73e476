//! The process between `docent` and its command, which ends the command when `docent` cannot.
//!
//! ```text
//! docent                 owns the session; reports until when the lock or leadership is certainly held
//!   └─ lock-watchdog     this module, in a second docent process; ends the command when the reports stop
//!        └─ CMD          leads its own process group; on Linux, it dies with the watchdog
//! ```
//!
//! | failure | what ends the command |
//! |---|---|
//! | `docent` is killed | the watchdog, at once: the socket is closed |
//! | `docent` is stopped | the watchdog, at the last deadline it received |
//! | the watchdog is killed | `docent`, at once; the kernel kills CMD itself (`PR_SET_PDEATHSIG`) |
//! | the watchdog is stopped | `docent`, by the same schedule |
//! | both are killed at the same instant | the kernel kills CMD itself, but not the processes CMD started |
//!
//! The two processes exchange lines over a socket, which is the watchdog's standard input. The standard input of CMD
//! is passed over it as a file descriptor. Times are on the shared [clock](super::clock), in nanoseconds.
//!
//! The watchdog trusts only the messages that it receives, which report until when the lock is held. It ends the
//! command when they stop, or when the socket is closed. It does not reap the command: `docent` inherits it, so its
//! process ID is not reused while a signal may still be sent to it.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::unix::{net::UnixStream, process::CommandExt as _},
    process::{Child, Command},
    time::Duration,
};

use rustix::{
    fd::{AsFd, OwnedFd},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
    process::{Pid, Signal, WaitId, WaitIdOptions, waitid},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::UnixStream as AsyncUnixStream,
    signal::unix::{SignalKind, signal},
};

use super::{
    clock,
    process_tree::{self, ProcessTree, Remaining, parse_pid},
    schedule::Schedule,
    terminal,
};
use crate::{exit, output::report};

/// The hidden subcommand of the watchdog process.
pub(crate) const WATCHDOG_COMMAND: &str = "__lock-watchdog";
/// The hidden subcommand of the process that executes the command.
pub(crate) const EXEC_COMMAND: &str = "__lock-command";
/// The argument that gives the terminal to the command.
const FOREGROUND: &str = "foreground";

/// A message from `docent` to the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// The lock is held; replaces the schedule by which the watchdog ends the command.
    Renew(Schedule),
    /// Ends the command: TERM now, KILL at the given time.
    End {
        /// A time on the clock.
        kill_at: Duration,
    },
}

impl Request {
    fn to_line(self) -> String {
        match self {
            Self::Renew(Schedule { term_at, kill_at }) => {
                format!("renew {} {}\n", term_at.as_nanos(), kill_at.as_nanos())
            }
            Self::End { kill_at } => format!("end {}\n", kill_at.as_nanos()),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let time = |word: &str| word.parse().ok().map(Duration::from_nanos);
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["renew", term_at, kill_at] => {
                Some(Self::Renew(Schedule { term_at: time(term_at)?, kill_at: time(kill_at)? }))
            }
            ["end", kill_at] => Some(Self::End { kill_at: time(kill_at)? }),
            _ => None,
        }
    }
}

/// A message from the watchdog to `docent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The command was started.
    Started(Pid),
    /// The command was stopped by its terminal: by Ctrl-Z, or by an access from the background.
    Stopped {
        /// The command reads or changes the terminal while another process group is in the foreground.
        wants_terminal: bool,
    },
    /// The command has exited, and no process that it started is left.
    Exited {
        /// The exit code, or 128 plus the signal number.
        code: u8,
        /// `false` if the watchdog ended the command because its schedule was not renewed.
        in_time: bool,
    },
    /// The command could not be started.
    Failed,
}

impl Event {
    fn to_line(self) -> String {
        match self {
            Self::Started(pid) => format!("started {}\n", pid.as_raw_nonzero()),
            Self::Stopped { wants_terminal } => {
                format!("stopped {}\n", if wants_terminal { "for-terminal" } else { "by-terminal" })
            }
            Self::Exited { code, in_time } => {
                format!("exited {code} {}\n", if in_time { "in-time" } else { "at-deadline" })
            }
            Self::Failed => "failed\n".to_owned(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["started", pid] => Some(Self::Started(parse_pid(pid)?)),
            ["stopped", why] => Some(Self::Stopped { wants_terminal: *why == "for-terminal" }),
            ["exited", code, when] => {
                Some(Self::Exited { code: code.parse().ok()?, in_time: *when == "in-time" })
            }
            ["failed"] => Some(Self::Failed),
            _ => None,
        }
    }
}

/// The handle of `docent` to its watchdog process.
pub(super) struct Watchdog {
    process: Child,
    events: tokio::io::Lines<BufReader<AsyncUnixStream>>,
    /// The same socket, from std: a tokio socket does not write before it was polled for readiness.
    requests: UnixStream,
}

impl Watchdog {
    /// Starts the watchdog, which starts the command. `name` is the subcommand that error messages begin with.
    pub(super) fn start(
        name: &str,
        command: &[OsString],
        environment: &[(&str, String)],
        kill_after: Duration,
        schedule: Schedule,
    ) -> io::Result<Self> {
        let (local, remote) = UnixStream::pair()?;
        let mut watchdog = Command::new(current_program()?);
        watchdog
            .arg(WATCHDOG_COMMAND)
            .arg(name)
            .arg(kill_after.as_nanos().to_string())
            .arg(if terminal::goes_to_command() { FOREGROUND } else { "background" })
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(OwnedFd::from(remote))
            // Signals that the terminal or the shell sends to the group of `docent` must not reach it.
            .process_group(0);
        let process = watchdog.spawn()?;
        send_with_stdin(&local, &Request::Renew(schedule).to_line())?;
        local.set_nonblocking(true)?;
        let requests = local.try_clone()?;
        let events = BufReader::new(AsyncUnixStream::from_std(local)?).lines();
        Ok(Self { process, events, requests })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sends a request. It is dropped if the socket's buffer is full; then the watchdog keeps its last schedule.
    pub(super) fn send(&self, request: Request) {
        let _ = (&self.requests).write(request.to_line().as_bytes());
    }

    /// Returns the next event, or `None` when the watchdog has exited.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub(super) async fn next_event(&mut self) -> Option<Event> {
        loop {
            match self.events.next_line().await {
                Ok(Some(line)) => {
                    if let Some(event) = Event::parse(&line) {
                        return Some(event);
                    }
                }
                _ => return None,
            }
        }
    }

    /// Kills the watchdog.
    pub(super) fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Waits for the watchdog to exit. Blocks, so it must be about to exit.
    pub(super) fn wait(mut self) {
        let _ = self.process.wait();
    }
}

/// The path of this program. On Linux it remains valid when the file is replaced.
fn current_program() -> io::Result<std::path::PathBuf> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

/// Sends the first line, with the standard input of this process as a file descriptor.
fn send_with_stdin(socket: &UnixStream, line: &str) -> io::Result<()> {
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    with.push(SendAncillaryMessage::ScmRights(&descriptors));
    // The socket's buffer is empty and far larger than a line, so this neither blocks nor writes a part.
    sendmsg(socket, &[IoSlice::new(line.as_bytes())], &mut with, SendFlags::empty())?;
    Ok(())
}

/// Receives the first line and the standard input of the command.
fn receive_with_stdin(socket: &UnixStream) -> io::Result<(String, OwnedFd)> {
    let mut bytes = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut with, RecvFlags::empty())?;
    let stdin = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let text = bytes.get(..received.bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(text).into_owned();
    match stdin {
        Some(stdin) => {
            // Apple's systems have no MSG_CMSG_CLOEXEC. No other thread can start a program in between.
            rustix::io::fcntl_setfd(&stdin, rustix::io::FdFlags::CLOEXEC)?;
            Ok((text, stdin))
        }
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

// The watchdog process.

/// Runs the watchdog process. Its arguments are the subcommand of `docent` that has started it, the longest time from
/// TERM to KILL in nanoseconds, `foreground` or `background`, and the command.
pub(crate) fn run(arguments: &[OsString]) -> u8 {
    let Some((name, arguments)) = arguments.split_first() else { return exit::USAGE };
    let name = name.to_string_lossy();
    match supervise(&name, arguments) {
        Ok(()) => 0,
        Err(error) => {
            report(format_args!("docent {name}: the watchdog: {error}"));
            exit::OS
        }
    }
}

fn supervise(name: &str, arguments: &[OsString]) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let [grace, terminal, command @ ..] = arguments else { return Err(invalid()) };
    let grace = grace.to_str().and_then(|text| text.parse().ok()).ok_or_else(invalid)?;
    // Another name than `docent`, because `pkill docent` must not end both processes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::thread::set_name(c"lock-watchdog");
    let preexisting = process_tree::adopt_orphans();
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (line, stdin) = receive_with_stdin(&control)?;
    let Some(Request::Renew(schedule)) = Request::parse(line.trim_end()) else {
        return Err(invalid());
    };
    control.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let events = control.try_clone()?;
        let mut requests =
            Requests(Some(BufReader::new(AsyncUnixStream::from_std(control)?).lines()));
        let mut child_signals = signal(SignalKind::child())?;
        if clock::now() >= schedule.term_at {
            send_event(&events, Event::Failed);
            return Ok(());
        }
        let child = match spawn(name, command, terminal, stdin) {
            Ok(child) => child,
            Err(error) => {
                let program =
                    command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
                report(format_args!("docent {name}: {program}: {error}"));
                send_event(&events, Event::Failed);
                return Ok(());
            }
        };
        let pid = Pid::from_child(&child);
        send_event(&events, Event::Started(pid));
        let mut processes = ProcessTree::new(None, preexisting);
        processes.set_group(pid);
        let mut supervisor = Supervisor {
            processes,
            pid,
            schedule,
            grace,
            kill_at: None,
            exit_code: None,
            in_time: true,
        };
        loop {
            tokio::select! {
                biased;
                request = requests.next() => supervisor.handle(request),
                _ = child_signals.recv() => {}
                () = clock::sleep_until(supervisor.next_wakeup()) => {}
            }
            if let Some(signal) = supervisor.stop_signal() {
                let wants_terminal = [Signal::TTIN, Signal::TTOU].contains(&signal);
                send_event(&events, Event::Stopped { wants_terminal });
            }
            if let Some(code) = supervisor.poll() {
                send_event(&events, Event::Exited { code, in_time: supervisor.in_time });
                return Ok(());
            }
        }
    })
}

/// Starts the command by way of [`exec_command`].
fn spawn(name: &str, command: &[OsString], terminal: &OsStr, stdin: OwnedFd) -> io::Result<Child> {
    Command::new(current_program()?)
        .arg(EXEC_COMMAND)
        .arg(name)
        .arg(std::process::id().to_string())
        .arg(terminal)
        .args(command)
        .stdin(stdin)
        .process_group(0)
        .spawn()
}

/// Prepares this process for the command, and then executes the command in it. A separate program does this because
/// safe Rust cannot run code between fork and exec. Its arguments are the subcommand of `docent`, the expected parent
/// process ID, `foreground` or `background`, and the command.
pub(crate) fn exec_command(arguments: &[OsString]) -> u8 {
    let [name, parent, terminal, program, rest @ ..] = arguments else { return exit::USAGE };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // The parent may have exited before that call.
        let current = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
        if current.as_deref() != parent.to_str() {
            return exit::LOST;
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = parent;
    if terminal == FOREGROUND {
        terminal::take_foreground();
    }
    let error = Command::new(program).args(rest).exec();
    let (name, program) = (name.to_string_lossy(), program.to_string_lossy());
    let mut stderr = io::stderr();
    // `docent` has found the program before, so its interpreter is missing.
    if error.kind() == io::ErrorKind::NotFound {
        let _ = writeln!(
            stderr,
            "docent {name}: {program}: the interpreter named in its first line (#!) does not exist"
        );
        return exit::NOT_FOUND;
    }
    let _ = writeln!(stderr, "docent {name}: {program}: {error}");
    exit::NOT_EXECUTABLE
}

/// The requests of `docent`, until the socket is closed.
struct Requests(Option<tokio::io::Lines<BufReader<AsyncUnixStream>>>);

impl Requests {
    /// Returns the next request, or `None` once when the socket is closed.
    async fn next(&mut self) -> Option<Request> {
        loop {
            let Some(lines) = &mut self.0 else { return std::future::pending().await };
            match lines.next_line().await {
                Ok(Some(line)) => {
                    if let Some(request) = Request::parse(&line) {
                        return Some(request);
                    }
                }
                _ => {
                    self.0 = None;
                    return None;
                }
            }
        }
    }
}

/// Sends an event. It cannot be delivered if `docent` is dead or stopped; a line is never written in part.
fn send_event(mut socket: &UnixStream, event: Event) {
    let _ = socket.write(event.to_line().as_bytes());
}

/// The state of the command in the watchdog process.
struct Supervisor {
    processes: ProcessTree,
    pid: Pid,
    schedule: Schedule,
    /// The longest time from TERM to KILL, in nanoseconds.
    grace: u64,
    /// The time of KILL, once TERM was sent.
    kill_at: Option<Duration>,
    /// The exit code to report, once the command has exited.
    exit_code: Option<u8>,
    /// Whether the command exited before the schedule required TERM.
    in_time: bool,
}

/// How often to check whether killed processes have exited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Supervisor {
    fn handle(&mut self, request: Option<Request>) {
        match request {
            Some(Request::Renew(schedule)) => self.schedule = schedule,
            Some(Request::End { kill_at }) => self.end(kill_at),
            // `docent` has ended, so nothing keeps the session alive: it lasts until its deadline at most.
            None => self.end(self.schedule.kill_at),
        }
    }

    fn end(&mut self, kill_at: Duration) {
        let now = clock::now();
        let latest = now + Duration::from_nanos(self.grace);
        let kill_at = kill_at.min(latest).min(self.schedule.kill_at);
        if let Some(before) = self.kill_at {
            self.kill_at = Some(before.min(kill_at));
            return;
        }
        self.kill_at = Some(kill_at);
        if now < kill_at {
            self.processes.signal(Signal::TERM);
            // A stopped process does not handle TERM before it continues.
            self.processes.signal(Signal::CONT);
        }
    }

    fn next_wakeup(&self) -> Duration {
        let next_poll = clock::now() + POLL_INTERVAL;
        match self.kill_at {
            None => self.schedule.term_at,
            Some(kill_at) => kill_at.max(next_poll),
        }
    }

    /// Sends the signals that are due. Returns the exit code once the command and all its processes have exited.
    fn poll(&mut self) -> Option<u8> {
        process_tree::reap_orphans(&[self.pid]);
        let exit_code = self.poll_exit_code();
        let now = clock::now();
        if self.kill_at.is_none()
            && exit_code.is_some()
            && self.processes.count() == Remaining::default()
        {
            return exit_code;
        }
        if self.kill_at.is_none() && (exit_code.is_some() || now >= self.schedule.term_at) {
            self.in_time = exit_code.is_some();
            // Processes that the command leaves behind must not run without the lock either.
            self.end(self.schedule.kill_at);
        }
        if self.kill_at.is_some_and(|kill_at| now >= kill_at) {
            self.processes.signal(Signal::KILL);
        }
        exit_code.filter(|_| self.kill_at.is_some() && self.processes.count().is_done())
    }

    /// Returns the exit code of the command, or 128 plus its signal, once it has exited.
    ///
    /// Does not reap the command: `docent` inherits it when the watchdog exits. Until then, its process ID is
    /// not reused.
    fn poll_exit_code(&mut self) -> Option<u8> {
        if self.exit_code.is_some() {
            return self.exit_code;
        }
        let mut options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // Without subreapers, `docent` does not inherit the command. It is reaped here, because as
        // a zombie it would keep its group alive.
        options.set(WaitIdOptions::NOWAIT, cfg!(any(target_os = "linux", target_os = "android")));
        let status = waitid(WaitId::Pid(self.pid), options).ok().flatten()?;
        self.exit_code = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Some(exit::from_signal(signal)),
            _ => None,
        };
        self.exit_code
    }

    /// Returns the signal that stopped the command since the last call. Leaves out SIGSTOP, which docent sends itself.
    fn stop_signal(&self) -> Option<Signal> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.pid), options).ok().flatten();
        let signal = Signal::from_named_raw(status?.stopping_signal()?)?;
        (signal != Signal::STOP).then_some(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_they_were_written() {
        let time = Duration::from_nanos(u64::MAX);
        for request in [
            Request::Renew(Schedule { term_at: Duration::ZERO, kill_at: time }),
            Request::End { kill_at: time },
        ] {
            assert_eq!(Request::parse(request.to_line().trim_end()), Some(request));
        }
        for event in [
            Event::Started(rustix::process::getpid()),
            Event::Stopped { wants_terminal: true },
            Event::Failed,
            Event::Exited { code: 255, in_time: false },
        ] {
            assert_eq!(Event::parse(event.to_line().trim_end()), Some(event));
        }
        for line in ["", "renew", "renew 1", "end x", "exited 256 in-time", "started 0"] {
            assert_eq!((Request::parse(line), Event::parse(line)), (None, None), "{line}");
        }
    }
}
