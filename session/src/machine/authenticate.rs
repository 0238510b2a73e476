//! SASL: after the session is accepted, before any other request is sent.
//!
//! ```text
//!                DIGEST-MD5                                       GSSAPI
//!   client  sasl (102), an empty token                sasl, the ticket
//!   server  the challenge                             its proof
//!   client  sasl, the response                        sasl, an empty token
//!   server  its proof                                 the offered security layers
//!   client                                            sasl, the choice: none
//!   server                                            no token
//! ```
//!
//! The mechanism computes the tokens of the client and checks those of the server. If it may block, its computations
//! are outputs of the machine, and their results inputs; no more than one is given out at a time.
//!
//! Each side sends one frame at a time, so replies are matched only by xid. No ping is sent during the exchange: a
//! server that requires authentication would close the connection. The deadline of the attempt ends every exchange, or two
//! thirds of the session timeout: the session outlives the exchange, and the next handshake renews it.
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
    connection::{Exchange, Sent},
    sasl::{Nonces, SaslAction, SaslContext, SaslError, SaslStep, SaslStepResult},
    session::Session,
};
use crate::{Error, ErrorKind, Outcome, time::Instant};

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Makes the client's nonces unpredictable to an observer that knows the seed. Without a secret they follow from the
    /// seed.
    #[must_use]
    pub fn with_nonce_secret(mut self, secret: [u8; 16]) -> Self {
        self.nonces = Nonces::new(secret);
        self
    }

    /// A computation of a SASL mechanism that [may block](crate::sasl::SaslMechanism::is_blocking), if there is one. Run it outside
    /// the driver's loop, and pass its result to [`handle_sasl_step`](Self::handle_sasl_step); there is no other one
    /// until then. It is called after each call that gives the session an input.
    pub fn poll_sasl_step(&mut self) -> Option<SaslStep> {
        if self.sasl_steps.running {
            return None;
        }
        let step = self.sasl_steps.next.take()?;
        // The connection for which it was made may be gone.
        let (_, exchange) = self.connection.exchange_mut()?;
        self.sasl_steps.running = exchange.number() == step.number;
        self.sasl_steps.running.then_some(step)
    }

    /// Handles the result of a computation. The result for a connection that is gone is dropped; call
    /// [`poll_sasl_step`](Self::poll_sasl_step) for the one of the current connection.
    pub fn handle_sasl_step(&mut self, result: SaslStepResult) {
        self.sasl_steps.running = false;
        let Some((deadline, exchange)) = self.connection.exchange_mut() else { return };
        if exchange.number() == result.number && exchange.is_computing() {
            self.apply_step(deadline, result);
        }
    }

    /// Starts an exchange. The attempt continues, until its `deadline`.
    pub(super) fn begin_sasl(&mut self, deadline: Instant) {
        let (Some(mechanism), Some(host)) = (&self.config.sasl, self.connection.host()) else {
            return;
        };
        let nonce = self.nonces.next();
        let exchange = mechanism.exchange(&SaslContext::new(host, &nonce));
        self.sasl_steps.exchanges += 1;
        let number = self.sasl_steps.exchanges;
        self.connection.authenticate(deadline, Exchange::computing(number));
        match exchange {
            Ok(exchange) => self.compute(deadline, SaslStep { number, exchange, token: None }),
            Err(error) => self.fail_sasl(&error),
        }
    }

    /// Computes the next action, here or in the driver.
    fn compute(&mut self, deadline: Instant, step: SaslStep) {
        if self.config.sasl.as_ref().is_some_and(|mechanism| mechanism.is_blocking()) {
            self.sasl_steps.next = Some(step);
        } else {
            self.apply_step(deadline, step.run());
        }
    }

    fn apply_step(&mut self, deadline: Instant, step: SaslStepResult) {
        let (exchange, action) = match step.result {
            Ok(done) => done,
            Err(error) => return self.fail_sasl(&error),
        };
        let (token, sent) = match action {
            SaslAction::Done => return self.admit(),
            SaslAction::SendLast(token) => (token, Sent::Last),
            SaslAction::Send(token) if !step.is_first => (token, Sent::Response),
            SaslAction::Send(token) if token.is_empty() => (token, Sent::Request),
            SaslAction::Send(token) => (token, Sent::InitialResponse),
        };
        let xid = xid::next(self.last_xid);
        let request = Sasl(SaslRequest { token: Some(&token) });
        let control = self.connection.control_mut();
        if frame::put_operation(control, frame::DEFAULT_LIMIT, xid, &request).is_err() {
            let size = token.len();
            return self.fail_sasl(&SaslError::fatal(format_args!(
                "a token of {size} bytes is too large"
            )));
        }
        self.last_xid = xid;
        let exchange = Exchange::waiting(step.number, xid, sent, exchange);
        self.connection.authenticate(deadline, exchange);
    }

    /// Handles the server's next reply.
    pub(super) fn receive_sasl(&mut self, now: Instant, header: ReplyHeader, body: &[u8]) {
        let Some((deadline, exchange)) = self.connection.exchange_mut() else { return };
        let (number, answered) = (exchange.number(), exchange.take_answered(header.xid));
        self.connection.note_heard(now);
        if matches!(header.err, ErrorCode::AuthFailed | ErrorCode::SessionClosedRequireSaslAuth) {
            let credential = self.credential_name();
            return self.refuse_authentication(format_args!("the server refused the {credential}"));
        }
        let Some((sent, exchange)) = answered else {
            let xid = header.xid;
            return self.connection.give_up(format_args!("a reply with xid {xid} during SASL"));
        };
        if !header.err.is_ok() {
            return self
                .connection
                .give_up(format_args!("the server replied to SASL with {}", header.err));
        }
        let token = match SaslReply::decode(&mut Reader::new(body)) {
            Ok(reply) => reply.token,
            Err(error) => return self.broken_stream(error),
        };
        match (token, sent) {
            (Some(token), Sent::Request | Sent::InitialResponse | Sent::Response) => {
                let token = Some(token.to_vec());
                self.compute(deadline, SaslStep { number, exchange, token });
            }
            (None | Some(b""), Sent::Last) => self.admit(),
            (Some(_), Sent::Last) => {
                self.connection.give_up("the server sent a SASL token after the last one");
            }
            (None, Sent::Request) => {
                self.refuse_authentication("SASL is not configured on the server");
            }
            (None, Sent::InitialResponse) => {
                let credential = self.credential_name();
                self.refuse_authentication(format_args!(
                    "SASL is not configured on the server, or it did not accept the {credential}"
                ));
            }
            // allowSaslFailedClients: the server would let the client continue unauthenticated.
            (None, Sent::Response) => {
                let credential = self.credential_name();
                self.refuse_authentication(format_args!(
                    "the server did not accept the {credential}"
                ));
            }
        }
    }

    fn fail_sasl(&mut self, error: &SaslError) {
        if error.is_fatal() {
            let refused = Error::new(ErrorKind::AuthFailed, Outcome::NotApplied);
            self.end_unauthenticated(&refused.with_detail(error).caused_by(error.clone()));
        } else {
            self.connection.give_up_because(format_args!("SASL: {error}"), error.clone());
        }
    }

    fn credential_name(&self) -> String {
        self.config.sasl.as_ref().map(|sasl| sasl.credential_name().to_owned()).unwrap_or_default()
    }

    /// Why the exchange took too long.
    pub(super) fn overdue_sasl(&mut self) -> String {
        match &self.config.sasl {
            Some(mechanism) if self.connection.is_computing_sasl() => {
                format!("SASL timed out: {} has not computed its next token", mechanism.name())
            }
            _ => "SASL timed out".to_owned(),
        }
    }
}
