//! Leadership as a value.

use std::{fmt, sync::Arc};

use docent_session::{Transaction, runtime::Instant};

use crate::{
    Error,
    locks::{CancellationToken, hold::Hold, holds::Holds},
};

/// A leadership: a time in which this participant leads. It has the methods of a
/// [`LockGuard`](crate::locks::LockGuard), and [guarantees the same](crate::locks::LockGuard#what-a-guard-guarantees).
///
/// It ends when the session ends or its lease expires, when the node is known to be deleted, when the latch is closed or
/// the term of the selector is over, and, with the
/// [standard error policy](super::ConnectionStateErrorPolicy::Standard), when the connection is lost. A leadership that
/// has ended stays so; the participant's next one is another value.
///
/// Clones are the same leadership. Dropping it ends nothing.
///
/// Source: Curator has a flag instead (`LeaderLatch.hasLeadership`), and `LeaderSelectorListener.takeLeadership` gets
/// nothing (L11 and L22 in `docs/CURATOR.md`).
#[derive(Clone)]
pub struct Leadership {
    holds: Arc<Holds>,
    epoch: u64,
}

impl Leadership {
    pub(super) fn new(hold: Arc<Hold>, epoch: u64) -> Self {
        Self { holds: Arc::new(Holds::one(hold)), epoch }
    }

    /// Ends the holds of the latch that this leadership rests on. Call it before the delete of the node is sent.
    pub(super) fn end(&self) {
        self.holds.cancel();
        for hold in self.holds.all() {
            hold.end();
        }
    }

    /// Waits until [`is_held`](Self::is_held) is false, without a watch on the node: sends nothing.
    pub(super) async fn ended(&self) {
        self.holds.ended().await;
    }

    /// Whether this participant still leads, as far as this process can know. Sends nothing.
    ///
    /// See [`LockGuard::is_held`](crate::locks::LockGuard::is_held). A latch watches its node, so the deletion of the
    /// node is seen once its event has arrived. A selector watches it from the first call of [`lost`](Self::lost) or
    /// [`cancellation_token`](Self::cancellation_token) on.
    ///
    /// Source: `LeaderLatch.hasLeadership`, `LeaderSelector.hasLeadership`.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.is_held()
    }

    /// Waits until [`is_held`](Self::is_held) is false. See [`LockGuard::lost`](crate::locks::LockGuard::lost), also
    /// for what it cannot see. Can be polled anywhere, also outside a runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn lost(&self) {
        self.holds.lost().await;
    }

    /// A token that is cancelled when the leadership ends, before the node is deleted. All clones have the same token.
    /// See [`LockGuard::cancellation_token`](crate::locks::LockGuard::cancellation_token).
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.holds.cancellation_token()
    }

    /// The time until which no other client can lead, whatever happens to servers and network. See
    /// [`LockGuard::proven_until`](crate::locks::LockGuard::proven_until). [`Instant::ZERO`] once the leadership has ended
    /// before its session: it was given up, its node is known to be deleted, or the connection was lost, with the standard
    /// error policy.
    #[must_use]
    pub fn proven_until(&self) -> Instant {
        self.holds.proven_until()
    }

    /// A number that is greater for every later leader: the `czxid` of the node. It is the same for two leaderships of
    /// one node, which have no other leader between them. A latch knows it; a selector reads it with exists (3) if the
    /// reply to the create was lost.
    ///
    /// # Errors
    ///
    /// [`LockLost`](crate::ErrorKind::LockLost) when the node is missing, and those of the session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn fencing_token(&self) -> Result<i64, Error> {
        self.holds.fencing_token().await
    }

    /// Begins a transaction that the server applies only while this participant leads: it first checks that our node
    /// exists. See [`LockGuard::guarded`](crate::locks::LockGuard::guarded).
    ///
    /// # Errors
    ///
    /// [`LockLost`](crate::ErrorKind::LockLost) when the leadership is known to have ended. When only the server knows,
    /// the commit fails with `NoNode` and the index 0.
    pub fn guarded(&self) -> Result<Transaction<'_>, Error> {
        self.holds.guarded()
    }

    /// The path of the node on which the leadership rests.
    ///
    /// Source: `LeaderLatch.getLastPathIsLeader`, which is never cleared (L22).
    #[must_use]
    pub fn path(&self) -> &str {
        self.holds.path()
    }

    /// The id of the session that leads.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.holds.session_id()
    }

    /// The number of this leadership among those of its latch or selector; the first is 1.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("path", &self.path())
            .field("epoch", &self.epoch)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}
