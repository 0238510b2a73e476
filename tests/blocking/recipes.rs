//! The other recipes: elections, kept nodes, shared values, caches, barriers, numbers.

use std::{collections::BTreeMap, ops::ControlFlow, thread, time::Duration};

use bytes::Bytes;
use docent::{
    CacheEvent, CacheOptions, CloseMode, CreateMode, ErrorKind, NodeEvent, Term,
    blocking::{
        Events, Held,
        atomic::{DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicValue},
        barriers::{DistributedBarrier, DistributedDoubleBarrier},
        cache::CuratorCache,
        create_protected,
        leader::{LeaderLatch, LeaderSelector, LeadershipChange},
        nodes::{GroupMember, PersistentNode},
        shared::{SharedCount, SharedValue},
    },
    recipes::shared::count_of,
};

use crate::{
    server::Server,
    support::{DEADLINE, eventually_blocking},
};

blocking_on_both_servers! {
    a_latch_leads_after_the_one_before_it
    a_selector_leads_while_its_closure_runs
    a_node_is_kept_present
    members_see_each_other
    a_value_is_shared
    a_cache_has_events
    barriers_are_passed_together
    numbers_are_counted_by_threads
    a_node_is_created_once
}

const SHORT: Duration = Duration::from_millis(50);

fn a_latch_leads_after_the_one_before_it(server: Server) {
    let client = server.client();
    let path = server.path("election");
    let first = LeaderLatch::start(&client, &path, "first").unwrap();
    let leadership = first.leadership().unwrap();
    let second = LeaderLatch::start(&server.client(), &path, "second").unwrap();
    let mut changes = second.changes();
    eventually_blocking("the second in the queue", || second.node_ahead());
    assert!(second.leadership_timeout(SHORT).unwrap().is_none());
    assert!(changes.next_timeout(SHORT).unwrap().is_err());
    let ids: Vec<_> = second.participants().unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(ids, ["first", "second"]);
    assert_eq!(first.leader().unwrap().unwrap().id, first.id());
    let waiting = thread::spawn({
        let leadership = leadership.clone();
        move || leadership.lost()
    });
    first.close().unwrap();
    waiting.join().unwrap().unwrap();
    assert!(!leadership.is_held());
    let later = second.leadership().unwrap();
    assert!(
        later.is_held() && later.fencing_token().unwrap() > leadership.fencing_token().unwrap_or(0)
    );
    assert!(
        matches!(changes.next(), Some(Ok(LeadershipChange::Leader(one))) if one.path() == later.path())
    );
    second.close_with(CloseMode::NotifyLeader).unwrap();
    assert!(matches!(changes.next(), Some(Ok(LeadershipChange::NotLeader))));
    assert!(changes.next().is_none());
    let held: &dyn Held = &later;
    assert!(held.lost_timeout(DEADLINE).unwrap());
}

fn a_selector_leads_while_its_closure_runs(server: Server) {
    let client = server.client();
    let path = server.path("election");
    let selector = LeaderSelector::new(&client, &path, "one").unwrap();
    let other = LeaderSelector::new(&server.client(), &path, "other").unwrap();
    let term = selector.run(|leadership| {
        // Blocking calls within a term, and an election that is not won meanwhile.
        client.create(&server.path("led"), b"", CreateMode::Persistent).unwrap();
        assert!(selector.current_leadership().is_some() && leadership.is_held());
        assert_eq!(other.run_timeout(SHORT, |_| ()).unwrap(), None);
        leadership.epoch()
    });
    assert_eq!(term.unwrap(), Term::Completed(1));
    assert!(selector.current_leadership().is_none());
    // A term that has begun has no limit.
    let long = other.run_timeout(DEADLINE, |leadership| !leadership.lost_timeout(SHORT).unwrap());
    assert_eq!(long.unwrap(), Some(Term::Completed(true)));
    let mut terms = 0;
    let last = selector.run_requeued(|_| {
        terms += 1;
        if terms < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(terms) }
    });
    assert_eq!(last.unwrap(), 3);
    assert_eq!(selector.participants().unwrap(), []);
}

fn a_node_is_kept_present(server: Server) {
    let client = server.client();
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let path = server.path("kept");
    let node = PersistentNode::start(&client, &path, CreateMode::Ephemeral, "1").unwrap();
    let mut events = node.events();
    assert_eq!(node.created().unwrap(), path);
    assert_eq!(node.created_timeout(DEADLINE).unwrap(), Some(path.clone()));
    node.set_data("2");
    assert!(node.written_timeout(DEADLINE).unwrap());
    let other = server.client();
    let first = other.get_data(&path).unwrap();
    assert_eq!(first.data, "2");
    other.delete(&path, None).unwrap();
    eventually_blocking("a new node", || {
        other.exists(&path).unwrap().filter(|stat| stat.czxid > first.stat.czxid)
    });
    let created = |event: &Result<NodeEvent, _>| matches!(event, Ok(NodeEvent::Created { .. }));
    assert!(events.by_ref().any(|event| created(&event)));
    node.close().unwrap();
    assert_eq!(other.exists(&path).unwrap(), None);
    assert_eq!(events.filter(|event| event.is_err()).count(), 0, "events end with the node");
}

fn members_see_each_other(server: Server) {
    let path = server.path("group");
    let one = GroupMember::join(&server.client(), &path, "one", "1").unwrap();
    one.joined().unwrap();
    let mut view = one.view();
    let two = GroupMember::join(&server.client(), &path, "two", "2").unwrap();
    assert!(two.joined_timeout(DEADLINE).unwrap());
    let both = BTreeMap::from(
        [("one", "1"), ("two", "2")].map(|(id, data)| (id.to_owned(), Bytes::from(data))),
    );
    assert_eq!(two.current_members().unwrap(), both);
    assert!(view.by_ref().any(|members| *members.unwrap() == both));
    two.leave().unwrap();
    assert!(view.by_ref().any(|members| members.unwrap().len() == 1));
    one.leave().unwrap();
    assert!(view.all(|members| members.is_ok()), "it ends");
}

fn a_value_is_shared(server: Server) {
    let path = server.path("value");
    let here = SharedValue::start(&server.client(), &path, "seed").unwrap();
    let there = SharedValue::start(&server.client(), &path, "other").unwrap();
    assert_eq!(there.value(), "seed");
    let mut changes = there.subscribe();
    let previous = here.versioned_value();
    here.set_value("new").unwrap();
    assert_eq!(changes.wait_for(|value| value.value == "new").unwrap().version, 1);
    assert!(changes.wait_for_timeout(SHORT, |value| value.value == "never").unwrap().is_none());
    assert!(!there.try_set_value(&previous, "late").unwrap());
    assert!(there.try_set_value(&there.versioned_value(), "last").unwrap());
    assert_eq!(
        changes.wait_for_timeout(DEADLINE, |value| value.version == 2).unwrap().unwrap().value,
        "last"
    );
    let count = SharedCount::start(&server.client(), &server.path("count"), 3).unwrap();
    assert!(count.try_set_count(&count.versioned_value(), 4).unwrap());
    assert_eq!((count.count(), count_of(&count.subscribe().get())), (4, 4));
}

fn a_cache_has_events(server: Server) {
    let client = server.client();
    let path = server.path("cached");
    client.create_with_parents(&format!("{path}/a"), b"1", CreateMode::Persistent).unwrap();
    let (cache, mut events) =
        CuratorCache::start_with_events(&client, &path, CacheOptions::default()).unwrap();
    cache.initialized().unwrap();
    assert!(cache.initialized_timeout(DEADLINE).unwrap() && !cache.is_stale());
    assert_eq!(cache.get(&format!("{path}/a")).unwrap().data().unwrap(), "1");
    assert!(
        events.by_ref().any(|event| matches!(event.unwrap(), CacheEvent::Initialized { len: 2 }))
    );
    server.client().set_data(&format!("{path}/a"), b"2", None).unwrap();
    let event = events.next_timeout(DEADLINE).unwrap().unwrap();
    assert!(
        matches!(&event, CacheEvent::Changed { new, .. } if new.data().unwrap() == "2"),
        "{event:?}"
    );
    assert_eq!(events.timeout_iter(SHORT).count(), 0);
    cache.close().unwrap();
    assert!(events.next().is_none());
    assert_eq!(cache.initialized().unwrap_err().kind(), ErrorKind::Closed);
}

fn barriers_are_passed_together(server: Server) {
    let client = server.client();
    let barrier = DistributedBarrier::new(&client, &server.path("barrier")).unwrap();
    barrier.set_barrier().unwrap();
    assert!(!barrier.wait_on_barrier_timeout(SHORT).unwrap());
    let waiting = thread::spawn({
        let barrier = barrier.clone();
        move || barrier.wait_on_barrier()
    });
    barrier.remove_barrier().unwrap();
    waiting.join().unwrap().unwrap();

    let path = server.path("double");
    let mut alone = DistributedDoubleBarrier::new(&client, &path, 3).unwrap();
    assert!(!alone.enter_timeout(SHORT).unwrap());
    drop(alone);
    let clients = [server.client(), server.client(), server.client()];
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                let mut member = DistributedDoubleBarrier::new(client, &path, 3).unwrap();
                member.enter().unwrap();
                assert!(member.is_inside());
                assert!(member.leave_timeout(DEADLINE).unwrap());
            });
        }
    });
}

fn numbers_are_counted_by_threads(server: Server) {
    let client = server.client();
    let number = DistributedAtomicLong::new(&client, &server.path("number")).unwrap();
    assert!(number.initialize(10).unwrap());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5 {
                    // Every attempt of a call may come too late: a change that fails is made again.
                    while !number.increment().unwrap().succeeded() {}
                }
            });
        }
    });
    assert_eq!(number.get().unwrap().post_value, Some(25));
    assert_eq!(number.compare_and_set(25, 1).unwrap().post_value, Some(1));
    let small = DistributedAtomicInteger::new(&client, &server.path("small")).unwrap();
    assert_eq!(small.subtract(2).unwrap().post_value, Some(-2));
    let value = DistributedAtomicValue::new(&client, &server.path("bytes")).unwrap();
    value.force_set("a").unwrap();
    assert!(value.compare_and_set("a", "b").unwrap().succeeded());
}

fn a_node_is_created_once(server: Server) {
    let client = server.client();
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let made = create_protected(&client, &server.path("n-"), b"", CreateMode::EphemeralSequential)
        .unwrap();
    assert!(made.contains("/_c_") && client.exists(&made).unwrap().is_some(), "{made}");
}
