//! The cost of a call does not depend on the number of pending requests and of watches. The tests count the visited
//! entries of their tables, so the speed and the load of the computer do not matter.

use docent_protocol::AddWatchMode;

use super::*;
use crate::{config::WhenFull, machine::visited::take_visited};

/// The number of entries that a call may visit on average: a few lookups, and its share of the tables that shrink.
const EACH: usize = 8;

/// Calls `work` `count` times, and fails as soon as the calls have visited more than [`EACH`] times `count` entries.
fn each(what: &str, count: u32, mut work: impl FnMut(u32)) {
    take_visited();
    let mut visited = 0;
    for number in 0..count {
        work(number);
        visited += take_visited();
        assert!(
            visited <= EACH * count as usize,
            "{what}: {visited} visited entries after {} of {count}",
            number + 1
        );
    }
}

/// A permutation of `0..count`.
fn mixed(number: u32, count: u32) -> u32 {
    u32::try_from(u64::from(number) * 7919 % u64::from(count)).unwrap()
}

/// The path of a watch, one of `paths`.
fn path(number: u32, paths: u32) -> String {
    format!("/parent/{}", number % paths)
}

impl Scenario {
    fn persistent(&mut self, number: u32, paths: u32) {
        let (now, path) = (self.now, path(number, paths).into());
        self.machine.add_watch(AddWatchMode::Persistent, number, path, number, || now);
    }

    /// The calls that the driver makes in each turn.
    fn turn(&mut self) {
        let _ = self.machine.poll_timeout();
        self.machine.handle_timeout(self.now);
    }
}

/// If visited entries were not counted, all other tests of this file would pass.
#[test]
fn a_search_is_counted() {
    let mut scenario = Scenario::new(config());
    (0..100).for_each(|number| scenario.persistent(number, 100));
    take_visited();
    assert_eq!(scenario.machine.requests.iter().count(), 100);
    assert_eq!(take_visited(), 100);
    assert_eq!(scenario.machine.watches.persistent_paths().len(), 0, "requested, not set");
    assert_eq!(take_visited(), 100);
}

/// 80,000 watch requests took 27 s to queue, and 9 s to drop.
// Case (Found in docent itself): asking for a watch, cancelling and dropping it searched all
// pending requests: 80,000 took 27 s.
// Case (Found in docent itself): no test held that calls do not search the pending requests and
// watches.
#[test]
fn calls_without_a_connection_visit_no_other_request() {
    for (count, paths, timeout) in [
        (10_000, 1, None),
        (10_000, 10_000, Some(ms(60_000))),
        (100_000, 100_000, Some(ms(60_000))),
    ] {
        let config = config().with_max_requests(1 << 30);
        let config = config.with_max_pending_bytes(1 << 40);
        let mut scenario = Scenario::new(config.with_request_timeout(timeout));
        each("add a watch", count, |number| {
            scenario.persistent(number, paths);
            scenario.turn();
        });
        each("a read that watches", count, |number| {
            scenario.watch(WatchKind::Data, &path(number, paths), count + number);
            scenario.turn();
        });
        each("a read", count, |number| {
            scenario.get(&path(number, paths), 0);
            scenario.turn();
        });
        each("cancel a persistent watch", count, |number| {
            let number = mixed(number, count);
            scenario.machine.cancel_watch(&path(number, paths), &number, || Instant::ZERO);
        });
        each("remove the watch of a read", count, |number| {
            let number = mixed(number, count);
            let (path, watcher) = (path(number, paths), count + number);
            scenario.machine.remove_watch(&path, &watcher, None, || Instant::ZERO);
        });
        each("wait for capacity", count, |number| scenario.machine.wait_for_capacity(number));
        // All of them at once.
        take_visited();
        scenario.wait(ms(3001));
        assert_eq!(scenario.machine.pending(), 0);
        assert!(take_visited() <= EACH * 3 * count as usize);
    }
}

#[test]
fn calls_on_a_connection_visit_no_other_request() {
    let count = 10_000;
    for (paths, when_full) in
        [(1, WhenFull::Fail), (count, WhenFull::Fail), (count, WhenFull::Wait)]
    {
        let config = config().with_max_requests(1 << 20);
        let config = config.with_when_full(when_full).with_request_timeout(ms(60_000));
        let mut scenario =
            Scenario::connected_for(config.with_max_pending_bytes(1 << 40), 6_000_000);
        scenario.completions();
        each("add a watch", count, |number| {
            scenario.persistent(number, paths);
            scenario.turn();
        });
        let mut out = Vec::new();
        scenario.machine.poll_transmit(scenario.now, &mut out);
        each("a reply to add a watch", count, |number| {
            let xid = i32::try_from(number + 1).unwrap();
            scenario.reply(xid, 5, ErrorCode::Ok, b"");
            scenario.machine.poll_completion();
            scenario.turn();
        });
        each("a read that watches", count, |number| {
            scenario.watch(WatchKind::Data, &path(number, paths), count + number);
            scenario.machine.poll_transmit(scenario.now, &mut out);
            out.clear();
            scenario.turn();
        });
        each("its reply", count, |number| {
            let xid = i32::try_from(count + number + 1).unwrap();
            scenario.reply(xid, 5, ErrorCode::Ok, b"");
            scenario.machine.poll_completion();
            scenario.turn();
        });
        if paths > 1 {
            each("an event", count, |number| {
                let path = path(mixed(number, count), paths);
                scenario.event(EventType::NodeDataChanged, &path);
                while scenario.machine.poll_event().is_some() {}
            });
        }
        each("drop a persistent watch", count, |number| {
            let number = mixed(number, count);
            scenario.cancel_watch(&path(number, paths), number);
            scenario.turn();
        });
    }
}

/// Each request times out at its own instant.
// Case (Found in docent itself): many requests that timed out together took a time that grew with
// the square of their number.
#[test]
fn requests_that_time_out_visit_no_other_request() {
    for (count, is_sent) in [(10_000, true), (10_000, false), (100_000, false)] {
        let config = config().with_max_requests(1 << 20);
        let config = config.with_request_timeout(ms(5000)).with_connection_timeout(ms(1 << 30));
        let mut scenario = Scenario::new(config.with_max_pending_bytes(1 << 40));
        let nanosecond = Duration::from_nanos(1);
        if is_sent {
            scenario.connect();
            scenario.accept(7, i32::MAX);
        }
        each("a read", count, |_| {
            scenario.get("/", 0);
            scenario.now += nanosecond;
        });
        if is_sent {
            scenario.machine.poll_transmit(scenario.now, &mut Vec::new());
        }
        scenario.now = Instant::ZERO + ms(6000);
        each("a read that times out", count, |_| {
            scenario.turn();
            scenario.now += nanosecond;
            scenario.machine.poll_completion();
        });
        scenario.turn();
        assert_eq!(scenario.machine.metrics().timed_out, u64::from(count));
    }
}

/// A watcher that counts how often it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted(u32);

thread_local! {
    static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        COMPARED.set(COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Watches of one path that are asked for while there is no connection, and dropped in another order: each takes a
/// number of steps that grows with the logarithm of their number.
#[test]
fn watches_that_wait_for_a_connection_are_found_without_a_search() {
    const COUNT: u32 = 20_000;
    let mut machine: Session<u32, Counted> = Session::new(config(), 1);
    for number in 0..COUNT {
        let (mode, path) = (AddWatchMode::Persistent, "/a".into());
        machine.add_watch(mode, number, path, Counted(number), || Instant::ZERO);
    }
    assert_eq!(machine.pending(), COUNT as usize);
    for number in 0..COUNT {
        machine.cancel_watch("/a", &Counted(mixed(number, COUNT)), || Instant::ZERO);
    }
    // Two searches and an insertion, of 15 steps each; nodes of a tree are searched one by one.
    let steps = COMPARED.get() / u64::from(COUNT);
    assert!(steps <= 200, "{steps} steps for each of {COUNT}");
}
