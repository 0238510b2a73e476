//! Curator's nodes that are kept present: over reconnects, over the end of a session, and against deletion.
//!
//! Source: `org.apache.curator.framework.recipes.nodes`.

mod group_member;
mod group_view;
mod keeper;
mod options;
mod persistent_node;
mod persistent_ttl_node;
mod status;

pub use crate::create_protected::{ProtectedOptions, create_protected};
pub use group_member::GroupMember;
pub use options::NodeOptions;
pub use persistent_node::PersistentNode;
pub use persistent_ttl_node::PersistentTtlNode;
pub use status::NodeEvent;
