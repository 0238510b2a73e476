//! Faults as data, their effects, how they are drawn, and the defects that are planted on purpose.

pub(crate) mod begin;
pub(crate) mod draw;
pub mod planted;

use serde::{Deserialize, Serialize};

pub use crate::world::connections::{Direction, Flow, Sides, Trap};
use crate::world::disturbances::Away;

/// A fault, and when it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Milliseconds of true time since the start.
    pub at_ms: u64,
    /// The fault.
    pub kind: FaultKind,
}

/// A fault. One that lasts ends by itself, or at the peace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FaultKind {
    /// All connections of a process are cut.
    Cut { process: usize, sides: Sides },
    /// A certain delivery to or from a process ends its connection.
    Trap { process: usize, trap: Trap },
    /// The link between a process and a member is disturbed.
    Link {
        process: usize,
        /// The member; `None`: all.
        member: Option<usize>,
        /// In which direction; `None`: both.
        direction: Option<Direction>,
        flow: Flow,
        for_ms: u64,
    },
    /// The link between a process and all members is slower.
    Slow {
        process: usize,
        /// By how much.
        by_ms: u64,
        for_ms: u64,
    },
    /// A process is stopped and continued.
    Stop { process: usize, for_ms: u64 },
    /// A process ends. No other takes its place.
    Kill { process: usize, how: KillKind },
    /// The servers end a process's session.
    Expire { process: usize },
    /// A member stops, and starts again with its log.
    StopMember {
        /// The member; `None`: the leader at that time.
        member: Option<usize>,
        for_ms: u64,
    },
    /// A member applies changes only for its own clients' writes and for `sync`.
    Lag { member: usize, for_ms: u64 },
    /// A member is cut off from the other members. Its clients still reach it.
    Isolate {
        /// The member; `None`: the leader at that time.
        member: Option<usize>,
        for_ms: u64,
    },
    /// No message of one member arrives at another.
    CutMembers { from: usize, to: usize, for_ms: u64 },
    /// A member is cut off from its clients. The other members still reach it.
    IsolateFromClients { member: usize, for_ms: u64 },
    /// The servers reject the next requests.
    Throttle { requests: u32 },
    /// A member stops, and starts again with its log as another version of ZooKeeper.
    Upgrade { member: usize, version: String, for_ms: u64 },
    /// The disks of all members stall: no change is committed, for the sync limit at most.
    StallDisks { for_ms: u64 },
    /// The names of servers lead to another one, for connections that are made meanwhile.
    Resolve {
        /// The server whose name it is; `None`: all.
        server: Option<usize>,
        /// The member to which the name leads; `None`: it is unknown.
        leads_to: Option<usize>,
        for_ms: u64,
    },
    /// The quota of a recipe's nodes is used up: none can be created or grow.
    UseUpQuota { node: u16, for_ms: u64 },
    /// All members stop, and start again with their logs.
    RestartAll {
        /// For how long they are stopped.
        for_ms: u64,
    },
    /// A backup of the servers is made. `age_ms` later all members stop, and start again with it.
    RestoreBackup {
        age_ms: u64,
        /// For how long they are stopped.
        for_ms: u64,
    },
    /// A member is stopped and continued, as by SIGSTOP and SIGCONT.
    PauseMember {
        /// The member; `None`: the leader at that time.
        member: Option<usize>,
        for_ms: u64,
        /// Whether it answers its clients before it hears from the other members again.
        clients_first: bool,
    },
    /// The machine of a process is suspended; its clock goes on, and may jump.
    Suspend {
        process: usize,
        for_ms: u64,
        /// By how much its clock jumps ahead meanwhile.
        jump_ms: u64,
    },
    /// One task of a process is not polled, while the others run.
    Starve {
        process: usize,
        /// The number of the task, in the order of their start: 1 is the driver of the first client.
        task: usize,
        for_ms: u64,
    },
    /// From now on the clock of a process runs at another rate, wrong by these millionths.
    Clock { process: usize, drift_ppm: i64 },
    /// From now on a member grants no session timeout longer than this.
    Limit {
        /// The member; `None`: all.
        member: Option<usize>,
        timeout_ms: u64,
    },
    /// Nobody has these permissions, a mask of the protocol, on one of the nodes that are there.
    Deny { node: u16, perms: i32, for_ms: u64 },
    /// The next grant of a strict mutex is the last that a process hears of the servers, which then end its session.
    SeverAtGrant { process: usize, for_ms: u64 },
}

/// How a process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillKind {
    /// As by SIGKILL.
    Killed,
    /// Nothing is sent to the servers.
    PoweredOff,
    /// Its runtime is dropped.
    ShutDown,
}

impl FaultKind {
    /// How long it lasts, in milliseconds.
    #[must_use]
    pub fn lasts_ms(&self) -> u64 {
        self.number("for_ms").unwrap_or(0)
    }

    /// The process that it concerns.
    #[must_use]
    pub fn process(&self) -> Option<usize> {
        self.number("process").and_then(|process| usize::try_from(process).ok())
    }

    /// What it may keep its clients from, so that they lose their sessions; `leader`: the leader at that time.
    pub(crate) fn takes_away(&self, leader: Option<usize>) -> Away {
        let of_member = |member: Option<usize>| match member {
            // Without its leader, no member serves for a while.
            Some(member) if leader.is_some_and(|leader| leader != member) => Away::Member(member),
            _ => Away::All,
        };
        match *self {
            // Neither the permissions of nodes, nor their quota, nor the rate of a clock, nor refused requests can keep a
            // client from its servers. A cut, a trap and a shorter timeout do when they have an effect.
            Self::Deny { .. }
            | Self::UseUpQuota { .. }
            | Self::Clock { .. }
            | Self::Throttle { .. }
            | Self::Cut { .. }
            | Self::Trap { .. }
            | Self::Limit { .. } => Away::Nothing,
            Self::Link { member: Some(member), .. }
            | Self::Resolve { server: Some(member), .. }
            | Self::Lag { member, .. }
            | Self::IsolateFromClients { member, .. } => Away::Member(member),
            Self::StopMember { member, .. }
            | Self::Isolate { member, .. }
            | Self::PauseMember { member, .. } => of_member(member),
            Self::Upgrade { member, .. } => of_member(Some(member)),
            _ => Away::All,
        }
    }

    /// The value of a numeric field.
    fn number(&self, name: &str) -> Option<u64> {
        let value = serde_json::to_value(self).ok()?;
        value.as_object()?.values().next()?.get(name)?.as_u64()
    }
}
