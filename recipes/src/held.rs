//! The trait of everything that is held through a session.

use std::{future::Future, pin::Pin};

use docent_session::{Transaction, runtime::Instant};

use crate::{
    Error,
    leader::Leadership,
    locks::{CancellationToken, LockGuard},
};

/// The boxed future of [`Held`]'s methods.
pub type HeldFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that is held through a session, and can be lost: a lock ([`LockGuard`]) or a leadership ([`Leadership`]).
///
/// For code that works under either. Both types have these methods themselves, with the same names and meanings, and
/// document them.
pub trait Held: Send + Sync {
    /// Whether it is still held, as far as this process can know, computed from the clock. Once false, it stays false.
    fn is_held(&self) -> bool;

    /// Waits until [`is_held`](Self::is_held) is false.
    fn lost(&self) -> HeldFuture<'_, ()>;

    /// A token that is cancelled when work has to stop.
    fn cancellation_token(&self) -> CancellationToken;

    /// The time until which no other client can hold it, whatever happens to servers and network.
    fn proven_until(&self) -> Instant;

    /// A number that is greater for every later holder.
    fn fencing_token(&self) -> HeldFuture<'_, Result<i64, Error>>;

    /// Begins a transaction that the server applies only while it is ours.
    ///
    /// # Errors
    ///
    /// [`LockLost`](crate::ErrorKind::LockLost) when it is known to be lost.
    fn guarded(&self) -> Result<Transaction<'_>, Error>;

    /// The path of the node on which it rests.
    fn path(&self) -> &str;

    /// The id of the session that holds it.
    fn session_id(&self) -> i64;
}

macro_rules! held {
    ($type:ty) => {
        impl Held for $type {
            fn is_held(&self) -> bool {
                Self::is_held(self)
            }

            fn lost(&self) -> HeldFuture<'_, ()> {
                Box::pin(Self::lost(self))
            }

            fn cancellation_token(&self) -> CancellationToken {
                Self::cancellation_token(self)
            }

            fn proven_until(&self) -> Instant {
                Self::proven_until(self)
            }

            fn fencing_token(&self) -> HeldFuture<'_, Result<i64, Error>> {
                Box::pin(Self::fencing_token(self))
            }

            fn guarded(&self) -> Result<Transaction<'_>, Error> {
                Self::guarded(self)
            }

            fn path(&self) -> &str {
                Self::path(self)
            }

            fn session_id(&self) -> i64 {
                Self::session_id(self)
            }
        }
    };
}

held!(LockGuard);
held!(Leadership);
