//! The operations that the servers of a session do not support, as far as known.
//!
//! ZooKeeper replies to an unknown operation with `Unimplemented` and closes the connection. Older ClickHouse Keepers
//! close it without a reply. So each try costs a connection, and its result is kept for the session. A server that
//! replies `Unimplemented` has none of the operations that came later either.
//!
//! ClickHouse Keeper resumes no session, so each of its lost connections ends the session (ClickHouse#116690). There, the
//! findings pass to the next session.
//!
//! The next server may be a newer one, in a rolling upgrade. So a refusal counts until a reconnect, but for the one that it
//! causes itself, and for a minute at least: where connections break often, not each of them costs another one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use docent_protocol::OpCode;

use super::{
    answers::Answers,
    effect::Effect,
    lease::SessionLease,
    session::{Event, Session},
};
use crate::{Error, ErrorKind, Outcome, time::Instant};

/// The operations that older servers lack, with the first version of ZooKeeper that has each, in this order.
pub(crate) const SINCE: [(OpCode, &str); 10] = [
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
const fn place(op: OpCode) -> Option<usize> {
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
    /// The number of connections on which the session was accepted.
    connections: AtomicU64,
    /// Whether there were findings when the server replaced an earlier session.
    inherited: AtomicBool,
}

/// What is known of one operation.
#[derive(Debug, Default)]
struct Finding {
    /// The number of broken connections on which requests were lost, or [`LACKING`], [`REFUSED`] or [`KNOWN`].
    state: AtomicU8,
    /// The number of connections when it was found that the operation is missing.
    connections: AtomicU64,
    /// The first review since then, in nanoseconds; 0: none yet.
    found_at: AtomicU64,
}

/// The servers do not support the operation.
const LACKING: u8 = 2;

/// A server has replied that it does not support the operation.
const REFUSED: u8 = 3;

/// A server has replied to the operation.
const KNOWN: u8 = u8::MAX;

/// The least time until a reconnect ends a finding.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl Finding {
    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    fn is_missing(&self) -> bool {
        matches!(self.state(), LACKING | REFUSED)
    }
}

impl Operations {
    fn finding(&self, op: OpCode) -> Option<&Finding> {
        self.findings.get(place(op)?)
    }

    fn lacks(&self, op: OpCode) -> bool {
        let Some(at) = place(op) else { return false };
        let Some(finding) = self.findings.get(at) else { return false };
        match finding.state() {
            LACKING | REFUSED => true,
            KNOWN => false,
            _ => self.is_implied(at),
        }
    }

    /// Whether a server has replied that it does not support an operation, or one that is as old or older. What lost
    /// connections have shown does not count: it may be the fault of a network.
    fn refuses(&self, op: OpCode) -> bool {
        let Some(at) = place(op) else { return false };
        let Some(finding) = self.findings.get(at) else { return false };
        match finding.state() {
            REFUSED => true,
            KNOWN => false,
            _ => self.is_refused_with(at),
        }
    }

    /// Whether other findings show that an operation is missing. A Keeper that closes the connection behind create2, and
    /// ends the session with it, knows none of the others either, but for multiRead.
    fn is_implied(&self, at: usize) -> bool {
        let is_keeper = self.inherited.load(Ordering::Relaxed)
            && self.findings.first().is_some_and(|create2| create2.state() == LACKING);
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
        let Some(finding) = self.finding(op) else { return false };
        if finding.is_missing() {
            return false;
        }
        let is_new = !self.lacks(op);
        finding.connections.store(self.connections.load(Ordering::Relaxed), Ordering::Relaxed);
        finding.found_at.store(0, Ordering::Relaxed);
        finding.state.store(state, Ordering::Relaxed);
        is_new
    }

    /// Takes over the findings of a session that the server has replaced by this one.
    pub(super) fn inherit(&self, other: &Self) {
        let relaxed = Ordering::Relaxed;
        self.connections.store(other.connections.load(relaxed) + 1, relaxed);
        let has_findings = other.findings.iter().any(|finding| finding.state() != 0);
        self.inherited.store(has_findings || other.inherited.load(relaxed), relaxed);
        for (to, from) in self.findings.iter().zip(&other.findings) {
            to.state.store(from.state(), relaxed);
            to.connections.store(from.connections.load(relaxed), relaxed);
            to.found_at.store(from.found_at.load(relaxed), relaxed);
        }
    }

    /// A server has accepted the session.
    pub(super) fn note_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the refusals that are old enough, if there was a reconnect since. What lost connections have shown stays: to ask
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
                finding.state.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl SessionLease {
    /// Whether the servers of this session do not support an operation, according to their replies and the calls of
    /// [`record_reply`](Self::record_reply). `false` for an operation that all servers support.
    ///
    /// The answer may change from `true` to `false` after a reconnect: the next server may be a newer one.
    #[must_use]
    pub fn lacks(&self, op: OpCode) -> bool {
        self.operations().lacks(op)
    }

    /// The number of broken connections on which requests of an operation were lost. Read it before a request, and pass
    /// it to [`record_reply`](Self::record_reply) with the reply.
    #[must_use]
    pub fn losses(&self, op: OpCode) -> u8 {
        self.operations().finding(op).map_or(0, Finding::state)
    }

    /// Records the result of a request of this session. `Unimplemented` means that its servers do not support the
    /// operation. So do two requests that broke the connection while none was ever answered, if the second one was sent
    /// after the loss of the first one was known: `losses` is the value from before the request. One broken connection
    /// proves nothing, however many requests were on it: connections break for other reasons.
    ///
    /// Returns whether this reply has shown that the servers do not support the operation, and none before. The session
    /// itself records `Unimplemented`.
    pub fn record_reply<R>(&self, op: OpCode, losses: u8, reply: &Result<R, Error>) -> bool {
        let operations = self.operations();
        let Some(Finding { state, .. }) = operations.finding(op) else { return false };
        let relaxed = Ordering::Relaxed;
        let Err(error) = reply else {
            state.store(KNOWN, relaxed);
            return false;
        };
        match (error.kind(), error.outcome()) {
            (ErrorKind::NoNode | ErrorKind::NodeExists | ErrorKind::NoAuth, _) => {
                state.store(KNOWN, relaxed);
                false
            }
            (ErrorKind::Unimplemented, _) => operations.set_missing(op, REFUSED),
            // The optimised watch manager of ZooKeeper.
            (ErrorKind::MarshallingError, _) if op == OpCode::AddWatch => {
                operations.set_missing(op, LACKING)
            }
            // A different number means that another request of the same connection was faster, or that the finding
            // is final.
            (ErrorKind::ConnectionLoss, Outcome::Unknown) if losses == 0 => {
                let _ = state.compare_exchange(0, 1, relaxed, relaxed);
                false
            }
            (ErrorKind::ConnectionLoss, Outcome::Unknown)
                if losses == LACKING - 1 && state.load(relaxed) == losses =>
            {
                operations.set_missing(op, LACKING)
            }
            _ => false,
        }
    }
}

/// The most requests whose operations are remembered until their replies.
const MAX_REMEMBERED: usize = 64;

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Whether the servers are known to lack an operation.
    pub(super) fn is_missing(&self, op: OpCode) -> bool {
        self.lease().is_some_and(|lease| lease.lacks(op))
    }

    /// Refuses a request whose operation a server has refused before: it would cost the connection.
    pub(super) fn refusal_of_missing(&self, op: OpCode, effect: &Effect<W>) -> Option<Error> {
        place(op)?;
        let refuses = || self.lease().is_some_and(|lease| lease.operations().refuses(op));
        if effect.is_internal() || !refuses() {
            return None;
        }
        let text = "known from the reply to an earlier request";
        Some(Error::refused(ErrorKind::Unimplemented, text))
    }

    /// Remembers the operation of a request that servers may refuse.
    pub(super) fn remember_operation(&mut self, xid: i32, op: OpCode) {
        if place(op).is_some() {
            self.remember(xid, op);
        }
    }

    fn remember(&mut self, xid: i32, op: OpCode) {
        if self.operations.len() >= MAX_REMEMBERED {
            let oldest = self.requests.oldest().unwrap_or(xid);
            let is_answered = |(of, _): &(i32, OpCode)| of.wrapping_sub(oldest) < 0;
            while self.operations.front().is_some_and(is_answered) {
                self.operations.pop_front();
            }
        }
        // The replies come in order: the refusal of an earlier request comes first, and ends the connection.
        if self.operations.len() < MAX_REMEMBERED {
            self.operations.push_back((xid, op));
        }
    }

    /// Records that a server does not support the operation of a request.
    #[cold]
    pub(super) fn note_refusal(&mut self, xid: i32) {
        let of_xid = |(of, _): &&(i32, OpCode)| *of == xid;
        let Some(&(_, op)) = self.operations.iter().find(of_xid) else { return };
        let Some(lease) = self.lease() else { return };
        if lease.operations().set_missing(op, REFUSED) {
            let lease = Arc::clone(lease);
            self.events.push_back(Event::MissingOperation(lease, op));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn lacks_create2(answers: &[Result<(), (ErrorKind, Outcome)>]) -> bool {
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        for answer in answers {
            let answer = answer.map_err(|(kind, outcome)| Error::new(kind, outcome));
            lease.record_reply(OpCode::Create2, lease.losses(OpCode::Create2), &answer);
        }
        assert!(!lease.lacks(OpCode::GetData));
        lease.lacks(OpCode::Create2)
    }

    /// A network that breaks twice while a create2 is in flight is no old server: only the recipes take another operation.
    #[test]
    fn lost_connections_refuse_no_call() {
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        for losses in [0, 1] {
            let lost: Result<(), _> = LOST.map_err(|(kind, outcome)| Error::new(kind, outcome));
            lease.record_reply(OpCode::Create2, losses, &lost);
        }
        let operations = lease.operations();
        assert!(lease.lacks(OpCode::Create2) && !operations.refuses(OpCode::Create2));
        for (op, _) in SINCE.into_iter().skip(1) {
            assert!(!lease.lacks(op) && !operations.refuses(op), "{op}");
        }
        // The server has replaced the session as well: a ClickHouse Keeper, as far as recipes are concerned.
        let next = SessionLease::new(2, Instant::ZERO, Instant::ZERO);
        next.operations().inherit(operations);
        assert!(next.lacks(OpCode::AddWatch) && !next.lacks(OpCode::MultiRead));
        assert!(!next.operations().refuses(OpCode::AddWatch));
    }

    /// So that it is logged once.
    #[test]
    fn only_the_first_reply_that_shows_it_is_a_new_finding() {
        let unsupported: Result<(), _> =
            Err(Error::new(ErrorKind::Unimplemented, Outcome::NotApplied));
        let lost: Result<(), _> = LOST.map_err(|(kind, outcome)| Error::new(kind, outcome));
        for op in [OpCode::Create2, OpCode::CreateContainer, OpCode::AddWatch] {
            let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
            assert!(lease.record_reply(op, 0, &unsupported), "{op}");
            assert!(!lease.record_reply(op, 0, &unsupported), "{op}");
            let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
            let found = [0, 0, 1, 1].map(|losses| lease.record_reply(op, losses, &lost));
            assert_eq!(found, [false, false, true, false], "{op}");
            let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
            assert!(!lease.record_reply(op, 0, &Ok(())), "{op}");
        }
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        assert!(!lease.record_reply(OpCode::GetData, 0, &unsupported));
    }

    const LOST: Result<(), (ErrorKind, Outcome)> =
        Err((ErrorKind::ConnectionLoss, Outcome::Unknown));

    const fn refused(kind: ErrorKind) -> Result<(), (ErrorKind, Outcome)> {
        Err((kind, Outcome::NotApplied))
    }

    #[test]
    fn an_operation_is_lacking_when_the_server_says_so() {
        assert!(!lacks_create2(&[]));
        assert!(lacks_create2(&[refused(ErrorKind::Unimplemented)]));
    }

    /// What a server does not know, it does not know the successors of; a disabled operation proves nothing.
    #[test]
    fn a_refusal_says_it_of_later_operations_too() {
        let unsupported: Result<(), _> =
            Err(Error::new(ErrorKind::Unimplemented, Outcome::NotApplied));
        let lacking = |refused: OpCode| {
            let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
            lease.record_reply(refused, 0, &unsupported);
            SINCE.map(|(op, _)| op).into_iter().filter(|op| lease.lacks(*op)).collect::<Vec<_>>()
        };
        assert_eq!(lacking(OpCode::RemoveWatches), SINCE.map(|(op, _)| op));
        assert_eq!(
            lacking(OpCode::CreateContainer),
            SINCE[3..].iter().map(|(op, _)| *op).collect::<Vec<_>>()
        );
        assert_eq!(
            lacking(OpCode::MultiRead),
            SINCE[5..].iter().map(|(op, _)| *op).collect::<Vec<_>>()
        );
        assert_eq!(lacking(OpCode::WhoAmI), [OpCode::WhoAmI]);
        assert_eq!(lacking(OpCode::CreateTtl), [OpCode::CreateTtl]);
        for (at, (op, _)) in SINCE.into_iter().enumerate() {
            assert_eq!(place(op), Some(at), "{op}");
        }
        // A reply to the operation itself proves more.
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        lease.record_reply(OpCode::AddWatch, 0, &Ok(()));
        lease.record_reply(OpCode::MultiRead, 0, &unsupported);
        assert!(!lease.lacks(OpCode::AddWatch) && lease.lacks(OpCode::GetEphemerals));
    }

    /// What closes the connection behind create2, and ends the session with it, has multiRead at most.
    #[test]
    fn a_silent_end_behind_create2_says_it_of_the_others_too() {
        let lost: Result<(), _> = LOST.map_err(|(kind, outcome)| Error::new(kind, outcome));
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        for losses in 0..2 {
            lease.record_reply(OpCode::Create2, losses, &lost);
            assert!(!lease.lacks(OpCode::RemoveWatches));
        }
        let lacking = |lease: &SessionLease| {
            let all = SINCE.map(|(op, _)| op);
            all.into_iter().filter(|op| !lease.lacks(*op)).collect::<Vec<_>>()
        };
        let next = SessionLease::new(2, Instant::ZERO, Instant::ZERO);
        next.operations().inherit(lease.operations());
        assert_eq!(lacking(&next), [OpCode::MultiRead]);
    }

    /// The connection that a refusal costs is none of those after which it is asked for again.
    #[test]
    fn a_finding_ends_with_a_reconnect_after_a_minute() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        let operations = lease.operations();
        assert!(operations.set_missing(OpCode::AddWatch, REFUSED));
        operations.note_connection();
        operations.review(at(1));
        operations.review(at(1_000));
        assert!(lease.lacks(OpCode::AddWatch), "no reconnect but that of the refusal");
        operations.note_connection();
        assert!(lease.lacks(OpCode::MultiRead));
        operations.review(at(1_000));
        assert!(!lease.lacks(OpCode::AddWatch) && !lease.lacks(OpCode::MultiRead));
        assert_eq!(lease.losses(OpCode::AddWatch), 0);
        // Found again: connections that break often cost no more than one each minute.
        assert!(operations.set_missing(OpCode::AddWatch, REFUSED));
        for seconds in 1_001..1_061 {
            operations.note_connection();
            operations.review(at(seconds));
            assert!(lease.lacks(OpCode::AddWatch), "{seconds}");
        }
        operations.review(at(1_061));
        assert!(!lease.lacks(OpCode::AddWatch));
        // Found without a reply.
        assert!(operations.set_missing(OpCode::AddWatch, LACKING));
        for seconds in [2_000, 3_000] {
            operations.note_connection();
            operations.review(at(seconds));
        }
        assert!(lease.lacks(OpCode::AddWatch));
    }

    /// `WatchManagerOptimized` supports no persistent watches.
    #[test]
    fn add_watch_is_lacking_in_the_optimised_watch_manager_too() {
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        let refused: Result<(), _> =
            Err(Error::new(ErrorKind::MarshallingError, Outcome::NotApplied));
        lease.record_reply(OpCode::Create2, 0, &refused);
        assert!(!lease.lacks(OpCode::Create2) && !lease.lacks(OpCode::AddWatch));
        lease.record_reply(OpCode::AddWatch, 0, &refused);
        assert!(lease.lacks(OpCode::AddWatch) && !lease.lacks(OpCode::Create2));
    }

    #[test]
    fn two_losses_are_a_finding_only_where_nothing_was_answered() {
        assert!(!lacks_create2(&[LOST]));
        assert!(lacks_create2(&[LOST, LOST]));
        assert!(lacks_create2(&[LOST, LOST, LOST]));
        for answer in [Ok(()), refused(ErrorKind::NoNode), refused(ErrorKind::NodeExists)] {
            assert!(!lacks_create2(&[answer, LOST, LOST, LOST]));
            assert!(!lacks_create2(&[LOST, answer, LOST, LOST]));
        }
        let lease = SessionLease::new(1, Instant::ZERO, Instant::ZERO);
        let lost: Result<(), _> = LOST.map_err(|(kind, outcome)| Error::new(kind, outcome));
        // All on one connection, then on another one.
        for _ in 0..9 {
            lease.record_reply(OpCode::Create2, 0, &lost);
        }
        assert!(!lease.lacks(OpCode::Create2));
        lease.record_reply(OpCode::Create2, 1, &lost);
        assert!(lease.lacks(OpCode::Create2));
        // Requests that were never sent.
        assert!(!lacks_create2(&[
            refused(ErrorKind::ConnectionLoss),
            refused(ErrorKind::ConnectionLoss)
        ]));
    }
}
