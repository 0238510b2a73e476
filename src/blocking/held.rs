//! What is held through a session: the trait of guards and leaderships.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Transaction, leader::Leadership, locks::LockGuard};
use crate::{Error, Instant};

/// Something that is held through a session, and can be lost: a lock ([`LockGuard`]) or a leadership ([`Leadership`]).
///
/// As [`Held`](crate::Held).
pub trait Held: Send + Sync {
    /// Whether it is still held, as far as this process can know.
    fn is_held(&self) -> bool;

    /// Waits until it is lost.
    fn lost(&self) -> Result<(), Error>;

    /// As [`lost`](Self::lost), for at most `wait`; false if it is not lost by then.
    fn lost_timeout(&self, wait: Duration) -> Result<bool, Error>;

    /// A token that is cancelled when work under it has to stop.
    fn cancellation_token(&self) -> CancellationToken;

    /// A number that is greater for every later holder.
    fn fencing_token(&self) -> Result<i64, Error>;

    /// Begins a transaction that the server applies only while it is held.
    fn guarded(&self) -> Result<Transaction<'_>, Error>;

    /// The time until which no other client can hold it.
    fn proven_until(&self) -> Instant;

    /// The path of its node.
    fn path(&self) -> &str;

    /// The id of its session.
    fn session_id(&self) -> i64;
}

macro_rules! held {
    ($type:ident, $path:ident) => {
        impl Held for $type {
            fn is_held(&self) -> bool {
                self.is_held()
            }

            fn lost(&self) -> Result<(), Error> {
                self.lost()
            }

            fn lost_timeout(&self, wait: Duration) -> Result<bool, Error> {
                self.lost_timeout(wait)
            }

            fn cancellation_token(&self) -> CancellationToken {
                self.cancellation_token()
            }

            fn fencing_token(&self) -> Result<i64, Error> {
                self.fencing_token()
            }

            fn guarded(&self) -> Result<Transaction<'_>, Error> {
                self.guarded()
            }

            fn proven_until(&self) -> Instant {
                self.proven_until()
            }

            fn path(&self) -> &str {
                self.$path()
            }

            fn session_id(&self) -> i64 {
                self.session_id()
            }
        }
    };
}

held!(LockGuard, lock_path);
held!(Leadership, path);
