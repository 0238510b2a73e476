//! SASL: after the session is accepted, before any other request is sent.
//!
//! ```text
//!   client  sasl (102), an empty token        server  the challenge
//!   client  sasl (102), the response          server  its own proof
//! ```
//!
//! Each side sends one frame at a time, so replies are matched only by xid. No ping is sent during the exchange: a
//! server that requires authentication would close the connection.
//!
//! Source: `ZooKeeperSaslClient`, `ClientCnxnSocketNIO.findSendablePacket`.

use docent_protocol::{
    Decode, ErrorCode, frame,
    jute::Reader,
    operation::Sasl,
    reply::{ReplyHeader, SaslReply},
    request::SaslRequest,
    xid,
};

use super::{
    answers::Answers,
    sasl::{
        DIGEST_URI, Nonces,
        digest_md5::{self, Proof},
    },
    session::Session,
};
use crate::time::Instant;

/// The state of an exchange.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The xid of the pending request.
    xid: i32,
    /// The proof that the reply must contain; `None` while the reply must be the challenge.
    proof: Option<Proof>,
}

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Makes the client's nonces unpredictable to an observer that knows the seed. Without a secret they follow from the
    /// seed.
    #[must_use]
    pub fn with_nonce_secret(mut self, secret: [u8; 16]) -> Self {
        self.nonces = Nonces::new(secret);
        self
    }

    /// Starts DIGEST-MD5. The server sends the first challenge, but it has to be requested, with an empty token rather
    /// than no token.
    pub(super) fn begin_sasl(&mut self, deadline: Instant) {
        self.send_sasl(deadline, &[], None);
    }

    /// Sends a token. The attempt continues, until its `deadline`.
    fn send_sasl(&mut self, deadline: Instant, token: &[u8], proof: Option<Proof>) {
        let xid = xid::next(self.last_xid);
        self.last_xid = xid;
        let request = Sasl(SaslRequest { token: Some(token) });
        // A few kilobytes at most: the challenge and the user name are limited.
        let _ = frame::put_operation(
            self.connection.control_mut(),
            frame::DEFAULT_LIMIT,
            xid,
            &request,
        );
        self.connection.authenticate(deadline, Exchange { xid, proof });
    }

    /// Handles the server's next reply.
    pub(super) fn receive_sasl(&mut self, now: Instant, header: ReplyHeader, body: &[u8]) {
        let Some((deadline, exchange)) = self.connection.exchange_mut() else { return };
        let (expected, proof) = (exchange.xid, exchange.proof.take());
        self.connection.note_heard(now);
        if matches!(header.err, ErrorCode::AuthFailed | ErrorCode::SessionClosedRequireSaslAuth) {
            return self.refuse_authentication("the server refused the SASL user or password");
        }
        if header.xid != expected {
            let xid = header.xid;
            return self.connection.give_up(format_args!("a reply with xid {xid} during SASL"));
        }
        if !header.err.is_ok() {
            return self
                .connection
                .give_up(format_args!("the server replied to SASL with {}", header.err));
        }
        let token = match SaslReply::decode(&mut Reader::new(body)) {
            Ok(reply) => reply.token,
            Err(error) => return self.broken_stream(error),
        };
        match (token, proof) {
            (None, None) => {
                self.refuse_authentication("SASL is not configured on the server");
            }
            // allowSaslFailedClients: the server would let the client continue unauthenticated.
            (None, Some(_)) => {
                self.refuse_authentication("the server did not accept the SASL user or password");
            }
            (Some(challenge), None) => self.answer_challenge(deadline, challenge),
            (Some(last_word), Some(proof)) => match proof.is_given_by(last_word) {
                Ok(true) => self.admit(),
                Ok(false) => self.refuse_authentication(
                    "the server has not proved that it knows the SASL password",
                ),
                Err(unusable) => {
                    self.connection.give_up(format_args!("the last SASL message: {unusable}"))
                }
            },
        }
    }

    fn answer_challenge(&mut self, deadline: Instant, challenge: &[u8]) {
        let Some(sasl) = &self.config.sasl else { return };
        let cnonce = self.nonces.next();
        let (user, password) = (sasl.user(), sasl.password());
        match digest_md5::respond(challenge, user, password, DIGEST_URI, &cnonce) {
            Ok(response) => self.send_sasl(deadline, &response.token, Some(response.proof)),
            Err(unusable) => self.connection.give_up(format_args!("SASL: {unusable}")),
        }
    }
}

#[cfg(test)]
impl Exchange {
    /// The xid, and the expected `rspauth` of the reply.
    pub(super) fn expectation(&self) -> (i32, Option<String>) {
        (self.xid, self.proof.as_ref().map(|proof| proof.expected().to_owned()))
    }
}
