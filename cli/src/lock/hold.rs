//! The time in which the lock is held and the command runs.

use std::{ffi::OsString, future::pending, sync::Arc, time::Duration};

use docent::{
    Client, ConnectionState, EventType,
    recipes::locks::LockGuard,
    session::{Instant, OnDrop, States},
};
use rustix::process::{Signal, WaitOptions, getpid, kill_process, waitpid};
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    clock,
    family::{self, Family, Signalled},
    schedule::Schedule,
    signals::{Signals, Stops},
    terminal,
    watchdog::{News, Order, Watchdog},
};
use crate::exit::{self, Failure};

/// A lock that is held, and what is to be done with it.
pub(super) struct Holding<'a> {
    pub(super) client: &'a Client,
    pub(super) guard: &'a LockGuard,
    pub(super) command: &'a [OsString],
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) kill_after: Duration,
    /// Whether the command runs on while there is no connection.
    pub(super) run_suspended: bool,
    /// Told when somebody asks for the lock.
    pub(super) revoked: Arc<Notify>,
    /// So long before the command is started.
    pub(super) pause: Duration,
}

/// Why the command was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It ended by itself.
    ByItself,
    SessionLost,
    NodeDeleted,
    OutOfTouch,
    Revoked,
    WatchdogDied,
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::ByItself => "",
            Self::SessionLost => "the session was lost, and the lock with it",
            Self::NodeDeleted => "the lock's node was deleted by somebody else",
            Self::OutOfTouch => "it could not be confirmed in time that the lock is held",
            Self::Revoked => "somebody asked for the lock, and got it",
            Self::WatchdogDied => "the watchdog was killed",
        }
    }
}

/// Between two looks at processes that were killed and are not gone yet.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Holding<'_> {
    /// Runs the command. Its exit code; or that the lock was lost, and the command ended. When this returns,
    /// nothing is left of the command.
    pub(super) async fn run(self, signals: &mut Signals) -> Result<u8, Failure> {
        // Whoever may delete the node leaves us the lock no longer: told from before the command runs.
        let lost = || Failure::new(exit::LOST, Why::SessionLost.text());
        let states = self.client.states();
        let mut node = Box::pin(self.until_deleted());
        loop {
            tokio::select! {
                biased;
                () = &mut node => return Err(lost()),
                seen = self.client.exists(self.guard.lock_path()) => match seen {
                    Ok(Some(_)) => break,
                    Err(error) if error.is_retryable() && self.guard.is_held() => {
                        sleep(LOOK_AGAIN * 10).await;
                    }
                    Ok(None) => return Err(lost()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        tokio::select! {
            biased;
            () = &mut node => return Err(lost()),
            () = self.guard.lost() => return Err(lost()),
            // It has not begun: as while it waits.
            signal = signals.next() => return Ok(exit::of_signal(signal.as_raw())),
            () = sleep(self.pause) => {}
        }
        let until = self.schedule().ok_or_else(lost)?;
        let strangers = family::adopt_orphans();
        let watchdog = Watchdog::start(self.command, &self.environment, self.kill_after, until)
            .map_err(|error| Failure::os("cannot start a process", error))?;
        let mut running = Running {
            holding: &self,
            family: Family::new(Some(watchdog.pid()), strangers),
            watchdog,
            until,
            why: Why::ByItself,
            is_paused: false,
            kills: false,
        };
        let ended = running.watch(signals, states, node).await;
        if ended.is_none() {
            // Its end is waited for.
            running.watchdog.kill();
        }
        running.clear_up().await;
        let Running { watchdog, why, family, .. } = running;
        watchdog.wait();
        if let Some(group) = family.group() {
            terminal::take_back(group);
            // It fell to us with the end of its parent.
            let _ = waitpid(Some(group), WaitOptions::NOHANG);
        }
        match (why, ended) {
            (Why::ByItself, Some(code)) => Ok(code),
            (Why::ByItself, None) => {
                Err(Failure::new(exit::OS, "the command could not be started"))
            }
            (why, _) => {
                let text = format!("{}; the command was ended", why.text());
                Err(Failure::new(exit::LOST, text))
            }
        }
    }

    /// Until when the lock is believed in; `None` when it is not.
    fn deadline(&self) -> Option<Instant> {
        let lease = self.client.session()?;
        if lease.session_id() != self.guard.session_id() {
            return None;
        }
        // Read before it is asked: after a lapse it would be that of a new belief.
        let deadline = lease.deadline();
        self.guard.is_held().then_some(deadline)
    }

    fn schedule(&self) -> Option<Schedule> {
        // In this order: what passes in between makes it earlier.
        let now = clock::now();
        let left = self.deadline()?.since(self.client.now());
        Some(Schedule::before(now + left, self.client.session_timeout(), self.kill_after))
    }

    /// Waits until our node is gone, as far as the server tells.
    async fn until_deleted(&self) {
        loop {
            match self.client.exists_and_watch(self.guard.lock_path()).await {
                Ok((None, _)) => return,
                Ok((Some(_), mut watcher)) => {
                    watcher.set_on_drop(OnDrop::Forget);
                    let event = watcher.changed().await;
                    if event.event_type == EventType::NodeDeleted {
                        return;
                    }
                    if event.is_end() {
                        // The loss of the session is noticed elsewhere.
                        pending::<()>().await;
                    }
                }
                Err(error) if error.is_retryable() && self.guard.is_held() => {
                    sleep(LOOK_AGAIN * 10).await;
                }
                Err(_) => pending().await,
            }
        }
    }
}

/// The command while it runs.
struct Running<'a> {
    holding: &'a Holding<'a>,
    watchdog: Watchdog,
    family: Family,
    /// What the watchdog was told last.
    until: Schedule,
    why: Why,
    /// Stopped by us, for there is no connection.
    is_paused: bool,
    /// The time of the command is over.
    kills: bool,
}

impl Running<'_> {
    /// Returns how the command has ended, when the watchdog says so; `None` when it does not any more.
    async fn watch(
        &mut self,
        signals: &mut Signals,
        mut states: States,
        mut node: std::pin::Pin<Box<impl Future<Output = ()>>>,
    ) -> Option<u8> {
        let holding = self.holding;
        let pace = (holding.client.session_timeout() / 20)
            .clamp(Duration::from_millis(10), Duration::from_millis(500));
        let mut tick = interval(pace);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stops = Stops::listen();
        let mut node_is_there = true;
        let (mut revoked_once, mut is_told) = (false, true);
        loop {
            let lost =
                async { if self.kills { pending().await } else { holding.guard.lost().await } };
            tokio::select! {
                biased;
                news = self.watchdog.news() => match news {
                    Some(News::Started(pid)) => {
                        self.family.set_group(pid);
                        self.follow(holding.client.state().borrow().as_ref().copied());
                    }
                    Some(News::Stopped { wants_terminal }) => self.stopped(wants_terminal),
                    Some(News::Ended { code, in_time }) => {
                        if !in_time {
                            self.blame(Why::OutOfTouch);
                        }
                        return Some(code);
                    }
                    Some(News::Failed) => return None,
                    None => {
                        self.blame(Why::WatchdogDied);
                        return None;
                    }
                },
                // None: the client has ended, and will say nothing more.
                state = states.next(), if is_told => {
                    is_told = state.is_some();
                    self.follow(state);
                }
                () = &mut node, if node_is_there => {
                    node_is_there = false;
                    self.kill(Why::NodeDeleted);
                }
                () = lost => {
                    let lease = holding.client.session();
                    let same = lease.is_some_and(|lease| {
                        lease.session_id() == holding.guard.session_id() && !lease.is_lost()
                    });
                    self.kill(if same { Why::OutOfTouch } else { Why::SessionLost });
                }
                () = holding.revoked.notified(), if !revoked_once => {
                    revoked_once = true;
                    self.blame(Why::Revoked);
                    self.watchdog.order(Order::End { kill_at: clock::now() + holding.kill_after });
                }
                // One that comes before the command is there waits for it.
                signal = signals.next(), if self.family.group().is_some() => {
                    self.family.signal_group(signal);
                }
                // Ctrl-Z, where the terminal is our group's.
                () = stops.next() => {
                    // Not SIGTSTP: the watchdog would tell us to do what we are doing.
                    self.family.signal_group(Signal::STOP);
                    self.stop_with_it();
                }
                _ = tick.tick() => self.renew(),
            }
        }
    }

    /// Tells the watchdog until when the lock is held, and does its work if it does not.
    fn renew(&mut self) {
        match self.holding.schedule() {
            Some(until) if !self.kills => {
                if until != self.until {
                    self.until = until;
                    self.watchdog.order(Order::Until(until));
                }
                if clock::now() >= until.kill_at {
                    self.kill(Why::OutOfTouch);
                }
            }
            _ => self.kill(Why::SessionLost),
        }
        // A watchdog that is stopped does not notice that there is nothing left to watch.
        if self.kills && self.family.count().is_over() {
            self.watchdog.kill();
        }
    }

    fn blame(&mut self, why: Why) {
        if self.why == Why::ByItself {
            self.why = why;
        }
    }

    /// The lock is another's, or may be in a moment.
    fn kill(&mut self, why: Why) {
        self.blame(why);
        self.kills = true;
        self.family.signal(Signal::KILL);
        self.watchdog.order(Order::End { kill_at: Duration::ZERO });
    }

    /// While nobody knows whether the lock is still ours, the command stands still.
    ///
    /// Source: what Curator advises for `ConnectionState.SUSPENDED`.
    fn follow(&mut self, state: Option<ConnectionState>) {
        if self.holding.run_suspended || self.family.group().is_none() {
            return;
        }
        let is_connected = state.is_some_and(ConnectionState::is_connected);
        if !is_connected && !self.is_paused {
            self.family.signal(Signal::STOP);
            self.is_paused = true;
        } else if is_connected && self.is_paused && self.holding.guard.is_held() {
            self.family.signal(Signal::CONT);
            self.is_paused = false;
        }
    }

    /// The terminal has stopped the command: it may have it, if that is ours to give.
    fn stopped(&self, wants_terminal: bool) {
        match self.family.group() {
            Some(group) if wants_terminal && terminal::is_ours() => {
                terminal::give(group);
                self.family.signal_group(Signal::CONT);
            }
            _ => self.stop_with_it(),
        }
    }

    /// The user has stopped the command from the terminal (Ctrl-Z): the shell gets its prompt back. The session is
    /// kept alive by nobody then, so the watchdog ends the command if that takes too long.
    fn stop_with_it(&self) {
        let Some(group) = self.family.group() else { return };
        terminal::take_back(group);
        let _ = kill_process(getpid(), Signal::STOP);
        // Here we go on: fg, or bg.
        if terminal::is_the_commands() {
            terminal::give(group);
        }
        self.family.signal_group(Signal::CONT);
    }

    /// Waits until nothing is left of the command.
    async fn clear_up(&mut self) {
        let family = &self.family;
        let ours: Vec<_> = family.group().into_iter().chain([self.watchdog.pid()]).collect();
        // Usually there is nothing left to do: that is why the watchdog has ended.
        loop {
            family::reap_orphans(&ours);
            let left = family.count();
            if left.is_over() {
                if left != Signalled::default() {
                    eprintln!(
                        "docent lock: {} processes of the command belong to another user now and cannot be ended",
                        left.out_of_reach
                    );
                }
                return;
            }
            family.signal(Signal::KILL);
            sleep(LOOK_AGAIN).await;
        }
    }
}
