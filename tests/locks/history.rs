//! The holds of a lock, as its clients report them, and whether they obey the rules: mutual exclusion and growing
//! fencing tokens.
//!
//! A hold is recorded from the arrival of the reply to its acquire until just before its release is sent. That is never
//! longer than the hold itself, so two holds that overlap here did overlap.

use super::*;

/// Which other holds may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// None: a mutex, a write lock.
    Exclusive,
    /// Other shared ones: a read lock, a lease of a semaphore.
    Shared,
}

#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) holder: String,
    pub(crate) mode: Mode,
    /// The fencing token, if the test has read it.
    pub(crate) token: Option<i64>,
    pub(crate) acquired: Instant,
    /// Just before the release was sent.
    pub(crate) releasing: Instant,
}

impl Hold {
    /// The next hold may begin when this one ends.
    fn covers(&self, at: Instant) -> bool {
        self.acquired <= at && at < self.releasing
    }

    /// The rule that two holds break, of which this one began first.
    fn violation(&self, second: &Self) -> Option<&'static str> {
        if self.mode == Mode::Shared && second.mode == Mode::Shared {
            return None;
        }
        if self.covers(second.acquired) {
            return (self.holder != second.holder).then_some("two holders at once");
        }
        let is_greater = second.token? > self.token?;
        (!is_greater).then_some("a later hold with a token that is not greater")
    }
}

/// The pairs of holds that break a rule.
///
/// * Holds of two holders overlap only if both are shared. (A holder may re-enter, and may hold a write lock and a read
///   lock at once.)
/// * If a hold ended before another began, and one of the two is exclusive, then its token is the smaller one. Two
///   shared holds prove nothing about each other: their replies may cross.
fn violations(mut holds: Vec<Hold>) -> Vec<String> {
    holds.sort_by_key(|hold| hold.acquired);
    let mut violations = Vec::new();
    for (index, first) in holds.iter().enumerate() {
        for second in &holds[index + 1..] {
            let rule = first.violation(second);
            violations.extend(rule.map(|rule| format!("{rule}:\n  {first:?}\n  {second:?}")));
        }
    }
    violations
}

/// The holds at whose beginning the semaphore had more than `limit` holders: their number only grows then.
fn violations_of_semaphore(holds: &[Hold], limit: usize) -> Vec<&Hold> {
    let others = |last: &Hold| holds.iter().filter(|hold| hold.covers(last.acquired)).count();
    holds.iter().filter(|last| others(last) > limit).collect()
}

#[track_caller]
pub(crate) fn assert_exclusive(holds: Vec<Hold>) {
    let (count, violations) = (holds.len(), violations(holds));
    let text = violations.join("\n");
    assert!(violations.is_empty(), "{} violations in {count} holds:\n{text}", violations.len());
}

#[track_caller]
pub(crate) fn assert_at_most(limit: usize, holds: &[Hold]) {
    let violations = violations_of_semaphore(holds, limit);
    assert!(violations.is_empty(), "more than {limit} holds at once: {violations:#?}");
}

#[test]
fn overlaps_and_tokens_that_do_not_grow_are_violations() {
    let start = Instant::now();
    let history = |holds: &[(&str, Mode, i64, u64, u64)]| -> Vec<Hold> {
        let hold = |&(holder, mode, token, acquired, releasing): &(&str, _, _, _, _)| Hold {
            holder: holder.to_owned(),
            mode,
            token: Some(token),
            acquired: start + ms(acquired),
            releasing: start + ms(releasing),
        };
        holds.iter().map(hold).collect()
    };
    let (one, many) = (Mode::Exclusive, Mode::Shared);
    for (holds, part) in [
        ([("b", one, 8, 10, 20), ("a", one, 5, 0, 10)], None),
        ([("a", one, 5, 0, 11), ("b", one, 8, 10, 20)], Some("two holders at once")),
        ([("a", one, 5, 0, 99), ("b", one, 8, 30, 40)], Some("two holders at once")),
        ([("a", one, 5, 0, 10), ("b", one, 5, 20, 30)], Some("not greater")),
        ([("a", one, 5, 0, 10), ("a", one, 5, 2, 8)], None),
        ([("a", many, 6, 0, 10), ("b", many, 5, 5, 15)], None),
        ([("a", many, 5, 0, 10), ("b", one, 6, 5, 15)], Some("two holders at once")),
    ] {
        let found = violations(history(&holds));
        assert_eq!(found.len(), usize::from(part.is_some()), "{holds:?}: {found:?}");
        assert!(found.iter().all(|text| text.contains(part.unwrap())), "{holds:?}: {found:?}");
    }
    let leases = history(&[("a", many, 1, 0, 10), ("b", many, 2, 1, 10), ("c", many, 3, 9, 10)]);
    assert_at_most(3, &leases);
    assert_eq!(violations_of_semaphore(&leases, 2).len(), 1);
}
