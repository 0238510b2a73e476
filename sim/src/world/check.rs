//! Checks: a view of the world in, findings out.

use std::{
    any::Any,
    ops::Deref,
    sync::{Mutex, MutexGuard},
};

use bytes::Bytes;
use docent::{Client, Stat, runtime::Instant};

use super::{
    core::Core,
    history::{Bounds, What},
    lock::lock,
    process::Death,
    time::{Nanos, Pid, nanos},
};

/// A rule that must hold in a run, with the state that it needs.
///
/// Steps report to a check by `World::check`. A check may call the docent objects that it keeps, such as
/// `LockGuard::is_held`, but not while it holds a lock of the [`View`]: they may start tasks.
pub trait Check: Send + 'static {
    /// Looks at the world. It is called whenever time is about to go on.
    fn look(&mut self, _view: &View<'_>, _found: &mut Findings) {}

    /// Forgets a process that ends. Returns the docent objects that it kept of the process: they are dropped with its
    /// tasks, while nothing is locked.
    fn process_ends(&mut self, _pid: Pid, _death: Death) -> Leftovers {
        Box::new(())
    }

    /// Judges the run, after its end.
    fn finish(&mut self, _view: &View<'_>, _found: &mut Findings) {}
}

/// The objects that a check kept of a process.
pub type Leftovers = Box<dyn Any + Send>;

/// The checks of a run.
#[derive(Default)]
pub struct Checks(Vec<Box<dyn Shared>>);

impl Checks {
    /// Adds a check; a run has one of each type.
    #[must_use]
    pub fn with(mut self, check: impl Check) -> Self {
        self.0.push(Box::new(Mutex::new(check)));
        self
    }

    /// The check of a type.
    ///
    /// # Panics
    ///
    /// The run has none.
    pub(super) fn get<C: Check>(&self) -> MutexGuard<'_, C> {
        let mut all = self.0.iter().map(|check| &**check as &dyn Any);
        lock(all.find_map(|check| check.downcast_ref::<Mutex<C>>()).expect("a check of the run"))
    }

    pub(super) fn look(&self, view: &View<'_>) -> Findings {
        let mut found = Findings::default();
        self.0.iter().for_each(|check| check.look(view, &mut found));
        found
    }

    pub(super) fn process_ends(&self, pid: Pid, death: Death) -> Vec<Leftovers> {
        self.0.iter().map(|check| check.process_ends(pid, death)).collect()
    }

    pub(super) fn finish(&self, view: &View<'_>) -> Findings {
        let mut found = Findings::default();
        self.0.iter().for_each(|check| check.finish(view, &mut found));
        found
    }
}

/// A check, locked for each call.
trait Shared: Any + Send + Sync {
    fn look(&self, view: &View<'_>, found: &mut Findings);
    fn process_ends(&self, pid: Pid, death: Death) -> Leftovers;
    fn finish(&self, view: &View<'_>, found: &mut Findings);
}

impl<C: Check> Shared for Mutex<C> {
    fn look(&self, view: &View<'_>, found: &mut Findings) {
        lock(self).look(view, found);
    }

    fn process_ends(&self, pid: Pid, death: Death) -> Leftovers {
        lock(self).process_ends(pid, death)
    }

    fn finish(&self, view: &View<'_>, found: &mut Findings) {
        lock(self).finish(view, found);
    }
}

/// The findings of a check.
#[derive(Debug, Default)]
pub struct Findings(pub(super) Vec<What>);

impl Findings {
    /// Reports a broken rule.
    pub fn violation(&mut self, text: impl Into<String>) {
        self.0.push(What::Violation(text.into()));
    }

    /// Counts an effect that no client can exclude, with its excuse.
    pub fn counted(&mut self, excuse: &'static str, text: impl Into<String>) {
        self.0.push(What::Counted { excuse, text: text.into() });
    }

    /// Records what a process believes of the hold of a lock node; `None`: the belief has ended.
    pub fn belief(&mut self, pid: Pid, path: impl Into<String>, until: Option<Bounds>) {
        self.0.push(What::Belief { pid, path: path.into(), until });
    }

    pub(crate) fn push(&mut self, what: What) {
        self.0.push(what);
    }
}

/// A view of the world: time, processes, and the servers with all changes that they have applied.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The true time.
    pub now: Nanos,
    core: &'a Mutex<Core>,
}

impl<'a> View<'a> {
    pub(super) const fn new(now: Nanos, core: &'a Mutex<Core>) -> Self {
        Self { now, core }
    }

    /// The state of the world, locked until the result is dropped.
    pub(crate) fn core(&self) -> Seen<'a> {
        Seen(lock(self.core))
    }

    /// A node as the newest member of the ensemble has it.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<(Bytes, Stat)> {
        self.core().ensemble().node(path)
    }

    /// Whether a process runs: it has not ended, and is not suspended.
    #[must_use]
    pub fn is_running(&self, pid: Pid) -> bool {
        self.core().process(pid).is_running()
    }

    /// The true time at which the clock of a client will show this, if its rate is right; 0 if it has shown it.
    #[must_use]
    pub fn true_time(&self, client: &Client, at: Instant) -> Nanos {
        let left = at.checked_duration_since(client.now());
        left.map_or(0, |left| self.now.saturating_add(nanos(left)))
    }

    /// Whether all faults are over.
    #[must_use]
    pub fn is_peace(&self) -> bool {
        self.now >= self.core().disturbances.peace_at
    }
}

/// Read access to the state of the world.
pub(crate) struct Seen<'a>(MutexGuard<'a, Core>);

impl Deref for Seen<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}
