//! Leaderships, numbers, and recipes whose own methods do not block.

use docent::{
    CacheEvent,
    blocking::{DistributedAtomicInteger, DistributedAtomicLong, LeaderSelector},
    leader::{CloseMode, LeadershipChange, Term},
};

use super::*;

blocking_on_both_servers! {
    a_latch_leads_after_the_one_before_it
    a_selector_leads_while_its_closure_runs
    numbers_are_counted_by_threads
    a_cache_has_events
}

fn a_latch_leads_after_the_one_before_it(server: Server) {
    let client = server.client();
    let path = server.path("election");
    let first = LeaderLatch::start(&client, &path, "first").unwrap();
    let leadership = first.leadership().unwrap();
    let second = LeaderLatch::start(&server.client(), &path, "second").unwrap();
    let mut changes = second.wrap(second.changes());
    eventually_blocking("the second in the queue", || second.node_ahead());
    assert!(second.leadership_timeout(SHORT).unwrap().is_none());
    assert!(changes.next_timeout(SHORT).unwrap().is_err());
    let waiting = thread::spawn({
        let leadership = leadership.clone();
        move || leadership.lost()
    });
    first.close().unwrap();
    waiting.join().unwrap().unwrap();
    assert!(!leadership.is_held());
    let later = second.leadership_timeout(DEADLINE).unwrap().expect("the second leads");
    assert!(later.fencing_token().unwrap() > leadership.fencing_token().unwrap_or(0));
    assert!(matches!(changes.next().unwrap().unwrap(), LeadershipChange::Leader(_)));
    wait(|| second.close_with(CloseMode::NotifyLeader)).unwrap();
    assert!(matches!(changes.next().unwrap().unwrap(), LeadershipChange::NotLeader));
    assert!(changes.next().is_none(), "it ends with the latch");
}

fn a_selector_leads_while_its_closure_runs(server: Server) {
    let client = server.client();
    let path = server.path("election");
    let selector = LeaderSelector::new(&client, &path, "one").unwrap();
    let other = LeaderSelector::new(&client, &path, "other").unwrap();
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let term = selector.run(|leadership| {
        // The thread waits within its wait, and the client works on meanwhile.
        client.create(&server.path("led"), b"", CreateMode::Persistent).unwrap();
        assert!(selector.current_leadership().is_some() && leadership.is_held());
        assert!(wait_timeout(SHORT, || other.as_async().run(async |_| ())).unwrap().is_none());
        leadership.epoch()
    });
    assert_eq!(term.unwrap(), Term::Completed(1));
    assert!(selector.current_leadership().is_none());
    assert_eq!(other.run(|_| ()).unwrap(), Term::Completed(()));
    assert_eq!(wait(|| selector.participants()).unwrap(), []);
}

fn numbers_are_counted_by_threads(server: Server) {
    let client = server.client();
    let number = DistributedAtomicLong::new(&client, &server.path("number")).unwrap();
    assert!(wait(|| number.initialize(10)).unwrap());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5 {
                    // Other threads may win every attempt of a call: a failed change is repeated.
                    while !number.increment().unwrap().succeeded() {}
                }
            });
        }
    });
    assert_eq!(number.get().unwrap().post_value, Some(25));
    let small = DistributedAtomicInteger::new(&client, &server.path("small")).unwrap();
    assert_eq!(small.add(-2).unwrap().post_value, Some(-2));
}

// Case (Programs without async): a thread that waits for events when their recipe or their client
// ends.
fn a_cache_has_events(server: Server) {
    let client = server.client();
    let path = server.path("cached");
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    client.create(&format!("{path}/a"), b"1", options).unwrap();
    let (cache, events) =
        CuratorCache::start_with_events(&client, &path, CacheOptions::default()).unwrap();
    let mut events = client.wrap(events);
    assert!(wait_timeout(DEADLINE, || cache.initialized()).unwrap().is_some());
    let mut all = events.by_ref().map(Result::unwrap);
    assert!(all.any(|event| matches!(event, CacheEvent::Initialized { len: 2 })));
    server.client().set_data(&format!("{path}/a"), b"2", None).unwrap();
    let event = events.next_timeout(DEADLINE).unwrap().unwrap();
    let CacheEvent::Changed { new, .. } = &event else { panic!("{event:?}") };
    assert_eq!(new.data().unwrap(), "2");
    // A thread that waits is woken by the close.
    let reader = thread::spawn(move || events.map(Result::unwrap).count());
    wait(async || {
        cache.close().await;
        Ok(())
    })
    .unwrap();
    assert_eq!(reader.join().unwrap(), 0);
    assert_eq!(wait(|| cache.initialized()).unwrap_err().kind(), ErrorKind::Closed);
}
