//! The numbers of requests: operation codes, reserved xids, modes.

use core::{fmt, time::Duration};

use crate::macros::open_enum;

open_enum! {
    /// The `type` of a request header.
    ///
    /// Source: `ZooDefs.OpCode`.
    pub enum OpCode {
        /// Creates a node; the reply is its path.
        Create = 1 => "create",
        /// Deletes a node.
        Delete = 2 => "delete",
        /// Reads a node's Stat.
        Exists = 3 => "exists",
        /// Reads data and Stat.
        GetData = 4 => "getData",
        /// Writes data.
        SetData = 5 => "setData",
        /// Reads the ACL.
        GetAcl = 6 => "getACL",
        /// Writes the ACL.
        SetAcl = 7 => "setACL",
        /// Lists children.
        GetChildren = 8 => "getChildren",
        /// Waits until this server has caught up with the leader.
        Sync = 9 => "sync",
        /// Keeps the session alive.
        Ping = 11 => "ping",
        /// Lists children, with the Stat.
        GetChildren2 = 12 => "getChildren2",
        /// Checks a version; valid only inside a multi.
        Check = 13 => "check",
        /// Several writes, executed atomically.
        Multi = 14 => "multi",
        /// Creates a node; the reply is its path and Stat. Since 3.5.0.
        Create2 = 15 => "create2",
        /// Changes the ensemble. Since 3.5.0.
        Reconfig = 16 => "reconfig",
        /// Checks whether a watch is set. Since 3.5.0.
        CheckWatches = 17 => "checkWatches",
        /// Removes watches. Since 3.5.0.
        RemoveWatches = 18 => "removeWatches",
        /// Creates a container. Since 3.5.1.
        CreateContainer = 19 => "createContainer",
        /// Internal to servers, but a 3.9 server executes it for any client, without an ACL check.
        DeleteContainer = 20 => "deleteContainer",
        /// Creates a node with a time to live. Since 3.5.3.
        CreateTtl = 21 => "createTTL",
        /// Several reads. Since 3.6.0.
        MultiRead = 22 => "multiRead",
        /// Adds credentials.
        Auth = 100 => "auth",
        /// Sets watches again after a reconnect.
        SetWatches = 101 => "setWatches",
        /// One step of a SASL exchange.
        Sasl = 102 => "sasl",
        /// Lists the session's ephemeral nodes. Since 3.6.0.
        GetEphemerals = 103 => "getEphemerals",
        /// Counts all descendants. Since 3.6.0.
        GetAllChildrenNumber = 104 => "getAllChildrenNumber",
        /// As setWatches, with persistent watches. Since 3.6.0.
        SetWatches2 = 105 => "setWatches2",
        /// Adds a persistent watch. Since 3.6.0.
        AddWatch = 106 => "addWatch",
        /// Lists the ids of the connection. Since 3.7.0.
        WhoAmI = 107 => "whoAmI",
        /// ClickHouse Keeper's: lists children of a kind.
        FilteredList = 500 => "filteredList",
        /// ClickHouse Keeper's: checks that a node does not exist; inside a multi.
        CheckNotExists = 501 => "checkNotExists",
        /// ClickHouse Keeper's: creates a node, unless it exists.
        CreateIfNotExists = 502 => "createIfNotExists",
        /// ClickHouse Keeper's: deletes a node and everything below it. Since 24.10 (ClickHouse#69332).
        RemoveRecursive = 503 => "removeRecursive",
        /// ClickHouse Keeper's: checks the fields of a Stat; inside a multi. On by default since 26.1 (ClickHouse#93886).
        CheckStat = 504 => "checkStat",
        /// ClickHouse Keeper's: deletes a node if it exists. On by default since 26.1 (ClickHouse#93886).
        TryRemove = 505 => "tryRemove",
        /// ClickHouse Keeper's: lists children with their Stats and data (ClickHouse#94826).
        FilteredListWithStatsAndData = 506 => "filteredListWithStatsAndData",
        /// ClickHouse Keeper's: lists everything below a node. Since 26.4 (ClickHouse#100998).
        ListRecursive = 507 => "listRecursive",
        /// Internal to servers.
        CreateSession = -10 => "createSession",
        /// Ends the session.
        CloseSession = -11 => "closeSession",
    }
}

impl OpCode {
    /// Whether ClickHouse Keeper alone has the operation.
    // Public for docent-testing, which imitates it.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_of_keeper(self) -> bool {
        matches!(
            self,
            Self::FilteredList
                | Self::CheckNotExists
                | Self::CreateIfNotExists
                | Self::RemoveRecursive
                | Self::CheckStat
                | Self::TryRemove
                | Self::FilteredListWithStatsAndData
                | Self::ListRecursive
        )
    }

    /// Whether the operation goes through the leader and may change something.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Delete
                | Self::SetData
                | Self::SetAcl
                | Self::Check
                | Self::Multi
                | Self::Create2
                | Self::Reconfig
                | Self::CreateContainer
                | Self::DeleteContainer
                | Self::CreateTtl
                | Self::CreateSession
                | Self::CloseSession
        )
    }
}

/// Reserved xids. Other requests are numbered `1..=i32::MAX`, then from 1 again.
pub mod xid {
    /// A watch event, from server to client.
    pub const NOTIFICATION: i32 = -1;
    /// A ping, and its reply.
    pub const PING: i32 = -2;
    /// An auth packet, and its reply.
    pub const AUTH: i32 = -4;
    /// The C client's setWatches; the Java client uses an ordinary number.
    pub const SET_WATCHES: i32 = -8;

    /// The xid after `xid`. Wraps from `i32::MAX` to 1, because 0 and negative xids are reserved
    /// (ZOOKEEPER-3253).
    #[must_use]
    pub const fn next(xid: i32) -> i32 {
        if xid < 0 || xid == i32::MAX { 1 } else { xid + 1 }
    }
}

/// A time to live that a server accepts: 1 to 2^40-1 milliseconds.
///
/// A negative one, sent with the wrong flags, stops a server permanently, so the type cannot represent values
/// outside the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ttl(i64);

impl Ttl {
    /// The longest TTL, about 34.8 years.
    pub const MAX: Self = Self((1 << 40) - 1);

    /// A TTL in milliseconds; `None` outside `1..=2^40-1`.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Option<Self> {
        if 1 <= millis && millis <= Self::MAX.0 { Some(Self(millis)) } else { None }
    }

    /// A TTL rounded down to milliseconds; `None` below one millisecond or above [`MAX`](Self::MAX).
    #[must_use]
    pub fn from_duration(ttl: Duration) -> Option<Self> {
        i64::try_from(ttl.as_millis()).ok().and_then(Self::from_millis)
    }

    /// The TTL in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

/// The kind of node to create.
///
/// Source: `CreateMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Exists until it is deleted.
    Persistent,
    /// Deleted when the session ends.
    Ephemeral,
    /// Persistent, with ten digits appended to its name.
    PersistentSequential,
    /// Ephemeral, with ten digits appended to its name.
    EphemeralSequential,
    /// Deleted by the server some time after its last child. Servers since 3.5.1.
    Container,
    /// Deleted by the server when it has had no change for the TTL and has no children. Servers since 3.5.3,
    /// with `extendedTypesEnabled`.
    PersistentWithTtl(Ttl),
    /// As `PersistentWithTtl`, with ten digits appended to its name.
    PersistentSequentialWithTtl(Ttl),
}

impl CreateMode {
    /// The number on the wire. Not bit flags.
    #[must_use]
    pub const fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::PersistentSequential => 2,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
            Self::PersistentWithTtl(_) => 5,
            Self::PersistentSequentialWithTtl(_) => 6,
        }
    }

    /// Whether the server appends ten digits to the name.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential
                | Self::EphemeralSequential
                | Self::PersistentSequentialWithTtl(_)
        )
    }

    /// Whether the node is deleted when the session ends.
    #[must_use]
    pub const fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// The time to live of the modes that have one.
    #[must_use]
    pub const fn ttl(self) -> Option<Ttl> {
        match self {
            Self::PersistentWithTtl(ttl) | Self::PersistentSequentialWithTtl(ttl) => Some(ttl),
            _ => None,
        }
    }
}

impl fmt::Display for CreateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Persistent => "PERSISTENT",
            Self::Ephemeral => "EPHEMERAL",
            Self::PersistentSequential => "PERSISTENT_SEQUENTIAL",
            Self::EphemeralSequential => "EPHEMERAL_SEQUENTIAL",
            Self::Container => "CONTAINER",
            Self::PersistentWithTtl(_) => "PERSISTENT_WITH_TTL",
            Self::PersistentSequentialWithTtl(_) => "PERSISTENT_SEQUENTIAL_WITH_TTL",
        })
    }
}

open_enum! {
    /// The mode of an addWatch.
    pub enum AddWatchMode {
        /// Watches the data and the children of one node until removed.
        Persistent = 0 => "PERSISTENT",
        /// Watches the data of a node and of all its descendants until removed.
        PersistentRecursive = 1 => "PERSISTENT_RECURSIVE",
    }
}

open_enum! {
    /// The watches that checkWatches and removeWatches apply to.
    pub enum WatcherType {
        /// Watches of getChildren.
        Children = 1 => "Children",
        /// Watches of getData and exists.
        Data = 2 => "Data",
        /// All watches.
        Any = 3 => "Any",
        /// Watches of addWatch that are not recursive. Servers since 3.9.0.
        Persistent = 4 => "Persistent",
        /// Recursive watches of addWatch. Servers since 3.9.0.
        PersistentRecursive = 5 => "PersistentRecursive",
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    // Case (Pitfalls of the wire, 14): xids wrap, and 0 is skipped.
    #[test]
    fn xids_wrap_to_one() {
        for (xid, next) in [(0, 1), (1, 2), (i32::MAX - 1, i32::MAX), (i32::MAX, 1), (-8, 1)] {
            assert_eq!(xid::next(xid), next);
        }
    }

    // Case (Pitfalls of the wire, 12): a TTL that ends a server.
    #[test]
    fn a_ttl_that_stops_a_server_cannot_be_built() {
        for (millis, is_valid) in [
            (i64::MIN, false),
            (-1, false),
            (0, false),
            (1, true),
            ((1 << 40) - 1, true),
            (1 << 40, false),
        ] {
            let ttl = Ttl::from_millis(millis);
            assert_eq!(ttl.map(Ttl::as_millis), is_valid.then_some(millis));
        }
        let from = |nanos| Ttl::from_duration(Duration::from_nanos(nanos)).map(Ttl::as_millis);
        assert_eq!((from(999_999), from(1_000_000), from(1_999_999)), (None, Some(1), Some(1)));
        assert_eq!(Ttl::from_duration(Duration::MAX), None);
    }

    // Case (Pitfalls of the wire, 11): create modes are numbers, not flags.
    #[test]
    fn modes_have_their_flags_and_properties() {
        let ttl = Ttl::MAX;
        for (mode, flags, name, is_sequential, is_ephemeral, has_ttl) in [
            (CreateMode::Persistent, 0, "PERSISTENT", false, false, false),
            (CreateMode::Ephemeral, 1, "EPHEMERAL", false, true, false),
            (CreateMode::PersistentSequential, 2, "PERSISTENT_SEQUENTIAL", true, false, false),
            (CreateMode::EphemeralSequential, 3, "EPHEMERAL_SEQUENTIAL", true, true, false),
            (CreateMode::Container, 4, "CONTAINER", false, false, false),
            (CreateMode::PersistentWithTtl(ttl), 5, "PERSISTENT_WITH_TTL", false, false, true),
            (
                CreateMode::PersistentSequentialWithTtl(ttl),
                6,
                "PERSISTENT_SEQUENTIAL_WITH_TTL",
                true,
                false,
                true,
            ),
        ] {
            assert_eq!((mode.flags(), format!("{mode}").as_str()), (flags, name));
            assert_eq!((mode.is_sequential(), mode.is_ephemeral()), (is_sequential, is_ephemeral));
            assert_eq!(mode.ttl(), has_ttl.then_some(ttl));
        }
    }

    #[test]
    fn operations_through_the_leader_are_writes() {
        assert!(OpCode::Multi.is_write() && OpCode::CloseSession.is_write());
        assert!(
            !OpCode::GetData.is_write()
                && !OpCode::Sync.is_write()
                && !OpCode::MultiRead.is_write()
        );
    }

    // Case (Pitfalls of the wire, 9): unknown numbers.
    // Case (Failure cases, 9): unknown numbers.
    #[test]
    fn named_values_convert_to_their_numbers_and_back() {
        for op in OpCode::NAMED {
            assert_eq!(OpCode::from_number(op.number()), *op);
            assert_eq!(i32::from(*op), op.number());
        }
        for error in crate::ErrorCode::NAMED {
            assert_eq!(crate::ErrorCode::from(error.number()), *error);
        }
        assert_eq!(OpCode::from(9999), OpCode::Unknown(9999));
        assert_eq!(format!("{} {}", OpCode::Unknown(9999), OpCode::GetAcl), "unknown(9999) getACL");
        assert!((500..=507).all(|number| OpCode::from(number).is_of_keeper()));
    }
}
