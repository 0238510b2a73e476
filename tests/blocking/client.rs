//! The client: nodes, transactions, watches, states, retries, limits of time.

use std::{thread, time::Duration};

use docent::{
    Acl, AddWatchMode, ConnectionState, CreateMode, ErrorKind, EventType, OnDrop, Outcome,
    ReadResult, TransactionResult, WatcherType,
    blocking::{Allow, Events, Watcher},
    protocol::operation::Read,
    retry::RetryNTimes,
};

use crate::{
    server::Server,
    support::{DEADLINE, eventually_blocking},
};

blocking_on_both_servers! {
    nodes_are_created_read_written_and_deleted
    operations_are_applied_together_or_not_at_all
    a_one_shot_watch_is_an_iterator_of_one_event
    a_persistent_watch_is_an_iterator_until_the_client_ends
    a_wait_ends_by_its_time_or_its_event
    states_end_with_the_client
    a_retry_calls_blocking_methods
    run_closes_the_session_in_every_case
    futures_of_the_async_client_are_waited_for
    threads_share_a_client
}

/// Shorter than anything that a test waits for.
const SHORT: Duration = Duration::from_millis(50);

fn nodes_are_created_read_written_and_deleted(server: Server) {
    let client = server.client();
    let path = server.path("a/b");
    assert_eq!(client.create_with_parents(&path, b"1", CreateMode::Persistent).unwrap(), path);
    let node = client.get_data(&path).unwrap();
    assert_eq!((&node.data[..], node.stat.version), (&b"1"[..], 0));
    assert_eq!(client.set_data(&path, b"2", Some(0)).unwrap().version, 1);
    let error = client.set_data(&path, b"3", Some(0)).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::BadVersion, Outcome::NotApplied));
    assert_eq!(error.path(), Some(&path[..]));
    assert_eq!(client.exists(&path).unwrap().map(|stat| stat.version), Some(1));
    let parent = server.path("a");
    assert_eq!(client.get_children(&parent).unwrap().to_vec(), ["b"]);
    let (children, stat) = client.get_children_with_stat(&parent).unwrap();
    assert_eq!((children.len(), stat.num_children), (1, 1));
    assert_eq!(client.create_or_set(&path, b"4").unwrap().map(|stat| stat.version), Some(2));
    let (made, stat) =
        client.create_with_stat(&format!("{path}/"), b"", CreateMode::EphemeralSequential).unwrap();
    assert_eq!(made, format!("{path}/0000000000"));
    assert_eq!(client.session().unwrap().session_id(), stat.ephemeral_owner);
    assert_eq!(
        client.get_ephemerals(&path).allow(ErrorKind::Unimplemented).unwrap(),
        Some(vec![made])
    );
    assert_eq!(client.get_acl(&path).unwrap().0.to_vec(), docent::acl::OPEN_ACL_UNSAFE);
    client.add_auth("digest", b"user:password").unwrap();
    client.set_acl(&path, &[Acl::new(docent::Perms::ALL, "auth", "")], None).unwrap();
    let other = server.client();
    assert_eq!(other.get_data(&path).unwrap_err().kind(), ErrorKind::NoAuth);
    client.sync(&path).unwrap();
    let missing = server.path("missing");
    assert_eq!(client.get_data(&missing).allow(ErrorKind::NoNode).unwrap(), None);
    assert_eq!(client.delete(&missing, None).unwrap_err().kind(), ErrorKind::NoNode);
    let below = client.with_chroot(&server.fixture.path).unwrap();
    assert_eq!(below.chroot(), Some(&server.fixture.path[..]));
    below.delete_recursive("/a").unwrap();
    assert_eq!(client.exists(&path).unwrap(), None);
    let read = |result: Result<docent::Node, docent::Error>| {
        result.map(|node| node.data).map_err(|error| error.kind())
    };
    assert_eq!(read(client.get_config()), read(client.get_data("/zookeeper/config")));
}

fn operations_are_applied_together_or_not_at_all(server: Server) {
    let client = server.client();
    let (one, two) = (server.path("one"), server.path("two"));
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let mut transaction = client.transaction();
    transaction.create(&one, b"1", CreateMode::Persistent).set_data(&one, b"2", Some(0));
    assert_eq!(transaction.len(), 2);
    let results = transaction.commit().unwrap();
    assert!(
        matches!(&results[..], [TransactionResult::Created { path, .. }, TransactionResult::DataSet(_)] if *path == one)
    );

    let mut refused = client.transaction();
    refused.create(&two, b"", CreateMode::Persistent).check(&one, Some(7));
    let error = refused.commit().unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::BadVersion, Some(1)));
    assert_eq!(refused.commit().allow(ErrorKind::BadVersion).unwrap(), None);
    assert_eq!(client.exists(&two).unwrap(), None);

    let reads = [Read::GetData(&one), Read::GetData(&two)];
    let read = client.multi_read(&reads).unwrap();
    assert!(matches!(&read[0], Ok(ReadResult::GetData(node)) if node.data == "2"), "{read:?}");
    assert_eq!(read[1].as_ref().unwrap_err().kind(), ErrorKind::NoNode);
}

fn a_one_shot_watch_is_an_iterator_of_one_event(server: Server) {
    let client = server.client();
    let path = server.path("watched");
    client.create_with_parents(&path, b"", CreateMode::Persistent).unwrap();
    let (_, mut watcher) = client.get_data_and_watch(&path).unwrap();
    assert_eq!(watcher.path(), path);
    assert!(watcher.changed_timeout(SHORT).unwrap().is_none());
    assert!(
        watcher
            .next_timeout(SHORT)
            .is_some_and(|event| event.unwrap_err().kind() == ErrorKind::OperationTimeout)
    );
    client.set_data(&path, b"1", None).unwrap();
    let event = watcher.next().unwrap().unwrap();
    assert_eq!((event.event_type, &*event.path), (EventType::NodeDataChanged, &path[..]));
    assert!(watcher.next().is_none(), "an event after the only one");
    let (_, mut watcher) = client.exists_and_watch(&path).unwrap();
    client.delete(&path, None).unwrap();
    assert_eq!(watcher.changed().unwrap().event_type, EventType::NodeDeleted);
    let (_, watcher) = client.get_children_and_watch(&server.fixture.path).unwrap();
    client.check_watches(&server.fixture.path, WatcherType::Children).unwrap();
    watcher.remove().unwrap();
    let (_, mut watcher) = client.get_children_and_watch(&server.fixture.path).unwrap();
    watcher.set_on_drop(OnDrop::Remove);
    drop(watcher);
    assert_eq!(client.metrics().watches, 0);
}

fn a_persistent_watch_is_an_iterator_until_the_client_ends(server: Server) {
    let client = server.client();
    let writer = server.client();
    let path = server.path("tree");
    client.create_with_parents(&path, b"", CreateMode::Persistent).unwrap();
    let mut watcher = client.add_watch(&path, AddWatchMode::PersistentRecursive).unwrap();
    assert_eq!(watcher.timeout_iter(SHORT).count(), 0);
    for round in 0..3 {
        writer.create(&format!("{path}/{round}"), b"", CreateMode::Persistent).unwrap();
    }
    let created: Vec<String> =
        watcher.by_ref().take(3).map(|event| event.unwrap().path.to_string()).collect();
    assert_eq!(created, [0, 1, 2].map(|round| format!("{path}/{round}")));
    let follower = thread::spawn(move || {
        watcher.map(Result::unwrap).map(|event| event.event_type).collect::<Vec<_>>()
    });
    writer.set_data(&path, b"1", None).unwrap();
    // The reply to a read behind the write comes after its event.
    client.sync(&path).unwrap();
    client.get_data(&path).unwrap();
    client.close().unwrap();
    assert_eq!(follower.join().unwrap(), [EventType::NodeDataChanged, EventType::None]);
    fn is_send<T: Send + Sync>() {}
    is_send::<Watcher>();
}

fn a_wait_ends_by_its_time_or_its_event(server: Server) {
    let client = server.client();
    let path = server.path("awaited");
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    assert!(client.wait_until_exists_timeout(&path, SHORT).unwrap().is_none());
    let waiting = thread::spawn({
        let (client, path) = (client.clone(), path.clone());
        move || client.wait_until_exists(&path).unwrap()
    });
    let other = server.client();
    other.create(&path, b"", CreateMode::Persistent).unwrap();
    assert_eq!(waiting.join().unwrap().version, 0);
    assert!(!client.wait_until_deleted_timeout(&path, SHORT).unwrap());
    other.delete(&path, None).unwrap();
    assert!(client.wait_until_deleted_timeout(&path, DEADLINE).unwrap());
    assert!(client.ready_timeout(DEADLINE).unwrap());
    // A wait that has ended leaves no watch behind.
    eventually_blocking("no watches", || (client.metrics().watches == 0).then_some(()));
}

fn states_end_with_the_client(server: Server) {
    let client = server.client();
    let mut state = client.state();
    assert_eq!(state.wait_for(|state| state.is_some()).unwrap(), Some(ConnectionState::Connected));
    // A condition may make calls.
    let found = state.wait_for(|_| client.exists("/").unwrap().is_some());
    assert_eq!(found.unwrap(), Some(ConnectionState::Connected));
    let waiting = thread::spawn({
        let mut state = state.clone();
        move || {
            while state.changed().is_ok() {}
            state.get()
        }
    });
    let states = client.states();
    assert!(!state.changed_timeout(SHORT).unwrap());
    client.close().unwrap();
    assert_eq!(states.map(Result::unwrap).collect::<Vec<_>>(), [ConnectionState::Connected]);
    assert_eq!(client.ended(), Some(ErrorKind::Closed));
    assert_eq!(client.exists("/").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(waiting.join().unwrap(), None, "the state after the end");
}

fn a_retry_calls_blocking_methods(server: Server) {
    let client = server.client();
    let path = server.path("retried");
    let mut attempts = 0;
    let made = client.retry(&RetryNTimes::new(3, Duration::from_millis(1)), || {
        attempts += 1;
        if attempts < 3 {
            // Its request is never sent.
            return Err(docent::Error::new(ErrorKind::ConnectionLoss, Outcome::NotApplied));
        }
        client.create_with_parents(&path, b"", CreateMode::Persistent)
    });
    assert_eq!((made.unwrap(), attempts), (path.clone(), 3));
    let refused = client.retry_idempotent(&RetryNTimes::new(3, Duration::from_millis(1)), || {
        client.create(&path, b"", CreateMode::Persistent)
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NodeExists);
}

fn run_closes_the_session_in_every_case(server: Server) {
    let observer = server.client();
    let path = server.path("ephemeral");
    observer.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let length = server
        .client()
        .run(|client| client.create(&path, b"", CreateMode::Ephemeral).unwrap().len());
    assert_eq!((length, observer.exists(&path).unwrap()), (path.len(), None));

    let client = server.client();
    let kept = client.clone();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.run(|client| {
            client.create(&path, b"", CreateMode::Ephemeral).unwrap();
            panic!("a body that fails");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(kept.ended(), Some(ErrorKind::Closed));
    assert_eq!(observer.exists(&path).unwrap(), None);
}

fn futures_of_the_async_client_are_waited_for(server: Server) {
    let client = server.client();
    let calls: Vec<_> = (0..100).map(|_| client.async_client().exists("/")).collect();
    for call in calls {
        assert!(client.wait(call).unwrap().unwrap().is_some());
    }
    assert!(client.wait_timeout(SHORT, std::future::pending::<()>()).unwrap().is_none());
    assert_eq!(client.wait_timeout(Duration::ZERO, std::future::ready(7)).unwrap(), Some(7));
    assert_eq!(client.wait_timeout(Duration::MAX, std::future::ready(7)).unwrap(), Some(7));
}

fn threads_share_a_client(server: Server) {
    let client = server.client();
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let path = server.path("n-");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    client.create(&path, b"", CreateMode::PersistentSequential).unwrap();
                }
            });
        }
    });
    assert_eq!(client.get_children(&server.fixture.path).unwrap().len(), 160);
}
