//! Curator's locks: mutexes, a read-write lock, a semaphore, and several locks as one; and [`StrictMutex`], which
//! Curator does not have.
//!
//! Source: `org.apache.curator.framework.recipes.locks`.

mod guard;
pub(crate) mod hold;
pub(crate) mod holds;
mod inter_process_lock;
mod inter_process_multi_lock;
mod inter_process_mutex;
mod inter_process_read_write_lock;
mod inter_process_semaphore_mutex;
mod inter_process_semaphore_v2;
pub mod lease;
pub mod lock_internals;
mod lock_internals_driver;
pub(crate) mod node_watch;
mod owner;
mod owners;
pub(crate) mod renewal;
mod revocation;
pub mod standard_lock_internals_driver;
mod strict;
mod watcher_removal;

pub use crate::{
    cancellation_token::CancellationToken,
    held::{Held, HeldFuture},
    options::LockOptions,
};
pub use guard::LockGuard;
pub use inter_process_lock::{InterProcessLock, LockFuture};
pub use inter_process_multi_lock::InterProcessMultiLock;
pub use inter_process_mutex::InterProcessMutex;
pub use inter_process_read_write_lock::{InterProcessReadWriteLock, sorted_readers_and_writers};
pub use inter_process_semaphore_mutex::InterProcessSemaphoreMutex;
pub use inter_process_semaphore_v2::InterProcessSemaphoreV2;
pub use lock_internals_driver::{LockInternalsDriver, LockNode, StandardLockInternalsDriver};
pub use owner::Owner;
pub use revocation::{REVOKE_MESSAGE, Revoker};
pub use strict::StrictMutex;
