//! The cancellation token of a guard: cancelled by every end of the guard and of its hold.

use docent::locks::{CancellationToken, LockFuture};
use std::sync::Mutex;

use super::*;

on_both_servers! {
    a_dropped_guard_cancels_its_token
    a_released_guard_cancels_its_token_before_its_delete_is_sent
    a_guard_dropped_when_its_loss_is_known_cancels_its_token
    a_guard_that_is_not_held_has_cancelled_its_token
    a_token_belongs_to_its_guard_and_not_to_the_owners_other_guards
    a_token_of_one_lock_is_cancelled_with_the_multi_lock
}

/// One guard of each kind of lock.
async fn guards(fixture: &Fixture, client: &Client) -> Vec<(&'static str, LockGuard)> {
    let mut guards = Vec::new();
    for (kind, lock) in each_lock(client, &fixture.path, &options()) {
        guards.push((kind, lock.acquire().await.unwrap()));
    }
    guards
}

// Case (Found in docent itself): the cancellation token of a guard that was dropped or released as
// soon as its loss was known was never cancelled; nor was that of a live hold that was released.
async fn a_dropped_guard_cancels_its_token(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    for (kind, guard) in guards(&fixture, &client).await {
        let token = guard.cancellation_token();
        assert!(!token.is_cancelled(), "{kind}");
        drop(guard);
        assert!(token.is_cancelled(), "{kind}: a worker continues without the lock");
    }
}

async fn a_released_guard_cancels_its_token_before_its_delete_is_sent(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    for (kind, guard) in guards(&fixture, &client).await {
        let token = guard.cancellation_token();
        let nodes: Vec<String> = guard.paths().map(str::to_owned).collect();
        let before = fixture.tap.len();
        // Polled once, and no other task has run since: the delete is queued and cannot have been sent.
        let mut release = pin!(guard.release());
        poll_once(release.as_mut());
        assert!(token.is_cancelled(), "{kind}");
        let deletes = fixture.tap.trace().since(before);
        assert!(deletes.iter().all(|r| nodes.iter().all(|node| r.path() != Some(node))), "{kind}");
        release.await.unwrap();
    }
}

/// The token is cancelled, whether a state listener or the task behind the token sees the loss first.
async fn a_guard_dropped_when_its_loss_is_known_cancels_its_token(fixture: Fixture) {
    let (client, tap) = fixture.client("A").await;
    for round in 0..3 {
        let guards = guards(&fixture, &client).await;
        let tokens: Vec<_> =
            guards.iter().map(|(kind, guard)| (*kind, guard.cancellation_token())).collect();
        let mut states = client.states();
        tap.kill_session(DEADLINE).await.unwrap();
        passes(&mut states, ConnectionState::Lost).await;
        match round {
            0 => drop(guards),
            1 => {
                for (_, guard) in guards {
                    guard.release().await.unwrap();
                }
            }
            // The guard outlives its hold.
            _ => std::mem::forget(guards),
        }
        for (kind, token) in tokens {
            within_deadline(kind, token.cancelled()).await;
        }
        client.wait_until_connected(DEADLINE).await.unwrap();
    }
}

// Case (Failure cases, 20): expiry while holding one.
async fn a_guard_that_is_not_held_has_cancelled_its_token(fixture: Fixture) {
    let (client, tap) = fixture.client("A").await;
    let guards = guards(&fixture, &client).await;
    let tokens: Vec<_> = guards.iter().map(|(_, guard)| guard.cancellation_token()).collect();
    tap.kill_session(DEADLINE).await.unwrap();
    for ((kind, guard), token) in guards.iter().zip(tokens) {
        within_deadline(kind, guard.lost()).await;
        assert!(!guard.is_held() && token.is_cancelled(), "{kind}");
    }
}

async fn a_token_belongs_to_its_guard_and_not_to_the_owners_other_guards(fixture: Fixture) {
    let (client, tap) = fixture.client("A").await;
    let mutex = mutex(&fixture, &client);
    let owner = Owner::new();
    let first = mutex.acquire_as(&owner).await.unwrap();
    let second = mutex.acquire_as(&owner).await.unwrap();
    let (of_first, of_second) = (first.cancellation_token(), second.cancellation_token());
    first.release().await.unwrap();
    assert!(of_first.is_cancelled() && !of_second.is_cancelled() && second.is_held());
    tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("the loss", of_second.cancelled()).await;
}

/// A lock that stores the token of its last guard.
struct TokenStore(InterProcessMutex, Mutex<Option<CancellationToken>>);

impl InterProcessLock for TokenStore {
    fn acquire(&self) -> LockFuture<'_, LockGuard> {
        Box::pin(async {
            let guard = self.0.acquire().await?;
            *self.1.lock().unwrap() = Some(guard.cancellation_token());
            Ok(guard)
        })
    }

    fn acquire_timeout(&self, _wait: Duration) -> LockFuture<'_, Option<LockGuard>> {
        Box::pin(async { self.acquire().await.map(Some) })
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }
}

async fn a_token_of_one_lock_is_cancelled_with_the_multi_lock(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let part = Arc::new(TokenStore(mutex(&fixture, &client), Mutex::default()));
    let multi =
        InterProcessMultiLock::from_locks(vec![Arc::clone(&part) as Arc<dyn InterProcessLock>]);
    let guard = multi.acquire().await.unwrap();
    let token = part.1.lock().unwrap().clone().unwrap();
    assert!(guard.is_held() && !token.is_cancelled());
    guard.release().await.unwrap();
    assert!(token.is_cancelled());
}
