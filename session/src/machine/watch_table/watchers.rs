//! The watchers of one path.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    kind::{PERSISTENT, WatchKind},
    mode::Mode,
};

/// The stage of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Its request is pending.
    Requested,
    /// The watch is set.
    Set,
}

/// The position of a watcher in [`Many`]: stage, kind, and a number in order of registration.
pub(super) type Place = (Stage, WatchKind, u64);

/// The watchers of one path: at least one. Nearly always exactly one, which needs no allocation beside the table's.
#[derive(Debug)]
pub(super) enum Watchers<W> {
    One(Stage, WatchKind, W),
    Many(Box<Many<W>>),
}

/// Two or more watchers of one path.
#[derive(Debug)]
pub(super) struct Many<W> {
    /// By stage and kind, then in order of registration.
    pub(super) in_order: BTreeMap<Place, W>,
    /// The position of each watcher in `in_order`.
    places: BTreeSet<(W, Stage, WatchKind, u64)>,
    next: u64,
}

impl<W: Clone + Ord> Many<W> {
    const fn new() -> Self {
        Self { in_order: BTreeMap::new(), places: BTreeSet::new(), next: 0 }
    }

    fn insert(&mut self, stage: Stage, kind: WatchKind, watcher: W) {
        let number = self.next;
        self.next += 1;
        self.places.insert((watcher.clone(), stage, kind, number));
        self.in_order.insert((stage, kind, number), watcher);
    }

    pub(super) fn find(&self, watcher: &W) -> Option<Place> {
        let from = (watcher.clone(), Stage::Requested, WatchKind::Data, 0);
        let (found, stage, kind, number) = self.places.range(from..).next()?;
        (found == watcher).then_some((*stage, *kind, *number))
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<W> {
        let watcher = self.in_order.remove(&place)?;
        let (stage, kind, number) = place;
        self.places.remove(&(watcher.clone(), stage, kind, number));
        Some(watcher)
    }

    fn of(&self, stage: Stage, kind: WatchKind) -> impl Iterator<Item = &W> {
        self.in_order.range((stage, kind, 0)..=(stage, kind, u64::MAX)).map(|(_, watcher)| watcher)
    }
}

impl<W: Clone + Ord> Watchers<W> {
    pub(super) fn insert(&mut self, stage: Stage, kind: WatchKind, watcher: W) {
        if let Self::One(..) = self
            && let Self::One(stage, kind, first) =
                std::mem::replace(self, Self::Many(Box::new(Many::new())))
        {
            self.insert(stage, kind, first);
        }
        if let Self::Many(many) = self {
            many.insert(stage, kind, watcher);
        }
    }

    /// The watchers of this stage and kind, in order of registration.
    pub(super) fn of(&self, stage: Stage, kind: WatchKind) -> impl Iterator<Item = &W> {
        let (one, many) = match self {
            Self::One(its_stage, its_kind, watcher) => {
                (Some(watcher).filter(|_| (*its_stage, *its_kind) == (stage, kind)), None)
            }
            Self::Many(many) => (None, Some(many.of(stage, kind))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(super) fn has(&self, stage: Stage, kind: WatchKind) -> bool {
        self.of(stage, kind).next().is_some()
    }

    /// The widest mode of the watchers that are set.
    pub(super) fn widest_set(&self) -> Mode {
        let has = |kind| self.has(Stage::Set, kind);
        let modes = PERSISTENT.map(|kind| if has(kind) { Mode::of(kind) } else { Mode::None });
        modes.into_iter().fold(Mode::None, Mode::or_wider)
    }
}
