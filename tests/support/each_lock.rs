//! Every exclusive lock, for rules that hold for all of them.

use std::sync::Arc;

use docent::{
    Client,
    locks::{
        InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
        InterProcessSemaphoreMutex, LockOptions,
    },
};

/// A lock, and its name for messages.
pub type Named = (&'static str, Arc<dyn InterProcessLock>);

/// One lock of each kind, at separate paths below `parent`.
pub fn each_lock(client: &Client, parent: &str, options: &LockOptions) -> Vec<Named> {
    let at = |name: &str| format!("{parent}/{name}");
    let mutex = |name: &str| {
        Arc::new(InterProcessMutex::with_options(client, &at(name), options.clone()).unwrap())
    };
    let semaphore_mutex = |name: &str| {
        let lock = InterProcessSemaphoreMutex::with_options(client, &at(name), options.clone());
        Arc::new(lock.unwrap())
    };
    let pair = InterProcessReadWriteLock::with_options(client, &at("pair"), options.clone());
    let parts: Vec<Arc<dyn InterProcessLock>> = vec![mutex("multi1"), semaphore_mutex("multi2")];
    vec![
        ("mutex", mutex("mutex")),
        ("semaphore mutex", semaphore_mutex("semaphore-mutex")),
        ("writer", Arc::new(pair.unwrap().write_lock().clone())),
        ("multi", Arc::new(InterProcessMultiLock::from_locks(parts))),
    ]
}
