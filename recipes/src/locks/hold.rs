//! One hold of a lock, shared by the guards of its owner.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use docent_session::{Client, SessionClaim, retry::RetryPolicy};
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;
use tracing::trace;

use super::watcher_removal::{Removed, WatcherRemovalManager};
use crate::{Error, guaranteed_delete, race::race};

/// A lock that was got.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) path: String,
    pub(crate) claim: SessionClaim,
    /// `None` when the node's creation was not answered: it can be asked for.
    pub(crate) czxid: Option<i64>,
}

/// What it takes to give a node up.
#[derive(Debug, Clone)]
pub(crate) struct Releaser {
    pub(crate) client: Client,
    pub(crate) policy: Arc<dyn RetryPolicy>,
    /// To be removed first; a lease has none.
    pub(crate) watches: Option<Arc<WatcherRemovalManager>>,
    pub(crate) revocation: Option<Arc<super::revocation::Revocation>>,
}

/// Takes a hold out of its owner's hands, at the end.
pub(crate) type Forget = Box<dyn Fn(&Hold) + Send + Sync>;

/// One hold of a lock; re-entrant guards share it.
pub(crate) struct Hold {
    releaser: Releaser,
    path: String,
    claim: SessionClaim,
    czxid: OnceCell<i64>,
    /// How many guards there are for it. None: it is being released, and nobody enters any more.
    count: AtomicUsize,
    /// Given up, or found to be gone.
    over: AtomicBool,
    ended: Notify,
    token: OnceLock<CancellationToken>,
    forget: Forget,
}

impl Hold {
    /// A hold with its first guard's count.
    pub(crate) fn new(releaser: Releaser, acquired: Acquired, forget: Forget) -> Arc<Self> {
        let Acquired { path, claim, czxid } = acquired;
        Arc::new(Self {
            releaser,
            path,
            claim,
            czxid: OnceCell::new_with(czxid),
            count: AtomicUsize::new(1),
            over: AtomicBool::new(false),
            ended: Notify::new(),
            token: OnceLock::new(),
            forget,
        })
    }

    /// Counts another guard; not once the last one has let go.
    pub(crate) fn enter(&self) -> bool {
        let more = |count| (count > 0).then_some(count + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Whether that was the last guard.
    pub(crate) fn let_go(&self) -> bool {
        self.count.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.over.load(Ordering::Acquire) && self.claim.is_valid(self.releaser.client.now())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.releaser.client
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) const fn claim(&self) -> &SessionClaim {
        &self.claim
    }

    /// Nobody may believe in it any more; comes before anything is sent.
    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::Release);
        (self.forget)(self);
        self.ended.notify_waiters();
    }

    /// Removes the watches and ends the revocability, which come before the delete.
    ///
    /// Source: `LockInternals.releaseLock`.
    fn before_delete(&self) -> Option<Removed> {
        let watches = self.releaser.watches.as_ref();
        let removed = watches.map(|watches| watches.remove_watches(&self.releaser.client));
        if let Some(revocation) = &self.releaser.revocation {
            revocation.clear();
        }
        trace!(step = 10, path = self.path, "release");
        removed
    }

    pub(crate) async fn release(&self) -> Result<(), Error> {
        let mut removed = self.before_delete();
        let Releaser { client, policy, .. } = &self.releaser;
        let mut delete = pin!(guaranteed_delete::delete(client, &**policy, &self.path));
        let deleted = poll_fn(|cx| {
            let deleted = delete.as_mut().poll(cx);
            // The first poll has queued the delete.
            drop(removed.take());
            deleted
        });
        match deleted.await {
            Err(error) if error.kind() != docent_session::ErrorKind::NoNode => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// As [`release`](Self::release), for those who cannot wait.
    pub(crate) fn release_in_background(&self) {
        let removed = self.before_delete();
        guaranteed_delete::delete_in_background(&self.releaser.client, &self.path);
        drop(removed);
    }

    pub(crate) async fn until_lost(&self) {
        let client = &self.releaser.client;
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

    /// Cancelled when the lock is lost; not by a release.
    pub(crate) fn cancellation_token(self: &Arc<Self>) -> CancellationToken {
        self.token
            .get_or_init(|| {
                let token = CancellationToken::new();
                let (hold, watched) = (Arc::clone(self), token.clone());
                self.releaser.client.spawn(async move {
                    hold.until_lost().await;
                    if !hold.over.load(Ordering::Acquire) {
                        watched.cancel();
                    }
                });
                token
            })
            .clone()
    }

    /// Waits until it was given up or is gone.
    pub(crate) async fn until_gone(hold: std::sync::Weak<Self>) {
        if let Some(hold) = hold.upgrade() {
            let ended = hold.ended.notified();
            if !hold.over.load(Ordering::Acquire) {
                ended.await;
            }
        }
    }

    pub(crate) async fn fencing_token(&self) -> Result<i64, Error> {
        let session_id = self.claim.lease().session_id();
        let ask = || async {
            let stat = self.releaser.client.exists(&self.path).await?;
            match stat {
                // 0: a node that a driver wanted to be persistent.
                Some(stat) if [session_id, 0].contains(&stat.ephemeral_owner) => Ok(stat.czxid),
                _ => Err(Error::LockLost { path: self.path.clone() }),
            }
        };
        self.czxid.get_or_try_init(ask).await.copied()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Timers may go off a moment early.
const PAST_THE_DEADLINE: Duration = Duration::from_millis(1);
