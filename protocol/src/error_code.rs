//! The error codes of replies.

use crate::macros::open_enum;

open_enum! {
    /// The `err` of a reply header, and of a result inside a multi.
    ///
    /// The set is open: a code without a name is kept as [`Unknown`](Self::Unknown). Variants are named after
    /// `KeeperException`'s subclasses; [`name`](Self::name) returns the name in `KeeperException.Code`.
    ///
    /// Source: `KeeperException.Code`; `zookeeper.h` for the codes that only the C client knows.
    pub enum ErrorCode {
        /// No error. Inside a failed multi: this operation was rolled back.
        Ok = 0 => "OK",
        /// A marker of the range of system errors; no server sends it.
        SystemError = -1 => "SYSTEMERROR",
        /// Inside a failed multi: an operation after the failing one, which was not executed.
        RuntimeInconsistency = -2 => "RUNTIMEINCONSISTENCY",
        /// The server found its data inconsistent.
        DataInconsistency = -3 => "DATAINCONSISTENCY",
        /// Made by clients: the connection was lost, and the outcome of a write is unknown.
        ConnectionLoss = -4 => "CONNECTIONLOSS",
        /// The server could not decode the request; the connection stays open.
        MarshallingError = -5 => "MARSHALLINGERROR",
        /// The server does not know the operation (it then closes the connection) or has disabled it.
        Unimplemented = -6 => "UNIMPLEMENTED",
        /// Made by clients: no reply in time.
        OperationTimeout = -7 => "OPERATIONTIMEOUT",
        /// An invalid path, flag, TTL or server string.
        BadArguments = -8 => "BADARGUMENTS",
        /// Made by the C client.
        InvalidState = -9 => "INVALIDSTATE",
        /// The server does not track this session.
        UnknownSession = -12 => "UNKNOWNSESSION",
        /// A quorum of reconfig's new configuration is not connected and synced.
        NewConfigNoQuorum = -13 => "NEWCONFIGNOQUORUM",
        /// Another reconfig is in progress.
        ReconfigInProgress = -14 => "RECONFIGINPROGRESS",
        /// Made by the C client.
        SslConnectionError = -15 => "SSLCONNECTIONERROR",
        /// A marker of the range of API errors; no server sends it.
        ApiError = -100 => "APIERROR",
        /// The node, or the parent of a node to create, does not exist.
        NoNode = -101 => "NONODE",
        /// The ACL does not permit the operation.
        NoAuth = -102 => "NOAUTH",
        /// The version does not match.
        BadVersion = -103 => "BADVERSION",
        /// An ephemeral node cannot have children.
        NoChildrenForEphemerals = -108 => "NOCHILDRENFOREPHEMERALS",
        /// The node exists already.
        NodeExists = -110 => "NODEEXISTS",
        /// The node has children.
        NotEmpty = -111 => "NOTEMPTY",
        /// The session has ended.
        SessionExpired = -112 => "SESSIONEXPIRED",
        /// Made by clients.
        InvalidCallback = -113 => "INVALIDCALLBACK",
        /// The ACL is empty or contains an invalid id.
        InvalidAcl = -114 => "INVALIDACL",
        /// Authentication failed; the server closes the connection.
        AuthFailed = -115 => "AUTHFAILED",
        /// Made by the C client.
        Closing = -116 => "CLOSING",
        /// Made by the C client.
        Nothing = -117 => "NOTHING",
        /// The session is attached to another server.
        SessionMoved = -118 => "SESSIONMOVED",
        /// A write, or a sync, on a read-only server.
        NotReadOnly = -119 => "NOTREADONLY",
        /// An ephemeral node cannot be created in a local session.
        EphemeralOnLocalSession = -120 => "EPHEMERALONLOCALSESSION",
        /// The watch does not exist.
        NoWatcher = -121 => "NOWATCHER",
        /// Made by clients: no reply in time.
        RequestTimeout = -122 => "REQUESTTIMEOUT",
        /// reconfig is disabled on the server.
        ReconfigDisabled = -123 => "RECONFIGDISABLED",
        /// The server requires authentication; it closes the connection. Even a ping may be answered with this
        /// code.
        SessionClosedRequireSaslAuth = -124 => "SESSIONCLOSEDREQUIRESASLAUTH",
        /// A hard quota is exceeded.
        QuotaExceeded = -125 => "QUOTAEXCEEDED",
        /// The server is overloaded and did not execute the request.
        ThrottledOp = -127 => "THROTTLEDOP",
    }
}

impl ErrorCode {
    /// Whether the request succeeded.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }
}
