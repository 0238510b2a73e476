//! What the commands of searches share, this one and that of `threads`, which compiles this file too.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Calls `each` with all items, on all processors, and returns how often it was true.
///
/// # Panics
///
/// If `each` does.
pub fn in_parallel<T: Send>(items: Vec<T>, each: impl Fn(T) -> bool + Sync) -> usize {
    let (items, count) = (Mutex::new(items.into_iter()), AtomicUsize::new(0));
    let next = || items.lock().expect("no panic while it is locked").next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(item) = next() {
                    count.fetch_add(usize::from(each(item)), Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner()
}

/// A number with commas.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut groups: Vec<_> = digits.as_bytes().rchunks(3).map(String::from_utf8_lossy).collect();
    groups.reverse();
    groups.join(",")
}
