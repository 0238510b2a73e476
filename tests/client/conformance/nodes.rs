//! Creating, reading, writing, deleting.

use super::{Fixture, refused};
use crate::*;

async fn nodes_of_each_mode_are_created_with_their_stat_or_without(fixture: Fixture) {
    let (client, session) = (&fixture.client, session_id(&fixture.client));
    for (name, mode) in [
        ("p", CreateMode::Persistent),
        ("e", CreateMode::Ephemeral),
        ("c", CreateMode::Container),
        ("t", CreateMode::PersistentWithTtl(Ttl::from_millis(60_000).unwrap())),
    ] {
        let path = fixture.path(name);
        assert_eq!(client.create(&path, b"data", mode).await.unwrap(), path);
        let node = client.get_data(&path).await.unwrap();
        assert_eq!((&node.data[..], node.stat.version), (&b"data"[..], 0), "{mode}");
        let path = fixture.path(&format!("{name}-with-stat"));
        let (created, stat) = client.create_with_stat(&path, b"xyz", mode).await.unwrap();
        assert_eq!(created, path);
        assert_eq!(stat, client.exists(&path).await.unwrap().unwrap(), "{mode}");
        let owner = if mode.is_ephemeral() { session } else { 0 };
        let seen = (stat.ephemeral_owner, stat.czxid, stat.data_length);
        assert_eq!(seen, (owner, stat.mzxid, 3), "{mode}");
    }
}

async fn a_node_with_a_time_to_live_goes_by_itself(fixture: Fixture) {
    let path = fixture.path("short");
    let mode = CreateMode::PersistentWithTtl(Ttl::from_millis(1).unwrap());
    fixture.client.create(&path, b"", mode).await.unwrap();
    let gone = async || fixture.client.exists(&path).await.unwrap().is_none();
    until("the node to go", gone).await;
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

async fn all_descendants_are_counted(fixture: Fixture) {
    fixture.node("a", b"").await;
    fixture.node("a/b", b"").await;
    fixture.node("c", b"").await;
    assert_eq!(fixture.client.get_all_children_number(&fixture.base).await.unwrap(), 3);
    assert_eq!(fixture.client.get_all_children_number(&fixture.path("c")).await.unwrap(), 0);
    refused(fixture.client.get_all_children_number(&fixture.path("none")).await, ErrorKind::NoNode);
}

async fn ephemerals_are_listed_by_a_prefix_of_text(fixture: Fixture) {
    let [one, oneself, two] = ["one", "oneself", "two"].map(|name| fixture.path(name));
    for path in [&one, &oneself, &two] {
        fixture.client.create(path, b"", CreateMode::Ephemeral).await.unwrap();
    }
    let all = sorted(fixture.client.get_ephemerals("/").await.unwrap());
    assert_eq!(all, [one.clone(), oneself.clone(), two]);
    let some = sorted(fixture.client.get_ephemerals(&one).await.unwrap());
    assert_eq!(some, [one, oneself]);
    assert!(fixture.another().await.get_ephemerals("/").await.unwrap().is_empty(), "its own only");
}

/// The server does not check that the path exists.
// Case (Pitfalls of the wire, 43): sync is like a write.
async fn sync_looks_at_no_path(fixture: Fixture) {
    fixture.client.sync(&fixture.base).await.unwrap();
    fixture.client.sync(&fixture.path("none")).await.unwrap();
}

/// The chroot is added to each path that is sent and removed from each path that is returned.
async fn a_chroot_is_in_front_of_every_path(fixture: Fixture) {
    let client = fixture.chrooted().await;
    assert_eq!(client.create("/a", b"x", CreateMode::Ephemeral).await.unwrap(), "/a");
    assert_eq!(fixture.client.get_data(&fixture.path("a")).await.unwrap().data, "x");
    let (path, _) =
        client.create_with_stat("/", b"", CreateMode::PersistentSequential).await.unwrap();
    assert_eq!(path, "/0000000001");
    assert_eq!(client.get_children("/").await.unwrap().len(), 2);
    assert_eq!(client.get_ephemerals("/").await.unwrap(), ["/a"]);
    let error = refused(client.get_data("/none").await, ErrorKind::NoNode);
    assert_eq!(error.path(), Some("/none"));
    // This node is outside every chroot.
    client.get_config().await.unwrap();
}

super::on_all_servers! {
    nodes_of_each_mode_are_created_with_their_stat_or_without,
    a_node_with_a_time_to_live_goes_by_itself,
    all_descendants_are_counted,
    ephemerals_are_listed_by_a_prefix_of_text,
    sync_looks_at_no_path,
    a_chroot_is_in_front_of_every_path,
}
