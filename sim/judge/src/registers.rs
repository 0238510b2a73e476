//! Registers: whether one order explains all results (Wing and Gong, with Lowe's memory of states that were tried).
//!
//! The simulator compares with the order that its servers have applied. Of real servers it is unknown, so it is looked
//! for. The versions in the replies keep the search short: a write that made version 7 has one place.

use std::collections::{BTreeMap, HashSet};

use super::{Judgement, Line};

/// An operation on one register.
#[derive(Debug, Clone)]
struct Operation {
    client: String,
    called: u64,
    /// `u64::MAX` if the outcome is unknown.
    returned: u64,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    /// A read behind a write, which is linearizable.
    Read(State),
    /// A write, with the version that it made, if that is known.
    Set { value: String, made: Option<u64> },
    /// A write for one version.
    CompareAndSet { value: String, expected: u64, is_applied: Option<bool> },
}

/// The value and the version.
type State = (String, u64);

/// The number of states after which the search gives up, which is reported.
const STATES: usize = 2_000_000;

pub(super) fn judge<'a>(
    lines: impl Iterator<Item = &'a Line<'a>>,
    judgement: &mut Judgement,
) -> Result<(), String> {
    let mut registers: BTreeMap<u64, Vec<&Line<'_>>> = BTreeMap::new();
    let mut count = 0;
    for line in lines {
        registers.entry(line.number("key")?).or_default().push(line);
        count += 1;
    }
    let (mut undecided, mut unknown, mut stale_plain, mut stale_synced) = (0, 0, 0, 0);
    for (key, lines) in &registers {
        let mut operations = Vec::new();
        for line in lines {
            operations.extend(parse(line)?);
        }
        unknown += operations.iter().filter(|operation| operation.returned == u64::MAX).count();
        match explain(&operations) {
            Explained::Yes => {}
            Explained::No(at, client) => {
                judgement.violation(
                    at,
                    format_args!("register {key}: no order explains the result of {client}"),
                );
            }
            Explained::Undecided => undecided += 1,
        }
        check_sessions(*key, lines, judgement)?;
        for (op, stale) in [("plain", &mut stale_plain), ("synced", &mut stale_synced)] {
            *stale += stale_reads(lines, op)?;
        }
    }
    judgement.figure("registers", registers.len());
    judgement.figure("operations on registers", count);
    judgement.figure("writes of registers with an unknown outcome", unknown);
    judgement.figure("registers without a verdict", undecided);
    judgement.figure("stale plain reads", stale_plain);
    judgement.figure("stale reads behind a sync", stale_synced);
    Ok(())
}

/// `None` for operations that have no effect, or no place in the order.
fn parse(line: &Line<'_>) -> Result<Option<Operation>, String> {
    let (op, result) = (line.text("op")?, line.text("result")?);
    let value = line.text("value")?.to_owned();
    let what = match (op, result) {
        ("plain" | "synced", _) | (_, "not") => return Ok(None),
        ("fenced", _) => What::Read((value, line.number("version")?)),
        ("set", "refused") => return Ok(None),
        ("set", _) => What::Set { value, made: line.optional("version")? },
        ("cas", _) => {
            let is_applied = match result {
                "ok" => Some(true),
                "refused" => Some(false),
                _ => None,
            };
            What::CompareAndSet { value, expected: line.number("expected")?, is_applied }
        }
        _ => return Err(format!("line {}: op={op} is not known", line.number)),
    };
    let returned = if result == "unknown" { u64::MAX } else { line.number("returned")? };
    let (client, called) = (line.text("client")?.to_owned(), line.number("called")?);
    Ok(Some(Operation { client, called, returned, what }))
}

enum Explained {
    Yes,
    /// The operation at which the longest attempt ended.
    No(u64, String),
    Undecided,
}

/// Looks for an order.
fn explain(operations: &[Operation]) -> Explained {
    let mut order: Vec<&Operation> = operations.iter().collect();
    order.sort_by_key(|operation| operation.called);
    let needed = order.iter().filter(|operation| operation.returned != u64::MAX).count();
    let words = order.len().div_ceil(64);
    let mut tried: HashSet<(Vec<u64>, State)> = HashSet::new();
    // The operations ordered so far, the state behind them, and the number of them whose outcome is known.
    let mut open = vec![(vec![0_u64; words], ("-".to_owned(), 0_u64), 0)];
    let (mut furthest, mut blocked) = (0, None);
    while let Some((done, state, count)) = open.pop() {
        if count == needed {
            return Explained::Yes;
        }
        if tried.len() > STATES {
            return Explained::Undecided;
        }
        let is_done = |at: usize| done[at / 64] & (1 << (at % 64)) != 0;
        let rest: Vec<_> = (0..order.len()).filter(|at| !is_done(*at)).collect();
        // An operation may be next if it was called before all others had returned.
        let first_return = rest.iter().map(|at| order[*at].returned).min().unwrap_or(u64::MAX);
        let mut next = Vec::new();
        for at in rest.iter().copied().filter(|at| order[*at].called <= first_return) {
            let Some(after) = apply(&order[at].what, &state) else { continue };
            let mut done = done.clone();
            done[at / 64] |= 1 << (at % 64);
            if tried.insert((done.clone(), after.clone())) {
                next.push((done, after, count + usize::from(order[at].returned != u64::MAX)));
            }
        }
        if next.is_empty() && (blocked.is_none() || count > furthest) {
            let at = rest.iter().copied().find(|at| order[*at].returned == first_return);
            blocked = at.map(|at| (order[at].called, order[at].client.clone()));
        }
        furthest = furthest.max(count);
        // The earliest call is tried first.
        next.reverse();
        open.append(&mut next);
    }
    let (at, client) = blocked.unwrap_or_default();
    Explained::No(at, client)
}

/// The state after an operation; `None` if its result does not fit.
fn apply(what: &What, state: &State) -> Option<State> {
    let next = state.1 + 1;
    match what {
        What::Read(read) => (read == state).then(|| state.clone()),
        What::Set { value, made } => {
            made.is_none_or(|made| made == next).then(|| (value.clone(), next))
        }
        What::CompareAndSet { expected, is_applied: Some(false), .. } => {
            (*expected != state.1).then(|| state.clone())
        }
        What::CompareAndSet { value, expected, .. } => {
            (*expected == state.1).then(|| (value.clone(), next))
        }
    }
}

/// In one session, versions do not go back. Each client makes one request at a time.
fn check_sessions(key: u64, lines: &[&Line<'_>], judgement: &mut Judgement) -> Result<(), String> {
    let mut last: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut reads = Vec::new();
    for line in lines {
        if let (Some(session), "ok") = (line.fields.get("session"), line.text("result")?)
            && *session != "-"
        {
            let (client, at) = (line.text("client")?, line.number("called")?);
            reads.push((at, client, *session, line.number("version")?));
        }
    }
    reads.sort_unstable();
    for (at, client, session, version) in reads {
        let last = last.entry((client, session)).or_insert(version);
        if version < *last {
            judgement.violation(
                at,
                format_args!(
                    "register {key}: {client} read version {version} after {last} in one session"
                ),
            );
        }
        *last = version.max(*last);
    }
    Ok(())
}

/// The number of reads that miss a write that was acknowledged before they were called.
fn stale_reads(lines: &[&Line<'_>], op: &str) -> Result<usize, String> {
    let mut written = Vec::new();
    for line in lines {
        if matches!(line.text("op")?, "set" | "cas")
            && line.text("result")? == "ok"
            && let Some(version) = line.optional("version")?
        {
            written.push((line.number("returned")?, version));
        }
    }
    let mut stale = 0;
    for line in lines {
        if line.text("op")? != op {
            continue;
        }
        let (called, version) = (line.number("called")?, line.number("version")?);
        stale += usize::from(written.iter().any(|(at, made)| *at < called && *made > version));
    }
    Ok(stale)
}
