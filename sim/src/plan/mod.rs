//! A plan: everything that a run of the world does, as data.
//!
//! A seed draws a plan; a plan and its seed give one history. Faults and steps can be deleted from a plan, which is how
//! a failing one is made short. A plan is text (RON), so that a finding can be kept as a file.

mod client;
pub(crate) mod draw;
pub(crate) mod renewals;
pub(crate) mod sequences;
mod step;

use docent_session::planted;
use docent_testing::server::Version;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::faults::{Fault, FaultKind, Flow, planted::plant_named};
pub use client::ClientPlan;
pub use step::PlanStep;

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan<S> {
    /// The seed of everything else: delays, the order of tasks, GUIDs.
    pub seed: u64,
    pub servers: ServersPlan,
    pub network: NetworkPlan,
    /// One in this many polls of a task is put off; 0: none.
    pub puts_off_one_in: u32,
    /// The end of all faults. From then on everything must make progress.
    pub peace_at_ms: u64,
    /// The processes, by their number.
    pub processes: Vec<ProcessPlan<S>>,
    /// The faults, in order.
    pub faults: Vec<Fault>,
    /// The fault that is planted into docent, by its name in `planted.rs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plant: Option<String>,
}

impl<S: PlanStep> Plan<S> {
    /// Parses a plan. A last line with the sums of a run is ignored, so that the output of `--shrink` can be replayed.
    ///
    /// # Errors
    ///
    /// The place (`line:column`) and the reason, in one line.
    pub fn from_ron(text: &str) -> Result<Self, String>
    where
        S: DeserializeOwned,
    {
        let end = text.trim_end();
        let (front, last) = end.rsplit_once('\n').unwrap_or(("", end));
        let text = if last.ends_with(" violations") { front } else { end };
        let plan: Self = parse(text)?;
        if let Some(plant) = &plan.plant
            && plant_named(plant).is_none()
        {
            return Err(format!(" no planted fault is called `{plant}`"));
        }
        plan.servers.version().map_err(|error| format!(" {error}"))?;
        Ok(plan)
    }

    /// The plan as text, each fault and each step on a line.
    #[must_use]
    pub fn to_ron(&self) -> String
    where
        S: Serialize + Clone,
    {
        let pretty = |depth| ron::ser::PrettyConfig::new().depth_limit(depth).indentor("  ");
        let fault = |fault| options().to_string_pretty(fault, pretty(0));
        let text = || {
            let faults: Result<Vec<_>, _> = self.faults.iter().map(fault).collect();
            let faults: String = faults?.iter().map(|fault| format!("    {fault},\n")).collect();
            let rest = Self { faults: Vec::new(), ..self.clone() };
            let rest = options().to_string_pretty(&rest, pretty(5))?;
            Ok(rest.replace("  faults: [],", &format!("  faults: [\n{faults}  ],")))
        };
        text().unwrap_or_else(|error: ron::Error| format!("// {error}"))
    }

    /// Adds a fault.
    pub(crate) fn add_fault(&mut self, at_ms: u64, kind: FaultKind) {
        self.faults.push(Fault { at_ms, kind });
    }

    /// Adds faults of the links from a process to these members, in both directions.
    pub(crate) fn add_link_faults(
        &mut self,
        process: usize,
        members: impl IntoIterator<Item = Option<usize>>,
        flow: Flow,
        (from_ms, until_ms): (u64, u64),
    ) {
        for member in members {
            let for_ms = until_ms - from_ms;
            let kind = FaultKind::Link { process, member, direction: None, flow, for_ms };
            self.add_fault(from_ms, kind);
        }
    }

    /// Lets a process reach only one of three members.
    pub(crate) fn separate(
        &mut self,
        process: usize,
        home: usize,
        flow: Flow,
        span_ms: (u64, u64),
    ) {
        let others = (0..3).filter(|member| *member != home).map(Some);
        self.add_link_faults(process, others, flow, span_ms);
    }

    /// Keeps kills, and the other faults that `keeps` accepts. A process whose session another one resumes must be
    /// killed in any case.
    pub(crate) fn retain_kills(&mut self, mut keeps: impl FnMut() -> bool) {
        self.faults.retain(|fault| matches!(fault.kind, FaultKind::Kill { .. }) || keeps());
    }

    /// The steps of all workers.
    pub(crate) fn all_steps(&self) -> impl Iterator<Item = &S> {
        self.processes.iter().flat_map(|process| &process.workers).flatten()
    }

    /// The steps of all workers.
    pub(crate) fn all_steps_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.processes.iter_mut().flat_map(|process| &mut process.workers).flatten()
    }

    /// The processes that hold locks or lead.
    pub(crate) fn holders(&mut self) -> Vec<usize> {
        let holds = |process: &mut ProcessPlan<S>| {
            process.workers.iter_mut().flatten().any(|step| step.renew_ms().is_some())
        };
        let processes = self.processes.iter_mut().enumerate();
        processes.filter_map(|(number, process)| holds(process).then_some(number)).collect()
    }

    /// The sum of the longest holds of locks and waits for barriers, in milliseconds.
    pub(crate) fn holds_ms(&self) -> u64 {
        self.all_steps().map(PlanStep::lasts_ms).sum()
    }

    /// The longest session timeout of its clients, in milliseconds.
    pub(crate) fn longest_timeout_ms(&self) -> u64 {
        let timeouts = self.processes.iter().map(|process| process.client.session_timeout_ms);
        timeouts.max().unwrap_or(0)
    }

    /// The faults that are carried out.
    pub(crate) fn happening_faults(&self) -> Vec<Fault> {
        let is_resumed = |of| self.processes.iter().any(|process| process.resumes == Some(of));
        // With this planted fault, the process that owns a session goes on beside the one that takes it over.
        let goes_on = |fault: &&Fault| match fault.kind {
            FaultKind::Kill { process, .. } => {
                planted::is("session-taken-over") && is_resumed(process)
            }
            _ => false,
        };
        self.faults.iter().filter(|fault| !goes_on(fault)).cloned().collect()
    }

    /// The number of steps of all workers.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.all_steps().count()
    }
}

/// Parses a text in RON.
///
/// # Errors
///
/// The place (`line:column`) and the reason, in one line.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    options().from_str(text).map_err(|error| {
        let reason = error.code.to_string().replace('\n', " ");
        format!("{}:{}: {reason}", error.span.start.line, error.span.start.col)
    })
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
    /// `minSessionTimeout`, in milliseconds; `None`: two ticks. Below one tick, sessions end although nothing fails:
    /// the leader hears of the clients of a follower every half tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_session_timeout_ms: Option<u64>,
    /// `maxSessionTimeout`, in milliseconds; `None`: a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_session_timeout_ms: Option<u64>,
    /// Whether sessions are local until they create an ephemeral node: known to one member only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local_sessions: bool,
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
pub struct ProcessPlan<S> {
    /// When it starts.
    pub starts_at_ms: u64,
    /// The error of its clock's rate, in millionths.
    pub drift_ppm: i64,
    pub client: ClientPlan,
    /// The process whose last session its client resumes.
    #[serde(default)]
    pub resumes: Option<usize>,
    /// Its workers: the steps of each, done one after another.
    pub workers: Vec<Vec<S>>,
}
