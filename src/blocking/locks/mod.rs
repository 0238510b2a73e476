//! The locks: [`docent::recipes::locks`](crate::recipes::locks) with methods that wait.
//!
//! Options, [`Owner`](crate::Owner) and drivers are those of the async locks. A guard can be moved to another thread,
//! released and dropped there.

mod guard;
mod inter_process_lock;
mod mutex;
mod semaphore;

pub use guard::LockGuard;
pub use inter_process_lock::{InterProcessLock, InterProcessMultiLock};
pub use mutex::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, Revoker, StrictMutex,
};
pub use semaphore::InterProcessSemaphoreV2;
