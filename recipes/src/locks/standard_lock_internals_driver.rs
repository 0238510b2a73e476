//! Who holds the lock, and whom the others watch: pure functions of the children's names.
//!
//! A lock node is called `_c_` GUID `-lock-` and ten digits; the digits say who came first. The GUID in front
//! is why the names themselves are in no useful order.
//!
//! | Curator | here |
//! |---|---|
//! | sorts all children by the text behind the last lock name, as strings | by the number there |
//! | a child without the lock name takes part: one called `0` blocks everybody for ever (N7, CURATOR-43) | is not a contender |
//! | numbers may be negative, stuck at 2147483647, or equal: two can hold the lock | nobody gets it |
//!
//! Between 0 and 2147483646 the order of the ten digits as text is that of the numbers.
//!
//! Source: `StandardLockInternalsDriver`, `LockInternals.getSortedChildren`.

use docent_protocol::sequence_number;

/// What the children say about our own node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PredicateResults<'a> {
    /// The lock is ours.
    GetsTheLock,
    /// It is not; the next news is when this child goes.
    PathToWatch(&'a str),
}

/// Why the children say nothing about our own node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredicateError {
    /// It is not among them.
    OurNodeMissing,
    /// A contender's number is negative or the last one there is, or two are equal: no order.
    SequenceExhausted,
}

/// Somebody who wants the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contender<'a> {
    /// What the server put behind its name.
    pub sequence: i32,
    /// Its node's name.
    pub name: &'a str,
}

/// The text that decides the order: what stands behind the last occurrence of the lock name, or all of it if
/// that does not occur.
///
/// Source: `StandardLockInternalsDriver.standardFixForSorting`.
#[must_use]
pub fn fix_for_sorting<'a>(name: &'a str, lock_name: &str) -> &'a str {
    match name.rfind(lock_name) {
        Some(at) => name.get(at + lock_name.len()..).unwrap_or_default(),
        None => name,
    }
}

/// The children that want the lock, first come first. Others (without the lock name, or without a number
/// behind it) are no contenders.
///
/// Source: `LockInternals.getSortedChildren`.
pub fn sorted_contenders<'a>(
    children: impl IntoIterator<Item = &'a str>,
    lock_name: &str,
) -> Vec<Contender<'a>> {
    let mut contenders: Vec<_> = children
        .into_iter()
        .filter(|name| name.contains(lock_name))
        .filter_map(|name| {
            let sequence = sequence_number(fix_for_sorting(name, lock_name))?;
            Some(Contender { sequence, name })
        })
        .collect();
    contenders.sort_unstable();
    contenders
}

/// Whether the node `our_name` is among the first `max_leases`; if not, which one to watch: the one that
/// is `max_leases` places ahead.
///
/// # Errors
///
/// * [`PredicateError::OurNodeMissing`]: somebody deleted our node, or its session has ended.
/// * [`PredicateError::SequenceExhausted`]: a number is negative or 2147483647, or two are equal. Where the
///   server's counter stands still, the order of equal numbers is chance, and two contenders can each find
///   themselves first.
///
/// Source: `StandardLockInternalsDriver.getsTheLock`.
pub fn gets_the_lock<'a>(
    contenders: &[Contender<'a>],
    our_name: &str,
    max_leases: usize,
) -> Result<PredicateResults<'a>, PredicateError> {
    let our_index = contenders
        .iter()
        .position(|contender| contender.name == our_name)
        .ok_or(PredicateError::OurNodeMissing)?;
    let out_of_numbers = |contender: &Contender<'_>| !(0..i32::MAX).contains(&contender.sequence);
    let ties = contenders.windows(2).any(|pair| match pair {
        [one, other] => one.sequence == other.sequence,
        _ => false,
    });
    if ties || contenders.iter().any(out_of_numbers) {
        return Err(PredicateError::SequenceExhausted);
    }
    match our_index.checked_sub(max_leases).and_then(|ahead| contenders.get(ahead)) {
        None => Ok(PredicateResults::GetsTheLock),
        Some(ahead) => Ok(PredicateResults::PathToWatch(ahead.name)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use PredicateError::{OurNodeMissing, SequenceExhausted};
    use PredicateResults::{GetsTheLock, PathToWatch};

    const LOCK: &str = "lock-";

    fn decide<'a>(
        children: &[&'a str],
        ours: &str,
        leases: usize,
    ) -> Result<PredicateResults<'a>, PredicateError> {
        gets_the_lock(&sorted_contenders(children.iter().copied(), LOCK), ours, leases)
    }

    #[test]
    fn the_order_is_that_of_the_numbers_and_not_of_the_guids() {
        let children = ["_c_a-lock-0000000002", "_c_b-lock-0000000001", "_c_c-lock-0000000003"];
        assert_eq!(decide(&children, "_c_b-lock-0000000001", 1), Ok(GetsTheLock));
        assert_eq!(
            decide(&children, "_c_c-lock-0000000003", 1),
            Ok(PathToWatch("_c_a-lock-0000000002"))
        );
    }

    #[test]
    fn with_more_leases_the_one_so_many_places_ahead_is_watched() {
        let children: Vec<_> = (0..5).map(|n| format!("lock-{n:010}")).collect();
        let children: Vec<_> = children.iter().map(String::as_str).collect();
        assert_eq!(decide(&children, "lock-0000000002", 3), Ok(GetsTheLock));
        assert_eq!(decide(&children, "lock-0000000003", 3), Ok(PathToWatch("lock-0000000000")));
    }

    #[test]
    fn gaps_in_the_numbers_do_not_matter() {
        assert_eq!(
            decide(&["lock-0000000009", "lock-0000000100"], "lock-0000000100", 1),
            Ok(PathToWatch("lock-0000000009"))
        );
    }

    /// The name is cut at its last occurrence: a path of the user's may contain it too.
    #[test]
    fn the_last_occurrence_of_the_lock_name_counts() {
        assert_eq!(fix_for_sorting("lock-lock-0000000007", LOCK), "0000000007");
        assert_eq!(fix_for_sorting("other", LOCK), "other");
    }

    #[test]
    fn our_own_node_may_be_missing() {
        assert_eq!(decide(&["lock-0000000001"], "lock-0000000002", 1), Err(OurNodeMissing));
        assert_eq!(decide(&[], "lock-0000000002", 1), Err(OurNodeMissing));
    }

    /// N7, CURATOR-43: `0` would sort before every lock node, for ever.
    #[test]
    fn foreign_children_are_no_contenders() {
        let children =
            ["0", "zzz", "lock-", "lock-x", "kazoo__lock__0000000000", "lock-0000000005"];
        assert_eq!(decide(&children, "lock-0000000005", 1), Ok(GetsTheLock));
    }

    /// reliability 0.1 and case 48: the counter of a 3.6+ server stands still at 2147483647.
    #[test]
    fn at_the_end_of_the_numbers_nobody_gets_the_lock() {
        for children in [
            ["a-lock-2147483647", "b-lock-2147483646"],
            ["a-lock-2147483647", "b-lock-2147483647"],
            ["a-lock--2147483648", "b-lock-2147483646"],
            ["a-lock--000000001", "b-lock-0000000001"],
            ["a-lock-0000000001", "b-lock-0000000001"],
        ] {
            for ours in children {
                assert_eq!(decide(&children, ours, 1), Err(SequenceExhausted), "{children:?}");
            }
        }
    }

    /// Any name at all, and names that are nearly right.
    fn child() -> impl Strategy<Value = String> {
        prop_oneof![
            6 => (0u32..6, 0i32..9).prop_map(|(id, n)| format!("_c_{id}-lock-{n:010}")),
            1 => (0u32..3, any::<i32>()).prop_map(|(id, n)| format!("_c_{id}-lock-{n:010}")),
            2 => "\\PC{0,12}",
            1 => "(lock-)?[0-9-]{0,12}",
            1 => Just("lock-日本日本日本日本日本".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn among_any_children_at_most_so_many_get_the_lock(
            children in prop::collection::btree_set(child(), 0..12),
            leases in 1usize..4,
        ) {
            let names: Vec<_> = children.iter().map(String::as_str).collect();
            let holders =
                names.iter().filter(|ours| decide(&names, ours, leases) == Ok(GetsTheLock)).count();
            prop_assert!(holders <= leases, "{holders} hold {leases} leases: {names:?}");
        }

        /// Whoever waits watches somebody ahead of it, so there is always one who does not wait.
        #[test]
        fn who_waits_watches_somebody_ahead(children in prop::collection::btree_set(child(), 0..12)) {
            let names: Vec<_> = children.iter().map(String::as_str).collect();
            let order = sorted_contenders(names.iter().copied(), LOCK);
            let place = |name: &str| order.iter().position(|contender| contender.name == name);
            for ours in &names {
                if let Ok(PathToWatch(ahead)) = decide(&names, ours, 1) {
                    prop_assert!(place(ahead) < place(ours));
                }
            }
        }
    }
}
