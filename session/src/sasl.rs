//! SASL authentication: who the client is, and what ZooKeeper wants to hear of it.

use std::fmt;

use crate::{Config, Error, ErrorKind};

pub(crate) mod digest_md5;

/// What every ZooKeeper server calls itself, whatever its host is.
///
/// Source: `ZooKeeperSaslClient`, `ZooKeeperSaslServer`.
pub(crate) const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// The longest user name, in bytes: a server need not read a response of 4,096 bytes (RFC 2831, 2.1.2).
const MAX_USER: usize = 1024;

/// A user and a password for SASL's DIGEST-MD5. `Debug` does not show the password.
///
/// The password never travels, but MD5 is weak: who listens can try out passwords. Use TLS as well.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslCredential {
    user: Box<str>,
    password: Box<str>,
}

impl SaslCredential {
    /// As the server's JAAS configuration has them (`user_NAME="password"`).
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

    /// The user: `sasl:USER` in ACLs.
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

impl Config {
    /// Proves to each server by SASL's DIGEST-MD5 that it is this user, and lets the server prove that it
    /// knows the password too. Nothing else is sent before that. Needs the feature `sasl`.
    ///
    /// A server that refuses the user, that has no SASL, or that cannot prove itself ends the client with
    /// [`AuthFailed`](ErrorKind::AuthFailed), as in Java. A server that takes the session and then says
    /// nothing of use is left for the next one. (3.4 closes the connection instead of refusing: that looks
    /// the same.)
    ///
    /// # Errors
    ///
    /// `InvalidConfig`, as [`SaslCredential::new`].
    ///
    /// # Example
    ///
    /// ```
    /// use docent_session::Config;
    ///
    /// let config = Config::new("zk1:2181,zk2:2181")?.with_sasl("bob", "bob's password")?;
    /// # let _ = config;
    /// # Ok::<(), docent_session::Error>(())
    /// ```
    ///
    /// Source: `ZooKeeperSaslClient`, `DigestLoginModule`; op 102; RFC 2831.
    pub fn with_sasl(mut self, user: &str, password: &str) -> Result<Self, Error> {
        self.sasl = Some(SaslCredential::new(user, password)?);
        Ok(self)
    }
}

/// Where the client's nonces come from: never the same twice, and not to be guessed by who has seen others.
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
    fn what_is_no_user_is_refused_with_the_rule() {
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
        let config = Config::new("a:1").unwrap().with_sasl("bob", "hunter2").unwrap();
        let shown = format!("{config:?} {:?}", config.sasl);
        assert!(shown.contains("bob") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn no_nonce_comes_twice() {
        let (mut one, mut other) = (Nonces::new([1; 16]), Nonces::new([2; 16]));
        let all = std::collections::BTreeSet::from([one.next(), one.next(), other.next()]);
        assert_eq!(all.len(), 3);
    }
}
