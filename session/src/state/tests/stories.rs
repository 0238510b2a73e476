//! Any story at all.

use proptest::{prelude::*, test_runner::TestCaseError};

use super::*;

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
    /// A word of SASL, of several.
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
        2 => any::<u8>().prop_map(Step::Sasl),
    ]
}

/// Tells it, and counts the answers.
fn tell(config: Config, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut story = Story::new(config);
    let mut given = 0;
    let mut answered = Vec::new();
    for step in steps {
        let now = story.now;
        match step {
            Step::Get => {
                given += 1;
                story.get("/a", given);
            }
            Step::Watch => {
                given += 1;
                story.watch(WatchKind::Exist, "/w", given);
            }
            Step::Wait(millis) => story.wait(ms(millis.into())),
            Step::Flush => story.machine.poll_transmit(now, &mut Vec::new()),
            Step::Cut => story.cut(),
            Step::Connect => {
                if let Connect::To(..) = story.machine.poll_connect(now) {
                    story.machine.handle_connected(now);
                }
            }
            Step::Accept(id, timeout) => story.accept(id, timeout),
            Step::Reply(xid, zxid, err, body) => story.reply(xid, zxid, err.into(), &body),
            Step::Answer(err) => {
                if let Some(xid) = story.machine.pending.front().map(|front| front.xid) {
                    story.reply(xid, 5, err.into(), b"");
                }
            }
            Step::Bytes(bytes) => story.feed_bytes(&bytes),
            Step::Auth => {
                given += 1;
                story.machine.add_auth(Credential::new("digest", b"u:p"), given);
            }
            Step::AddWatch(recursive, deep) => {
                given += 1;
                let mode = if recursive {
                    docent_protocol::AddWatchMode::PersistentRecursive
                } else {
                    docent_protocol::AddWatchMode::Persistent
                };
                let path = if deep { "/w/x" } else { "/w" };
                story.machine.add_watch(mode, given, path.into(), given, || now);
            }
            Step::Read(deep) => {
                given += 1;
                let path = if deep { "/w/x" } else { "/w" };
                let registration =
                    Registration { kind: WatchKind::Child, path: path.into(), watcher: given };
                let make = |watch| GetChildren(ReadRequest { path: path.into(), watch });
                story.machine.submit_watching(make, given, registration, || now);
            }
            Step::Unwatch(which) => {
                let watcher = u32::from(which) % (given + 1);
                given += 1;
                if which % 2 == 0 {
                    story.machine.remove_watch("/w", &watcher, Some(given), || now);
                } else {
                    story.machine.cancel_watch("/w", &watcher, || now);
                    story.machine.cancel_watch("/w/x", &watcher, || now);
                    let path = "/w/x".into();
                    story.machine.remove_watches(path, WatcherType::Any, given, || now);
                }
            }
            Step::Close => {
                given += 1;
                story.machine.close(Some(given), now + ms(500));
            }
            #[cfg(feature = "sasl")]
            Step::Sasl(which) => story.say_sasl(which),
            #[cfg(not(feature = "sasl"))]
            Step::Sasl(which) => {
                let _ = which;
            }
        }
        if story.is_broken() {
            story.cut();
        }
        prop_assert!(story.machine.sent <= story.machine.pending.len());
        let queued: usize =
            story.machine.pending.iter().skip(story.machine.sent).map(|r| r.size as usize).sum();
        prop_assert_eq!(queued, story.machine.unsent().len());
        answered.extend(story.done().into_iter().map(|(token, _)| token));
        while story.machine.poll_event().is_some() {}
    }
    let now = story.now;
    story.machine.close(None, now);
    // A close among the steps may wait for half a second.
    story.wait(ms(501));
    answered.extend(story.done().into_iter().map(|(token, _)| token));
    answered.sort_unstable();
    prop_assert_eq!(answered, (1..=given).collect::<Vec<_>>());
    Ok(())
}

proptest! {
    /// Whatever a server sends, whenever: no panic, and each token comes back exactly once.
    #[test]
    fn any_story_answers_every_request_once(steps in prop::collection::vec(step(), 1..80)) {
        tell(config(), steps)?;
    }

    /// The same when requests wait for room.
    #[test]
    fn any_story_with_little_room_answers_every_request_once(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut config = config()
            .with_when_full(crate::WhenFull::Wait)
            .with_request_timeout(ms(9000));
        config.max_requests = 2;
        tell(config, steps)?;
    }
}

#[cfg(feature = "sasl")]
proptest! {
    #[test]
    fn any_story_with_sasl_answers_every_request_once(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        tell(config().with_sasl("bob", "pw").unwrap(), steps)?;
    }
}
