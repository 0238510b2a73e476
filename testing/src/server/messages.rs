//! Requests on their way through an ensemble, and the messages on its links.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use docent_protocol::{ErrorCode, OpCode};

use super::{
    acl::Ident,
    membership::Membership,
    prep::ResultType,
    tree::{Applied, Txn},
};

/// The number of a connection of an [`Ensemble`](super::Ensemble); numbers are not reused.
pub type ConnectionId = u64;

/// The context of a request, known before its body is decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) id: ConnectionId,
    pub(crate) member: usize,
    pub(crate) session_id: i64,
    pub(crate) local: bool,
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
    /// Identifies the request among those that wait.
    pub(crate) number: u64,
}

/// A request in the order of its connection's replies.
#[derive(Debug)]
pub(super) enum Waiting {
    /// At the leader. A sync keeps its payload for its reply.
    Sent { number: u64, payload: Option<Bytes> },
    /// A write of the same session at the leader, sent on an earlier connection. It has no reply here.
    BehindEarlierWrite { number: u64 },
    /// To be handled when the requests before it have replies.
    Later(Context, Bytes),
    /// The reply is known; with the zxid and the result of its change, if it has made one.
    Done(Context, Answer, Option<(i64, Applied)>),
}

/// A write on its way to the leader.
#[derive(Debug)]
pub(super) struct Forwarded {
    pub(super) context: Context,
    pub(super) ids: Arc<[Ident]>,
    pub(super) write: Write,
}

#[derive(Debug)]
pub(super) enum Write {
    CreateSession {
        timeout: u64,
        asked_read_only: Option<bool>,
    },
    /// The payload of a request.
    Request(Bytes),
}

/// The reply to a request, without the parts that the tree adds to it.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// The result of the change.
    Written,
    Error(ErrorCode),
    /// The types of the results of a multi.
    Multi(Vec<ResultType>),
    MultiFailed {
        failed: usize,
        count: usize,
        err: ErrorCode,
    },
    /// The members after a `reconfig`, as text.
    Config(Bytes),
    /// An error, followed by the end of an empty multi.
    EmptyMulti,
    /// The session has moved to another member.
    Moved,
    SessionOpened {
        timeout: u64,
        asked_read_only: Option<bool>,
    },
    SessionClosed,
    /// The connection ends without a reply.
    Closed,
    /// The member has applied all changes before the sync.
    Synced,
}

/// A change in the log.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) zxid: i64,
    pub(super) wall_ms: i64,
    pub(super) txn: Txn,
    /// The client's request that made the change, and its reply.
    pub(super) origin: Option<(Context, Answer)>,
}

impl Entry {
    /// The client's request that made the change.
    pub(super) fn origin(&self) -> Option<&Context> {
        self.origin.as_ref().map(|(context, _)| context)
    }

    /// The members that a `reconfig` sets.
    pub(super) const fn membership(&self) -> Option<&Arc<Membership>> {
        match &self.txn {
            Txn::Reconfig(membership) => Some(membership),
            _ => None,
        }
    }

    pub(super) fn is_of(&self, member: usize) -> bool {
        self.origin.as_ref().is_some_and(|(context, _)| context.member == member)
    }
}

/// A message between a leader and a learner.
#[derive(Debug)]
pub(super) struct Message {
    /// The connection that carries it. A message of a connection that its receiver has closed is dropped.
    pub(super) channel: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    /// From the leader, every half tick.
    Ping,
    /// The answer to it: the sessions heard of since the last one, with their timeouts in milliseconds.
    Touched(BTreeMap<i64, u64>),
    Propose(Arc<Entry>),
    Ack(i64),
    Commit(i64),
    /// A write of the learner's client.
    Request(Forwarded),
    /// A reply without a transaction.
    Answer(Context, Answer),
    /// Asks whether a session exists, and touches it.
    Revalidate(Resume),
    Revalidated(Resume, bool),
    Sync(Context),
    Synced(Context),
    /// The end of the connection.
    Closed,
}

/// A handshake with an existing session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resume {
    pub(super) context: Context,
    pub(super) timeout: u64,
    pub(super) asked_read_only: Option<bool>,
}

/// The links between members.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The links that are cut, with the messages held on them.
    pub(super) held: BTreeMap<(usize, usize), VecDeque<Message>>,
    /// The messages to deliver next.
    pub(super) mail: VecDeque<Message>,
    next_channel: u64,
}

impl Links {
    pub(super) fn open(&mut self) -> u64 {
        self.next_channel += 1;
        self.next_channel
    }

    /// Delivers messages that have waited at their receiver.
    pub(super) fn repost(&mut self, messages: VecDeque<Message>) {
        self.mail.extend(messages);
    }

    pub(super) fn post(&mut self, message: Message) {
        match self.held.get_mut(&(message.from, message.to)) {
            Some(held) => held.push_back(message),
            None => self.mail.push_back(message),
        }
    }

    /// Whether two members reach each other.
    pub(super) fn connects(&self, a: usize, b: usize) -> bool {
        !self.held.contains_key(&(a, b)) && !self.held.contains_key(&(b, a))
    }
}
