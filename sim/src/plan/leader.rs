//! Steps of leader election and of kept nodes, as data.

use serde::{Deserialize, Serialize};

use super::{HoldWatch, Retry};

/// A participation in an election.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeadStep {
    /// The number of the election. Those of latches and of selectors are different ones.
    pub election: u8,
    /// The recipe.
    pub by: LeadBy,
    /// Its options.
    #[serde(default)]
    pub options: LeadSettings,
    /// For how long it takes part.
    pub for_ms: u64,
    /// How long a term of a selector lasts.
    #[serde(default)]
    pub term_ms: u64,
    /// How the end of a leadership is noticed. With `Nothing`, a latch is followed by its changes.
    #[serde(default)]
    pub watch: HoldWatch,
    /// After which time a wait for the leadership of a latch is dropped, and begun again; `None`: never.
    #[serde(default)]
    pub cancel_ms: Option<u64>,
    /// The number of guarded writes to the register of the election, in each leadership.
    #[serde(default)]
    pub writes: u8,
    /// How a latch is closed.
    pub end: CloseKind,
}

/// A recipe of leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeadBy {
    /// A `LeaderLatch`.
    Latch,
    /// `LeaderSelector::run`.
    Selector,
    /// `LeaderSelector::run_requeued`, for this number of terms.
    Requeued(u8),
}

/// Options of an election.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeadSettings {
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// The error policy: `Session`, not `Standard`.
    #[serde(default)]
    pub keeps_over_cuts: bool,
    /// The close mode: `NotifyLeader`, not `Silent`.
    #[serde(default)]
    pub notifies: bool,
    /// Whether the election is in a namespace.
    #[serde(default)]
    pub namespaced: bool,
    /// How often the proven bound of a leadership is renewed; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_ms: Option<u64>,
}

/// A node that is kept present.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepStep {
    /// The number of the node. Nodes of equal numbers have one path, if they are neither sequential nor protected.
    pub node: u8,
    /// The recipe and the mode.
    pub mode: KeepMode,
    /// Whether its name has a GUID.
    #[serde(default)]
    pub protected: bool,
    /// Whether it adopts a node that is not ephemeral.
    #[serde(default)]
    pub adopts: bool,
    /// Whether it is below a parent that does not exist, and creates none.
    #[serde(default)]
    pub without_parents: bool,
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// For how long it is kept.
    pub for_ms: u64,
    /// How often its data are set meanwhile.
    #[serde(default)]
    pub sets: u8,
    /// How it is closed.
    pub end: CloseKind,
}

/// A recipe that keeps a node, and its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeepMode {
    /// A `PersistentNode`: a persistent node.
    Persistent,
    /// A `PersistentNode`: a persistent sequential node.
    PersistentSequential,
    /// A `PersistentNode`: an ephemeral node.
    Ephemeral,
    /// A `PersistentNode`: an ephemeral sequential node.
    EphemeralSequential,
    /// A `PersistentNode`: a container.
    Container,
    /// A `PersistentNode`: a node with this time to live, in milliseconds.
    Ttl(u64),
    /// A `PersistentTtlNode` with this time to live, in milliseconds.
    Touched(u64),
    /// A `GroupMember`.
    Member,
}

/// How a participation, or the keeping of a node, ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseKind {
    /// `close().await`.
    Close,
    /// Two closes at once.
    CloseTwice,
    /// `close()` is called, and its future dropped.
    CancelledClose,
    /// It is dropped.
    Drop,
    /// It stays until the process ends.
    Keep,
}
