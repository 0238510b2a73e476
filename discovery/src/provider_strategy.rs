//! Which of several instances is used.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use docent_session::Client;
use serde_json::Value;

use crate::ServiceInstance;

/// Picks one of the instances that can be used.
///
/// Source: `ProviderStrategy`, which reads the list by an `InstanceProvider`.
pub trait ProviderStrategy<T>: Send + Sync + 'static {
    /// One of the instances; `None` if there are none. They are in the order of the names of their nodes.
    fn instance(&self, instances: &[Arc<ServiceInstance<T>>]) -> Option<Arc<ServiceInstance<T>>>;
}

/// Uses the instances in turn.
///
/// Source: `RoundRobinStrategy`.
#[derive(Debug, Default)]
pub struct RoundRobinStrategy {
    next: AtomicUsize,
}

impl RoundRobinStrategy {
    /// Begins with the first instance.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<T> ProviderStrategy<T> for RoundRobinStrategy {
    fn instance(&self, instances: &[Arc<ServiceInstance<T>>]) -> Option<Arc<ServiceInstance<T>>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        instances.get(number.checked_rem(instances.len())?).cloned()
    }
}

/// Uses an instance at random.
///
/// Source: `RandomStrategy`.
#[derive(Debug)]
pub struct RandomStrategy {
    state: AtomicU64,
}

impl RandomStrategy {
    /// With a seed from the randomness of the client's runtime.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let mut seed = [0; 8];
        if !client.runtime().fill_random(&mut seed) {
            seed = client.clock().now().as_nanos().to_le_bytes();
        }
        Self::with_seed(u64::from_le_bytes(seed))
    }

    /// With a seed, which determines the picks.
    #[must_use]
    pub const fn with_seed(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// The generator SplitMix64.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl<T> ProviderStrategy<T> for RandomStrategy {
    fn instance(&self, instances: &[Arc<ServiceInstance<T>>]) -> Option<Arc<ServiceInstance<T>>> {
        let len = u64::try_from(instances.len()).ok()?;
        let number = self.random().checked_rem(len)?;
        instances.get(usize::try_from(number).ok()?).cloned()
    }
}

/// Uses the same instance as long as there is one that equals it, then another.
///
/// Source: `StickyStrategy`.
pub struct StickyStrategy<T = Value> {
    master: Box<dyn ProviderStrategy<T>>,
    ours: Mutex<Option<Arc<ServiceInstance<T>>>>,
}

impl<T> StickyStrategy<T> {
    /// `master` picks the instance, and another one when that is gone.
    #[must_use]
    pub fn new(master: impl ProviderStrategy<T>) -> Self {
        Self { master: Box::new(master), ours: Mutex::default() }
    }
}

impl<T: PartialEq + Send + Sync + 'static> ProviderStrategy<T> for StickyStrategy<T> {
    fn instance(&self, instances: &[Arc<ServiceInstance<T>>]) -> Option<Arc<ServiceInstance<T>>> {
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |ours: &Arc<ServiceInstance<T>>| {
            instances.iter().any(|instance| Arc::ptr_eq(instance, ours) || instance == ours)
        };
        if !ours.as_ref().is_some_and(is_there) {
            *ours = self.master.instance(instances);
        }
        ours.clone()
    }
}

impl<T> std::fmt::Debug for StickyStrategy<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StickyStrategy").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instances(ids: &[&str]) -> Vec<Arc<ServiceInstance>> {
        let instance = |id: &&str| ServiceInstance::new("web", id).with_registration_time_utc(1);
        ids.iter().map(|id| Arc::new(instance(id))).collect()
    }

    fn picks(strategy: &dyn ProviderStrategy<Value>, ids: &[&str], count: usize) -> String {
        let instances = instances(ids);
        (0..count).map(|_| strategy.instance(&instances).unwrap().id().to_owned()).collect()
    }

    /// Source: `TestStrategies.testRoundRobin`.
    #[test]
    fn instances_are_used_in_turn() {
        let strategy = RoundRobinStrategy::new();
        assert_eq!(picks(&strategy, &["a", "b", "c"], 7), "abcabca");
        assert!(strategy.instance(&instances(&[])).is_none());
        // Curator's counter becomes negative after 2^31 picks, and its smallest value has no absolute value.
        let strategy = RoundRobinStrategy { next: AtomicUsize::new(usize::MAX) };
        assert_eq!(picks(&strategy, &["a", "b"], 3), "bab");
    }

    /// Source: `TestStrategies.testRandom`.
    #[test]
    fn instances_are_used_at_random() {
        let strategy = RandomStrategy::with_seed(7);
        let picked = picks(&strategy, &["a", "b", "c"], 30_000);
        for id in ['a', 'b', 'c'] {
            let count = picked.chars().filter(|picked| *picked == id).count();
            assert!((9_500..10_500).contains(&count), "{id}: {count}");
        }
        assert_eq!(picks(&RandomStrategy::with_seed(7), &["a", "b", "c"], 50), picked[..50]);
        assert!(strategy.instance(&instances(&[])).is_none());
    }

    /// Source: `TestStrategies.testSticky`.
    #[test]
    fn the_same_instance_is_used_while_it_is_there() {
        let strategy = StickyStrategy::new(RoundRobinStrategy::new());
        assert!(strategy.instance(&instances(&[])).is_none());
        assert_eq!(picks(&strategy, &["a", "b"], 3), "bbb");
        assert_eq!(picks(&strategy, &["a", "b", "c"], 3), "bbb");
        assert_eq!(picks(&strategy, &["a", "c"], 2), "aa");
        assert!(strategy.instance(&instances(&[])).is_none());
        // Registered again with other fields, it is another instance.
        let strategy = StickyStrategy::new(RoundRobinStrategy::new());
        let one = instances(&["a"]);
        assert_eq!(strategy.instance(&one), Some(Arc::clone(&one[0])));
        let other = [Arc::new(ServiceInstance::clone(&one[0]).with_port(9))];
        assert_eq!(strategy.instance(&other).unwrap().port(), Some(9));
    }
}
