//! Runs the command while the lock or leadership is held.

use std::{ffi::OsString, future::pending, sync::Arc, time::Duration};

use docent::{
    Client, ConnectionState, EventType, Latest, locks::Held, runtime::Instant,
    session::SessionClaim, watch::OnDrop,
};
use rustix::process::{Signal, WaitOptions, getpid, kill_process, waitpid};
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    clock,
    process_tree::{self, ProcessTree, Remaining},
    schedule::Schedule,
    signals::{Signals, TerminalStops},
    terminal,
    watchdog::{Event, Request, Watchdog},
};
use crate::{
    exit::{self, CommandResult, Failure},
    output::report,
};

/// The condition under which a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Lock,
    /// A lock whose proven bound ends the command.
    StrictLock,
    Leadership,
}

impl Subject {
    /// The subcommand of `docent`.
    pub(crate) const fn command_name(self) -> &'static str {
        match self {
            Self::Lock | Self::StrictLock => "lock",
            Self::Leadership => "lead",
        }
    }
}

/// A held lock or leadership, and the command to run under it.
pub(super) struct Hold<'a> {
    pub(super) subject: Subject,
    pub(super) client: &'a Client,
    pub(super) held: &'a dyn Held,
    pub(super) command: &'a [OsString],
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) kill_after: Duration,
    /// Whether the command keeps running while there is no connection.
    pub(super) run_suspended: bool,
    /// Notified when another client revokes the lock.
    pub(super) revoked: Arc<Notify>,
    /// The delay before the command is started.
    pub(super) delay: Duration,
}

/// Why the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// It exited by itself.
    Exited,
    SessionLost,
    NodeDeleted,
    /// The deadline passed without a reply from a server.
    NotConfirmed,
    Revoked,
    WatchdogDied,
}

impl EndReason {
    pub(crate) const fn text(self, subject: Subject) -> &'static str {
        match (self, subject) {
            (Self::Exited, _) => "",
            (Self::SessionLost, Subject::Lock | Subject::StrictLock) => {
                "session lost, and the lock with it"
            }
            (Self::SessionLost, Subject::Leadership) => "session lost, and the leadership with it",
            (Self::NodeDeleted, Subject::Lock | Subject::StrictLock) => {
                "the lock node was deleted by another client"
            }
            (Self::NodeDeleted, Subject::Leadership) => {
                "the leader's node was deleted by another client"
            }
            (Self::NotConfirmed, Subject::Lock | Subject::StrictLock) => {
                "no server confirmed in time that the lock is held"
            }
            (Self::NotConfirmed, Subject::Leadership) => {
                "no server confirmed in time that this process leads"
            }
            (Self::Revoked, _) => "the lock was revoked by another client",
            (Self::WatchdogDied, _) => "the watchdog was killed",
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// The command has exited, with this code.
    Exited(u8),
    /// A signal arrived before the command was started. The exit code is that of the signal.
    Interrupted(u8),
    /// The lock or leadership was lost before the command was started.
    NotStarted,
    /// The command was ended.
    Ended(EndReason),
}

impl Run {
    pub(super) fn interrupted(signal: Signal) -> Self {
        Self::Interrupted(exit::from_signal(signal.as_raw()))
    }

    /// The exit code of `docent`, or its error.
    pub(crate) fn into_result(self, subject: Subject) -> CommandResult {
        match self {
            Self::Exited(code) | Self::Interrupted(code) => Ok(code),
            Self::NotStarted => Err(Failure::new(exit::LOST, EndReason::SessionLost.text(subject))),
            Self::Ended(reason) => {
                let text = format!("{}; the command was ended", reason.text(subject));
                Err(Failure::new(exit::LOST, text))
            }
        }
    }
}

/// How often to check whether killed processes have exited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The delay before a failed read of the lock node is retried.
const RETRY_DELAY: Duration = Duration::from_millis(50);

impl Hold<'_> {
    /// Runs the command. When this returns, no process of the command is left.
    pub(super) async fn run(self, signals: &mut Signals) -> Result<Run, Failure> {
        let state = self.client.state();
        // The lock is lost if another client deletes the node, so the node is watched from before the command
        // is started.
        let mut deleted = Box::pin(self.node_deleted());
        if let Some(run) = self.until_start(signals, &mut deleted).await? {
            return Ok(run);
        }
        let Some(schedule) = self.schedule() else { return Ok(Run::NotStarted) };
        let preexisting = process_tree::adopt_orphans();
        let name = self.subject.command_name();
        let started =
            Watchdog::start(name, self.command, &self.environment, self.kill_after, schedule);
        let watchdog = started.map_err(|error| Failure::os("cannot start a process", error))?;
        let mut running = RunningCommand {
            hold: &self,
            claim: self.client.session().map(|lease| lease.claim()),
            processes: ProcessTree::new(Some(watchdog.pid()), preexisting),
            watchdog,
            schedule,
            reason: EndReason::Exited,
            is_suspended: false,
            is_killed: false,
        };
        let exit_code = running.supervise(signals, state, deleted).await;
        if exit_code.is_none() {
            // Otherwise `watchdog.wait` below would block.
            running.watchdog.kill();
        }
        running.kill_remaining().await;
        let RunningCommand { watchdog, reason, processes, schedule, .. } = running;
        watchdog.wait();
        if let Some(group) = processes.group() {
            terminal::take_back(group);
            // This process inherited the command when the watchdog exited.
            let _ = waitpid(Some(group), WaitOptions::NOHANG);
        }
        match (reason, exit_code) {
            (EndReason::Exited, Some(code)) => Ok(Run::Exited(code)),
            // The watchdog does not start a command whose time is up.
            (EndReason::Exited, None) if clock::now() >= schedule.term_at => {
                Ok(Run::Ended(EndReason::NotConfirmed))
            }
            (EndReason::Exited, None) => {
                Err(Failure::new(exit::OS, "the command could not be started"))
            }
            (reason, _) => Ok(Run::Ended(reason)),
        }
    }

    /// Waits until the lock node has been seen and the delay is over. Returns how the run ended, if it has.
    async fn until_start(
        &self,
        signals: &mut Signals,
        mut deleted: impl Future<Output = ()> + Unpin,
    ) -> Result<Option<Run>, Failure> {
        let seen_and_delayed = async {
            loop {
                match self.client.exists(self.held.path()).await {
                    Ok(Some(_)) => break,
                    Err(error) if error.is_retryable() && self.held.is_held() => {
                        sleep(RETRY_DELAY).await;
                    }
                    Err(error) if !error.is_retryable() => return Err(error.into()),
                    Ok(None) | Err(_) => return Ok(Some(Run::NotStarted)),
                }
            }
            tokio::select! {
                biased;
                () = self.held.lost() => Ok(Some(Run::NotStarted)),
                () = sleep(self.delay) => Ok(None),
            }
        };
        tokio::select! {
            biased;
            () = &mut deleted => Ok(Some(Run::NotStarted)),
            // The command is not started yet, so a signal has the same effect as during the acquire.
            signal = signals.next() => Ok(Some(Run::interrupted(signal))),
            run = seen_and_delayed => run,
        }
    }

    /// Returns the deadline of the session's lease, or of a strict lock its proven bound. Returns `None` if it is
    /// not held.
    fn deadline(&self) -> Option<Instant> {
        let lease = self.client.session()?;
        if lease.session_id() != self.held.session_id() {
            return None;
        }
        // Read before `is_held`: after a lapse, the deadline may be that of a renewed lease.
        let deadline = match self.subject {
            Subject::StrictLock => self.held.proven_until(),
            Subject::Lock | Subject::Leadership => lease.deadline(),
        };
        self.held.is_held().then_some(deadline)
    }

    /// Why the lock or leadership is no longer held. `claim` was made while it was.
    fn loss(&self, claim: Option<&SessionClaim>) -> EndReason {
        let now = self.client.now();
        match self.client.session() {
            Some(lease) if lease.session_id() == self.held.session_id() && !lease.is_lost() => {
                // The proven bound is zero once the node is known to be deleted. Any other bound of
                // a lost strict lock has passed.
                let is_unproven = self.subject == Subject::StrictLock
                    && self.held.proven_until() != Instant::ZERO;
                if claim.is_some_and(|claim| claim.is_valid(now)) && !is_unproven {
                    EndReason::NodeDeleted
                } else {
                    EndReason::NotConfirmed
                }
            }
            _ => EndReason::SessionLost,
        }
    }

    fn schedule(&self) -> Option<Schedule> {
        // The clock is read first: time that passes before the deadline is read then makes the schedule
        // earlier, never later.
        let now = clock::now();
        let left = self.deadline()?.duration_since(self.client.now());
        Some(Schedule::for_deadline(now + left, self.client.session_timeout(), self.kill_after))
    }

    /// Waits until the server reports that the lock node is deleted.
    async fn node_deleted(&self) {
        loop {
            match self.client.exists_and_watch(self.held.path()).await {
                Ok((None, _)) => return,
                Ok((Some(_), mut watcher)) => {
                    watcher.set_on_drop(OnDrop::Forget);
                    match watcher.next().await {
                        Some(event) if event.event_type == EventType::NodeDeleted => return,
                        Some(event) if !event.is_end() => {}
                        // The session was lost, which `LockGuard::lost` reports.
                        _ => pending().await,
                    }
                }
                Err(error) if error.is_retryable() && self.held.is_held() => {
                    sleep(RETRY_DELAY).await;
                }
                Err(_) => pending().await,
            }
        }
    }
}

/// A running command.
struct RunningCommand<'a> {
    hold: &'a Hold<'a>,
    /// A claim made before the command was started; `None` if the session had ended.
    claim: Option<SessionClaim>,
    watchdog: Watchdog,
    processes: ProcessTree,
    /// The schedule last sent to the watchdog.
    schedule: Schedule,
    reason: EndReason,
    /// Whether the command is stopped because there is no connection.
    is_suspended: bool,
    /// Whether the command was killed.
    is_killed: bool,
}

impl RunningCommand<'_> {
    /// Waits for the end of the command. Returns the exit code that the watchdog reports, or `None` if the command
    /// could not be started or the watchdog died.
    async fn supervise(
        &mut self,
        signals: &mut Signals,
        mut state: Latest<Option<ConnectionState>>,
        mut deleted: std::pin::Pin<Box<impl Future<Output = ()>>>,
    ) -> Option<u8> {
        let hold = self.hold;
        let renewal_interval = (hold.client.session_timeout() / 20)
            .clamp(Duration::from_millis(10), Duration::from_millis(500));
        let mut tick = interval(renewal_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminal_stops = TerminalStops::listen();
        let mut node_exists = true;
        let (mut is_revoked, mut has_states) = (false, true);
        loop {
            let lost =
                async { if self.is_killed { pending().await } else { hold.held.lost().await } };
            tokio::select! {
                biased;
                event = self.watchdog.next_event() => match event {
                    Some(Event::Started(pid)) => {
                        self.processes.set_group(pid);
                        self.handle_state(hold.client.state().get());
                    }
                    Some(Event::Stopped { wants_terminal }) => self.handle_stop(wants_terminal),
                    Some(Event::Exited { code, in_time }) => {
                        if !in_time {
                            self.set_reason(EndReason::NotConfirmed);
                        }
                        return Some(code);
                    }
                    Some(Event::Failed) => return None,
                    None => {
                        self.set_reason(EndReason::WatchdogDied);
                        return None;
                    }
                },
                // `None` means that the client was closed: no more states follow.
                next = state.next(), if has_states => {
                    has_states = next.is_some();
                    self.handle_state(next.flatten());
                }
                () = &mut deleted, if node_exists => {
                    node_exists = false;
                    self.kill(EndReason::NodeDeleted);
                }
                () = lost => self.kill(hold.loss(self.claim.as_ref())),
                () = hold.revoked.notified(), if !is_revoked => {
                    is_revoked = true;
                    self.set_reason(EndReason::Revoked);
                    self.watchdog.send(Request::End { kill_at: clock::now() + hold.kill_after });
                }
                // A signal that arrives before the command is started is forwarded after the start.
                signal = signals.next(), if self.processes.group().is_some() => {
                    self.processes.signal_group(signal);
                }
                // Ctrl-Z while the group of this process is in the foreground.
                () = terminal_stops.next() => {
                    // Not SIGTSTP: the watchdog would report that as a stop by the terminal.
                    self.processes.signal_group(Signal::STOP);
                    self.suspend_job();
                }
                _ = tick.tick() => self.renew(),
            }
        }
    }

    /// Sends the current schedule to the watchdog. Kills the command itself when its time is up, in case the watchdog
    /// is stopped.
    fn renew(&mut self) {
        match self.hold.schedule() {
            Some(schedule) if !self.is_killed => {
                if schedule != self.schedule {
                    self.schedule = schedule;
                    self.watchdog.send(Request::Renew(schedule));
                }
                if clock::now() >= schedule.kill_at {
                    self.kill(EndReason::NotConfirmed);
                }
            }
            _ => self.kill(self.hold.loss(self.claim.as_ref())),
        }
        // A stopped watchdog does not notice when all processes of the command have exited.
        if self.is_killed && self.processes.count().is_done() {
            self.watchdog.kill();
        }
    }

    /// Sets why the command ended, unless a reason has been set before.
    fn set_reason(&mut self, reason: EndReason) {
        if self.reason == EndReason::Exited {
            self.reason = reason;
        }
    }

    /// Kills the command, because another client holds the lock or may soon acquire it.
    fn kill(&mut self, reason: EndReason) {
        self.set_reason(reason);
        self.is_killed = true;
        self.processes.signal(Signal::KILL);
        self.watchdog.send(Request::End { kill_at: Duration::ZERO });
    }

    /// Stops the command while there is no connection, and continues it after a reconnect.
    ///
    /// Source: Curator's advice for `ConnectionState.SUSPENDED`.
    fn handle_state(&mut self, state: Option<ConnectionState>) {
        if self.hold.run_suspended || self.processes.group().is_none() {
            return;
        }
        let is_connected = state.is_some_and(ConnectionState::is_connected);
        if !is_connected && !self.is_suspended {
            self.processes.signal(Signal::STOP);
            self.is_suspended = true;
        } else if is_connected && self.is_suspended && self.hold.held.is_held() {
            self.processes.signal(Signal::CONT);
            self.is_suspended = false;
        }
    }

    /// Handles a stop by the terminal. Gives the terminal to the command if the command wants it and this
    /// process has it.
    fn handle_stop(&self, wants_terminal: bool) {
        match self.processes.group() {
            Some(group) if wants_terminal && terminal::is_foreground() => {
                terminal::give_to(group);
                self.processes.signal_group(Signal::CONT);
            }
            _ => self.suspend_job(),
        }
    }

    /// Stops this process too, so that the shell returns to its prompt after Ctrl-Z. Nothing keeps the session
    /// alive then, and the watchdog ends the command if this process is not continued in time.
    fn suspend_job(&self) {
        let Some(group) = self.processes.group() else { return };
        terminal::take_back(group);
        let _ = kill_process(getpid(), Signal::STOP);
        // Continued by `fg` or `bg`.
        if terminal::goes_to_command() {
            terminal::give_to(group);
        }
        self.processes.signal_group(Signal::CONT);
    }

    /// Kills the remaining processes of the command and waits until none is left.
    async fn kill_remaining(&mut self) {
        let processes = &self.processes;
        let excluded: Vec<_> = processes.group().into_iter().chain([self.watchdog.pid()]).collect();
        // Usually none is left, because the watchdog exits after the last of them.
        loop {
            process_tree::reap_orphans(&excluded);
            let remaining = processes.count();
            if remaining.is_done() {
                if remaining != Remaining::default() {
                    report(format_args!(
                        "docent {}: {} processes of the command run as another user and cannot be ended",
                        self.hold.subject.command_name(),
                        remaining.not_permitted
                    ));
                }
                return;
            }
            processes.signal(Signal::KILL);
            sleep(POLL_INTERVAL).await;
        }
    }
}
