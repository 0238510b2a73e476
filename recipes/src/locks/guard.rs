//! The guard of a held lock.

use std::{fmt, sync::Arc};

use docent_session::{Transaction, runtime::Instant};

use super::{hold::Hold, holds::Holds};
use crate::{Error, locks::CancellationToken};

/// A held lock of any kind: a mutex, a read or write lock, a lease of a semaphore, or several locks at once.
///
/// [`release`](Self::release) releases it and returns the result. Dropping it releases it in the background, on any
/// thread, inside or outside a runtime: the drop itself queues the request.
///
/// # What a guard guarantees
///
/// A ZooKeeper lock is a node that is deleted with its session, and only the servers know whether the session is
/// alive. So [`is_held`](Self::is_held) is computed from the clock at each call, and stays false once it was false.
/// It is best effort: it can be wrong when a process is stopped between the check and the action, when a request is
/// delayed in the network, or when the holder's server is partitioned from the ensemble.
/// [`proven_until`](Self::proven_until) is sound, and ends about one session timeout after the creation of the session
/// unless it is [renewed](super::LockOptions::with_proven_renewal).
///
/// A lock node can also be deleted while its session is alive, with zkCli for example: the next contender then acquires
/// the lock. A guard notices that only if it was asked to: the first call of [`lost`](Self::lost) or
/// [`cancellation_token`](Self::cancellation_token) sets a watch on the lock node. Without such a call, nothing is sent
/// that Curator does not send.
///
/// The [`fencing_token`](Self::fencing_token) protects the *effects* of a holder: send it to the resource with every
/// write, and let the resource reject tokens smaller than the greatest it has seen.
///
/// # Blocking code under a lock
///
/// The client is a task of its runtime: it sends pings and notices losses only while it is polled. On a
/// `current_thread` runtime, code that blocks (a computation, `std::fs`, `std::thread::sleep`) stops the client too.
/// If it blocks for longer than the session timeout, the session expires and the lock is lost. On every runtime it stops
/// the branch of a `select!` that waits for [`lost`](Self::lost). Run such code in tokio's `spawn_blocking`, and let it
/// call [`is_held`](Self::is_held) between its parts: that needs no runtime.
///
/// # Several locks at once
///
/// The guard of an [`InterProcessMultiLock`](super::InterProcessMultiLock) is held while all of its locks are held.
/// [`path`](Self::path) and [`fencing_token`](Self::fencing_token) are those of the first lock: a holder of
/// all locks holds that one, so its token increases from holder to holder.
///
/// # Example
///
/// ```
/// use docent::{Client, InterProcessMutex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = Client::connect(&server.connect_string()).await?;
/// # async fn print_a_page(_token: i64) {}
/// let guard = InterProcessMutex::new(&client, "/locks/printer")?.acquire().await?;
/// let token = guard.fencing_token().await?;
/// tokio::select! {
///     () = print_a_page(token) => {}
///     () = guard.lost() => println!("the lock was lost: the page may be printed twice"),
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: for a semaphore, Curator's `Lease`; for the others, `Locker`.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    /// Empty after the release.
    holds: Holds,
}

impl LockGuard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { holds: Holds::one(hold) }
    }

    /// Another guard of a hold; `None` if its last guard is being released.
    pub(crate) fn reenter(hold: &Arc<Hold>) -> Option<Self> {
        hold.add_guard().then(|| Self::new(Arc::clone(hold)))
    }

    /// A guard without locks.
    pub(crate) fn empty() -> Self {
        Self { holds: Holds::default() }
    }

    /// Its holds, for another handle on them. The guard alone releases them.
    pub(crate) fn holds(&self) -> &[Arc<Hold>] {
        self.holds.all()
    }

    /// Moves the locks of another guard behind its own.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.holds.append(&mut other.holds);
    }

    /// Releases the lock, if this is the last guard of its owner: deletes the lock node, with retries. Sends
    /// checkWatches (17) for each node that the lock object watches, and delete (2). Several locks are released one
    /// after the other, the last one first.
    ///
    /// # Errors
    ///
    /// When a node could not be deleted: the background then repeats the delete until it succeeds or the client is
    /// closed. The lock is no longer held in any case (CURATOR-486). A missing node is no error: nothing is sent to
    /// delete a node that is known to be deleted, since another client may have created one in its place. Of several locks all
    /// are released, and the first error is returned.
    ///
    /// # Cancel safety
    ///
    /// The lock is no longer held after the first poll; if the future is dropped, the background deletes the node.
    ///
    /// Source: `InterProcessMutex.release`, `LockInternals.releaseLock`, `Lease.close`,
    /// `InterProcessMultiLock.release`.
    pub async fn release(mut self) -> Result<(), Error> {
        let mut ended = EndedHolds(self.end());
        let mut result = Ok(());
        while let Some(hold) = ended.0.pop() {
            let released = hold.release().await;
            if result.is_ok() {
                result = released;
            }
        }
        result
    }

    /// Cancels the tokens, and ends and returns the holds of which this was the last guard.
    fn end(&mut self) -> Vec<Arc<Hold>> {
        // Cancelled first: work under the lock stops before another owner can acquire it.
        self.holds.cancel();
        let mut ended = self.holds.take();
        ended.retain(|hold| hold.remove_guard());
        for hold in ended.iter().rev() {
            hold.end();
        }
        ended
    }

    /// Whether the lock is still held, as far as this process can know: it was not released, its session is not
    /// known to be lost, the last answered request is recent enough, and the lock node is not known to be deleted. Once
    /// false, it stays false. Sends nothing.
    ///
    /// Best effort: see [above](Self#what-a-guard-guarantees), and [`SessionLease`](docent_session::session::SessionLease).
    ///
    /// **Without a watch, a deletion of the lock node by another client is not seen: this stays true.** The watch is set
    /// by [`lost`](Self::lost), by [`cancellation_token`](Self::cancellation_token), and by the acquire of a
    /// [revocable](super::InterProcessMutex::make_revocable) lock. With a watch, this is false once its event has
    /// arrived. [`fencing_token`](Self::fencing_token) and [`guarded`](Self::guarded) send requests that the server
    /// refuses after a deletion.
    ///
    /// Source: `InterProcessMutex.isAcquiredInThisProcess`, which ignores the loss of the session.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.is_held()
    }

    /// The path of the first lock node that is no longer held.
    pub(crate) fn first_lost(&self) -> Option<&str> {
        self.holds.first_lost()
    }

    /// The time until which no other client can acquire the lock, whatever happens to servers and network, on the
    /// clock of [`Client::now`](docent_session::Client::now).
    ///
    /// Without [`with_proven_renewal`](super::LockOptions::with_proven_renewal), it ends about one session timeout after
    /// the session was created, unless another hold of the client renews it. A bound that has passed never lies ahead
    /// again for this guard: stop before it, and compare the time *after* each step that can block. Of a
    /// [`StrictMutex`](super::StrictMutex), it is the end of the hold, and is renewed always. [`Instant::ZERO`] once the
    /// lock node is known to be deleted.
    ///
    /// It is sound under these assumptions: the rates of the clocks of this process and of the servers differ by less than
    /// 1 %; this clock counts the time of a suspension (the [default clock](docent_session::runtime::Clock::system) does; that of a
    /// frozen virtual machine does not); all servers grant the same session timeout; the servers keep all writes that a majority
    /// has acknowledged; no other client deletes the node, or closes the session. It bounds what this process assumes,
    /// not the arrival of its requests: only a [`fencing_token`](Self::fencing_token) stops a late write.
    #[must_use]
    pub fn proven_until(&self) -> Instant {
        self.holds.proven_until()
    }

    /// Waits until [`is_held`](Self::is_held) is false.
    ///
    /// Its first poll sets a watch on the lock node, unless there is one: it sends getData (4) with watch, once for each
    /// lock of the guard, and again after each write to the node. Guards of one [`Owner`](super::Owner) share it. A read
    /// that fails is repeated after 100 ms to 5 s. The watch survives reconnects.
    ///
    /// **What it sees:** the end of the session, by a server's word or by the clock; the deletion of the lock node by
    /// another client, also before the watch was set, while the connection was broken, and when a node was created in
    /// its place.
    ///
    /// **What it cannot see:** a deletion while there is no connection (until the reconnect), on a server that lags
    /// (until it has applied the deletion), and while the server refuses to read the lock node (`NoAuth`). Between the
    /// deletion and its event, another client can acquire the lock: only [`guarded`](Self::guarded) writes and the
    /// [`fencing_token`](Self::fencing_token) protect against that.
    ///
    /// Can be polled anywhere, also outside a runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. The watch stays until the end of the hold.
    pub async fn lost(&self) {
        self.holds.lost().await;
    }

    /// As [`lost`](Self::lost), without a watch on the lock node: sends nothing.
    pub(crate) async fn ended(&self) {
        self.holds.ended().await;
    }

    /// A token that is cancelled when work under the lock has to stop: when the lock is lost, and when this guard is
    /// released or dropped, before the delete is sent. Only the end of the guard or of its hold cancels it. It does not
    /// distinguish a loss from a release.
    ///
    /// Each guard has its own token: with several guards of one [`Owner`](super::Owner), a release cancels the token
    /// of the released guard.
    ///
    /// From the first call on, a task of the client's runtime waits for the loss. The end of the guard cancels the
    /// token without that task. The first call also sets the watch of [`lost`](Self::lost), and sends getData (4) for
    /// it in the call itself.
    ///
    /// **The token is cancelled for every loss that [`lost`](Self::lost) sees, and for no other:** its documentation
    /// lists both.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.holds.cancellation_token()
    }

    /// A number that is greater for every later holder of this lock: the `czxid` of the lock node.
    ///
    /// It is known from the reply to the create. If that was lost, or the server has no create2, the first call sends
    /// exists (3). The tokens of a semaphore's leases are distinct, but in no order. Readers that hold the lock at the
    /// same time may acquire it in another order than that of their tokens. A reader that downgraded has the token of its
    /// write lock: its own node is younger than those of the contenders that waited meanwhile.
    ///
    /// # Errors
    ///
    /// [`LockLost`](crate::ErrorKind::LockLost) when the node is missing, which ends the hold, and those of the session.
    /// Also when a reader downgraded, and the token of its write lock was unknown when that was released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn fencing_token(&self) -> Result<i64, Error> {
        self.holds.fencing_token().await
    }

    /// Begins a transaction that the server applies only while the lock is ours: it first checks that each of our lock
    /// nodes exists, atomically with the added operations. So writes to ZooKeeper itself are safe without a fencing
    /// token, however late they arrive. `commit` sends multi (14) with a check (13) as its first operation.
    ///
    /// # Errors
    ///
    /// [`LockLost`](crate::ErrorKind::LockLost) when the lock is known to be lost. When only the server knows, the commit fails with
    /// `NoNode` and the index of the check, which is 0 for a guard of one lock.
    ///
    /// With several locks, the transaction belongs to the client of the first lock: paths of added operations are that
    /// client's. The other lock nodes are checked at the paths of their own clients, in the same ensemble.
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
    /// Curator has no equivalent.
    pub fn guarded(&self) -> Result<Transaction<'_>, Error> {
        self.holds.guarded()
    }

    /// The path of the lock node.
    ///
    /// Source: `InterProcessMutex.getLockPath`, `Lease.getNodeName`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.holds.path()
    }

    /// The paths of all lock nodes, in the order in which they were acquired.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.holds.paths()
    }

    /// The id of the session that holds the lock.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.holds.session_id()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        drop(EndedHolds(self.end()));
    }
}

/// Holds that have ended. Dropping them deletes their nodes in the background, the last one first.
struct EndedHolds(Vec<Arc<Hold>>);

impl Drop for EndedHolds {
    fn drop(&mut self) {
        for hold in self.0.drain(..).rev() {
            hold.release_in_background();
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("paths", &self.paths().collect::<Vec<_>>())
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

    /// Between the end of the last guard and the delete, an owner on another thread must not re-enter the hold.
    #[tokio::test]
    async fn a_hold_that_is_being_released_is_not_entered_again() {
        let (_server, mutex) = mutex().await;
        let mut guard = mutex.acquire().await.unwrap();
        let hold = guard.holds.take().pop().unwrap();
        assert!(hold.remove_guard(), "the last guard");
        // The releasing thread could be interrupted here, before it marks the hold as ended.
        assert!(hold.is_held());
        assert!(!hold.add_guard(), "a hold that is being released was entered");
    }

    // Case (What broke other clients): two holders by a cloned lock.
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
