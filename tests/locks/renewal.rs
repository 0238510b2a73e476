//! Clients whose proven bounds are renewed, on both servers: their other requests while connections are replaced.

use docent::InterProcessMutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;

on_both_servers! {
    pipelined_requests_keep_their_order_and_watches_their_events_in_renewals
    ends_in_a_renewal_leave_no_node
}

async fn client(fixture: &Fixture) -> Client {
    let config = Config::new(&fixture.server).unwrap().with_session_timeout(ms(30_000));
    config.connect().await.unwrap()
}

fn renewed(fixture: &Fixture, client: &Client) -> InterProcessMutex {
    let options = options().with_proven_renewal(ms(1));
    InterProcessMutex::with_options(client, &format!("{}/lock", fixture.path), options).unwrap()
}

/// Each write expects the version of the one before it: a write that is lost, repeated or overtaken fails.
// Case (Renewed holds): thousands of requests in flight, and watches: none is lost, repeated or
// reordered.
async fn pipelined_requests_keep_their_order_and_watches_their_events_in_renewals(
    fixture: Fixture,
) {
    const WINDOW: i32 = 500;
    let client = client(&fixture).await;
    fixture.create_path(&client).await;
    let guard = within_deadline("acquire", renewed(&fixture, &client).acquire()).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut writers, mut followers) = (Vec::new(), Vec::new());
    for number in 0..4 {
        let path = format!("{}/{number}", fixture.path);
        client.create(&path, b"", CreateMode::Persistent).await.unwrap();
        followers.push(tokio::spawn({
            let (client, path) = (client.clone(), path.clone());
            async move {
                let mut events = 0;
                loop {
                    let (node, mut watcher) = client.get_data_and_watch(&path).await.unwrap();
                    if &node.data[..] == b"end" {
                        return events;
                    }
                    watcher.next().await;
                    events += 1;
                }
            }
        }));
        writers.push(tokio::spawn({
            let (client, is_over) = (client.clone(), Arc::clone(&is_over));
            async move {
                let mut version = 0;
                while !is_over.load(SeqCst) {
                    let window: Vec<_> = (version..version + WINDOW)
                        .map(|version| client.set_data(&path, b"", Some(version)))
                        .collect();
                    for write in window {
                        let stat = write.await.unwrap();
                        version += 1;
                        assert_eq!(stat.version, version);
                    }
                }
                client.set_data(&path, b"end", Some(version)).await.unwrap();
                version
            }
        }));
    }
    let before = client.metrics().connections;
    let first = guard.proven_until();
    until("eight renewals", async || {
        assert!(client.now() < guard.proven_until(), "lapsed");
        client.metrics().connections >= before + 8 && guard.proven_until() > first
    })
    .await;
    is_over.store(true, SeqCst);
    let mut writes = 0;
    for writer in writers {
        writes += within_deadline("a writer", writer).await.unwrap();
    }
    let mut events = 0;
    for follower in followers {
        events += within_deadline("a watch", follower).await.unwrap();
    }
    eprintln!("{writes} writes and {events} events in eight renewals");
    assert_eq!(client.state().get(), Some(ConnectionState::Connected));
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// A release, a drop, a dropped release and a close at several points while the connection is being replaced.
// Case (Renewed holds): a release, a drop, a dropped release, a close while the connection is being
// replaced.
async fn ends_in_a_renewal_leave_no_node(fixture: Fixture) {
    let lock = format!("{}/lock", fixture.path);
    for (end, turns) in (0..4).flat_map(|end| [0, 1, 4].map(|turns| (end, turns))) {
        let client = client(&fixture).await;
        let guard = within_deadline("acquire", renewed(&fixture, &client).acquire()).await.unwrap();
        let before = client.metrics().attempts;
        let reconnect = async {
            while client.metrics().attempts == before {
                tokio::task::yield_now().await;
            }
        };
        within_deadline("a planned reconnect", reconnect).await;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        match end {
            0 => within_deadline("a release", guard.release()).await.unwrap(),
            1 => drop(guard),
            2 => tokio::select! {
                biased;
                released = guard.release() => released.unwrap(),
                () = std::future::ready(()) => {}
            },
            _ => {
                within_deadline("a close", client.close()).await.unwrap();
                assert!(!guard.is_held());
            }
        }
        // The server may have removed the container as well.
        fixture.children(&lock, 0).await;
        if end < 3 {
            assert_eq!(client.state().get(), Some(ConnectionState::Connected));
            within_deadline("a close", client.close()).await.unwrap();
        }
    }
}
