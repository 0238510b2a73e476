//! Exit codes and error messages of the commands.
#![cfg_attr(not(unix), allow(dead_code, reason = "docent lock and docent lead use the rest"))]

use std::fmt;

use docent::ErrorKind;

/// The node does not exist.
pub(crate) const NO_NODE: u8 = 1;
/// An option, a path or an address is invalid, and nothing was done. `EX_USAGE`, as in flock(1).
pub(crate) const USAGE: u8 = 64;
/// The server rejected the operation: version mismatch, existing node, children, quota. `EX_DATAERR`.
pub(crate) const REFUSED: u8 = 65;
/// No server is reachable, or the session was lost. `EX_UNAVAILABLE`.
pub(crate) const NO_SERVER: u8 = 69;
/// An unexpected error. `EX_SOFTWARE`.
pub(crate) const SOFTWARE: u8 = 70;
/// A system call failed. `EX_OSERR`, as in flock(1).
pub(crate) const OS: u8 = 71;
/// A file or the output cannot be read or written. `EX_IOERR`.
pub(crate) const IO: u8 = 74;
/// Not allowed by an ACL, or the credentials were rejected. `EX_NOPERM`.
pub(crate) const NO_PERMISSION: u8 = 77;
/// The configuration file is invalid. `EX_CONFIG`.
pub(crate) const CONFIG: u8 = 78;
/// The lock was not acquired, or the time of `docent watch` or `tree` is up; timeout(1) uses this code for a timeout.
pub(crate) const NOT_ACQUIRED: u8 = 124;
/// The lock or leadership was lost, or the lock was revoked, while the command ran.
pub(crate) const LOST: u8 = 125;
/// The command cannot be executed; the code of shells.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found; the code of shells.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of a signal, as shells do.
pub(crate) const SIGNAL: u8 = 128;

/// Returns 128 plus the number of a signal.
pub(crate) fn from_signal(signal: i32) -> u8 {
    SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// The exit codes in the help of commands that read and write nodes.
pub(crate) const HELP: &str = "\
Exit codes:
  0   done
  1   no such node
  64  wrong usage: an option, a path or an address; nothing was done
  65  rejected: the version differs, the node exists or has children, a quota
  69  no server, or the session was lost
  74  a file or the output cannot be read or written
  77  not allowed by the ACL, or the credentials were rejected
  78  the configuration file is invalid
  70, 71  other errors: of the server, of the operating system
  128+N  ended by signal N";

/// The error of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Whether the code is the value of an option.
    is_chosen: bool,
    text: String,
}

/// The exit code of a command, or its error.
pub(crate) type CommandResult = Result<u8, Failure>;

impl Failure {
    pub(crate) fn new(code: u8, text: impl fmt::Display) -> Self {
        Self { code, is_chosen: false, text: text.to_string() }
    }

    /// An error with an exit code that is the value of an option.
    pub(crate) fn with_chosen_code(code: u8, text: impl fmt::Display) -> Self {
        Self { is_chosen: true, ..Self::new(code, text) }
    }

    pub(crate) fn usage(text: impl fmt::Display) -> Self {
        Self::new(USAGE, text)
    }

    /// A failed system call.
    pub(crate) fn os(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(OS, format_args!("{what}: {error}"))
    }

    /// The chroot of the connect string does not exist.
    pub(crate) fn missing_chroot(chroot: &str) -> Self {
        Self::usage(format_args!("the chroot {chroot} does not exist; {CHROOT_ADVICE}"))
    }

    /// Converts this to a failure of a command that guards another one, so that its exit code is not taken for
    /// that command's.
    pub(crate) fn of_a_guard(self) -> Self {
        let is_ambiguous = self.code == NO_NODE && !self.is_chosen;
        Self { code: if is_ambiguous { SOFTWARE } else { self.code }, ..self }
    }

    /// Whether no message is printed, because the output was closed by its reader.
    pub(crate) const fn is_silent(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
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
        | ErrorKind::Unanswered
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
        | ErrorKind::ReplyTooLarge
        | ErrorKind::ForeignNode
        | ErrorKind::ForeignRecord => REFUSED,
        _ => SOFTWARE,
    }
}

const SASL_ADVICE: &str = "; check --sasl (or DOCENT_SASL): a file with USER:PASSWORD";

const CHROOT_ADVICE: &str = "check --connect (or DOCENT_CONNECT), or create it with `docent create -p` and the servers without a chroot";

/// Suggests what the user can do about an error.
fn advice(error: &docent::Error) -> &'static str {
    let detail = error.detail().unwrap_or_default();
    let is_about_sasl = detail.contains("SASL");
    match error.kind() {
        // The text already contains the remedy.
        _ if detail.contains("X.509 version 1") => "",
        _ if error.is_tls_mismatch() && detail.contains("without TLS") => {
            "; connect with --tls-ca FILE (or DOCENT_TLS_CA)"
        }
        ErrorKind::ConnectionLoss if detail.contains("TLS?") => {
            "; check the port (--connect, DOCENT_CONNECT), and whether it requires --tls-ca"
        }
        _ if error.is_tls_mismatch() || detail.contains("TLS: ") => {
            "; check --tls-ca, --tls-server-name, --tls-cert (or DOCENT_TLS_CA, ...)"
        }
        ErrorKind::SessionClosedRequireSaslAuth => SASL_ADVICE,
        ErrorKind::AuthFailed | ErrorKind::ConnectionLoss if is_about_sasl => SASL_ADVICE,
        ErrorKind::NoAuth => {
            "; it needs the credentials of a user that the ACL names: --auth digest:USER:PASSWORD (or DOCENT_AUTH); a wrong password is not reported otherwise"
        }
        ErrorKind::AuthFailed => "; check --auth (or DOCENT_AUTH): SCHEME:CREDENTIALS",
        ErrorKind::InvalidPath => "; a path looks like /a/b",
        ErrorKind::InvalidConfig => "; change this setting",
        ErrorKind::OperationTimeout => {
            "; the server is slow or hangs: raise --request-timeout (or DOCENT_REQUEST_TIMEOUT), or choose another (--connect)"
        }
        ErrorKind::ConnectionLoss | ErrorKind::Unanswered => {
            "; check that a server listens there (--connect, DOCENT_CONNECT)"
        }
        ErrorKind::ForeignNode => "; all clients of a strict lock use --strict",
        ErrorKind::NoNode => "; check the path: `docent ls` lists the nodes below another one",
        ErrorKind::NodeExists => "; choose another path, or change the node with `docent set`",
        ErrorKind::NoChildrenForEphemerals => "; create it below another node",
        ErrorKind::NotEmpty => "; -r deletes the children too",
        ErrorKind::BadVersion => "; `docent stat` shows the version",
        ErrorKind::InvalidAcl => "; check --acl: `auth::` requires --auth (or DOCENT_AUTH)",
        ErrorKind::NotReadOnly => "; the server has lost its quorum, retry later",
        ErrorKind::Unimplemented => "; the operation requires a newer server",
        ErrorKind::QuotaExceeded => "; delete data, or raise the quota below /zookeeper/quota",
        ErrorKind::RequestTooLarge | ErrorKind::ReplyTooLarge => {
            "; do it in several parts, or raise jute.maxbuffer of the servers"
        }
        ErrorKind::SessionExpired
        | ErrorKind::SessionMoved
        | ErrorKind::ThrottledOp
        | ErrorKind::TooManyRequests
        | ErrorKind::LockLost
        | ErrorKind::Closed => "; run the command again",
        ErrorKind::BadReply | ErrorKind::MarshallingError => {
            "; check that a ZooKeeper server listens there (--connect, DOCENT_CONNECT)"
        }
        ErrorKind::SequenceExhausted => "",
        _ => "; the log of the server may have the reason",
    }
}

impl From<docent::Error> for Failure {
    fn from(error: docent::Error) -> Self {
        if error.is_missing_chroot() {
            return Self::usage(format_args!("{error}; {CHROOT_ADVICE}"));
        }
        Self::new(code(error.kind()), format_args!("{error}{}", advice(&error)))
    }
}

/// Converts an error of the output. A closed output ends the command without a message.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(IO, "");
        }
        Self::new(IO, format_args!("cannot write the output: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use docent::Outcome;
    use docent_protocol::ErrorCode;

    use super::*;

    // Case (Found in docent itself): errors of missing nodes, existing ones and `decode` suggested
    // nothing; that of wrong credentials suggested to authenticate.
    #[test]
    fn every_error_suggests_a_remedy() {
        let kinds = ErrorCode::NAMED.iter().filter_map(|code| ErrorKind::from_code(*code)).chain([
            ErrorKind::Closed,
            ErrorKind::RequestTooLarge,
            ErrorKind::ReplyTooLarge,
            ErrorKind::BadReply,
            ErrorKind::TooManyRequests,
            ErrorKind::InvalidPath,
            ErrorKind::InvalidConfig,
            ErrorKind::LockLost,
            ErrorKind::SequenceExhausted,
            ErrorKind::ForeignNode,
        ]);
        for kind in kinds {
            let error = docent::Error::new(kind, Outcome::NotApplied);
            let text = error.to_string();
            let failure = Failure::from(error).to_string();
            // The text about an exhausted sequence ends with its remedy.
            let remedy = failure.strip_prefix(&text).unwrap();
            assert!(remedy.starts_with("; ") || failure.contains(": delete the path"), "{failure}");
        }
    }
}
