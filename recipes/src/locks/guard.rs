//! What the holder of a lock has in its hands.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use docent_session::{Instant, SessionClaim};
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use super::lock_internals::{Acquired, LockInternals};
use crate::{Error, race::race};

/// One hold of a lock; re-entrant guards share it.
pub(crate) struct Hold {
    internals: Arc<LockInternals>,
    path: String,
    claim: SessionClaim,
    czxid: OnceCell<i64>,
    /// How many guards there are for it.
    count: AtomicUsize,
    /// Given up, or found to be gone.
    over: AtomicBool,
    ended: Notify,
    token: OnceLock<CancellationToken>,
    /// Takes the hold out of its owner's hands, at the end.
    forget: Box<dyn Fn() + Send + Sync>,
}

impl Hold {
    pub(crate) fn new(
        internals: Arc<LockInternals>,
        acquired: Acquired,
        forget: Box<dyn Fn() + Send + Sync>,
    ) -> (Arc<Self>, LockGuard) {
        let Acquired { path, claim, czxid } = acquired;
        let hold = Arc::new(Self {
            internals,
            path,
            claim,
            czxid: OnceCell::new_with(czxid),
            count: AtomicUsize::new(1),
            over: AtomicBool::new(false),
            ended: Notify::new(),
            token: OnceLock::new(),
            forget,
        });
        let guard = LockGuard { hold: Some(Arc::clone(&hold)) };
        (hold, guard)
    }

    /// Another guard; `None` once the last one has let go.
    pub(crate) fn guard(self: &Arc<Self>) -> Option<LockGuard> {
        // The first one is made with the hold, so none at all means that the last one has gone.
        let more = |count| (count > 0).then_some(count + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(LockGuard { hold: Some(Arc::clone(self)) })
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.over.load(Ordering::Acquire) && self.claim.is_valid(self.internals.client().now())
    }

    /// Whether that was the last guard.
    fn let_go(&self) -> bool {
        self.count.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Nobody may believe in it any more; comes before anything is sent.
    fn finish(&self) {
        self.over.store(true, Ordering::Release);
        (self.forget)();
        self.ended.notify_waiters();
    }

    async fn until_lost(&self) {
        let client = self.internals.client();
        let mut state = client.state();
        loop {
            let ended = self.ended.notified();
            if !self.is_held() {
                return;
            }
            // The deadline moves on with every answer; then there is nothing but to look again.
            let left = self.claim.lease().deadline().since(client.now()) + PAST_THE_DEADLINE;
            let asleep = tokio::time::sleep(left);
            race(asleep, race(ended, state.changed())).await;
        }
    }
}

/// Timers may go off a moment early.
const PAST_THE_DEADLINE: std::time::Duration = std::time::Duration::from_millis(1);

/// A lock that is held.
///
/// [`release`](Self::release) gives it up and says how that went; dropping it gives it up in the background, from
/// anywhere: the request is queued by the drop itself.
///
/// # What a hold is worth
///
/// A lock of ZooKeeper is a node that goes with its session, and whether the session still lives is known
/// to the servers, not to the holder. So [`is_held`](Self::is_held) is computed from the clock when asked, and
/// once it has said no it says no for ever. It is best effort: a process that is stopped between asking
/// and acting, a request that is late on the network, or an ensemble that has cut itself off from the
/// holder's server can all make it too late. [`proven_until`](Self::proven_until) is sound, and short.
///
/// What protects the *effects* of a holder is the [`fencing_token`](Self::fencing_token): hand it to the resource
/// with every write, and let that refuse smaller ones than it has seen.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    /// `None` once it was released.
    hold: Option<Arc<Hold>>,
}

impl LockGuard {
    /// Gives the lock up, once all guards of its owner are released: deletes the lock node, with retries. Sends
    /// checkWatches (17) for each watch that is left, and delete (2).
    ///
    /// # Errors
    ///
    /// When the node could not be deleted: then that is done in the background, until it is gone or the client
    /// is closed. The hold is over in any case (CURATOR-486). That the node was gone before is no error.
    ///
    /// # Cancel safety
    ///
    /// The hold is over at the first poll; a node whose delete was dropped is deleted in the background.
    ///
    /// Source: `InterProcessMutex.release`, `LockInternals.releaseLock`.
    pub async fn release(mut self) -> Result<(), Error> {
        let Some(hold) = self.hold.take() else { return Ok(()) };
        if !hold.let_go() {
            return Ok(());
        }
        hold.finish();
        hold.internals.release_lock(&hold.path).await
    }

    /// Whether the lock is still held, as far as this process can know: it was not released, its session is not
    /// known to be lost, and an answered request is recent enough. `false` is for ever.
    ///
    /// Best effort: see [above](Self#what-a-hold-is-worth), and [`SessionLease`](docent_session::SessionLease).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_held())
    }

    /// Until when nobody else can have been given the lock, whatever happens to servers and network, on the
    /// clock of [`Client::now`](docent_session::Client::now). Nothing renews it yet: it ends a session timeout
    /// after the session was made.
    #[must_use]
    pub fn proven_until(&self) -> Instant {
        self.hold.as_ref().map_or(Instant::ZERO, |hold| hold.claim.lease().proven_until())
    }

    /// Waits until [`is_held`](Self::is_held) is false.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn lost(&self) {
        if let Some(hold) = &self.hold {
            hold.until_lost().await;
        }
    }

    /// A token that is cancelled when the lock is lost; not by a release. Watched over by a task of the client's
    /// runtime, from the first call on.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        let Some(hold) = &self.hold else { return CancellationToken::new() };
        hold.token
            .get_or_init(|| {
                let token = CancellationToken::new();
                let (hold, watched) = (Arc::clone(hold), token.clone());
                let client = hold.internals.client().clone();
                client.spawn(async move {
                    hold.until_lost().await;
                    if !hold.over.load(Ordering::Acquire) {
                        watched.cancel();
                    }
                });
                token
            })
            .clone()
    }

    /// A number that is greater for every later holder of this lock: the `czxid` of the lock node.
    ///
    /// Known from the node's creation, unless the reply to that was lost: then the first call asks for it.
    /// Sends exists (3) in that case.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] when the node is gone, and those of the session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn fencing_token(&self) -> Result<i64, Error> {
        let Some(hold) = &self.hold else { return Err(Error::LockLost { path: String::new() }) };
        let ask = || async {
            let stat = hold.internals.client().exists(&hold.path).await?;
            match stat {
                Some(stat) if stat.ephemeral_owner == self.session_id() => Ok(stat.czxid),
                _ => Err(Error::LockLost { path: hold.path.clone() }),
            }
        };
        hold.czxid.get_or_try_init(ask).await.copied()
    }

    /// The path of the lock node.
    ///
    /// Source: `InterProcessMutex.getLockPath`.
    #[must_use]
    pub fn lock_path(&self) -> &str {
        self.hold.as_ref().map_or("", |hold| &hold.path)
    }

    /// The session that holds it.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.hold.as_ref().map_or(0, |hold| hold.claim.lease().session_id())
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if hold.let_go() {
            hold.finish();
            hold.internals.release_lock_in_background(&hold.path);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("lock_path", &self.lock_path())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LockOptions, lock_internals::LOCK_NAME};
    use super::*;

    async fn hold() -> (docent_testing::TestingServer, Arc<Hold>, LockGuard) {
        let server = docent_testing::TestingServer::start().await.unwrap();
        let client = docent_session::Client::connect(&server.connect_string()).await.unwrap();
        let options = LockOptions::default();
        let internals =
            Arc::new(LockInternals::new(&client, "/lock", LOCK_NAME, 1, options).unwrap());
        let acquired = internals.attempt_lock(None).await.unwrap().unwrap();
        let (hold, guard) = Hold::new(internals, acquired, Box::new(|| {}));
        (server, hold, guard)
    }

    /// Between the last guard's going and the delete, an owner on another thread must not enter again.
    #[tokio::test]
    async fn a_hold_that_is_being_released_is_not_entered_again() {
        let (_server, hold, mut guard) = hold().await;
        let taken = guard.hold.take().unwrap();
        assert!(taken.let_go(), "the last one");
        // Here the releasing thread is interrupted, and nothing is marked yet.
        assert!(hold.is_held());
        assert!(hold.guard().is_none(), "a lock that is about to go was entered");
    }

    #[tokio::test]
    async fn a_second_guard_keeps_the_hold() {
        let (_server, hold, first) = hold().await;
        let second = hold.guard().unwrap();
        first.release().await.unwrap();
        assert!(second.is_held() && hold.guard().is_some());
    }
}
