//! The state of a world: its queue of events, its tasks, processes, network and servers. No task is polled or dropped
//! while it is locked.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use docent::ErrorKind;
use docent_testing::server::{Ensemble, Version};
use fastrand::Rng;

use super::{
    connections::{Arrival, Network},
    director::Director,
    disturbances::{Apart, Away, CONNECTED_WITHIN, Disturbances},
    history::History,
    lock::lock,
    process::Process,
    servers::Servers,
    time::{MILLISECOND, Nanos, Pid, SECOND, TaskId},
};

pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An action at an instant.
pub(super) type Action = Box<dyn FnOnce() + Send>;

pub(crate) struct Core {
    /// Draws the choices of the scheduler and of the network.
    pub(crate) rng: Rng,
    /// Takes these choices in place of `rng`, in a directed run.
    pub(crate) director: Option<Box<Director>>,
    /// By time, and then in the order in which they were scheduled.
    pub(super) queue: BTreeMap<(Nanos, u64), Event>,
    sequence: u64,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) next_task: TaskId,
    pub(crate) processes: Vec<Process>,
    pub(crate) network: Network,
    pub(crate) servers: Servers,
    pub(crate) history: History,
    pub(crate) disturbances: Disturbances,
    /// The processes whose next grant of a strict mutex is their last message, and for how long.
    pub(crate) severed_at_grant: BTreeMap<Pid, Nanos>,
    /// The paths at or below which a process may have nodes.
    pub(super) uses: BTreeMap<u64, (Pid, Vec<String>)>,
    /// The last number that was used in a name.
    pub(super) names: u64,
    /// The process that is being polled.
    pub(super) polled: Option<Pid>,
    /// One in this many polls is put off; 0: none.
    pub(crate) puts_off_one_in: u32,
    /// The number of polls and events so far.
    pub(super) steps: u64,
    /// The number of polls and events above which a run counts as a livelock.
    pub(crate) most_steps: u64,
    /// Whether the history has requests, replies and events.
    pub(crate) shows_frames: bool,
    /// Whether the history has bytes, changes and beliefs.
    pub(crate) shows_wire: bool,
}

pub(super) struct Task {
    pub(super) pid: Pid,
    /// `None` while it is polled.
    pub(super) future: Option<TaskFuture>,
    pub(super) waker: Arc<TaskWaker>,
    /// Until then it is not polled.
    pub(super) starved_until: Nanos,
}

/// The errors of calls that a fault explains: those of connections and sessions, and of what is lost with a session.
const IS_BY_FAULT: [ErrorKind; 5] = [
    ErrorKind::ConnectionLoss,
    ErrorKind::SessionExpired,
    ErrorKind::OperationTimeout,
    ErrorKind::LockLost,
    ErrorKind::Unanswered,
];

/// The errors of calls that the other steps of a plan, and its settings, explain at any time.
const IS_BY_PLAN: [ErrorKind; 16] = [
    ErrorKind::NoNode,
    ErrorKind::NodeExists,
    ErrorKind::BadVersion,
    ErrorKind::NotEmpty,
    ErrorKind::NoChildrenForEphemerals,
    ErrorKind::LockLost,
    ErrorKind::NoAuth,
    ErrorKind::QuotaExceeded,
    ErrorKind::ThrottledOp,
    ErrorKind::NotReadOnly,
    ErrorKind::Unimplemented,
    ErrorKind::TooManyRequests,
    ErrorKind::RequestTooLarge,
    // Of a change of the members.
    ErrorKind::BadArguments,
    ErrorKind::NewConfigNoQuorum,
    ErrorKind::ReconfigInProgress,
];

/// For how long a poll may be put off.
pub(super) const LONGEST_PUT_OFF: Nanos = 20 * MILLISECOND;

pub(crate) enum Event {
    /// A task whose poll was put off.
    Poll(TaskId),
    /// A timer of a process is due.
    Wake(Pid, Waker),
    /// Something arrives at an end of a connection.
    Arrival(Arrival),
    /// A fault begins or ends, a process starts.
    Action(Action),
}

pub(super) struct TaskWaker {
    pub(super) id: TaskId,
    pub(super) ready: Arc<Mutex<Vec<TaskId>>>,
    pub(super) is_queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push(self.id);
        }
    }
}

/// The number of steps of a whole run above which it counts as a livelock: a thousand times the usual number. Timers
/// that are due after a nanosecond let the time go on, but not far.
const STEPS: u64 = 50_000_000;

impl Core {
    pub(super) fn new(seed: u64, servers: Servers) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            director: None,
            queue: BTreeMap::new(),
            sequence: 0,
            tasks: BTreeMap::new(),
            next_task: 0,
            processes: Vec::new(),
            network: Network::default(),
            servers,
            history: History::default(),
            disturbances: Disturbances::default(),
            severed_at_grant: BTreeMap::new(),
            uses: BTreeMap::new(),
            names: 0,
            polled: None,
            puts_off_one_in: 0,
            steps: 0,
            most_steps: STEPS,
            shows_frames: false,
            shows_wire: false,
        }
    }

    pub(crate) fn schedule(&mut self, at: Nanos, event: Event) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.queue.insert((at, sequence), event);
    }

    /// The end of the last fault that concerns a process.
    pub(crate) fn disturbed_until(&self, pid: Pid) -> Nanos {
        self.process(pid).disturbed_until.max(self.disturbances.until)
    }

    /// Since when no fault has concerned a process and its client's state has not changed: all queued requests are
    /// sent.
    pub(crate) fn undisturbed_since(&self, pid: Pid) -> Nanos {
        self.disturbed_until(pid).max(self.process(pid).state_changed_at)
    }

    /// Whether no fault has concerned a process for a while before `from`, and none does now: a connection may have
    /// been dead for a session timeout before its client notices.
    pub(crate) fn is_calm(&self, pid: Pid, from: Nanos, now: Nanos) -> bool {
        let since = self.undisturbed_since(pid) + self.disturbances.longest_timeout + SECOND;
        since < from && !self.network.has_trap(pid) && !self.disturbances.refuses(now)
    }

    /// The last answer to a process by one of these members in its period; `None`: there was none.
    pub(crate) fn answered_at(&self, pid: Pid, apart: &[Apart]) -> Option<Nanos> {
        let answer = |apart: &Apart| {
            let of_members = self.network.answers.range((pid, 0)..(pid + 1, 0));
            let answers =
                of_members.filter(|((_, member), _)| apart.member.is_none_or(|of| of == *member));
            let last = answers.map(|(_, at)| *at).max()?;
            (last >= apart.from).then(|| last.min(apart.until))
        };
        apart.iter().filter_map(answer).max()
    }

    /// Whether something explains that a call of a process has failed. `has_ended`: its client has.
    pub(crate) fn explains(&self, pid: Pid, has_ended: bool, kind: ErrorKind, now: Nanos) -> bool {
        let Some(director) = &self.director else {
            let is_settled = self.is_settled(pid, now.saturating_sub(CONNECTED_WITHIN));
            let stays = is_settled && self.keeps_session(pid) && !self.may_reconnect(pid);
            return match kind {
                _ if has_ended => true,
                ErrorKind::Closed => self.process(pid).is_closing,
                kind => IS_BY_PLAN.contains(&kind) || IS_BY_FAULT.contains(&kind) && !stays,
            };
        };
        let concerned = &self.disturbances.concerned;
        let is_concerned = concerned.contains(&None) || concerned.contains(&Some(pid));
        director.expects(kind) || is_concerned && IS_BY_FAULT.contains(&kind)
    }

    /// Whether the client of a process keeps its session once no fault has an effect on it.
    pub(crate) fn keeps_session(&self, pid: Pid) -> bool {
        // Processes that share a session move each other to other members.
        let is_shared = self.processes.iter().any(|of| of.resumed.is_some());
        let process = self.process(pid);
        process.is_running() && !process.is_closing && !is_shared
    }

    /// Whether the client of a process may connect again without a fault: by a planned reconnect, or because it sends an
    /// operation that its server lacks.
    pub(crate) fn may_reconnect(&self, pid: Pid) -> bool {
        self.process(pid).reconnects || self.servers.version < Version::V3_6
    }

    /// Stops polling one task of a process until then.
    pub(crate) fn starve(&mut self, pid: Pid, task: usize, until: Nanos) {
        let mut tasks = self.tasks.values_mut().filter(|task| task.pid == pid);
        if let Some(task) = tasks.nth(task) {
            task.starved_until = until.max(task.starved_until);
            let process = self.process_mut(pid);
            process.starved_until = until.max(process.starved_until);
            process.interruptions += 1;
        }
    }

    /// Whether no fault has an effect on the client of a process any more, whatever has become of its connection.
    pub(crate) fn is_settled(&self, pid: Pid, now: Nanos) -> bool {
        self.is_over(self.disturbed_until(pid), now) && !self.may_lose_connection(pid, now)
    }

    /// Whether a fault may end, or may have ended, the connection of a process to a member that has answered it.
    pub(crate) fn may_lose_connection(&self, pid: Pid, now: Nanos) -> bool {
        let has_answered = |member: &usize| {
            let answer = self.network.answers.get(&(pid, *member));
            answer.is_some_and(|at| !self.is_over(*at, now))
        };
        let members = || 0..self.servers.count;
        let knows_its_server = members().any(|at| has_answered(&at)) && !self.relies_on_few(pid);
        members().any(|at| (!knows_its_server || has_answered(&at)) && self.is_away(pid, at, now))
            || self.network.has_trap(pid)
            || self.disturbances.refuses(now)
            || self.disturbances.has_short_sessions()
    }

    /// Whether a fault may end, or may have ended, the session of a process: there was no member that served it for long
    /// enough, or it was answered by one that does not know what its leader does.
    pub(crate) fn may_lose_session(&self, pid: Pid, now: Nanos) -> bool {
        let mut members = 0..self.servers.count;
        let is_unserved = if self.relies_on_few(pid) {
            members.any(|member| self.is_away(pid, member, now))
        } else {
            members.all(|member| self.is_away(pid, member, now))
        };
        let misled_at = self.answered_at(pid, &self.disturbances.apart);
        is_unserved || misled_at.is_some_and(|at| !self.is_over(at, now))
    }

    /// Whether not every member keeps the session of a process. A local session is known to one member.
    fn relies_on_few(&self, pid: Pid) -> bool {
        self.servers.has_local_sessions || self.process(pid).relies_on_few
    }

    /// Whether a process may have been kept from a member in the longest session timeout, and some seconds.
    fn is_away(&self, pid: Pid, member: usize, now: Nanos) -> bool {
        !self.is_over(self.away_until(pid, member), now)
    }

    /// Until when a fault, or an election, may have kept a process from a member, or that from the others that it needs.
    fn away_until(&self, pid: Pid, member: usize) -> Nanos {
        let (count, of) = (self.servers.count, &self.disturbances);
        let until = |at| of.away_until(None, at).max(self.servers.away_until(at));
        let mut all: Vec<_> = (0..count).map(until).collect();
        all.sort_unstable();
        // A smaller ensemble may need each of its members.
        let needed = if self.servers.has_changed_members { count - 1 } else { count / 2 };
        of.away_until(Some(pid), member).max(until(member)).max(all[needed])
    }

    /// Whether the servers may refuse, or may have refused, a write to a node.
    pub(crate) fn may_be_denied(&self, path: &str, now: Nanos) -> bool {
        let until = self.disturbances.denied_until(path);
        until > 0 && !self.is_over(until, now)
    }

    /// Whether a fault that lasted until then has no effect any more.
    const fn is_over(&self, until: Nanos, now: Nanos) -> bool {
        until + self.disturbances.longest_timeout + 2 * SECOND < now
    }

    /// Notes that a fault concerns a process, or all, until this time.
    pub(crate) fn disturb(&mut self, pid: Option<Pid>, away: Away, until: Nanos) {
        self.disturbances.concerned.insert(pid);
        let noted = match pid {
            Some(pid) => &mut self.process_mut(pid).disturbed_until,
            None => &mut self.disturbances.until,
        };
        *noted = until.max(*noted);
        match away {
            Away::Nothing => {}
            Away::Member(member) => self.disturbances.take_away(pid, Some(member), until),
            Away::All => self.disturbances.take_away(pid, None, until),
        }
    }

    pub(crate) fn process(&self, pid: Pid) -> &Process {
        &self.processes[pid]
    }

    pub(crate) fn process_mut(&mut self, pid: Pid) -> &mut Process {
        &mut self.processes[pid]
    }

    /// The paths of all nodes of the recipes.
    pub(crate) fn paths(&self) -> Vec<String> {
        let (mut left, mut paths) = (self.ensemble().child_paths("/"), Vec::new());
        while let Some(path) = left.pop() {
            left.extend(self.ensemble().child_paths(&path));
            paths.push(path);
        }
        paths.retain(|path| !path.starts_with("/zookeeper"));
        paths
    }

    pub(crate) const fn ensemble(&self) -> &Ensemble {
        &self.servers.ensemble
    }

    /// Whether a process runs, and has more to do.
    pub(crate) fn is_active(&self, pid: Pid) -> bool {
        let process = self.process(pid);
        process.is_running() && !process.is_finished
    }

    /// Whether another process has the session of this one too. Each of its connects closes the connection of the other.
    pub(crate) fn shares_session(&self, pid: Pid) -> bool {
        let session = self.process(pid).session;
        let others = (0..self.processes.len()).filter(|other| *other != pid);
        let mut active = others.filter(|other| self.is_active(*other));
        session.is_some() && active.any(|other| self.process(other).session == session)
    }

    /// Whether a process may have a node with this path.
    pub(crate) fn uses(&self, pid: Pid, path: &str) -> bool {
        let mut used = self.uses.values().filter(|(of, _)| *of == pid).flat_map(|(_, paths)| paths);
        used.any(|used| path.starts_with(used))
    }

    /// The processes that still have tasks.
    pub(crate) fn processes_with_tasks(&self) -> BTreeSet<Pid> {
        self.tasks.values().map(|task| task.pid).collect()
    }

    /// Which of the ready tasks is polled next.
    pub(super) fn choose_task(&mut self, ready: &[TaskId]) -> usize {
        let Some(director) = &mut self.director else { return self.rng.usize(..ready.len()) };
        let pid_of = |id: &TaskId| self.tasks.get(id).map(|task| task.pid);
        let Some(first) = ready.iter().filter_map(pid_of).min() else { return 0 };
        let of_first = ready.iter().copied().filter(|id| pid_of(id) == Some(first));
        let next = director.next_task(first, of_first);
        ready.iter().position(|id| Some(*id) == next).unwrap_or(0)
    }

    /// Lets the time of the servers go on.
    pub(super) fn pass_time(&mut self, now: Duration) {
        self.with_servers(now, |ensemble, now| ensemble.handle_timeout(now));
    }
}
