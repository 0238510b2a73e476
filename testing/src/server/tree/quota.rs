//! Quotas: the limits and the statistics below `/zookeeper/quota`.
//!
//! A path has a quota while the node `zookeeper_limits` exists for it. Each change below it is counted in the node
//! `zookeeper_stats`, without a new version and without an event. Of several paths with a quota, the longest counts.
//!
//! Source: `DataTree.updateQuotaStat`, `StatsTrack`, `ZooKeeperServer.checkQuota`.

use std::{collections::BTreeMap, fmt::Write as _};

use bytes::Bytes;
use docent_protocol::ErrorCode;

use super::{Change, Tree};

const QUOTA: &str = "/zookeeper/quota";

/// The name of the node of the limits, and of the statistics.
const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";

/// The limit of the whole tree: its creation stops a real server.
pub(crate) const ROOT_LIMITS: &str = "/zookeeper/quota/zookeeper_limits";

/// The path whose quota a node below `/zookeeper/quota` belongs to, if it has this name.
fn subject<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    path.strip_prefix(QUOTA)?.strip_suffix(name).filter(|path| !path.is_empty())
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Tree {
    /// The longest path with a quota at or above a path.
    fn path_with_quota<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.quotas == 0 {
            return None;
        }
        let ends = path.rmatch_indices('/').map(|(at, _)| at);
        let mut above = std::iter::once(path.len()).chain(ends).filter_map(|end| path.get(..end));
        above.find(|path| !path.is_empty() && self.get(&format!("{QUOTA}{path}{LIMITS}")).is_some())
    }

    /// Counts a change, as a real server does once it has applied it.
    pub(super) fn count_in_quotas(&mut self, change: &Change) {
        let (path, bytes, count) = match change {
            Change::Created { path, bytes, .. } => (path, *bytes, 1),
            Change::Deleted { path, bytes, .. } => (path, -bytes, -1),
            Change::DataChanged { path, bytes, .. } => (path, *bytes, 0),
        };
        if subject(path, LIMITS).is_some() {
            self.quotas = self.quotas.saturating_add_signed(count);
        }
        if let Some(subject) = subject(path, STATS).filter(|_| count == 1) {
            let below = format!("{subject}/");
            let itself = self.nodes.range(subject.to_owned()..).take(1);
            let nodes = itself.filter(|(path, _)| *path == subject);
            let nodes = nodes.chain(self.nodes.range(below.clone()..));
            let nodes = nodes.take_while(|(path, _)| *path == subject || path.starts_with(&below));
            let len = |node: &super::Node| node.data.as_ref().map_or(0, Bytes::len);
            let (count, bytes) = nodes.fold((0, 0), |(c, b), (_, node)| (c + 1, b + len(node)));
            let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
            let stats = Track::new(number(count), number(bytes));
            if let Some(node) = self.get_mut(path) {
                node.data = Some(stats.to_string().into());
            }
        }
        let Some(subject) = self.path_with_quota(path) else { return };
        let stats = format!("{QUOTA}{subject}{STATS}");
        let Some(node) = self.get_mut(&stats) else { return };
        // Statistics that are not numbers stop a real server.
        let Ok(mut stats) = Track::parse(node.data.as_deref()) else { return };
        stats.add("count", count as i64);
        stats.add("bytes", bytes);
        node.data = Some(stats.to_string().into());
    }

    /// Checks a change of `bytes` and `count` at a path against the hard limits of its quota.
    pub(crate) fn check_quota(&self, path: &str, bytes: i64, count: i64) -> Result<(), ErrorCode> {
        if (bytes > 0 || count > 0)
            && self.full.as_ref().is_some_and(|full| is_at_or_below(path, full))
        {
            return Err(ErrorCode::QuotaExceeded);
        }
        let Some(subject) = self.path_with_quota(path) else { return Ok(()) };
        let node = |name: &str| self.get(&format!("{QUOTA}{subject}{name}"));
        let (Some(limits), Some(stats)) = (node(LIMITS), node(STATS)) else { return Ok(()) };
        let limits = Track::parse(limits.data.as_deref())?;
        let stats = Track::parse(stats.data.as_deref())?;
        for (name, limit, change) in
            [("count", "countHardLimit", count), ("bytes", "byteHardLimit", bytes)]
        {
            let limit = limits.get(limit);
            // A sum that is too large wraps, as in a real server.
            if change != 0 && limit > -1 && stats.get(name).wrapping_add(change) > limit {
                return Err(ErrorCode::QuotaExceeded);
            }
        }
        Ok(())
    }
}

/// Numbers by name: `count=1,bytes=2`, followed by further ones after semicolons.
struct Track(BTreeMap<String, i64>);

impl Track {
    fn new(count: i64, bytes: i64) -> Self {
        Self([("count".to_owned(), count), ("bytes".to_owned(), bytes)].into())
    }

    fn parse(data: Option<&[u8]>) -> Result<Self, ErrorCode> {
        let text = String::from_utf8_lossy(data.unwrap_or_default());
        let items = text.split([',', ';']).filter(|item| !item.is_empty());
        let pairs = items.map(|item| {
            let (name, number) = item.split_once('=')?;
            let number = number.split('=').next()?.parse().ok()?;
            Some((name.to_owned(), number))
        });
        let pairs: Option<_> = pairs.collect();
        pairs.map(Self).ok_or(ErrorCode::MarshallingError)
    }

    /// A number; -1 if it is missing.
    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(-1)
    }

    fn add(&mut self, name: &str, number: i64) {
        let sum = self.get(name).wrapping_add(number);
        self.0.insert(name.to_owned(), sum);
    }
}

impl std::fmt::Display for Track {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "count={},bytes={}", self.get("count"), self.get("bytes"))?;
        let mut others =
            self.0.iter().filter(|(name, _)| !matches!(name.as_str(), "count" | "bytes"));
        let mut rest = String::new();
        others.try_for_each(|(name, number)| write!(rest, ";{name}={number}"))?;
        // A real server writes `=` in front of the others, too.
        if rest.is_empty() { Ok(()) } else { write!(f, "={rest}") }
    }
}
