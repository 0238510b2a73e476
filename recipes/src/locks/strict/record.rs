//! The record of the last holder: the data of a strict mutex's node.
//!
//! ```text
//! docent-strict-mutex/1 free token=0
//! docent-strict-mutex/1 held token=4294967298 claim_ms=9900 session=0x1000 node=_c_…-strict-lock-0000000007
//! ```
//!
//! It is text, so that `docent get` shows it. A record that this version cannot read is an error, and is never replaced.

use std::{fmt, time::Duration};

use docent_session::{Error, Node};

use crate::error;

/// The beginning of a record: the format and its version.
const MARKER: &str = "docent-strict-mutex/1";

/// The beginning of the markers of all versions.
const FORMAT: &str = "docent-strict-mutex/";

/// The last holder of the lock, unless it has released it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The greatest fencing token that was granted; 0 before the first hold.
    pub(super) token: i64,
    /// The holder, until it releases the lock; `None` when the lock is free.
    pub(super) holder: Option<Holder>,
}

/// A holder that has not released the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    /// The name of its lock node.
    pub(super) node: String,
    pub(super) session: i64,
    /// How long a claim of it lasts on an exact clock, from the send time of the write that renews it.
    pub(super) claim: Duration,
}

impl Record {
    pub(super) const fn free(token: i64) -> Self {
        Self { token, holder: None }
    }

    /// Reads the node at `path`.
    ///
    /// A token is the zxid of a write before that of its record. A record for which that is not so was copied: from
    /// another ensemble, whose zxids are no measure here.
    pub(super) fn read(node: &Node, path: &str) -> Result<Self, Error> {
        let record = Self::parse(&node.data, path)?;
        if record.token >= node.stat.mzxid {
            return Err(error::foreign_record(path, record.token, node.stat.mzxid));
        }
        Ok(record)
    }

    fn parse(data: &[u8], path: &str) -> Result<Self, Error> {
        let text = std::str::from_utf8(data).unwrap_or_default();
        if !text.starts_with(FORMAT) {
            return Err(error::foreign_node(path, "its data are no record of a strict mutex"));
        }
        parse(text).ok_or_else(|| error::bad_record(path))
    }
}

fn parse(text: &str) -> Option<Record> {
    let mut words = text.split(' ');
    let (marker, state) = (words.next()?, words.next()?);
    let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
    let token = value("token")?.parse().ok().filter(|token| *token >= 0)?;
    let holder = match state {
        "free" => None,
        "held" => Some(Holder {
            claim: Duration::from_millis(value("claim_ms")?.parse::<u32>().ok()?.into()),
            // The bits of an i64, as ZooKeeper prints them.
            session: u64::from_str_radix(value("session")?.strip_prefix("0x")?, 16)
                .ok()?
                .cast_signed(),
            node: Some(value("node")?).filter(|node| !node.is_empty())?.to_owned(),
        }),
        _ => return None,
    };
    (marker == MARKER && words.next().is_none()).then_some(Record { token, holder })
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token;
        match &self.holder {
            None => write!(f, "{MARKER} free token={token}"),
            Some(Holder { node, session, claim }) => {
                let claim = claim.as_millis();
                write!(
                    f,
                    "{MARKER} held token={token} claim_ms={claim} session={session:#x} node={node}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use docent_session::ErrorKind;

    use super::*;

    fn kind(data: &[u8]) -> ErrorKind {
        Record::parse(data, "/lock").unwrap_err().kind()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for session in [0x1000, -2, i64::MIN] {
            let holder = Holder {
                node: "_c_a-strict-lock-0000000007".to_owned(),
                session,
                claim: Duration::from_millis(9_900),
            };
            for record in
                [Record { token: 7, holder: Some(holder) }, Record::free(0), Record::free(i64::MAX)]
            {
                assert_eq!(Record::parse(record.to_string().as_bytes(), "/lock").unwrap(), record);
            }
        }
    }

    #[test]
    fn data_of_others_are_foreign() {
        for data in [&b""[..], b"10.0.0.1", b"\xff", b"docent-strict-mute"] {
            assert_eq!(kind(data), ErrorKind::ForeignNode, "{data:?}");
        }
    }

    #[test]
    fn a_damaged_record_is_an_error_and_never_free() {
        let whole = "docent-strict-mutex/1 held token=1 claim_ms=9900 session=0x1 node=a";
        assert!(parse(whole).is_some());
        for end in FORMAT.len()..whole.len() {
            assert_eq!(kind(&whole.as_bytes()[..end]), ErrorKind::BadReply, "{end}");
        }
        for damaged in [
            "docent-strict-mutex/2 free token=0",
            "docent-strict-mutex/1 free token=-1",
            "docent-strict-mutex/1 free token=0 ",
            "docent-strict-mutex/1 gone token=0",
            "docent-strict-mutex/1 held token=1 claim_ms=-1 session=0x1 node=a",
            "docent-strict-mutex/1 held token=1 claim_ms=4294967296 session=0x1 node=a",
            "docent-strict-mutex/1 held token=1 claim_ms=1 session=1 node=a",
            "docent-strict-mutex/1 held token=1 claim_ms=1 session=0x1 node=a b",
        ] {
            assert_eq!(kind(damaged.as_bytes()), ErrorKind::BadReply, "{damaged}");
        }
    }
}
