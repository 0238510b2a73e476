//! Steps with locks: acquires, holds, and every end of a hold.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use docent::{Error, LockGuard, Owner, Revoker, retry::RetryNTimes};
use tokio::sync::Notify;

use super::{
    belief::{Mode, Part},
    held::{Held, any_invalidated_by_others, believe},
    objects::{Object, Objects, count_path},
    steps::{HoldEnd, InnerLock, LockName, LockStep},
    waits,
};
use crate::recipes::{
    common::{HoldWatch, poll_once},
    worker::Worker,
};

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: LockStep) {
    let LockStep { ref lock, .. } = step;
    let text = name(lock);
    worker.say(format!("acquires {text}"));
    let revoked = Arc::new(Notify::new());
    let objects = worker.shared.get::<Objects>();
    let owner = step.owner.map(|number| objects.owner(number));
    let acquire = async {
        let fresh = step.fresh || step.revocable;
        let object = objects.object(&worker.client, lock, step.options, fresh).await?;
        if let (true, Some(mutex)) = (step.revocable, object.mutex(lock)) {
            let revoked = Arc::clone(&revoked);
            mutex.make_revocable(move || revoked.notify_one());
        }
        let quantity = usize::from(step.quantity);
        let guards = acquire(worker, &object, lock, owner.as_ref(), step.wait_ms, quantity).await?;
        Ok::<_, Error>((object, guards))
    };
    let count = KnownCount::before(worker, lock);
    let using = worker.world.use_paths(worker.pid, lock.paths());
    let Some(acquired) = cancelled(worker, &step, acquire).await else {
        drop(using);
        return worker.say(format!("gives {text} up: cancelled"));
    };
    drop(using);
    let (object, guards) = match acquired {
        Ok((object, Some(guards))) => (object, guards),
        Ok((_, None)) => return worker.say(format!("does not get {text} in time")),
        Err(error) => return worker.fails(format_args!("does not get {text}"), &error),
    };
    let hold = |guard: LockGuard, lock: &LockName, end| {
        worker.say(format!("holds {} as {}", name(lock), guard.path()));
        let mut parts = lock.parts();
        if let Some(count) = &count {
            parts[0].mode = Mode::Lease(count.largest(worker));
        }
        let mutex = object.mutex(lock);
        if guard.is_held() && mutex.is_some_and(|mutex| !mutex.is_acquired_in_this_process()) {
            worker.violation(&format!("{} is not acquired in its process", guard.path()));
        }
        let is_revocable = step.revocable && mutex.is_some();
        (believe(worker, &step, parts, is_revocable, guard), end)
    };
    let mut holds: Vec<_> = guards.into_iter().map(|guard| hold(guard, lock, step.end)).collect();
    for inner in &step.then {
        let Some(owner) = &owner else { continue };
        if inner.after_exit && holds.len() > 1 {
            let (held, end) = holds.remove(0);
            let_go(worker, held, end, &text).await;
        }
        if let Some(guard) = acquire_inner(worker, &object, inner, owner, &holds).await {
            same_token(worker, &holds[0].0, &guard).await;
            holds.push(hold(guard, &inner.lock, inner.end));
        }
    }
    let first = &holds[0].0;
    // The tokens of readers and of leases have no order.
    let is_ordered = matches!(lock.parts()[0].mode, Mode::Exclusive | Mode::Strict);
    if is_ordered || matches!(lock, LockName::Semaphore { .. }) {
        for _ in 0..step.writes {
            write(worker, first, &lock.register(), is_ordered).await;
        }
    } else if step.writes > 0
        && let Ok(token) = first.guard().fencing_token().await
    {
        judge_token(worker, first, token);
    }
    first.watch();
    // Some holders wait for a second request to release.
    let mut requests_left = if step.first_ends_first { 1 } else { 2 };
    let mut held_long_enough = pin!(worker.sleep(step.hold_ms));
    while requests_left > 0 {
        tokio::select! {
            biased;
            () = lost(first, step.watch) => {
                worker.say(format!("has lost {text}"));
                if first.guard().is_held() {
                    worker.violation(&format!("has lost {text}, and holds it"));
                }
                break;
            }
            () = revoked.notified() => {
                worker.say(format!("is asked to release {text}"));
                first.hear_of_revocation();
                requests_left -= 1;
            }
            () = &mut held_long_enough => break,
        }
    }
    first.stop_watching();
    // A fresh object knows the queue from the servers only.
    if step.fresh && step.hold_ms > 1_000 {
        judge_participants(worker, &object, lock).await;
    }
    if step.writes > 1 && is_ordered {
        // A late write: the hold may be over.
        write(worker, first, &lock.register(), is_ordered).await;
    }
    if !step.first_ends_first {
        holds.reverse();
    }
    for (held, end) in holds {
        let using = worker.world.use_paths(worker.pid, lock.paths());
        let_go(worker, held, end, &text).await;
        drop(using);
    }
}

/// The output of an acquire, or `None` if it is dropped before it has one.
async fn cancelled<F: Future>(worker: &Worker, step: &LockStep, acquire: F) -> Option<F::Output> {
    let mut acquire = pin!(acquire);
    let mut polls = step.cancel_polls;
    let polled = poll_fn(move |cx| match (acquire.as_mut().poll(cx), &mut polls) {
        (Poll::Ready(output), _) => Poll::Ready(Some(output)),
        (Poll::Pending, Some(0 | 1)) => Poll::Ready(None),
        (Poll::Pending, polls) => {
            *polls = polls.map(|polls| polls - 1);
            Poll::Pending
        }
    });
    match step.cancel_ms {
        None => polled.await,
        Some(ms) => worker.within(ms, polled).await.flatten(),
    }
}

async fn acquire(
    worker: &Worker,
    object: &Object,
    name: &LockName,
    owner: Option<&Owner>,
    wait_ms: Option<u64>,
    quantity: usize,
) -> Result<Option<Vec<LockGuard>>, Error> {
    let wait = wait_ms.map(Duration::from_millis);
    // Several leases, and several locks, are acquired one after the other.
    let parts = name.parts().into_iter().cycle().take(name.parts().len() * quantity.max(1));
    let _waiting = waits::begin(&worker.world, worker.pid, parts.collect());
    let acquire = acquire_within(object, name, owner, wait, quantity);
    let acquired = worker.limited("an acquire", wait, acquire).await;
    if let Ok(Some(guards)) = &acquired
        && let Some(lost) = guards.iter().find(|guard| !guard.is_held())
        && !any_invalidated_by_others(&worker.world, lost.paths())
    {
        worker.violation(&format!("{} is granted and lost at once", lost.path()));
    }
    acquired
}

async fn acquire_within(
    object: &Object,
    name: &LockName,
    owner: Option<&Owner>,
    wait: Option<Duration>,
    quantity: usize,
) -> Result<Option<Vec<LockGuard>>, Error> {
    if let Object::Semaphore(semaphore) = object {
        return match (quantity, wait) {
            (0 | 1, None) => semaphore.acquire().await.map(|lease| Some(vec![lease])),
            (0 | 1, Some(wait)) => {
                Ok(semaphore.acquire_timeout(wait).await?.map(|lease| vec![lease]))
            }
            (_, None) => semaphore.acquire_many(quantity).await.map(Some),
            (_, Some(wait)) => semaphore.acquire_many_timeout(quantity, wait).await,
        };
    }
    let lock = object.inter_process_lock(name);
    let guard = match (owner, wait) {
        (None, None) => Some(lock.acquire().await?),
        (None, Some(wait)) => lock.acquire_timeout(wait).await?,
        (Some(owner), None) => Some(lock.acquire_as(owner).await?),
        (Some(owner), Some(wait)) => lock.acquire_as_timeout(owner, wait).await?,
    };
    Ok(guard.map(|guard| vec![guard]))
}

/// A further acquire of an owner that has a hold.
async fn acquire_inner(
    worker: &Worker,
    object: &Object,
    inner: &InnerLock,
    owner: &Owner,
    holds: &[(Held, HoldEnd)],
) -> Option<LockGuard> {
    let text = name(&inner.lock);
    worker.say(format!("acquires {text} too"));
    // Another worker with this owner may have the write lock.
    let writes = holds[0].0.owner_writes();
    let using = worker.world.use_paths(worker.pid, inner.lock.paths());
    let acquired = acquire(worker, object, &inner.lock, Some(owner), inner.wait_ms, 0).await;
    drop(using);
    match acquired {
        Ok(guards) => {
            let Some(guard) = guards.and_then(|mut guards| guards.pop()) else {
                worker.say(format!("does not get {text} in time"));
                return None;
            };
            // A hold whose node another client deletes lasts until its holder receives the event.
            let reads = holds.iter().filter(|(held, _)| held.is_reader());
            let was_invalidated_by_others =
                holds.iter().any(|(held, _)| held.was_invalidated_by_others());
            if !writes
                && !was_invalidated_by_others
                && guard.is_held()
                && matches!(inner.lock, LockName::Write(_))
                && reads.clone().count() == holds.len()
                // A node that was deleted by another client excludes nobody.
                && !any_invalidated_by_others(
                    &worker.world,
                    holds.iter().map(|(held, _)| held.guard().path()),
                )
                && reads.clone().any(|(held, _)| held.guard().is_held())
            {
                worker.violation(&format!("reads and is granted {text}"));
            }
            Some(guard)
        }
        Err(error) => {
            worker.fails(format_args!("does not get {text}"), &error);
            None
        }
    }
}

/// Checks that an owner that enters its lock again, or downgrades, keeps its token: contenders that wait already have
/// greater ones.
async fn same_token(worker: &Worker, first: &Held, inner: &LockGuard) {
    let number = |path: &str| path.rsplit(['-', '_']).next().map(str::to_owned);
    // A lock that is not re-entrant may be granted again with the same number, once the first hold is over.
    let is_same = number(first.guard().path()) == number(inner.path());
    if !is_same || first.was_invalidated_by_others() || !first.guard().is_held() {
        return;
    }
    let tokens = (first.guard().fencing_token().await, inner.fencing_token().await);
    if let (Ok(one), Ok(other)) = tokens
        && one != other
    {
        worker.violation(&format!("{}: token {other}, and not {one}", inner.path()));
    }
}

fn judge_token(worker: &Worker, held: &Held, token: i64) {
    if held.expected_token().is_some_and(|expected| expected != token) {
        worker.violation(&format!("the token of {} is not {token}", held.guard().path()));
    }
}

/// One guarded write of the token to the register of a lock.
async fn write(worker: &Worker, held: &Held, register: &str, is_ordered: bool) {
    let guard = held.guard();
    let token = match guard.fencing_token().await {
        Ok(token) => token,
        Err(error) => return worker.fails("has no token", &error),
    };
    judge_token(worker, held, token);
    let paths = guard.paths().collect::<Vec<_>>().join(" ");
    let written = (register, &*paths, token);
    worker.write_guarded(written, is_ordered, || guard.guarded()).await;
}

/// Checks that the participants that a lock reports are those of the servers.
async fn judge_participants(worker: &Worker, object: &Object, lock: &LockName) {
    let from = worker.world.now();
    let Some(Ok(found)) = object.participants(lock).await else { return };
    let Some(mut queue) = worker.settled_queue(&lock.queue(), from) else { return };
    // A lock for reading reports readers, and one for writing writers.
    let other = match lock {
        LockName::Read(_) => Some("-__WRIT__"),
        LockName::Write(_) => Some("-__READ__"),
        _ => None,
    };
    queue.retain(|path| other.is_none_or(|other| !path.contains(other)));
    if found != queue {
        worker.violation(&format!("{} reports {found:?}, not {queue:?}", name(lock)));
    }
}

/// Waits until the loss of a hold is noticed.
async fn lost(held: &Held, watch: HoldWatch) {
    match watch {
        HoldWatch::Nothing => std::future::pending().await,
        HoldWatch::Lost => held.guard().lost().await,
        HoldWatch::Token => held.cancelled().await,
    }
}

async fn let_go(worker: &Worker, held: Held, end: HoldEnd, text: &str) {
    if end == HoldEnd::Keep {
        worker.say(format!("keeps {text}"));
        return worker.keep(held);
    }
    let token = held.token().cloned();
    let Some(guard) = held.into_guard() else { return };
    match end {
        HoldEnd::Drop => {
            drop(guard);
            worker.say(format!("drops {text}"));
        }
        HoldEnd::Release => match guard.release().await {
            Ok(()) => worker.say(format!("has released {text}")),
            Err(error) => worker.fails(format_args!("releases {text}"), &error),
        },
        HoldEnd::CancelledRelease => {
            poll_once(guard.release()).await;
            worker.say(format!("begins to release {text}"));
        }
        HoldEnd::Keep => {}
    }
    if token.is_some_and(|token| !token.is_cancelled()) {
        worker.violation(&format!("has let {text} go, and its token is not cancelled"));
    }
}

/// Asks the first holder or waiter of a lock to release it.
pub(crate) async fn revoke(worker: &Worker, lock: &LockName) {
    let Some(first) = worker.first_in_queue(&lock.queue()).await else { return };
    worker.say(format!("revokes {first}"));
    let policy = RetryNTimes::new(2, Duration::from_millis(100));
    if let Err(error) = Revoker::attempt_revoke(&worker.client, &policy, &first).await {
        worker.fails(format_args!("revokes {first}"), &error);
    }
}

/// Changes the number of leases of a counted semaphore.
pub(crate) async fn set_count(worker: &Worker, number: u8, count: u8) {
    worker.say(format!("sets {} to {count}", count_path(number)));
    let set = async {
        let shared = worker.shared.get::<Objects>().count(&worker.client, number).await?;
        shared.set_count(i32::from(count)).await
    };
    if let Err(error) = set.await {
        worker.fails(format_args!("sets {}", count_path(number)), &error);
    }
}

/// The counts of a semaphore that an acquire may go by: the one that its client knew before, and later ones.
struct KnownCount {
    path: String,
    zxid: i64,
}

impl KnownCount {
    /// `None` for a lock without a count.
    fn before(worker: &Worker, lock: &LockName) -> Option<Self> {
        let LockName::CountedSemaphore(number) = lock else { return None };
        let zxid = worker.shared.get::<Objects>().known_count(*number).unwrap_or(0);
        Some(Self { path: count_path(*number), zxid })
    }

    /// The largest number of leases since then.
    fn largest(&self, worker: &Worker) -> usize {
        let core = worker.world.core();
        let nodes = core.servers.truth.of(&self.path).filter_map(|of| of.change.node.as_ref());
        let known = nodes.filter(|(_, stat)| stat.mzxid >= self.zxid);
        let counts =
            known.map(|(data, _)| data.first_chunk().map_or(0, |data| i32::from_be_bytes(*data)));
        counts.max().map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(0))
    }
}

/// The name of a lock in the history.
fn name(lock: &LockName) -> String {
    let parts = lock.parts();
    let part = |part: &Part| {
        let reads = if part.mode == Mode::Shared { " to read" } else { "" };
        format!("{}{reads}", part.lock)
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" and ")
}

impl LockName {
    /// The register that holders of the lock write to.
    fn register(&self) -> String {
        let path = self.parts().swap_remove(0).lock;
        format!("/register-of{}", path.replace('/', "-"))
    }
}
