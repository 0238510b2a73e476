//! The effect of the reply to a request, beside its delivery.

use std::sync::Arc;

use docent_protocol::{OpCode, WatcherType};

use super::{
    operations::is_optional,
    watch_table::{Mode, Registration, WatchBatch},
};

/// The effect of the reply to a request.
#[derive(Debug)]
pub(super) enum Effect<W> {
    None,
    /// No effect; the request is accepted even when the queue is full.
    Reserved,
    /// A transaction, whose results may show that the session has moved.
    Transaction,
    /// A transaction; accepted as `Reserved`.
    ReservedTransaction,
    /// An operation that older servers lack.
    Optional(OpCode),
    /// An operation that older servers lack; accepted as `Reserved`.
    ReservedOptional(OpCode),
    /// A write whose success may prove that the session exists; accepted as `Reserved`.
    Proof,
    /// closeSession: ends the session.
    Close,
    /// Boxed, because most requests have none, and all of them are moved.
    Watches(Box<WatchEffect<W>>),
}

impl<W> Effect<W> {
    /// The effect of a request with this operation, if its caller knows of none.
    #[inline]
    pub(super) fn for_operation(self, op: OpCode) -> Self {
        match self {
            Self::None if op == OpCode::Multi => Self::Transaction,
            Self::Reserved if op == OpCode::Multi => Self::ReservedTransaction,
            Self::None if is_optional(op) => Self::Optional(op),
            Self::Reserved if is_optional(op) => Self::ReservedOptional(op),
            effect => effect,
        }
    }

    /// Whether the request is accepted even when the queue is full.
    pub(super) const fn is_reserved(&self) -> bool {
        matches!(
            self,
            Self::Reserved | Self::Proof | Self::ReservedTransaction | Self::ReservedOptional(_)
        )
    }

    /// The operation of the request, if older servers lack it.
    pub(super) fn operation(&self) -> Option<OpCode> {
        match self {
            Self::Optional(op) | Self::ReservedOptional(op) => Some(*op),
            Self::Watches(effect) => effect.operation(),
            _ => None,
        }
    }

    /// Whether the request is the machine's own and tied to this connection: useless on another one. A closeSession is
    /// sent last there.
    pub(super) fn is_internal(&self) -> bool {
        match self {
            Self::Watches(effect) => effect.is_internal(),
            Self::Close => true,
            _ => false,
        }
    }

    /// The path of a watch request that concerns one path.
    pub(super) fn watched_path(&self) -> Option<&Arc<str>> {
        match self {
            Self::Watches(effect) => effect.path(),
            _ => None,
        }
    }
}

/// The effect of the reply to a watch request on the watch table.
#[derive(Debug)]
pub(super) enum WatchEffect<W> {
    /// A read that leaves a watch. `covered`: sent without the watch flag, since a persistent watch delivers its
    /// events.
    Watch { registration: Registration<W>, covered: bool },
    /// A caller's addWatch. `mode` is the requested mode, which may be wider than `registration.kind`.
    AddWatch { registration: Registration<W>, mode: Mode },
    /// A caller's own removeWatches.
    Remove { path: Arc<str>, watcher_type: WatcherType },
    /// An addWatch that turns a recursive mode into a persistent one.
    Narrow { path: Arc<str> },
    /// A removeWatches for watches that no watcher wants any more.
    GiveBack { path: Arc<str>, watcher_type: WatcherType },
    /// A setWatches for watches that the server may lack.
    SetAgain(WatchBatch),
}

impl<W> From<WatchEffect<W>> for Effect<W> {
    fn from(effect: WatchEffect<W>) -> Self {
        Self::Watches(Box::new(effect))
    }
}

impl<W> WatchEffect<W> {
    pub(super) const fn is_internal(&self) -> bool {
        matches!(self, Self::Narrow { .. } | Self::GiveBack { .. } | Self::SetAgain(_))
    }

    /// See [`Effect::operation`].
    const fn operation(&self) -> Option<OpCode> {
        match self {
            Self::AddWatch { .. } | Self::Narrow { .. } => Some(OpCode::AddWatch),
            Self::Remove { .. } | Self::GiveBack { .. } => Some(OpCode::RemoveWatches),
            Self::Watch { .. } | Self::SetAgain(_) => None,
        }
    }

    pub(super) const fn path(&self) -> Option<&Arc<str>> {
        match self {
            Self::Watch { registration, .. } | Self::AddWatch { registration, .. } => {
                Some(&registration.path)
            }
            Self::Remove { path, .. } | Self::Narrow { path } | Self::GiveBack { path, .. } => {
                Some(path)
            }
            Self::SetAgain(_) => None,
        }
    }
}
