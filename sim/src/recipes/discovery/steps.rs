//! Steps with service discovery, as data.

use serde::{Deserialize, Serialize};

use crate::{
    plan::PlanStep,
    recipes::common::{CloseKind, Retry},
};

/// A step with service discovery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Registers an instance of a service.
    Serve(ServeStep),
    /// Looks for the instances of a service.
    Find(FindStep),
}

impl PlanStep for Step {}

/// A registration of an instance.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeStep {
    /// The number of the service.
    pub service: u8,
    /// The number of the instance, which other processes may register too; `None`: an id that no other step has.
    pub instance: Option<u8>,
    /// How long its node lives.
    pub kind: ServeKind,
    /// The retry policy.
    pub retry: Retry,
    /// The number of changes: every third one disables or enables the instance, the others are updates.
    pub changes: u8,
    /// Whether the worker waits for each change before the next one.
    pub waits: bool,
    /// For how long it is registered.
    pub for_ms: u64,
    /// How it ends.
    pub end: ServeEnd,
}

/// A type of an instance.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServeKind {
    /// `Dynamic`.
    #[default]
    Dynamic,
    /// `DynamicSequential`.
    Sequential,
    /// `Static`.
    Static,
    /// `Permanent`.
    Permanent,
}

/// How a registration ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServeEnd {
    /// `unregister().await`.
    #[default]
    Unregister,
    /// `unregister()` is called, and its future dropped.
    CancelledUnregister,
    /// `close().await` of its discovery.
    Close,
    /// Its discovery is dropped.
    Drop,
    /// It stays until the end of the run.
    Keep,
}

/// A search for the instances of a service.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FindStep {
    /// The number of the service.
    pub service: u8,
    /// The strategy of a provider, whose instances are used; `None`: a cache without a provider.
    pub provider: Option<Strategy>,
    /// One in this many uses of an instance fails; 0: none.
    pub fails_one_in: u8,
    /// Whether the instances are queried too.
    pub queries: bool,
    /// The pause of the reader of its events after each event.
    pub pause_ms: u64,
    /// For how long it is used.
    pub for_ms: u64,
    /// How its cache ends.
    pub end: CloseKind,
}

/// A strategy of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// `RoundRobinStrategy`.
    RoundRobin,
    /// `RandomStrategy`.
    Random,
    /// `StickyStrategy`.
    Sticky,
}
