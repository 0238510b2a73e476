//! Compares the judge's order of a register with a search through all orders, in random histories.
//!
//! The search is the one of stateright, which follows the definition of linearizability and takes exponential time. The judge
//! places versions in time instead.

use std::collections::BTreeSet;

use docent_judge::judge;
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

use super::history;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Read {
        value: u64,
        version: u64,
    },
    Set {
        value: u64,
        made: Option<u64>,
    },
    /// `is_applied` is `None` if the outcome is unknown.
    CompareAndSet {
        value: u64,
        expected: u64,
        is_applied: Option<bool>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    called: u64,
    returned: u64,
    what: What,
}

impl Operation {
    fn is_known(&self) -> bool {
        !matches!(
            self.what,
            What::Set { made: None, .. } | What::CompareAndSet { is_applied: None, .. }
        )
    }

    fn line(&self, client: usize) -> String {
        let state = |version: u64| format!("version={version} mzxid={} result=ok", version + 100);
        let value = |value: u64| if value == 0 { "-".to_owned() } else { value.to_string() };
        let what = match self.what {
            What::Read { value: of, version } => {
                format!("op=fenced value={} {}", value(of), state(version))
            }
            What::Set { value, made: Some(made) } => {
                format!("op=set value={value} {}", state(made))
            }
            What::Set { value, made: None } => format!("op=set value={value} result=unknown"),
            What::CompareAndSet { value, expected, is_applied } => {
                let result = match is_applied {
                    Some(true) => state(expected + 1),
                    Some(false) => "result=refused".to_owned(),
                    None => "result=unknown".to_owned(),
                };
                format!("op=cas value={value} expected={expected} {result}")
            }
        };
        let Self { called, returned, .. } = self;
        format!("register client=c{client} {what} called={called} returned={returned} session=-")
    }

    /// The value and the version after it; `None` if its result does not fit.
    fn apply(&self, (value, version): (u64, u64)) -> Option<(u64, u64)> {
        let is_good = match self.what {
            What::Read { value: of, version: at } => {
                return ((of, at) == (value, version)).then_some((value, version));
            }
            What::Set { made, .. } => made.is_none_or(|made| made == version + 1),
            What::CompareAndSet { expected, is_applied: Some(false), .. } => {
                return (expected != version).then_some((value, version));
            }
            What::CompareAndSet { expected, .. } => expected == version,
        };
        let (What::Set { value, .. }
        | What::CompareAndSet { value, .. }
        | What::Read { value, .. }) = self.what;
        is_good.then_some((value, version + 1))
    }
}

/// The value and the version of a register.
#[derive(Clone, Default)]
struct Register((u64, u64));

impl SequentialSpec for Register {
    type Op = Operation;
    type Ret = ();

    fn invoke(&mut self, operation: &Operation) {
        self.0 = operation.apply(self.0).unwrap_or(self.0);
    }

    fn is_valid_step(&mut self, operation: &Operation, (): &()) -> bool {
        let is_valid = operation.apply(self.0).is_some();
        self.invoke(operation);
        is_valid
    }
}

/// Whether some order explains the operations. Those of unknown outcome never return.
fn is_explained(operations: &[Operation]) -> bool {
    let all = || operations.iter().enumerate();
    let calls = all().map(|(at, of)| (of.called, false, at));
    let returns = all().filter(|(_, of)| of.is_known()).map(|(at, of)| (of.returned, true, at));
    // Of a call and a return at the same time, the call may be the first.
    let events: BTreeSet<_> = calls.chain(returns).collect();
    let mut tester = LinearizabilityTester::new(Register::default());
    for (_, is_return, at) in events {
        let noted = match is_return {
            true => tester.on_return(at, ()),
            false => tester.on_invoke(at, operations[at]),
        };
        noted.unwrap();
    }
    tester.is_consistent()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Draws operations that an order explains; the last one is a read after all others.
fn draw(random: &mut Random) -> Vec<Operation> {
    let (mut operations, mut state) = (Vec::new(), (0_u64, 0_u64));
    for number in 1..=3 + random.below(5) {
        let point = 100 * number;
        let (called, returned) = (point - random.below(100), point + random.below(250));
        let expected = state.1.saturating_sub(random.below(2) * random.below(3));
        let is_applied = expected == state.1;
        let what = match random.below(8) {
            0..=2 => What::Read { value: state.0, version: state.1 },
            3 | 4 => What::Set { value: number, made: Some(state.1 + 1) },
            5 => What::Set { value: number, made: None },
            6 => What::CompareAndSet { value: number, expected, is_applied: Some(is_applied) },
            _ => What::CompareAndSet { value: number, expected, is_applied: None },
        };
        let operation = Operation { called, returned, what };
        // A write of unknown outcome may be lost.
        if operation.is_known() || random.below(3) > 0 {
            state = operation.apply(state).unwrap_or(state);
        }
        operations.push(operation);
    }
    let what = What::Read { value: state.0, version: state.1 };
    operations.push(Operation { called: 2_000, returned: 2_001, what });
    operations
}

/// Changes an operation, so that perhaps no order explains it.
fn change(operation: &mut Operation, random: &mut Random) {
    let by = 1 + random.below(2);
    match (random.below(3), &mut operation.what) {
        (0, _) => operation.called = operation.called.saturating_sub(by * 150),
        (1, _) => {
            operation.returned = operation.called + (operation.returned - operation.called) / 8
        }
        (_, What::Read { value, .. }) if random.below(2) == 0 => *value = random.below(8),
        (_, What::Read { version, .. }) => *version = random.below(*version + 3),
        (_, What::Set { made, .. }) => *made = Some(made.unwrap_or(0) + by),
        (_, What::CompareAndSet { expected, .. }) => *expected = (*expected + 2 - by) % 8,
    }
}

#[test]
fn the_order_of_versions_agrees_with_a_search_through_all_orders() {
    let mut random = Random(1);
    let mut counts = [0_u32; 2];
    for _ in 0..4_000 {
        let mut operations = draw(&mut random);
        if random.below(3) > 0 {
            let which = usize::try_from(random.below(operations.len() as u64)).unwrap();
            change(&mut operations[which], &mut random);
        }
        let lines: Vec<_> = operations.iter().enumerate().map(|(at, of)| of.line(at)).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let judgement = judge(&history(&lines)).unwrap();
        let mut of_order =
            judgement.violations.iter().map(|(_, text)| text).filter(|text| {
                text.starts_with("register: ") && !text.contains("not read at the end")
            });
        if of_order.clone().any(|text| text.contains("nobody had seen")) {
            // The judge is stricter: a client may only expect a version that somebody has seen.
            continue;
        }
        let is_good = is_explained(&operations);
        assert_eq!(of_order.next().is_none(), is_good, "{}\n{judgement}", lines.join("\n"));
        counts[usize::from(is_good)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 400), "refused and accepted: {counts:?}");
}
