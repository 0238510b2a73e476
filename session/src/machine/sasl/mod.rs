//! SASL authentication: the mechanisms, and the credential of DIGEST-MD5.

use std::fmt;

use crate::{Error, ErrorKind};

pub(crate) mod digest_md5;
mod exchange;
mod mechanism;

pub(crate) use mechanism::SaslSteps;
pub use mechanism::{
    SaslAction, SaslContext, SaslError, SaslExchange, SaslMechanism, SaslStep, SaslStepResult,
};

/// The name that every ZooKeeper server uses, whatever its host is.
///
/// Source: `ZooKeeperSaslClient`, `ZooKeeperSaslServer`.
pub(crate) const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// The maximum length of a user name, in bytes: a server need not accept a response of 4,096 bytes (RFC 2831, 2.1.2).
const MAX_USER: usize = 1024;

/// A user and a password for SASL's DIGEST-MD5, which is a [`SaslMechanism`]. `Debug` does not show the password.
///
/// The password is never sent, but MD5 is weak: an eavesdropper can test passwords. Use TLS as well.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslCredential {
    user: Box<str>,
    password: Box<str>,
}

impl SaslCredential {
    /// A credential as in the server's JAAS configuration (`user_NAME="password"`).
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: the user or the password is empty, the user has more than 1,024 bytes or a control
    /// character.
    pub fn new(user: &str, password: &str) -> Result<Self, Error> {
        let rule = if user.is_empty() {
            "the SASL user is empty"
        } else if user.len() > MAX_USER {
            "the SASL user has more than 1,024 bytes"
        } else if user.contains(char::is_control) {
            "the SASL user has a control character in it"
        } else if password.is_empty() {
            "the SASL password is empty"
        } else {
            return Ok(Self { user: user.into(), password: password.into() });
        };
        Err(Error::refused(ErrorKind::InvalidConfig, rule))
    }

    /// The user, as in the ACL id `sasl:USER`.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for SaslCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslCredential").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The source of the client's nonces: they never repeat, and cannot be predicted from earlier ones.
#[derive(Clone)]
pub(crate) struct Nonces {
    secret: [u8; 16],
    made: u64,
}

impl Nonces {
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self { secret, made: 0 }
    }

    pub(crate) fn next(&mut self) -> String {
        self.made += 1;
        digest_md5::hash(&[&self.secret, &self.made.to_be_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_user_is_refused_with_the_rule() {
        for (user, password, part) in [
            ("", "pw", "the SASL user is empty"),
            ("bob", "", "the SASL password is empty"),
            ("b\0b", "pw", "control character"),
            ("b\nb", "pw", "control character"),
            (&*"b".repeat(1025), "pw", "1,024 bytes"),
        ] {
            let error = SaslCredential::new(user, password).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(SaslCredential::new("bob@EXAMPLE", "\0").unwrap().user(), "bob@EXAMPLE");
    }

    #[test]
    fn debug_shows_no_password() {
        let config = crate::Config::new("a:1").unwrap().with_sasl("bob", "hunter2");
        let shown = format!("{config:?} {:?}", config.session.sasl);
        assert!(shown.contains("bob") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn no_nonce_comes_twice() {
        let (mut one, mut other) = (Nonces::new([1; 16]), Nonces::new([2; 16]));
        let all = std::collections::BTreeSet::from([one.next(), one.next(), other.next()]);
        assert_eq!(all.len(), 3);
    }
}
