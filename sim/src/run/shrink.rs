//! Makes a plan that breaks a rule as short as possible.
//!
//! Delta debugging (Zeller): parts of the plan are deleted, large ones first, as long as the same rule is still broken.
//! It works on the plan as JSON, so it knows nothing of the kinds of faults and steps: list entries are deleted,
//! numbers made smaller, options left out. A result that is not a valid plan is skipped.

use std::{ops::ControlFlow, sync::Arc};

use serde_json::Value;

use super::{
    Outcome,
    batch::{self, Options},
};
use crate::recipes::step::Plan;

/// Fields that stay: another seed gives another history, and these settings have no smaller sensible value.
const FIXED: &[&str] = &[
    "seed",
    "plant",
    "count",
    "tick_ms",
    "sync_limit",
    "container_check_ms",
    "session_timeout_ms",
    "delay_us",
    "max_requests",
    // Indexes: only the removal of a process changes them.
    "process",
    "member",
    "resumes",
    "from",
    "to",
];

/// The maximum number of runs for one plan.
const MAX_TRIES: usize = 20_000;

/// Shrinks one plan.
#[derive(Debug)]
pub struct Shrinker {
    plan: Value,
    short: Plan,
    outcome: Outcome,
    rule: Option<String>,
    tries: usize,
    options: Options,
}

impl Shrinker {
    /// Runs a plan. The first rule that it breaks is the one that shorter plans must break too.
    #[must_use]
    pub fn new(plan: &Plan, options: Options) -> Self {
        let options = Options { keeps_histories: false, ..options };
        let mut shrinker = Self {
            plan: serde_json::to_value(plan).unwrap_or_default(),
            short: plan.clone(),
            outcome: Outcome::default(),
            rule: None,
            tries: 0,
            options,
        };
        let only = plan.clone();
        batch::run(0..=0, &(Arc::new(move |_| only.clone()) as _), options, |_, outcome| {
            shrinker.outcome = outcome;
            ControlFlow::Break(())
        });
        shrinker.rule = shrinker.outcome.history.violations().next().map(str::to_owned);
        shrinker
    }

    /// The result of the plan before it was shrunk.
    #[must_use]
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The rule that it breaks.
    #[must_use]
    pub fn violation(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The shortest plan so far.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.short
    }

    /// Shrinks until nothing more can be deleted. `progress` gets each shorter plan and the number of runs so far.
    pub fn run(&mut self, mut progress: impl FnMut(&Plan, usize)) {
        if self.rule.is_none() {
            return;
        }
        loop {
            let before = self.plan.clone();
            self.remove_processes();
            progress(&self.short, self.tries);
            let mut lists = Vec::new();
            find(&self.plan, "", &mut |path, value| {
                if value.is_array() && path != "/processes" {
                    lists.push(path.to_owned());
                }
            });
            for list in lists {
                self.shorten(&list);
                progress(&self.short, self.tries);
            }
            let mut leaves = Vec::new();
            find(&self.plan, "", &mut |path, value| {
                let name = path.rsplit('/').next().unwrap_or_default();
                if !value.is_array() && !value.is_object() && !FIXED.contains(&name) {
                    leaves.push(path.to_owned());
                }
            });
            for leaf in leaves {
                self.simplify(&leaf);
                progress(&self.short, self.tries);
            }
            if self.plan == before || self.tries > MAX_TRIES {
                return;
            }
        }
    }

    /// Runs candidates, and takes the first one that breaks the same rule. Returns its number.
    fn first_of(&mut self, candidates: &[Value]) -> Option<usize> {
        let plans: Vec<_> = candidates
            .iter()
            .enumerate()
            .filter_map(|(at, value)| {
                let plan = serde_json::from_value::<Plan>(value.clone()).ok()?;
                // A fault that begins after the peace would never end.
                let peace = plan.peace_at_ms;
                plan.faults.iter().all(|fault| fault.at_ms <= peace).then_some((at, plan))
            })
            .collect();
        let last = u64::try_from(plans.len()).ok()?.checked_sub(1)?;
        let plans = Arc::new(plans);
        let planner = Arc::clone(&plans);
        let planner: batch::Planner =
            Arc::new(move |at| planner[usize::try_from(at).unwrap_or(0)].1.clone());
        let rule = self.rule.as_deref().map(shape);
        let mut found = None;
        let tries = &mut self.tries;
        batch::run(0..=last, &planner, self.options, |at, outcome| {
            *tries += 1;
            if outcome.history.violations().map(shape).any(|text| Some(text) == rule) {
                found = usize::try_from(at).ok();
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let (at, plan) = &plans[found?];
        self.short = plan.clone();
        self.plan = candidates[*at].clone();
        Some(*at)
    }

    /// Removes processes, and the faults that concern them.
    fn remove_processes(&mut self) {
        loop {
            let count = self.short.processes.len();
            let without = |process| without_process(&self.plan, process);
            let candidates: Vec<_> = (0..count).rev().map(without).collect();
            if self.first_of(&candidates).is_none() {
                return;
            }
        }
    }

    /// Deletes entries of a list: all, halves, quarters, single ones.
    fn shorten(&mut self, path: &str) {
        let length =
            |plan: &Value| plan.pointer(path).and_then(Value::as_array).map_or(0, Vec::len);
        let mut size = length(&self.plan);
        while size > 0 {
            let mut start = 0;
            while start < length(&self.plan) {
                let starts: Vec<_> = (start..length(&self.plan)).step_by(size).collect();
                let candidates: Vec<_> = starts
                    .iter()
                    .map(|&at| {
                        let mut plan = self.plan.clone();
                        if let Some(list) = plan.pointer_mut(path).and_then(Value::as_array_mut) {
                            let end = (at + size).min(list.len());
                            list.drain(at..end);
                        }
                        plan
                    })
                    .collect();
                match self.first_of(&candidates) {
                    Some(at) => start = starts[at],
                    None => break,
                }
            }
            size /= 2;
        }
    }

    /// Replaces a value by a simpler one.
    fn simplify(&mut self, path: &str) {
        loop {
            let Some(value) = self.plan.pointer(path) else { return };
            let simpler = simpler(value);
            let candidates: Vec<_> = simpler
                .into_iter()
                .map(|value| {
                    let mut plan = self.plan.clone();
                    if let Some(place) = plan.pointer_mut(path) {
                        *place = value;
                    }
                    plan
                })
                .collect();
            if self.first_of(&candidates).is_none() {
                return;
            }
        }
    }
}

/// Simpler values, the simplest first.
#[must_use]
pub fn simpler(value: &Value) -> Vec<Value> {
    match value {
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::Bool(true) => vec![Value::Bool(false)],
        Value::Number(number) => {
            let Some(number) = number.as_i64() else { return vec![Value::Null] };
            let rounded =
                [0, number / 1_000 * 1_000, number / 100 * 100, number / 2, number / 10 * 10];
            let smaller = rounded.into_iter().filter(|new| *new != number).map(Value::from);
            std::iter::once(Value::Null).chain(smaller).collect()
        }
        _ => vec![Value::Null],
    }
}

/// The plan without this process, and without the faults that concern it.
#[must_use]
pub fn without_process(plan: &Value, process: usize) -> Value {
    let mut plan = plan.clone();
    if let Some(processes) = plan.pointer_mut("/processes").and_then(Value::as_array_mut) {
        processes.remove(process);
        for resumes in processes.iter_mut().filter_map(|process| process.get_mut("resumes")) {
            let number = resumes.as_u64().and_then(|of| usize::try_from(of).ok());
            *resumes = match number {
                Some(number) if number > process => Value::from(number - 1),
                Some(number) if number == process => Value::Null,
                _ => continue,
            };
        }
    }
    if let Some(faults) = plan.pointer_mut("/faults").and_then(Value::as_array_mut) {
        faults.retain_mut(|fault| {
            let kind = fault.get_mut("kind").and_then(Value::as_object_mut);
            let fields = kind.and_then(|kind| kind.values_mut().next());
            let Some(of) = fields.and_then(|fields| fields.get_mut("process")) else { return true };
            let Some(number) = of.as_u64().and_then(|of| usize::try_from(of).ok()) else {
                return true;
            };
            if number > process {
                *of = Value::from(number - 1);
            }
            number != process
        });
    }
    plan
}

/// Calls `each` with the path of each value.
fn find(value: &Value, path: &str, each: &mut impl FnMut(&str, &Value)) {
    each(path, value);
    match value {
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(at, value)| find(value, &format!("{path}/{at}"), each)),
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| find(value, &format!("{path}/{name}"), each))
        }
        _ => {}
    }
}

/// A text without the words that contain a digit: processes, sessions, GUIDs.
#[must_use]
pub fn shape(text: &str) -> String {
    let words = text.split([' ', '/', ':', ',']);
    let has_digit = |word: &&str| word.bytes().any(|byte| byte.is_ascii_digit());
    words.filter(|word| !word.is_empty() && !has_digit(word)).collect::<Vec<_>>().join(" ")
}
