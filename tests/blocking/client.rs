//! The client: nodes, other calls, watches, states, retries, timeouts.

use docent::{EventType, blocking::Allow, retry::RetryNTimes, watch::OnDrop};
use std::future;

use super::*;

blocking_on_both_servers! {
    nodes_are_created_read_written_and_deleted
    a_one_shot_watch_is_an_iterator_of_one_event
    a_persistent_watch_is_an_iterator_until_the_client_ends
    a_wait_ends_with_its_timeout_or_its_event
    a_retry_calls_blocking_methods
    run_closes_the_session_in_every_case
}

fn nodes_are_created_read_written_and_deleted(server: Server) {
    let client = server.client();
    let path = server.path("a/b");
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    assert_eq!(client.create(&path, b"1", options).unwrap(), path);
    let node = client.get_data(&path).unwrap();
    assert_eq!((&node.data[..], node.stat.version), (&b"1"[..], 0));
    assert_eq!(client.set_data(&path, b"2", Some(0)).unwrap().version, 1);
    let error = client.set_data(&path, b"3", Some(0)).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::BadVersion, Outcome::NotApplied));
    assert_eq!(client.exists(&path).unwrap().map(|stat| stat.version), Some(1));
    assert_eq!(client.get_children(&server.path("a")).unwrap().to_vec(), ["b"]);
    let set = client.create_or_set(&path, b"4", CreateMode::Persistent).unwrap();
    assert_eq!(set.map(|stat| stat.version), Some(2));
    let made = client.create(&format!("{path}/"), b"", CreateMode::EphemeralSequential);
    assert_eq!(made.unwrap(), format!("{path}/0000000000"));
    client.sync(&path).unwrap();
    let missing = server.path("missing");
    assert_eq!(client.get_data(&missing).allow(ErrorKind::NoNode).unwrap(), None);
    assert_eq!(client.delete(&missing, None).unwrap_err().kind(), ErrorKind::NoNode);
    let below = client.wrap(client.with_chroot(&server.fixture.path).unwrap());
    below.delete_recursive("/a").unwrap();
    assert_eq!(client.exists(&path).unwrap(), None);
}

fn a_one_shot_watch_is_an_iterator_of_one_event(server: Server) {
    let client = server.client();
    let path = server.path("watched");
    client.create(&path, b"", CreateOptions::new(CreateMode::Persistent).with_parents()).unwrap();
    let (_, mut watcher) = client.get_data_and_watch(&path).unwrap();
    assert_eq!(watcher.path(), path);
    let late = watcher.next_timeout(SHORT).unwrap().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::OperationTimeout);
    client.set_data(&path, b"1", None).unwrap();
    let event = watcher.next().unwrap().unwrap();
    assert_eq!((event.event_type, &*event.path), (EventType::NodeDataChanged, &path[..]));
    assert!(watcher.next().is_none(), "an event after the only one");
    let (_, mut watcher) = client.exists_and_watch(&path).unwrap();
    client.delete(&path, None).unwrap();
    assert_eq!(watcher.next().unwrap().unwrap().event_type, EventType::NodeDeleted);
    let (_, mut watcher) = client.get_children_and_watch(&server.fixture.path).unwrap();
    watcher.set_on_drop(OnDrop::Remove);
    drop(watcher);
    assert_eq!(client.metrics().watches, 0);
}

fn a_persistent_watch_is_an_iterator_until_the_client_ends(server: Server) {
    let (client, writer) = (server.client(), server.client());
    let path = server.path("tree");
    client.create(&path, b"", CreateOptions::new(CreateMode::Persistent).with_parents()).unwrap();
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
    // The replies to these reads come after the write's event.
    client.sync(&path).unwrap();
    client.get_data(&path).unwrap();
    client.close().unwrap();
    assert_eq!(follower.join().unwrap(), [EventType::NodeDataChanged, EventType::None]);
}

// Case (Programs without async): a wait whose limit of time is over: its watch is removed.
fn a_wait_ends_with_its_timeout_or_its_event(server: Server) {
    let client = server.client();
    let path = server.path("awaited");
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    assert!(wait_timeout(SHORT, || client.wait_until_exists(&path)).unwrap().is_none());
    // A timed wait that has ended leaves no watch behind.
    until_blocking("no watches", || client.metrics().watches == 0);
    let waiting = thread::spawn({
        let (client, path) = (client.clone(), path.clone());
        move || wait(|| client.wait_until_exists(&path)).unwrap()
    });
    server.client().create(&path, b"", CreateMode::Persistent).unwrap();
    assert_eq!(waiting.join().unwrap().version, 0);
    for limit in [Duration::ZERO, Duration::MAX] {
        assert_eq!(wait_timeout(limit, || future::ready(Ok(7))).unwrap(), Some(7));
    }
}

// Case (Programs without async): a blocking call within a retry, on a thread that is waiting
// already.
fn a_retry_calls_blocking_methods(server: Server) {
    let client = server.client();
    let path = server.path("retried");
    let mut attempts = 0;
    let made = client.retry(&RetryNTimes::new(3, Duration::from_millis(1)), || {
        attempts += 1;
        if attempts < 3 {
            // As if its request had never been sent.
            return Err(docent::Error::new(ErrorKind::ConnectionLoss, Outcome::NotApplied));
        }
        client.create(&path, b"", CreateOptions::new(CreateMode::Persistent).with_parents())
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
    let create = |client: Client| client.create(&path, b"", CreateMode::Ephemeral).unwrap();
    assert_eq!(server.client().run(create), path);
    assert_eq!(observer.exists(&path).unwrap(), None);

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
