//! Random scenarios.

use std::cell::Cell;

use proptest::{prelude::*, test_runner::TestCaseError};

use super::{
    watches::{PERSISTENT, RECURSIVE},
    *,
};
use crate::machine::ServerStatus;

/// One thing that can happen to a machine.
#[derive(Debug, Clone)]
enum Step {
    Get,
    Watch,
    Wait(u16),
    Flush,
    Cut,
    Connect,
    Accept(i64, i32),
    Reply(i32, i64, i32, Vec<u8>),
    Answer(i32),
    Bytes(Vec<u8>),
    Auth,
    AddWatch(bool, bool),
    Read(bool),
    Unwatch(u8),
    Close,
    Room,
    /// A list of servers, with or without the one in use.
    Servers(bool),
    Probe,
    Reconnect,
    /// The status of a server, with this number of connections.
    Status(bool, Option<u32>),
    Reserved,
    AcceptReadOnly(i64, i32),
    Event(u8, bool),
    /// Waits until the next deadline.
    Due,
    Forget(u8),
    /// One of several SASL replies.
    Sasl(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Get),
        2 => Just(Step::Watch),
        2 => (0u16..8000).prop_map(Step::Wait),
        4 => Just(Step::Flush),
        1 => Just(Step::Cut),
        3 => Just(Step::Connect),
        3 => (prop_oneof![Just(7i64), Just(0), any::<i64>()], prop_oneof![Just(6000), any::<i32>()])
            .prop_map(|(id, timeout)| Step::Accept(id, timeout)),
        2 => (-10i32..10, any::<i64>(), -130i32..5, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(xid, zxid, err, body)| Step::Reply(xid, zxid, err, body)),
        6 => (-130i32..3).prop_map(Step::Answer),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Step::Bytes),
        1 => Just(Step::Auth),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(recursive, deep)| Step::AddWatch(recursive, deep)),
        2 => any::<bool>().prop_map(Step::Read),
        2 => any::<u8>().prop_map(Step::Unwatch),
        1 => Just(Step::Close),
        1 => Just(Step::Room),
        1 => any::<bool>().prop_map(Step::Servers),
        1 => Just(Step::Probe),
        1 => Just(Step::Reconnect),
        2 => (any::<bool>(), prop::option::of(0u32..9)).prop_map(|(own, n)| Step::Status(own, n)),
        1 => Just(Step::Reserved),
        2 => (prop_oneof![Just(7i64), Just(0), any::<i64>()], prop_oneof![Just(6000), any::<i32>()])
            .prop_map(|(id, timeout)| Step::AcceptReadOnly(id, timeout)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(a, b)| Step::Event(a, b)),
        4 => Just(Step::Due),
        1 => any::<u8>().prop_map(Step::Forget),
        2 => any::<u8>().prop_map(Step::Sasl),
    ]
}

/// Plays the steps, and counts the completions.
fn run(config: Config, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut scenario = Scenario::new(config);
    let given = Cell::new(0);
    let token = || {
        given.set(given.get() + 1);
        given.get()
    };
    let path = |deep| if deep { "/w/x" } else { "/w" };
    let mut answered = Vec::new();
    for step in steps {
        let now = scenario.now;
        match step {
            Step::Get => scenario.get("/a", token()),
            Step::Watch => scenario.watch(WatchKind::Exist, "/w", token()),
            Step::Wait(millis) => scenario.wait(ms(millis.into())),
            Step::Flush => scenario.machine.poll_transmit(now, &mut Vec::new()),
            Step::Cut => scenario.cut(),
            Step::Connect => {
                if let Connect::To(..) = scenario.machine.poll_connect(now) {
                    scenario.machine.handle_connected(now);
                }
            }
            Step::Accept(id, timeout) => scenario.accept(id, timeout),
            Step::Reply(xid, zxid, err, body) => scenario.reply(xid, zxid, err.into(), &body),
            Step::Answer(err) => {
                let front = scenario.machine.requests.iter().next().map(|front| front.xid);
                if let Some(xid) = front {
                    scenario.reply(xid, 5, err.into(), b"");
                }
            }
            Step::Bytes(bytes) => scenario.feed_bytes(&bytes),
            Step::Auth => scenario.add_auth("digest", b"u:p", token()),
            Step::AddWatch(recursive, deep) => {
                let mode = if recursive { RECURSIVE } else { PERSISTENT };
                scenario.add_watch(mode, path(deep), token());
            }
            Step::Read(deep) => scenario.read_and_watch(WatchKind::Child, path(deep), token()),
            Step::Unwatch(which) => {
                let watcher = u32::from(which) % (given.get() + 1);
                if which % 2 == 0 {
                    scenario.machine.remove_watch("/w", &watcher, Some(token()), || now);
                } else {
                    scenario.machine.cancel_watch("/w", &watcher, || now);
                    scenario.machine.cancel_watch("/w/x", &watcher, || now);
                    let path = "/w/x".into();
                    scenario.machine.remove_watches(path, WatcherType::Any, token(), || now);
                }
            }
            Step::Close => scenario.machine.close(Some(token()), now + ms(500)),
            Step::Room => scenario.machine.wait_for_capacity(token()),
            Step::Servers(stays) => {
                let name = if stays { "one" } else { "two" };
                scenario.machine.update_server_list(&[host(name)]);
            }
            Step::Probe => scenario.machine.handle_probe(&host("one"), true),
            Step::Reconnect => scenario.machine.reconnect(token(), now),
            Step::Status(own, connections) => {
                let number = scenario.machine.metrics().connections;
                let host = host(if own { "one" } else { "two" });
                let status = connections.map(|connections| ServerStatus {
                    leads: connections % 2 == 0,
                    is_keeper: connections == 8,
                    connections,
                    zxid: None,
                });
                scenario.machine.handle_status(now, number, &host, status);
            }
            Step::Reserved => {
                scenario.machine.submit_reserved(&delete("/a"), token(), || now);
            }
            Step::AcceptReadOnly(id, timeout) => {
                scenario.feed(&ConnectResponse { read_only: Some(true), ..granted(id, timeout) });
                scenario.flush();
            }
            Step::Event(which, deep) => {
                let kinds = [
                    EventType::NodeCreated,
                    EventType::NodeDeleted,
                    EventType::NodeDataChanged,
                    EventType::NodeChildrenChanged,
                ];
                scenario.event(kinds[usize::from(which) % 4], path(deep));
            }
            Step::Due => {
                let due = scenario.machine.poll_timeout();
                if let Some(at) = due.filter(|at| at.duration_since(now) < ms(100_000)) {
                    scenario.wait(at.duration_since(now));
                    let next = scenario.machine.poll_timeout();
                    let is_busy = next.is_some_and(|next| next <= scenario.now);
                    prop_assert!(!is_busy || scenario.is_broken(), "nothing was done at {at:?}");
                }
            }
            Step::Forget(which) => {
                let watcher = u32::from(which) % (given.get() + 1);
                scenario.machine.forget_watch("/w", &watcher);
                scenario.machine.forget_watch("/w/x", &watcher);
            }
            #[cfg(feature = "sasl")]
            Step::Sasl(which) => scenario.say_sasl(which),
            #[cfg(not(feature = "sasl"))]
            Step::Sasl(which) => {
                let _ = which;
            }
        }
        if scenario.is_broken() {
            scenario.cut();
        }
        let now = scenario.now;
        let read_only = scenario.machine.is_read_only();
        let is_due = scenario.machine.poll_timeout().is_some_and(|at| at <= now);
        if let Some(lease) = scenario.machine.lease()
            && (!scenario.machine.is_connected() || read_only)
            && lease.deadline() != Instant::ZERO
        {
            prop_assert!(is_due || lease.deadline() > now, "the session outlives its deadline");
        }
        if scenario.machine.is_ended() {
            prop_assert!(scenario.machine.lease().is_none());
            prop_assert_eq!((scenario.machine.watches(), scenario.machine.pending()), (0, 0));
        }
        scenario.machine.requests.check();
        // A close has its request on every connection, once.
        let closes = scenario.machine.requests.iter().filter(|r| matches!(r.effect, Effect::Close));
        let connected = scenario.machine.is_connected() && scenario.machine.is_closing();
        prop_assert_eq!(closes.count(), usize::from(connected));
        answered.extend(scenario.completions().into_iter().map(|(token, _)| token));
        while scenario.machine.poll_event().is_some() {}
    }
    let now = scenario.now;
    scenario.machine.close(None, now);
    // A close among the steps may wait for half a second.
    scenario.wait(ms(501));
    answered.extend(scenario.completions().into_iter().map(|(token, _)| token));
    answered.sort_unstable();
    prop_assert_eq!(answered, (1..=given.get()).collect::<Vec<_>>());
    Ok(())
}

proptest! {
    /// Whatever a server sends, whenever: no panic, and each token comes back exactly once.
    #[test]
    fn any_scenario_answers_every_request_once(steps in prop::collection::vec(step(), 1..80)) {
        let servers = config().with_connect_string("one:1,two:1".parse().unwrap());
        run(config(), steps.clone())?;
        run(servers.with_failback(ms(1000)), steps)?;
    }

    /// Requests wait for capacity instead of being refused.
    #[test]
    fn any_scenario_with_little_capacity_answers_every_request_once(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let config = config()
            .with_when_full(crate::config::WhenFull::Wait)
            .with_request_timeout(ms(9000)).with_max_requests(2);
        run(config, steps)?;
    }
}

#[cfg(feature = "sasl")]
proptest! {
    #[test]
    fn any_scenario_with_sasl_answers_every_request_once(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        run(config().with_sasl("bob", "pw"), steps)?;
    }
}
