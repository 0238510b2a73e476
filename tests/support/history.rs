//! The holds of locks, as their clients report them, and whether they obey the rules: mutual exclusion and
//! growing fencing tokens.
//!
//! A hold is recorded from the moment its *answer* arrived to the moment before its release was *requested*. That is
//! never longer than the hold itself, so two holds that overlap here did overlap.

use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

/// Which other holds may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: a mutex, a write lock.
    Exclusive,
    /// Others like it: a read lock, a lease of a semaphore.
    Shared,
}

/// One hold of one lock.
#[derive(Debug, Clone)]
pub struct Hold {
    pub path: String,
    pub holder: String,
    pub mode: Mode,
    /// The fencing token, if the test has read it.
    pub token: Option<i64>,
    pub acquired: Instant,
    /// `None`: never released while the history was written.
    pub releasing: Option<Instant>,
}

/// All holds of a test, in the order in which they were recorded.
#[derive(Debug)]
pub struct History {
    start: Instant,
    holds: Mutex<Vec<Hold>>,
}

/// The hold that a call of [`History::acquired`] recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldId(usize);

impl History {
    #[expect(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Self {
        Self { start: Instant::now(), holds: Mutex::new(Vec::new()) }
    }

    /// An exclusive hold, with the time at which the answer to its acquire arrived.
    pub fn acquired(&self, path: &str, holder: &str, at: Instant) -> HoldId {
        self.record(Hold {
            path: path.to_owned(),
            holder: holder.to_owned(),
            mode: Mode::Exclusive,
            token: None,
            acquired: at,
            releasing: None,
        })
    }

    /// A shared hold.
    pub fn acquired_shared(&self, path: &str, holder: &str, at: Instant) -> HoldId {
        let id = self.acquired(path, holder, at);
        self.change(id, |hold| hold.mode = Mode::Shared);
        id
    }

    /// The hold's fencing token.
    pub fn token(&self, id: HoldId, token: i64) {
        self.change(id, |hold| hold.token = Some(token));
    }

    /// To be called just before the release is sent, or when the loss of the hold was reported.
    pub fn releasing(&self, id: HoldId) {
        let now = Instant::now();
        self.change(id, |hold| hold.releasing = Some(now));
    }

    /// Records a whole hold.
    pub fn record(&self, hold: Hold) -> HoldId {
        let mut holds = self.holds.lock().unwrap();
        holds.push(hold);
        HoldId(holds.len() - 1)
    }

    /// The number of holds.
    pub fn count(&self) -> usize {
        self.holds.lock().unwrap().len()
    }

    /// Every way in which the history breaks the rules of mutexes and read/write locks.
    ///
    /// * Holds of one path by two holders overlap only if both are shared. (One holder may
    ///   re-enter, and hold a write lock and a read lock at once.)
    /// * If a hold ended before another began, and one of the two is exclusive, then its token is
    ///   the smaller one. Two shared holds say nothing about each other: their answers may cross.
    pub fn violations(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        for lock in self.by_path() {
            for (index, first) in lock.iter().enumerate() {
                for second in &lock[index + 1..] {
                    violations.extend(self.violation(first, second));
                }
            }
        }
        violations
    }

    /// Every moment at which more than `limit` holders had the semaphore of a path.
    pub fn violations_of_semaphore(&self, limit: usize) -> Vec<Violation> {
        let mut violations = Vec::new();
        for semaphore in self.by_path() {
            for last in &semaphore {
                // The number of holds only grows when one begins.
                let at = last.acquired;
                let holds = semaphore.iter().filter(|hold| hold.covers(at)).count();
                if holds > limit {
                    let text = format!("{holds} holds at once, {limit} allowed, since this one");
                    violations.push(Violation(format!("{text}:\n  {}", self.describe(last))));
                }
            }
        }
        violations
    }

    /// Panics with every violation of [`History::violations`].
    #[track_caller]
    pub fn assert_exclusive(&self) {
        self.assert_none(&self.violations());
    }

    /// Panics with every violation of [`History::violations_of_semaphore`].
    #[track_caller]
    pub fn assert_at_most(&self, limit: usize) {
        self.assert_none(&self.violations_of_semaphore(limit));
    }

    #[track_caller]
    fn assert_none(&self, violations: &[Violation]) {
        let text: Vec<_> = violations.iter().map(ToString::to_string).collect();
        let (count, holds) = (violations.len(), self.count());
        assert!(violations.is_empty(), "{count} violations in {holds} holds:\n{}", text.join("\n"));
    }

    fn change(&self, id: HoldId, change: impl FnOnce(&mut Hold)) {
        change(&mut self.holds.lock().unwrap()[id.0]);
    }

    /// The holds of each path, by the time they began.
    fn by_path(&self) -> Vec<Vec<Hold>> {
        let mut holds = self.holds.lock().unwrap().clone();
        holds.sort_by(|a, b| a.path.cmp(&b.path).then(a.acquired.cmp(&b.acquired)));
        holds.chunk_by(|a, b| a.path == b.path).map(<[Hold]>::to_vec).collect()
    }

    /// The violation of two holds of one path, of which `first` began first.
    fn violation(&self, first: &Hold, second: &Hold) -> Option<Violation> {
        if first.mode == Mode::Shared && second.mode == Mode::Shared {
            return None;
        }
        let rule = if first.covers(second.acquired) {
            (first.holder != second.holder).then_some("two holders at once")?
        } else {
            let (first, second) = (first.token?, second.token?);
            (first >= second).then_some("a later hold with a token that is not greater")?
        };
        let (first, second) = (self.describe(first), self.describe(second));
        Some(Violation(format!("{rule}:\n  {first}\n  {second}")))
    }

    fn describe(&self, hold: &Hold) -> String {
        let since_start = |at: Instant| at.saturating_duration_since(self.start).as_micros();
        let end = hold.releasing.map_or_else(
            || "never released".to_owned(),
            |at| format!("until {} us", since_start(at)),
        );
        let token =
            hold.token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
        let Hold { path, holder, mode, .. } = hold;
        let acquired = since_start(hold.acquired);
        format!("{path} by {holder} ({mode:?}, {token}) from {acquired} us {end}")
    }
}

impl Hold {
    /// Whether it was held at that moment. The end is excluded: the next hold may begin there.
    fn covers(&self, at: Instant) -> bool {
        self.acquired <= at && self.releasing.is_none_or(|end| at < end)
    }
}

/// A broken rule, with the holds that break it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
