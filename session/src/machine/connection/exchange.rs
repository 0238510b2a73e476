//! The state of a SASL exchange.

use std::{fmt, mem};

use crate::machine::sasl::SaslExchange;

/// The state of an exchange.
pub(crate) struct Exchange {
    number: u64,
    state: State,
}

enum State {
    /// The mechanism computes the next token.
    Computing,
    /// The reply to a token is pending.
    Waiting { xid: i32, sent: Sent, exchange: Box<dyn SaslExchange> },
}

/// The token that was sent last: it decides the meaning of a reply without a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The first one, and it was empty.
    Request,
    /// The first one, with an initial response.
    InitialResponse,
    Response,
    /// The last one.
    Last,
}

impl Exchange {
    /// The exchange of this number, of which a token is computed.
    pub(crate) const fn computing(number: u64) -> Self {
        Self { number, state: State::Computing }
    }

    /// The exchange of this number, of which a token was sent with this xid.
    pub(crate) const fn waiting(
        number: u64,
        xid: i32,
        sent: Sent,
        exchange: Box<dyn SaslExchange>,
    ) -> Self {
        Self { number, state: State::Waiting { xid, sent, exchange } }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether the mechanism computes, and no reply is pending.
    pub(crate) const fn is_computing(&self) -> bool {
        matches!(self.state, State::Computing)
    }

    /// Takes what the reply with this xid is for, if it is for a token: the mechanism computes from now on.
    pub(crate) fn take_answered(&mut self, answered: i32) -> Option<(Sent, Box<dyn SaslExchange>)> {
        match mem::replace(&mut self.state, State::Computing) {
            State::Waiting { xid, sent, exchange } if xid == answered => Some((sent, exchange)),
            _ => None,
        }
    }
}

/// By hand, to keep the contents out of logs.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut exchange = f.debug_struct("Exchange");
        if let State::Waiting { xid, sent, .. } = &self.state {
            exchange.field("xid", xid).field("sent", sent);
        }
        exchange.finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Exchange {
    /// The xid, and the expected `rspauth` of the reply.
    pub(crate) fn expectation(&self) -> (i32, Option<String>) {
        match &self.state {
            State::Waiting { xid, exchange, .. } => (*xid, exchange.expected_proof()),
            State::Computing => (0, None),
        }
    }
}
