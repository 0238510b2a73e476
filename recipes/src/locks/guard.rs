//! What the holder of a lock has in its hands.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use docent_session::{Instant, Transaction};
use tokio_util::sync::CancellationToken;

use super::hold::Hold;
use crate::Error;

/// A lock that is held, of whatever kind: a mutex, a read or write lock, a semaphore's lease, or several locks
/// at once.
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
///
/// # Several locks at once
///
/// The guard of an [`InterProcessMultiLock`](super::InterProcessMultiLock) is held as long as all of its locks
/// are. What there is one of for each lock ([`lock_path`](Self::lock_path), [`fencing_token`](Self::fencing_token))
/// is that of the first lock: whoever holds them all holds that one, so its token grows from holder to holder.
///
/// Source: for a semaphore, Curator's `Lease`; for the others, `Locker`.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    /// In the order in which they were acquired; none once it was released.
    holds: Vec<Arc<Hold>>,
}

impl LockGuard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { holds: vec![hold] }
    }

    /// Another guard of a hold; `None` once the last one has let go.
    pub(crate) fn enter(hold: &Arc<Hold>) -> Option<Self> {
        hold.enter().then(|| Self::new(Arc::clone(hold)))
    }

    /// A guard of no lock yet.
    pub(crate) const fn of_none() -> Self {
        Self { holds: Vec::new() }
    }

    /// Takes another one's locks in behind its own.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.holds.append(&mut other.holds);
    }

    /// Gives the lock up, once all guards of its owner are released: deletes the lock node, with retries. Sends
    /// checkWatches (17) for each watch that is left, and delete (2). Several locks are given up one after the
    /// other, the last one first.
    ///
    /// # Errors
    ///
    /// When a node could not be deleted: then that is done in the background, until it is gone or the client
    /// is closed. The hold is over in any case (CURATOR-486). That the node was gone before is no error. Of
    /// several locks all are given up, and the first error is told.
    ///
    /// # Cancel safety
    ///
    /// The hold is over at the first poll; a node whose delete was dropped is deleted in the background.
    ///
    /// Source: `InterProcessMutex.release`, `LockInternals.releaseLock`, `Lease.close`,
    /// `InterProcessMultiLock.release`.
    pub async fn release(mut self) -> Result<(), Error> {
        let mut ending = Ending(self.let_go());
        let mut result = Ok(());
        while let Some(hold) = ending.0.pop() {
            let released = hold.release().await;
            if result.is_ok() {
                result = released;
            }
        }
        result
    }

    /// The holds that this was the last guard of; nobody believes in them any more.
    fn let_go(&mut self) -> Vec<Arc<Hold>> {
        let mut ending = std::mem::take(&mut self.holds);
        ending.retain(|hold| hold.let_go());
        for hold in ending.iter().rev() {
            hold.finish();
        }
        ending
    }

    /// Whether the lock is still held, as far as this process can know: it was not released, its session is not
    /// known to be lost, and an answered request is recent enough. `false` is for ever.
    ///
    /// Best effort: see [above](Self#what-a-hold-is-worth), and [`SessionLease`](docent_session::SessionLease).
    ///
    /// Source: `InterProcessMutex.isAcquiredInThisProcess`, which does not know whether the session lives.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.holds.is_empty() && self.holds.iter().all(|hold| hold.is_held())
    }

    /// Until when nobody else can have been given the lock, whatever happens to servers and network, on the
    /// clock of [`Client::now`](docent_session::Client::now). Nothing renews it yet: it ends a session timeout
    /// after the session was made.
    #[must_use]
    pub fn proven_until(&self) -> Instant {
        let bounds = self.holds.iter().map(|hold| hold.claim().lease().proven_until());
        bounds.min().unwrap_or(Instant::ZERO)
    }

    /// Waits until [`is_held`](Self::is_held) is false.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn lost(&self) {
        let mut all: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> =
            self.holds.iter().map(|hold| Box::pin(hold.until_lost()) as Pin<Box<_>>).collect();
        poll_fn(|cx| {
            let any = all.iter_mut().any(|lost| lost.as_mut().poll(cx).is_ready());
            if any || self.holds.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A token that is cancelled when the lock is lost; not by a release. Watched over by a task of the client's
    /// runtime, from the first call on.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        match self.holds.as_slice() {
            [] => CancellationToken::new(),
            [hold] => hold.cancellation_token(),
            several @ [first, ..] => {
                let any = CancellationToken::new();
                for hold in several {
                    let (lost, any) = (hold.cancellation_token(), any.clone());
                    let hold = Arc::downgrade(hold);
                    first.client().spawn(async move {
                        // Ends with the hold, too: its token is dropped with it.
                        crate::race::race(lost.cancelled(), Hold::until_gone(hold)).await;
                        if lost.is_cancelled() {
                            any.cancel();
                        }
                    });
                }
                any
            }
        }
    }

    /// A number that is greater for every later holder of this lock: the `czxid` of the lock node.
    ///
    /// Known from the node's creation, unless the reply to that was lost: then the first call asks for it.
    /// Sends exists (3) in that case. The holders of a semaphore's leases have different ones, in no order.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] when the node is gone, and those of the session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn fencing_token(&self) -> Result<i64, Error> {
        match self.holds.first() {
            Some(hold) => hold.fencing_token().await,
            None => Err(Error::LockLost { path: String::new() }),
        }
    }

    /// Begins a transaction that the server applies only while the lock is ours: it checks that each of our lock
    /// nodes exists, together with what is added, in one step. So writes to ZooKeeper itself are safe without a
    /// fencing token, however late they come. Sent by `commit`: multi (14), with check (13) in front.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] when it is known that the lock is not held any more. When only the server knows, the
    /// commit fails with `NoNode` and the number of the check, which is 0 for a guard of one lock.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example(guard: docent_recipes::locks::LockGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// guard.guarded()?.set_data("/printer/job", b"42", None).commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Curator has nothing of the kind.
    pub fn guarded(&self) -> Result<Transaction<'_>, Error> {
        let lost = || Error::LockLost { path: self.lock_path().to_owned() };
        let first = self.holds.first().filter(|_| self.is_held()).ok_or_else(lost)?;
        let transaction = first.client().transaction();
        Ok(self.lock_paths().fold(transaction, |checked, path| checked.check(path, None)))
    }

    /// The path of the lock node.
    ///
    /// Source: `InterProcessMutex.getLockPath`, `Lease.getNodeName`.
    #[must_use]
    pub fn lock_path(&self) -> &str {
        self.holds.first().map_or("", |hold| hold.path())
    }

    /// The paths of all its lock nodes, in the order in which they were acquired.
    pub fn lock_paths(&self) -> impl Iterator<Item = &str> {
        self.holds.iter().map(|hold| hold.path())
    }

    /// The session that holds it.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.holds.first().map_or(0, |hold| hold.claim().lease().session_id())
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        drop(Ending(self.let_go()));
    }
}

/// Holds whose nodes are to go: dropped, they go in the background, the last one first.
struct Ending(Vec<Arc<Hold>>);

impl Drop for Ending {
    fn drop(&mut self) {
        for hold in self.0.drain(..).rev() {
            hold.release_in_background();
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("lock_paths", &self.lock_paths().collect::<Vec<_>>())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use docent_session::Client;

    use super::super::{InterProcessMutex, Owner};

    async fn mutex() -> (docent_testing::TestingServer, InterProcessMutex) {
        let server = docent_testing::TestingServer::start().await.unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        (server, InterProcessMutex::new(&client, "/lock").unwrap())
    }

    /// Between the last guard's going and the delete, an owner on another thread must not enter again.
    #[tokio::test]
    async fn a_hold_that_is_being_released_is_not_entered_again() {
        let (_server, mutex) = mutex().await;
        let mut guard = mutex.acquire().await.unwrap();
        let hold = guard.holds.pop().unwrap();
        assert!(hold.let_go(), "the last one");
        // Here the releasing thread is interrupted, and nothing is marked yet.
        assert!(hold.is_held());
        assert!(!hold.enter(), "a lock that is about to go was entered");
    }

    #[tokio::test]
    async fn a_second_guard_keeps_the_hold() {
        let (_server, mutex) = mutex().await;
        let owner = Owner::new();
        let first = mutex.acquire_as(&owner).await.unwrap();
        let second = mutex.acquire_as(&owner).await.unwrap();
        first.release().await.unwrap();
        assert!(second.is_held() && mutex.is_owned_by(&owner));
    }
}
