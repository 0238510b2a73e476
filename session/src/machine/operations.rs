//! The operations that the servers of a client do not support, as far as known.
//!
//! ZooKeeper replies to an unknown operation with `Unimplemented` and closes the connection. Older ClickHouse Keepers
//! close it without a reply. So each try costs a connection, and its result is kept: for the session, and for those that
//! follow it on the same servers. A server that replies `Unimplemented` has none of the operations that came later either.
//!
//! ClickHouse Keeper resumes no session, so each of its lost connections ends the session (ClickHouse#116690). Only of such
//! servers do later sessions keep what closed connections have shown.
//!
//! The next server may be a newer one, in a rolling upgrade. So a refusal counts until a reconnect, but for the one that it
//! causes itself, and for a minute at least: where connections break often, not each of them costs another one. With a
//! server list that has no server of the one before, everything is forgotten.

use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    time::Duration,
};

use docent_protocol::{ErrorCode, OpCode};

use crate::time::Instant;

/// The operations that older servers lack, with the first version of ZooKeeper that has each, in this order.
const SINCE: [(OpCode, &str); 10] = [
    (OpCode::Create2, "3.5.0"),
    (OpCode::CheckWatches, "3.5.0"),
    (OpCode::RemoveWatches, "3.5.0"),
    (OpCode::CreateContainer, "3.5.1"),
    (OpCode::CreateTtl, "3.5.3"),
    (OpCode::MultiRead, "3.6.0"),
    (OpCode::GetEphemerals, "3.6.0"),
    (OpCode::GetAllChildrenNumber, "3.6.0"),
    (OpCode::AddWatch, "3.6.0"),
    (OpCode::WhoAmI, "3.7.0"),
];

/// The place of an operation in [`SINCE`].
pub(super) const fn place(op: OpCode) -> Option<usize> {
    Some(match op {
        OpCode::Create2 => 0,
        OpCode::CheckWatches => 1,
        OpCode::RemoveWatches => 2,
        OpCode::CreateContainer => 3,
        OpCode::CreateTtl => 4,
        OpCode::MultiRead => 5,
        OpCode::GetEphemerals => 6,
        OpCode::GetAllChildrenNumber => 7,
        OpCode::AddWatch => 8,
        OpCode::WhoAmI => 9,
        _ => return None,
    })
}

/// The findings about the operations that older servers lack.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    findings: [Finding; SINCE.len()],
    /// The number of connections on which a session was accepted.
    connections: AtomicU64,
    /// Whether a server has given another session in place of the one that was to be resumed, as a Keeper does.
    replaces_sessions: AtomicBool,
}

/// What is known of one operation.
#[derive(Debug, Default)]
struct Finding {
    /// [`UNKNOWN`], or what follows it.
    state: AtomicU8,
    /// The number of connections when it was found that the operation is missing.
    connections: AtomicU64,
    /// The first review since then, in nanoseconds; 0: none yet.
    found_at: AtomicU64,
}

/// No server has replied to the operation.
const UNKNOWN: u8 = 0;

/// As [`UNKNOWN`], and a server has closed a connection on which it was sent.
const CLOSED_ONCE: u8 = 1;

/// As [`UNKNOWN`], and servers have closed two connections on which it was sent. One proves nothing: connections break for
/// other reasons.
const CLOSED: u8 = 2;

/// The operation is of no use, although the servers reply to it.
const UNUSABLE: u8 = 3;

/// A server has replied that it does not support the operation.
const REFUSED: u8 = 4;

/// A server has replied to the operation.
const KNOWN: u8 = u8::MAX;

/// The least time until a reconnect ends a finding.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl Finding {
    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    fn is_missing(&self) -> bool {
        matches!(self.state(), CLOSED | UNUSABLE | REFUSED)
    }
}

impl Operations {
    fn find(&self, op: OpCode) -> Option<(usize, &Finding)> {
        let at = place(op)?;
        Some((at, self.findings.get(at)?))
    }

    /// Whether an operation is missing, or of no use, as far as known.
    pub(super) fn lacks(&self, op: OpCode) -> bool {
        self.find(op).is_some_and(|(at, finding)| match finding.state() {
            CLOSED | UNUSABLE | REFUSED => true,
            KNOWN => false,
            _ => self.is_implied(at),
        })
    }

    /// Why a caller's request of an operation is not sent: a server has replied that it does not support it, or one that
    /// is as old or older; or its connections were closed, and the servers resume no session.
    pub(super) fn refuses(&self, op: OpCode) -> Option<&'static str> {
        let (at, finding) = self.find(op)?;
        let state = finding.state();
        if state == REFUSED || state != KNOWN && self.is_refused_with(at) {
            return Some("known from the reply to an earlier request");
        }
        (state == CLOSED && self.replaces_sessions())
            .then_some("two connections were closed behind it, as by a ClickHouse Keeper")
    }

    /// Whether only closed connections have shown that an operation is missing, and the servers resume sessions: it may be
    /// the fault of a network.
    pub(super) fn is_suspected(&self, op: OpCode) -> bool {
        let is_closed = self.find(op).is_some_and(|(_, finding)| finding.state() == CLOSED);
        is_closed && !self.replaces_sessions()
    }

    /// Whether a server has replaced a session instead of resuming it.
    pub(super) fn replaces_sessions(&self) -> bool {
        self.replaces_sessions.load(Ordering::Relaxed)
    }

    /// Whether other findings show that an operation is missing. A Keeper that closes the connection behind create2, and
    /// ends the session with it, knows none of the others either, but for multiRead.
    fn is_implied(&self, at: usize) -> bool {
        let is_keeper = self.replaces_sessions()
            && self.findings.first().is_some_and(|create2| create2.state() == CLOSED);
        is_keeper && Some(at) != place(OpCode::MultiRead) || self.is_refused_with(at)
    }

    /// Whether a server has refused an operation that is as old or older.
    fn is_refused_with(&self, at: usize) -> bool {
        let since = |at: usize| SINCE.get(at).map(|(_, version)| *version);
        let mut refused = self.findings.iter().zip(SINCE);
        refused.any(|(finding, (op, version))| {
            // createTTL is refused where nodes with a time to live are disabled, too.
            op != OpCode::CreateTtl && finding.state() == REFUSED && Some(version) <= since(at)
        })
    }

    /// Records that an operation is missing; returns whether that is new.
    fn set_missing(&self, op: OpCode, state: u8) -> bool {
        let Some((_, finding)) = self.find(op) else { return false };
        // A reply says more than closed connections.
        if finding.state() == REFUSED || finding.is_missing() && state != REFUSED {
            return false;
        }
        let is_new = !self.lacks(op);
        finding.connections.store(self.connections.load(Ordering::Relaxed), Ordering::Relaxed);
        finding.found_at.store(0, Ordering::Relaxed);
        finding.state.store(state, Ordering::Relaxed);
        is_new
    }

    /// See [`SessionLease::note_unusable`](super::lease::SessionLease::note_unusable).
    pub(super) fn note_unusable(&self, op: OpCode) {
        self.set_missing(op, UNUSABLE);
    }

    /// Records the reply to a request; returns whether it has shown that the operation is missing, and nothing before.
    pub(super) fn note_reply(&self, op: OpCode, err: ErrorCode) -> bool {
        match err {
            ErrorCode::Unimplemented => self.set_missing(op, REFUSED),
            // The optimised watch manager of ZooKeeper.
            ErrorCode::MarshallingError if op == OpCode::AddWatch => self.set_missing(op, UNUSABLE),
            ErrorCode::Ok | ErrorCode::NoNode | ErrorCode::NodeExists | ErrorCode::NoAuth => {
                if let Some((_, finding)) = self.find(op) {
                    finding.state.store(KNOWN, Ordering::Relaxed);
                }
                false
            }
            _ => false,
        }
    }

    /// Records that a server has closed a connection on which the operation was sent, once for each connection; returns as
    /// [`note_reply`](Self::note_reply).
    pub(super) fn note_closed(&self, op: OpCode) -> bool {
        match self.find(op).map(|(_, finding)| (finding, finding.state())) {
            Some((finding, UNKNOWN)) => {
                finding.state.store(CLOSED_ONCE, Ordering::Relaxed);
                false
            }
            Some((_, CLOSED_ONCE)) => self.set_missing(op, CLOSED),
            _ => false,
        }
    }

    /// A server has given another session in place of the one that was to be resumed.
    pub(super) fn note_replacement(&self) {
        self.replaces_sessions.store(true, Ordering::Relaxed);
    }

    /// Forgets everything: there are other servers.
    pub(super) fn forget(&self) {
        for finding in &self.findings {
            finding.state.store(UNKNOWN, Ordering::Relaxed);
        }
        self.replaces_sessions.store(false, Ordering::Relaxed);
    }

    /// A new session begins. What closed connections have shown in the last one counts only of servers that replace
    /// sessions: two sessions may be lost, and a create2 with each, to a network.
    pub(super) fn begin_session(&self) {
        for finding in self.findings.iter().filter(|_| !self.replaces_sessions()) {
            if matches!(finding.state(), CLOSED_ONCE | CLOSED) {
                finding.state.store(UNKNOWN, Ordering::Relaxed);
            }
        }
    }

    /// A server has accepted a session.
    pub(super) fn note_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the refusals that are old enough, if there was a reconnect since. What closed connections have shown stays: to ask
    /// again would cost two of them, and of a Keeper two sessions.
    pub(super) fn review(&self, now: Instant) {
        let connections = self.connections.load(Ordering::Relaxed);
        for finding in self.findings.iter().filter(|finding| finding.state() == REFUSED) {
            let found_at = finding.found_at.load(Ordering::Relaxed);
            if found_at == 0 {
                finding.found_at.store(now.as_nanos().max(1), Ordering::Relaxed);
                continue;
            }
            let was_reconnected = connections > finding.connections.load(Ordering::Relaxed) + 1;
            if was_reconnected && now >= Instant::from_nanos(found_at) + ASKED_AGAIN_AFTER {
                finding.state.store(UNKNOWN, Ordering::Relaxed);
            }
        }
    }
}

/// Whether older servers lack an operation.
pub(super) const fn is_optional(op: OpCode) -> bool {
    place(op).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(operations: &Operations) -> Vec<OpCode> {
        SINCE.map(|(op, _)| op).into_iter().filter(|op| operations.lacks(*op)).collect()
    }

    /// Connections lost twice while a create2 was in flight do not prove an old server: only the recipes use another
    /// operation.
    // Case (Found in docent itself): two connections that broke while a create2 was in flight
    // counted as a server without it, and calls of the application were refused for that.
    #[test]
    fn lost_connections_refuse_no_call() {
        let operations = Operations::default();
        for _ in 0..2 {
            assert_eq!(lacking(&operations), []);
            operations.note_closed(OpCode::Create2);
        }
        assert_eq!(lacking(&operations), [OpCode::Create2]);
        assert_eq!(operations.refuses(OpCode::Create2), None);
        // The server has replaced the session as well: a ClickHouse Keeper.
        operations.note_replacement();
        assert!(operations.refuses(OpCode::Create2).is_some());
        assert_eq!(
            operations.refuses(OpCode::AddWatch),
            None,
            "only recipes take this for granted"
        );
    }

    /// So that it is logged once.
    #[test]
    fn only_the_first_reply_that_shows_it_is_a_new_finding() {
        for op in [OpCode::Create2, OpCode::CreateContainer, OpCode::AddWatch] {
            let operations = Operations::default();
            assert!(operations.note_reply(op, ErrorCode::Unimplemented), "{op}");
            assert!(!operations.note_reply(op, ErrorCode::Unimplemented), "{op}");
            let operations = Operations::default();
            let found = [(); 3].map(|()| operations.note_closed(op));
            assert_eq!(found, [false, true, false], "{op}");
            assert!(!Operations::default().note_reply(op, ErrorCode::Ok), "{op}");
        }
        let operations = Operations::default();
        assert!(!operations.note_reply(OpCode::GetData, ErrorCode::Unimplemented));
        assert!(!operations.lacks(OpCode::GetData));
    }

    /// A server that does not know an operation does not know its successors; a disabled operation proves nothing.
    #[test]
    fn a_refusal_says_it_of_later_operations_too() {
        let lacking_with = |refused: OpCode| {
            let operations = Operations::default();
            operations.note_reply(refused, ErrorCode::Unimplemented);
            lacking(&operations)
        };
        let from = |at: usize| SINCE[at..].iter().map(|(op, _)| *op).collect::<Vec<_>>();
        assert_eq!(lacking_with(OpCode::RemoveWatches), from(0));
        assert_eq!(lacking_with(OpCode::CreateContainer), from(3));
        assert_eq!(lacking_with(OpCode::MultiRead), from(5));
        assert_eq!(lacking_with(OpCode::WhoAmI), [OpCode::WhoAmI]);
        assert_eq!(lacking_with(OpCode::CreateTtl), [OpCode::CreateTtl]);
        for (at, (op, _)) in SINCE.into_iter().enumerate() {
            assert_eq!(place(op), Some(at), "{op}");
        }
        // A reply to the operation itself proves more.
        let operations = Operations::default();
        operations.note_reply(OpCode::AddWatch, ErrorCode::Ok);
        operations.note_reply(OpCode::MultiRead, ErrorCode::Unimplemented);
        assert!(!operations.lacks(OpCode::AddWatch) && operations.lacks(OpCode::GetEphemerals));
    }

    /// A server that closes the connection after create2, and ends the session with it, knows multiRead at most.
    #[test]
    fn a_silent_end_behind_create2_says_it_of_the_others_too() {
        let operations = Operations::default();
        for _ in 0..2 {
            operations.note_closed(OpCode::Create2);
            assert!(!operations.lacks(OpCode::RemoveWatches));
        }
        operations.note_replacement();
        let known = SINCE.map(|(op, _)| op).into_iter().filter(|op| !operations.lacks(*op));
        assert_eq!(known.collect::<Vec<_>>(), [OpCode::MultiRead]);
        operations.forget();
        assert_eq!(lacking(&operations), []);
    }

    /// The reconnect after a refusal does not count as one after which the operation is sent again.
    #[test]
    fn a_finding_ends_with_a_reconnect_after_a_minute() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let operations = Operations::default();
        assert!(operations.set_missing(OpCode::AddWatch, REFUSED));
        operations.note_connection();
        operations.review(at(1));
        operations.review(at(1_000));
        assert!(operations.lacks(OpCode::AddWatch), "no reconnect but that of the refusal");
        operations.note_connection();
        assert!(operations.lacks(OpCode::MultiRead));
        operations.review(at(1_000));
        assert_eq!(lacking(&operations), []);
        // Refused again: if connections break often, this costs no more than one of them each minute.
        assert!(operations.set_missing(OpCode::AddWatch, REFUSED));
        operations.note_connection();
        operations.review(at(1_001));
        for seconds in [1_010, 1_060] {
            operations.note_connection();
            operations.review(at(seconds));
            assert!(operations.lacks(OpCode::AddWatch), "{seconds}");
        }
        operations.review(at(1_061));
        assert_eq!(lacking(&operations), []);
        // Found by closed connections, without a reply.
        assert!(operations.set_missing(OpCode::AddWatch, CLOSED));
        for seconds in [2_000, 3_000] {
            operations.note_connection();
            operations.review(at(seconds));
        }
        assert!(operations.lacks(OpCode::AddWatch));
    }

    /// `WatchManagerOptimized` supports no persistent watches. A cache has no use for those of some Keepers.
    #[test]
    fn add_watch_is_lacking_in_the_optimised_watch_manager_too() {
        let operations = Operations::default();
        operations.note_reply(OpCode::Create2, ErrorCode::MarshallingError);
        assert_eq!(lacking(&operations), []);
        operations.note_reply(OpCode::AddWatch, ErrorCode::MarshallingError);
        operations.note_replacement();
        assert_eq!(lacking(&operations), [OpCode::AddWatch]);
        assert_eq!(operations.refuses(OpCode::AddWatch), None);
    }

    /// Otherwise a request that is repeated after each reconnect would cost a connection each time.
    // Case (Found in docent itself): a refusal of an operation did not count once two connections
    // had been closed behind it: a kept node that asked again at each reconnect lost each
    // connection.
    #[test]
    fn a_refusal_says_more_than_closed_connections() {
        let operations = Operations::default();
        for _ in 0..2 {
            operations.note_closed(OpCode::CreateTtl);
        }
        assert_eq!(operations.refuses(OpCode::CreateTtl), None);
        assert!(!operations.note_reply(OpCode::CreateTtl, ErrorCode::Unimplemented), "is known");
        assert!(operations.refuses(OpCode::CreateTtl).is_some());
    }

    #[test]
    fn two_closed_connections_are_a_finding_only_where_nothing_was_answered() {
        use ErrorCode::{NoNode, NodeExists, Ok};
        for err in [Ok, NoNode, NodeExists] {
            for closed in [0, 1] {
                let operations = Operations::default();
                for _ in 0..closed {
                    operations.note_closed(OpCode::Create2);
                }
                operations.note_reply(OpCode::Create2, err);
                for _ in 0..3 {
                    operations.note_closed(OpCode::Create2);
                }
                assert!(!operations.lacks(OpCode::Create2), "{err}");
            }
        }
    }
}
