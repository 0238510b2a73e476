//! Exclusion of holds: by token, by the proven bounds, and by the belief of clients.

use std::collections::BTreeMap;

use super::{Excuses, Judgement, Line, Wrong, is_stale, seconds};

/// The holds of each lock.
pub(super) type Locks<'a> = BTreeMap<&'a str, Vec<Hold<'a>>>;

pub(super) struct Hold<'a> {
    pub(super) client: &'a str,
    is_docent: bool,
    pub(super) token: Option<u64>,
    is_gone: bool,
    called: u64,
    pub(super) granted: u64,
    proven: Option<u64>,
    /// When the release was called.
    release: Option<u64>,
    /// The first and the last moment at which the client believed that it held the lock.
    held: Option<(u64, u64)>,
    /// The member that the client was connected to at the end of `held`, or before.
    pub(super) member: Option<u64>,
}

impl<'a> Hold<'a> {
    fn parse(line: &Line<'a>) -> Result<Self, String> {
        let held = match line.text("held") {
            "-" => None,
            text => {
                let ends = text.split_once('-').and_then(|(from, to)| {
                    Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?))
                });
                Some(ends.filter(|(from, to)| from <= to).ok_or_else(|| line.wrong("held"))?)
            }
        };
        Ok(Self {
            client: line.text("client"),
            is_docent: line.is_docent()?,
            token: line.token()?,
            is_gone: line.is_gone(),
            called: line.number("called")?,
            granted: line.number("granted")?,
            proven: line.optional("proven")?,
            release: line.optional("release")?,
            held,
            member: line.optional("member")?,
        })
    }

    /// The end of the time in which no other client may be granted the lock.
    fn proven_end(&self) -> Option<u64> {
        let end = self.proven?.min(self.release.unwrap_or(u64::MAX));
        (end > self.granted).then_some(end)
    }

    /// Whether this is the hold of a client with a token.
    pub(super) fn is_of(&self, client: &str, token: Option<u64>) -> bool {
        token.is_some() && self.token == token && self.client == client
    }

    /// Whether the servers granted this hold before the other one: by the tokens, or else by the times. `None` if
    /// neither decides it.
    pub(super) fn is_before(&self, other: &Self) -> Option<bool> {
        match (self.token, other.token) {
            (Some(one), Some(two)) if one != two => Some(one < two),
            _ if self.granted <= other.called => Some(true),
            _ if other.granted <= self.called => Some(false),
            _ => None,
        }
    }
}

/// Judges the holds, and returns them.
pub(super) fn judge<'a>(
    lines: impl Iterator<Item = &'a Line<'a>>,
    excuses: &Excuses<'_>,
    judgement: &mut Judgement,
) -> Result<Locks<'a>, String> {
    let mut locks = Locks::new();
    for line in lines {
        locks.entry(line.text("lock")).or_default().push(Hold::parse(line)?);
    }
    let all = || locks.values().flatten();
    let with_token = all().filter(|hold| hold.token.is_some()).count();
    judgement.figure("holds", all().count());
    judgement.figure("holds with a token", with_token);
    judgement.figure("holds with a belief", all().filter(|hold| hold.held.is_some()).count());
    judgement.check_lacking("holds have no token", all().count() - with_token, all().count());
    let proven: Vec<_> = all().filter_map(|hold| Some(hold.proven_end()? - hold.granted)).collect();
    judgement.figure("holds with a proven part", proven.len());
    judgement.figure("proven, in total", seconds(proven.into_iter().fold(0, u64::saturating_add)));
    let mut overlaps = Overlaps::default();
    for (lock, holds) in &locks {
        let proven = holds.iter().filter_map(|hold| Some(hold.proven_end()? - hold.granted));
        let proven = proven.fold(0, u64::saturating_add);
        let figure = format!("{lock}={}, proven for {}", holds.len(), seconds(proven));
        judgement.figures.push(("holds by lock", figure));
        check_tokens(lock, holds, judgement);
        check_proven(lock, holds, judgement);
        overlaps.check(lock, holds, excuses, judgement);
    }
    judgement.figure("overlaps of naive holds, docent", overlaps.docent);
    judgement.figure("overlaps of naive holds, Curator", overlaps.curator);
    judgement.figure("longest overlap, docent", seconds(overlaps.longest_docent));
    judgement.figure("longest overlap, Curator", seconds(overlaps.longest_curator));
    Ok(locks)
}

/// Tokens are unique, and a hold whose acquire was called after another hold was granted has the greater token.
fn check_tokens(lock: &str, holds: &[Hold<'_>], judgement: &mut Judgement) {
    let mut by_token: BTreeMap<u64, &Hold<'_>> = BTreeMap::new();
    for hold in holds {
        let Some(token) = hold.token else { continue };
        if let Some(other) = by_token.insert(token, hold) {
            let (one, other) = (hold.client, other.client);
            judgement.violation(
                "token",
                hold.granted,
                format_args!("{lock}: {one} and {other} have token {token}"),
            );
        }
    }
    let tokened = || holds.iter().filter_map(|hold| Some((hold, hold.token?)));
    let mut granted: Vec<_> = tokened().map(|(hold, token)| (hold.granted, token)).collect();
    granted.sort_unstable();
    // Replaces each token with the greatest one so far.
    let mut greatest = 0;
    for (_, token) in &mut granted {
        greatest = greatest.max(*token);
        *token = greatest;
    }
    for (hold, token) in tokened() {
        let before = granted.partition_point(|(at, _)| *at < hold.called);
        let Some((_, greatest)) = before.checked_sub(1).map(|last| granted[last]) else { continue };
        if token < greatest {
            let client = hold.client;
            judgement.violation(
                "token",
                hold.granted,
                format_args!(
                    "{lock}: {client} has token {token}, but {greatest} was granted before its call"
                ),
            );
        }
    }
}

/// Until the proven end of a hold, no later hold is granted, and no other hold is proven. A grant is never reported
/// before it was made.
fn check_proven(lock: &str, holds: &[Hold<'_>], judgement: &mut Judgement) {
    let mut by_grant: Vec<&Hold<'_>> = holds.iter().collect();
    by_grant.sort_by_key(|hold| hold.granted);
    for (at, hold) in by_grant.iter().enumerate() {
        let Some(end) = hold.proven_end() else { continue };
        for (place, other) in by_grant.iter().enumerate() {
            if other.granted >= end {
                break;
            }
            let (early, one, two) = (seconds(end - other.granted), hold.client, other.client);
            match hold.is_before(other) {
                _ if place == at => {}
                Some(false) => {}
                Some(true) => judgement.violation(
                    "proven",
                    other.granted,
                    format_args!("{lock}: granted to {two} {early} before the proven end of the hold of {one}"),
                ),
                // Which one was granted later is not known, but both cannot be proven.
                None if place > at && other.proven_end().is_some() => judgement.violation(
                    "proven",
                    other.granted,
                    format_args!("{lock}: proven for {one} and {two} at once"),
                ),
                None => {}
            }
        }
    }
}

#[derive(Default)]
struct Overlaps {
    docent: usize,
    curator: usize,
    longest_docent: u64,
    longest_curator: u64,
}

impl Overlaps {
    /// Finds holds that two clients believed in at once.
    fn check(
        &mut self,
        lock: &str,
        holds: &[Hold<'_>],
        excuses: &Excuses<'_>,
        judgement: &mut Judgement,
    ) {
        let mut held: Vec<_> = holds.iter().filter_map(|hold| Some((hold, hold.held?))).collect();
        held.sort_by_key(|(_, (from, _))| *from);
        for (at, (one, (start, end))) in held.iter().enumerate() {
            for (other, (from, to)) in
                held.iter().skip(at + 1).take_while(|(_, (from, _))| from < end)
            {
                let both_until = (*end).min(*to);
                // One may end when the other one begins.
                if both_until == *start {
                    continue;
                }
                let length = both_until - from;
                let order = one.is_before(other);
                let is_one_stale = is_stale(order, one.is_gone, other.is_gone, one.is_docent);
                // The wrong one is wrong until it knows, also if the other one has released.
                let (stale, owner, until) =
                    if is_one_stale { (one, other, *end) } else { (other, one, *to) };
                let Hold { client, is_docent, member, .. } = **stale;
                let (number, longest) = if is_docent {
                    (&mut self.docent, &mut self.longest_docent)
                } else {
                    (&mut self.curator, &mut self.longest_curator)
                };
                *number += 1;
                *longest = length.max(*longest);
                let (right, long) = (owner.client, seconds(length));
                let text =
                    format!("{lock}: {client} still believed to hold it for {long} beside {right}");
                let wrong = Wrong { client, is_docent, member, from: *from, until };
                judgement.overlap("belief", &text, wrong, owner.is_docent, excuses);
            }
        }
    }
}
