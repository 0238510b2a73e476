//! `create_protected`: a node is created once, whatever is lost. The file `stale.rs` has servers that show an old tree.

use std::time::Duration;

use docent::{
    Client, Config, CreateMode, CreateOptions, Error, ErrorKind, OpCode, acl, create_protected,
    nodes::ProtectedOptions, retry::RetryNTimes,
};
use docent_testing::{
    TestingServer,
    fault::Fault,
    server,
    tap::{Record, What},
};

use crate::{
    Fixture, protected,
    support::{DEADLINE, eventually, has_no_request, within_deadline},
};

on_both_servers! {
    a_protected_node_has_curators_name
    a_lost_request_or_reply_leaves_one_node
    without_retries_a_lost_reply_leaves_no_node
    a_dropped_create_leaves_no_node
    a_missing_parent_is_an_error
    a_protected_node_is_found_in_the_next_session
}

const MODES: [CreateMode; 5] = [
    CreateMode::Persistent,
    CreateMode::PersistentSequential,
    CreateMode::Ephemeral,
    CreateMode::EphemeralSequential,
    CreateMode::Container,
];

/// A create without retries.
fn unrepeated(mode: CreateMode) -> ProtectedOptions<'static> {
    ProtectedOptions::new(mode).with_retry_policy(RetryNTimes::new(0, Duration::ZERO))
}

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

async fn a_protected_node_has_curators_name(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let path = parent(&fixture, &client).await;
    for mode in MODES {
        let created = create_protected(&client, &path, b"data", mode).await.unwrap();
        let name = created.strip_prefix(&format!("{}/", fixture.path)).unwrap();
        let digits = if mode.is_sequential() { 10 } else { 0 };
        assert_eq!(name.len(), "_c_-".len() + 36 + "item".len() + digits, "{name}");
        assert!(name.starts_with("_c_") && name[40..].starts_with("item"), "{name}");
        let stat = client.exists(&created).await.unwrap().unwrap();
        let owner = if mode.is_ephemeral() { client.session().unwrap().session_id() } else { 0 };
        assert!(mode == CreateMode::Container || stat.ephemeral_owner == owner);
        assert_only(&fixture, &client, &created).await;
    }
    // A path that ends with a slash: the name is the GUID and the digits. The ACL is that of the options.
    let options = CreateOptions::new(CreateMode::EphemeralSequential);
    let options = options.with_acl(acl::READ_ACL_UNSAFE);
    let path = format!("{}/", fixture.path);
    let created = create(&client, &path, options).await.unwrap();
    assert_eq!(created.len(), path.len() + 40 + 10);
    let error = client.set_data(&created, b"", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    assert_only(&fixture, &client, &created).await;
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

async fn without_retries_a_lost_reply_leaves_no_node(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let path = parent(&fixture, &client).await;
    // The server is known to have create2: two losses in a row prove nothing.
    let first = create(&client, &path, unrepeated(CreateMode::Persistent)).await.unwrap();
    assert_only(&fixture, &client, &first).await;
    for mode in [CreateMode::PersistentSequential, CreateMode::Ephemeral] {
        for fault in [Fault::drop_reply(OpCode::Create2), Fault::drop_before(OpCode::Create2)] {
            fixture.tap.inject(fault.of("A"));
            // The first search and the first delete of the clean-up are lost too.
            fixture.tap.inject(Fault::drop_reply(OpCode::GetChildren2).of("A"));
            fixture.tap.inject(Fault::drop_before(OpCode::Delete).of("A"));
            let error = create(&client, &path, unrepeated(mode)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
            has_no_request(&client).await;
            fixture.children(&fixture.path, 0).await;
            fixture.tap.clear_faults();
        }
    }
}

async fn a_dropped_create_leaves_no_node(fixture: Fixture) {
    let (client, tap) = fixture.client("A").await;
    let path = parent(&fixture, &client).await;
    for mode in [CreateMode::PersistentSequential, CreateMode::Ephemeral] {
        for is_lost in [false, true] {
            if is_lost {
                fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
            }
            let before = fixture.tap.len();
            tap.stall();
            {
                let mut creating =
                    std::pin::pin!(create_protected(&client, &path, b"", protected(mode)));
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(creating.as_mut().poll(&mut cx).is_pending());
            }
            tap.resume();
            let is_created = |r: &Record| r.is_reply(OpCode::Create2);
            fixture.tap.subscribe_from(before).until(DEADLINE, is_created).await.unwrap();
            fixture.children(&fixture.path, 0).await;
        }
    }
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
    // Also when the first reply of the create is lost.
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
        let session = client.session().unwrap().session_id();
        let before = fixture.tap.len();
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
        tap.refuse().await.unwrap();
        let creating = {
            let (client, path) = (client.clone(), path.clone());
            tokio::spawn(async move { create(&client, &path, protected(mode)).await })
        };
        let is_created = |r: &Record| r.is_reply(OpCode::Create2);
        fixture.tap.subscribe_from(before).until(DEADLINE, is_created).await.unwrap();
        let mut state = client.state();
        let lost = state.wait_for(|state| *state == Some(docent::ConnectionState::Lost));
        within_deadline("the loss", lost).await.unwrap();
        tap.accept().await.unwrap();
        let created = within_deadline("create", creating).await.unwrap().unwrap();
        assert_ne!(client.session().unwrap().session_id(), session);
        assert_only(&fixture, &client, &created).await;
        let sent = fixture.tap.trace().since(before);
        let creates = sent.iter().filter(|r| r.is_request(OpCode::Create2)).count();
        assert_eq!(creates, if mode.is_ephemeral() { 2 } else { 1 }, "{mode}");
    }
}

#[tokio::test]
async fn an_invalid_path_is_refused_before_anything_is_sent() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let sent = client.metrics().requests;
    for path in ["", "a", "/", "/a/", "/a//b", "//", "/a/../b"] {
        let error = create(&client, path, protected(CreateMode::Persistent)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{path}");
    }
    for path in ["", "a", "/a//", "//"] {
        let mode = CreateMode::EphemeralSequential;
        let error = create(&client, path, protected(mode)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{path}");
    }
    assert_eq!(client.metrics().requests, sent);
}

/// At the top, below a chroot, and on a server before 3.5.
#[tokio::test]
async fn a_protected_node_is_found_at_the_top_of_any_server() {
    for version in [server::Version::V3_4, server::Version::V3_8] {
        let config = server::Config { version, ..Default::default() };
        let server = TestingServer::start_with(config).await.unwrap();
        let fixture = Fixture::on(server.connect_string(), None).await;
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

/// The clean-up outlasts an overloaded server, and keeps the client for as long.
#[tokio::test]
async fn the_clean_up_of_a_protected_create_is_repeated() {
    let server = TestingServer::start().await.unwrap();
    let fixture = Fixture::on(server.connect_string(), None).await;
    let tap = fixture.tap.client("A").await.unwrap();
    let config = Config::new(&tap.connect_string()).unwrap();
    let config = config.with_session_timeout(Duration::from_secs(20));
    let client = config.connect().await.unwrap();
    let path = parent(&fixture, &client).await;
    tap.refuse().await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    let mode = CreateMode::Persistent;
    let error = create(&client, &path, unrepeated(mode)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    // Two searches, each with the write before it.
    server.throttle(4);
    drop(client);
    tap.accept().await.unwrap();
    let is_ok = |r: &Record| matches!(r.what, What::Reply { err, .. } if err.is_ok());
    let is_deleted = |r: &Record| r.is_reply(OpCode::Delete) && is_ok(r);
    fixture.tap.wait_for(DEADLINE, is_deleted).await.unwrap();
    let throttled = |r: &Record| matches!(r.what, What::Reply { err, .. } if err == docent_protocol::ErrorCode::ThrottledOp);
    assert_eq!(fixture.tap.trace().iter().filter(|record| throttled(record)).count(), 4);
    fixture.children(&fixture.path, 0).await;
    eventually("the end of the client", async || server.session_ids().is_empty().then_some(()))
        .await;
}
