//! The plan of a run: its faults, their times and durations. The same seed gives the same plan.

use std::fmt;
use std::time::Duration;

use crate::random::Random;

/// The target of a fault. The leader is known only when the fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Leader,
    /// The follower at this index, modulo the number of followers.
    Follower(usize),
}

/// What a fault does to its target, or to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The members are cut into two groups, with the target in the smaller one.
    Halves,
    /// One member is cut off the others; clients still reach it.
    Alone,
    /// One member is cut off the others together with half of the clients, which reach no other member.
    AloneWithClients,
    /// Other members do not receive what this one sends.
    Mute,
    /// This member does not receive what others send.
    Deaf,
    /// The members are cut into two groups, with one member that sees both.
    Bridge,
    /// `kill -9`, and a start at the end of the fault.
    Kill,
    /// SIGSTOP, and SIGCONT at the end of the fault.
    Pause,
    /// One member after the other is stopped and started.
    Rolling,
    /// The file system of the last member is full; the member is started again at the end if it has ended.
    FullDisk,
    /// SIGSTOP of a client.
    PauseClient,
    /// `kill -9` of a client; another process takes its place at the end of the fault.
    KillClient,
    /// A client reaches no member.
    CutClient,
    /// A client reaches the target only.
    OneServer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) kind: Kind,
    pub(crate) target: Option<Target>,
    pub(crate) client: Option<usize>,
}

/// The faults of a run, in two sequences: those of members and those of clients overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) of_members: Vec<Fault>,
    pub(crate) of_clients: Vec<Fault>,
}

/// The time at the beginning without faults, in which the clients connect.
const QUIET: Duration = Duration::from_secs(8);

/// Draws the faults of a run.
pub(crate) fn draw(seed: u64, length: Duration, members: usize, clients: usize) -> Plan {
    Plan {
        of_members: of_members(seed, length, members),
        of_clients: of_clients(seed, length, clients),
    }
}

fn of_members(seed: u64, length: Duration, members: usize) -> Vec<Fault> {
    let mut random = Random::of_part(seed, 1);
    let (mut faults, mut deck, mut at) = (Vec::new(), Vec::new(), QUIET);
    loop {
        if deck.is_empty() {
            let mut target = || match random.below(2) {
                0 => Some(Target::Leader),
                _ => Some(follower(&mut random, members)),
            };
            deck = vec![
                (Kind::Halves, target()),
                (Kind::Alone, Some(Target::Leader)),
                (Kind::Alone, Some(Target::Follower(0))),
                (Kind::AloneWithClients, target()),
                // The clients rely on their sessions while the leader's side ends them.
                (Kind::AloneWithClients, Some(Target::Follower(1))),
                (Kind::Mute, target()),
                (Kind::Deaf, target()),
                (Kind::Bridge, target()),
                (Kind::Kill, target()),
                (Kind::Pause, target()),
                (Kind::Rolling, None),
                (Kind::FullDisk, None),
            ];
            random.shuffle(&mut deck);
        }
        let Some((kind, target)) = deck.pop() else { return faults };
        let lasts = match kind {
            Kind::Rolling => 1_000,
            Kind::AloneWithClients => random.between(9_000, 14_000),
            _ => random.between(4_000, 12_000),
        };
        let lasts = Duration::from_millis(lasts);
        if at + lasts > length {
            return faults;
        }
        faults.push(Fault { at, lasts, kind, target, client: None });
        at += lasts + Duration::from_millis(random.between(2_000, 8_000));
    }
}

fn of_clients(seed: u64, length: Duration, clients: usize) -> Vec<Fault> {
    let mut random = Random::of_part(seed, 2);
    let (mut faults, mut at) = (Vec::new(), QUIET);
    loop {
        let client = usize::try_from(random.below(clients as u64)).ok();
        let follower = follower(&mut random, 3);
        let (kind, lasts) = match random.below(6) {
            0 | 1 => (Kind::PauseClient, random.between(500, 11_000)),
            2 | 3 => (Kind::KillClient, random.between(100, 5_000)),
            4 => (Kind::CutClient, random.between(2_000, 9_000)),
            _ => (Kind::OneServer, random.between(4_000, 12_000)),
        };
        let target = Some(follower).filter(|_| kind == Kind::OneServer);
        let lasts = Duration::from_millis(lasts);
        if at + lasts > length {
            return faults;
        }
        faults.push(Fault { at, lasts, kind, target, client });
        at += lasts + Duration::from_millis(random.between(1_000, 6_000));
    }
}

fn follower(random: &mut Random, count: usize) -> Target {
    Target::Follower(usize::try_from(random.below(count as u64)).unwrap_or(0))
}

impl Fault {
    /// The fault's name in a history, and its description.
    pub(crate) fn names(&self) -> (&'static str, String) {
        let target = match self.target {
            Some(Target::Follower(rank)) => format!("follower {rank}"),
            Some(Target::Leader) | None => "the leader".to_owned(),
        };
        let client = format!("client {}", self.client.unwrap_or(0) + 1);
        match self.kind {
            Kind::Halves => ("halves", format!("halves, {target} in the smaller one")),
            Kind::Alone if self.target == Some(Target::Leader) => {
                ("leader-alone", format!("{target} alone"))
            }
            Kind::Alone => ("follower-alone", format!("{target} alone")),
            Kind::AloneWithClients => {
                ("alone-with-clients", format!("{target} alone with half of the clients"))
            }
            Kind::Mute => ("one-way-out", format!("{target} is not heard by members")),
            Kind::Deaf => ("one-way-in", format!("{target} does not hear members")),
            Kind::Bridge => ("bridge", format!("halves, {target} sees both")),
            Kind::Kill => ("kill", format!("kill -9 of {target}")),
            Kind::Pause => ("pause", format!("SIGSTOP of {target}")),
            Kind::Rolling => ("rolling-restart", "rolling restart".to_owned()),
            Kind::FullDisk => ("full-disk", "full disk".to_owned()),
            Kind::PauseClient => ("pause-client", format!("SIGSTOP of {client}")),
            Kind::KillClient => ("kill-client", format!("kill -9 of {client}")),
            Kind::CutClient => ("cut-client", format!("{client} reaches no member")),
            Kind::OneServer => ("one-server", format!("{client} reaches only {target}")),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults: Vec<_> = self.of_members.iter().chain(&self.of_clients).collect();
        faults.sort_by_key(|fault| fault.at);
        for fault in faults {
            let (at, lasts) = (fault.at.as_secs_f64(), fault.lasts.as_secs_f64());
            writeln!(f, "{at:>7.1} s, {lasts:>4.1} s: {}", fault.names().1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::draw;

    #[test]
    fn a_seed_gives_one_plan_with_every_kind_that_ends_in_time() {
        let length = Duration::from_secs(600);
        let plan = draw(1, length, 3, 5);
        assert_eq!(plan, draw(1, length, 3, 5));
        assert_ne!(plan, draw(2, length, 3, 5));
        let faults = || plan.of_members.iter().chain(&plan.of_clients);
        let kinds: BTreeSet<_> = faults().map(|fault| fault.names().0).collect();
        assert_eq!(kinds.len(), 15, "{kinds:?}");
        assert!(faults().all(|fault| fault.at + fault.lasts <= length));
        for sequence in [&plan.of_members, &plan.of_clients] {
            assert!(sequence.windows(2).all(|pair| pair[0].at + pair[0].lasts < pair[1].at));
        }
    }
}
