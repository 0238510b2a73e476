//! `create_protected` creates one node, whatever is lost. `stale.rs` has the tests on servers that show an old tree.

use super::*;

on_both_servers! {
    a_lost_request_or_reply_leaves_one_node
    a_missing_parent_is_an_error
    a_parent_that_may_not_be_read_is_one_that_exists
    a_protected_node_is_found_in_the_next_session
}

const MODES: [CreateMode; 5] = [
    CreateMode::Persistent,
    CreateMode::PersistentSequential,
    CreateMode::Ephemeral,
    CreateMode::EphemeralSequential,
    CreateMode::Container,
];

/// Creates the parent, and returns a path below it.
async fn parent(fixture: &Fixture, client: &Client) -> String {
    fixture.create_path(client).await;
    format!("{}/item", fixture.path)
}

async fn create(
    client: &Client,
    path: &str,
    options: impl Into<ProtectedOptions<'_>>,
) -> Result<String, Error> {
    within_deadline("create", create_protected(client, path, b"data", options)).await
}

/// Checks that a node is the only child, and deletes it.
async fn assert_only(fixture: &Fixture, client: &Client, path: &str) {
    let children = fixture.children(&fixture.path, 1).await;
    assert_eq!(path, format!("{}/{}", fixture.path, children[0]));
    assert_eq!(client.get_data(path).await.unwrap().data, "data");
    client.delete(path, None).await.unwrap();
}

// Case (Found in docent itself): applications had no create that leaves one node when its reply is
// lost.
async fn a_lost_request_or_reply_leaves_one_node(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let path = parent(&fixture, &client).await;
    for mode in MODES {
        let op = match mode {
            CreateMode::Container => OpCode::CreateContainer,
            _ => OpCode::Create2,
        };
        let faults = [
            vec![Fault::drop_before(op)],
            vec![Fault::drop_reply(op)],
            vec![Fault::drop_before(op), Fault::drop_reply(op).nth(2)],
            vec![Fault::drop_reply(op), Fault::drop_reply(OpCode::GetChildren)],
        ];
        for faults in faults {
            faults.into_iter().for_each(|fault| fixture.tap.inject(fault.of("A")));
            let created = create(&client, &path, protected(mode)).await.unwrap();
            fixture.tap.clear_faults();
            assert_only(&fixture, &client, &created).await;
        }
    }
}

// Case (Found in docent itself): a protected create with parents failed below a parent without READ, which `Client::create`
// takes for one that exists.
async fn a_parent_that_may_not_be_read_is_one_that_exists(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    fixture.create_path(&operator).await;
    fixture.forbid(&operator, &fixture.path, Perms::READ).await;
    let path = format!("{}/parent/item", fixture.path);
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    let created = create(&client, &path, options).await.unwrap();
    assert!(client.exists(&created).await.unwrap().is_some());
    fixture.allow_all(&operator, &fixture.path).await;
    client.delete_recursive(&format!("{}/parent", fixture.path)).await.unwrap();
}

async fn a_missing_parent_is_an_error(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let path = format!("{}/missing/item", fixture.path);
    let error = create(&client, &path, protected(CreateMode::Persistent)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
    assert!(client.exists(&fixture.path).await.unwrap().is_none(), "nothing is created");
    let node = CreateOptions::new(CreateMode::Persistent);
    let no_parents = node.with_parents_mode(CreateMode::Ephemeral);
    let error = create(&client, &path, no_parents).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArguments);
    // The same when the first reply to the create is lost.
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    let created = create(&client, &path, node.with_parents()).await.unwrap();
    let children = fixture.children(&format!("{}/missing", fixture.path), 1).await;
    assert_eq!(created, format!("{}/missing/{}", fixture.path, children[0]));
}

/// A persistent node is kept, an ephemeral one is created again.
async fn a_protected_node_is_found_in_the_next_session(fixture: Fixture) {
    let (client, tap) = fixture.client("A").await;
    let path = parent(&fixture, &client).await;
    for mode in [CreateMode::PersistentSequential, CreateMode::Ephemeral] {
        let (session, before) = (session_id(&client), fixture.tap.len());
        let mut records = fixture.tap.subscribe();
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
        tap.refuse().await.unwrap();
        let creating = tokio::spawn({
            let (client, path) = (client.clone(), path.clone());
            async move { create(&client, &path, protected(mode)).await }
        });
        records.until(DEADLINE, reply("A", OpCode::Create2)).await.unwrap();
        wait_until_given_up(&client, &tap).await;
        let created = within_deadline("create", creating).await.unwrap().unwrap();
        assert_ne!(session_id(&client), session);
        assert_only(&fixture, &client, &created).await;
        let creates = fixture.requests(before, OpCode::Create2);
        assert_eq!(creates, if mode.is_ephemeral() { 2 } else { 1 }, "{mode}");
    }
}

#[tokio::test]
async fn an_invalid_path_is_refused_before_anything_is_sent() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let sent = client.metrics().requests;
    for (mode, paths) in [
        (CreateMode::Persistent, &["", "a", "/", "/a/", "/a//b", "//", "/a/../b"][..]),
        (CreateMode::EphemeralSequential, &["", "a", "/a//", "//"]),
    ] {
        for path in paths {
            let error = create(&client, path, protected(mode)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPath, "{path}");
        }
    }
    assert_eq!(client.metrics().requests, sent);
}

/// At the root, below a chroot, and on a server before 3.5.
#[tokio::test]
async fn a_protected_node_is_found_at_the_top_of_any_server() {
    for version in [server::Version::V3_4, server::Version::V3_8] {
        let fixture = Fixture::of_version(version).await;
        let operator = fixture.observer().await;
        operator.create("/apps", b"", CreateMode::Persistent).await.unwrap();
        let op = match version {
            server::Version::V3_4 => OpCode::Create,
            _ => OpCode::Create2,
        };
        for chroot in ["", "/apps"] {
            let tap = fixture.tap.client("A").await.unwrap();
            let connect = format!("{}{chroot}", tap.connect_string());
            let client = Client::connect(&connect).await.unwrap();
            for path in ["/item", "/"] {
                fixture.tap.inject(Fault::drop_reply(op).of("A"));
                let mode = CreateMode::PersistentSequential;
                let created = create(&client, path, protected(mode)).await.unwrap();
                let top = client.get_children("/").await.unwrap().to_vec();
                let ours: Vec<_> = top.iter().filter(|name| name.starts_with("_c_")).collect();
                assert_eq!(ours, [created.strip_prefix('/').unwrap()]);
                client.delete(&created, None).await.unwrap();
            }
            client.close().await.unwrap();
        }
    }
}
