//! DIGEST-MD5 as a mechanism: an empty token, the response to the challenge, and the proof of the server.

use super::{
    DIGEST_URI, SaslAction, SaslContext, SaslCredential, SaslError, SaslExchange, SaslMechanism,
    digest_md5::{self, Proof},
};

impl SaslMechanism for SaslCredential {
    fn name(&self) -> &str {
        "DIGEST-MD5"
    }

    fn credential_name(&self) -> &str {
        "SASL user or password"
    }

    fn exchange(&self, context: &SaslContext<'_>) -> Result<Box<dyn SaslExchange>, SaslError> {
        let (credential, cnonce) = (self.clone(), context.nonce().to_owned());
        Ok(Box::new(DigestMd5 { credential, cnonce, proof: None }))
    }
}

/// An exchange of DIGEST-MD5.
struct DigestMd5 {
    credential: SaslCredential,
    /// The client's nonce.
    cnonce: String,
    /// The proof that the next token must contain; `None` while it must be the challenge.
    proof: Option<Proof>,
}

impl SaslExchange for DigestMd5 {
    /// The server sends the first challenge, but it has to be requested, with an empty token rather than no token.
    fn step(&mut self, token: Option<&[u8]>) -> Result<SaslAction, SaslError> {
        let Some(token) = token else { return Ok(SaslAction::Send(Vec::new())) };
        let Some(proof) = self.proof.take() else {
            let (user, password) = (self.credential.user(), self.credential.password());
            let response = digest_md5::respond(token, user, password, DIGEST_URI, &self.cnonce);
            let response = response.map_err(SaslError::retryable)?;
            self.proof = Some(response.proof);
            return Ok(SaslAction::Send(response.token));
        };
        match proof.is_given_by(token) {
            Ok(true) => Ok(SaslAction::Done),
            Ok(false) => {
                Err(SaslError::fatal("the server has not proved that it knows the SASL password"))
            }
            Err(unusable) => {
                Err(SaslError::retryable(format_args!("the last message: {unusable}")))
            }
        }
    }

    #[cfg(test)]
    fn expected_proof(&self) -> Option<String> {
        self.proof.as_ref().map(|proof| proof.expected().to_owned())
    }
}
