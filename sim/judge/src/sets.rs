//! Sets that clients add elements to, under a lock.

use std::collections::{BTreeMap, BTreeSet};

use super::holds::{Hold, Locks};
use super::{Excuses, Judgement, Line, Wrong, is_stale};

/// A set at the end of the run: the version of its node, and its elements.
type Last = (Option<u64>, Vec<u64>);

/// The sets in memory, with the names of their figures.
const IN_MEMORY: [(&str, &str, &str); 2] = [
    ("naive", "elements of the naive set in memory", "lost of the naive set in memory"),
    ("proven", "elements of the proven set in memory", "lost of the proven set in memory"),
];

pub(super) fn judge(
    lines: &[Line<'_>],
    locks: &Locks<'_>,
    excuses: &Excuses<'_>,
    judgement: &mut Judgement,
) -> Result<(), String> {
    let mut last: BTreeMap<&str, Last> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.word == "final") {
        let set = line.one_of("set", &["naive", "proven", "guarded"])?;
        if last.insert(set, (line.optional("version")?, line.list("elements")?)).is_some() {
            return Err(format!("the {set} set was read twice at the end"));
        }
    }
    let mut take = |set: &str| {
        last.remove(set).ok_or_else(|| format!("the {set} set was not read at the end"))
    };
    let mut memory: BTreeMap<&str, Vec<Write<'_>>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.word == "memory") {
        let set = line.one_of("set", &["naive", "proven"])?;
        memory.entry(set).or_default().push(Write::parse(line)?);
    }
    for (set, of_written, of_lost) in IN_MEMORY {
        let writes = memory.remove(set).unwrap_or_default();
        judgement.figure(of_written, writes.len());
        let (_, elements) = take(set)?;
        let lost = check_memory(set, writes, &elements, (locks, excuses), judgement);
        judgement.figure(of_lost, lost);
    }
    let guarded = lines.iter().filter(|line| line.word == "guarded");
    let writes = guarded.map(Guarded::parse).collect::<Result<Vec<_>, _>>()?;
    check_guarded(writes, take("guarded")?, locks, judgement);
    Ok(())
}

/// A write of a set in memory: the elements that were read, and one more.
struct Write<'a> {
    at: u64,
    read: u64,
    element: u64,
    client: &'a str,
    is_docent: bool,
    token: Option<u64>,
    is_gone: bool,
}

impl<'a> Write<'a> {
    fn parse(line: &Line<'a>) -> Result<Self, String> {
        Ok(Self {
            at: line.number("at")?,
            read: line.number("read")?,
            element: line.number("element")?,
            client: line.text("client"),
            is_docent: line.is_docent()?,
            token: line.token()?,
            is_gone: line.is_gone(),
        })
    }
}

/// The place of each element in a set at the end of the run.
fn places(rule: &str, elements: &[u64], judgement: &mut Judgement) -> BTreeMap<u64, usize> {
    let mut places = BTreeMap::new();
    for (at, element) in elements.iter().enumerate() {
        if places.insert(*element, at).is_some() {
            judgement.violation(rule, 0, format_args!("the set has {element} twice"));
        }
    }
    places
}

/// The elements that clients wrote, each of them once.
fn written(
    rule: &str,
    elements: impl Iterator<Item = u64>,
    judgement: &mut Judgement,
) -> BTreeSet<u64> {
    let mut written = BTreeSet::new();
    for element in elements {
        if !written.insert(element) {
            judgement.violation(rule, 0, format_args!("{element} is written twice"));
        }
    }
    written
}

/// Checks a set in memory, and returns the number of lost elements. An element is lost if a later write stores a set
/// that was read before the element was written: two clients acted as holders at once. Only the naive set may have an
/// excuse for that.
fn check_memory(
    set: &str,
    mut writes: Vec<Write<'_>>,
    elements: &[u64],
    (locks, excuses): (&Locks<'_>, &Excuses<'_>),
    judgement: &mut Judgement,
) -> usize {
    writes.sort_by_key(|write| write.at);
    let places = places("memory", elements, judgement);
    let written = written("memory", writes.iter().map(|write| write.element), judgement);
    for element in places.keys().filter(|element| !written.contains(element)) {
        judgement.violation(
            "memory",
            0,
            format_args!("the {set} set has {element}, which no client wrote"),
        );
    }
    let mut lost = 0;
    for (at, write) in writes.iter().enumerate() {
        let other = writes.iter().skip(at + 1).find(|other| other.read < write.at);
        // A later write may bring back a lost element.
        if other.is_none() && places.contains_key(&write.element) {
            continue;
        }
        lost += 1;
        let text =
            format!("the {set} set in memory has lost {} of {}", write.element, write.client);
        let Some(other) = other.filter(|_| set == "naive") else {
            judgement.violation("memory", write.at, text);
            continue;
        };
        let tokens = write.token.zip(other.token).filter(|(one, two)| one != two);
        let order = tokens.map(|(one, two)| one < two);
        let is_write_stale = is_stale(order, write.is_gone, other.is_gone, write.is_docent);
        let (stale, owner) = if is_write_stale { (write, other) } else { (other, write) };
        let Write { client, is_docent, token, .. } = *stale;
        let hold = locks.values().flatten().find(|of| of.is_of(client, token));
        let (member, from) = (hold.and_then(|of| of.member), write.read.max(other.read));
        let wrong = Wrong { client, is_docent, member, from, until: stale.at };
        judgement.overlap("memory", &text, wrong, owner.is_docent, excuses);
    }
    lost
}

/// A guarded write.
struct Guarded<'a> {
    element: u64,
    client: &'a str,
    token: u64,
    called: u64,
    returned: u64,
    outcome: &'a str,
}

impl<'a> Guarded<'a> {
    fn parse(line: &Line<'a>) -> Result<Self, String> {
        line.is_docent()?;
        Ok(Self {
            element: line.number("element")?,
            client: line.text("client"),
            token: line.number("token")?,
            called: line.number("called")?,
            returned: line.number("returned")?,
            outcome: line.one_of("outcome", &["applied", "not", "unknown"])?,
        })
    }
}

/// Checks the set in a node, which is only written by guarded writes. Its elements are in the order of their writes.
fn check_guarded(
    writes: Vec<Guarded<'_>>,
    (version, elements): Last,
    locks: &Locks<'_>,
    judgement: &mut Judgement,
) {
    let mut places = places("guarded", &elements, judgement);
    written("guarded", writes.iter().map(|write| write.element), judgement);
    let mut wrong = |at: u64, text: String| judgement.violation("guarded", at, text);
    if version.is_none_or(|version| version != elements.len() as u64) {
        let (count, version) =
            (elements.len(), version.map_or("-".to_owned(), |of| of.to_string()));
        wrong(0, format!("the set has {count} elements after {version} writes: one was lost"));
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut applied = Vec::new();
    for write in &writes {
        let Guarded { element, client, token, .. } = write;
        *counts.entry(write.outcome).or_default() += 1;
        let place = places.remove(element);
        let name = format!("the guarded write of {element} by {client}");
        match (write.outcome, place) {
            ("applied", None) => wrong(write.returned, format!("{name} is lost")),
            ("not", Some(_)) => wrong(write.returned, format!("{name} was refused, but is there")),
            ("unknown", Some(_)) => *counts.entry("unknown, but there").or_default() += 1,
            _ => {}
        }
        let Some(place) = place else { continue };
        applied.push((place, write));
        let all = locks.values().flat_map(|holds| holds.iter().map(move |own| (own, holds)));
        let mut own = all.filter(|(own, _)| own.is_of(client, Some(*token))).peekable();
        if own.peek().is_none() {
            wrong(write.called, format!("{name} has token {token}, which none of its holds has"));
        }
        // The guard of such a write must have failed, wherever the element is in the set.
        let is_later = |own: &Hold<'_>, of: &Hold<'_>| {
            own.is_before(of) == Some(true) && of.token != own.token && of.granted < write.called
        };
        if let Some(of) = own.find_map(|(own, holds)| holds.iter().find(|of| is_later(own, of))) {
            let client = of.client;
            wrong(write.called, format!("{name} was called after a later grant to {client}"));
        }
    }
    for element in places.keys() {
        wrong(0, format!("the set has {element}, which no client wrote"));
    }
    applied.sort_by_key(|(place, _)| *place);
    let (mut greatest, mut latest_call) = (None, 0);
    for (_, write) in applied {
        let Guarded { element, token, called, .. } = write;
        if let Some(other) = greatest.filter(|greatest| token <= greatest) {
            wrong(
                *called,
                format!("the write of {element} has token {token}, behind one of {other}"),
            );
        }
        greatest = greatest.max(Some(*token));
        if write.outcome == "applied" && write.returned < latest_call {
            wrong(
                *called,
                format!("the write of {element} had returned before one in front of it was called"),
            );
        }
        latest_call = latest_call.max(*called);
    }
    let count = |outcome: &str| counts.get(outcome).copied().unwrap_or(0);
    judgement.figure("guarded writes", count("applied"));
    judgement.figure("guarded writes refused", count("not"));
    judgement.figure("guarded writes with an unknown outcome", count("unknown"));
    judgement.figure("of them applied", count("unknown, but there"));
}
