//! The read/write lock. Source: `TestInterProcessReadWriteLock`.

use super::*;

on_both_servers! {
    a_downgrade_by_another_task_of_the_owner_keeps_the_token
    a_queued_writer_waits_after_a_downgrade
    a_late_downgrade_does_not_pass_the_next_writer
    a_reader_behind_another_writer_waits_although_its_owner_writes
}

/// Another task of the owner acquires the write lock after the reader's call, and before the reader's node is created.
// Case (Found in docent itself): a reader that downgraded because another task of its owner had
// acquired the write lock during its call had the token of its own node: greater than those of the
// waiting writers.
async fn a_downgrade_by_another_task_of_the_owner_keeps_the_token(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let me = Owner::new();
    let namespace = fixture.path.trim_start_matches('/').to_owned();
    let options = options().with_namespace(&namespace);
    let lock = InterProcessReadWriteLock::with_options(&client, "/lock", options).unwrap();
    // The write lock knows from now on that the namespace exists; the read lock has to check it first.
    lock.write_lock().acquire_as(&me).await.unwrap().release().await.unwrap();
    let mut reading = pin!(lock.read_lock().acquire_as(&me));
    poll_once(reading.as_mut());
    let writing = lock.write_lock().acquire_as(&me).await.unwrap();
    let token = writing.fencing_token().await.unwrap();
    let reading = within_deadline("the reader", reading).await.unwrap();
    let number = |path: &str| path.rsplit('_').next().unwrap().to_owned();
    assert_eq!(number(reading.path()), number(writing.path()), "a downgrade");
    assert_eq!(reading.fencing_token().await.unwrap(), token);
    writing.release().await.unwrap();
    assert_eq!(reading.fencing_token().await.unwrap(), token);
    reading.release().await.unwrap();
}

/// testContendingDowngrading, CURATOR-621
// Case (Found in docent itself): a reader that downgraded had a greater fencing token than the
// writers that waited for it: a resource would have refused them.
async fn a_queued_writer_waits_after_a_downgrade(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs) = (pair(&fixture, &a), pair(&fixture, &b));
    let me = Owner::new();
    let writing = ours.write_lock().acquire_as(&me).await.unwrap();
    let waiting = spawn_acquire(theirs.write_lock());
    fixture.children(&fixture.path, 2).await;
    let reading = ours.read_lock().acquire_as(&me).await.unwrap();
    writing.release().await.unwrap();
    // The waiter has listed again, and waits for the reader now.
    let waits = |r: &Record| &*r.client == "B" && r.path() == Some(reading.path());
    fixture.tap.wait_for(DEADLINE, waits).await.unwrap();
    assert!(!waiting.is_finished());
    // The waiter's node is older than the reader's, so the reader's token must not be greater.
    let token = reading.fencing_token().await.unwrap();
    reading.release().await.unwrap();
    let guard = within_deadline("the writer", waiting).await.unwrap().unwrap();
    assert!(guard.fencing_token().await.unwrap() > token);
    guard.release().await.unwrap();
}

/// The read node has the writer's number, so it is ahead of every waiting writer. If it were created after the write
/// node was deleted, it would grant the read lock while the next writer holds the lock.
async fn a_late_downgrade_does_not_pass_the_next_writer(fixture: Fixture) {
    let ((a, tap), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs, me) = (pair(&fixture, &a), pair(&fixture, &b), Owner::new());
    let _writing = ours.write_lock().acquire_as(&me).await.unwrap();
    let next = spawn_acquire(theirs.write_lock());
    fixture.children(&fixture.path, 2).await;
    // The create of the read node is lost, and the session ends before the retry.
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::drop_before(OpCode::Create2).of("A"));
    tap.refuse().await.unwrap();
    let before = fixture.tap.len();
    let reading = tokio::spawn(async move { ours.read_lock().acquire_as(&me).await });
    records.until(DEADLINE, |r| r.is_request(OpCode::Create2)).await.unwrap();
    tap.kill_session(DEADLINE).await.unwrap();
    let writes = within_deadline("the next writer", next).await.unwrap().unwrap();
    tap.accept().await.unwrap();
    // A waits for the writer's node, as every reader does.
    let ahead = writes.path().to_owned();
    let waits = request("A", OpCode::GetData);
    until("A to wait, or to read", async || {
        let waits = fixture.tap.trace().since(before).iter().any(&waits);
        waits || reading.is_finished()
    })
    .await;
    assert!(!reading.is_finished(), "it reads while {ahead} writes");
    writes.release().await.unwrap();
    within_deadline("the reader", reading).await.unwrap().unwrap().release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// An owner can act in two tasks, unlike a thread: its read node was created before it acquired the write lock, and is
/// behind another writer. That writer is next, so the owner must not read meanwhile.
async fn a_reader_behind_another_writer_waits_although_its_owner_writes(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs, me) = (pair(&fixture, &a), pair(&fixture, &b), Owner::new());
    let first = theirs.write_lock().acquire().await.unwrap();
    let writing = tokio::spawn({
        let (ours, me) = (ours.clone(), me.clone());
        async move { ours.write_lock().acquire_as(&me).await }
    });
    fixture.children(&fixture.path, 2).await;
    let next = spawn_acquire(theirs.write_lock());
    fixture.children(&fixture.path, 3).await;
    let reading = tokio::spawn(async move { ours.read_lock().acquire_as(&me).await });
    fixture.children(&fixture.path, 4).await;
    first.release().await.unwrap();
    let writing = within_deadline("the owner writes", writing).await.unwrap().unwrap();
    // The reader was woken by the same event: it waits again, or reads.
    until("four listings", async || {
        let listed = fixture.tap.trace().filter(reply("A", OpCode::GetChildren2));
        listed.iter().count() >= 4
    })
    .await;
    writing.release().await.unwrap();
    let next = within_deadline("the next writer", next).await.unwrap().unwrap();
    assert!(!reading.is_finished(), "it reads while another writes");
    next.release().await.unwrap();
    within_deadline("the reader", reading).await.unwrap().unwrap().release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}
