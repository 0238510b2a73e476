//! Leaderships, numbers, and recipes without methods that wait.

use std::{thread, time::Duration};

use docent::{
    CacheEvent, CacheOptions, CreateMode, CreateOptions, CuratorCache, DistributedDoubleBarrier,
    ErrorKind, GroupMember, PersistentNode, SharedValue,
    blocking::{
        DistributedAtomicInteger, DistributedAtomicLong, LeaderLatch, LeaderSelector, wait,
        wait_timeout,
    },
    leader::{CloseMode, LeadershipChange, Term},
    nodes::NodeEvent,
};
use docent_discovery::{ServiceCacheEvent, ServiceDiscovery, ServiceInstance};

use crate::{
    server::Server,
    support::{DEADLINE, eventually_blocking},
};

blocking_on_both_servers! {
    a_latch_leads_after_the_one_before_it
    a_selector_leads_while_its_closure_runs
    numbers_are_counted_by_threads
    a_node_is_kept_present
    members_see_each_other
    a_value_is_shared
    a_cache_has_events
    members_of_a_barrier_enter_and_leave
    a_service_is_followed_by_a_thread
}

const SHORT: Duration = Duration::from_millis(50);

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
                    // Every attempt of a call may come too late: a change that fails is made again.
                    while !number.increment().unwrap().succeeded() {}
                }
            });
        }
    });
    assert_eq!(number.get().unwrap().post_value, Some(25));
    let small = DistributedAtomicInteger::new(&client, &server.path("small")).unwrap();
    assert_eq!(small.add(-2).unwrap().post_value, Some(-2));
}

fn a_node_is_kept_present(server: Server) {
    let client = server.client();
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let path = server.path("kept");
    let node = PersistentNode::start(&client, &path, CreateMode::Ephemeral, "1").unwrap();
    let mut events = client.wrap(node.events());
    assert_eq!(wait(|| node.created()).unwrap(), path);
    server.client().delete(&path, None).unwrap();
    let again = |event: &Result<NodeEvent, _>| matches!(event, Ok(NodeEvent::Created { .. }));
    assert_eq!(events.by_ref().filter(again).take(2).count(), 2);
    wait(|| node.close()).unwrap();
    assert!(events.all(|event| event.is_ok()), "events end with the node");
}

fn members_see_each_other(server: Server) {
    let path = server.path("group");
    let client = server.client();
    let one = client.wrap(GroupMember::join(&client, &path, "one", "1").unwrap());
    let two = GroupMember::join(&client, &path, "two", "2").unwrap();
    let mut view = one.wrap(one.view());
    drop(client);
    assert!(view.by_ref().any(|members| members.unwrap().unwrap().len() == 2));
    wait(|| two.leave()).unwrap();
    assert!(view.by_ref().any(|members| members.unwrap().unwrap().len() == 1));
    wait(|| one.leave()).unwrap();
    assert!(view.all(|members| members.unwrap().is_ok()), "it ends");
}

fn a_value_is_shared(server: Server) {
    let client = server.client();
    let path = server.path("value");
    let here = wait(|| SharedValue::start(&client, &path, "seed")).unwrap();
    let there = wait(|| SharedValue::start(&client, &path, "other")).unwrap();
    let mut changes = client.wrap(there.subscribe());
    assert_eq!(changes.timeout_iter(SHORT).count(), 0);
    wait(|| here.set_value("new")).unwrap();
    assert_eq!(changes.next().unwrap().unwrap().value, "new");
    drop((here, there));
    assert!(changes.next().is_none(), "it ends with the value");
}

// Case (Programs without async): a thread that waits for events when their recipe or their client
// ends.
fn a_cache_has_events(server: Server) {
    let client = server.client();
    let path = server.path("cached");
    client
        .create(
            &format!("{path}/a"),
            b"1",
            CreateOptions::new(CreateMode::Persistent).with_parents(),
        )
        .unwrap();
    let (cache, events) =
        CuratorCache::start_with_events(&client, &path, CacheOptions::default()).unwrap();
    let mut events = client.wrap(events);
    assert!(wait_timeout(DEADLINE, || cache.initialized()).unwrap().is_some());
    assert!(
        events.by_ref().any(|event| matches!(event.unwrap(), CacheEvent::Initialized { len: 2 }))
    );
    server.client().set_data(&format!("{path}/a"), b"2", None).unwrap();
    let event = events.next_timeout(DEADLINE).unwrap().unwrap();
    assert!(
        matches!(&event, CacheEvent::Changed { new, .. } if new.data().unwrap() == "2"),
        "{event:?}"
    );
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

fn members_of_a_barrier_enter_and_leave(server: Server) {
    let path = server.path("double");
    let clients = [server.client(), server.client()];
    let mut alone = DistributedDoubleBarrier::new(&clients[0], &path, 2).unwrap();
    assert!(!wait(|| alone.enter_timeout(SHORT)).unwrap());
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                let member = DistributedDoubleBarrier::new(client, &path, 2).unwrap();
                let mut member = client.wrap(member);
                wait(|| member.enter()).unwrap();
                assert!(member.is_inside());
                assert!(wait_timeout(DEADLINE, || member.leave()).unwrap().is_some());
            });
        }
    });
}

// Case (Programs without async): a discovery, its cache and its provider are dropped on another
// thread, or as the last of their client.
fn a_service_is_followed_by_a_thread(server: Server) {
    let (client, observer) = (server.client(), server.client());
    let ours = ServiceDiscovery::new(&client, &server.fixture.path).unwrap();
    let theirs = ServiceDiscovery::new(&observer, &server.fixture.path).unwrap();
    let cache = theirs.service_cache("web").unwrap();
    let mut events = cache.events();
    wait(|| ours.register(ServiceInstance::new("web", "a").with_port(1))).unwrap();
    while !matches!(
        wait(async || Ok(events.next().await)).unwrap().expect("an event"),
        ServiceCacheEvent::Added { .. }
    ) {}
    assert_eq!(wait(|| ours.query_for_instances("web")).unwrap()[0].port(), Some(1));
    // The discovery is dropped on another thread than the one that made it.
    thread::spawn(move || drop(ours)).join().unwrap();
    eventually_blocking("no instance", || cache.instances().is_empty().then_some(()));
    let reader =
        thread::spawn(move || while wait(async || Ok(events.next().await)).unwrap().is_some() {});
    drop((cache, theirs));
    reader.join().unwrap();
}
