//! What happened to a lock.

use std::fmt;

use docent_session::{ErrorKind, Outcome};

/// Why a recipe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An operation on the session failed, and the retry policy did not allow another try.
    Session(docent_session::Error),
    /// The server's sequence counter has come to its end below this path: 2147483647 is reached, negative
    /// numbers are handed out, or one number twice. No order can be told from the numbers any more, so
    /// nobody is given the lock. Delete the path once nobody uses it; the server then counts from 0.
    SequenceExhausted {
        /// The lock's path.
        path: String,
    },
    /// The hold is over: its session has ended or its node is gone.
    LockLost {
        /// The lock's path.
        path: String,
    },
    /// The path cannot be that of a lock.
    InvalidPath(String),
}

impl Error {
    /// What kind of session error it is, if it is one.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Session(error) => Some(error.kind()),
            _ => None,
        }
    }

    pub(crate) fn is_no_node(&self) -> bool {
        self.kind() == Some(ErrorKind::NoNode)
    }

    /// That our own node is not among the children.
    ///
    /// Source: `StandardLockInternalsDriver.validateOurIndex`.
    pub(crate) fn own_node_missing(name: &str) -> Self {
        Self::Session(
            docent_session::Error::new(ErrorKind::NoNode, Outcome::NotApplied)
                .with_detail(format_args!("sequential path not found: {name}")),
        )
    }
}

impl From<docent_session::Error> for Error {
    fn from(error: docent_session::Error) -> Self {
        Self::Session(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::SequenceExhausted { path } => write!(
                f,
                "the sequence counter below {path} is used up: delete {path} once nobody uses it"
            ),
            Self::LockLost { path } => write!(f, "the lock {path} was lost"),
            Self::InvalidPath(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // `Display` says the whole of a session error already.
        None
    }
}
