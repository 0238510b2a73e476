//! Requests whose operation the servers may lack: their refusal, and what their replies and closed connections show.
//! The findings are in [`operations`](super::operations).

use std::sync::Arc;

use docent_protocol::{ErrorCode, OpCode};

use super::{
    answers::Answers,
    effect::Effect,
    operations::{is_optional, place},
    session::{Event, Session},
};
use crate::{Error, ErrorKind};

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Whether the machine's own requests of an operation are not sent: it is missing, and not only suspected to be.
    pub(super) fn is_missing(&self, op: OpCode) -> bool {
        self.operations.lacks(op) && !self.operations.is_suspected(op)
    }

    /// Refuses a request whose operation the servers are known to lack: it would cost the connection.
    pub(super) fn refusal_of_missing(&self, op: OpCode, effect: &Effect<W>) -> Option<Error> {
        if !is_optional(op) || effect.is_internal() {
            return None;
        }
        Some(Error::refused(ErrorKind::Unimplemented, self.operations.refuses(op)?))
    }

    /// Records the reply to a request that servers may lack.
    #[cold]
    pub(super) fn note_operation(&mut self, op: OpCode, err: ErrorCode) {
        let is_new = self.operations.note_reply(op, err);
        self.report_missing(op, is_new);
    }

    /// Records the requests without a reply on a connection that a server has closed.
    pub(super) fn note_closed(&mut self) {
        let sent = self.requests.iter().take(self.requests.in_flight());
        let mut found: Vec<_> = sent.filter_map(|request| request.effect.operation()).collect();
        found.sort_unstable_by_key(|op| place(*op));
        found.dedup();
        for op in found {
            let is_new = self.operations.note_closed(op);
            self.report_missing(op, is_new);
        }
    }

    fn report_missing(&mut self, op: OpCode, is_new: bool) {
        if let Some(lease) = self.lease().filter(|_| is_new) {
            let lease = Arc::clone(lease);
            self.events.push_back(Event::MissingOperation(lease, op));
        }
    }
}
