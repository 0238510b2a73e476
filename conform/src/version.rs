//! Versions of servers, and the ranges of versions for which a case or a line of it is meant.

use std::fmt;

/// The implementations of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    ZooKeeper,
    Keeper,
}

/// The version of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    family: Family,
    number: [u16; 3],
}

impl Version {
    /// A placeholder until the server's version is known.
    pub(crate) const UNKNOWN: Self = Self { family: Family::ZooKeeper, number: [0; 3] };

    /// Parses `3.8`, `3.9.5` or `keeper-26.6`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("keeper-") {
            Some(number) => Some(Self { family: Family::Keeper, number: read_number(number)? }),
            None => Some(Self { family: Family::ZooKeeper, number: read_number(text)? }),
        }
    }

    /// Parses the reply to `srvr`.
    pub(crate) fn of_status(reply: &str) -> Option<Self> {
        let line = |name: &str| reply.lines().find_map(|line| line.strip_prefix(name));
        let (family, rest) = match line("Zookeeper version: ") {
            Some(rest) => (Family::ZooKeeper, rest),
            None => (Family::Keeper, line("ClickHouse Keeper version: v")?),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        Some(Self { family, number: read_number(rest.get(..end)?)? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.number;
        match self.family {
            Family::ZooKeeper => write!(f, "{major}.{minor}.{patch}"),
            Family::Keeper => write!(f, "keeper-{major}.{minor}"),
        }
    }
}

/// The first three numbers of a version; missing ones are 0.
fn read_number(text: &str) -> Option<[u16; 3]> {
    let mut number = [0; 3];
    let mut parts = text.split('.');
    number[0] = parts.next()?.parse().ok()?;
    number[1] = parts.next()?.parse().ok()?;
    if let Some(patch) = parts.next() {
        number[2] = patch.parse().ok()?;
    }
    Some(number)
}

/// A range of versions: `3.6+`, `-3.8` (including all patches of 3.8), `3.6-3.8`, `keeper`, `zookeeper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    family: Option<Family>,
    first: [u16; 3],
    last: [u16; 3],
}

impl Range {
    pub(crate) const ALL: Self = Self { family: None, first: [0; 3], last: [u16::MAX; 3] };

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = Self::ALL;
        if let Some(rest) = text.strip_prefix("keeper") {
            let of_keeper = Self { family: Some(Family::Keeper), ..all };
            return match rest.strip_prefix('-') {
                None if rest.is_empty() => Some(of_keeper),
                None => None,
                Some(range) => Some(Self { family: Some(Family::Keeper), ..Self::parse(range)? }),
            };
        }
        let all = Self { family: Some(Family::ZooKeeper), ..all };
        if text == "zookeeper" {
            return Some(all);
        }
        if let Some(first) = text.strip_suffix('+') {
            return Some(Self { first: read_number(first)?, ..all });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first = if first.is_empty() { [0; 3] } else { read_number(first)? };
        let mut end = read_number(last)?;
        if last.split('.').count() < 3 {
            end[2] = u16::MAX;
        }
        Some(Self { first, last: end, ..all })
    }

    pub(crate) fn contains(&self, version: Version) -> bool {
        let is_family = self.family.is_none_or(|family| family == version.family);
        is_family && (self.first..=self.last).contains(&version.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_versions() {
        for (range, inside, outside) in [
            ("3.6+", "3.6 3.9.5 3.10", "3.5.9 keeper-26.6"),
            ("-3.8", "3.4.14 3.8.6", "3.9 keeper-24.8"),
            ("3.6-3.8", "3.6.3 3.8.4", "3.9 3.5"),
            ("3.9.3+", "3.9.5 3.10", "3.9.2"),
            ("3.7", "3.7.0 3.7.2", "3.8"),
            ("keeper", "keeper-24.8 keeper-26.6", "3.9"),
            ("keeper-26.1+", "keeper-26.6", "keeper-24.8 3.9"),
            ("zookeeper", "3.4 3.10", "keeper-26.6"),
        ] {
            let range_of = Range::parse(range).unwrap();
            let is_in = |text: &str| range_of.contains(Version::parse(text).unwrap());
            assert!(inside.split(' ').all(is_in), "{range}");
            assert!(!outside.split(' ').any(is_in), "{range}");
        }
        for text in ["", "3", "+", "3.x", "keeper3", "-"] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_status_names_its_version() {
        let of = |text| Version::of_status(text).map(|version| version.to_string());
        let zookeeper = of("Zookeeper version: 3.8.0-11+deb12u2-, built on 2025\nMode: leader\n");
        assert_eq!(zookeeper.as_deref(), Some("3.8.0"));
        let keeper = of("ClickHouse Keeper version: v26.6.1.1-testing-abc\n");
        assert_eq!(keeper.as_deref(), Some("keeper-26.6"));
        assert_eq!(of("HTTP/1.1 400 Bad Request"), None);
    }
}
