//! Instances that have failed, and are left out for a while.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use docent_session::runtime::Instant;

/// When a failing instance is left out, and for which time.
///
/// Source: `DownInstancePolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownInstancePolicy {
    timeout: Duration,
    threshold: u32,
}

impl DownInstancePolicy {
    /// Leaves an instance out from the error with the number `threshold` until `timeout` after its first error. Errors
    /// before that count; those of an instance with other fields do not.
    #[must_use]
    pub const fn new(timeout: Duration, threshold: u32) -> Self {
        Self { timeout, threshold }
    }
}

impl Default for DownInstancePolicy {
    /// The second error within 30 s.
    fn default() -> Self {
        Self::new(Duration::from_secs(30), 2)
    }
}

/// The errors of instances.
///
/// Source: `DownInstanceManager`, which forgets errors up to half of the timeout late.
#[derive(Debug)]
pub(crate) struct DownInstances {
    policy: DownInstancePolicy,
    /// By id; then by all fields, as bytes.
    errors: Mutex<HashMap<String, HashMap<Vec<u8>, Errors>>>,
}

#[derive(Debug)]
struct Errors {
    first: Instant,
    count: u32,
}

impl DownInstances {
    pub(crate) fn new(policy: DownInstancePolicy) -> Self {
        Self { policy, errors: Mutex::default() }
    }

    /// Counts an error of an instance.
    pub(crate) fn note(&self, id: &str, fields: Vec<u8>, now: Instant) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.retain(|_, of_id| {
            of_id.retain(|_, errors| !self.is_over(errors, now));
            !of_id.is_empty()
        });
        let of_id = errors.entry(id.to_owned()).or_default();
        let errors = of_id.entry(fields).or_insert(Errors { first: now, count: 0 });
        errors.count = errors.count.saturating_add(1);
    }

    /// Whether an instance is left out. `fields` is called for an id with errors only, and without the lock: it is code of
    /// the application's.
    pub(crate) fn is_down(&self, id: &str, fields: impl FnOnce() -> Vec<u8>, now: Instant) -> bool {
        let lock = || self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if !lock().contains_key(id) {
            return false;
        }
        let fields = fields();
        lock().get(id).and_then(|of_id| of_id.get(&fields)).is_some_and(|errors| {
            errors.count >= self.policy.threshold && !self.is_over(errors, now)
        })
    }

    fn is_over(&self, errors: &Errors, now: Instant) -> bool {
        now.saturating_duration_since(errors.first) >= self.policy.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_duration(Duration::from_millis(millis))
    }

    /// Source: `TestDownInstanceManager`.
    // Case (Service discovery): failing instances are left out, and come back at their time.
    #[test]
    fn an_instance_is_down_from_the_threshold_to_the_timeout_of_its_first_error() {
        let down = DownInstances::new(DownInstancePolicy::new(Duration::from_secs(10), 2));
        let is_down = |fields: &[u8], millis| down.is_down("a", || fields.to_vec(), at(millis));
        down.note("a", b"1".to_vec(), at(1000));
        assert!(!is_down(b"1", 1000));
        down.note("a", b"1".to_vec(), at(9000));
        assert!(is_down(b"1", 9000) && is_down(b"1", 10_999));
        assert!(!is_down(b"2", 9000), "other fields");
        assert!(!down.is_down("b", || b"1".to_vec(), at(9000)), "another id");
        assert!(!is_down(b"1", 11_000));
        // Errors from before the timeout no longer count.
        down.note("a", b"1".to_vec(), at(11_000));
        assert!(!is_down(b"1", 11_000));
        down.note("a", b"1".to_vec(), at(11_001));
        assert!(is_down(b"1", 11_001));
        assert_eq!(down.errors.lock().unwrap().len(), 1);
        down.note("b", b"1".to_vec(), at(30_000));
        assert_eq!(down.errors.lock().unwrap().len(), 1, "forgotten");
    }

    /// An application's serializer runs without the lock held, and any number of errors can be counted.
    // Case (Found in docent itself): discovery: the errors of an instance overflowed, and its
    // serializer ran under a lock.
    #[test]
    fn an_instance_is_serialized_without_the_lock_and_its_errors_do_not_overflow() {
        let down = DownInstances::new(DownInstancePolicy::new(Duration::from_secs(10), 2));
        down.note("a", b"1".to_vec(), at(0));
        let fields = || {
            assert!(down.errors.try_lock().is_ok(), "locked");
            b"1".to_vec()
        };
        assert!(!down.is_down("a", fields, at(1)));
        let set = |count| {
            let mut errors = down.errors.lock().unwrap();
            errors.get_mut("a").unwrap().get_mut(&b"1"[..]).unwrap().count = count;
        };
        set(u32::MAX);
        down.note("a", b"1".to_vec(), at(1));
        assert!(down.is_down("a", fields, at(1)));
    }
}
