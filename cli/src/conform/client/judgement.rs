//! What a client does under a fault, and how that is judged.

use std::fmt;

use docent_conform::VerdictKind;

/// Something that no client may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// The driver says what is not so.
    Untrue(String),
    /// It says nothing where an answer is due.
    Hangs(String),
    /// Its process ends.
    Ends(String),
    /// Something stays that should have gone: a session, a process, memory.
    Leaks(String),
    /// It answers with a line that is no answer.
    Nonsense(String),
    /// The server of the case failed, so that nothing was found out.
    NoCase(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, text) = match self {
            Self::Untrue(text) => ("says something untrue", text),
            Self::Hangs(text) => ("hangs", text),
            Self::Ends(text) => ("ends", text),
            Self::Leaks(text) => ("leaks", text),
            Self::Nonsense(text) => ("prints nonsense", text),
            Self::NoCase(text) => ("not tested", text),
        };
        write!(f, "{kind}: {text}")
    }
}

/// What a client did, if it did nothing wrong: `recovers`, or `says CONNECTIONLOSS, recovers`.
pub(super) type Judged = Result<String, Finding>;

/// The result of a case, with the text of its report.
pub(super) fn verdict(judged: Judged) -> (VerdictKind, String) {
    match judged {
        Ok(text) => (VerdictKind::Pass, text),
        Err(Finding::NoCase(text)) => (VerdictKind::Skip, text),
        Err(finding) => (VerdictKind::Fail, finding.to_string()),
    }
}

/// Whether an error says that the operation was not applied, by ZooKeeper's names of the codes.
pub(super) fn is_definite(error: &str) -> bool {
    let word = error.split(' ').next().unwrap_or_default();
    let name: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_uppercase();
    let name = name.trim_end_matches("EXCEPTION").trim_end_matches("ERROR");
    ["NONODE", "NODEEXISTS", "BADVERSION", "NOTEMPTY", "NOAUTH"].contains(&name)
}
