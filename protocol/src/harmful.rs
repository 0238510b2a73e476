//! Writes that stop a server.
//!
//! A server keeps the quotas of its tree in memory, as it finds them below `/zookeeper/quota`. It reads those nodes when it
//! has logged a write and applies it, so an error there ends the server. The write is in the log, so the server ends again
//! at each start. Seen with 3.8.0:
//!
//! | write | effect |
//! |---|---|
//! | create of `/zookeeper/quota/zookeeper_limits` | `PathTrie.addPath` refuses the empty path: the server stops |
//! | setData of `.../zookeeper_stats` that are no numbers | the next write below the quota stops the server, in `StatsTrack` |
//! | the same for `.../zookeeper_limits` | with `enforceQuota`, writes below the quota fail; servers before 3.7 read it as the statistics |
//!
//! Source: `DataTree.createNode`, `DataTree.updateQuotaStat`, `StatsTrack`, `Quotas`.

use core::fmt;

/// The node of the quotas.
const QUOTA: &[u8] = b"/zookeeper/quota";

/// The names of the nodes of a quota.
const LIMITS: &[u8] = b"/zookeeper_limits";
const STATS: &[u8] = b"/zookeeper_stats";

/// A write that would stop a server, at once or later. A session refuses to send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HarmfulWrite {
    /// Its place in a [`Multi`](crate::operation::Multi).
    pub index: Option<usize>,
    reason: &'static str,
}

impl HarmfulWrite {
    pub(crate) const fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

impl fmt::Display for HarmfulWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

const fn harmful(reason: &'static str) -> HarmfulWrite {
    HarmfulWrite { index: None, reason }
}

/// A create with this path.
#[inline]
pub(crate) fn create(path: &[u8], data: Option<&[u8]>) -> Option<HarmfulWrite> {
    path.strip_prefix(QUOTA).and_then(|subject| create_of_quota(subject, data))
}

#[cold]
fn create_of_quota(subject: &[u8], data: Option<&[u8]>) -> Option<HarmfulWrite> {
    if subject == LIMITS {
        return Some(harmful("a quota of the whole tree stops the server"));
    }
    // The server replaces the data of new statistics.
    if subject.ends_with(STATS) { None } else { set_data_of_quota(subject, data) }
}

/// A setData with this path.
#[inline]
pub(crate) fn set_data(path: &[u8], data: Option<&[u8]>) -> Option<HarmfulWrite> {
    path.strip_prefix(QUOTA).and_then(|subject| set_data_of_quota(subject, data))
}

#[cold]
fn set_data_of_quota(subject: &[u8], data: Option<&[u8]>) -> Option<HarmfulWrite> {
    let has_numbers = subject.ends_with(LIMITS) || subject.ends_with(STATS);
    (has_numbers && !are_numbers(data.unwrap_or_default())).then(|| {
        harmful("a quota that is no list of name=number stops the server at a later write below it")
    })
}

/// Whether these are `name=number`, separated by commas and semicolons. The servers themselves write a second `=` behind
/// the number of bytes when other numbers follow.
///
/// Source: `StatsTrack`.
fn are_numbers(data: &[u8]) -> bool {
    let is_number = |item: &str| {
        let number = item.split_once('=').filter(|(name, _)| !name.is_empty());
        number.is_some_and(|(_, number)| {
            number.strip_suffix('=').unwrap_or(number).parse::<i64>().is_ok()
        })
    };
    core::str::from_utf8(data).is_ok_and(|text| text.split([',', ';']).all(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_servers_read() {
        for text in
            ["count=1,bytes=2", "count=-1,bytes=-1=;byteHardLimit=5;countHardLimit=+6", "a=0"]
        {
            assert!(are_numbers(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "garbage",
            "count",
            "count=",
            "=1",
            "count=1,",
            ",count=1",
            "count=1,bytes",
            "c=1.5",
        ] {
            assert!(!are_numbers(text.as_bytes()), "{text}");
        }
        assert!(!are_numbers(b"count=99999999999999999999") && !are_numbers(b"\xff=1"));
    }

    #[test]
    fn only_quotas_are_looked_at() {
        let garbage = Some(&b"garbage"[..]);
        for path in [
            "/zookeeper_stats",
            "/zookeeper/quota",
            "/zookeeper/quota/a",
            "/zookeeper/quota/a/zookeeper_stats/b",
            "/app/zookeeper/quota/a/zookeeper_stats",
        ] {
            assert_eq!(set_data(path.as_bytes(), garbage), None, "{path}");
            assert_eq!(create(path.as_bytes(), garbage), None, "{path}");
        }
        let stats = b"/zookeeper/quota/a/zookeeper_stats";
        let limits = b"/zookeeper/quota/a/zookeeper_limits";
        assert!(set_data(stats, garbage).is_some() && set_data(stats, None).is_some());
        assert_eq!((set_data(stats, Some(b"count=1")), create(stats, garbage)), (None, None));
        assert!(set_data(limits, garbage).is_some() && create(limits, garbage).is_some());
        assert!(create(b"/zookeeper/quota/zookeeper_limits", Some(b"count=1")).is_some());
    }
}
