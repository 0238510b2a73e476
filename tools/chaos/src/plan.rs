//! The plan of a run: its faults, their times and durations. The same seed gives the same plan.

use std::fmt;
use std::time::Duration;

use crate::random::Random;

/// The target of a fault. The leader is known only when the fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Leader,
    /// The follower of this rank, modulo their number.
    Follower(usize),
}

/// What a fault does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The members are cut into two groups, the smaller one of them with this target.
    Halves(Target),
    /// One member is cut off the others; clients still reach it.
    Alone(Target),
    /// One member is cut off the others together with half of the clients, which reach no other member.
    AloneWithClients(Target),
    /// Other members do not receive what this one sends.
    Mute(Target),
    /// This member does not receive what others send.
    Deaf(Target),
    /// The members are cut into two groups, with one member that sees both.
    Bridge(Target),
    /// `kill -9`, and a start at the end of the fault.
    Kill(Target),
    /// SIGSTOP, and SIGCONT at the end of the fault.
    Pause(Target),
    /// One member after the other is stopped and started.
    Rolling,
    /// The file system of the last member is full; the member is started again at the end if it has ended.
    FullDisk,
    /// SIGSTOP of a client.
    PauseClient(usize),
    /// `kill -9` of a client; another process takes its place at the end of the fault.
    KillClient(usize),
    /// A client reaches no member.
    CutClient(usize),
    /// A client reaches one member only.
    OneServer(usize, Target),
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) kind: Kind,
}

/// The faults of a run, in two sequences: those of members and those of clients overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) of_members: Vec<Fault>,
    pub(crate) of_clients: Vec<Fault>,
}

/// The time without faults at the beginning, for the first connections.
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
                0 => Target::Leader,
                _ => Target::Follower(usize::try_from(random.below(members as u64)).unwrap_or(0)),
            };
            deck = vec![
                Kind::Halves(target()),
                Kind::Alone(Target::Leader),
                Kind::Alone(Target::Follower(0)),
                Kind::AloneWithClients(target()),
                // The session ends on the other side while its client relies on it.
                Kind::AloneWithClients(Target::Follower(1)),
                Kind::Mute(target()),
                Kind::Deaf(target()),
                Kind::Bridge(target()),
                Kind::Kill(target()),
                Kind::Pause(target()),
                Kind::Rolling,
                Kind::FullDisk,
            ];
            random.shuffle(&mut deck);
        }
        let Some(kind) = deck.pop() else { return faults };
        let lasts = match kind {
            Kind::Rolling => Duration::from_secs(1),
            Kind::AloneWithClients(_) => Duration::from_millis(random.between(9_000, 14_000)),
            _ => Duration::from_millis(random.between(4_000, 12_000)),
        };
        if at + lasts > length {
            return faults;
        }
        faults.push(Fault { at, lasts, kind });
        at += lasts + Duration::from_millis(random.between(2_000, 8_000));
    }
}

fn of_clients(seed: u64, length: Duration, clients: usize) -> Vec<Fault> {
    let mut random = Random::of_part(seed, 2);
    let (mut faults, mut at) = (Vec::new(), QUIET);
    loop {
        let client = usize::try_from(random.below(clients as u64)).unwrap_or(0);
        let follower = Target::Follower(usize::try_from(random.below(3)).unwrap_or(0));
        let (kind, lasts) = match random.below(6) {
            0 | 1 => (Kind::PauseClient(client), random.between(500, 11_000)),
            2 | 3 => (Kind::KillClient(client), random.between(100, 5_000)),
            4 => (Kind::CutClient(client), random.between(2_000, 9_000)),
            _ => (Kind::OneServer(client, follower), random.between(4_000, 12_000)),
        };
        let lasts = Duration::from_millis(lasts);
        if at + lasts > length {
            return faults;
        }
        faults.push(Fault { at, lasts, kind });
        at += lasts + Duration::from_millis(random.between(1_000, 6_000));
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader => f.write_str("the leader"),
            Self::Follower(rank) => write!(f, "follower {rank}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halves(target) => write!(f, "halves, {target} in the smaller one"),
            Self::Alone(target) => write!(f, "{target} alone"),
            Self::AloneWithClients(target) => write!(f, "{target} alone with half of the clients"),
            Self::Mute(target) => write!(f, "{target} is not heard by members"),
            Self::Deaf(target) => write!(f, "{target} does not hear members"),
            Self::Bridge(target) => write!(f, "halves, {target} sees both"),
            Self::Kill(target) => write!(f, "kill -9 of {target}"),
            Self::Pause(target) => write!(f, "SIGSTOP of {target}"),
            Self::Rolling => f.write_str("rolling restart"),
            Self::FullDisk => f.write_str("full disk"),
            Self::PauseClient(client) => write!(f, "SIGSTOP of client {}", client + 1),
            Self::KillClient(client) => write!(f, "kill -9 of client {}", client + 1),
            Self::CutClient(client) => write!(f, "client {} reaches no member", client + 1),
            Self::OneServer(client, target) => {
                write!(f, "client {} reaches only {target}", client + 1)
            }
        }
    }
}

impl Kind {
    /// Its name in a history.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Halves(_) => "halves",
            Self::Alone(Target::Leader) => "leader-alone",
            Self::Alone(_) => "follower-alone",
            Self::AloneWithClients(_) => "alone-with-clients",
            Self::Mute(_) => "one-way-out",
            Self::Deaf(_) => "one-way-in",
            Self::Bridge(_) => "bridge",
            Self::Kill(_) => "kill",
            Self::Pause(_) => "pause",
            Self::Rolling => "rolling-restart",
            Self::FullDisk => "full-disk",
            Self::PauseClient(_) => "pause-client",
            Self::KillClient(_) => "kill-client",
            Self::CutClient(_) => "cut-client",
            Self::OneServer(..) => "one-server",
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults: Vec<_> = self.of_members.iter().chain(&self.of_clients).collect();
        faults.sort_by_key(|fault| fault.at);
        for fault in faults {
            let (at, lasts) = (fault.at.as_secs_f64(), fault.lasts.as_secs_f64());
            writeln!(f, "{at:>7.1} s, {lasts:>4.1} s: {}", fault.kind)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::draw;

    const LENGTH: Duration = Duration::from_secs(600);

    #[test]
    fn a_seed_gives_one_plan() {
        assert_eq!(draw(7, LENGTH, 3, 5), draw(7, LENGTH, 3, 5));
        assert_ne!(draw(7, LENGTH, 3, 5), draw(8, LENGTH, 3, 5));
    }

    #[test]
    fn a_long_plan_has_every_kind_and_ends_in_time() {
        let plan = draw(1, LENGTH, 3, 5);
        let faults = || plan.of_members.iter().chain(&plan.of_clients);
        let kinds: BTreeSet<_> = faults().map(|fault| fault.kind.name()).collect();
        assert_eq!(kinds.len(), 15, "{kinds:?}");
        assert!(faults().all(|fault| fault.at + fault.lasts <= LENGTH));
        for sequence in [&plan.of_members, &plan.of_clients] {
            assert!(sequence.windows(2).all(|pair| pair[0].at + pair[0].lasts < pair[1].at));
        }
    }

    #[test]
    fn faults_of_clients_name_clients_that_exist() {
        let text = draw(3, LENGTH, 5, 2).to_string();
        assert!(text.contains("client 2") && !text.contains("client 3"), "{text}");
    }
}
