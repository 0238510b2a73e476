//! Atomic numbers and values. `check.rs` judges the results, at the end.

use std::time::Duration;

use bytes::Bytes;
use docent::{
    AtomicOptions, AtomicValue, DistributedAtomicInteger, DistributedAtomicLong,
    DistributedAtomicValue, Error, PromotedToLock, retry::RetryNTimes,
};

use super::{
    check::{AtomicCall, Made, Operations, Wanted},
    steps::{Op, Step},
};
use crate::recipes::worker::Worker;

/// The path of a number.
fn counter(number: u8) -> String {
    format!("/counters/{number}")
}

/// The path of a value.
fn cell(number: u8) -> String {
    format!("/cells/{number}")
}

fn options(step: &Step, lock: &str) -> AtomicOptions {
    let pause = Duration::from_millis(10);
    let options = AtomicOptions::default()
        .with_retry_policy(RetryNTimes::new(step.attempts, pause))
        .with_lock_options(step.retry.lock_options());
    match step.promotion_ms {
        Some(ms) => options.with_promotion(
            PromotedToLock::new(lock)
                .with_timeout(Duration::from_millis(ms))
                .with_retry_policy(RetryNTimes::new(1, pause)),
        ),
        None => options,
    }
}

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: &Step) {
    let is_number = matches!(step.op, Op::Increment | Op::Decrement | Op::Add | Op::Get);
    let path = if is_number { counter(step.number) } else { cell(step.number) };
    let lock = format!("/atomic-lock-{}", step.number);
    let _using = worker.world.use_path(worker.pid, &lock);
    let limit = step.cancel_ms.unwrap_or(600_000);
    let operation = async {
        if is_number {
            number(worker, step, &path, &lock).await;
        } else {
            value(worker, step, &path, &lock).await;
        }
    };
    if worker.within(limit, operation).await.is_none() {
        worker.say(format!("{:?} of {path} is dropped", step.op));
    }
}

/// An operation on a number.
async fn number(worker: &Worker, step: &Step, path: &str, lock: &str) {
    let delta = match step.op {
        Op::Increment => 1,
        Op::Decrement => -1,
        // No other operation adds it.
        Op::Add => 1_000 + 7 * i64::try_from(worker.world.next_number()).unwrap_or(0),
        _ => 0,
    };
    let call = (delta != 0).then(|| begin(worker, path, Wanted::Delta(delta)));
    let small = i32::try_from(delta).unwrap_or_default();
    /// The operation on a number of a type; its values before and after it.
    macro_rules! operate {
        ($counter:ident, $delta:ident) => {
            match $counter::with_options(&worker.client, path, options(step, lock)) {
                Err(error) => return worker.violation(&format!("{path} is refused: {error}")),
                Ok(counter) => match step.op {
                    Op::Increment => counter.increment().await,
                    Op::Decrement => counter.decrement().await,
                    Op::Add => counter.add($delta).await,
                    _ => counter.get().await,
                }
                .map(|value| (i64::from(value.pre_value), value.post_value.map(i64::from))),
            }
        };
    }
    let result = if step.number.is_multiple_of(2) {
        operate!(DistributedAtomicLong, delta)
    } else {
        operate!(DistributedAtomicInteger, small)
    };
    done(worker, step, path, call, result);
}

fn done(
    worker: &Worker,
    step: &Step,
    path: &str,
    call: Option<usize>,
    result: Result<(i64, Option<i64>), Error>,
) {
    worker.say(format!("{:?} of {path}: {result:?}", step.op));
    let encode = |number: i64| Some(Bytes::copy_from_slice(&number.to_be_bytes()));
    let Some(call) = call else {
        if let Ok((number, _)) = result {
            worker.world.check::<Operations>().reads.push((path.to_owned(), number));
        }
        return;
    };
    let made = match result {
        Ok((pre, Some(post))) => Made::Done { pre: encode(pre), post: encode(post) },
        Ok((_, None)) => Made::NotDone,
        Err(error) => Made::Failed(error.outcome()),
    };
    end(worker, call, made);
}

/// An operation on a value.
async fn value(worker: &Worker, step: &Step, path: &str, lock: &str) {
    let made = DistributedAtomicValue::with_options(&worker.client, path, options(step, lock));
    let cell = match made {
        Ok(cell) => cell,
        Err(error) => return worker.violation(&format!("{path} is refused: {error}")),
    };
    let new = worker.world.next_value(path, 0);
    let expected = match step.op {
        Op::CompareAndSet => match cell.get().await {
            Ok(value) => value.post_value.flatten(),
            Err(error) => return worker.say(format!("does not read {path}: {error}")),
        },
        _ => None,
    };
    let call = begin(worker, path, Wanted::Value(new.clone()));
    let swapped = |result: Result<AtomicValue<Option<Bytes>>, Error>| match result {
        Ok(value) => match value.post_value {
            Some(post) => Made::Done { pre: value.pre_value, post },
            None => Made::NotDone,
        },
        Err(error) => Made::Failed(error.outcome()),
    };
    let made = match step.op {
        Op::TrySet => swapped(cell.try_set(new).await),
        Op::CompareAndSet => {
            let expected = expected.unwrap_or_default();
            let made = swapped(cell.compare_and_set(expected.clone(), new).await);
            if let Made::Done { pre, .. } = &made
                && pre.as_ref() != Some(&expected)
            {
                worker.violation(&format!("{path}: {pre:?} was replaced, not {expected:?}"));
            }
            made
        }
        Op::ForceSet => match cell.force_set(new.clone()).await {
            Ok(()) => Made::Forced,
            Err(error) => Made::Failed(error.outcome()),
        },
        _ => match cell.initialize(new.clone()).await {
            Ok(true) => Made::Done { pre: None, post: Some(new) },
            Ok(false) => Made::NotDone,
            Err(error) => Made::Failed(error.outcome()),
        },
    };
    worker.say(format!("{:?} of {path}: {made:?}", step.op));
    end(worker, call, made);
}

fn begin(worker: &Worker, path: &str, wanted: Wanted) -> usize {
    let by = worker.name();
    let called_at = worker.world.now();
    let call = AtomicCall { by, path: path.to_owned(), wanted, called_at, made: None };
    worker.world.check::<Operations>().begin(call)
}

fn end(worker: &Worker, call: usize, made: Made) {
    let now = worker.world.now();
    worker.world.check::<Operations>().end(call, now, made);
}
