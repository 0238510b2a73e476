//! Curator's leader election: a latch that leads until it is closed, and a selector that leads for one term at a time.
//!
//! Leadership is a value, [`Leadership`], with the words of a lock's guard: a fencing token, `is_held` from the clock,
//! `lost`, a cancellation token, and transactions that the server applies only to the leader.
//!
//! Source: `org.apache.curator.framework.recipes.leader`.

mod leader_latch;
mod leader_selector;
mod leadership;
mod options;
mod participant;
mod participation;
mod place;
mod state;

pub use leader_latch::{LeaderLatch, LeadershipChange};
pub use leader_selector::{LeaderSelector, Term};
pub use leadership::Leadership;
pub use options::{CloseMode, ConnectionStateErrorPolicy, LeaderOptions};
pub use participant::Participant;
