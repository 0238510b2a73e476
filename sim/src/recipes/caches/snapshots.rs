//! The last nodes that caches have shown, and the number of open caches.

use std::collections::BTreeMap;

use docent::CachedNode;

use crate::world::{check::Check, time::Pid};

/// The caches of all processes. It has no rule of its own.
#[derive(Default)]
pub(super) struct Snapshots {
    /// The number of open caches of each process, by their roots.
    pub(super) open: BTreeMap<(Pid, String), usize>,
    /// The last nodes of a cache: of each root, depth, and whether it keeps data.
    pub(super) last: BTreeMap<(String, usize, bool), Vec<CachedNode>>,
}

impl Check for Snapshots {}
