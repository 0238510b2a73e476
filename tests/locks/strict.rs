//! The strict mutex on both servers: contention, killed sessions, and lost replies of each of its steps.

use docent::StrictMutex;

use super::*;

on_both_servers! {
    strict_holders_follow_each_other_with_growing_tokens
    a_lost_reply_of_a_strict_lock_costs_no_wait
    a_cancelled_strict_acquire_leaves_no_node_and_no_wait
    a_guarded_write_of_a_lost_strict_hold_is_refused
}

fn mutex(fixture: &Fixture, client: &Client) -> StrictMutex {
    StrictMutex::with_options(client, &fixture.path, options()).unwrap()
}

async fn record(fixture: &Fixture, client: &Client) -> String {
    let data = client.get_data(&fixture.path).await.unwrap().data;
    String::from_utf8(data.to_vec()).unwrap()
}

async fn acquire(mutex: &StrictMutex) -> LockGuard {
    within_deadline("acquire", mutex.acquire()).await.unwrap()
}

async fn strict_holders_follow_each_other_with_growing_tokens(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let (b, _b) = fixture.client("B").await;
    let (holders, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Mutex::new(0)));
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let mutex = mutex(&fixture, if number % 2 == 0 { &a } else { &b });
            let (holders, last) = (Arc::clone(&holders), Arc::clone(&last));
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = acquire(&mutex).await;
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    let token = guard.fencing_token().await.unwrap();
                    let before = std::mem::replace(&mut *last.lock().await, token);
                    assert!(token > before, "{token} after {before}");
                    holders.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    let start = Instant::now();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(start.elapsed() < DEADLINE, "forty holds without a wait for a claim");
    fixture.children(&fixture.path, 0).await;
    assert!(record(&fixture, &a).await.contains(" free "));
}

/// For each request in turn, the reply is lost, and then the request itself.
// Case (Strict mutexes): a holder acquired its node and lost the reply to the grant, or the
// request; so with each step.
async fn a_lost_reply_of_a_strict_lock_costs_no_wait(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let (b, _b) = fixture.client("B").await;
    let (mutex, other) = (mutex(&fixture, &a), mutex(&fixture, &b));
    acquire(&mutex).await.release().await.unwrap();
    let steps = [OpCode::Create2, OpCode::GetChildren2, OpCode::GetData, OpCode::Multi];
    for (step, nth) in steps.map(|step| (step, 1)).into_iter().chain([(OpCode::Multi, 2)]) {
        for fault in [Fault::drop_reply(step), Fault::drop_before(step)] {
            fixture.tap.inject(fault.nth(nth).of("A"));
            let guard = acquire(&mutex).await;
            assert!(guard.is_held(), "{step:?}");
            let token = guard.fencing_token().await.unwrap();
            assert!(record(&fixture, &b).await.contains(&format!(" held token={token} ")));
            let released = within_deadline("release", guard.release()).await;
            released.unwrap_or_else(|error| panic!("{step:?}: {error}"));
            fixture.tap.clear_faults();
            let start = Instant::now();
            let free = eventually("free", async || {
                record(&fixture, &b).await.contains(" free ").then(Instant::now)
            });
            assert!(free.await - start < ms(5_000), "{step:?}");
            acquire(&other).await.release().await.unwrap();
            fixture.children(&fixture.path, 0).await;
        }
    }
}

// Case (Strict mutexes): an acquire that is dropped in any step.
async fn a_cancelled_strict_acquire_leaves_no_node_and_no_wait(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let (b, _b) = fixture.client("B").await;
    let (mutex, other) = (mutex(&fixture, &a), mutex(&fixture, &b));
    acquire(&mutex).await.release().await.unwrap();
    let steps = [OpCode::Create2, OpCode::GetChildren2, OpCode::GetData, OpCode::Multi];
    for step in steps {
        // The request takes effect, but its caller is dropped before the reply.
        fixture.tap.inject(Fault::delay_reply(step, ms(300)).of("A"));
        let mut records = fixture.tap.subscribe();
        let acquiring = spawn_acquire(&mutex);
        records.until(DEADLINE, request("A", step)).await.unwrap();
        acquiring.abort();
        let _ = acquiring.await;
        fixture.children(&fixture.path, 0).await;
        fixture.tap.clear_faults();
        let start = Instant::now();
        acquire(&other).await.release().await.unwrap();
        assert!(start.elapsed() < ms(5_000), "{step:?}: {:?}", start.elapsed());
    }
}

// Case (Strict mutexes): a late guarded write.
async fn a_guarded_write_of_a_lost_strict_hold_is_refused(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let (b, _b) = fixture.client("B").await;
    let guard = acquire(&mutex(&fixture, &a)).await;
    let register = format!("{}-register", fixture.path);
    b.create(&register, b"", CreateMode::Persistent).await.unwrap();
    guard.guarded().unwrap().set_data(&register, b"1", None).commit().await.unwrap();
    b.delete(guard.path(), None).await.unwrap();
    if let Ok(mut late) = guard.guarded() {
        let error = late.set_data(&register, b"2", None).commit().await.unwrap_err();
        assert_eq!((error.kind(), error.index()), (ErrorKind::NoNode, Some(0)));
    }
    assert_eq!(b.get_data(&register).await.unwrap().data, &b"1"[..]);
    within_deadline("found by the renewal", guard.lost()).await;
    guard.release().await.unwrap();
    b.delete(&register, None).await.unwrap();
}

/// A program that repeatedly tries the lock with short timeouts waits no longer in total than a single call would.
// Case (Found in docent itself): calls with a shorter timeout than the session's never acquired a
// strict lock whose holder was lost: each began to wait anew.
#[tokio::test]
async fn the_claim_of_a_lost_holder_ends_for_calls_with_short_timeouts() {
    let server = TestingServer::start().await.unwrap();
    let connect = async || {
        let config = Config::new(&server.connect_string()).unwrap();
        config.with_session_timeout(ms(4_000)).connect().await.unwrap()
    };
    let (a, b) = (connect().await, connect().await);
    let guard = StrictMutex::new(&a, "/lock").unwrap().acquire().await.unwrap();
    assert!(server.expire_session(session_id(&a)));
    let (lost, rival) = (Instant::now(), StrictMutex::new(&b, "/lock").unwrap());
    let next = loop {
        if let Some(next) = rival.acquire_timeout(ms(1_000)).await.unwrap() {
            break next;
        }
        assert!(lost.elapsed() < ms(12_000), "three claims are over");
    };
    assert!(lost.elapsed() > ms(4_000), "{:?}", lost.elapsed());
    assert!(!guard.is_held());
    next.release().await.unwrap();
}

/// The wait ends with the waiting client, before the claim ends.
// Case (Found in docent itself): a wait for a lost strict holder, and the pauses before a node is
// created again, did not end with the client.
#[tokio::test]
async fn a_closed_client_ends_the_wait_for_a_lost_holder() {
    let server = TestingServer::start().await.unwrap();
    let a = Client::connect(&server.connect_string()).await.unwrap();
    let b = Client::connect(&server.connect_string()).await.unwrap();
    let guard = StrictMutex::new(&a, "/lock").unwrap().acquire().await.unwrap();
    assert!(server.expire_session(session_id(&a)));
    guard.lost().await;
    let rival = StrictMutex::new(&b, "/lock").unwrap();
    let waiting = tokio::spawn(async move { rival.acquire().await.unwrap_err().kind() });
    tokio::time::sleep(ms(300)).await;
    b.close().await.unwrap();
    let ended = tokio::time::timeout(ms(2_000), waiting).await;
    assert_eq!(ended.expect("within the claim").unwrap(), ErrorKind::Closed);
}
