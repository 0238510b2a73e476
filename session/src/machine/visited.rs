//! The collections of pending requests and of watches. Tests count the entries that a call visits.
//!
//! Every traversal goes through this module, so a call that begins to search all entries is noticed by a count, not by
//! a clock. Outside the machine's own tests, counting is nothing: the types are their collections.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    ops::RangeBounds,
    sync::Arc,
};

/// Counts visited entries; does nothing outside tests.
fn visit(_entries: usize) {
    #[cfg(test)]
    VISITED.with(|visited| visited.set(visited.get() + _entries));
}

#[cfg(test)]
thread_local! {
    static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Takes the number of entries that this thread has visited since the last call.
#[cfg(test)]
pub(super) fn take_visited() -> usize {
    VISITED.take()
}

/// A queue.
#[derive(Debug)]
pub(super) struct Queue<E>(VecDeque<E>);

impl<E> Queue<E> {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&E> {
        self.0.front()
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut E> {
        self.0.back_mut()
    }

    #[inline]
    pub(super) fn push_back(&mut self, entry: E) {
        self.0.push_back(entry);
    }

    pub(super) fn push_front(&mut self, entry: E) {
        self.0.push_front(entry);
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<E> {
        self.0.pop_front()
    }

    pub(super) fn get(&self, index: usize) -> Option<&E> {
        visit(1);
        self.0.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut E> {
        visit(1);
        self.0.get_mut(index)
    }

    /// As [`VecDeque::partition_point`].
    pub(super) fn partition_point(&self, mut is_before: impl FnMut(&E) -> bool) -> usize {
        self.0.partition_point(|entry| {
            visit(1);
            is_before(entry)
        })
    }

    /// Visits the entries of the smaller side, which move.
    pub(super) fn remove(&mut self, index: usize) -> Option<E> {
        visit(index.min(self.0.len().saturating_sub(index)));
        self.0.remove(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.0.iter().inspect(|_| visit(1))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.0.iter_mut().inspect(|_| visit(1))
    }

    pub(super) fn range(&self, range: impl RangeBounds<usize>) -> impl Iterator<Item = &E> {
        self.0.range(range).inspect(|_| visit(1))
    }

    /// Takes the entries of a range that begins at `from`. Visits the entries taken, and those of the smaller side, which
    /// move.
    pub(super) fn drain(&mut self, from: usize, to: usize) -> Vec<E> {
        visit((to - from) + from.min(self.0.len().saturating_sub(to)));
        self.0.drain(from..to).collect()
    }

    /// Visits the entries behind `at`, which move.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        visit(self.0.len().saturating_sub(at));
        Self(self.0.split_off(at))
    }

    pub(super) fn shrink_to(&mut self, entries: usize) {
        self.0.shrink_to(entries);
    }

    pub(super) fn into_inner(self) -> VecDeque<E> {
        self.0
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// A table by path.
#[derive(Debug)]
pub(super) struct Table<V>(HashMap<Arc<str>, V>);

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<V> Table<V> {
    #[cfg(test)]
    pub(super) fn with_capacity(paths: usize) -> Self {
        Self(HashMap::with_capacity(paths))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(super) fn get(&self, path: &str) -> Option<&V> {
        self.0.get(path)
    }

    pub(super) fn get_mut(&mut self, path: &str) -> Option<&mut V> {
        self.0.get_mut(path)
    }

    pub(super) fn get_key_value(&self, path: &str) -> Option<(&Arc<str>, &V)> {
        self.0.get_key_value(path)
    }

    pub(super) fn entry(&mut self, path: Arc<str>) -> hash_map::Entry<'_, Arc<str>, V> {
        self.0.entry(path)
    }

    pub(super) fn insert(&mut self, path: Arc<str>, value: V) -> Option<V> {
        self.0.insert(path, value)
    }

    pub(super) fn remove(&mut self, path: &str) -> Option<V> {
        self.0.remove(path)
    }

    pub(super) fn remove_entry(&mut self, path: &str) -> Option<(Arc<str>, V)> {
        self.0.remove_entry(path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.0.iter().inspect(|_| visit(1))
    }

    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&Arc<str>, &mut V) -> bool) {
        self.0.retain(|path, value| {
            visit(1);
            wanted(path, value)
        });
    }

    /// Visits all entries, which move.
    pub(super) fn shrink_to(&mut self, entries: usize) {
        visit(self.0.len());
        self.0.shrink_to(entries);
    }

    pub(super) fn into_inner(self) -> HashMap<Arc<str>, V> {
        self.0
    }
}
