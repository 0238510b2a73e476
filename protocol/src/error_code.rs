//! The error codes of replies.

use crate::macros::open_enum;

open_enum! {
    /// The `err` of a reply header, and of a result inside a multi.
    ///
    /// The set is open: a code without a name is kept as [`Unknown`](Self::Unknown). Names are those of
    /// `KeeperException`'s subclasses; [`name`](Self::name) gives `KeeperException.Code`'s.
    ///
    /// Source: `KeeperException.Code`; the codes above -10 only the C client knows are in
    /// `zookeeper.h`.
    pub enum ErrorCode {
        /// No error. Inside a failed multi also: this operation was rolled back.
        Ok = 0 => "OK",
        /// A marker of the range of system errors; no server sends it.
        SystemError = -1 => "SYSTEMERROR",
        /// In a failed multi: an operation behind the failing one, not tried.
        RuntimeInconsistency = -2 => "RUNTIMEINCONSISTENCY",
        /// The server found its data inconsistent.
        DataInconsistency = -3 => "DATAINCONSISTENCY",
        /// Made by clients: the connection died, the outcome of a write is unknown.
        ConnectionLoss = -4 => "CONNECTIONLOSS",
        /// The server could not decode the request; the connection stays.
        MarshallingError = -5 => "MARSHALLINGERROR",
        /// An operation the server does not know (it then closes) or has switched off.
        Unimplemented = -6 => "UNIMPLEMENTED",
        /// Made by clients: no answer in time.
        OperationTimeout = -7 => "OPERATIONTIMEOUT",
        /// A path, flag, TTL or server string that is not valid.
        BadArguments = -8 => "BADARGUMENTS",
        /// Made by the C client.
        InvalidState = -9 => "INVALIDSTATE",
        /// The server does not track this session.
        UnknownSession = -12 => "UNKNOWNSESSION",
        /// reconfig: the new quorum is not connected and synced.
        NewConfigNoQuorum = -13 => "NEWCONFIGNOQUORUM",
        /// reconfig: another one is running.
        ReconfigInProgress = -14 => "RECONFIGINPROGRESS",
        /// Made by the C client.
        SslConnectionError = -15 => "SSLCONNECTIONERROR",
        /// A marker of the range of API errors; no server sends it.
        ApiError = -100 => "APIERROR",
        /// The node, or the parent of a node to create, does not exist.
        NoNode = -101 => "NONODE",
        /// The ACL does not allow it.
        NoAuth = -102 => "NOAUTH",
        /// The version does not match.
        BadVersion = -103 => "BADVERSION",
        /// Ephemeral nodes have no children.
        NoChildrenForEphemerals = -108 => "NOCHILDRENFOREPHEMERALS",
        /// The node exists already.
        NodeExists = -110 => "NODEEXISTS",
        /// The node has children.
        NotEmpty = -111 => "NOTEMPTY",
        /// The session has ended.
        SessionExpired = -112 => "SESSIONEXPIRED",
        /// Made by clients.
        InvalidCallback = -113 => "INVALIDCALLBACK",
        /// The ACL is empty, or names an id that is not valid.
        InvalidAcl = -114 => "INVALIDACL",
        /// Authentication was refused; the server closes the connection.
        AuthFailed = -115 => "AUTHFAILED",
        /// Made by the C client.
        Closing = -116 => "CLOSING",
        /// Made by the C client.
        Nothing = -117 => "NOTHING",
        /// The session is attached to another server.
        SessionMoved = -118 => "SESSIONMOVED",
        /// A write, or a sync, on a read-only server.
        NotReadOnly = -119 => "NOTREADONLY",
        /// An ephemeral node on a session that is local to its server.
        EphemeralOnLocalSession = -120 => "EPHEMERALONLOCALSESSION",
        /// No such watch.
        NoWatcher = -121 => "NOWATCHER",
        /// Made by clients: no answer in time.
        RequestTimeout = -122 => "REQUESTTIMEOUT",
        /// reconfig is switched off.
        ReconfigDisabled = -123 => "RECONFIGDISABLED",
        /// The server requires authentication; it closes the connection. May answer a ping.
        SessionClosedRequireSaslAuth = -124 => "SESSIONCLOSEDREQUIRESASLAUTH",
        /// A hard quota is used up.
        QuotaExceeded = -125 => "QUOTAEXCEEDED",
        /// The server is overloaded and did not execute it.
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
