//! Access rights of nodes: their entries, the usual lists, and the lists that recipes give to what they create.
//!
//! Source: `ZooDefs.Perms` and `ZooDefs.Ids` of ZooKeeper, `ACLProvider` of Curator.

pub use docent_protocol::{
    Text,
    acl::{
        Acl, CREATOR_ALL_ACL, Id, OPEN_ACL_UNSAFE, Perms, READ_ACL_UNSAFE, digest_id, is_digest_id,
    },
};
#[cfg(feature = "recipes")]
pub use docent_recipes::{AclProvider, DefaultAclProvider};
pub use docent_session::client::AclEntries;
