//! The connect string, and which server is tried next.
//!
//! Source: `ConnectStringParser`, `StaticHostProvider`.

use std::{fmt, str::FromStr, time::Duration};

use docent_protocol::path;

use crate::{config::Backoff, time::Instant};

/// The port of a server that names none.
const DEFAULT_PORT: u16 = 2181;

/// A server: a name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// A DNS name, an IPv4 address, or an IPv6 address without brackets. Looked up at every attempt.
    pub name: String,
    /// The client port.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// `host[:port],host[:port]/chroot`, taken apart.
///
/// Ports default to 2181; IPv6 addresses stand in brackets; blanks around names and empty items are
/// dropped. What follows the first slash is the chroot: a path in front of every path.
///
/// ```
/// use docent_session::ConnectString;
///
/// let parsed: ConnectString = "zk1, zk2:2182, [::1]:2183/app/a".parse()?;
/// assert_eq!(parsed.to_string(), "zk1:2181,zk2:2182,[::1]:2183/app/a");
/// # Ok::<(), docent_session::InvalidConnectString>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConnectString {
    hosts: Vec<Host>,
    chroot: Option<String>,
}

impl ConnectString {
    /// The servers, in the order given. At least one.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The chroot: a valid path, never `/`.
    #[must_use]
    pub fn chroot(&self) -> Option<&str> {
        self.chroot.as_deref()
    }
}

impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.hosts.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{host}")?;
        }
        f.write_str(self.chroot().unwrap_or_default())
    }
}

/// A connect string that is none: names the part and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidConnectString(String);

impl fmt::Display for InvalidConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidConnectString {}

impl FromStr for ConnectString {
    type Err = InvalidConnectString;

    fn from_str(text: &str) -> Result<Self, InvalidConnectString> {
        let (servers, chroot) = match text.find('/') {
            Some(slash) => text.split_at(slash),
            None => (text, ""),
        };
        let mut hosts = Vec::new();
        for item in servers.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            hosts.push(parse_host(item)?);
        }
        if hosts.is_empty() {
            return Err(InvalidConnectString(format!(
                "the connect string {text:?} names no server: expected host:port,host:port/chroot"
            )));
        }
        let chroot = match chroot.trim_end() {
            "" | "/" => None,
            chroot => {
                path::validate(chroot).map_err(|error| {
                    InvalidConnectString(format!("the chroot {chroot:?} is not a path: {error}"))
                })?;
                Some(chroot.to_owned())
            }
        };
        Ok(Self { hosts, chroot })
    }
}

fn parse_host(item: &str) -> Result<Host, InvalidConnectString> {
    let wrong = |rule: &str| Err(InvalidConnectString(format!("the server {item:?} {rule}")));
    let (name, port) = if let Some(bracketed) = item.strip_prefix('[') {
        let Some((name, rest)) = bracketed.split_once(']') else {
            return wrong("has no closing bracket");
        };
        if name.parse::<std::net::Ipv6Addr>().is_err() {
            return wrong("has something else than an IPv6 address in its brackets");
        }
        match rest.strip_prefix(':') {
            Some(port) => (name, Some(port)),
            None if rest.is_empty() => (name, None),
            None => return wrong("has something else than a port behind its bracket"),
        }
    } else {
        match item.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return wrong("has several colons: write an IPv6 address as [address]:port");
            }
            Some((name, port)) => (name.trim_end(), Some(port.trim_start())),
            None => (item, None),
        }
    };
    if name.is_empty() {
        return wrong("has no name");
    }
    if let Some(bad) =
        name.chars().find(|c| c.is_whitespace() || c.is_control() || "@?#[]\"\\".contains(*c))
    {
        return wrong(&format!("has {bad:?} in its name"));
    }
    let port = match port {
        None => DEFAULT_PORT,
        // `parse` would take a plus sign.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse() {
            Ok(0) | Err(_) => return wrong("has a port outside 1 to 65535"),
            Ok(port) => port,
        },
        Some(_) => return wrong("has a port that is not a number"),
    };
    Ok(Host { name: name.to_owned(), port })
}

/// A small generator for shuffling and jitter: nothing here has to be hard to guess.
///
/// Source: Vigna's SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; 0 for the bound 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// Uniform between nothing and `limit`.
    pub(crate) fn jitter(&mut self, limit: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Which server is tried next, and when.
///
/// The list is shuffled once. Every server is tried before there is a pause; pauses grow from round to
/// round, and only a session that was accepted makes them short again: a server that takes connections
/// and drops them is not progress.
#[derive(Debug)]
pub(crate) struct Hosts {
    list: Vec<Host>,
    next: usize,
    /// How many were tried since the last pause.
    tried: usize,
    /// How many pauses since a session was accepted.
    rounds: u32,
    backoff: Backoff,
    rng: Rng,
    not_before: Instant,
}

impl Hosts {
    pub(crate) fn new(hosts: &[Host], backoff: Backoff, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut list = hosts.to_vec();
        shuffle(&mut list, &mut rng);
        Self { list, next: 0, tried: 0, rounds: 0, backoff, rng, not_before: Instant::ZERO }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Host> {
        self.list.iter()
    }

    /// Takes another list, and says whether to leave the server `current` for it, so that clients spread evenly
    /// over the new servers: who loses its server moves; when there are more servers than before, so many
    /// move that each has its share.
    ///
    /// Source: `StaticHostProvider.updateServerList`.
    pub(crate) fn update(&mut self, new: &[Host], current: Option<&Host>) -> bool {
        let old_len = self.list.len();
        let (mut kept, mut added): (Vec<_>, Vec<_>) =
            new.iter().cloned().partition(|host| self.list.contains(host));
        let total = kept.len() + added.len();
        let stays = current.is_some_and(|host| new.contains(host));
        let grew = total > old_len;
        // Of so many clients as there are servers now, as many as there were stay.
        let moves =
            if grew { !stays || self.rng.below(total as u64) >= old_len as u64 } else { !stays };
        // Whom to move to: the new ones if there are more servers now; else so that all get the same share.
        let to_kept = if grew || kept.is_empty() {
            false
        } else if added.is_empty() {
            true
        } else {
            let gone = (old_len - kept.len()) as u64;
            let spare = (old_len - total) as u64;
            self.rng.below(total as u64 * gone.max(1)) < kept.len() as u64 * spare
        };
        shuffle(&mut kept, &mut self.rng);
        shuffle(&mut added, &mut self.rng);
        let (first, second) = if to_kept { (kept, added) } else { (added, kept) };
        self.list = [first, second].concat();
        self.next = 0;
        self.tried = 0;
        self.rounds = 0;
        if !moves {
            // The next connection goes anywhere but to the server in use, which is lost then: a second
            // wait for one that fell silent would use up the session.
            shuffle(&mut self.list, &mut self.rng);
            self.list.sort_by_key(|host| Some(host) == current);
        }
        moves
    }

    /// Makes a server the next one to be tried, at once. Whether it is listed.
    pub(crate) fn prefer(&mut self, host: &Host) -> bool {
        let index = self.list.iter().position(|other| other == host);
        self.next = index.unwrap_or(self.next);
        index.is_some()
    }

    /// Another server than the last one tried, for a look at it; each in turn. The same if there is no other:
    /// its name may stand for several.
    pub(crate) fn peek(&self, round: usize, current: Option<&Host>) -> Option<Host> {
        let others: Vec<_> = self.list.iter().filter(|host| Some(*host) != current).collect();
        let other = others.get(round % others.len().max(1)).copied();
        other.or(current).cloned()
    }

    /// When the next one may be tried.
    pub(crate) const fn not_before(&self) -> Instant {
        self.not_before
    }

    /// The next one.
    pub(crate) fn advance(&mut self) -> Host {
        let host = self.list.get(self.next).cloned();
        self.next = (self.next + 1) % self.list.len().max(1);
        self.tried += 1;
        // The list is never empty: a connect string without a server does not parse.
        host.unwrap_or_else(|| Host { name: String::new(), port: DEFAULT_PORT })
    }

    /// The last one tried took the session.
    pub(crate) const fn accepted(&mut self) {
        self.tried = 0;
        self.rounds = 0;
    }

    /// An attempt, or a connection that had been accepted, came to nothing.
    pub(crate) fn failed(&mut self, now: Instant) {
        if self.tried == 0 {
            // Lost, not refused: all clients of that server are about to do the same.
            self.not_before = now + self.rng.jitter(self.backoff.first);
        } else if self.tried < self.list.len() {
            self.not_before = now;
        } else {
            let full =
                self.backoff.first.saturating_mul(1 << self.rounds.min(16)).min(self.backoff.max);
            self.not_before = now + full / 2 + self.rng.jitter(full / 2);
            self.tried = 0;
            self.rounds += 1;
            // `tried` 0 means lost above; from here the next failure belongs to a new round.
        }
    }
}

/// Fisher and Yates.
fn shuffle(list: &mut [Host], rng: &mut Rng) {
    for last in (1..list.len()).rev() {
        let other = rng.below(last as u64 + 1);
        list.swap(last, usize::try_from(other).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        text.parse::<ConnectString>()
            .map(|parsed| parsed.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn connect_strings_are_normalised() {
        for (text, expected) in [
            ("localhost", "localhost:2181"),
            (" a : 1 , ,b:2, ", "a:1,b:2"),
            ("[::1]:2182,[fe80::1]", "[::1]:2182,[fe80::1]:2181"),
            ("a/", "a:2181"),
            ("a:1/x/y", "a:1/x/y"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn bad_connect_strings_name_the_part_and_the_rule() {
        for (text, part, rule) in [
            ("", "\"\"", "names no server"),
            (" , ,", "\" , ,\"", "names no server"),
            ("/app", "\"/app\"", "names no server"),
            ("a:b", "\"a:b\"", "not a number"),
            ("a:", "\"a:\"", "outside 1 to 65535"),
            ("a:0", "\"a:0\"", "outside 1 to 65535"),
            ("a:65536", "\"a:65536\"", "outside 1 to 65535"),
            ("a:+1", "\"a:+1\"", "not a number"),
            (":2181", "\":2181\"", "has no name"),
            ("::1", "\"::1\"", "[address]:port"),
            ("[::1", "\"[::1\"", "no closing bracket"),
            ("[x]:1", "\"[x]:1\"", "IPv6"),
            ("[::1]2181", "\"[::1]2181\"", "behind its bracket"),
            ("http://a:2181", "\"http:\"", "outside 1 to 65535"),
            ("a b:1", "\"a b:1\"", "' ' in its name"),
            ("a/x/", "\"/x/\"", "must not end with a slash"),
            ("a//x", "\"//x\"", "empty node name"),
            ("a/x/../y", "\"/x/../y\"", "relative node name"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part) && error.contains(rule), "{text}: {error}");
        }
    }

    fn hosts(count: u16, seed: u64) -> Hosts {
        let list: Vec<_> = (1..=count).map(|port| Host { name: "h".into(), port }).collect();
        Hosts::new(&list, Backoff::default(), seed)
    }

    #[test]
    fn every_server_is_tried_before_there_is_a_pause() {
        let mut hosts = hosts(3, 7);
        let now = Instant::from_nanos(1);
        let mut seen = Vec::new();
        for attempt in 1..=3 {
            assert!(hosts.not_before() <= now, "attempt {attempt} had to wait");
            seen.push(hosts.advance().port);
            hosts.failed(now);
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3]);
        assert!(hosts.not_before() > now);
    }

    #[test]
    fn pauses_grow_to_their_limit_and_only_acceptance_makes_them_short_again() {
        let mut hosts = hosts(1, 1);
        let now = Instant::from_nanos(1);
        let backoff = Backoff::default();
        let pause = |hosts: &mut Hosts| {
            hosts.advance();
            hosts.failed(now);
            hosts.not_before().since(now)
        };
        assert!(pause(&mut hosts) <= backoff.first);
        for _ in 0..20 {
            pause(&mut hosts);
        }
        let last = pause(&mut hosts);
        assert!(last >= backoff.max / 2 && last <= backoff.max, "{last:?}");
        hosts.accepted();
        assert!(pause(&mut hosts) <= backoff.first);
    }

    fn list(ports: std::ops::Range<u16>) -> Vec<Host> {
        ports.map(|port| Host { name: "h".into(), port }).collect()
    }

    /// Over many clients, each server ends with its share.
    #[test]
    fn a_longer_list_takes_each_server_s_share_of_clients() {
        let (mut moved, mut to_old) = (0, 0);
        for seed in 0..3000 {
            let mut hosts = hosts(3, seed);
            let current = Host { name: "h".into(), port: 1 };
            if hosts.update(&list(1..6), Some(&current)) {
                moved += 1;
                to_old += u32::from(hosts.advance().port <= 3);
            }
        }
        assert!((1100..1300).contains(&moved), "{moved} of 3000, for two servers of five");
        assert_eq!(to_old, 0);
    }

    #[test]
    fn a_server_that_is_no_longer_listed_is_left_and_others_are_not() {
        let mut left = [0; 6];
        for seed in 0..3000 {
            let gone = Host { name: "h".into(), port: 4 };
            let stays = Host { name: "h".into(), port: 1 };
            assert!(!hosts(4, seed).update(&list(1..4), Some(&stays)));
            let mut hosts = hosts(4, seed);
            assert!(hosts.update(&list(1..4), Some(&gone)));
            left[usize::from(hosts.advance().port)] += 1;
        }
        assert!(left[1..4].iter().all(|count| (900..1100).contains(count)), "{left:?}");
    }

    /// Should it fall silent, a second try of it would cost the session (T/3 on top of 2/3 T).
    #[test]
    fn the_server_in_use_is_the_last_to_be_tried_after_a_change_of_the_list() {
        let mut stayed = 0;
        for seed in 0..300 {
            let mut hosts = hosts(1, seed);
            let current = hosts.advance();
            hosts.accepted();
            if hosts.update(&list(1..4), Some(&current)) {
                continue;
            }
            stayed += 1;
            hosts.failed(Instant::ZERO);
            let order = [hosts.advance(), hosts.advance(), hosts.advance()];
            assert_eq!(order[2], current, "seed {seed}");
        }
        assert!(stayed > 0);
    }

    /// Four servers become three, one of them new: it takes as many as it would have had.
    #[test]
    fn a_replaced_server_gets_its_share() {
        let mut left = [0; 8];
        for seed in 0..6000 {
            let gone = Host { name: "h".into(), port: if seed % 2 == 0 { 3 } else { 4 } };
            let mut hosts = hosts(4, seed);
            assert!(hosts.update(&[list(1..3), list(7..8)].concat(), Some(&gone)));
            left[usize::from(hosts.advance().port)] += 1;
        }
        // Of 12,000 clients, 6,000 lost their server: 4,000 are the new one's share, 1,000 each the others'.
        assert!((3800..4200).contains(&left[7]) && (850..1150).contains(&left[1]), "{left:?}");
    }

    #[test]
    fn different_seeds_shuffle_differently() {
        let orders: std::collections::BTreeSet<Vec<u16>> = (0..64)
            .map(|seed| hosts(3, seed).list.iter().map(|host| host.port).collect())
            .collect();
        assert_eq!(orders.len(), 6);
    }
}
