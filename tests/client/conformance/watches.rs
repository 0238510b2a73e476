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

// Case (Failure cases, 11): an event before the reply that caused it.
async fn a_data_watch_reports_change_and_deletion(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    let (_, mut first) = fixture.client.get_data_and_watch(&path).await.unwrap();
    let (_, mut second) = fixture.client.get_data_and_watch(&path).await.unwrap();
    change(&fixture.client, &path).await;
    // The event arrives before the reply to the change that caused it.
    assert_eq!(first.try_next().unwrap().event_type, EventType::NodeDataChanged);
    assert_eq!(next(&mut second).await, (EventType::NodeDataChanged, path.clone()));
    let (_, mut third) = fixture.client.get_data_and_watch(&path).await.unwrap();
    fixture.client.delete(&path, None).await.unwrap();
    assert_eq!(next(&mut third).await, (EventType::NodeDeleted, path));
    assert_eq!(pending_and_watches(&fixture.client), (0, 0));
}

async fn an_exist_watch_reports_creation_change_and_deletion(fixture: Fixture) {
    let path = fixture.path("a");
    let (stat, mut created) = fixture.client.exists_and_watch(&path).await.unwrap();
    assert_eq!(stat, None);
    fixture.node("a", b"").await;
    assert_eq!(next(&mut created).await.0, EventType::NodeCreated);
    let (stat, mut changed) = fixture.client.exists_and_watch(&path).await.unwrap();
    assert!(stat.is_some());
    change(&fixture.client, &path).await;
    assert_eq!(next(&mut changed).await.0, EventType::NodeDataChanged);
    let (_, mut deleted) = fixture.client.exists_and_watch(&path).await.unwrap();
    fixture.client.delete(&path, None).await.unwrap();
    assert_eq!(next(&mut deleted).await.0, EventType::NodeDeleted);
}

async fn a_child_watch_reports_children_and_deletion(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    let (_, mut came) = fixture.client.get_children_and_watch(&path).await.unwrap();
    let child = fixture.node("a/b", b"").await;
    assert_eq!(next(&mut came).await, (EventType::NodeChildrenChanged, path.clone()));
    let (_, mut went) = fixture.client.get_children_with_stat_and_watch(&path).await.unwrap();
    change(&fixture.client, &child).await;
    change(&fixture.client, &path).await;
    assert_eq!(went.try_next(), None, "data are another matter");
    fixture.client.delete(&child, None).await.unwrap();
    assert_eq!(next(&mut went).await.0, EventType::NodeChildrenChanged);
    let (_, mut gone) = fixture.client.get_children_and_watch(&path).await.unwrap();
    fixture.client.delete(&path, None).await.unwrap();
    assert_eq!(next(&mut gone).await.0, EventType::NodeDeleted);
}

async fn watches_are_asked_for_and_removed_by_their_kind(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    let (_, watcher) = fixture.client.get_data_and_watch(&path).await.unwrap();
    fixture.client.check_watches(&path, WatcherType::Data).await.unwrap();
    refused(fixture.client.check_watches(&path, WatcherType::Children).await, ErrorKind::NoWatcher);
    refused(
        fixture.client.remove_watches(&path, WatcherType::Children).await,
        ErrorKind::NoWatcher,
    );
    fixture.client.remove_watches(&path, WatcherType::Data).await.unwrap();
    refused(fixture.client.check_watches(&path, WatcherType::Any).await, ErrorKind::NoWatcher);
    drop(watcher);
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

async fn a_persistent_watch_outlives_its_node(fixture: Fixture) {
    let path = fixture.path("a");
    let mut watcher = fixture.client.add_watch(&path, AddWatchMode::Persistent).await.unwrap();
    for _ in 0..2 {
        fixture.node("a", b"").await;
        assert_eq!(next(&mut watcher).await.0, EventType::NodeCreated);
        fixture.client.delete(&path, None).await.unwrap();
        assert_eq!(next(&mut watcher).await.0, EventType::NodeDeleted);
    }
}

async fn a_recursive_watch_reports_all_below(fixture: Fixture) {
    let client = fixture.chrooted().await;
    let mut watcher = client.add_watch("/", AddWatchMode::PersistentRecursive).await.unwrap();
    fixture.node("a", b"").await;
    let deep = fixture.node("a/b", b"").await;
    change(&fixture.client, &deep).await;
    fixture.client.delete(&deep, None).await.unwrap();
    let path = "/a/b".to_owned();
    assert_eq!(next(&mut watcher).await, (EventType::NodeCreated, "/a".into()));
    assert_eq!(next(&mut watcher).await, (EventType::NodeCreated, path.clone()));
    assert_eq!(next(&mut watcher).await, (EventType::NodeDataChanged, path.clone()));
    assert_eq!(next(&mut watcher).await, (EventType::NodeDeleted, path));
}

/// The other watches of the path still report after one has been removed.
async fn a_watch_that_goes_leaves_the_others(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    let recursive =
        fixture.client.add_watch(&path, AddWatchMode::PersistentRecursive).await.unwrap();
    let mut plain = fixture.client.add_watch(&path, AddWatchMode::Persistent).await.unwrap();
    let (_, mut data) = fixture.client.get_data_and_watch(&path).await.unwrap();
    let (_, mut children) = fixture.client.get_children_and_watch(&path).await.unwrap();
    recursive.remove().await.unwrap();
    fixture.node("a/b", b"").await;
    assert_eq!(next(&mut children).await.0, EventType::NodeChildrenChanged);
    assert_eq!(next(&mut plain).await.0, EventType::NodeChildrenChanged);
    plain.remove().await.unwrap();
    change(&fixture.client, &path).await;
    assert_eq!(next(&mut data).await.0, EventType::NodeDataChanged);
    assert_eq!(fixture.client.metrics().watches, 0);
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
    a_data_watch_reports_change_and_deletion,
    an_exist_watch_reports_creation_change_and_deletion,
    a_child_watch_reports_children_and_deletion,
    watches_are_asked_for_and_removed_by_their_kind,
    watches_of_all_kinds_share_a_path,
    a_persistent_watch_outlives_its_node,
    a_recursive_watch_reports_all_below,
    a_watch_that_goes_leaves_the_others,
    a_dropped_watch_is_removed_or_forgotten_as_requested,
}
