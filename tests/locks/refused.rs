//! Refusals that no retry changes: an ACL forbids a step, or a parent is missing.

use docent::retry::RetryForever;

use super::*;

on_both_servers! {
    a_waiter_that_may_not_delete_its_node_fails
    a_search_that_may_not_list_fails_without_another_create
    a_missing_chroot_is_named
}

/// The waiter's node is still in the queue, so the error must be more than a timeout.
async fn a_waiter_that_may_not_delete_its_node_fails(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    fixture.create_path(&operator).await;
    let mutex = mutex(&fixture, &client);
    let holder = mutex.acquire().await.unwrap();
    fixture.forbid(&operator, &fixture.path, Perms::DELETE).await;
    let error = mutex.acquire_timeout(ms(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth, "{error}");
    fixture.children(&fixture.path, 2).await;
    // The background task repeats the delete.
    fixture.allow_all(&operator, &fixture.path).await;
    fixture.children(&fixture.path, 1).await;
    holder.release().await.unwrap();
}

async fn a_search_that_may_not_list_fails_without_another_create(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    fixture.create_path(&operator).await;
    fixture.forbid(&operator, &fixture.path, Perms::READ).await;
    let before = fixture.tap.len();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    let path = format!("{}/item-", fixture.path);
    let options = protected(CreateMode::PersistentSequential);
    let created = create_protected(&client, &path, b"", options);
    let error = within_deadline("create", created).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth, "{error}");
    assert_eq!(fixture.requests(before, OpCode::Create2), 1);
    // The background task finds the node.
    fixture.allow_all(&operator, &fixture.path).await;
    fixture.children(&fixture.path, 0).await;
}

async fn a_missing_chroot_is_named(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let client = client.with_chroot(&fixture.path).unwrap();
    // A policy that would repeat the acquire for ever.
    let options =
        || LockOptions::default().with_retry_policy(RetryForever { retry_interval: ms(100) });
    let mutex = InterProcessMutex::with_options(&client, "/mutex", options()).unwrap();
    let leases = InterProcessSemaphoreV2::with_options(&client, "/leases", 2, options()).unwrap();
    for error in [
        within_deadline("the error", mutex.acquire()).await.unwrap_err(),
        within_deadline("the error", leases.acquire()).await.unwrap_err(),
    ] {
        assert!(error.is_missing_chroot(), "{error}");
        assert!(error.to_string().contains(&fixture.path), "{error}");
    }
}
