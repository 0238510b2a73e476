//! The cases of clients: their names, levels, texts and sources. `scripts.rs` plays them.

use std::{future::Future, pin::Pin};

use docent_conform::Level;

use super::{
    judgement::Judged,
    scripts,
    stage::{SESSION_MS, Stage},
};

type Playing<'a> = Pin<Box<dyn Future<Output = Judged> + Send + 'a>>;

/// A case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// `GROUP/NAME`.
    pub(super) id: &'static str,
    pub(super) level: Level,
    /// What the server does, and what the client shall do.
    pub(super) about: &'static str,
    /// Where it comes from: a class and method of ZooKeeper's client, or an issue.
    pub(super) source: &'static str,
    /// Plays the case.
    pub(super) play: fn(&mut Stage) -> Playing<'_>,
}

impl Case {
    /// The session timeout with which the driver connects before the script, in milliseconds; `None` if the script is about
    /// connecting.
    pub(super) fn session_ms(&self) -> Option<u32> {
        match self.id {
            id if id.starts_with("connect/") => None,
            // The connection has to stay, also on a busy machine, where pings and their replies are late. A client that waits for a
            // reply as long as the session lives says so within the default limit.
            "lost-reply/never" => Some(20_000),
            _ => Some(SESSION_MS),
        }
    }
}

macro_rules! cases {
    ($($id:literal $level:ident $script:ident $about:literal $source:literal;)*) => {
        pub(super) const CASES: &[Case] = &[$(Case {
            id: $id,
            level: Level::$level,
            about: $about,
            source: $source,
            play: |stage| Box::pin(scripts::$script(stage)),
        }),*];
    };
}

cases! {
    "plain/operations" Must plain_operations
        "All verbs work, and their answers are true."
        "ZooKeeper, the methods of these names";
    "plain/multi" Must plain_multi
        "A transaction creates both nodes or none."
        "ZooKeeper.multi";
    "plain/large-data" Must plain_large_data
        "A node of 900,000 bytes is written and read."
        "jute.maxbuffer, 1 MB";
    "plain/null-data" Must plain_null_data
        "The data of a node is null, which is not the same as empty on the wire."
        "BinaryInputArchive.readBuffer";
    "lost-reply/create" Must lost_reply_create
        "A create is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/delete" Must lost_reply_delete
        "A delete is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/set" Must lost_reply_set
        "A set by version is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/multi" Must lost_reply_multi
        "A transaction is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/never" Should lost_reply_never
        "A reply never comes, and the connection stays and answers pings."
        "zookeeper.request.timeout, ZOOKEEPER-2251";
    "lost-request/create" Must lost_request_create
        "The connection ends before the server has read a create."
        "ClientCnxn.conLossPacket";
    "lost-request/set" Must lost_request_set
        "The connection ends before the server has read a set."
        "ClientCnxn.conLossPacket";
    "framing/bytes" Must framing_bytes
        "Each byte comes by itself."
        "ClientCnxnSocketNIO.doIO";
    "framing/cut" Must framing_cut
        "The connection ends in the middle of a reply."
        "ClientCnxnSocketNIO.doIO";
    "framing/too-long" Must framing_too_long
        "A reply says that it has 2,147,483,647 bytes."
        "ClientCnxnSocket.readLength";
    "framing/negative" Must framing_negative
        "A reply says that it has -1 bytes."
        "ClientCnxnSocket.readLength";
    "framing/empty" Must framing_empty
        "A frame has no byte."
        "ReplyHeader.deserialize";
    "reply/wrong-xid" Must reply_wrong_xid
        "The reply to another request comes."
        "ClientCnxn.SendThread.readResponse";
    "reply/twice" Must reply_twice
        "A reply comes twice."
        "ClientCnxn.SendThread.readResponse";
    "reply/short" Must reply_short
        "A reply ends in the middle of its stat, before the version."
        "Stat.deserialize";
    "reply/no-body" Must reply_no_body
        "A reply without an error has no body."
        "GetDataResponse.deserialize";
    "reply/long-buffer" Must reply_long_buffer
        "The data of a node says that it has 2,147,483,647 bytes."
        "BinaryInputArchive.checkLength";
    "reply/long-list" Must reply_long_list
        "A list says that it has 2,147,483,647 names, and has two."
        "BinaryInputArchive.startVector";
    "reply/no-utf8" Must reply_no_utf8
        "The name of a child is no UTF-8."
        "BinaryInputArchive.readString";
    "reply/million" Must reply_million
        "A node has a million children."
        "ZOOKEEPER-1162, jute.maxbuffer of the client";
    "error/unknown" Must error_unknown
        "A server answers with an error code that no version has."
        "KeeperException.Code.get, ZOOKEEPER-2251";
    "error/throttled" Must error_throttled
        "A server of 3.6 and later is overloaded and refuses a write: THROTTLEDOP."
        "ZooKeeperServer.shouldThrottle, ZOOKEEPER-3683";
    "error/session-moved" Must error_session_moved
        "A write is refused because the session is at another server."
        "SessionTracker.checkSession, SESSIONMOVED";
    "error/read-only" Must error_read_only
        "The server has lost its majority and refuses a write: NOTREADONLY."
        "ReadOnlyRequestProcessor.run";
    "event/unknown-type" Must event_unknown_type
        "An event has a type that no version has."
        "EventType.fromInt";
    "event/unasked" Must event_unasked
        "An event comes for a node that nobody watches."
        "ZKWatchManager.materialize";
    "watch/fires" Must watch_fires
        "A watched node changes."
        "DataTree.setData";
    "watch/while-disconnected" Must watch_while_disconnected
        "A watched node changes while the client has no connection."
        "ClientCnxn.SendThread.primeConnection, DataTree.setWatches";
    "watch/created-while-disconnected" Must watch_created_while_disconnected
        "A node that is watched for its creation is created while the client has no connection."
        "DataTree.setWatches";
    "watch/before-data" Should watch_before_data
        "The event of a change comes before its data can be read."
        "the guarantees of watches in ZooKeeper's Programmer's Guide";
    "session/resumed" Should session_resumed
        "The connection ends, and the session continues on the next one."
        "ClientCnxn.SendThread.primeConnection";
    "session/expired" Must session_expired
        "The server ends the session."
        "ClientCnxn.SendThread.onConnected, Expired";
    "session/silence" Must session_silence
        "The server says nothing for longer than the session timeout, then goes on."
        "ClientCnxn.SendThread.run, readTimeout";
    "connect/silence" Must connect_silence
        "A server accepts a connection and says nothing for 5 s."
        "ClientCnxn.SendThread.run, connectTimeout";
    "connect/refused" Must connect_refused
        "No server listens for 3 s."
        "ClientCnxn.SendThread.startConnect";
    "connect/http" Must connect_http
        "A web server answers for 3 s, then ZooKeeper."
        "ClientCnxnSocket.readConnectResult";
    "outage/refused" Must outage_refused
        "No server listens for longer than a session timeout."
        "ClientCnxn.SendThread.run";
    "close/session" Must close_session
        "The client closes: its session ends at the server, and its process by itself."
        "ZooKeeper.close";
    "close/lost-reply" Must close_lost_reply
        "The connection ends instead of the reply to the close."
        "ZooKeeper.close";
    "close/no-server" Must close_no_server
        "The client closes while no server listens."
        "ZooKeeper.close";
}
