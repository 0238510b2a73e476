//! Invalid input: the caller receives one error that names it, and no request is repeated in a loop.

use docent::acl::{self, AclProvider};
use docent_testing::server;
use std::ops::ControlFlow;

use super::*;

on_both_servers! {
    invalid_paths_are_named_in_the_error
    a_time_to_live_out_of_range_is_named
    data_that_is_too_large_is_refused_once
    line_breaks_are_kept_in_ids_and_refused_in_names
    an_election_that_cannot_be_listed_is_left
    a_node_that_cannot_be_read_ends_the_participation
    a_waiter_whose_predecessor_cannot_be_read_reports_it
    a_node_that_cannot_be_deleted_is_reported_by_the_close
    a_failed_participation_is_closed_with_the_error_of_its_delete
    data_that_cannot_be_written_is_reported
    a_member_that_cannot_be_read_is_named
    a_touch_that_is_refused_is_reported_once
    a_missing_chroot_ends_each_participation
}

fn node_options() -> NodeOptions {
    NodeOptions::default().with_lock_options(lock_options())
}

async fn refusal<T: std::fmt::Debug>(wait: impl Future<Output = Result<T, Error>>) -> Error {
    within_deadline("the error", wait).await.unwrap_err()
}

#[track_caller]
fn assert_names(error: &Error, kind: ErrorKind, name: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(name), "{name:?} in {error}");
}

// Case (Leader election and kept nodes): invalid paths.
async fn invalid_paths_are_named_in_the_error(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let before = fixture.tap.len();
    for path in ["/", "no/slash", "/a//b", "/a/", "/a/../b", "/two\nlines", ""] {
        let errors = [
            LeaderLatch::start(&a, path, "id").unwrap_err(),
            LeaderSelector::new(&a, path, "id").unwrap_err(),
            PersistentNode::start(&a, path, CreateMode::Ephemeral, "").unwrap_err(),
            PersistentTtlNode::start(&a, path, ms(1000), "").unwrap_err(),
            GroupMember::join(&a, path, "id", "").unwrap_err(),
        ];
        for error in errors {
            assert_names(&error, ErrorKind::InvalidPath, &format!("{path:?}"));
        }
    }
    assert_eq!(fixture.sent("A", before), []);
}

async fn a_time_to_live_out_of_range_is_named(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    for ttl in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(1 << 40)] {
        let error = PersistentTtlNode::start(&a, &fixture.path, ttl, "").unwrap_err();
        assert_names(&error, ErrorKind::BadArguments, &format!("{ttl:?}"));
    }
}

async fn data_that_is_too_large_is_refused_once(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let before = fixture.tap.len();
    let huge = "x".repeat(2 << 20);
    let latch = LeaderLatch::start(&a, &fixture.path, &huge).unwrap();
    let error = refusal(latch.leadership()).await;
    assert_names(&error, ErrorKind::RequestTooLarge, &fixture.path);
    let mut changes = latch.changes();
    let change = within_deadline("the failure", changes.next()).await;
    assert!(matches!(change, Some(LeadershipChange::Failed(_))), "{change:?}");
    assert!(within_deadline("the end", changes.next()).await.is_none());

    let selector = LeaderSelector::new(&a, &fixture.path, &huge).unwrap();
    let error = refusal(selector.run_requeued(async |_| ControlFlow::<()>::Continue(()))).await;
    assert_names(&error, ErrorKind::RequestTooLarge, &fixture.path);
    let member = GroupMember::join(&a, &fixture.path, &huge, "").unwrap();
    assert_eq!(refusal(member.joined()).await.kind(), ErrorKind::RequestTooLarge);

    let path = format!("{}/n", fixture.path);
    let node = PersistentNode::start(&a, &path, CreateMode::Ephemeral, huge).unwrap();
    assert_names(&refusal(node.created()).await, ErrorKind::RequestTooLarge, &path);
    assert_eq!(fixture.sent("A", before), []);
    // The create is tried again with other data.
    node.set_data("small");
    within_deadline("the node", node.created()).await.unwrap();
}

async fn line_breaks_are_kept_in_ids_and_refused_in_names(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let id = "two\nlines\r\0\u{7}";
    let selector = LeaderSelector::new(&a, &fixture.path, id).unwrap();
    let leads = selector.run(async |_| selector.leader().await.unwrap().unwrap().id);
    let term = within_deadline("the term", leads).await.unwrap();
    assert_eq!(term, docent::leader::Term::Completed(id.to_owned()));
    for id in ["two\nlines", "a/b", "..", ""] {
        let error = GroupMember::join(&a, &fixture.path, id, "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

/// Creates the path with these permissions for everybody.
async fn path_with(fixture: &Fixture, client: &Client, perms: Perms) {
    let acl = [Acl::new(perms, "world", "anyone")];
    let options = CreateOptions::new(CreateMode::Persistent).with_acl(&acl).with_parents();
    client.create(&fixture.path, b"", options).await.unwrap();
}

// Case (Leader election and kept nodes): an election whose nodes may not be listed.
async fn an_election_that_cannot_be_listed_is_left(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    path_with(&fixture, &a, Perms::CREATE | Perms::DELETE | Perms::ADMIN).await;
    let before = fixture.tap.len();
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options()).unwrap();
    assert_names(&refusal(latch.leadership()).await, ErrorKind::NoAuth, &fixture.path);
    let sent = fixture.sent("A", before);
    assert_eq!(sent, [OpCode::Create2, OpCode::GetChildren2, OpCode::Delete]);
    assert_names(&refusal(latch.participants()).await, ErrorKind::NoAuth, &fixture.path);
    let selector = LeaderSelector::with_options(&a, &fixture.path, "a", options()).unwrap();
    let error = refusal(selector.run(async |_| ())).await;
    assert_names(&error, ErrorKind::NoAuth, &fixture.path);
    a.set_acl(&fixture.path, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// Nodes that everybody may delete, and that nobody may read or write.
#[derive(Debug)]
struct Unreadable;

impl AclProvider for Unreadable {
    fn acl_for_path(&self, _path: &str) -> Option<&[Acl<'_>]> {
        const DELETE: &[Acl<'_>] = &[Acl::new(Perms::DELETE, "world", "anyone")];
        Some(DELETE)
    }
}

fn unreadable() -> LockOptions {
    lock_options().with_acl_provider(Unreadable)
}

async fn a_node_that_cannot_be_read_ends_the_participation(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let before = fixture.tap.len();
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", unreadable()).unwrap();
    assert_names(&refusal(latch.leadership()).await, ErrorKind::NoAuth, "-latch-0000000000");
    let sent = fixture.sent("A", before);
    let claimed = [OpCode::Create2, OpCode::GetChildren2, OpCode::GetData, OpCode::Delete];
    assert_eq!(sent, claimed);
    fixture.children(&fixture.path, 0).await;
}

/// Curator's waiter ignores the error, and waits without a watch.
async fn a_waiter_whose_predecessor_cannot_be_read_reports_it(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let ahead = format!("{}/_c_00000000-0000-0000-0000-000000000000-latch-", fixture.path);
    let unreadable = [Acl::new(Perms::DELETE, "world", "anyone")];
    let mode = CreateMode::EphemeralSequential;
    let ahead =
        a.create(&ahead, b"", CreateOptions::new(mode).with_acl(&unreadable)).await.unwrap();
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options()).unwrap();
    assert_names(&refusal(latch.leadership()).await, ErrorKind::NoAuth, &ahead);
    fixture.children(&fixture.path, 1).await;
}

// Case (Found in docent itself): a kept node or instance whose delete the ACL did not allow stayed until its session ended,
// although the close says that the background repeats the delete.
async fn a_node_that_cannot_be_deleted_is_reported_by_the_close(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    path_with(&fixture, &a, Perms::CREATE | Perms::READ | Perms::ADMIN).await;
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options()).unwrap();
    let leadership = leads(&latch).await;
    let error = refusal(latch.close()).await;
    assert_names(&error, ErrorKind::NoAuth, leadership.path());
    assert!(!leadership.is_held());
    let path = format!("{}/n", fixture.path);
    let node = PersistentNode::start_with(&a, &path, CreateMode::Ephemeral, "", node_options());
    let node = node.unwrap();
    within_deadline("the node", node.created()).await.unwrap();
    assert_names(&refusal(node.close()).await, ErrorKind::NoAuth, &path);
    a.set_acl(&fixture.path, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// Before 3.5, the reply to a create does not say which node it is.
// Case (Found in docent itself): a kept node that was closed before it was looked at, on a server before 3.5, and whose delete
// the ACL did not allow, stayed until its session ended (1 of 25,000 simulated seeds).
#[tokio::test]
async fn a_node_without_a_look_that_cannot_be_deleted_is_deleted_later() {
    let fixture = Fixture::of_version(server::Version::V3_4).await;
    let (a, _tap) = fixture.client("A").await;
    path_with(&fixture, &a, Perms::CREATE | Perms::READ | Perms::ADMIN).await;
    let path = format!("{}/n", fixture.path);
    fixture.tap.inject(Fault::delay_reply(OpCode::Exists, DEADLINE).of("A"));
    let mut records = fixture.tap.subscribe();
    let node = PersistentNode::start_with(&a, &path, CreateMode::Ephemeral, "", node_options());
    let node = node.unwrap();
    within_deadline("the node", node.created()).await.unwrap();
    records.until(DEADLINE, request("A", OpCode::Exists)).await.unwrap();
    let before = fixture.tap.len();
    let closing = node.close();
    until("a request of the close", async || !fixture.sent("A", before).is_empty()).await;
    fixture.tap.end_delays();
    assert_names(&refusal(closing).await, ErrorKind::NoAuth, &path);
    fixture.allow_all(&a, &fixture.path).await;
    fixture.children(&fixture.path, 0).await;
}

// Case (Found in docent itself): the close of a failed participation said that its node was deleted, which the ACL had not
// allowed.
async fn a_failed_participation_is_closed_with_the_error_of_its_delete(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    path_with(&fixture, &a, Perms::CREATE | Perms::ADMIN).await;
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options()).unwrap();
    assert_names(&refusal(latch.leadership()).await, ErrorKind::NoAuth, &fixture.path);
    assert_names(&refusal(latch.close()).await, ErrorKind::NoAuth, "-latch-0000000000");
    a.set_acl(&fixture.path, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

// Case (Found in docent itself): a kept node that may not be looked at reported its error for the
// data of before, and `written` waited for ever.
async fn data_that_cannot_be_written_is_reported(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let path = format!("{}/n", fixture.path);
    let options = NodeOptions::default().with_lock_options(unreadable());
    // 3.9 requires READ for exists: there, the node is reported as one that cannot be watched.
    let node = PersistentNode::start_with(&a, &path, CreateMode::Ephemeral, "v1", options).unwrap();
    within_deadline("the node", node.created()).await.unwrap();
    let mut events = node.events();
    node.set_data("v2");
    assert_names(&refusal(node.written()).await, ErrorKind::NoAuth, &path);
    let failed = async {
        loop {
            if let Some(NodeEvent::Failed(error)) = events.next().await {
                return error;
            }
        }
    };
    assert_names(&within_deadline("the event", failed).await, ErrorKind::NoAuth, &path);
    node.close().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

async fn a_member_that_cannot_be_read_is_named(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let member = GroupMember::join(&a, &fixture.path, "a", "").unwrap();
    within_deadline("the join", member.joined()).await.unwrap();
    let other = format!("{}/b", fixture.path);
    let acl = [Acl::new(Perms::DELETE, "world", "anyone")];
    a.create(&other, b"", CreateOptions::new(CreateMode::Ephemeral).with_acl(&acl)).await.unwrap();
    assert_names(&refusal(member.current_members()).await, ErrorKind::NoAuth, &other);
}

/// Curator ignores it: the server removes the node after its time to live.
async fn a_touch_that_is_refused_is_reported_once(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let path = format!("{}/n", fixture.path);
    // No child may be created.
    let perms = Perms::READ | Perms::WRITE | Perms::DELETE;
    let acl = [Acl::new(perms, "world", "anyone")];
    a.create(&path, b"", CreateOptions::new(CreateMode::Persistent).with_acl(&acl)).await.unwrap();
    let node = PersistentTtlNode::start_with(&a, &path, ms(100), "", node_options()).unwrap();
    let mut events = node.events();
    let event = within_deadline("the event", events.next()).await;
    let Some(NodeEvent::Failed(error)) = event else { panic!("{event:?}") };
    assert_names(&error, ErrorKind::NoAuth, &format!("{path}/touch"));
    // Several more touches, and no more reports.
    let touches = || fixture.requests(0, OpCode::CreateTtl);
    let now = touches();
    until("more attempts", async || touches() > now + 2).await;
    node.close().await.unwrap();
    assert!(within_deadline("the end", events.next()).await.is_none());
}

// Case (Leader election and kept nodes): servers without nodes with a time to live.
#[tokio::test]
async fn a_server_without_times_to_live_is_reported_once() {
    for config in [
        server::Config { extended_types_enabled: false, ..Default::default() },
        server::Config { version: server::Version::V3_4, ..Default::default() },
    ] {
        let fixture = Fixture::with(config).await;
        let (a, _tap) = fixture.client("A").await;
        fixture.create_path(&a).await;
        let path = format!("{}/n", fixture.path);
        let node = PersistentTtlNode::start(&a, &path, ms(100), "").unwrap();
        assert_names(&refusal(node.created()).await, ErrorKind::Unimplemented, &path);
        assert_eq!(fixture.requests(0, OpCode::CreateTtl), 1);
    }
}

/// A server without containers: the parents are persistent nodes.
#[tokio::test]
async fn leaders_and_kept_nodes_need_no_containers() {
    let fixture = Fixture::of_version(server::Version::V3_4).await;
    let (a, _tap) = fixture.client("A").await;
    let latch = LeaderLatch::start(&a, &format!("{}/latch", fixture.path), "a").unwrap();
    let leadership = leads(&latch).await;
    assert!(leadership.fencing_token().await.unwrap() > 0);
    latch.close().await.unwrap();
    let selector = LeaderSelector::new(&a, &format!("{}/selector", fixture.path), "a").unwrap();
    within_deadline("the term", selector.run(async |_| ())).await.unwrap();
    let group = format!("{}/group", fixture.path);
    let member = GroupMember::join(&a, &group, "a", "x").unwrap();
    within_deadline("the join", member.joined()).await.unwrap();
    assert_eq!(member.current_members().await.unwrap().len(), 1);
    member.leave().await.unwrap();
    let path = format!("{}/container", fixture.path);
    let node = PersistentNode::start(&a, &path, CreateMode::Container, "").unwrap();
    within_deadline("the node", node.created()).await.unwrap();
    node.close().await.unwrap();
    assert!(a.exists(&path).await.unwrap().is_none());
}

/// No retry creates a chroot: if a missing chroot counted as a deleted parent, the retries would never end.
// Case (Found in docent itself): recipes took a chroot that does not exist for a parent that was
// deleted: an election, a kept node and `run` of a selector retried without end, a double barrier
// without a pause.
async fn a_missing_chroot_ends_each_participation(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let client = a.with_chroot(&fixture.path).unwrap();
    let latch = LeaderLatch::start(&client, "/latch", "id").unwrap();
    let selector = LeaderSelector::new(&client, "/selector", "id").unwrap();
    let lead = selector.run(async |_| ControlFlow::<()>::Break(()));
    let node = PersistentNode::start(&client, "/node", CreateMode::Ephemeral, "").unwrap();
    let member = GroupMember::join(&client, "/group", "id", "").unwrap();
    for error in [
        refusal(latch.leadership()).await,
        refusal(lead).await,
        refusal(node.created()).await,
        refusal(member.joined()).await,
    ] {
        assert_names(&error, ErrorKind::NoNode, &fixture.path);
        assert!(error.is_missing_chroot(), "{error}");
    }
}
