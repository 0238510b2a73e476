//! Tracks which nodes the creates of one GUID may have created.
//!
//! A create whose reply is lost may have created a node. A search that finds none does not disprove it: a
//! partitioned leader answers `sync` too, and shows an old tree. So the outcome stays unknown until a node is found
//! or the create is abandoned, and abandoning it searches for nodes once more.

/// The creates sent under one GUID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SentCreates {
    /// The number of creates that may have created a node: all that were sent and not refused by the server.
    possible: u32,
    sessions: Sessions,
}

/// The sessions in which the creates were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sessions {
    #[default]
    None,
    One(i64),
    /// Several, or one that was unknown when the create was sent.
    Several,
}

impl SentCreates {
    /// A create is sent, in this session if there is one. Without a reply it counts as having created a node.
    pub(crate) fn record_request(&mut self, session: Option<i64>) {
        self.possible = self.possible.saturating_add(1);
        self.sessions = match (self.sessions, session) {
            (Sessions::None, Some(now)) => Sessions::One(now),
            (Sessions::One(then), Some(now)) if then == now => Sessions::One(now),
            _ => Sessions::Several,
        };
    }

    /// The last create was refused, or never sent: it created no node. The outcome of earlier creates stays unknown.
    pub(crate) const fn record_refusal(&mut self) {
        self.possible = self.possible.saturating_sub(1);
    }

    /// The last create was refused because its node exists: an earlier one has created it.
    pub(crate) fn record_node_exists(&mut self) {
        self.record_refusal();
        self.possible = self.possible.max(1);
    }

    /// Whether a node may exist.
    pub(crate) const fn may_have_created(&self) -> bool {
        self.possible > 0
    }

    /// Whether more than one node may exist.
    pub(crate) const fn may_have_created_several(&self) -> bool {
        self.possible > 1
    }

    /// The session that owns every node of these creates; `None` if it must be read from the node.
    pub(crate) const fn owner(&self) -> Option<i64> {
        match self.sessions {
            Sessions::One(session) => Some(session),
            Sessions::None | Sessions::Several => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// After creates in two sessions, a node that is found may belong to the first, though the second is current.
    #[test]
    fn the_owner_is_known_only_while_there_is_one_session() {
        let sent = |sessions: &[Option<i64>]| {
            let mut creates = SentCreates::default();
            sessions.iter().for_each(|session| creates.record_request(*session));
            creates.owner()
        };
        assert_eq!(sent(&[]), None);
        assert_eq!(sent(&[Some(7)]), Some(7));
        assert_eq!(sent(&[Some(7), Some(7)]), Some(7));
        assert_eq!(sent(&[Some(7), Some(8)]), None);
        assert_eq!(sent(&[Some(7), Some(8), Some(8)]), None);
        assert_eq!(sent(&[Some(7), None]), None);
        assert_eq!(sent(&[None]), None);
    }

    #[test]
    fn a_refused_create_does_not_settle_earlier_ones() {
        let mut creates = SentCreates::default();
        creates.record_request(Some(7));
        creates.record_request(Some(7));
        creates.record_refusal();
        assert!(creates.may_have_created() && !creates.may_have_created_several());
        creates.record_request(Some(7));
        creates.record_node_exists();
        assert!(creates.may_have_created() && !creates.may_have_created_several());
        creates.record_refusal();
        assert!(!creates.may_have_created());
    }

    /// A node with our name was created by us, even if all earlier creates were refused.
    #[test]
    fn an_existing_node_counts_as_created_by_us() {
        let mut creates = SentCreates::default();
        creates.record_request(None);
        creates.record_node_exists();
        assert!(creates.may_have_created());
    }

    /// The outcome of a create.
    #[derive(Debug, Clone, Copy)]
    enum Outcome {
        Created,
        /// The reply was lost; `true` if the create was applied.
        Unknown(bool),
        Refused,
    }

    /// The result of a search.
    #[derive(Debug, Clone, Copy)]
    enum Search {
        /// All nodes.
        Complete,
        /// No node: the server has not applied the creates yet.
        Stale,
        Failed,
    }

    fn round() -> impl Strategy<Value = (Outcome, Search)> {
        let outcome = prop_oneof![
            2 => Just(Outcome::Created),
            6 => any::<bool>().prop_map(Outcome::Unknown),
            3 => Just(Outcome::Refused),
        ];
        let search = prop_oneof![
            3 => Just(Search::Complete),
            4 => Just(Search::Stale),
            1 => Just(Search::Failed),
        ];
        (outcome, search)
    }

    proptest! {
        /// The loop of [`crate::protection`]: a create; without a reply, a search; without a result, the next
        /// create. Whether it is abandoned at any point, or completes with a node that is later released, no
        /// node is left. Only a node that is held stays.
        #[test]
        fn no_node_is_left_unless_held(
            rounds in prop::collection::vec(round(), 0..8),
            sequential in any::<bool>(),
            holds in any::<bool>(),
        ) {
            let mut creates = SentCreates::default();
            // The nodes on the servers. A node that is not sequential exists at most once.
            let mut nodes = BTreeSet::new();
            let mut ours = None;
            for (number, (outcome, search)) in rounds.into_iter().enumerate() {
                let name = if sequential { number } else { 0 };
                creates.record_request(Some(7));
                let exists = nodes.contains(&name);
                match outcome {
                    Outcome::Created if !exists => {
                        nodes.insert(name);
                        ours = Some(name);
                        break;
                    }
                    Outcome::Created => creates.record_node_exists(),
                    Outcome::Unknown(applied) => {
                        if applied {
                            nodes.insert(name);
                        }
                    }
                    Outcome::Refused if exists => creates.record_node_exists(),
                    Outcome::Refused => creates.record_refusal(),
                }
                match search {
                    Search::Complete if !nodes.is_empty() => {
                        ours = nodes.first().copied();
                        // The search deletes the others.
                        nodes.retain(|name| Some(*name) == ours);
                        break;
                    }
                    Search::Complete | Search::Stale => {}
                    Search::Failed => break,
                }
            }
            // The background task repeats its search until the search is complete.
            match ours {
                None => {
                    if creates.may_have_created() {
                        nodes.clear();
                    }
                }
                Some(name) => {
                    prop_assert!(creates.may_have_created());
                    if holds {
                        // The listing that grants the lock shows all nodes, and the others are deleted.
                        nodes.retain(|other| *other == name);
                    } else {
                        nodes.remove(&name);
                        if creates.may_have_created_several() {
                            nodes.clear();
                        }
                    }
                }
            }
            let held = ours.filter(|_| holds);
            prop_assert_eq!(nodes.into_iter().collect::<Vec<_>>(), Vec::from_iter(held));
        }
    }
}
