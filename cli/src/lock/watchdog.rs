//! The process between `docent lock` and its command. It is there for when `docent lock` cannot act.
//!
//! ```text
//! docent lock            holds the session; tells until when the lock is surely held
//!   └─ lock-watchdog     this: docent once more; ends the command when it is told nothing, or the pipe breaks
//!        └─ CMD          leads a process group of its own; dies with the watchdog (Linux)
//! ```
//!
//! | who is gone | who ends the command |
//! |---|---|
//! | `docent lock` killed | the watchdog, at once: the pipe is closed |
//! | `docent lock` stopped | the watchdog, at the deadline that it was told last |
//! | the watchdog killed | `docent lock`, at once; the kernel kills CMD itself (`PR_SET_PDEATHSIG`) |
//! | the watchdog stopped | `docent lock`, by the same schedule |
//! | both killed at the same instant | the kernel kills CMD itself, but not what CMD has started |
//!
//! They talk in lines over a socket, which is the watchdog's standard input; the standard input that is CMD's
//! comes through it as a descriptor. Times are those of the [clock](super::clock), in nanoseconds.

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
    net::UnixStream as Listened,
    signal::unix::{SignalKind, signal},
};

use super::{
    clock,
    family::{self, Family, Signalled},
    schedule::Schedule,
    terminal,
};
use crate::exit;

/// The hidden commands: what the process is.
pub(crate) const WATCHDOG: &str = "__lock-watchdog";
/// What becomes the command.
pub(crate) const STAGE: &str = "__lock-command";
/// That the command gets the terminal.
const FOREGROUND: &str = "foreground";

/// What `docent lock` says to the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The lock is held; this is when to end the command, unless another order comes before.
    Until(Schedule),
    /// End the command: TERM now, KILL then.
    End {
        /// On the clock.
        kill_at: Duration,
    },
}

impl Order {
    fn line(self) -> String {
        match self {
            Self::Until(Schedule { term_at, kill_at }) => {
                format!("until {} {}\n", term_at.as_nanos(), kill_at.as_nanos())
            }
            Self::End { kill_at } => format!("end {}\n", kill_at.as_nanos()),
        }
    }

    fn read(line: &str) -> Option<Self> {
        let time = |word: &str| word.parse().ok().map(Duration::from_nanos);
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["until", term_at, kill_at] => {
                Some(Self::Until(Schedule { term_at: time(term_at)?, kill_at: time(kill_at)? }))
            }
            ["end", kill_at] => Some(Self::End { kill_at: time(kill_at)? }),
            _ => None,
        }
    }
}

/// What the watchdog tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// The command runs.
    Started(Pid),
    /// It was stopped from its terminal: by Ctrl-Z, or for wanting something of it.
    Stopped {
        /// It reads from a terminal, or changes it, that another group has.
        wants_terminal: bool,
    },
    /// It has ended, and nothing that it started is left.
    Ended {
        /// Its exit code, or 128 and its signal.
        code: u8,
        /// Not because the watchdog was told nothing for too long.
        in_time: bool,
    },
    /// It could not be started.
    Failed,
}

impl News {
    fn line(self) -> String {
        match self {
            Self::Started(pid) => format!("started {}\n", pid.as_raw_nonzero()),
            Self::Stopped { wants_terminal } => {
                format!("stopped {}\n", if wants_terminal { "for-terminal" } else { "by-terminal" })
            }
            Self::Ended { code, in_time } => {
                format!("ended {code} {}\n", if in_time { "in-time" } else { "at-deadline" })
            }
            Self::Failed => "failed\n".to_owned(),
        }
    }

    fn read(line: &str) -> Option<Self> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["started", pid] => Some(Self::Started(Pid::from_raw(pid.parse().ok()?)?)),
            ["stopped", why] => Some(Self::Stopped { wants_terminal: *why == "for-terminal" }),
            ["ended", code, when] => {
                Some(Self::Ended { code: code.parse().ok()?, in_time: *when == "in-time" })
            }
            ["failed"] => Some(Self::Failed),
            _ => None,
        }
    }
}

/// The watchdog, as `docent lock` sees it.
pub(super) struct Watchdog {
    process: Child,
    news: tokio::io::Lines<BufReader<Listened>>,
    /// The same socket. Not tokio's, which refuses to write before it has found out that it can.
    orders: UnixStream,
}

impl Watchdog {
    /// Starts it; it starts the command.
    pub(super) fn start(
        command: &[OsString],
        environment: &[(&str, String)],
        kill_after: Duration,
        until: Schedule,
    ) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let mut watchdog = Command::new(ourselves()?);
        watchdog
            .arg(WATCHDOG)
            .arg(kill_after.as_nanos().to_string())
            .arg(if terminal::is_the_commands() { FOREGROUND } else { "background" })
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(OwnedFd::from(its))
            // What is sent to our group by the terminal or the shell is not for it.
            .process_group(0);
        let process = watchdog.spawn()?;
        send_with_stdin(&ours, &Order::Until(until).line())?;
        ours.set_nonblocking(true)?;
        let orders = ours.try_clone()?;
        let news = BufReader::new(Listened::from_std(ours)?).lines();
        Ok(Self { process, news, orders })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Gives an order, unless it is too busy to listen: then it will do what it was told before.
    pub(super) fn order(&self, order: Order) {
        let _ = (&self.orders).write(order.line().as_bytes());
    }

    /// The next news; `None` when it is gone.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(super) async fn news(&mut self) -> Option<News> {
        loop {
            match self.news.next_line().await {
                Ok(Some(line)) => {
                    if let Some(news) = News::read(&line) {
                        return Some(news);
                    }
                }
                _ => return None,
            }
        }
    }

    /// Kills it.
    pub(super) fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Waits for its end, which must be near.
    pub(super) fn wait(mut self) {
        let _ = self.process.wait();
    }
}

/// This program, also when its file has been replaced meanwhile.
fn ourselves() -> io::Result<std::path::PathBuf> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

/// Sends a first line, and our standard input with it.
fn send_with_stdin(socket: &UnixStream, line: &str) -> io::Result<()> {
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    with.push(SendAncillaryMessage::ScmRights(&descriptors));
    // A line is far smaller than the socket's buffer, which is empty.
    sendmsg(socket, &[IoSlice::new(line.as_bytes())], &mut with, SendFlags::empty())?;
    Ok(())
}

/// Receives the first line, and the command's standard input.
fn receive_with_stdin(socket: &UnixStream) -> io::Result<(String, OwnedFd)> {
    let mut bytes = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut with, RecvFlags::CMSG_CLOEXEC)?;
    let stdin = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let text = bytes.get(..received.bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(text).into_owned();
    match stdin {
        Some(stdin) => Ok((text, stdin)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

// What the watchdog itself does.

/// The watchdog's process. Its arguments: the longest grace in nanoseconds, who has the terminal, the command.
pub(crate) fn run(arguments: &[OsString]) -> u8 {
    match watch(arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("docent lock: the watchdog: {error}");
            exit::OS
        }
    }
}

fn watch(arguments: &[OsString]) -> io::Result<()> {
    let not_for_you = || io::Error::from(io::ErrorKind::InvalidInput);
    let [grace, terminal, command @ ..] = arguments else { return Err(not_for_you()) };
    let grace = grace.to_str().and_then(|text| text.parse().ok()).ok_or_else(not_for_you)?;
    // Not called docent: who ends all of those by name must not end this one too.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::thread::set_name(c"lock-watchdog");
    let strangers = family::adopt_orphans();
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (line, stdin) = receive_with_stdin(&control)?;
    let Some(Order::Until(until)) = Order::read(line.trim_end()) else {
        return Err(not_for_you());
    };
    control.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let news = control.try_clone()?;
        let mut orders = Orders(Some(BufReader::new(Listened::from_std(control)?).lines()));
        let mut ended = signal(SignalKind::child())?;
        if clock::now() >= until.term_at {
            tell(&news, News::Failed);
            return Ok(());
        }
        let child = match spawn(command, terminal, stdin) {
            Ok(child) => child,
            Err(error) => {
                let name = command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
                eprintln!("docent lock: {name}: {error}");
                tell(&news, News::Failed);
                return Ok(());
            }
        };
        let pid = Pid::from_child(&child);
        tell(&news, News::Started(pid));
        let mut family = Family::new(None, strangers);
        family.set_group(pid);
        let mut guard =
            Guard { family, pid, until, grace, ending: None, ended: None, in_time: true };
        loop {
            tokio::select! {
                biased;
                order = orders.next() => guard.obey(order),
                _ = ended.recv() => {}
                () = clock::until(guard.next_look()) => {}
            }
            if let Some(by) = guard.stopped_by() {
                let wants_terminal = [Signal::TTIN, Signal::TTOU].contains(&by);
                tell(&news, News::Stopped { wants_terminal });
            }
            if let Some(code) = guard.look() {
                tell(&news, News::Ended { code, in_time: guard.in_time });
                return Ok(());
            }
        }
    })
}

/// Starts the command, by way of a stage that makes it what it must be.
fn spawn(command: &[OsString], terminal: &OsStr, stdin: OwnedFd) -> io::Result<Child> {
    Command::new(ourselves()?)
        .arg(STAGE)
        .arg(std::process::id().to_string())
        .arg(terminal)
        .args(command)
        .stdin(stdin)
        .process_group(0)
        .spawn()
}

/// Between fork and exec, as a program of its own: Rust has no safe way to do anything there. Its arguments: who
/// must be its parent, who has the terminal, the command.
pub(crate) fn become_command(arguments: &[OsString]) -> u8 {
    let [parent, terminal, program, rest @ ..] = arguments else { return exit::USAGE };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // It may have gone before that.
        let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
        if now.as_deref() != parent.to_str() {
            return exit::LOST;
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = parent;
    if terminal == FOREGROUND {
        terminal::take();
    }
    let error = Command::new(program).args(rest).exec();
    let name = program.to_string_lossy();
    let mut stderr = io::stderr();
    // That there is such a file was found out before.
    if error.kind() == io::ErrorKind::NotFound {
        let _ = writeln!(
            stderr,
            "docent lock: {name}: the interpreter in its first line (#!) is not there"
        );
        return exit::NOT_FOUND;
    }
    let _ = writeln!(stderr, "docent lock: {name}: {error}");
    exit::NOT_EXECUTABLE
}

/// Lines from `docent lock`, until it is gone.
struct Orders(Option<tokio::io::Lines<BufReader<Listened>>>);

impl Orders {
    /// The next order; `None` once, when the pipe breaks.
    async fn next(&mut self) -> Option<Order> {
        loop {
            let Some(lines) = &mut self.0 else { return std::future::pending().await };
            match lines.next_line().await {
                Ok(Some(line)) => {
                    if let Some(order) = Order::read(&line) {
                        return Some(order);
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

/// Who may not read any more is dead or stopped; the line is short.
fn tell(mut news: &UnixStream, what: News) {
    let _ = news.write(what.line().as_bytes());
}

/// What it knows about the command.
struct Guard {
    family: Family,
    pid: Pid,
    until: Schedule,
    /// Between TERM and KILL at most.
    grace: u64,
    /// TERM was sent: when KILL follows.
    ending: Option<Duration>,
    /// What it is to be told as.
    ended: Option<u8>,
    /// The deadline was not what ended it.
    in_time: bool,
}

/// Between two looks at processes that were killed and are not gone yet.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Guard {
    fn obey(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Until(until)) => self.until = until,
            Some(Order::End { kill_at }) => self.end(kill_at),
            // Nobody holds the session alive any more: it lasts until its deadline.
            None => self.end(self.until.kill_at),
        }
    }

    fn end(&mut self, kill_at: Duration) {
        let now = clock::now();
        let latest = now + Duration::from_nanos(self.grace);
        let kill_at = kill_at.min(latest).min(self.until.kill_at);
        if let Some(before) = self.ending {
            self.ending = Some(before.min(kill_at));
            return;
        }
        self.ending = Some(kill_at);
        if now < kill_at {
            self.family.signal(Signal::TERM);
            // Who is stopped would not hear it.
            self.family.signal(Signal::CONT);
        }
    }

    fn next_look(&self) -> Duration {
        let again = clock::now() + LOOK_AGAIN;
        match self.ending {
            None => self.until.term_at,
            Some(kill_at) => kill_at.max(again),
        }
    }

    /// Does what is due; how the command has ended, once all of it has.
    fn look(&mut self) -> Option<u8> {
        family::reap_orphans(&[self.pid]);
        let ended = self.has_ended();
        let now = clock::now();
        if self.ending.is_none() && ended.is_some() && self.left() == Signalled::default() {
            return ended;
        }
        if self.ending.is_none() && (ended.is_some() || now >= self.until.term_at) {
            self.in_time = ended.is_some();
            // Also what a command leaves behind must not run on without the lock.
            self.end(self.until.kill_at);
        }
        if self.ending.is_some_and(|kill_at| now >= kill_at) {
            self.family.signal(Signal::KILL);
        }
        ended.filter(|_| self.ending.is_some() && self.left().is_over())
    }

    fn left(&self) -> Signalled {
        self.family.count()
    }

    /// Its exit code, or 128 and its signal. It is not waited for: that is left to `docent lock`, to which it falls
    /// with our end, and until then nobody else can get its number.
    fn has_ended(&mut self) -> Option<u8> {
        if self.ended.is_some() {
            return self.ended;
        }
        let mut options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // Where orphans do not fall to `docent lock`, the group would seem to live on.
        options.set(WaitIdOptions::NOWAIT, cfg!(any(target_os = "linux", target_os = "android")));
        let status = waitid(WaitId::Pid(self.pid), options).ok().flatten()?;
        self.ended = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Some(exit::of_signal(signal)),
            _ => None,
        };
        self.ended
    }

    /// By what it has been stopped since we asked last; SIGSTOP is our own.
    fn stopped_by(&self) -> Option<Signal> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.pid), options).ok().flatten();
        let by = Signal::from_named_raw(status?.stopping_signal()?)?;
        (by != Signal::STOP).then_some(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let time = Duration::from_nanos(u64::MAX);
        for order in [
            Order::Until(Schedule { term_at: Duration::ZERO, kill_at: time }),
            Order::End { kill_at: time },
        ] {
            assert_eq!(Order::read(order.line().trim_end()), Some(order));
        }
        for news in [
            News::Started(rustix::process::getpid()),
            News::Stopped { wants_terminal: true },
            News::Failed,
            News::Ended { code: 255, in_time: false },
        ] {
            assert_eq!(News::read(news.line().trim_end()), Some(news));
        }
        for line in ["", "until", "until 1", "end x", "ended 256 in-time", "started 0"] {
            assert_eq!((Order::read(line), News::read(line)), (None, None), "{line}");
        }
    }
}
