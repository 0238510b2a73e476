//! The workloads of the clients: one thread for each client and workload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::Signal;
use crate::history::{known, now};
use crate::hold::{Hold, ask};
use crate::lock::lock;
use crate::peers::{Answer, Library, Peer};
use crate::random::Random;
use crate::world::{MILLISECOND, World};

/// The node with the set that clients write with `guarded()`.
pub(crate) const SET: &str = "/chaos/set";

/// The time limit of an acquire of a contended lock.
const WAIT_MS: u64 = 8_000;

/// Runs until the world stops.
pub(crate) type Workload = fn(&World, &Peer, Random);

/// The workloads of clients of both libraries.
pub(crate) const OF_ALL: [Workload; 5] =
    [lock_and_hold, change_memory, write_guarded, use_registers, lead];

/// The workloads of clients that renew the proven bounds of their holds.
pub(crate) const OF_PROVEN: [Workload; 2] = [hold_renewed, hold_strict];

/// Acquires a lock again and again, and holds it for a time that `ms` draws.
fn hold_often(
    world: &World,
    peer: &Peer,
    mut random: Random,
    (handle, is_proven, pause): (&str, bool, u64),
    ms: fn(&mut Random) -> u64,
) {
    let wait = if is_proven { 2 * WAIT_MS } else { WAIT_MS };
    while !world.is_stopping() {
        let ms = ms(&mut random);
        if let Some(mut hold) = Hold::acquire(world, peer, handle, wait) {
            hold.keep(now() + ms * MILLISECOND, is_proven);
            hold.release();
        }
        world.sleep_ms(random.below(pause));
    }
}

/// A lock whose holds must not overlap. Most are short, some outlast a session.
fn lock_and_hold(world: &World, peer: &Peer, random: Random) {
    hold_often(world, peer, random, ("mutex:/chaos/lock", false, 100), |random| {
        match random.below(10) {
            0 | 1 => random.between(8_000, 20_000),
            2 | 3 => random.between(500, 2_000),
            _ => random.between(10, 500),
        }
    });
}

/// A mutex with `LockOptions::with_proven_renewal`.
fn hold_renewed(world: &World, peer: &Peer, random: Random) {
    hold_often(world, peer, random, ("renewed:/chaos/renewed", true, 100), proven_ms);
}

/// A `StrictMutex`.
fn hold_strict(world: &World, peer: &Peer, random: Random) {
    hold_often(world, peer, random, ("strict:/chaos/strict", true, 100), proven_ms);
}

/// Sometimes longer than the session timeout. From then on, only renewals prove the hold.
fn proven_ms(random: &mut Random) -> u64 {
    match random.below(10) {
        0..=2 => random.between(6_000, 20_000),
        3..=5 => random.between(500, 3_000),
        _ => random.between(10, 500),
    }
}

/// Two sets in the memory of this process, as in Jepsen's tests of etcd: read, changed up to 2 s later and written
/// back. One is written if the client reports that it holds the lock, the other only within the proven bound.
fn change_memory(world: &World, peer: &Peer, mut random: Random) {
    while !world.is_stopping() {
        if let Some(mut hold) = Hold::acquire(world, peer, "mutex:/chaos/memory", WAIT_MS) {
            let (naive, proven) = (Read::new(&world.naive_set), Read::new(&world.proven_set));
            let ms = if random.below(3) == 0 { random.below(2_000) } else { random.below(300) };
            world.sleep_ms(ms);
            if hold.is_held() {
                naive.write_more(world, peer, &hold, "naive", u64::MAX);
            }
            if let Some(until) = hold.proven {
                proven.write_more(world, peer, &hold, "proven", until);
            }
            hold.release();
        }
        world.sleep_ms(random.below(150));
    }
}

/// The contents of a set in memory, and when they were read.
struct Read<'a> {
    set: &'a Mutex<BTreeSet<u64>>,
    elements: BTreeSet<u64>,
    at: u64,
}

impl<'a> Read<'a> {
    fn new(set: &'a Mutex<BTreeSet<u64>>) -> Self {
        // Taken while the mutex is locked, so the times are in the order of the reads and writes.
        let elements = lock(set);
        Self { set, at: now(), elements: elements.clone() }
    }

    /// Writes the set back with one more element, unless the time `until` has passed.
    fn write_more(mut self, world: &World, peer: &Peer, hold: &Hold<'_>, name: &str, until: u64) {
        let element = world.counters.elements.add(1);
        self.elements.insert(element);
        let mut set = lock(self.set);
        let at = now();
        if at >= until {
            return;
        }
        *set = self.elements;
        drop(set);
        world.history.add(format_args!(
            "memory set={name} element={element} client={} kind={} token={} read={} at={at}",
            peer.name,
            peer.library.name(),
            hold.token_text(),
            self.at
        ));
    }
}

/// A set in a node, written with `guarded()`: nothing may be lost, however late a holder writes.
fn write_guarded(world: &World, peer: &Peer, mut random: Random) {
    while !world.is_stopping() {
        if let Some(hold) = Hold::acquire(world, peer, "mutex:/chaos/guarded", WAIT_MS) {
            // Without a token, the order of the write could not be judged.
            if let Some(token) = hold.token
                && let Answer::Ok { text, .. } = ask(world, peer, &format!("get {SET}"))
            {
                let elements = text.split(' ').nth(3).unwrap_or("-").to_owned();
                let ms = match random.below(16) {
                    // Longer than a session lives without a connection.
                    0 => random.between(6_000, 9_000),
                    1..=3 => random.below(2_000),
                    _ => random.below(200),
                };
                world.sleep_ms(ms);
                let element = world.counters.elements.add(1);
                let called = now();
                // `is_held` is not checked: only the guard protects the set.
                let answer = hold.ask("guarded", &format!("{SET} {elements},{element}"));
                let outcome = match &answer {
                    Answer::Ok { .. } => "applied",
                    Answer::Failed { outcome, .. } if outcome == "NotApplied" => "not",
                    _ => "unknown",
                };
                if outcome == "applied" {
                    world.counters.guarded.add(1);
                }
                world.history.add(format_args!(
                    "guarded element={element} client={} kind={} token={token} called={called} returned={} outcome={outcome}",
                    peer.name,
                    peer.library.name(),
                    now()
                ));
            }
            hold.release();
        }
        world.sleep_ms(random.below(100));
    }
}

/// Leads in an election. A leadership is judged like a hold of a lock.
fn lead(world: &World, peer: &Peer, random: Random) {
    hold_often(world, peer, random, ("latch:/chaos/election", false, 300), |random| {
        if random.below(6) == 0 { random.between(4_000, 12_000) } else { random.below(1_500) }
    });
}

/// The number of registers.
pub(crate) const REGISTERS: u64 = 5;

/// Uses the registers: reads, writes and compare-and-set.
fn use_registers(world: &World, peer: &Peer, mut random: Random) {
    // The last versions that this worker has seen.
    let mut seen = BTreeMap::new();
    while !world.is_stopping() {
        let key = random.below(REGISTERS);
        let operation = match random.below(20) {
            0..=6 => "fenced",
            7..=9 => "plain",
            10..=11 => "synced",
            12..=16 => "set",
            _ => "cas",
        };
        let expected = Some(seen.get(&key).copied().unwrap_or(0)).filter(|_| operation == "cas");
        if let Some(version) = use_register(world, peer, key, operation, expected) {
            seen.insert(key, version);
        }
        world.sleep_ms(random.between(50, 250));
    }
}

/// Does an operation on a register. Returns the version that it has read or created.
pub(crate) fn use_register(
    world: &World,
    peer: &Peer,
    key: u64,
    operation: &str,
    expected: Option<u64>,
) -> Option<u64> {
    let number = world.counters.operations.add(1);
    let (path, fence) = (format!("/chaos/r{key}"), format!("/chaos/fence-{}", peer.name));
    let command = match operation {
        "fenced" => format!("fencedget {path} {fence}"),
        "plain" => format!("get {path}"),
        "synced" => format!("syncget {path}"),
        _ => match expected {
            None => format!("set {path} {number} -1"),
            Some(version) => format!("set {path} {number} {version}"),
        },
    };
    let called = now();
    let answer = ask(world, peer, &command);
    let returned = now();
    let mut words = match &answer {
        Answer::Ok { text, .. } => text.split(' '),
        _ => "".split(' '),
    };
    let version: Option<u64> = words.next().and_then(|version| version.parse().ok());
    let (mzxid, session) = (words.next().unwrap_or("-"), words.next().unwrap_or("-"));
    let number = number.to_string();
    let value = words.next().unwrap_or(&number);
    let result = match &answer {
        Answer::Ok { .. } => "ok",
        Answer::Failed { kind, outcome } if outcome == "NotApplied" && kind == "BadVersion" => {
            "refused"
        }
        Answer::Failed { outcome, .. } if outcome == "NotApplied" => "not",
        _ => "unknown",
    };
    // A failed read proves nothing, so it is not recorded.
    if version.is_some() || matches!(operation, "set" | "cas") {
        world.history.add(format_args!(
            "register key={key} client={} op={operation} value={value} expected={} version={} mzxid={mzxid} \
             session={session} called={called} returned={returned} result={result}",
            peer.name,
            known(expected),
            known(version)
        ));
    }
    if answer == Answer::Gone {
        world.sleep_ms(200);
    }
    version
}

/// A client that lives for one hold: a hold is proven from the creation of its session only.
///
/// If the lock is not free at once, the client ends: its session would be too old for a proven hold.
pub(crate) fn live_for_one_hold(world: &World, peer: &Peer, mut random: Random) {
    while !world.is_stopping() {
        if peer.start().is_err() {
            return;
        }
        let Some(mut hold) = Hold::acquire(world, peer, "mutex:/chaos/proven", 1_500) else {
            ask(world, peer, "close");
            peer.kill();
            world.sleep_ms(random.below(300));
            continue;
        };
        let proven = hold.proven.unwrap_or(0);
        match random.below(6) {
            // Released early, or kept until the proven bound.
            way @ 0..=2 => {
                let early = now() + random.between(10, 800) * MILLISECOND;
                hold.keep(if way == 2 { proven } else { early }, false);
                hold.release();
                ask(world, peer, "close");
            }
            // Ended by closing its session.
            3 => {
                hold.keep(now() + random.between(10, 2_000) * MILLISECOND, false);
                let at = now();
                ask(world, peer, "close");
                hold.end(Some(at), "closed");
            }
            // Killed.
            4 => {
                hold.keep(now() + random.between(10, 2_000) * MILLISECOND, false);
                peer.kill();
                hold.end(None, "killed");
            }
            // Stopped for longer than its session lives; the client then reports whether it still holds the lock.
            _ => {
                hold.keep(now() + random.between(10, 1_000) * MILLISECOND, false);
                peer.signal(Signal::STOP);
                thread::sleep(Duration::from_millis(random.between(6_000, 8_500)));
                peer.signal(Signal::CONT);
                hold.is_held();
                peer.kill();
                hold.end(None, "stopped");
            }
        }
        peer.kill();
        world.sleep_ms(random.below(400));
    }
}

/// The library of the short-lived clients: only docent has proven holds.
pub(crate) const SHORT_LIVED: Library = Library::Docent;
