//! Which events are delivered, to which watchers, and when.

use docent::watch::OnDrop;

use super::{Fixture, refused};
use crate::support::pending_and_watches;
use crate::*;

async fn next(watcher: &mut Watcher) -> (EventType, String) {
    let event = within_deadline("an event", watcher.next()).await.unwrap();
    (event.event_type, event.path.to_string())
}

async fn change(client: &Client, path: &str) {
    client.set_data(path, b"changed", None).await.unwrap();
}

/// Watches of several kinds on one path, on a server of any version: each reports its own events
/// (ZOOKEEPER-4466, ZOOKEEPER-4475).
// Case (What broke other clients): a one-shot watch silences a recursive one.
async fn watches_of_all_kinds_share_a_path(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    for mode in [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive] {
        let mut stays = fixture.client.add_watch(&path, mode).await.unwrap();
        let (_, mut data) = fixture.client.get_data_and_watch(&path).await.unwrap();
        let (_, mut children) = fixture.client.get_children_and_watch(&path).await.unwrap();
        change(&fixture.client, &path).await;
        assert_eq!(next(&mut data).await.0, EventType::NodeDataChanged);
        assert_eq!(next(&mut stays).await, (EventType::NodeDataChanged, path.clone()));
        let child = fixture.node("a/b", b"").await;
        assert_eq!(next(&mut children).await, (EventType::NodeChildrenChanged, path.clone()));
        let event = next(&mut stays).await;
        if mode == AddWatchMode::Persistent {
            assert_eq!(event, (EventType::NodeChildrenChanged, path.clone()));
        } else {
            assert_eq!(event, (EventType::NodeCreated, child.clone()));
        }
        // The event of a one-shot watch leaves the other watches in place.
        change(&fixture.client, &path).await;
        assert_eq!(next(&mut stays).await.0, EventType::NodeDataChanged);
        fixture.client.delete(&child, None).await.unwrap();
        let _ = next(&mut stays).await;
        stays.remove().await.unwrap();
        refused(fixture.client.check_watches(&path, WatcherType::Any).await, ErrorKind::NoWatcher);
    }
    assert_eq!(pending_and_watches(&fixture.client), (0, 0));
}

async fn a_dropped_watch_is_removed_or_forgotten_as_requested(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    drop(fixture.client.add_watch(&path, AddWatchMode::Persistent).await.unwrap());
    refused(fixture.client.check_watches(&path, WatcherType::Any).await, ErrorKind::NoWatcher);
    // The client forgets the watch and the server keeps it until its event, as with Curator.
    let (_, watcher) = fixture.client.get_data_and_watch(&path).await.unwrap();
    drop(watcher);
    assert_eq!(fixture.client.metrics().watches, 0);
    fixture.client.check_watches(&path, WatcherType::Data).await.unwrap();
    let (_, mut watcher) = fixture.client.get_data_and_watch(&path).await.unwrap();
    watcher.set_on_drop(OnDrop::Remove);
    drop(watcher);
    refused(fixture.client.check_watches(&path, WatcherType::Data).await, ErrorKind::NoWatcher);
}

super::on_all_servers! {
    watches_of_all_kinds_share_a_path,
    a_dropped_watch_is_removed_or_forgotten_as_requested,
}
