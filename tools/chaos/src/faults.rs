//! Carries out the plan.

use std::thread;
use std::time::Duration;

use xtask::Result;

use crate::Signal;
use crate::history::now;
use crate::network::{Cut, Host};
use crate::peers::Peer;
use crate::plan::{Fault, Kind, Target};
use crate::world::World;

/// Carries out the faults of one sequence, each to its end, until the run stops. A fault that would begin too late,
/// because earlier ones took longer than planned, is left out.
pub(crate) fn run(world: &World, faults: &[Fault], first_number: usize, end: u64) -> Result<()> {
    for (number, fault) in (first_number..).zip(faults) {
        let at = world.start + nanos(fault.at);
        world.sleep_until(at);
        if world.is_stopping() || now() + nanos(fault.lasts) > end {
            return Ok(());
        }
        let leader = world.members.leader();
        let from = now();
        let mut active =
            ActiveFault { world, number, fault, members: members(world, fault, leader) };
        let begun = active.begin();
        if begun.is_ok() {
            world.sleep_until(from + nanos(fault.lasts));
        }
        let ended = active.end();
        let ((kind, what), until) = (fault.names(), now());
        let text = format!("{what} {}", active.member_names()).trim().replace([' ', '='], "_");
        let victims: Vec<_> = active.victims().iter().map(ToString::to_string).collect();
        world.history.add(format_args!(
            "fault number={number} kind={kind} from={from} until={until} members={} clients={} text={text}",
            victims.join(","),
            fault.client.map_or("", |client| &world.peer(client).name),
        ));
        world.counters.faults.add(1);
        begun.and(ended)?;
        wait_for_leader(world);
    }
    Ok(())
}

/// Waits until the ensemble serves clients, for a limited time: faults may disturb the election.
fn wait_for_leader(world: &World) {
    let deadline = now() + nanos(Duration::from_secs(20));
    while now() < deadline && !world.is_stopping() && world.members.leader().is_none() {
        world.sleep_ms(500);
    }
}

struct ActiveFault<'a> {
    world: &'a World,
    number: usize,
    fault: &'a Fault,
    /// The members that the fault involves: its target first, then the members on the target's side of the cut.
    members: Vec<usize>,
}

fn members(world: &World, fault: &Fault, leader: Option<usize>) -> Vec<usize> {
    let count = world.members.count();
    let leader = leader.unwrap_or(0);
    let followers: Vec<_> = (0..count).filter(|index| *index != leader).collect();
    let target = fault.target.map(|target| match target {
        Target::Leader => leader,
        Target::Follower(rank) => {
            followers.get(rank % followers.len().max(1)).copied().unwrap_or(leader)
        }
    });
    match (fault.kind, target) {
        (Kind::Halves, Some(first)) => (0..count / 2).map(|step| (first + step) % count).collect(),
        (Kind::Rolling, _) => (0..count).collect(),
        (Kind::FullDisk, _) => vec![count.saturating_sub(1)],
        (_, target) => target.into_iter().collect(),
    }
}

impl ActiveFault<'_> {
    fn begin(&mut self) -> Result<()> {
        let (world, target) = (self.world, self.target());
        match self.fault.kind {
            Kind::Kill => world.members.kill(target)?,
            Kind::Pause => world.members.signal(target, Signal::STOP),
            Kind::Rolling => {
                for index in &self.members {
                    world.members.kill(*index)?;
                    thread::sleep(Duration::from_millis(300));
                    self.start_again(*index)?;
                }
            }
            Kind::FullDisk => world.members.fill_disk()?,
            Kind::PauseClient => self.client().signal(Signal::STOP),
            Kind::KillClient => self.client().kill(),
            _ => world.network.cut(self.number, self.cuts())?,
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let (world, target) = (self.world, self.target());
        match self.fault.kind {
            Kind::Kill => world.members.start(target)?,
            Kind::Pause => world.members.signal(target, Signal::CONT),
            Kind::Rolling => {}
            Kind::FullDisk => {
                // Without a restart it would join again with a hole in its log (ZOOKEEPER-4882).
                world.members.kill(target)?;
                world.members.empty_disk()?;
                self.start_again(target)?;
            }
            Kind::PauseClient => self.client().signal(Signal::CONT),
            Kind::KillClient => self.client().start()?,
            _ => world.network.heal(self.number)?,
        }
        Ok(())
    }

    fn target(&self) -> usize {
        self.members.first().copied().unwrap_or(0)
    }

    fn client(&self) -> &Peer {
        self.world.peer(self.fault.client.unwrap_or(0))
    }

    /// Starts a member and waits until it serves. After a full disk, the log of the last member may be incomplete.
    fn start_again(&self, member: usize) -> Result<()> {
        let world = self.world;
        if member + 1 < world.members.count() {
            world.members.start(member)?;
            return world.members.wait_until_serving(member);
        }
        if world.members.start_after_full_disk(member)? {
            let text = "started without its data: its log was incomplete";
            world.history.note(&format!("m{} {text}", member + 1));
        }
        Ok(())
    }

    fn cuts(&self) -> Vec<Cut> {
        let is_on_side = |index: &usize| self.members.contains(index);
        let members: Vec<_> = (0..self.world.members.count()).collect();
        let (side, rest): (Vec<_>, Vec<_>) = members.iter().copied().partition(is_on_side);
        let (side, rest) = (hosts(&side), hosts(&rest));
        let target = Host::Member(self.target());
        let client = Host::Client(self.fault.client.unwrap_or(0));
        match self.fault.kind {
            Kind::Halves | Kind::Alone => between(&side, &rest),
            Kind::AloneWithClients => {
                let clients = (0..self.world.hosts).map(Host::Client);
                let (with_target, others): (Vec<_>, Vec<_>) = clients
                    .partition(|host| matches!(host, Host::Client(number) if number % 2 == 0));
                [between(&side, &rest), between(&with_target, &rest), between(&others, &side)]
                    .concat()
            }
            Kind::Mute => rest.iter().map(|other| (target, *other)).collect(),
            Kind::Deaf => rest.iter().map(|other| (*other, target)).collect(),
            Kind::Bridge => {
                let (left, right) = rest.split_at(rest.len() / 2);
                between(left, right)
            }
            Kind::CutClient => between(&[client], &hosts(&members)),
            Kind::OneServer => between(&[client], &rest),
            _ => Vec::new(),
        }
    }

    /// The members that the fault disturbs.
    fn victims(&self) -> Vec<usize> {
        match self.fault.kind {
            Kind::OneServer => Vec::new(),
            Kind::Bridge => (0..self.world.members.count())
                .filter(|index| !self.members.contains(index))
                .collect(),
            _ => self.members.clone(),
        }
    }

    /// The target and the members on its side, for the fault's description; empty for a fault without a target.
    fn member_names(&self) -> String {
        if self.fault.target.is_none() {
            return String::new();
        }
        let members: Vec<_> = self.members.iter().map(|index| format!("m{}", index + 1)).collect();
        format!("({})", members.join(" "))
    }
}

fn hosts(members: &[usize]) -> Vec<Host> {
    members.iter().copied().map(Host::Member).collect()
}

/// The cuts that separate two groups of hosts, in both directions.
pub(crate) fn between(one: &[Host], other: &[Host]) -> Vec<Cut> {
    let pairs = one.iter().flat_map(|one| other.iter().map(|other| (*one, *other)));
    pairs.flat_map(|(one, other)| [(one, other), (other, one)]).collect()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
