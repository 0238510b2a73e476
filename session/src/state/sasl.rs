//! SASL: behind the accepted session, before anything else goes out.
//!
//! ```text
//!   client  sasl (102), an empty token        server  the challenge
//!   client  sasl (102), the response          server  its own proof
//! ```
//!
//! One frame each way at a time, so there is nothing to match but the xid. No ping goes out meanwhile: a
//! server that requires authentication would close the connection at it.
//!
//! Source: `ZooKeeperSaslClient`, `ClientCnxnSocketNIO.findSendablePacket`.

use docent_protocol::{
    Decode, ErrorCode,
    call::Sasl,
    frame,
    jute::Reader,
    reply::{ReplyHeader, SaslReply},
    request::SaslRequest,
    xid,
};

use super::{Answers, Phase, Session};
use crate::{
    sasl::{
        DIGEST_URI, Nonces,
        digest_md5::{self, Proof},
    },
    time::Instant,
};

/// How far an exchange is.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Of the request that waits for its answer.
    xid: i32,
    /// What the answer must prove; `None` while it has to be the challenge.
    proof: Option<Proof>,
}

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
    /// Makes the client's nonces hard to guess for who knows the seed. Without it they follow from the seed.
    #[must_use]
    pub fn with_nonce_secret(mut self, secret: [u8; 16]) -> Self {
        self.nonces = Nonces::new(secret);
        self
    }

    /// DIGEST-MD5 is begun by the server, which wants to be asked: with an empty token, not without one.
    pub(super) fn begin_sasl(&mut self, now: Instant) {
        self.send_sasl(now, &[], None);
    }

    fn send_sasl(&mut self, now: Instant, token: &[u8], proof: Option<Proof>) {
        let xid = xid::next(self.last_xid);
        self.last_xid = xid;
        let request = Sasl(SaslRequest { token: Some(token) });
        // A few kilobytes at most: a challenge and a user name have their limits.
        let _ = frame::put_call(&mut self.control, frame::DEFAULT_LIMIT, xid, &request);
        let deadline = now + self.timeouts.read;
        self.phase = Phase::Authenticating { deadline, exchange: Exchange { xid, proof } };
    }

    /// The server's next word.
    pub(super) fn receive_sasl(&mut self, now: Instant, header: ReplyHeader, body: &[u8]) {
        let Phase::Authenticating { exchange, .. } = &mut self.phase else { return };
        let proof = exchange.proof.take();
        if matches!(header.err, ErrorCode::AuthFailed | ErrorCode::SessionClosedRequireSaslAuth) {
            return self.refuse_authentication("the server refused the SASL user or password");
        }
        if header.xid != exchange.xid {
            let xid = header.xid;
            return self.give_up(format_args!("an answer to xid {xid} in the middle of SASL"));
        }
        if !header.err.is_ok() {
            return self.give_up(format_args!("the server answered SASL with {}", header.err));
        }
        let token = match SaslReply::decode(&mut Reader::new(body)) {
            Ok(reply) => reply.token,
            Err(error) => return self.broken_stream(error),
        };
        match (token, proof) {
            (None, None) => {
                self.refuse_authentication("SASL is not configured on the server");
            }
            // allowSaslFailedClients: it would let the client go on as nobody.
            (None, Some(_)) => {
                self.refuse_authentication("the server did not accept the SASL user or password");
            }
            (Some(challenge), None) => self.answer_challenge(now, challenge),
            (Some(last_word), Some(proof)) => match proof.is_given_by(last_word) {
                Ok(true) => self.admit(),
                Ok(false) => self.refuse_authentication(
                    "the server has not proved that it knows the SASL password",
                ),
                Err(unusable) => self.give_up(format_args!("the end of SASL: {unusable}")),
            },
        }
    }

    fn answer_challenge(&mut self, now: Instant, challenge: &[u8]) {
        let Some(sasl) = &self.config.sasl else { return };
        let cnonce = self.nonces.next();
        let (user, password) = (sasl.user(), sasl.password());
        match digest_md5::respond(challenge, user, password, DIGEST_URI, &cnonce) {
            Ok(response) => self.send_sasl(now, &response.token, Some(response.proof)),
            Err(unusable) => self.give_up(format_args!("SASL: {unusable}")),
        }
    }
}

#[cfg(test)]
impl Exchange {
    /// The xid, and the `rspauth` it has to be answered with.
    pub(super) fn expectation(&self) -> (i32, Option<String>) {
        (self.xid, self.proof.as_ref().map(|proof| proof.expected().to_owned()))
    }
}
