//! The operations that the servers of a session support, as far as known.
//!
//! ZooKeeper before 3.5 replies to an unknown operation with `Unimplemented` and closes the connection. Older
//! ClickHouse Keepers close it without a reply. So each try costs a connection, and its result is kept for the session.

use std::sync::atomic::{AtomicU8, Ordering};

use docent_protocol::OpCode;

use super::lease::SessionLease;
use crate::{Error, ErrorKind, Outcome};

/// The findings about the operations that recipes can replace.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    create2: Finding,
    create_container: Finding,
    add_watch: Finding,
}

impl Operations {
    const fn finding(&self, op: OpCode) -> Option<&Finding> {
        match op {
            OpCode::Create2 => Some(&self.create2),
            OpCode::CreateContainer => Some(&self.create_container),
            OpCode::AddWatch => Some(&self.add_watch),
            _ => None,
        }
    }
}

/// The number of broken connections on which requests of one operation were lost, or [`LACKING`], or [`KNOWN`].
#[derive(Debug, Default)]
struct Finding(AtomicU8);

/// The servers do not support the operation.
const LACKING: u8 = 2;

/// A server has replied to the operation.
const KNOWN: u8 = u8::MAX;

impl SessionLease {
    /// Whether the servers of this session do not support an operation, according to the calls of
    /// [`record_reply`](Self::record_reply). For create2 (15), createContainer (19) and addWatch (106);
    /// `false` for others.
    #[must_use]
    pub fn lacks(&self, op: OpCode) -> bool {
        let finding = self.operations().finding(op);
        finding.is_some_and(|finding| finding.0.load(Ordering::Relaxed) == LACKING)
    }

    /// The number of broken connections on which requests of an operation were lost. Read it before a request, and pass
    /// it to [`record_reply`](Self::record_reply) with the reply.
    #[must_use]
    pub fn losses(&self, op: OpCode) -> u8 {
        self.operations().finding(op).map_or(0, |finding| finding.0.load(Ordering::Relaxed))
    }

    /// Records the result of a request of this session. `Unimplemented` means that its servers do not support the
    /// operation. So do two requests that broke the connection while none was ever answered, if the second one was sent
    /// after the loss of the first one was known: `losses` is the value from before the request. One broken connection
    /// proves nothing, however many requests were on it: connections break for other reasons.
    ///
    /// Returns whether this reply has shown that the servers do not support the operation, and none before.
    pub fn record_reply<R>(&self, op: OpCode, losses: u8, reply: &Result<R, Error>) -> bool {
        let Some(Finding(finding)) = self.operations().finding(op) else { return false };
        let set = |value| finding.swap(value, Ordering::Relaxed) != value && value == LACKING;
        let Err(error) = reply else { return set(KNOWN) };
        match (error.kind(), error.outcome()) {
            (ErrorKind::NoNode | ErrorKind::NodeExists | ErrorKind::NoAuth, _) => set(KNOWN),
            (ErrorKind::Unimplemented, _) => set(LACKING),
            // The optimised watch manager of ZooKeeper.
            (ErrorKind::MarshallingError, _) if op == OpCode::AddWatch => set(LACKING),
            (ErrorKind::ConnectionLoss, Outcome::Unknown) if losses < LACKING => {
                let (now, relaxed) = (losses + 1, Ordering::Relaxed);
                // A different number means that another request of the same connection was faster, or that the finding
                // is final.
                let counted = finding.compare_exchange(losses, now, relaxed, relaxed);
                counted.is_ok() && now == LACKING
            }
            _ => false,
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
        assert!(!lease.lacks(OpCode::CreateContainer) && !lease.lacks(OpCode::GetData));
        lease.lacks(OpCode::Create2)
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
