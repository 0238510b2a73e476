//! Checks that belong to no recipe.

pub(crate) mod causes;
pub(crate) mod excuses;
pub(crate) mod guarded;
pub(crate) mod leftovers;
pub(crate) mod orphans;
pub(crate) mod owners;
pub(crate) mod proof;
pub(crate) mod requests;
pub(crate) mod servers;
pub(crate) mod sessions;

use crate::world::time::{Nanos, SECOND};

/// The longest time until a running process notices the end of a hold: `lost()` and the token need the polls of a few
/// tasks, and a poll is put off by up to 20 ms.
pub(crate) const END_NOTICED_WITHIN: Nanos = SECOND;

/// The longest time of a hold after another client has deleted its node, or has requested its revocation, if nothing
/// disturbs its client meanwhile: the watch may have to be set again, after a pause of up to 5 s.
pub(crate) const EVENT_SEEN_WITHIN: Nanos = 15 * SECOND;

/// The longest time until the request of an undisturbed process is applied.
pub(crate) const REQUEST_ARRIVES_WITHIN: Nanos = 3 * SECOND;

/// The longest life of an unused node of a live session, if nothing disturbs its client meanwhile. The background
/// repeats a delete after a pause of up to 10 s, and then needs a connection and a reply.
pub(crate) const ORPHAN_AFTER: Nanos = 20 * SECOND;
