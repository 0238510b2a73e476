//! The choice of the server to connect to, and the pauses between attempts.
//!
//! Source: `StaticHostProvider`.

use std::{collections::HashMap, time::Duration};

use super::{
    connect_string::{DEFAULT_PORT, Host},
    rng::Rng,
};
use crate::{backoff::Backoff, planted, time::Instant};

/// Which server is tried next, and when.
///
/// The list is shuffled once. Every server is tried before there is a pause, those of the lowest cost first, and last the
/// one whose connection was lost. Pauses grow from round to round, and only a usable session resets them: a server that
/// accepts connections, or even the session, and then drops them is no progress.
#[derive(Debug)]
pub(crate) struct Hosts {
    list: Vec<Host>,
    /// The costs of the servers, computed outside; empty if all are equal.
    costs: HashMap<Host, u64>,
    /// The server to be tried next, whatever its cost.
    preferred: Option<Host>,
    /// Whether the server tried last was usable, and its connection was lost.
    has_lost: bool,
    /// Those that closed the last handshake without replying, since a handshake last succeeded.
    silent: Vec<Host>,
    /// Those with which the last attempt failed because of TLS.
    mismatched: Vec<Host>,
    next: usize,
    /// The number of servers tried since the last pause.
    tried: usize,
    /// The number of pauses since a session was last usable.
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
        let not_before = Instant::ZERO;
        Self {
            list,
            costs: HashMap::new(),
            preferred: None,
            has_lost: false,
            silent: Vec::new(),
            mismatched: Vec::new(),
            next: 0,
            tried: 0,
            rounds: 0,
            backoff,
            rng,
            not_before,
        }
    }

    pub(crate) fn list(&self) -> &[Host] {
        &self.list
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Sets the cost of each server from now on. It orders the next round of attempts, and moves no connection.
    pub(crate) fn set_costs(&mut self, costs: impl IntoIterator<Item = (Host, u64)>) {
        self.costs = costs.into_iter().collect();
        // Without a preference, the order of the list is the better one: it was shuffled.
        let mut values = self.costs.values();
        let first = values.next();
        if values.all(|cost| Some(cost) == first) {
            self.costs.clear();
        }
    }

    /// The cost of a server: the lower, the better. A server without one is the worst.
    pub(crate) fn cost(&self, host: &Host) -> u64 {
        if self.costs.is_empty() { 0 } else { self.costs.get(host).copied().unwrap_or(u64::MAX) }
    }

    /// The generator of shuffling and jitter.
    pub(crate) const fn rng_mut(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Records whether the server closed its last handshake without replying.
    pub(crate) fn note_silent(&mut self, host: &Host, silent: bool) {
        self.silent.retain(|other| other != host);
        if silent {
            self.silent.push(host.clone());
        }
    }

    /// Records whether the last attempt with the server failed because of TLS.
    pub(crate) fn note_tls_mismatch(&mut self, host: &Host, mismatched: bool) {
        self.mismatched.retain(|other| other != host);
        if mismatched {
            self.mismatched.push(host.clone());
        }
    }

    /// Whether the last attempt with every server failed because of TLS.
    pub(crate) fn are_all_mismatched(&self) -> bool {
        self.list.iter().all(|host| self.mismatched.contains(host))
    }

    /// A handshake has succeeded, or the next one is for another session.
    pub(crate) fn forget_silent(&mut self) {
        self.silent.clear();
    }

    /// Whether every server closed its last handshake without replying.
    pub(crate) fn are_all_silent(&self) -> bool {
        self.list.iter().all(|host| self.silent.contains(host))
    }

    /// Replaces the server list, and returns whether to leave the server `current`, so that clients spread evenly over
    /// the new servers. A client whose server is removed moves. When there are more servers than before, just enough
    /// clients move to give each server its share. Without `may_leave`, none moves.
    ///
    /// Source: `StaticHostProvider.updateServerList`.
    pub(crate) fn update(&mut self, new: &[Host], current: Option<&Host>, may_leave: bool) -> bool {
        let old_len = self.list.len();
        let (mut kept, mut added): (Vec<_>, Vec<_>) =
            new.iter().cloned().partition(|host| self.list.contains(host));
        let total = kept.len() + added.len();
        let stays = current.is_some_and(|host| new.contains(host));
        let grew = total > old_len;
        // When the list grows, a client stays with probability old length / new length; with costs, which give each
        // server another share, it stays.
        let has_costs = !self.costs.is_empty();
        let migrates = if grew && !has_costs {
            !stays || self.rng.below(total as u64) >= old_len as u64
        } else {
            !stays
        };
        let migrates = migrates && may_leave;
        // The targets: the new servers, if there are more servers now; otherwise weighted so that all have the same
        // share.
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
        self.sort_first(total);
        self.preferred = None;
        self.next = 0;
        self.tried = 0;
        self.rounds = 0;
        if !migrates {
            // After a connection loss, the server in use is tried last: a second wait for a silent server would use up
            // the session.
            shuffle(&mut self.list, &mut self.rng);
            self.list.sort_by_key(|host| Some(host) == current);
        }
        migrates
    }

    /// Makes a server the next one to be tried, without a pause. Returns whether it is listed.
    pub(crate) fn prefer(&mut self, host: &Host) -> bool {
        self.preferred = self.list.contains(host).then(|| host.clone());
        self.preferred.is_some()
    }

    /// The next server to probe, other than the last one tried, in rotation. The same server if there is no other: its
    /// name may resolve to several.
    pub(crate) fn peek(&self, round: usize, current: Option<&Host>) -> Option<Host> {
        let others: Vec<_> = self.list.iter().filter(|host| Some(*host) != current).collect();
        let other = others.get(round % others.len().max(1)).copied();
        other.or(current).cloned()
    }

    /// The number of servers to try before the next pause; never 0.
    pub(crate) fn untried(&self) -> usize {
        self.list.len().saturating_sub(self.tried).max(1)
    }

    /// When the next server may be tried.
    pub(crate) const fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Ends the pause: every server is tried once before the next pause.
    pub(crate) const fn hasten(&mut self) {
        self.not_before = Instant::ZERO;
        self.tried = 0;
    }

    /// The next server to try.
    pub(crate) fn advance(&mut self) -> Host {
        if self.tried == 0 {
            self.begin_round();
        }
        if let Some(preferred) = self.preferred.take()
            && let Some(rest) = self.list.get_mut(self.next..)
            && let Some(at) = rest.iter().position(|host| *host == preferred)
            && let Some(front) = rest.get_mut(..=at)
        {
            front.rotate_right(1);
        }
        let host = self.list.get(self.next).cloned();
        self.next = (self.next + 1) % self.list.len().max(1);
        self.tried += 1;
        // The list is never empty: a connect string without a server does not parse.
        host.unwrap_or_else(|| Host { name: String::new(), port: DEFAULT_PORT })
    }

    /// Orders the servers by their costs; among equals, the one tried last is the last, and so it is among all if its
    /// connection was lost: a second wait for a silent server would use up the session.
    fn begin_round(&mut self) {
        self.list.rotate_left(self.next);
        self.next = 0;
        self.sort_first(self.list.len().saturating_sub(usize::from(self.has_lost)));
    }

    /// Orders this number of servers at the front of the list by their costs.
    fn sort_first(&mut self, count: usize) {
        let costs = &self.costs;
        if !costs.is_empty()
            && let Some(first) = self.list.get_mut(..count)
        {
            first.sort_by_key(|host| costs.get(host).copied().unwrap_or(u64::MAX));
        }
    }

    /// The session is usable on the server last tried: the messages that precede all requests on a connection are
    /// answered.
    pub(crate) const fn usable(&mut self) {
        self.tried = 0;
        self.rounds = 0;
        self.has_lost = false;
    }

    /// Records a failed attempt or a lost connection. No pause is longer than `longest`.
    pub(crate) fn failed(&mut self, now: Instant, longest: Duration) {
        self.has_lost = self.tried == 0;
        if self.tried == 0 {
            // A lost connection, not a refused one: all clients of that server reconnect at the same time.
            self.not_before = now + self.rng.jitter(self.backoff.first().min(longest));
        } else if self.tried < self.list.len() {
            self.not_before = now;
        } else {
            let growing = self.backoff.first().saturating_mul(1 << self.rounds.min(16));
            let longest = if planted::is("no-backoff") { Duration::ZERO } else { longest };
            let full = growing.min(self.backoff.max()).min(longest);
            self.not_before = now + full / 2 + self.rng.jitter(full / 2);
            self.tried = 0;
            self.rounds += 1;
            // `tried` 0 means a lost connection above; from here on the next failure belongs to a new round.
        }
    }
}

/// The Fisher–Yates shuffle.
fn shuffle(list: &mut [Host], rng: &mut Rng) {
    for last in (1..list.len()).rev() {
        let other = rng.below(last as u64 + 1);
        list.swap(last, usize::try_from(other).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any pause of the default backoff.
    const LONGEST: Duration = Duration::from_secs(60);

    fn host(port: u16) -> Host {
        Host { name: "h".into(), port }
    }

    fn list(ports: std::ops::Range<u16>) -> Vec<Host> {
        ports.map(host).collect()
    }

    fn hosts(count: u16, seed: u64) -> Hosts {
        Hosts::new(&list(1..count + 1), Backoff::default(), seed)
    }

    /// The same with a cost for each port, and for those of later lists.
    fn with_costs(count: u16, seed: u64, cost: fn(u16) -> u64) -> Hosts {
        let mut hosts = hosts(count, seed);
        hosts.set_costs(list(1..6).into_iter().map(|host| (host.clone(), cost(host.port))));
        hosts
    }

    // Case (Pitfalls of the wire, 31): names looked up once, no shuffle, no back-off.
    // Case (Failure cases, 31): a list that is partly dead.
    #[test]
    fn every_server_is_tried_before_there_is_a_pause() {
        let mut hosts = hosts(3, 7);
        let now = Instant::from_nanos(1);
        let mut seen = Vec::new();
        for attempt in 1..=3 {
            assert!(hosts.not_before() <= now, "attempt {attempt} had to wait");
            seen.push(hosts.advance().port);
            hosts.failed(now, LONGEST);
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3]);
        assert!(hosts.not_before() > now);
    }

    #[test]
    fn servers_are_mismatched_until_an_attempt_fails_otherwise() {
        let mut hosts = hosts(2, 7);
        for (port, mismatched, all) in [
            (1, true, false),
            (1, true, false),
            (2, true, true),
            (1, false, false),
            (1, true, true),
        ] {
            hosts.note_tls_mismatch(&host(port), mismatched);
            assert_eq!(hosts.are_all_mismatched(), all, "{port} {mismatched}");
        }
    }

    /// The servers not yet tried share the rest of the session timeout.
    // Case (Found in docent itself): no test held these rules: the servers not yet tried share the
    // rest of the session timeout; the other half of a half-removed mode is removed; a read between
    // two connections relies on the watch requests in front of it; refusals are forgotten with
    // their connection; nothing about watches follows a closeSession; a persistent watch is set
    // again from when it was lost; nothing is answered behind what breaks a connection; how much
    // memory a reply shares.
    #[test]
    fn a_server_counts_as_untried_until_its_attempt_or_a_new_round() {
        let mut hosts = hosts(3, 7);
        let now = Instant::from_nanos(1);
        for untried in [3, 2, 1, 3, 2] {
            assert_eq!(hosts.untried(), untried);
            hosts.advance();
            // Never 0: the server of the attempt needs its share.
            assert_eq!(hosts.untried(), (untried - 1).max(1));
            hosts.failed(now, LONGEST);
        }
        hosts.usable();
        assert_eq!(hosts.untried(), 3);
    }

    #[test]
    fn no_pause_is_longer_than_allowed() {
        for tried in [0, 1, 30] {
            let mut hosts = hosts(1, 1);
            let now = Instant::from_nanos(1);
            let longest = Duration::from_millis(20);
            for _ in 0..tried {
                hosts.advance();
                hosts.failed(now, longest);
            }
            hosts.failed(now, longest);
            assert!(hosts.not_before().duration_since(now) <= longest, "after {tried}");
            assert!(hosts.not_before() > now, "after {tried}");
        }
    }

    /// Over many clients, each server ends up with its share.
    #[test]
    fn a_longer_list_takes_each_server_s_share_of_clients() {
        let (mut moved, mut to_old) = (0, 0);
        for seed in 0..3000 {
            let mut hosts = hosts(3, seed);
            let current = host(1);
            if hosts.update(&list(1..6), Some(&current), true) {
                moved += 1;
                to_old += u32::from(hosts.advance().port <= 3);
            }
        }
        assert!((1100..1300).contains(&moved), "{moved} of 3000, for two servers of five");
        assert_eq!(to_old, 0);
    }

    /// If the server in use is silent, a second attempt on it would cost the session (T/3 on top of 2/3 T).
    #[test]
    fn the_server_in_use_is_the_last_to_be_tried_after_a_change_of_the_list() {
        let mut stayed = 0;
        for seed in 0..300 {
            let mut hosts = hosts(1, seed);
            let current = hosts.advance();
            hosts.usable();
            if hosts.update(&list(1..4), Some(&current), true) {
                continue;
            }
            stayed += 1;
            hosts.failed(Instant::ZERO, LONGEST);
            let order = [hosts.advance(), hosts.advance(), hosts.advance()];
            assert_eq!(order[2], current, "seed {seed}");
        }
        assert!(stayed > 0);
    }

    /// From any list to any other, each server ends up with its share, whichever clients stay or move.
    #[test]
    fn clients_spread_evenly_over_any_list_that_replaces_any_other() {
        const CLIENTS: u32 = 3000;
        for (old, kept, added) in (1..=5).flat_map(|old| {
            (0..=old).flat_map(move |kept| (0..=3).map(move |added| (old, kept, added)))
        }) {
            let total = kept + added;
            if total == 0 {
                continue;
            }
            let new = [list(1..1 + kept), list(10..10 + added)].concat();
            let mut clients = std::collections::BTreeMap::new();
            for seed in 0..CLIENTS {
                let port = 1 + u16::try_from(seed).unwrap() % old;
                let current = host(port);
                let mut hosts = hosts(old, seed.into());
                let stays = new.contains(&current);
                let migrates = hosts.update(&new, Some(&current), true);
                assert_eq!(hosts.list.len(), new.len());
                assert!(stays || migrates, "the server in use is gone");
                assert!(!stays || !migrates || total > old, "no client moves for want of servers");
                let port = if migrates { hosts.advance().port } else { port };
                *clients.entry(port).or_insert(0.0) += 1.0;
            }
            let share = f64::from(CLIENTS) / f64::from(total);
            // Tolerance: six standard deviations.
            let tolerance = 6.0 * share.sqrt();
            for host in &new {
                let count: f64 = clients.get(&host.port).copied().unwrap_or_default();
                assert!(
                    (count - share).abs() <= tolerance,
                    "{old} servers, {kept} kept, {added} added: {count} of {share} at {host}"
                );
            }
        }
    }

    /// Only a session makes them short again.
    #[test]
    fn pauses_double_from_the_first_to_the_longest() {
        let backoff = Backoff::default();
        for seed in 0..50 {
            let mut hosts = hosts(1, seed);
            let now = Instant::from_nanos(1);
            let mut full = backoff.first();
            for round in 0..40 {
                hosts.advance();
                hosts.failed(now, LONGEST);
                let pause = hosts.not_before().duration_since(now);
                assert!(pause >= full / 2 && pause < full, "round {round}: {pause:?} of {full:?}");
                full = (full * 2).min(backoff.max());
            }
            hosts.usable();
            hosts.advance();
            hosts.failed(now, LONGEST);
            assert!(hosts.not_before().duration_since(now) < backoff.first());
        }
    }

    /// All clients of the server reconnect at that moment.
    #[test]
    fn a_lost_connection_is_tried_again_within_the_first_pause_and_not_all_at_once() {
        let now = Instant::from_nanos(1);
        let pauses: Vec<_> = (0..200)
            .map(|seed| {
                let mut hosts = hosts(3, seed);
                hosts.advance();
                hosts.usable();
                hosts.failed(now, LONGEST);
                hosts.not_before().duration_since(now)
            })
            .collect();
        let first = Backoff::default().first();
        assert!(pauses.iter().all(|pause| *pause < first));
        assert!(pauses.iter().any(|pause| *pause < first / 4));
        assert!(pauses.iter().any(|pause| *pause > first / 4 * 3));
    }

    /// Each of the other servers in turn, and never the one in use while there is another.
    #[test]
    fn every_other_server_is_looked_at_in_turn() {
        let hosts = hosts(4, 1);
        let current = host(2);
        let seen: Vec<_> =
            (0..6).map(|round| hosts.peek(round, Some(&current)).unwrap().port).collect();
        let mut first = seen[..3].to_vec();
        first.sort_unstable();
        assert_eq!(first, [1, 3, 4]);
        assert_eq!(seen[..3], seen[3..]);
    }

    /// A server that was lost is tried last once; then its cost counts again.
    #[test]
    fn cheaper_servers_are_tried_first_and_the_lost_one_last() {
        for seed in 0..50 {
            let mut hosts = with_costs(4, seed, |port| u64::from(port / 2));
            let now = Instant::ZERO;
            let round = |hosts: &mut Hosts| {
                let order: Vec<_> = (0..4)
                    .map(|_| {
                        let host = hosts.advance();
                        hosts.failed(now, LONGEST);
                        host.port
                    })
                    .collect();
                assert_eq!(order.iter().sum::<u16>(), 10, "{order:?}");
                order
            };
            for _ in 0..2 {
                let order = round(&mut hosts);
                assert_eq!((order[0], order[3]), (1, 4), "{order:?}");
            }
            assert_eq!(hosts.advance().port, 1);
            hosts.usable();
            hosts.failed(now, LONGEST);
            let order = round(&mut hosts);
            assert_eq!(order[2..], [4, 1], "{order:?}");
            assert_eq!(hosts.advance().port, 1);
        }
    }

    #[test]
    fn equals_are_tried_first_in_any_order() {
        let mut first = [0; 4];
        for seed in 0..600 {
            let mut hosts = with_costs(3, seed, |port| u64::from(port == 2));
            first[usize::from(hosts.advance().port)] += 1;
        }
        assert!(first[2] == 0 && first[1] > 250 && first[3] > 250, "{first:?}");
    }

    /// With costs, the servers do not have equal shares.
    #[test]
    fn with_costs_a_client_leaves_only_a_server_that_is_gone() {
        for seed in 0..100 {
            let mut hosts = with_costs(3, seed, |port| u64::from(port != 5));
            let current = host(1);
            assert!(!hosts.update(&list(1..6), Some(&current), true));
            assert!(hosts.update(&list(2..6), Some(&current), true));
            hosts.failed(Instant::ZERO, LONGEST);
            assert_eq!(hosts.advance().port, 5);
        }
    }

    #[test]
    fn different_seeds_shuffle_differently() {
        let orders: std::collections::BTreeSet<Vec<u16>> = (0..64)
            .map(|seed| hosts(3, seed).list.iter().map(|host| host.port).collect())
            .collect();
        assert_eq!(orders.len(), 6);
    }
}
