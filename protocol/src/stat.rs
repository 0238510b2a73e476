//! A node's metadata.

use alloc::vec::Vec;

use crate::{
    fields::{Field, Record},
    macros::record,
};

record! {
    /// A node's metadata. 68 bytes on the wire.
    ///
    /// Source: `Stat` in zookeeper.jute.
    #[derive(Default, Hash)]
    pub struct Stat {
        /// The zxid of the change that created the node. It grows with every creation in the ensemble, so it
        /// serves as a lock's fencing token.
        pub czxid: i64 = "czxid",
        /// The zxid of the last change of the data.
        pub mzxid: i64 = "mzxid",
        /// The time of creation, in milliseconds since 1970 on the leader's clock.
        pub ctime: i64 = "ctime",
        /// The time of the last change of the data, in milliseconds since 1970 on the leader's clock.
        pub mtime: i64 = "mtime",
        /// The number of changes of the data.
        pub version: i32 = "version",
        /// The number of children created plus the number deleted. Not the next sequence number.
        pub cversion: i32 = "cversion",
        /// The number of changes of the ACL.
        pub aversion: i32 = "aversion",
        /// The session of an ephemeral node; 0 for a node of any other kind.
        pub ephemeral_owner: i64 = "ephemeralOwner",
        /// The size of the data, in bytes.
        pub data_length: i32 = "dataLength",
        /// The number of children.
        pub num_children: i32 = "numChildren",
        /// The zxid of the last creation or deletion of a child.
        pub pzxid: i64 = "pzxid",
    }
}

impl Stat {
    /// Its fields, in the order of the wire.
    #[must_use]
    pub fn fields(&self) -> Vec<Field<'_>> {
        Record::fields(self)
    }
}
