//! Curator's locks.
//!
//! Source: `org.apache.curator.framework.recipes.locks`.

mod guard;
mod inter_process_mutex;
pub mod lock_internals;
mod options;
mod owner;
pub mod standard_lock_internals_driver;

pub use guard::LockGuard;
pub use inter_process_mutex::InterProcessMutex;
pub use options::LockOptions;
pub use owner::Owner;
