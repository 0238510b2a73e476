//! Methods that send several requests, and clients with a chroot.

use super::{Fixture, parents, refused};
use crate::*;

async fn missing_parents_are_created_with_the_node(fixture: Fixture) {
    let client = &fixture.client;
    let path = fixture.path("a/b/c");
    let ephemeral = CreateOptions::new(CreateMode::Ephemeral).with_parents();
    assert_eq!(client.create(&path, b"x", ephemeral).await.unwrap(), path);
    assert_eq!(client.get_data(&path).await.unwrap().data, "x");
    let parent = client.get_data(&fixture.path("a/b")).await.unwrap();
    assert!(parent.data.is_empty() && parent.stat.ephemeral_owner == 0);
    let again = client.create(&path, b"", parents()).await;
    refused(again, ErrorKind::NodeExists);
    let below = format!("{path}/d/e");
    let error =
        refused(client.create(&below, b"", parents()).await, ErrorKind::NoChildrenForEphemerals);
    assert_eq!(error.path(), Some(&*format!("{path}/d")));
    // The digits alone are a valid name.
    let sequential = CreateOptions::new(CreateMode::PersistentSequential).with_parents();
    let path = client.create(&fixture.path("s/t/"), b"", sequential).await.unwrap();
    assert_eq!(path, fixture.path("s/t/0000000000"));
}

async fn parents_have_the_mode_and_acl_asked_for(fixture: Fixture) {
    let client = &fixture.client;
    client.add_auth("digest", b"alice:secret").await.unwrap();
    let path = fixture.path("a/b/c");
    let options = CreateOptions::new(CreateMode::Persistent).with_acl(acl::CREATOR_ALL_ACL);
    let options = options.with_parents_mode(CreateMode::Container);
    assert_eq!(client.create(&path, b"", options).await.unwrap(), path);
    refused(fixture.another().await.get_children(&fixture.path("a/b")).await, ErrorKind::NoAuth);
    client.delete(&path, None).await.unwrap();
    until("the containers to go", async || {
        client.exists(&fixture.path("a")).await.unwrap().is_none()
    })
    .await;
    client.ensure_path(&fixture.path("x/y"), CreateMode::Persistent).await.unwrap();
    client.ensure_path(&fixture.path("x/y"), CreateMode::Persistent).await.unwrap();
    client.ensure_path(&fixture.path("x/y/z"), CreateMode::Persistent).await.unwrap();
    let children = client.get_children(&fixture.path("x/y")).await.unwrap();
    assert_eq!(children.to_vec(), ["z"]);
    assert!(client.get_children(&fixture.path("x/y/z")).await.unwrap().is_empty());
}

/// A client that may create nodes in a directory needs no permission for its ancestors.
async fn ancestors_that_exist_need_no_permission(fixture: Fixture) {
    let top = fixture.node("top", b"").await;
    let shared = fixture.node("top/shared", b"").await;
    fixture.client.add_auth("digest", b"alice:secret").await.unwrap();
    fixture.client.set_acl(&top, acl::CREATOR_ALL_ACL, None).await.unwrap();
    let stranger = fixture.another().await;
    let path = format!("{shared}/a/b");
    stranger.create(&path, b"", parents()).await.unwrap();
    stranger.ensure_path(&path, CreateMode::Persistent).await.unwrap();
    let error =
        refused(stranger.create(&format!("{top}/x/y"), b"", parents()).await, ErrorKind::NoAuth);
    assert_eq!(error.path(), Some(&*format!("{top}/x")));
}

// Case (Found in docent itself): a transaction named its own chroot as missing when the node that
// it checks for another client was (`check_of`); a multi read of `/` did not name it.
async fn a_chroot_is_created_with_the_parents(fixture: Fixture) {
    let app = fixture.client.with_chroot(&fixture.path("app/one")).unwrap();
    let none = fixture.client.with_chroot(&fixture.path("none")).unwrap();
    let missing = fixture.path("none");
    let chroot = format!("the chroot {} does not exist", fixture.path("app/one"));
    for error in [
        refused(app.create("/a", b"", CreateMode::Persistent).await, ErrorKind::NoNode),
        refused(app.get_children("/").await, ErrorKind::NoNode),
        refused(app.transaction().set_data("/", b"", None).commit().await, ErrorKind::NoNode),
        refused(none.transaction().check_of(&app, "/", None).commit().await, ErrorKind::NoNode),
    ] {
        assert!(error.is_missing_chroot() && error.to_string().contains(&chroot), "{error}");
    }
    let reads = app.multi_read(&[Read::GetChildren("/"), Read::GetData("/a")]).await.unwrap();
    let reads: Vec<_> = reads.into_iter().map(|read| refused(read, ErrorKind::NoNode)).collect();
    assert!(reads[0].is_missing_chroot() && reads[0].to_string().contains(&chroot), "{reads:?}");
    assert!(!reads[1].is_missing_chroot(), "{reads:?}");
    for elsewhere in [
        refused(app.create("/a/b", b"", CreateMode::Persistent).await, ErrorKind::NoNode),
        refused(app.get_data("/a").await, ErrorKind::NoNode),
        refused(app.transaction().check("/a", None).commit().await, ErrorKind::NoNode),
        // The missing node is outside the chroot: it belongs to another client, with an existing chroot or without one.
        refused(
            app.transaction().check_of(&fixture.client, &missing, None).commit().await,
            ErrorKind::NoNode,
        ),
    ] {
        assert!(!elsewhere.is_missing_chroot(), "{elsewhere}");
    }
    assert_eq!(app.exists("/").await.unwrap(), None);
    let created = app.create("/a/b", b"x", parents()).await.unwrap();
    assert_eq!(created, "/a/b");
    assert_eq!(fixture.client.get_data(&fixture.path("app/one/a/b")).await.unwrap().data, "x");
    let other = fixture.client.with_chroot(&fixture.path("app/two")).unwrap();
    other.ensure_path("/", CreateMode::Persistent).await.unwrap();
    assert!(fixture.client.exists(&fixture.path("app/two")).await.unwrap().is_some());
}

async fn create_or_set_creates_or_sets(fixture: Fixture) {
    let (client, path) = (&fixture.client, fixture.path("a"));
    let write = async |path: &str, data: &[u8]| {
        client.create_or_set(path, data, CreateMode::Persistent).await
    };
    assert!(write(&path, b"one").await.unwrap().is_none());
    assert_eq!(write(&path, b"two").await.unwrap().unwrap().version, 1);
    assert_eq!(client.get_data(&path).await.unwrap().data, "two");
    refused(write(&fixture.path("no/parent"), b"").await, ErrorKind::NoNode);
    // The ACL of the parent does not allow CREATE.
    let read_write = [Acl::new(Perms::READ | Perms::WRITE | Perms::ADMIN, "world", "anyone")];
    client.set_acl(&fixture.base, &read_write, None).await.unwrap();
    assert!(write(&path, b"three").await.unwrap().is_some());
    refused(write(&fixture.path("b"), b"").await, ErrorKind::NoAuth);
    client.set_acl(&fixture.base, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    client.set_acl(&path, acl::READ_ACL_UNSAFE, None).await.unwrap();
    refused(write(&path, b"four").await, ErrorKind::NoAuth);
}

async fn a_tree_is_deleted_whatever_is_in_it(fixture: Fixture) {
    let client = &fixture.client;
    for path in ["t/a/b/c", "t/a/d", "t/e"] {
        client.create(&fixture.path(path), b"x", parents()).await.unwrap();
    }
    client.create(&fixture.path("t/a/ephemeral"), b"", CreateMode::Ephemeral).await.unwrap();
    client.set_data(&fixture.path("t/e"), b"version 1", None).await.unwrap();
    let beside = fixture.node("tt", b"").await;
    client.delete_recursive(&fixture.path("t")).await.unwrap();
    assert!(client.exists(&fixture.path("t")).await.unwrap().is_none());
    assert!(client.exists(&beside).await.unwrap().is_some());
    client.delete_recursive(&fixture.path("t")).await.unwrap();
    // The node is the root of a chroot.
    let app = client.with_chroot(&fixture.path("app")).unwrap();
    app.create("/a/b", b"", parents()).await.unwrap();
    app.delete_recursive("/").await.unwrap();
    assert!(client.exists(&fixture.path("app")).await.unwrap().is_none());
    // Servers refuse their own nodes; nothing below these is deleted.
    refused(client.delete_recursive("/zookeeper/config").await, ErrorKind::BadArguments);
    refused(client.delete_recursive("/zookeeper/quota").await, ErrorKind::BadArguments);
}

/// A client without the credentials grants permissions to the id.
async fn the_digest_of_credentials_is_the_id_of_their_owner(fixture: Fixture) {
    for credentials in ["alice:secret", "bob:with:colons", "jörg:pässword"] {
        let id = acl::digest_id(credentials);
        let path = fixture.path(credentials);
        let acl = [Acl::new(Perms::ALL, "digest", &id)];
        let own = CreateOptions::new(CreateMode::Persistent).with_acl(&acl);
        fixture.client.create(&path, b"x", own).await.unwrap();
        refused(fixture.client.get_data(&path).await, ErrorKind::NoAuth);
        let owner = fixture.another().await;
        owner.add_auth("digest", credentials.as_bytes()).await.unwrap();
        assert_eq!(owner.get_data(&path).await.unwrap().data, "x");
        assert_eq!(owner.get_acl(&path).await.unwrap().0.to_vec(), acl);
    }
}

super::on_all_servers! {
    missing_parents_are_created_with_the_node,
    parents_have_the_mode_and_acl_asked_for,
    ancestors_that_exist_need_no_permission,
    a_chroot_is_created_with_the_parents,
    create_or_set_creates_or_sets,
    a_tree_is_deleted_whatever_is_in_it,
    the_digest_of_credentials_is_the_id_of_their_owner,
}
