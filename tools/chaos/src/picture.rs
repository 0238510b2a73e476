//! `--picture FILE`: a timeline of belief and truth, from a run with one fault.
//!
//! A follower is cut off the other members, together with three clients that hold a lock each: a plain mutex, one whose
//! proven bound is renewed, and a strict one. Three clients on the other side wait for these locks.

use std::thread;

use xtask::Result;

use crate::faults::between;
use crate::history::now;
use crate::hold::Hold;
use crate::network::Host;
use crate::peers::Peer;
use crate::world::{MILLISECOND, World};

/// The handles of the locks.
const LOCKS: [&str; 3] = ["mutex:/plain", "renewed:/renewed", "strict:/strict"];

/// The clients: the holder and the waiter of each lock.
pub(crate) const CLIENTS: [&str; 2 * LOCKS.len()] =
    ["holder-1", "waiter-1", "holder-2", "waiter-2", "holder-3", "waiter-3"];

/// When the member is cut off, counted from when all locks are held, and for how long.
const CUT_AFTER_MS: u64 = 5_000;
const CUT_MS: u64 = 20_000;

/// Makes the fault, and records the holds.
pub(crate) fn run(world: &World) -> Result<()> {
    let leader = world.members.leader().ok_or("no member leads")?;
    let member = (leader + 1) % world.members.count();
    let others = (0..world.members.count()).filter(|other| *other != member);
    let others: Vec<_> = others.map(Host::Member).collect();
    // The holders reach only this member, the waiters only the others.
    let holders: Vec<_> = (0..CLIENTS.len()).step_by(2).map(Host::Client).collect();
    let waiters: Vec<_> = (1..CLIENTS.len()).step_by(2).map(Host::Client).collect();
    let apart = [between(&holders, &others), between(&waiters, &[Host::Member(member)])];
    world.network.cut(1, apart.concat())?;
    for peer in &world.peers {
        peer.start()?;
    }
    thread::scope(|scope| {
        let mut holders = Vec::new();
        for (lock, handle) in LOCKS.into_iter().enumerate() {
            holders.push(acquire(world, world.peer(2 * lock), handle)?);
        }
        for hold in holders {
            scope.spawn(move || keep(hold, u64::MAX));
        }
        for (lock, handle) in LOCKS.into_iter().enumerate() {
            scope.spawn(move || {
                let end = now() + 2 * (CUT_AFTER_MS + CUT_MS) * MILLISECOND;
                if let Ok(hold) = acquire(world, world.peer(2 * lock + 1), handle) {
                    keep(hold, end);
                }
            });
        }
        world.sleep_ms(CUT_AFTER_MS);
        world.network.cut(2, between(&[Host::Member(member)], &others))?;
        let from = now();
        world.sleep_ms(CUT_MS);
        let until = now();
        world.history.add(format_args!(
            "fault number=1 kind=alone-with-clients from={from} until={until} members={member} clients= text=a_follower_with_the_holders"
        ));
        world.stop();
        Ok(())
    })
}

fn acquire<'a>(world: &'a World, peer: &'a Peer, handle: &'static str) -> Result<Hold<'a>> {
    let wait = 2 * (CUT_AFTER_MS + CUT_MS);
    let hold = (0..10).find_map(|_| Hold::acquire(world, peer, handle, wait));
    hold.ok_or_else(|| format!("{}: {handle} cannot be acquired", peer.name).into())
}

/// Keeps a lock while it is claimed. The proven bound of a plain mutex is not renewed.
fn keep(mut hold: Hold<'_>, until: u64) {
    let renews = !hold.handle.starts_with("mutex:");
    hold.keep(until, renews);
    hold.end(None, "picture");
}
