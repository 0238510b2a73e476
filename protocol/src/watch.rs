//! Watch events.

use crate::{
    Text,
    macros::{open_enum, record},
};

open_enum! {
    /// The type of a watch event.
    ///
    /// Source: `Watcher.Event.EventType`.
    pub enum EventType {
        /// Made by clients: the state of the connection changed.
        None = -1 => "None",
        /// The node was created.
        NodeCreated = 1 => "NodeCreated",
        /// The node was deleted.
        NodeDeleted = 2 => "NodeDeleted",
        /// The node's data was written.
        NodeDataChanged = 3 => "NodeDataChanged",
        /// A child of the node was created or deleted.
        NodeChildrenChanged = 4 => "NodeChildrenChanged",
        /// Made by clients: the data watch was removed.
        DataWatchRemoved = 5 => "DataWatchRemoved",
        /// Made by clients: the child watch was removed.
        ChildWatchRemoved = 6 => "ChildWatchRemoved",
        /// Made by clients: the persistent watch was removed.
        PersistentWatchRemoved = 7 => "PersistentWatchRemoved",
    }
}

open_enum! {
    /// The state of the connection. Servers always send [`SyncConnected`](Self::SyncConnected).
    ///
    /// Source: `Watcher.Event.KeeperState`.
    pub enum KeeperState {
        /// Deprecated and unused.
        Unknown1 = -1 => "Unknown",
        /// Not connected.
        Disconnected = 0 => "Disconnected",
        /// Deprecated and unused.
        NoSyncConnected = 1 => "NoSyncConnected",
        /// Connected.
        SyncConnected = 3 => "SyncConnected",
        /// Authentication failed.
        AuthFailed = 4 => "AuthFailed",
        /// Connected to a read-only server.
        ConnectedReadOnly = 5 => "ConnectedReadOnly",
        /// Authenticated by SASL.
        SaslAuthenticated = 6 => "SaslAuthenticated",
        /// The client was closed.
        Closed = 7 => "Closed",
        /// The session has ended.
        Expired = -112 => "Expired",
    }
}

record! {
    /// The body of a notification. A reply header with xid -1 precedes it.
    pub struct WatcherEvent<'a> {
        /// The type of the event.
        pub event_type: EventType = "type",
        /// The state of the connection.
        pub state: KeeperState = "state",
        /// The path of the node on the server, without regard to a client's chroot.
        pub path: Text<'a> = "path",
    }
}
