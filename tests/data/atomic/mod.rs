//! Atomic values and numbers. Tests ported from Curator's `TestDistributedAtomicLong` have the Java name above them. Cn:
//! the defects of Curator in `docs/CURATOR.md`.

mod lost_replies;

use std::time::Duration;

use docent::{
    AtomicNumber, AtomicOptions, AtomicValue, Client, DistributedAtomicInteger,
    DistributedAtomicLong, DistributedAtomicValue, Error, ErrorKind, LockOptions, OpCode, Outcome,
    PromotedToLock, retry::RetryNTimes,
};
use docent_testing::fault::Fault;

use crate::{
    polled,
    support::{DEADLINE, eventually, fixture::Fixture, within_deadline},
};

on_both_servers! {
    the_first_change_creates_the_node_with_curators_bytes
    numbers_are_added_subtracted_and_compared
    overflow_wraps
    a_corrupted_number_is_an_error_and_stays
    a_value_is_initialized_compared_and_forced
    a_writer_that_was_overtaken_reads_again
    without_attempts_left_nothing_is_written
    a_promoted_writer_holds_the_lock_and_releases_it
    a_promotion_that_gets_no_lock_in_time_has_not_succeeded
    writers_that_race_count_each_increment_once
    a_dropped_promotion_leaves_no_lock_node
}

/// Enough retries for every fault of these tests.
pub(crate) fn lock_options() -> LockOptions {
    let policy = RetryNTimes::new(10, Duration::from_millis(100));
    LockOptions::default().with_retry_policy(policy).with_default_data("10.0.0.1")
}

pub(crate) fn options(tries: u32) -> AtomicOptions {
    AtomicOptions::default()
        .with_retry_policy(RetryNTimes::new(tries - 1, Duration::ZERO))
        .with_lock_options(lock_options())
}

pub(crate) fn long(client: &Client, path: &str) -> DistributedAtomicLong {
    DistributedAtomicLong::with_options(client, path, options(4)).unwrap()
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

/// `TestDistributedAtomicLong.testBasic`.
async fn the_first_change_creates_the_node_with_curators_bytes(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let counter = long(&a, &fixture.path);
    let read = counter.get().await.unwrap();
    assert_eq!((read.pre_value, read.post_value, read.succeeded()), (0, Some(0), true));
    let first = counter.increment().await.unwrap();
    assert_eq!((first.stats.optimistic_tries, first.stats.promoted_lock_tries), (1, 0));
    assert_eq!(changed(Ok(first)), (0, 1));
    let node = a.get_data(&fixture.path).await.unwrap();
    assert_eq!(*node.data, [0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(node.stat.ephemeral_owner, 0);
    a.delete(&fixture.path, None).await.unwrap();
    let int = DistributedAtomicInteger::with_options(&a, &fixture.path, options(4)).unwrap();
    assert_eq!(changed(int.decrement().await), (0, -1));
    assert_eq!(*a.get_data(&fixture.path).await.unwrap().data, [255; 4]);
    a.close().await.unwrap();
}

/// `testBasic`, `testCompareAndSet`, `testCompareAndSetWithFreshInstance`.
async fn numbers_are_added_subtracted_and_compared(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let counter = long(&a, &fixture.path);
    let fresh = counter.compare_and_set(0, 1).await.unwrap();
    assert!(!fresh.succeeded(), "a missing node is no value");
    assert!(a.exists(&fixture.path).await.unwrap().is_none());
    assert!(counter.initialize(0).await.unwrap());
    assert_eq!(changed(counter.compare_and_set(0, 1).await), (0, 1));
    assert_eq!(changed(counter.add(41).await), (1, 42));
    assert_eq!(changed(counter.subtract(100).await), (42, -58));
    assert_eq!(changed(counter.increment().await), (-58, -57));
    assert_eq!(changed(counter.decrement().await), (-57, -58));
    assert_eq!(changed(counter.try_set(9).await), (-58, 9));
    let wrong = counter.compare_and_set(1, 2).await.unwrap();
    assert_eq!((wrong.pre_value, wrong.post_value), (9, None));
    counter.force_set(7).await.unwrap();
    assert_eq!(counter.get().await.unwrap().pre_value, 7);
    a.close().await.unwrap();
}

async fn overflow_wraps(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let counter = long(&a, &fixture.path);
    counter.force_set(i64::MAX).await.unwrap();
    assert_eq!(changed(counter.increment().await), (i64::MAX, i64::MIN));
    assert_eq!(changed(counter.decrement().await), (i64::MIN, i64::MAX));
    a.close().await.unwrap();
}

/// `testCorruptedValue`. Longer data are an error too: Curator reads the first bytes and overwrites the others.
async fn a_corrupted_number_is_an_error_and_stays(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let counter = long(&a, &fixture.path);
    assert_eq!(changed(counter.get().await), (0, 0), "a node without data is 0");
    for data in [&b"foo"[..], b"nine byte"] {
        a.set_data(&fixture.path, data, None).await.unwrap();
        for result in [counter.get().await, counter.increment().await] {
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::BadReply, Outcome::NotApplied));
        }
        assert_eq!(*a.get_data(&fixture.path).await.unwrap().data, *data);
    }
    a.close().await.unwrap();
}

/// `testForceSet`.
async fn a_value_is_initialized_compared_and_forced(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let value = DistributedAtomicValue::with_options(&a, &fixture.path, options(4)).unwrap();
    assert_eq!(value.get().await.unwrap().pre_value, None);
    assert!(!value.compare_and_set("", "x").await.unwrap().succeeded());
    assert!(value.initialize("one").await.unwrap());
    assert!(!value.initialize("two").await.unwrap());
    let swapped = value.compare_and_set("one", "").await.unwrap();
    assert_eq!(swapped.pre_value.as_deref(), Some(&b"one"[..]));
    assert_eq!(swapped.post_value.unwrap().as_deref(), Some(&b""[..]));
    assert!(value.compare_and_set("", "three").await.unwrap().succeeded());
    let set = value.try_set("four").await.unwrap();
    assert_eq!(set.pre_value.as_deref(), Some(&b"three"[..]));
    a.delete(&fixture.path, None).await.unwrap();
    value.force_set("five").await.unwrap();
    assert_eq!(&*a.get_data(&fixture.path).await.unwrap().data, b"five");
    a.close().await.unwrap();
}

/// Holds the next read of A back. Returns the time of the tap for [`overtake`].
fn hold_back_the_next_read(fixture: &Fixture) -> u64 {
    fixture.tap.inject(Fault::delay_reply(OpCode::GetData, DEADLINE).of("A"));
    fixture.tap.len()
}

/// Makes a change while the read of A is held back.
async fn overtake(fixture: &Fixture, since: u64, change: impl AsyncFnOnce(&Client)) {
    let observer = fixture.observer().await;
    eventually("the read", async || {
        let trace = fixture.tap.trace().since(since);
        trace.iter().any(|r| &*r.client == "A" && r.is_reply(OpCode::GetData)).then_some(())
    })
    .await;
    change(&observer).await;
    fixture.tap.end_delays();
    observer.close().await.unwrap();
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

async fn a_writer_that_was_overtaken_reads_again(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let counter = long(&a, &fixture.path);
    counter.initialize(5).await.unwrap();
    let result = overtaken(&fixture, &counter).await.unwrap();
    assert_eq!(result.stats.optimistic_tries, 2);
    assert_eq!(changed(Ok(result)), (100, 101));
    a.close().await.unwrap();
}

async fn without_attempts_left_nothing_is_written(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let counter = DistributedAtomicLong::with_options(&a, &fixture.path, options(1)).unwrap();
    counter.initialize(5).await.unwrap();
    let result = overtaken(&fixture, &counter).await.unwrap();
    assert_eq!((result.pre_value, result.post_value), (5, None));
    assert_eq!(result.stats.optimistic_tries, 1);
    assert_eq!(number(&a, &fixture.path).await, 100);
    a.close().await.unwrap();
}

async fn a_promoted_writer_holds_the_lock_and_releases_it(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let lock = format!("{}-lock", fixture.path);
    let options = options(1).with_promotion(PromotedToLock::new(&lock));
    let counter = DistributedAtomicLong::with_options(&a, &fixture.path, options).unwrap();
    counter.initialize(5).await.unwrap();
    let result = overtaken(&fixture, &counter).await.unwrap();
    assert_eq!((result.stats.optimistic_tries, result.stats.promoted_lock_tries), (1, 1));
    assert_eq!(changed(Ok(result)), (100, 101));
    fixture.children(&lock, 0).await;
    let created = fixture.tap.trace();
    assert!(created.iter().any(|r| r.path().is_some_and(|path| path.starts_with(&lock))));
    a.close().await.unwrap();
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
    a.close().await.unwrap();
}

/// `testSimulation`.
async fn writers_that_race_count_each_increment_once(fixture: Fixture) {
    const WRITERS: usize = 4;
    const INCREMENTS: i64 = 100;
    let lock = format!("{}-lock", fixture.path);
    let promotion = PromotedToLock::new(&lock)
        .with_retry_policy(RetryNTimes::new(1000, Duration::from_millis(1)));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (client, _tap) = fixture.client(&format!("W{writer}")).await;
        let options = options(2).with_promotion(promotion.clone());
        let counter = DistributedAtomicLong::with_options(&client, &fixture.path, options).unwrap();
        writers.push(tokio::spawn(async move {
            let mut counted = Vec::new();
            for _ in 0..INCREMENTS {
                counted.push(changed(counter.increment().await).1);
            }
            client.close().await.unwrap();
            counted
        }));
    }
    let mut counted = Vec::new();
    for writer in writers {
        counted.extend(within_deadline("a writer", writer).await.unwrap());
    }
    counted.sort_unstable();
    let all: Vec<i64> = (1..=i64::try_from(WRITERS).unwrap() * INCREMENTS).collect();
    assert_eq!(counted, all, "each number is the result of one increment");
    fixture.children(&lock, 0).await;
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
        let attempt = polled(polls, counter.increment());
        // The promoted attempt waits for the lock, for ever, unless it is dropped before.
        let waiting = tokio::time::timeout(Duration::from_secs(2), attempt);
        let (attempt, ()) = tokio::join!(waiting, overtake(&fixture, since, change));
        assert!(attempt.ok().flatten().is_none(), "it does not end by itself");
        fixture.children(&lock, 1).await;
    }
    guard.release().await.unwrap();
    fixture.children(&lock, 0).await;
    a.close().await.unwrap();
}
