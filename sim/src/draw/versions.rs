//! Draws the version of the servers.
//!
//! The draws have a generator of their own: the plans on the default version stay what they were.

use fastrand::Rng;

use super::{one_in, pick};
use crate::plan::Plan;

/// Gives the servers of one of eight plans an older version, unless they have one.
pub(super) fn add(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x3504_3603_0A1D_3403);
    let rng = &mut rng;
    if plan.servers.version.is_none() && one_in(rng, 8) {
        // 3.5 has no addWatch (106); 3.4 has no create2 (15), containers and removeWatches (18) either.
        plan.servers.version = Some(pick(rng, &["3.4", "3.5", "3.5"]).to_owned());
    }
}
