//! Creating, reading, writing, deleting.

use docent::client::sequence_number;

use super::{Fixture, refused};
use crate::*;

async fn create_names_the_obstacle(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    let ephemeral = fixture.path("e");
    fixture.client.create(&ephemeral, b"", CreateMode::Ephemeral).await.unwrap();
    let plain = CreateOptions::new(CreateMode::Persistent);
    for (path, options, kind) in [
        (path, plain, ErrorKind::NodeExists),
        (fixture.path("no/parent"), plain, ErrorKind::NoNode),
        (format!("{ephemeral}/child"), plain, ErrorKind::NoChildrenForEphemerals),
        (fixture.path("b"), plain.with_acl(&[]), ErrorKind::InvalidAcl),
    ] {
        let error = refused(fixture.client.create(&path, b"", options).await, kind);
        assert_eq!((error.operation(), error.path()), (Some(OpCode::Create), Some(&*path)));
    }
}

async fn sequential_nodes_are_numbered_by_their_parent(fixture: Fixture) {
    let prefix = fixture.path("lock-");
    let ttl = Ttl::from_millis(60_000).unwrap();
    for (number, mode) in (0..).zip([
        CreateMode::PersistentSequential,
        CreateMode::EphemeralSequential,
        CreateMode::PersistentSequentialWithTtl(ttl),
    ]) {
        let path = fixture.client.create(&prefix, b"", mode).await.unwrap();
        assert_eq!(path, format!("{prefix}{number:010}"));
        assert_eq!(sequence_number(&path[prefix.len()..]), Some(number));
    }
    // The digits alone are a name.
    let bare = format!("{}/", fixture.base);
    let path = fixture.client.create(&bare, b"", CreateMode::PersistentSequential).await.unwrap();
    assert_eq!(path, format!("{bare}0000000003"));
}

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

async fn delete_compares_the_version_and_wants_no_children(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    let child = fixture.node("a/b", b"").await;
    refused(fixture.client.delete(&path, None).await, ErrorKind::NotEmpty);
    refused(fixture.client.delete(&child, Some(1)).await, ErrorKind::BadVersion);
    fixture.client.delete(&child, Some(0)).await.unwrap();
    fixture.client.delete(&path, None).await.unwrap();
    refused(fixture.client.delete(&path, None).await, ErrorKind::NoNode);
    refused(fixture.client.delete("/zookeeper", None).await, ErrorKind::BadArguments);
    refused(fixture.client.delete("/", None).await, ErrorKind::BadArguments);
}

async fn set_data_compares_the_version_and_answers_with_the_new_stat(fixture: Fixture) {
    let path = fixture.node("a", b"old").await;
    let stat = fixture.client.set_data(&path, b"new", Some(0)).await.unwrap();
    assert_eq!((stat.version, stat.data_length), (1, 3));
    assert!(stat.mzxid > stat.czxid);
    refused(fixture.client.set_data(&path, b"", Some(0)).await, ErrorKind::BadVersion);
    assert_eq!(fixture.client.set_data(&path, b"", None).await.unwrap().version, 2);
    let node = fixture.client.get_data(&path).await.unwrap();
    assert!(node.data.is_empty() && node.stat.version == 2);
    refused(fixture.client.set_data(&fixture.path("none"), b"", None).await, ErrorKind::NoNode);
    refused(fixture.client.get_data(&fixture.path("none")).await, ErrorKind::NoNode);
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

async fn children_come_with_and_without_the_stat(fixture: Fixture) {
    for name in ["x", "y", "z"] {
        fixture.node(name, b"").await;
    }
    let children = fixture.client.get_children(&fixture.base).await.unwrap();
    assert_eq!(sorted(children.to_vec()), ["x", "y", "z"]);
    let (children, stat) = fixture.client.get_children_with_stat(&fixture.base).await.unwrap();
    assert_eq!((children.len(), stat.num_children, stat.cversion), (3, 3, 3));
    let leaf = fixture.client.get_children(&fixture.path("x")).await.unwrap();
    assert!(leaf.is_empty());
    refused(fixture.client.get_children(&fixture.path("none")).await, ErrorKind::NoNode);
    refused(fixture.client.get_children_with_stat(&fixture.path("none")).await, ErrorKind::NoNode);
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
    create_names_the_obstacle,
    sequential_nodes_are_numbered_by_their_parent,
    nodes_of_each_mode_are_created_with_their_stat_or_without,
    a_node_with_a_time_to_live_goes_by_itself,
    delete_compares_the_version_and_wants_no_children,
    set_data_compares_the_version_and_answers_with_the_new_stat,
    children_come_with_and_without_the_stat,
    all_descendants_are_counted,
    ephemerals_are_listed_by_a_prefix_of_text,
    sync_looks_at_no_path,
    a_chroot_is_in_front_of_every_path,
}
