//! What is told, to whom, and when.

use docent::protocol::{AddWatchMode, WatcherType};
use docent::session::{Client, OnDrop};
use docent::{CreateMode, ErrorKind, EventType, Watcher};

use crate::support::within_deadline;
use crate::{Playground, refused};

async fn next(watcher: &mut Watcher) -> (EventType, String) {
    let event = within_deadline("an event", watcher.changed()).await;
    (event.event_type, event.path.to_string())
}

async fn change(client: &Client, path: &str) {
    client.set_data(path, b"changed", None).await.unwrap();
}

async fn a_data_watch_tells_of_change_and_deletion() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let (_, mut first) = play.client.get_data_and_watch(&path).await.unwrap();
    let (_, mut second) = play.client.get_data_and_watch(&path).await.unwrap();
    change(&play.client, &path).await;
    // The event comes before the answer to the change that caused it.
    assert_eq!(first.try_changed().unwrap().event_type, EventType::NodeDataChanged);
    assert_eq!(next(&mut second).await, (EventType::NodeDataChanged, path.clone()));
    let (_, mut third) = play.client.get_data_and_watch(&path).await.unwrap();
    play.client.delete(&path, None).await.unwrap();
    assert_eq!(next(&mut third).await, (EventType::NodeDeleted, path));
    assert_eq!(play.client.load(), (0, 0));
}

async fn an_exist_watch_tells_of_creation_change_and_deletion() {
    let Some(play) = Playground::new().await else { return };
    let path = play.path("a");
    let (stat, mut created) = play.client.exists_and_watch(&path).await.unwrap();
    assert_eq!(stat, None);
    play.node("a", b"").await;
    assert_eq!(next(&mut created).await.0, EventType::NodeCreated);
    let (stat, mut changed) = play.client.exists_and_watch(&path).await.unwrap();
    assert!(stat.is_some());
    change(&play.client, &path).await;
    assert_eq!(next(&mut changed).await.0, EventType::NodeDataChanged);
    let (_, mut deleted) = play.client.exists_and_watch(&path).await.unwrap();
    play.client.delete(&path, None).await.unwrap();
    assert_eq!(next(&mut deleted).await.0, EventType::NodeDeleted);
}

async fn a_child_watch_tells_of_children_and_deletion() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let (_, mut came) = play.client.get_children_and_watch(&path).await.unwrap();
    let child = play.node("a/b", b"").await;
    assert_eq!(next(&mut came).await, (EventType::NodeChildrenChanged, path.clone()));
    let (_, mut went) = play.client.get_children2_and_watch(&path).await.unwrap();
    change(&play.client, &child).await;
    change(&play.client, &path).await;
    assert_eq!(went.try_changed(), None, "data are another matter");
    play.client.delete(&child, None).await.unwrap();
    assert_eq!(next(&mut went).await.0, EventType::NodeChildrenChanged);
    let (_, mut gone) = play.client.get_children_and_watch(&path).await.unwrap();
    play.client.delete(&path, None).await.unwrap();
    assert_eq!(next(&mut gone).await.0, EventType::NodeDeleted);
}

async fn no_watch_is_left_by_a_read_that_fails() {
    let Some(play) = Playground::new().await else { return };
    let path = play.path("none");
    refused(play.client.get_data_and_watch(&path).await, ErrorKind::NoNode);
    refused(play.client.get_children_and_watch(&path).await, ErrorKind::NoNode);
    assert_eq!(play.client.load().1, 0);
    refused(play.client.check_watches(&path, WatcherType::Any).await, ErrorKind::NoWatcher);
}

async fn a_change_by_somebody_else_is_told() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let (_, mut watcher) = play.client.get_data_and_watch(&path).await.unwrap();
    change(&play.another().await, &path).await;
    assert_eq!(next(&mut watcher).await.0, EventType::NodeDataChanged);
}

async fn events_have_the_client_s_path() {
    let Some(play) = Playground::new().await else { return };
    let client = play.chrooted().await;
    let (_, mut root) = client.get_children_and_watch("/").await.unwrap();
    let (_, mut node) = client.exists_and_watch("/a").await.unwrap();
    client.create("/a", b"", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(next(&mut root).await, (EventType::NodeChildrenChanged, "/".into()));
    assert_eq!(next(&mut node).await, (EventType::NodeCreated, "/a".into()));
}

async fn watches_are_asked_for_and_removed_by_their_kind() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let (_, watcher) = play.client.get_data_and_watch(&path).await.unwrap();
    play.client.check_watches(&path, WatcherType::Data).await.unwrap();
    refused(play.client.check_watches(&path, WatcherType::Children).await, ErrorKind::NoWatcher);
    refused(play.client.remove_watches(&path, WatcherType::Children).await, ErrorKind::NoWatcher);
    play.client.remove_watches(&path, WatcherType::Data).await.unwrap();
    refused(play.client.check_watches(&path, WatcherType::Any).await, ErrorKind::NoWatcher);
    drop(watcher);
}

/// Several kinds on one path, on a server of any version: each tells what it is to tell
/// (ZOOKEEPER-4466, ZOOKEEPER-4475).
async fn watches_of_all_kinds_share_a_path() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    for mode in [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive] {
        let mut stays = play.client.add_watch(&path, mode).await.unwrap();
        let (_, mut data) = play.client.get_data_and_watch(&path).await.unwrap();
        let (_, mut children) = play.client.get_children_and_watch(&path).await.unwrap();
        change(&play.client, &path).await;
        assert_eq!(next(&mut data).await.0, EventType::NodeDataChanged);
        assert_eq!(next(&mut stays).await, (EventType::NodeDataChanged, path.clone()));
        let child = play.node("a/b", b"").await;
        assert_eq!(next(&mut children).await, (EventType::NodeChildrenChanged, path.clone()));
        let told = next(&mut stays).await;
        if mode == AddWatchMode::Persistent {
            assert_eq!(told, (EventType::NodeChildrenChanged, path.clone()));
        } else {
            assert_eq!(told, (EventType::NodeCreated, child.clone()));
        }
        // A one-shot watch that fired has ended neither.
        change(&play.client, &path).await;
        assert_eq!(next(&mut stays).await.0, EventType::NodeDataChanged);
        play.client.delete(&child, None).await.unwrap();
        let _ = next(&mut stays).await;
        stays.remove().await.unwrap();
        refused(play.client.check_watches(&path, WatcherType::Any).await, ErrorKind::NoWatcher);
    }
    assert_eq!(play.client.load(), (0, 0));
}

async fn a_persistent_watch_outlives_its_node() {
    let Some(play) = Playground::new().await else { return };
    let path = play.path("a");
    let mut watcher = play.client.add_watch(&path, AddWatchMode::Persistent).await.unwrap();
    for _ in 0..2 {
        play.node("a", b"").await;
        assert_eq!(next(&mut watcher).await.0, EventType::NodeCreated);
        play.client.delete(&path, None).await.unwrap();
        assert_eq!(next(&mut watcher).await.0, EventType::NodeDeleted);
    }
}

async fn a_recursive_watch_tells_of_all_below() {
    let Some(play) = Playground::new().await else { return };
    let client = play.chrooted().await;
    let mut watcher = client.add_watch("/", AddWatchMode::PersistentRecursive).await.unwrap();
    play.node("a", b"").await;
    let deep = play.node("a/b", b"").await;
    change(&play.client, &deep).await;
    play.client.delete(&deep, None).await.unwrap();
    let path = "/a/b".to_owned();
    assert_eq!(next(&mut watcher).await, (EventType::NodeCreated, "/a".into()));
    assert_eq!(next(&mut watcher).await, (EventType::NodeCreated, path.clone()));
    assert_eq!(next(&mut watcher).await, (EventType::NodeDataChanged, path.clone()));
    assert_eq!(next(&mut watcher).await, (EventType::NodeDeleted, path));
}

/// What is left on the path when one goes still tells.
async fn a_watch_that_goes_leaves_the_others() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let recursive = play.client.add_watch(&path, AddWatchMode::PersistentRecursive).await.unwrap();
    let mut plain = play.client.add_watch(&path, AddWatchMode::Persistent).await.unwrap();
    let (_, mut data) = play.client.get_data_and_watch(&path).await.unwrap();
    let (_, mut children) = play.client.get_children_and_watch(&path).await.unwrap();
    recursive.remove().await.unwrap();
    play.node("a/b", b"").await;
    assert_eq!(next(&mut children).await.0, EventType::NodeChildrenChanged);
    assert_eq!(next(&mut plain).await.0, EventType::NodeChildrenChanged);
    plain.remove().await.unwrap();
    change(&play.client, &path).await;
    assert_eq!(next(&mut data).await.0, EventType::NodeDataChanged);
    assert_eq!(play.client.load().1, 0);
}

async fn a_dropped_watch_is_removed_or_forgotten_as_told() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    drop(play.client.add_watch(&path, AddWatchMode::Persistent).await.unwrap());
    refused(play.client.check_watches(&path, WatcherType::Any).await, ErrorKind::NoWatcher);
    // As Curator leaves them: here it is gone, the server has it until its event.
    let (_, watcher) = play.client.get_data_and_watch(&path).await.unwrap();
    drop(watcher);
    assert_eq!(play.client.load().1, 0);
    play.client.check_watches(&path, WatcherType::Data).await.unwrap();
    let (_, mut watcher) = play.client.get_data_and_watch(&path).await.unwrap();
    watcher.set_on_drop(OnDrop::Remove);
    drop(watcher);
    refused(play.client.check_watches(&path, WatcherType::Data).await, ErrorKind::NoWatcher);
}

async fn who_holds_a_watch_that_is_removed_for_all_is_told() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let (_, mut data) = play.client.get_data_and_watch(&path).await.unwrap();
    let mut stays =
        play.client.add_watch(&play.base, AddWatchMode::PersistentRecursive).await.unwrap();
    play.client.remove_watches(&path, WatcherType::Any).await.unwrap();
    play.client.remove_watches(&play.base, WatcherType::Any).await.unwrap();
    assert_eq!(next(&mut data).await.0, EventType::DataWatchRemoved);
    assert_eq!(next(&mut stays).await.0, EventType::PersistentWatchRemoved);
}

/// The server's persistent watch goes with the last who wanted it, even if a read has relied on it meanwhile;
/// the read's own watch stays.
async fn a_persistent_watch_that_covered_a_read_is_gone_when_nobody_wants_it() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let watcher = play.another().await;
    let (persistent, read) =
        (watcher.add_watch(&path, AddWatchMode::Persistent), watcher.get_data_and_watch(&path));
    drop(persistent);
    let (_, mut once) = read.await.unwrap();
    // Behind what the read's answer has set off.
    watcher.sync("/").await.unwrap();
    change(&play.client, &path).await;
    assert_eq!(next(&mut once).await, (EventType::NodeDataChanged, path.clone()));
    change(&play.client, &path).await;
    play.client.create(&format!("{path}/b"), b"", CreateMode::Persistent).await.unwrap();
    watcher.sync("/").await.unwrap();
    assert_eq!(watcher.metrics().events, 1, "events for nobody");
    assert_eq!(watcher.load(), (0, 0));
}

crate::stories! {
    a_persistent_watch_that_covered_a_read_is_gone_when_nobody_wants_it,
    a_data_watch_tells_of_change_and_deletion,
    an_exist_watch_tells_of_creation_change_and_deletion,
    a_child_watch_tells_of_children_and_deletion,
    no_watch_is_left_by_a_read_that_fails,
    a_change_by_somebody_else_is_told,
    events_have_the_client_s_path,
    watches_are_asked_for_and_removed_by_their_kind,
    watches_of_all_kinds_share_a_path,
    a_persistent_watch_outlives_its_node,
    a_recursive_watch_tells_of_all_below,
    a_watch_that_goes_leaves_the_others,
    a_dropped_watch_is_removed_or_forgotten_as_told,
    who_holds_a_watch_that_is_removed_for_all_is_told,
}
