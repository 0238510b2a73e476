//! What `docent-discovery` wraps its types with, beside the macros of `forward.rs`.
//!
//! No part of the public API. `docent-discovery` requires any version that is compatible with its own, so a change that
//! breaks it is one for the next incompatible version.

pub use super::{
    context::Context,
    events::sealed::Sealed,
    wait::{check, wait},
};

/// The context of a client, for the types that are made from it.
#[must_use]
pub fn context(client: &super::Client) -> Context {
    client.context.clone()
}

/// The blocking form of the events of a kept node.
#[cfg(feature = "recipes")]
#[must_use]
pub const fn node_events(inner: crate::NodeEvents, context: Context) -> super::nodes::NodeEvents {
    super::nodes::NodeEvents { inner, context }
}
