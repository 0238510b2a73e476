//! The cases of clients: their names, levels, texts and sources. `scripts.rs` plays them.

use std::{future::Future, pin::Pin};

use docent_conform::Level;
use docent_testing::fault::Action;

use super::{
    judgement::Judged,
    replies::{behind_event, of_another_request, with_body, with_children, with_err, with_length},
    scripts::*,
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
    ($($id:literal $level:ident |$stage:ident| $script:expr, $about:literal $source:literal;)*) => {
        pub(super) const CASES: &[Case] = &[$(Case {
            id: $id,
            level: Level::$level,
            about: $about,
            source: $source,
            play: |$stage| Box::pin($script),
        }),*];
    };
}

cases! {
    "plain/operations" Must |s| plain_operations(s),
        "All verbs work, and their answers are true."
        "ZooKeeper, the methods of these names";
    "plain/multi" Must |s| plain_multi(s),
        "A transaction creates both nodes or none."
        "ZooKeeper.multi";
    "plain/large-data" Must |s| plain_large_data(s),
        "A node of 900,000 bytes is written and read."
        "jute.maxbuffer, 1 MB";
    "plain/null-data" Must |s| plain_null_data(s),
        "The data of a node is null, which is not the same as empty on the wire."
        "BinaryInputArchive.readBuffer";
    "lost-reply/create" Must |s| lost_reply(s, false, "create /a x", Action::DropReply),
        "A create is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/delete" Must |s| lost_reply(s, true, "delete /a", Action::DropReply),
        "A delete is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/set" Must |s| lost_reply(s, true, "set /a y 0", Action::DropReply),
        "A set by version is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/multi" Must |s| lost_reply_multi(s),
        "A transaction is applied, and its reply is lost with the connection."
        "ClientCnxn.conLossPacket";
    "lost-reply/never" Should |s| lost_reply(s, false, "create /a x", Action::LoseReply),
        "A reply never comes, and the connection stays and answers pings."
        "zookeeper.request.timeout, ZOOKEEPER-2251";
    "lost-request/create" Must |s| lost_request_create(s),
        "The connection ends before the server has read a create."
        "ClientCnxn.conLossPacket";
    "lost-request/set" Must |s| lost_request_set(s),
        "The connection ends before the server has read a set."
        "ClientCnxn.conLossPacket";
    "framing/bytes" Must |s| framing_bytes(s),
        "Each byte comes by itself."
        "ClientCnxnSocketNIO.doIO";
    "framing/cut" Must |s| framing_cut(s),
        "The connection ends in the middle of a reply."
        "ClientCnxnSocketNIO.doIO";
    "framing/too-long" Must |s| wrong_reply(s, |reply| with_length(reply, i32::MAX)),
        "A reply says that it has 2,147,483,647 bytes."
        "ClientCnxnSocket.readLength";
    "framing/negative" Must |s| wrong_reply(s, |reply| with_length(reply, -1)),
        "A reply says that it has -1 bytes."
        "ClientCnxnSocket.readLength";
    "framing/empty" Must |s| wrong_reply(s, |_| vec![0; 4]),
        "A frame has no byte."
        "ReplyHeader.deserialize";
    "reply/wrong-xid" Must |s| wrong_reply(s, of_another_request),
        "The reply to another request comes."
        "ClientCnxn.SendThread.readResponse";
    "reply/twice" Must |s| reply_twice(s),
        "A reply comes twice."
        "ClientCnxn.SendThread.readResponse";
    "reply/short" Must |s| reply_short(s),
        "A reply ends in the middle of its stat, before the version."
        "Stat.deserialize";
    "reply/no-body" Must |s| wrong_reply(s, |reply| with_body(reply, &[])),
        "A reply without an error has no body."
        "GetDataResponse.deserialize";
    "reply/long-buffer" Must
        |s| wrong_reply(s, |reply| with_body(reply, &[0x7f, 0xff, 0xff, 0xff])),
        "The data of a node says that it has 2,147,483,647 bytes."
        "BinaryInputArchive.checkLength";
    "reply/long-list" Must
        |s| wrong_listing(s, |reply| with_children(reply, i32::MAX, |_| b"a".to_vec(), 2)),
        "A list says that it has 2,147,483,647 names, and has two."
        "BinaryInputArchive.startVector";
    "reply/no-utf8" Must
        |s| wrong_listing(s, |reply| with_children(reply, 2, |_| b"\xff\xfe".to_vec(), 2)),
        "The name of a child is no UTF-8."
        "BinaryInputArchive.readString";
    "reply/million" Must |s| reply_million(s),
        "A node has a million children."
        "ZOOKEEPER-1162, jute.maxbuffer of the client";
    "error/unknown" Must |s| wrong_reply(s, |reply| with_err(reply, -999)),
        "A server answers with an error code that no version has."
        "KeeperException.Code.get, ZOOKEEPER-2251";
    "error/throttled" Must |s| wrong_reply_to_write(s, |reply| with_err(reply, -127)),
        "A server of 3.6 and later is overloaded and refuses a write: THROTTLEDOP."
        "ZooKeeperServer.shouldThrottle, ZOOKEEPER-3683";
    "error/session-moved" Must |s| wrong_reply_to_write(s, |reply| with_err(reply, -118)),
        "A write is refused because the session is at another server."
        "SessionTracker.checkSession, SESSIONMOVED";
    "error/read-only" Must |s| wrong_reply_to_write(s, |reply| with_err(reply, -119)),
        "The server has lost its majority and refuses a write: NOTREADONLY."
        "ReadOnlyRequestProcessor.run";
    "event/unknown-type" Must |s| wrong_reply(s, |reply| behind_event(reply, 99, b"/node")),
        "An event has a type that no version has."
        "EventType.fromInt";
    "event/unasked" Must |s| wrong_reply(s, |reply| behind_event(reply, 3, b"/never/watched")),
        "An event comes for a node that nobody watches."
        "ZKWatchManager.materialize";
    "watch/fires" Must |s| watch_fires(s),
        "A watched node changes."
        "DataTree.setData";
    "watch/while-disconnected" Must |s| watch_while_disconnected(s),
        "A watched node changes while the client has no connection."
        "ClientCnxn.SendThread.primeConnection, DataTree.setWatches";
    "watch/created-while-disconnected" Must |s| watch_created_while_disconnected(s),
        "A node that is watched for its creation is created while the client has no connection."
        "DataTree.setWatches";
    "watch/before-data" Should |s| watch_before_data(s),
        "The event of a change comes before its data can be read."
        "the guarantees of watches in ZooKeeper's Programmer's Guide";
    "session/resumed" Should |s| session_resumed(s),
        "The connection ends, and the session continues on the next one."
        "ClientCnxn.SendThread.primeConnection";
    "session/expired" Must |s| session_expired(s),
        "The server ends the session."
        "ClientCnxn.SendThread.onConnected, Expired";
    "session/silence" Must |s| session_silence(s),
        "The server says nothing for longer than the session timeout, then goes on."
        "ClientCnxn.SendThread.run, readTimeout";
    "connect/silence" Must |s| connect_silence(s),
        "A server accepts a connection and says nothing for 5 s."
        "ClientCnxn.SendThread.run, connectTimeout";
    "connect/refused" Must |s| connect_refused(s),
        "No server listens for 3 s."
        "ClientCnxn.SendThread.startConnect";
    "connect/http" Must |s| connect_http(s),
        "A web server answers for 3 s, then ZooKeeper."
        "ClientCnxnSocket.readConnectResult";
    "outage/refused" Must |s| outage_refused(s),
        "No server listens for longer than a session timeout."
        "ClientCnxn.SendThread.run";
    "close/session" Must |s| close_session(s),
        "The client closes: its session ends at the server, and its process by itself."
        "ZooKeeper.close";
    "close/lost-reply" Must |s| close_lost_reply(s),
        "The connection ends instead of the reply to the close."
        "ZooKeeper.close";
    "close/no-server" Must |s| close_no_server(s),
        "The client closes while no server listens."
        "ZooKeeper.close";
}
