//! `cargo xtask chaos --picture FILE`: belief against truth on a time line, from a run with one fault.
//!
//! A follower is cut off the other members, together with three clients that hold a lock each: a plain mutex, one whose
//! proven bound is renewed, and a strict one. Three clients on the other side wait for these locks.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::thread;

use xtask::Result;

use super::history::now;
use super::hold::Hold;
use super::network::Host;
use super::peers::Peer;
use super::world::{MILLISECOND, World};

/// Of each lock: its handle, and its name in the picture.
const LOCKS: [(&str, &str); 3] = [
    ("mutex:/picture/plain", "mutex: is_held()"),
    ("renewed:/picture/renewed", "mutex: proven_until(), renewed"),
    ("strict:/picture/strict", "StrictMutex: proven_until()"),
];

/// The number of clients: holders have even numbers, waiters odd ones.
pub(super) const CLIENTS: usize = 2 * LOCKS.len();

/// When the member is cut off, after all locks are held.
const CUT_AFTER_MS: u64 = 5_000;
/// For how long.
const CUT_MS: u64 = 20_000;

/// A bar of the picture, in nanoseconds of the machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bar {
    from: u64,
    to: u64,
}

/// What was recorded: of each lock, what the holder and the waiter claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    cut: Bar,
    session: u64,
    locks: Vec<[Option<Bar>; 2]>,
}

/// Runs it, and returns the picture.
pub(super) fn run(world: &World, session: u64) -> Result<String> {
    let leader = world.members.leader().ok_or("no member leads")?;
    let member = (leader + 1) % world.members.count();
    // The holders reach only this member, the waiters only the others.
    let is_apart = |client: usize, other: usize| (client.is_multiple_of(2)) != (other == member);
    let both = |one: Host, other: Host| [(one, other), (other, one)];
    let clients = (0..CLIENTS).flat_map(|client| {
        let members = (0..world.members.count()).filter(move |other| is_apart(client, *other));
        members.flat_map(move |other| both(Host::Client(client), Host::Member(other)))
    });
    world.network.cut(1, clients.collect())?;
    for peer in &world.peers {
        peer.start()?;
    }
    let claims = Mutex::new(vec![[None; 2]; LOCKS.len()]);
    let claim = |lock: usize, side: usize, bar: Bar| {
        let mut claims = claims.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = claims.get_mut(lock).and_then(|lock| lock.get_mut(side)) {
            *of = Some(bar);
        }
    };
    let cut = thread::scope(|scope| -> Result<Bar> {
        let mut holders = Vec::new();
        for (lock, (handle, _)) in LOCKS.into_iter().enumerate() {
            let hold = acquire(world, world.peer(2 * lock), handle)?;
            holders.push((lock, hold));
        }
        let proven = |lock: usize| lock > 0;
        for (lock, hold) in holders {
            scope.spawn(move || claim(lock, 0, keep(hold, proven(lock), u64::MAX)));
        }
        for (lock, (handle, _)) in LOCKS.into_iter().enumerate() {
            scope.spawn(move || {
                let end = now() + 2 * (CUT_AFTER_MS + CUT_MS) * MILLISECOND;
                if let Ok(hold) = acquire(world, world.peer(2 * lock + 1), handle) {
                    claim(lock, 1, keep(hold, proven(lock), end));
                }
            });
        }
        world.sleep_ms(CUT_AFTER_MS);
        let others = (0..world.members.count()).filter(|other| *other != member);
        let cuts = others.flat_map(|other| both(Host::Member(member), Host::Member(other)));
        world.network.cut(2, cuts.collect())?;
        let from = now();
        world.sleep_ms(CUT_MS);
        let cut = Bar { from, to: now() };
        world.stop();
        Ok(cut)
    })?;
    let locks = claims.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(draw(&Record { cut, session, locks }))
}

fn acquire<'a>(world: &'a World, peer: &'a Peer, handle: &'static str) -> Result<Hold<'a>> {
    let wait = 2 * (CUT_AFTER_MS + CUT_MS);
    let hold = (0..10).find_map(|_| Hold::acquire(world, peer, handle, wait));
    hold.ok_or_else(|| format!("{}: {handle} cannot be acquired", peer.name).into())
}

/// Keeps a lock while it is claimed. Returns for how long it was.
fn keep(mut hold: Hold<'_>, is_proven: bool, until: u64) -> Bar {
    if is_proven {
        hold.keep_renewed(until);
    } else {
        hold.keep(until);
    }
    let (from, held) = (hold.granted, hold.held_until());
    let to = if is_proven { hold.proven.unwrap_or(from) } else { held };
    hold.end(None, "picture");
    Bar { from, to: to.min(now()) }
}

const WIDTH: f64 = 640.0;
const LEFT: f64 = 20.0;
const ROW: f64 = 16.0;

fn draw(record: &Record) -> String {
    let start = record.cut.from.saturating_sub(CUT_AFTER_MS * MILLISECOND);
    #[expect(clippy::cast_precision_loss, reason = "pixels")]
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let scale = (WIDTH - 2.0 * LEFT) / seconds(record.cut.to - start);
    let x = |at: u64| LEFT + seconds(at.saturating_sub(start)) * scale;
    let cut = x(record.cut.from);
    let mut text = format!(
        "<text x='{cut:.0}' y='14'>a follower and the clients on it are cut off</text>\n\
         <path d='M{cut:.1} 20V{:.0}' class='cut'/>\n",
        20.0 + 4.0 * ROW * 3.0 + ROW
    );
    let mut y = 20.0;
    for ((_, name), claims) in LOCKS.into_iter().zip(&record.locks) {
        y += 1.5 * ROW;
        let _ = writeln!(text, "<text x='{LEFT}' y='{:.0}' class='name'>{name}</text>", y - 4.0);
        for (claim, who) in claims.iter().zip(["holder", "next"]) {
            let Some(Bar { from, to }) = *claim else { continue };
            let (from, to) = (from.max(start), to.max(start));
            let _ = writeln!(
                text,
                "<rect x='{:.1}' y='{y:.0}' width='{:.1}' height='11' class='{who}'/>",
                x(from),
                x(to.min(record.cut.to)) - x(from)
            );
            y += ROW;
        }
        if let [Some(holder), Some(next)] = claims {
            let _ = writeln!(text, "{}", difference(*holder, *next, &x, y - 2.0 * ROW));
        }
        y += 0.5 * ROW;
    }
    y += ROW;
    let mut at = 0.0;
    while at <= seconds(record.cut.to - start) {
        let from_cut = at - seconds(record.cut.from - start);
        let _ = writeln!(
            text,
            "<text x='{:.0}' y='{y:.0}' class='axis'>{from_cut:.0} s</text>",
            LEFT + at * scale
        );
        at += 5.0;
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {:.0}' width='{WIDTH}' font-family='sans-serif' font-size='12'>\n\
         <style>.back{{fill:#fff}}.name{{font-weight:bold}}.axis{{text-anchor:middle;fill:#667}}.holder{{fill:#14527a}}.next{{fill:#3a8f5c}}\
         .wrong{{fill:#b3261e}}.apart{{fill:#667}}.cut{{stroke:#b3261e;stroke-dasharray:4 3}}\
         @media (prefers-color-scheme:dark){{text{{fill:#e6e9ee}}.back{{fill:#1c2026}}.holder{{fill:#6cb8ec}}.next{{fill:#7fce9f}}\
         .wrong{{fill:#ff8a80}}.axis,.apart{{fill:#99a}}}}</style>\n\
         <rect width='100%' height='100%' class='back'/>\n{text}\
         <text x='{LEFT}' y='{:.0}'>blue: the holder claims the lock · green: the next holder claims it · session timeout {:.0} s</text>\n</svg>\n",
        y + 40.0,
        y + 24.0,
        seconds(record.session)
    )
}

/// Marks the overlap of two claims, or the time between them.
fn difference(holder: Bar, next: Bar, x: &impl Fn(u64) -> f64, y: f64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    if next.from < holder.to {
        let end = holder.to.min(next.to);
        let overlap = end - next.from;
        format!(
            "<rect x='{:.1}' y='{:.0}' width='{:.1}' height='4' class='wrong'/><text x='{:.0}' y='{:.0}' class='wrong'>both for {:.2} s</text>",
            x(next.from),
            y + 11.5,
            x(end) - x(next.from),
            x(end) + 6.0,
            y + 10.0,
            seconds(overlap)
        )
    } else {
        format!(
            "<text x='{:.0}' y='{:.0}' class='apart'>{:.2} s between</text>",
            x(holder.to) + 6.0,
            y + 10.0,
            seconds(next.from - holder.to)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Bar, Record, draw};

    #[test]
    fn an_overlap_and_a_gap_are_labelled() {
        let second = 1_000_000_000;
        let bar = |from: u64, to: u64| Some(Bar { from: from * second, to: to * second });
        let record = Record {
            cut: Bar { from: 10 * second, to: 26 * second },
            session: 6 * second,
            locks: vec![[bar(4, 19), bar(16, 26)], [bar(4, 14), bar(16, 26)], [bar(4, 15), None]],
        };
        let svg = draw(&record);
        assert!(svg.contains("both for 3.00 s"), "{svg}");
        assert!(svg.contains("2.00 s between"), "{svg}");
        assert_eq!(svg.matches("class='next'").count(), 2);
    }
}
