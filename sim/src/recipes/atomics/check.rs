//! Whether the results of the operations on atomic numbers and values agree with the changes that the servers applied.
//!
//! A number is only changed by additions. Each change is the delta of one operation, and an operation is counted once if it
//! says that it has succeeded, never if it says that it has not, and at most once otherwise. Each value is written by one
//! operation, with the same rule.

use std::collections::BTreeMap;

use bytes::Bytes;
use docent::Outcome;

use crate::world::{
    check::{Check, Findings, View},
    time::Nanos,
    truth::Truth,
};

/// All operations on atomic numbers and values.
#[derive(Default)]
pub(super) struct Operations {
    calls: Vec<AtomicCall>,
    /// The numbers that were read.
    pub(super) reads: Vec<(String, i64)>,
}

/// An operation.
pub(super) struct AtomicCall {
    pub(super) by: String,
    pub(super) path: String,
    pub(super) wanted: Wanted,
    pub(super) called_at: Nanos,
    /// `None`: its future was dropped, or its process has ended.
    pub(super) made: Option<(Nanos, Made)>,
}

/// The purpose of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wanted {
    /// Add this.
    Delta(i64),
    /// Write this, which no other operation writes.
    Value(Bytes),
}

/// The result of an operation, by its own account.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Made {
    /// It has succeeded: the values before and after it. Those of numbers have eight bytes.
    Done {
        pre: Option<Bytes>,
        post: Option<Bytes>,
    },
    /// It has succeeded, whatever the value before.
    Forced,
    /// It has not succeeded.
    NotDone,
    Failed(Outcome),
}

/// A change of a node that an operation has made.
struct Transition {
    at: Nanos,
    before: Option<Bytes>,
    after: Bytes,
}

impl Operations {
    pub(super) fn begin(&mut self, call: AtomicCall) -> usize {
        self.calls.push(call);
        self.calls.len() - 1
    }

    pub(super) fn end(&mut self, call: usize, at: Nanos, made: Made) {
        if let Some(call) = self.calls.get_mut(call) {
            call.made = Some((at, made));
        }
    }
}

/// A number, as its node has it.
fn decode(data: Option<&Bytes>) -> Option<i64> {
    let Some(data) = data.filter(|data| !data.is_empty()) else { return Some(0) };
    match data.len() {
        8 => Some(i64::from_be_bytes((**data).try_into().ok()?)),
        4 => Some(i64::from(i32::from_be_bytes((**data).try_into().ok()?))),
        _ => None,
    }
}

fn transitions(truth: &Truth, path: &str) -> Vec<Transition> {
    let states = truth.states(path);
    let pairs = states.windows(2).filter_map(|pair| {
        let (after, _) = pair[1].node.clone()?;
        let before = pair[0].node.clone().map(|(data, _)| data);
        Some(Transition { at: pair[1].at, before, after })
    });
    pairs.collect()
}

impl Check for Operations {
    fn finish(&mut self, view: &View<'_>, found: &mut Findings) {
        let mut wrong = Vec::new();
        let mut by_path: BTreeMap<&str, Vec<&AtomicCall>> = BTreeMap::new();
        for call in &self.calls {
            by_path.entry(&call.path).or_default().push(call);
        }
        let core = view.core();
        let truth = &core.servers.truth;
        for (path, calls) in by_path {
            let changes = transitions(truth, path);
            match calls.first().map(|call| &call.wanted) {
                Some(Wanted::Delta(_)) => judge_number(path, &calls, &changes, &mut wrong),
                _ => judge_value(path, &calls, &changes, &mut wrong),
            }
        }
        for (path, number) in &self.reads {
            let states = truth.states(path);
            let mut numbers = states.iter().map(|state| {
                let data = state.node.as_ref().map(|(data, _)| data);
                decode(data)
            });
            if !numbers.any(|known| known == Some(*number)) {
                wrong.push(format!("{path} was read as {number}, which it never was"));
            }
        }
        wrong.into_iter().for_each(|text| found.violation(text));
    }
}

fn judge_number(
    path: &str,
    calls: &[&AtomicCall],
    changes: &[Transition],
    wrong: &mut Vec<String>,
) {
    let mut applied: BTreeMap<i64, usize> = BTreeMap::new();
    let mut steps: Vec<(Nanos, i64, i64)> = Vec::new();
    for change in changes {
        let (Some(before), Some(after)) =
            (decode(change.before.as_ref()), decode(Some(&change.after)))
        else {
            wrong.push(format!("{path} is no number: {:?}", change.after));
            continue;
        };
        steps.push((change.at, before, after));
        *applied.entry(after.wrapping_sub(before)).or_default() += 1;
    }
    let mut asked: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
    for call in calls {
        let Wanted::Delta(delta) = call.wanted else { continue };
        let (least, most) = asked.entry(delta).or_default();
        match &call.made {
            Some((done, Made::Done { pre, post })) => {
                (*least, *most) = (*least + 1, *most + 1);
                let (pre, post) = (decode(pre.as_ref()), decode(post.as_ref()));
                let fits = |(at, before, after): &(Nanos, i64, i64)| {
                    (call.called_at..=*done).contains(at)
                        && (Some(*before), Some(*after)) == (pre, post)
                };
                if !steps.iter().any(fits) {
                    let by = &call.by;
                    wrong.push(format!("{by}: {path} did not go from {pre:?} to {post:?}"));
                }
            }
            None | Some((_, Made::Failed(Outcome::Unknown))) => *most += 1,
            _ => {}
        }
    }
    for (delta, count) in &applied {
        let (_, most) = asked.get(delta).copied().unwrap_or_default();
        if *count > most {
            wrong.push(format!("{path}: {delta} was added {count} times, not {most} at most"));
        }
    }
    for (delta, (least, _)) in &asked {
        let count = applied.get(delta).copied().unwrap_or_default();
        if count < *least {
            wrong.push(format!("{path}: {delta} was added {count} times, not {least} at least"));
        }
    }
}

fn judge_value(path: &str, calls: &[&AtomicCall], changes: &[Transition], wrong: &mut Vec<String>) {
    let mut known = std::collections::BTreeSet::new();
    for call in calls {
        let Wanted::Value(value) = &call.wanted else { continue };
        known.insert(value.clone());
        let of_call: Vec<_> = changes.iter().filter(|change| change.after == *value).collect();
        let text = String::from_utf8_lossy(value);
        if of_call.len() > 1 {
            wrong.push(format!("{}: {text} was written {} times", call.by, of_call.len()));
        }
        match (&call.made, of_call.first()) {
            (Some((done, made @ (Made::Done { .. } | Made::Forced))), Some(change)) => {
                if !(call.called_at..=*done).contains(&change.at) {
                    wrong.push(format!("{}: {text} was not written in its call", call.by));
                }
                if let Made::Done { pre, post } = made
                    && (*pre != change.before || *post != Some(change.after.clone()))
                {
                    let before = &change.before;
                    wrong.push(format!("{}: {text} replaced {before:?}, not {pre:?}", call.by));
                }
            }
            (Some((_, Made::Done { .. } | Made::Forced)), None) => {
                wrong.push(format!("{}: {text} was not written", call.by));
            }
            (Some((_, Made::NotDone | Made::Failed(Outcome::NotApplied))), Some(_)) => {
                wrong.push(format!("{}: {text} was said not to be written, but was", call.by));
            }
            _ => {}
        }
    }
    for change in changes.iter().filter(|change| !known.contains(&change.after)) {
        wrong.push(format!("{path}: {:?} was written by no call", change.after));
    }
}
