//! Atomic values and numbers. Tests ported from Curator's `TestDistributedAtomicLong` have the Java name above them.
//! Cn: a defect of Curator in `docs/CURATOR.md`.

mod lost_replies;

use docent::atomic::{AtomicNumber, AtomicValue, PromotedToLock};

use super::*;

on_both_servers! {
    a_promotion_that_gets_no_lock_in_time_has_not_succeeded
    a_dropped_promotion_leaves_no_lock_node
}

/// The retries are enough for every fault of these tests.
pub(crate) fn lock_options() -> LockOptions {
    let policy = RetryNTimes::new(10, Duration::from_millis(100));
    LockOptions::default().with_retry_policy(policy).with_default_data("10.0.0.1")
}

pub(crate) fn options(tries: u32) -> AtomicOptions {
    AtomicOptions::default()
        .with_retry_policy(RetryNTimes::new(tries - 1, Duration::ZERO))
        .with_lock_options(lock_options())
}

/// The values before and after an operation that succeeded.
#[track_caller]
pub(crate) fn changed<N: AtomicNumber>(result: Result<AtomicValue<N>, Error>) -> (N, N) {
    let value = result.unwrap();
    assert!(value.succeeded(), "{value:?}");
    (value.pre_value, value.post_value.unwrap())
}

pub(crate) async fn number(observer: &Client, path: &str) -> i64 {
    let node = observer.get_data(path).await.unwrap();
    i64::from_be_bytes(node.data[..].try_into().unwrap())
}

/// Delays the reply to A's next read. Returns the length of the tap's trace, for [`overtake`].
fn hold_back_the_next_read(fixture: &Fixture) -> u64 {
    fixture.tap.inject(Fault::delay_reply(OpCode::GetData, DEADLINE).of("A"));
    fixture.tap.len()
}

/// Makes a change while the reply to A's read is delayed, then delivers it.
async fn overtake(fixture: &Fixture, since: u64, change: impl AsyncFnOnce(&Client)) {
    let observer = fixture.observer().await;
    eventually("the read", async || {
        let trace = fixture.tap.trace().since(since);
        trace.iter().any(|r| &*r.client == "A" && r.is_reply(OpCode::GetData)).then_some(())
    })
    .await;
    change(&observer).await;
    fixture.tap.end_delays();
}

/// Increments, while another client writes 100 between the read and the write.
async fn overtaken(
    fixture: &Fixture,
    counter: &DistributedAtomicLong,
) -> Result<AtomicValue<i64>, Error> {
    let since = hold_back_the_next_read(fixture);
    let path = fixture.path.clone();
    let overtaking = overtake(fixture, since, async |observer| write(observer, &path, 100).await);
    tokio::join!(counter.increment(), overtaking).0
}

async fn write(client: &Client, path: &str, number: i64) {
    client.set_data(path, &number.to_be_bytes(), None).await.unwrap();
}

async fn a_promotion_that_gets_no_lock_in_time_has_not_succeeded(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let lock = format!("{}-lock", fixture.path);
    let mutex = docent::InterProcessMutex::new(&observer, &lock).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let promotion = PromotedToLock::new(&lock).with_timeout(Duration::from_millis(200));
    let options = options(1).with_promotion(promotion);
    let counter = DistributedAtomicLong::with_options(&a, &fixture.path, options).unwrap();
    counter.initialize(5).await.unwrap();
    assert!(!overtaken(&fixture, &counter).await.unwrap().succeeded());
    assert_eq!(number(&a, &fixture.path).await, 100);
    fixture.children(&lock, 1).await;
    guard.release().await.unwrap();
}

async fn a_dropped_promotion_leaves_no_lock_node(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let lock = format!("{}-lock", fixture.path);
    let guard = docent::InterProcessMutex::new(&observer, &lock).unwrap().acquire().await.unwrap();
    let options = options(1).with_promotion(PromotedToLock::new(&lock));
    let counter = DistributedAtomicLong::with_options(&a, &fixture.path, options).unwrap();
    counter.initialize(5).await.unwrap();
    for polls in 2..12 {
        let since = hold_back_the_next_read(&fixture);
        let path = fixture.path.clone();
        let change = async |observer: &Client| write(observer, &path, 100).await;
        let attempt = poll_at_most(polls, counter.increment());
        // The promoted attempt waits for the lock until it is dropped.
        let waiting = tokio::time::timeout(Duration::from_secs(2), attempt);
        let (attempt, ()) = tokio::join!(waiting, overtake(&fixture, since, change));
        assert!(attempt.ok().flatten().is_none(), "it does not end by itself");
        fixture.children(&lock, 1).await;
    }
    guard.release().await.unwrap();
    fixture.children(&lock, 0).await;
}
