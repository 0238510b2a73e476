//! Which contender holds the lock, and which node each of the others watches: pure functions of the children's names.
//!
//! A lock node is called `_c_` GUID `-lock-` and ten digits. The digits are the order of the queue; because of the
//! GUID before them, the order of the whole names is meaningless.
//!
//! | Curator | here |
//! |---|---|
//! | sorts all children by the text after the last lock name, as strings | sorts them by the number there |
//! | a child that is no lock node is a contender: one called `0` blocks all others for ever (N7 in `docs/CURATOR.md`, CURATOR-43) | is not a contender |
//! | numbers may be negative, stuck at 2147483647, or equal: two contenders can hold the lock | no contender gets it |
//!
//! Between 0 and 2147483646 the order of the ten digits as text is that of the numbers.
//!
//! Two sequence numbers that are equal, negative or 2147483647 grant the lock to no contender.
//!
//! Source: `StandardLockInternalsDriver`, `LockInternals.getSortedChildren`.

use docent_protocol::sequence_number;

/// The position of our own node among the contenders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PredicateResults<'a> {
    /// Our node has the lock.
    GetsTheLock,
    /// Our node waits until this child is deleted.
    PathToWatch(&'a str),
}

/// Why the position of our own node is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredicateError {
    /// Our node is not among the children.
    OurNodeMissing,
    /// A contender's number is negative or 2147483647, or two are equal: there is no order.
    SequenceExhausted,
}

/// A client that holds the lock or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contender<'a> {
    /// The sequence number that the server appended to the name.
    pub sequence: i32,
    /// The name of its node.
    pub name: &'a str,
}

/// The part of a name that decides the order: the text after the last occurrence of the lock name, or the whole name
/// if it does not occur.
///
/// Source: `StandardLockInternalsDriver.standardFixForSorting`.
#[must_use]
pub(crate) fn fix_for_sorting<'a>(name: &'a str, lock_name: &str) -> &'a str {
    match name.rfind(lock_name) {
        Some(at) => name.get(at + lock_name.len()..).unwrap_or_default(),
        None => name,
    }
}

/// The sequence number of a lock node, or `None` for another child. Before the digits of a lock node is the lock name,
/// and before that either nothing or a `-`, such as the one after a GUID. So `release-0000000001` is no `lease-` node,
/// and `block-0000000001` no `lock-` node.
pub(crate) fn sequence_of(name: &str, lock_name: &str) -> Option<i32> {
    let (front, digits) = name.rsplit_once(lock_name)?;
    if front.is_empty() || front.ends_with('-') { sequence_number(digits) } else { None }
}

/// The contenders among the children, in the order of the queue. Children without the lock name before a number, or
/// with other text than a `-` before the lock name, are no contenders.
///
/// Source: `LockInternals.getSortedChildren`.
pub fn sorted_contenders<'a>(
    children: impl IntoIterator<Item = &'a str>,
    lock_name: &str,
) -> Vec<Contender<'a>> {
    let mut contenders: Vec<_> = children
        .into_iter()
        .filter_map(|name| Some(Contender { sequence: sequence_of(name, lock_name)?, name }))
        .collect();
    contenders.sort_unstable();
    contenders
}

/// Whether the node `our_name` is among the first `max_leases` contenders. If not, the node to watch is the one
/// `max_leases` places ahead.
///
/// # Errors
///
/// * [`PredicateError::OurNodeMissing`]: our node was deleted, or its session has ended.
/// * [`PredicateError::SequenceExhausted`]: a number is negative or 2147483647, or two are equal. When the
///   server's counter stops, equal numbers have no defined order, and two contenders can each find themselves
///   first.
///
/// Source: `StandardLockInternalsDriver.getsTheLock`.
pub fn gets_the_lock<'a>(
    contenders: &[Contender<'a>],
    our_name: &str,
    max_leases: usize,
) -> Result<PredicateResults<'a>, PredicateError> {
    let our_index = index_of_ours(contenders, our_name, |_, _| false)?;
    match our_index.checked_sub(max_leases).and_then(|ahead| contenders.get(ahead)) {
        None => Ok(PredicateResults::GetsTheLock),
        Some(ahead) => Ok(PredicateResults::PathToWatch(ahead.name)),
    }
}

/// The place of our node in the queue. The numbers must have an order: none is out of range, and neighbors are equal
/// only if they `may_be_equal`.
pub(super) fn index_of_ours(
    contenders: &[Contender<'_>],
    our_name: &str,
    may_be_equal: impl Fn(&Contender<'_>, &Contender<'_>) -> bool,
) -> Result<usize, PredicateError> {
    let our_index = contenders
        .iter()
        .position(|contender| contender.name == our_name)
        .ok_or(PredicateError::OurNodeMissing)?;
    let out_of_range = |contender: &Contender<'_>| !(0..i32::MAX).contains(&contender.sequence);
    let ties = contenders.windows(2).any(|pair| match pair {
        [one, other] => one.sequence == other.sequence && !may_be_equal(one, other),
        _ => false,
    });
    if ties || contenders.iter().any(out_of_range) {
        return Err(PredicateError::SequenceExhausted);
    }
    Ok(our_index)
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
    fn contenders_are_ordered_by_number_and_not_by_guid() {
        let children = ["_c_a-lock-0000000002", "_c_b-lock-0000000001", "_c_c-lock-0000000003"];
        assert_eq!(decide(&children, "_c_b-lock-0000000001", 1), Ok(GetsTheLock));
        assert_eq!(
            decide(&children, "_c_c-lock-0000000003", 1),
            Ok(PathToWatch("_c_a-lock-0000000002"))
        );
    }

    #[test]
    fn with_several_leases_the_node_that_many_places_ahead_is_watched() {
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

    /// The name is cut at the last occurrence, because a name chosen by a user may contain another one.
    #[test]
    fn the_last_occurrence_of_the_lock_name_counts() {
        assert_eq!(fix_for_sorting("lock-lock-0000000007", LOCK), "0000000007");
        assert_eq!(fix_for_sorting("other", LOCK), "other");
    }

    #[test]
    fn a_missing_own_node_is_an_error() {
        assert_eq!(decide(&["lock-0000000001"], "lock-0000000002", 1), Err(OurNodeMissing));
        assert_eq!(decide(&[], "lock-0000000002", 1), Err(OurNodeMissing));
    }

    /// N7, CURATOR-43: `0` would sort before every lock node for ever.
    // Case (What broke other clients): a foreign name panics every waiter.
    #[test]
    fn children_that_are_no_lock_nodes_are_no_contenders() {
        let children = [
            "0",
            "zzz",
            "lock-",
            "lock-x",
            "kazoo__lock__0000000000",
            "block-0000000000",
            "_c_a-block-0000000001",
            "lock-0000000005",
        ];
        assert_eq!(decide(&children, "lock-0000000005", 1), Ok(GetsTheLock));
    }

    /// The counter of a server since 3.6 stops at 2147483647.
    // Case (Pitfalls of the wire, 41): the number is not the cversion, and it ends.
    #[test]
    fn no_contender_gets_the_lock_when_the_sequence_is_exhausted() {
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

    /// Arbitrary names, and names that are nearly valid.
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
        fn at_most_max_leases_contenders_get_the_lock(
            children in prop::collection::btree_set(child(), 0..12),
            leases in 1usize..4,
        ) {
            let names: Vec<_> = children.iter().map(String::as_str).collect();
            let holders =
                names.iter().filter(|ours| decide(&names, ours, leases) == Ok(GetsTheLock)).count();
            prop_assert!(holders <= leases, "{holders} hold {leases} leases: {names:?}");
        }

        /// Every waiter watches a contender ahead of it, so at least one contender does not wait.
        #[test]
        fn a_waiter_watches_a_contender_ahead(children in prop::collection::btree_set(child(), 0..12)) {
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
