//! Checks that belong to no recipe.

pub(crate) mod excuses;
pub(crate) mod guarded;
pub(crate) mod leftovers;
pub(crate) mod orphans;
pub(crate) mod owners;
pub(crate) mod proof;
pub(crate) mod requests;
pub(crate) mod sessions;

use crate::world::time::{Nanos, SECOND};

/// How long after the end of a hold a running process may not have noticed: `lost()` and the token need the polls of
/// a few tasks, and a poll is put off by up to 20 ms.
pub(crate) const END_NOTICED_WITHIN: Nanos = SECOND;

/// How long a hold may last after the deletion of its node by another client, or a revocable one after the request, if
/// nothing disturbs its client meanwhile: the watch may have to be set again, after a pause of up to 5 s.
pub(crate) const EVENT_SEEN_WITHIN: Nanos = 15 * SECOND;

/// How long an undisturbed process takes at most until its request is applied.
pub(crate) const REQUEST_ARRIVES_WITHIN: Nanos = 3 * SECOND;

/// How long an unused node of a live session may exist, if nothing disturbs its client meanwhile. The background repeats a
/// delete after a pause of up to 10 s, and then needs a connection and a reply.
pub(crate) const ORPHAN_AFTER: Nanos = 20 * SECOND;
