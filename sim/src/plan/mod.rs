//! A plan: everything that a run of the world does, as data.
//!
//! A seed draws a plan; a plan and its seed give one history. Faults and steps can be deleted from a plan, which is how
//! a failing one is made short. A plan is text (RON), so that a finding can be kept as a file.

mod discovery;
mod faults;
mod leader;
mod nodes;
mod recipes;

use docent_testing::server::Version;
use serde::{Deserialize, Serialize};

pub use discovery::{FindStep, ServeEnd, ServeKind, ServeStep, Strategy};
pub use faults::{Direction, Fault, FaultKind, Flow, KillKind, Sides, Trap};
pub use leader::{CloseKind, KeepMode, KeepStep, LeadBy, LeadSettings, LeadStep};
pub use nodes::{MemberChange, ProtectedMode, ProtectedStep};
pub use recipes::{
    AtomicOp, AtomicStep, BarrierOp, BarrierStep, CacheEnd, CacheKind, CacheStep, DoubleStep,
    TreeOp, TreeStep,
};

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The seed of what is not in the plan: delays, the order of tasks, GUIDs.
    pub seed: u64,
    /// The servers.
    pub servers: ServersPlan,
    /// The network.
    pub network: NetworkPlan,
    /// One in this many polls of a task is put off; 0: none.
    pub puts_off_one_in: u32,
    /// The end of all faults. From then on everything must make progress.
    pub peace_at_ms: u64,
    /// The processes, by their number.
    pub processes: Vec<ProcessPlan>,
    /// The faults, in order.
    pub faults: Vec<Fault>,
    /// The fault that is planted into docent, by its name in `plants.rs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plant: Option<String>,
}

impl Plan {
    /// Parses a plan. A last line with the sums of a run is ignored, so that what `--shrink` prints can be replayed.
    ///
    /// # Errors
    ///
    /// The place (`line:column`) and the reason, in one line.
    pub fn from_ron(text: &str) -> Result<Self, String> {
        let end = text.trim_end();
        let (front, last) = end.rsplit_once('\n').unwrap_or(("", end));
        let text = if last.ends_with(" violations") { front } else { end };
        let plan: Self = options().from_str(text).map_err(|error| {
            let reason = error.code.to_string().replace('\n', " ");
            format!("{}:{}: {reason}", error.span.start.line, error.span.start.col)
        })?;
        if let Some(plant) = &plan.plant
            && !crate::plants::PLANTS.iter().any(|known| known.name == plant)
        {
            return Err(format!(" no planted fault is called `{plant}`"));
        }
        plan.servers.version().map_err(|error| format!(" {error}"))?;
        Ok(plan)
    }

    /// The plan as text, each fault and each step on a line.
    #[must_use]
    pub fn to_ron(&self) -> String {
        let pretty = ron::ser::PrettyConfig::new().depth_limit(5).indentor("  ");
        let text = options().to_string_pretty(self, pretty);
        let text = text.unwrap_or_else(|error| format!("// {error}"));
        let mut out = String::with_capacity(text.len());
        let mut is_in_faults = false;
        for line in text.lines() {
            is_in_faults = (is_in_faults || line == "  faults: [") && line != "  ],";
            let (indent, is_deep) = (&line[..line.len() - line.trim_start().len()], is_in_faults);
            // The entries of the list begin and end with an indentation of four.
            let continues = is_deep && (indent.len() > 4 || line == "    ),");
            if continues && out.ends_with('\n') {
                out.pop();
                let is_first = out.ends_with('(');
                let is_last = line.trim_start().starts_with(')');
                if is_last && out.ends_with(',') {
                    out.pop();
                }
                out.push_str(if is_first || is_last { "" } else { " " });
                out.push_str(line.trim_start());
            } else {
                out.push_str(line);
            }
            out.push('\n');
        }
        out.trim_end().to_owned()
    }

    /// How long locks are held and barriers are waited for at most, all steps together, in milliseconds.
    pub(crate) fn hold_ms(&self) -> u64 {
        let steps = self.processes.iter().flat_map(|process| &process.workers).flatten();
        let most = |step: &Step| match step {
            Step::Lock(step) => step.hold_ms,
            Step::Barrier(step) => step.cancel_ms,
            Step::Double(step) => u64::from(step.rounds) * (2 * step.cancel_ms + step.hold_ms),
            _ => 0,
        };
        steps.map(most).sum()
    }

    /// The number of steps of all workers.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.processes.iter().flat_map(|process| &process.workers).map(Vec::len).sum()
    }
}

fn options() -> ron::Options {
    ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME)
}

/// The servers of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServersPlan {
    /// 1: a stand-alone server.
    pub count: usize,
    /// `tickTime`, in milliseconds.
    pub tick_ms: u64,
    /// `syncLimit`, in ticks.
    pub sync_limit: u32,
    /// How often empty containers are removed, in milliseconds.
    pub container_check_ms: u64,
    /// How long an election takes.
    #[serde(default)]
    pub election_ms: u64,
    /// `minSessionTimeout`, in milliseconds; `None`: two ticks. Below one tick, sessions end although nothing fails: the
    /// leader hears of the clients of a follower every half tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_session_timeout_ms: Option<u64>,
    /// Whether clients can change the members. `/zookeeper/config` has the addresses for clients then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconfig: bool,
    /// The version of ZooKeeper that they imitate, such as `3.6`; `None`: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl ServersPlan {
    /// The version of the servers.
    ///
    /// # Errors
    ///
    /// The embedded server does not imitate that version.
    pub fn version(&self) -> Result<Version, String> {
        match &self.version {
            None => Ok(Version::default()),
            Some(number) => Version::from_number(number)
                .ok_or_else(|| format!("no embedded server imitates version {number}")),
        }
    }
}

/// The network of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPlan {
    /// The longest ordinary delay of a delivery, in microseconds.
    pub delay_us: u64,
    /// One in this many deliveries takes up to a hundred times as long; 0: none.
    pub spikes_one_in: u32,
    /// One in this many reads and writes moves only a few bytes; 0: none.
    pub short_one_in: u32,
}

/// A process with one client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessPlan {
    /// When it starts.
    pub starts_at_ms: u64,
    /// The error of its clock's rate, in millionths.
    pub drift_ppm: i64,
    /// Its client.
    pub client: ClientPlan,
    /// The process whose last session its client goes on with.
    #[serde(default)]
    pub resumes: Option<usize>,
    /// Its workers: the steps of each, done one after another.
    pub workers: Vec<Vec<Step>>,
}

/// The settings of a client that differ between processes.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientPlan {
    /// The session timeout asked for.
    pub session_timeout_ms: u64,
    /// The request timeout; `None`: none.
    pub request_timeout_ms: Option<u64>,
    /// The limit of pending requests; `None`: the default.
    pub max_requests: Option<usize>,
    /// Whether it accepts read-only servers.
    pub read_only: bool,
    /// Whether requests above a limit wait.
    #[serde(default)]
    pub waits_when_full: bool,
    /// The largest request; `None`: the default.
    #[serde(default)]
    pub max_request_bytes: Option<usize>,
    /// The limit of the bytes of pending requests; `None`: the default.
    #[serde(default)]
    pub max_pending_bytes: Option<usize>,
    /// The events kept for a watcher; `None`: the default.
    #[serde(default)]
    pub max_watch_events: Option<usize>,
    /// The connection timeout; `None`: the default.
    #[serde(default)]
    pub connection_timeout_ms: Option<u64>,
    /// Whether it is dropped in the end, and not closed.
    #[serde(default)]
    pub is_dropped: bool,
    /// Whether it asks servers for their roles.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct_servers: bool,
}

/// What a worker does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Nothing, for a time.
    Sleep {
        /// Milliseconds of the process's clock.
        ms: u64,
    },
    /// Acquires a lock, holds it, and lets it go.
    Lock(LockStep),
    /// One request of a register.
    Register(RegisterStep),
    /// Several requests at once.
    Burst(Vec<RegisterStep>),
    /// A watch.
    Watch(WatchStep),
    /// A use of a `SharedValue`.
    Shared(SharedStep),
    /// Something done with the client of the process.
    Client(ClientStep),
    /// Another client of the process, which comes and goes.
    Visit(VisitStep),
    /// Asks the first holder or waiter of a lock to release it.
    Revoke {
        /// Which lock.
        lock: LockName,
    },
    /// Deletes the first node in the queue of a lock, as an operator would.
    DeleteNode {
        /// Which lock.
        lock: LockName,
    },
    /// Takes part in an election.
    Lead(LeadStep),
    /// Keeps a node present.
    Keep(KeepStep),
    /// Keeps a cache of the tree.
    Cache(CacheStep),
    /// Changes of the tree, sent at once.
    Tree(Vec<TreeStep>),
    /// An operation on an atomic number or value.
    Atomic(AtomicStep),
    /// An operation on a `DistributedBarrier`.
    Barrier(BarrierStep),
    /// Rounds of a `DistributedDoubleBarrier`.
    Double(DoubleStep),
    /// Creates a node with protection.
    Protected(ProtectedStep),
    /// Follows the members of the ensemble.
    Track {
        /// For how long.
        for_ms: u64,
        /// Whether it goes on then, until the worker has done its steps.
        stays: bool,
    },
    /// Changes the members of the ensemble, as an operator does.
    Reconfigure {
        /// Which member.
        member: u8,
        /// What becomes of it.
        change: MemberChange,
    },
    /// Registers an instance of a service.
    Serve(ServeStep),
    /// Looks for the instances of a service.
    Find(FindStep),
    /// Deletes the first node in the queue of an election, as an operator would.
    DeleteLeader {
        /// Its number.
        election: u8,
    },
    /// Deletes a kept node, as an operator would.
    DeleteKept {
        /// Its number.
        node: u8,
    },
    /// Changes the number of leases of a `CountedSemaphore`.
    SetCount {
        /// The number of the semaphore.
        number: u8,
        /// The leases.
        count: u8,
    },
}

/// One use of a lock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockStep {
    /// Which lock.
    pub lock: LockName,
    /// How long it is waited for at most; `None`: for ever.
    pub wait_ms: Option<u64>,
    /// After which time the future of the acquire is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
    /// After how many polls the future of the acquire is dropped; `None`: never.
    #[serde(default)]
    pub cancel_polls: Option<u32>,
    /// How long it is held.
    pub hold_ms: u64,
    /// How it is let go.
    pub end: HoldEnd,
    /// The options of the lock object.
    #[serde(default)]
    pub options: LockSettings,
    /// Whether the step makes a lock object of its own. Otherwise the workers of a process share one.
    #[serde(default)]
    pub fresh: bool,
    /// Whether the lock is revocable, and let go when a revocation is requested. The lock object is then fresh.
    #[serde(default)]
    pub revocable: bool,
    /// The owner of a re-entrant acquire. The workers of a process share its owners.
    #[serde(default)]
    pub owner: Option<u8>,
    /// The number of leases of a semaphore; 0 and 1: one.
    #[serde(default)]
    pub quantity: u8,
    /// How the loss of the lock is noticed.
    #[serde(default)]
    pub watch: HoldWatch,
    /// The number of guarded writes to the register of the lock.
    #[serde(default)]
    pub writes: u8,
    /// Whether the checker refrains from calling `is_held`, which would end a hold whose time is up.
    #[serde(default)]
    pub unasked: bool,
    /// What the same owner acquires while it holds the lock.
    #[serde(default)]
    pub then: Vec<InnerLock>,
    /// Whether the holds end in the order in which they began. Otherwise the last one ends first.
    #[serde(default)]
    pub first_ends_first: bool,
}

/// A lock that an owner acquires while it holds another one of the same path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnerLock {
    /// Which lock.
    pub lock: LockName,
    /// How long it is waited for at most; `None`: for ever.
    pub wait_ms: Option<u64>,
    /// How it is let go.
    pub end: HoldEnd,
}

/// One request of a register: a node below `/r`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterStep {
    /// The number of the register.
    pub node: u8,
    /// What is asked.
    pub op: RegisterOp,
    /// The least size of a value written, in bytes.
    pub size: usize,
    /// After which time its future is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
}

/// A request of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegisterOp {
    /// getData.
    Read,
    /// sync, and getData behind it.
    SyncRead,
    /// exists.
    Exists,
    /// setData, whatever the version.
    Set,
    /// setData, with the version seen last.
    CompareAndSet,
    /// create.
    Create,
    /// delete, whatever the version.
    Delete,
    /// delete, with the version seen last.
    CompareAndDelete,
    /// A multi: a check of the version seen last, a setData of it, and a setData of another register.
    Multi(u8),
}

/// A watch, for a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchStep {
    /// What is watched.
    pub target: WatchTarget,
    /// For how long.
    pub for_ms: u64,
    /// What becomes of it.
    pub end: WatchEnd,
}

/// What is watched, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchTarget {
    /// A register, by getData.
    Data(u8),
    /// A register, by exists.
    Exists(u8),
    /// The registers that exist, by getChildren.
    Children,
    /// A register, by a persistent watch.
    Persistent(u8),
    /// All registers, by a persistent recursive watch.
    Recursive,
}

/// How a watch ends that has not ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchEnd {
    /// Its watcher is dropped.
    Drop,
    /// Its watcher is forgotten.
    Forget,
    /// It is removed from the server.
    Remove,
    /// It stays until the end of the run.
    Keep,
}

/// A use of a `SharedValue` below `/shared`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedStep {
    /// The number of the value.
    pub number: u8,
    /// What is done.
    pub op: SharedOp,
    /// After which time its future is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
}

/// What is done with a `SharedValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedOp {
    /// `set_value`.
    Set,
    /// `try_set_value`, with the value seen last.
    TrySet,
    /// Waits for a change for this time.
    Wait(u64),
}

/// Something done with the client of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ClientStep {
    /// `update_server_list`, with these members.
    UpdateServerList(Vec<usize>),
    /// `close`.
    Close,
    /// `detach`.
    Detach,
}

/// Another client of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VisitStep {
    /// Its settings.
    pub client: ClientPlan,
    /// What it does.
    pub steps: Vec<Step>,
    /// How it ends.
    pub end: VisitEnd,
}

/// How a visiting client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VisitEnd {
    /// `close().await`.
    Close,
    /// Two closes at once.
    CloseTwice,
    /// `close()` is begun, and its future dropped.
    CancelledClose,
    /// The client is dropped.
    Drop,
    /// `detach()`; another client goes on with the session and closes it.
    Resume,
}

/// A lock, by its kind and number: locks of equal names are one lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockName {
    /// An `InterProcessMutex`.
    Mutex(u8),
    /// An `InterProcessMutex` in a namespace.
    Namespaced(u8),
    /// An `InterProcessSemaphoreMutex`.
    SemaphoreMutex(u8),
    /// An `InterProcessSemaphoreV2` with a constant number of leases.
    Semaphore {
        /// Its number.
        number: u8,
        /// The number of leases.
        leases: u8,
    },
    /// An `InterProcessSemaphoreV2` with as many leases as a `SharedCount` says.
    CountedSemaphore(u8),
    /// The read lock of an `InterProcessReadWriteLock`.
    Read(u8),
    /// The write lock of an `InterProcessReadWriteLock`.
    Write(u8),
    /// An `InterProcessMultiLock` of these.
    Multi(Vec<LockName>),
    /// A `StrictMutex`.
    Strict(u8),
}

/// Options of a lock object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSettings {
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// Whether the listing is sent with the create.
    #[serde(default)]
    pub pipelined: bool,
    /// How often the proven bound of a hold is renewed; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_ms: Option<u64>,
}

/// A retry policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Retry {
    /// That of `LockOptions`.
    #[default]
    Default,
    /// `RetryNTimes` with no retry.
    Never,
    /// `RetryNTimes` with three retries, 100 ms apart.
    ThreeTimes,
    /// `RetryForever`, 50 ms apart.
    Forever,
}

/// How the loss of a hold is noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldWatch {
    /// Not at all.
    Nothing,
    /// By `lost()`.
    #[default]
    Lost,
    /// By the cancellation token.
    Token,
}

/// How a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldEnd {
    /// `release().await`.
    Release,
    /// The guard is dropped.
    Drop,
    /// `release()` is begun, and its future dropped after the first poll.
    CancelledRelease,
    /// The guard is kept until the process ends.
    Keep,
}
