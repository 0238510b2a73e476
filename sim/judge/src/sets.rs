//! Sets that clients add elements to, under a lock.

use std::collections::{BTreeMap, BTreeSet};

use super::{Judgement, Line};

pub(super) fn judge(lines: &[Line<'_>], judgement: &mut Judgement) -> Result<(), String> {
    let mut finals = BTreeMap::new();
    for line in lines.iter().filter(|line| line.word == "final") {
        let elements = line.text("elements")?.split(',').filter(|element| !element.is_empty());
        let elements: Result<Vec<u64>, _> = elements.map(str::parse).collect();
        let elements =
            elements.map_err(|_| format!("line {}: not a list of numbers", line.number))?;
        finals.insert(line.text("set")?, (line.optional("version")?, elements));
    }
    for set in ["naive", "proven"] {
        let Some((_, elements)) = finals.get(set) else { continue };
        check_memory(lines, set, elements, judgement)?;
    }
    let (version, elements) =
        finals.get("guarded").ok_or("the guarded set was not read at the end")?;
    check_guarded(lines, *version, elements, judgement)
}

/// A set in memory. An element that a naive holder loses is counted; one that a proven holder loses is a violation.
fn check_memory(
    lines: &[Line<'_>],
    set: &str,
    elements: &[u64],
    judgement: &mut Judgement,
) -> Result<(), String> {
    let there: BTreeSet<_> = elements.iter().copied().collect();
    let (mut written, mut lost) = (0, 0);
    for line in lines.iter().filter(|line| line.word == "memory") {
        if line.text("set")? != set {
            continue;
        }
        written += 1;
        let (element, client, at) =
            (line.number("element")?, line.text("client")?, line.number("at")?);
        if there.contains(&element) {
            continue;
        }
        lost += 1;
        let text = format!("the {set} set in memory has lost {element} of {client}");
        if set == "proven" {
            judgement.violation(at, text);
        } else {
            judgement.counted.push((at, text));
        }
    }
    let is_naive = set == "naive";
    let (of_written, of_lost) = if is_naive {
        ("elements of the naive set in memory", "lost of the naive set in memory")
    } else {
        ("elements of the proven set in memory", "lost of the proven set in memory")
    };
    judgement.figure(of_written, written);
    judgement.figure(of_lost, lost);
    Ok(())
}

/// The set in a node, each write of which is guarded. Its elements are in the order in which they were written.
fn check_guarded(
    lines: &[Line<'_>],
    version: Option<u64>,
    elements: &[u64],
    judgement: &mut Judgement,
) -> Result<(), String> {
    let mut place: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, element) in elements.iter().enumerate() {
        if place.insert(*element, at).is_some() {
            judgement.violation(0, format_args!("the guarded set has {element} twice"));
        }
    }
    if version.is_none_or(|version| version != elements.len() as u64) {
        let count = elements.len();
        judgement.violation(
            0,
            format_args!(
                "the guarded set has {count} elements after {version:?} writes: one was lost"
            ),
        );
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unknown_applied = 0;
    // Of the writes: the place, the token, the times.
    let mut applied = Vec::new();
    for line in lines.iter().filter(|line| line.word == "guarded") {
        let (element, client, outcome) =
            (line.number("element")?, line.text("client")?, line.text("outcome")?);
        let (called, returned) = (line.number("called")?, line.number("returned")?);
        *counts.entry(outcome).or_default() += 1;
        let at = place.remove(&element);
        match (outcome, at) {
            ("applied", None) => {
                judgement.violation(
                    returned,
                    format_args!("the guarded write of {element} by {client} is lost"),
                );
            }
            ("not", Some(_)) => judgement.violation(
                returned,
                format_args!(
                    "the guarded write of {element} by {client} was refused, but is there"
                ),
            ),
            ("unknown", Some(_)) => unknown_applied += 1,
            _ => {}
        }
        if let Some(at) = at {
            let returned = if outcome == "applied" { returned } else { u64::MAX };
            applied.push((at, line.optional("token")?, called, returned, element));
        }
    }
    for element in place.keys() {
        judgement
            .violation(0, format_args!("the guarded set has {element}, which no client wrote"));
    }
    applied.sort_unstable();
    let (mut greatest, mut latest_call) = (0, 0);
    for (_, token, called, returned, element) in &applied {
        if let Some(token) = token {
            if *token < greatest {
                judgement.violation(
                    *called,
                    format_args!(
                        "the guarded write of {element} has token {token}, behind one of {greatest}"
                    ),
                );
            }
            greatest = greatest.max(*token);
        }
        if *returned < latest_call {
            judgement.violation(
                *called,
                format_args!("the guarded write of {element} had returned before one in front of it was called"),
            );
        }
        latest_call = latest_call.max(*called);
    }
    let count = |outcome: &str| counts.get(outcome).copied().unwrap_or(0);
    judgement.figure("guarded writes", count("applied"));
    judgement.figure("guarded writes refused", count("not"));
    judgement.figure("guarded writes with an unknown outcome", count("unknown"));
    judgement.figure("of them applied", unknown_applied);
    Ok(())
}
