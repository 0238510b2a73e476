//! What commands end with: an exit code, and a line that says why.
#![cfg_attr(not(unix), allow(dead_code, reason = "docent lock uses them"))]

use std::fmt;

use docent::{ErrorKind, recipes};

/// There is no such node.
pub(crate) const NO_NODE: u8 = 1;
/// The command line, a path or an address is wrong: nothing was done. `EX_USAGE`, as flock(1).
pub(crate) const USAGE: u8 = 64;
/// The server refused it: a version, a node that exists, children, a quota. `EX_DATAERR`.
pub(crate) const REFUSED: u8 = 65;
/// No server, or no session. `EX_UNAVAILABLE`.
pub(crate) const NO_SERVER: u8 = 69;
/// Something that should not happen. `EX_SOFTWARE`.
pub(crate) const SOFTWARE: u8 = 70;
/// The operating system refused something. `EX_OSERR`, as flock(1).
pub(crate) const OS: u8 = 71;
/// A file, or the output. `EX_IOERR`.
pub(crate) const IO: u8 = 74;
/// Not allowed. `EX_NOPERM`.
pub(crate) const NO_PERMISSION: u8 = 77;
/// The configuration file is wrong. `EX_CONFIG`.
pub(crate) const CONFIG: u8 = 78;
/// The lock was not got: as timeout(1) when the time is up.
pub(crate) const NOT_ACQUIRED: u8 = 124;
/// The lock was lost, or asked back, while the command ran.
pub(crate) const LOST: u8 = 125;
/// The command cannot be executed, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of a signal, as in a shell.
pub(crate) const SIGNAL: u8 = 128;

/// 128 and a signal's number.
pub(crate) fn of_signal(signal: i32) -> u8 {
    SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// The table for the help of commands on nodes.
pub(crate) const TABLE: &str = "\
Exit codes:
  0   done
  1   no such node
  64  wrong usage: an option, a path or an address; nothing was done
  65  refused: the version differs, the node exists or has children, a quota
  69  no server, or the session was lost
  74  a file or the output could not be read or written
  77  not allowed by the ACL, or the credentials were refused
  78  the configuration file is wrong
  70, 71  anything else: of the server, of the operating system
  128+N  ended by signal N";

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    text: String,
}

/// What a command comes to: its exit code, or why not.
pub(crate) type Ended = Result<u8, Failure>;

impl Failure {
    pub(crate) fn new(code: u8, text: impl fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }

    pub(crate) fn usage(text: impl fmt::Display) -> Self {
        Self::new(USAGE, text)
    }

    /// What the operating system did not let us do.
    pub(crate) fn os(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(OS, format_args!("{what}: {error}"))
    }

    /// Whether it is only that nobody reads the output any more.
    pub(crate) const fn is_silent(&self) -> bool {
        self.text.is_empty()
    }
}

/// One line, whatever is in it.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        one_line(&self.text, f)
    }
}

fn one_line(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, word) in text.split(['\n', '\r']).map(str::trim).enumerate() {
        if index > 0 && !word.is_empty() {
            f.write_str(" ")?;
        }
        for char in word.chars() {
            if char.is_control() {
                write!(f, "{}", char.escape_default())?
            } else {
                write!(f, "{char}")?
            }
        }
    }
    Ok(())
}

const fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::NoNode => NO_NODE,
        ErrorKind::NoAuth | ErrorKind::AuthFailed | ErrorKind::SessionClosedRequireSaslAuth => {
            NO_PERMISSION
        }
        ErrorKind::InvalidPath | ErrorKind::InvalidConfig => USAGE,
        ErrorKind::ConnectionLoss
        | ErrorKind::SessionExpired
        | ErrorKind::SessionMoved
        | ErrorKind::OperationTimeout
        | ErrorKind::Closed => NO_SERVER,
        ErrorKind::BadVersion
        | ErrorKind::NoChildrenForEphemerals
        | ErrorKind::NodeExists
        | ErrorKind::NotEmpty
        | ErrorKind::InvalidAcl
        | ErrorKind::NotReadOnly
        | ErrorKind::BadArguments
        | ErrorKind::Unimplemented
        | ErrorKind::QuotaExceeded
        | ErrorKind::ThrottledOp
        | ErrorKind::RequestTooLarge
        | ErrorKind::ReplyTooLarge => REFUSED,
        _ => SOFTWARE,
    }
}

/// What to do about it.
const fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NoAuth => "; show who you are with --auth digest:USER:PASSWORD (or DOCENT_AUTH)",
        ErrorKind::AuthFailed => "; check --auth (or DOCENT_AUTH): SCHEME:CREDENTIALS",
        ErrorKind::InvalidPath => "; a path looks like /a/b",
        ErrorKind::InvalidConfig => "",
        ErrorKind::ConnectionLoss | ErrorKind::OperationTimeout => {
            "; does a server listen there? (--connect, DOCENT_CONNECT)"
        }
        ErrorKind::NotEmpty => "; -r deletes them too",
        ErrorKind::BadVersion => "; `docent stat` tells it",
        ErrorKind::NotReadOnly => "; the server has lost its quorum, try again later",
        ErrorKind::Unimplemented => "; it needs a newer server",
        _ => "",
    }
}

impl From<docent::Error> for Failure {
    fn from(error: docent::Error) -> Self {
        let kind = error.kind();
        Self::new(code(kind), format_args!("{error}{}", advice(kind)))
    }
}

impl From<recipes::Error> for Failure {
    fn from(error: recipes::Error) -> Self {
        match error {
            recipes::Error::Session(error) => error.into(),
            recipes::Error::InvalidPath(_) => {
                Self::usage(format_args!("{error}; a lock's path looks like /locks/name"))
            }
            error => Self::new(SOFTWARE, error),
        }
    }
}

/// What cannot be printed: a reader that has gone is no reason to complain.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { code: IO, text: String::new() };
        }
        Self::new(IO, format_args!("cannot write the output: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_is_in_it() {
        let failure = Failure::usage("one\n  two\r\n\nthree\u{7}");
        assert_eq!(failure.to_string(), "one two three\\u{7}");
    }
}
