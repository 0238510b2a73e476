//! Methods that send several requests, and handles on a part of the tree.

use std::time::Duration;

use docent::{Acl, Perms, acl, client::Read};
use docent::{CreateMode, CreateOptions, ErrorKind, EventType};

use super::{Fixture, refused};
use crate::support::{eventually, within_deadline};

async fn missing_parents_are_created_with_the_node() {
    let Some(fixture) = Fixture::new().await else { return };
    let client = &fixture.client;
    let path = fixture.path("a/b/c");
    assert_eq!(
        client
            .create(&path, b"x", CreateOptions::new(CreateMode::Ephemeral).with_parents())
            .await
            .unwrap(),
        path
    );
    assert_eq!(client.get_data(&path).await.unwrap().data, "x");
    let parent = client.get_data(&fixture.path("a/b")).await.unwrap();
    assert!(parent.data.is_empty() && parent.stat.ephemeral_owner == 0);
    let again =
        client.create(&path, b"", CreateOptions::new(CreateMode::Persistent).with_parents()).await;
    refused(again, ErrorKind::NodeExists);
    let below = format!("{path}/d/e");
    let error = refused(
        client.create(&below, b"", CreateOptions::new(CreateMode::Persistent).with_parents()).await,
        ErrorKind::NoChildrenForEphemerals,
    );
    assert_eq!(error.path(), Some(&*format!("{path}/d")));
    // A name of digits alone is valid.
    let mode = CreateMode::PersistentSequential;
    let path = client
        .create(&fixture.path("s/t/"), b"", CreateOptions::new(mode).with_parents())
        .await
        .unwrap();
    assert_eq!(path, fixture.path("s/t/0000000000"));
}

async fn parents_have_the_mode_and_acl_asked_for() {
    let Some(fixture) = Fixture::new().await else { return };
    let client = &fixture.client;
    client.add_auth("digest", b"alice:secret").await.unwrap();
    let (mode, parents) = (CreateMode::Persistent, CreateMode::Container);
    let path = fixture.path("a/b/c");
    let created = client.create(
        &path,
        b"",
        CreateOptions::new(mode).with_acl(acl::CREATOR_ALL_ACL).with_parents_mode(parents),
    );
    assert_eq!(created.await.unwrap(), path);
    refused(fixture.another().await.get_children(&fixture.path("a/b")).await, ErrorKind::NoAuth);
    client.delete(&path, None).await.unwrap();
    eventually("the containers to go", async || {
        client.exists(&fixture.path("a")).await.unwrap().is_none().then_some(())
    })
    .await;
    client.ensure_path(&fixture.path("x/y"), CreateMode::Persistent).await.unwrap();
    client.ensure_path(&fixture.path("x/y"), CreateMode::Persistent).await.unwrap();
    client.ensure_path(&fixture.path("x/y/z"), CreateMode::Persistent).await.unwrap();
    let children = client.get_children(&fixture.path("x/y")).await.unwrap();
    assert_eq!(children.to_vec(), ["z"]);
    assert!(client.get_children(&fixture.path("x/y/z")).await.unwrap().is_empty());
    // The parent of a sequential node whose name is its digits.
    let options = CreateOptions::new(CreateMode::PersistentSequential);
    let options = options.with_parents();
    let created = client.create(&fixture.path("x/s/"), b"", options).await.unwrap();
    assert_eq!(created, fixture.path("x/s/0000000000"));
}

/// A client that may create nodes in a directory needs no permission above it.
async fn ancestors_that_exist_need_no_permission() {
    let Some(fixture) = Fixture::new().await else { return };
    let top = fixture.node("top", b"").await;
    let shared = fixture.node("top/shared", b"").await;
    fixture.client.add_auth("digest", b"alice:secret").await.unwrap();
    fixture.client.set_acl(&top, acl::CREATOR_ALL_ACL, None).await.unwrap();
    let stranger = fixture.another().await;
    let path = format!("{shared}/a/b");
    stranger
        .create(&path, b"", CreateOptions::new(CreateMode::Persistent).with_parents())
        .await
        .unwrap();
    stranger.ensure_path(&path, CreateMode::Persistent).await.unwrap();
    let error = refused(
        stranger
            .create(
                &format!("{top}/x/y"),
                b"",
                CreateOptions::new(CreateMode::Persistent).with_parents(),
            )
            .await,
        ErrorKind::NoAuth,
    );
    assert_eq!(error.path(), Some(&*format!("{top}/x")));
}

// Case (Found in docent itself): a transaction named its own chroot as missing when the node that
// it checks for another client was (`check_of`); a multi read of `/` did not name it.
async fn a_chroot_is_created_with_the_parents() {
    let Some(fixture) = Fixture::new().await else { return };
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
        // The node belongs to another client, with an existing chroot or without one.
        refused(
            app.transaction().check_of(&fixture.client, &missing, None).commit().await,
            ErrorKind::NoNode,
        ),
    ] {
        assert!(!elsewhere.is_missing_chroot(), "{elsewhere}");
    }
    assert_eq!(app.exists("/").await.unwrap(), None);
    let created = app
        .create("/a/b", b"x", CreateOptions::new(CreateMode::Persistent).with_parents())
        .await
        .unwrap();
    assert_eq!(created, "/a/b");
    assert_eq!(fixture.client.get_data(&fixture.path("app/one/a/b")).await.unwrap().data, "x");
    let other = fixture.client.with_chroot(&fixture.path("app/two")).unwrap();
    other.ensure_path("/", CreateMode::Persistent).await.unwrap();
    assert!(fixture.client.exists(&fixture.path("app/two")).await.unwrap().is_some());
}

async fn create_or_set_creates_or_sets() {
    let Some(fixture) = Fixture::new().await else { return };
    let path = fixture.path("a");
    let set = async |data: &'static [u8]| {
        fixture.client.create_or_set(&path, data, CreateMode::Persistent).await.unwrap()
    };
    assert!(set(b"one").await.is_none());
    assert_eq!(set(b"two").await.unwrap().version, 1);
    assert_eq!(fixture.client.get_data(&path).await.unwrap().data, "two");
    refused(
        fixture.client.create_or_set(&fixture.path("no/parent"), b"", CreateMode::Persistent).await,
        ErrorKind::NoNode,
    );
    // The ACL of the parent does not allow CREATE.
    let read_write = [Acl::new(Perms::READ | Perms::WRITE | Perms::ADMIN, "world", "anyone")];
    fixture.client.set_acl(&fixture.base, &read_write, None).await.unwrap();
    assert!(
        fixture
            .client
            .create_or_set(&path, b"three", CreateMode::Persistent)
            .await
            .unwrap()
            .is_some()
    );
    refused(
        fixture.client.create_or_set(&fixture.path("b"), b"", CreateMode::Persistent).await,
        ErrorKind::NoAuth,
    );
    fixture.client.set_acl(&fixture.base, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    fixture.client.set_acl(&path, acl::READ_ACL_UNSAFE, None).await.unwrap();
    refused(
        fixture.client.create_or_set(&path, b"four", CreateMode::Persistent).await,
        ErrorKind::NoAuth,
    );
}

async fn a_tree_is_deleted_whatever_is_in_it() {
    let Some(fixture) = Fixture::new().await else { return };
    let client = &fixture.client;
    for path in ["t/a/b/c", "t/a/d", "t/e"] {
        client
            .create(
                &fixture.path(path),
                b"x",
                CreateOptions::new(CreateMode::Persistent).with_parents(),
            )
            .await
            .unwrap();
    }
    client.create(&fixture.path("t/a/ephemeral"), b"", CreateMode::Ephemeral).await.unwrap();
    client.set_data(&fixture.path("t/e"), b"version 1", None).await.unwrap();
    let beside = fixture.node("tt", b"").await;
    client.delete_recursive(&fixture.path("t")).await.unwrap();
    assert!(client.exists(&fixture.path("t")).await.unwrap().is_none());
    assert!(client.exists(&beside).await.unwrap().is_some());
    client.delete_recursive(&fixture.path("t")).await.unwrap();
    // This is the node of a chroot.
    let app = client.with_chroot(&fixture.path("app")).unwrap();
    app.create("/a/b", b"", CreateOptions::new(CreateMode::Persistent).with_parents())
        .await
        .unwrap();
    app.delete_recursive("/").await.unwrap();
    assert!(client.exists(&fixture.path("app")).await.unwrap().is_none());
    // Servers refuse their own nodes; nothing below these is deleted.
    refused(client.delete_recursive("/zookeeper/config").await, ErrorKind::BadArguments);
    refused(client.delete_recursive("/zookeeper/quota").await, ErrorKind::BadArguments);
}

async fn a_node_that_may_not_be_deleted_ends_a_recursive_delete() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture
        .client
        .create(
            &fixture.path("a/b/c"),
            b"",
            CreateOptions::new(CreateMode::Persistent).with_parents(),
        )
        .await
        .unwrap();
    fixture.client.set_acl(&fixture.path("a/b"), acl::READ_ACL_UNSAFE, None).await.unwrap();
    let deleted = fixture.client.delete_recursive(&fixture.path("a")).await;
    let error = refused(deleted, ErrorKind::NoAuth);
    assert_eq!(error.path(), Some(&*fixture.path("a/b/c")));
    assert!(fixture.client.exists(&fixture.path("a/b/c")).await.unwrap().is_some());
}

async fn a_node_that_is_created_or_deleted_ends_the_waits_for_it() {
    let Some(fixture) = Fixture::new().await else { return };
    let waiter = fixture.chrooted().await;
    let path = fixture.path("a");
    let task = {
        let waiter = waiter.clone();
        tokio::spawn(async move { waiter.wait_until_exists("/a").await })
    };
    eventually("the watch", async || (waiter.metrics().watches == 1).then_some(())).await;
    fixture.client.create(&path, b"data", CreateMode::Persistent).await.unwrap();
    let stat = within_deadline("the wait", task).await.unwrap().unwrap();
    assert_eq!(stat.data_length, 4);
    assert_eq!(waiter.wait_until_exists("/a").await.unwrap(), stat, "at once");

    let task = {
        let waiter = waiter.clone();
        tokio::spawn(async move { waiter.wait_until_deleted("/a").await })
    };
    eventually("the watch", async || (waiter.metrics().watches == 1).then_some(())).await;
    fixture.client.set_data(&path, b"", None).await.unwrap();
    fixture.client.delete(&path, None).await.unwrap();
    within_deadline("the wait", task).await.unwrap().unwrap();
    waiter.wait_until_deleted("/a").await.unwrap();

    // A dropped wait leaves nothing on the server.
    let wait = waiter.wait_until_exists("/a");
    assert!(tokio::time::timeout(Duration::from_millis(100), wait).await.is_err());
    waiter.sync("/").await.unwrap();
    assert_eq!(waiter.metrics().watches, 0);
    refused(
        waiter.check_watches("/a", docent::watch::WatcherType::Any).await,
        ErrorKind::NoWatcher,
    );
}

async fn a_chrooted_clone_is_a_handle_on_the_same_session() {
    let Some(fixture) = Fixture::new().await else { return };
    let app = fixture.chrooted().await;
    let nested = app.with_chroot("/one").unwrap();
    assert_eq!(nested.chroot(), Some(&*fixture.path("one")));
    app.create("/one", b"", CreateMode::Persistent).await.unwrap();
    let (_, mut watcher) = nested.get_children_and_watch("/").await.unwrap();
    assert_eq!(watcher.path(), "/");
    assert_eq!(nested.create("/e", b"", CreateMode::Ephemeral).await.unwrap(), "/e");
    let event = within_deadline("the event", watcher.next()).await.unwrap();
    assert_eq!(event.event_type, EventType::NodeChildrenChanged);
    assert!(event.path == "/", "{event:?}");
    assert_eq!(nested.get_ephemerals("/").await.unwrap(), ["/e"]);
    assert_eq!(app.get_ephemerals("/").await.unwrap(), ["/one/e"]);
    let session = |client: &docent::Client| client.session().unwrap().session_id();
    assert_eq!(session(&nested), session(&app));
    let results = nested.transaction().check("/e", None).commit().allow(ErrorKind::NoNode);
    assert!(results.await.unwrap().is_some());
    let results = nested.transaction().check("/none", None).commit().allow(ErrorKind::NoNode);
    assert!(results.await.unwrap().is_none());
    refused(nested.with_chroot("/a/../b"), ErrorKind::InvalidPath);
    nested.close().await.unwrap();
    assert_eq!(app.ended(), Some(ErrorKind::Closed));
}

/// The future of each call about nodes has `allow`, whether the call sends one request or several.
// Case (Caches): an expected error, of a call that sends several requests too.
async fn an_expected_error_is_allowed_by_one_rule() {
    let Some(fixture) = Fixture::new().await else { return };
    let (client, mode) = (&fixture.client, CreateMode::Persistent);
    let (path, below) = (fixture.path("a"), fixture.path("none/b"));
    let exists = ErrorKind::NodeExists;
    assert!(
        client
            .create(&path, b"", CreateOptions::new(mode).with_parents())
            .allow(exists)
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        client
            .create(&path, b"", CreateOptions::new(mode).with_parents())
            .allow(exists)
            .await
            .unwrap()
            .is_none()
    );
    assert!(client.create_with_stat(&path, b"", mode).allow(exists).await.unwrap().is_none());
    let missing = ErrorKind::NoNode;
    assert!(
        client
            .create_or_set(&below, b"", CreateMode::Persistent)
            .allow(missing)
            .await
            .unwrap()
            .is_none()
    );
    assert!(client.get_data_and_watch(&below).allow(missing).await.unwrap().is_none());
    let bad = ErrorKind::BadArguments;
    let sequential = CreateMode::PersistentSequential;
    assert!(client.ensure_path(&below, sequential).allow(bad).await.unwrap().is_none());
    assert!(client.delete_recursive("/").allow(bad).await.unwrap().is_none());
    refused(client.ensure_path(&below, sequential).allow(exists).await, bad);
    let invalid = ErrorKind::InvalidPath;
    let mode = docent::AddWatchMode::Persistent;
    assert!(client.add_watch("a", mode).allow(invalid).await.unwrap().is_none());
    assert!(client.wait_until_exists("a").allow(invalid).await.unwrap().is_none());
    assert!(client.multi_read(&[Read::GetData("a")]).allow(invalid).await.unwrap().is_none());
}

/// The id is granted permissions by a client that cannot use them.
async fn the_digest_of_credentials_is_the_id_of_their_owner() {
    let Some(fixture) = Fixture::new().await else { return };
    for credentials in ["alice:secret", "bob:with:colons", "jörg:pässword"] {
        let id = acl::digest_id(credentials);
        let path = fixture.path(credentials);
        let acl = [Acl::new(Perms::ALL, "digest", &id)];
        fixture
            .client
            .create(&path, b"x", CreateOptions::new(CreateMode::Persistent).with_acl(&acl))
            .await
            .unwrap();
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
    a_node_that_may_not_be_deleted_ends_a_recursive_delete,
    a_node_that_is_created_or_deleted_ends_the_waits_for_it,
    a_chrooted_clone_is_a_handle_on_the_same_session,
    an_expected_error_is_allowed_by_one_rule,
    the_digest_of_credentials_is_the_id_of_their_owner,
}
