//! Atomic values and numbers. Tests ported from Curator's `TestDistributedAtomicLong` have the Java name above them.
//! Cn: a defect of Curator in `docs/CURATOR.md`.

mod lost_replies;

use docent::{
    InterProcessMutex,
    atomic::{AtomicNumber, AtomicValue, PromotedToLock},
};

use super::*;

on_both_servers! {
    a_value_that_is_deleted_meanwhile_begins_anew
    a_promotion_that_gets_no_lock_in_time_has_not_succeeded
    a_dropped_promotion_leaves_no_lock_node
}

/// The retries are enough for every fault of these tests.
pub(crate) fn lock_options() -> LockOptions {
    let options = LockOptions::default().with_retry_policy(RetryNTimes::new(10, ms(100)));
    options.with_default_data("10.0.0.1")
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

/// Awaits an increment by A, while another client writes 100 between its first read and its write.
async fn overtaken<T>(fixture: &Fixture, increment: impl Future<Output = T>) -> T {
    overtaken_by(fixture, increment, async |observer| {
        observer.set_data(&fixture.path, &100_i64.to_be_bytes(), None).await.unwrap();
    })
    .await
}

/// Awaits an increment by A, while another client makes a change between its first read and its write.
async fn overtaken_by<T>(
    fixture: &Fixture,
    increment: impl Future<Output = T>,
    change: impl AsyncFnOnce(Client),
) -> T {
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::delay_reply(OpCode::GetData, DEADLINE).of("A"));
    let overtaking = async {
        records.until(DEADLINE, reply("A", OpCode::GetData)).await.unwrap();
        change(fixture.observer().await).await;
        fixture.tap.end_delays();
    };
    tokio::join!(increment, overtaking).0
}

async fn a_value_that_is_deleted_meanwhile_begins_anew(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let counter = DistributedAtomicLong::with_options(&a, &fixture.path, options(3)).unwrap();
    counter.initialize(5).await.unwrap();
    let increment = counter.increment();
    let added = overtaken_by(&fixture, increment, async |observer| {
        observer.delete(&fixture.path, None).await.unwrap();
    });
    assert_eq!(changed(added.await), (0, 1));
}

async fn a_promotion_that_gets_no_lock_in_time_has_not_succeeded(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let lock = format!("{}-lock", fixture.path);
    let guard = InterProcessMutex::new(&observer, &lock).unwrap().acquire().await.unwrap();
    let promotion = PromotedToLock::new(&lock).with_timeout(Duration::from_millis(200));
    let options = options(1).with_promotion(promotion);
    let counter = DistributedAtomicLong::with_options(&a, &fixture.path, options).unwrap();
    counter.initialize(5).await.unwrap();
    assert!(!overtaken(&fixture, counter.increment()).await.unwrap().succeeded());
    assert_eq!(number(&a, &fixture.path).await, 100);
    fixture.children(&lock, 1).await;
    guard.release().await.unwrap();
}

async fn a_dropped_promotion_leaves_no_lock_node(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let lock = format!("{}-lock", fixture.path);
    let guard = InterProcessMutex::new(&observer, &lock).unwrap().acquire().await.unwrap();
    let options = options(1).with_promotion(PromotedToLock::new(&lock));
    let counter = DistributedAtomicLong::with_options(&a, &fixture.path, options).unwrap();
    counter.initialize(5).await.unwrap();
    for polls in 2..12 {
        let attempt = poll_at_most(polls, counter.increment());
        // The promoted attempt waits for the lock until it is dropped.
        let waiting = tokio::time::timeout(Duration::from_secs(2), attempt);
        let attempt = overtaken(&fixture, waiting).await;
        assert!(attempt.ok().flatten().is_none(), "it does not end by itself");
        fixture.children(&lock, 1).await;
    }
    guard.release().await.unwrap();
    fixture.children(&lock, 0).await;
}
