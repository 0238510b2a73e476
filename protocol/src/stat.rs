//! What a server says of a node.

use crate::macros::record;

record! {
    /// The facts about a node. 68 bytes on the wire.
    ///
    /// Source: `Stat` in zookeeper.jute.
    #[derive(Default, Hash)]
    pub struct Stat {
        /// zxid of the change that created the node. Grows with every creation in the ensemble: the
        /// fencing token of a lock.
        pub czxid: i64 = "czxid",
        /// zxid of the last change of the data.
        pub mzxid: i64 = "mzxid",
        /// When the node was created, in milliseconds since 1970 on the leader's clock.
        pub ctime: i64 = "ctime",
        /// When the data was last changed, in milliseconds since 1970 on the leader's clock.
        pub mtime: i64 = "mtime",
        /// How often the data was changed.
        pub version: i32 = "version",
        /// Children created plus children deleted. Not the next sequence number.
        pub cversion: i32 = "cversion",
        /// How often the ACL was changed.
        pub aversion: i32 = "aversion",
        /// The session an ephemeral node belongs to; 0 for every other kind.
        pub ephemeral_owner: i64 = "ephemeralOwner",
        /// Size of the data, in bytes.
        pub data_length: i32 = "dataLength",
        /// How many children.
        pub num_children: i32 = "numChildren",
        /// zxid of the last creation or deletion of a child.
        pub pzxid: i64 = "pzxid",
    }
}
