//! A trace is compared with a specification by all states that may be reached by the steps seen so far.

use std::{collections::HashSet, hash::Hash};

use stateright::Model;

/// The states that a trace may have led to.
#[derive(Debug)]
pub struct Trace<M: Model> {
    pub model: M,
    /// Whether an action is one that a trace does not show.
    is_hidden: fn(&M::State, &M::Action) -> bool,
    pub states: HashSet<M::State>,
}

impl<M: Model> Trace<M>
where
    M::State: Clone + Eq + Hash,
    M::Action: Clone,
{
    /// No step yet.
    pub fn new(model: M, is_hidden: fn(&M::State, &M::Action) -> bool) -> Self {
        let states = model.init_states().into_iter().collect();
        let mut trace = Self { model, is_hidden, states };
        trace.hide();
        trace
    }

    /// A step of the trace: an action that `is_seen`, or none in a state where the step `is_none`. Returns whether the
    /// specification has such a step; otherwise the states are those before it.
    #[must_use]
    pub fn step(
        &mut self,
        is_seen: impl Fn(&M::State, &M::Action) -> bool,
        is_none: impl Fn(&M::State) -> bool,
    ) -> bool {
        let next = |state: &M::State| self.next(state, |action| is_seen(state, action));
        let after: Vec<_> = self.states.iter().flat_map(next).collect();
        self.replace(is_none, after)
    }

    /// Adds the states in which such an action has just happened: the next step may be the first to show it.
    pub fn may_begin(&mut self, is_it: impl Fn(&M::Action) -> bool) {
        let begun: Vec<_> = self.states.iter().flat_map(|state| self.next(state, &is_it)).collect();
        self.states.extend(begun);
    }

    /// Something that the trace shows of the state.
    #[must_use]
    pub fn see(&mut self, is_so: impl Fn(&M::State) -> bool) -> bool {
        self.replace(is_so, Vec::new())
    }

    /// Keeps some states, without a copy, and adds others.
    fn replace(&mut self, is_kept: impl Fn(&M::State) -> bool, added: Vec<M::State>) -> bool {
        let has_step = !added.is_empty() || self.states.iter().any(&is_kept);
        if has_step {
            self.states.retain(is_kept);
            self.states.extend(added);
            self.hide();
        }
        has_step
    }

    /// Adds the states that hidden actions lead to.
    fn hide(&mut self) {
        let after = |of: &Self, state: &_| of.next(state, |action| (of.is_hidden)(state, action));
        let mut new: Vec<_> = self.states.iter().flat_map(|state| after(self, state)).collect();
        while let Some(state) = new.pop() {
            if !self.states.contains(&state) {
                new.extend(after(self, &state));
                self.states.insert(state);
            }
        }
    }

    fn next(&self, state: &M::State, is_taken: impl Fn(&M::Action) -> bool) -> Vec<M::State> {
        let mut actions = Vec::new();
        self.model.actions(state, &mut actions);
        actions.retain(|action| is_taken(action));
        actions.into_iter().filter_map(|action| self.model.next_state(state, action)).collect()
    }
}
