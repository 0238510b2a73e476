//! Sets that clients add elements to, under a lock.

use std::collections::{BTreeMap, BTreeSet};

use super::holds::Grant;
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
    grants: &[Grant<'_>],
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
        let lost = check_memory(set, writes, &elements, (grants, excuses), judgement);
        judgement.figure(of_lost, lost);
    }
    let guarded = lines.iter().filter(|line| line.word == "guarded");
    let writes = guarded.map(Guarded::parse).collect::<Result<Vec<_>, _>>()?;
    check_guarded(writes, take("guarded")?, grants, judgement);
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

/// Checks a set in memory, and returns the number of lost elements. An element is lost if a later write stores a set
/// that was read before the element was written: two clients acted as holders at once. Only the naive set may have an
/// excuse for that.
fn check_memory(
    set: &str,
    mut writes: Vec<Write<'_>>,
    elements: &[u64],
    (grants, excuses): (&[Grant<'_>], &Excuses<'_>),
    judgement: &mut Judgement,
) -> usize {
    writes.sort_by_key(|write| write.at);
    let places = places("memory", elements, judgement);
    let written: BTreeSet<_> = writes.iter().map(|write| write.element).collect();
    for element in places.keys().filter(|element| !written.contains(element)) {
        judgement.violation(
            "memory",
            0,
            format_args!("the {set} set has {element}, which no client wrote"),
        );
    }
    let mut lost = 0;
    for (at, write) in writes.iter().enumerate() {
        if places.contains_key(&write.element) {
            continue;
        }
        lost += 1;
        let text =
            format!("the {set} set in memory has lost {} of {}", write.element, write.client);
        let other = writes.iter().skip(at + 1).find(|other| other.read < write.at);
        let Some(other) = other.filter(|_| set == "naive") else {
            judgement.violation("memory", write.at, text);
            continue;
        };
        let order = write.token.zip(other.token).map(|(one, two)| one < two);
        let is_write_stale = is_stale(order, write.is_gone, other.is_gone, write.is_docent);
        let (stale, owner) = if is_write_stale { (write, other) } else { (other, write) };
        let Write { client, is_docent, token, .. } = *stale;
        let grant = grants.iter().find(|of| of.client == client && Some(of.token) == token);
        let (member, from) = (grant.and_then(|of| of.member), write.read.max(other.read));
        let wrong = Wrong { client, is_docent, member, from, until: write.at };
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
    grants: &[Grant<'_>],
    judgement: &mut Judgement,
) {
    let mut places = places("guarded", &elements, judgement);
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
        let Some(own) = grants.iter().find(|of| of.client == *client && of.token == *token) else {
            wrong(write.called, format!("{name} has token {token}, which none of its holds has"));
            continue;
        };
        // The guard of such a write must have failed, wherever the element is in the set.
        let later = grants
            .iter()
            .find(|of| of.lock == own.lock && of.token > *token && of.granted < write.called);
        if let Some(later) = later {
            let token = later.token;
            wrong(write.called, format!("{name} was called after token {token} was granted"));
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
