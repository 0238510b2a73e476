//! Exclusion of holds: by token, by the proven bounds, and by the belief of clients.

use std::collections::BTreeMap;

use super::{Fault, Judgement, Line, seconds};

struct Hold {
    client: String,
    is_docent: bool,
    token: Option<u64>,
    called: u64,
    granted: u64,
    proven: Option<u64>,
    /// When the release was called.
    release: Option<u64>,
    /// From the first to the last moment at which the client believed to hold the lock.
    held: Option<(u64, u64)>,
}

impl Hold {
    fn parse(line: &Line<'_>) -> Result<Self, String> {
        let held = match line.text("held")? {
            "-" => None,
            text => {
                let ends = text.split_once('-').and_then(|(from, to)| {
                    Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?))
                });
                Some(ends.ok_or_else(|| format!("line {}: held={text}", line.number))?)
            }
        };
        Ok(Self {
            client: line.text("client")?.to_owned(),
            is_docent: line.text("kind")? == "docent",
            token: line.optional("token")?,
            called: line.number("called")?,
            granted: line.number("granted")?,
            proven: line.optional("proven")?,
            release: line.optional("release")?,
            held,
        })
    }

    /// The end of the time in which no other client may be granted the lock.
    fn proven_end(&self) -> Option<u64> {
        let end = self.proven?.min(self.release.unwrap_or(u64::MAX));
        (end > self.granted).then_some(end)
    }
}

pub(super) fn judge<'a>(
    lines: impl Iterator<Item = &'a Line<'a>>,
    faults: &[Fault],
    session: u64,
    judgement: &mut Judgement,
) -> Result<(), String> {
    let mut locks: BTreeMap<&str, Vec<Hold>> = BTreeMap::new();
    for line in lines {
        locks.entry(line.text("lock")?).or_default().push(Hold::parse(line)?);
    }
    let all = || locks.values().flatten();
    judgement.figure("holds", all().count());
    judgement.figure("holds with a token", all().filter(|hold| hold.token.is_some()).count());
    let proven: Vec<_> = all().filter_map(|hold| Some(hold.proven_end()? - hold.granted)).collect();
    judgement.figure("holds with a proven part", proven.len());
    judgement.figure("proven, in total", seconds(proven.iter().sum()));
    let mut overlaps = Overlaps::default();
    for (lock, holds) in &locks {
        let proven: u64 =
            holds.iter().filter_map(|hold| Some(hold.proven_end()? - hold.granted)).sum();
        let figure = format!("{lock}={}, proven for {}", holds.len(), seconds(proven));
        judgement.figures.push(("holds by lock", figure));
        check_tokens(lock, holds, judgement);
        check_proven(lock, holds, judgement);
        overlaps.check(lock, holds, faults, session, judgement);
    }
    judgement.figure("overlaps of naive holds, docent", overlaps.docent);
    judgement.figure("overlaps of naive holds, Curator", overlaps.curator);
    judgement.figure("longest overlap, docent", seconds(overlaps.longest_docent));
    judgement.figure("longest overlap, Curator", seconds(overlaps.longest_curator));
    Ok(())
}

/// Tokens differ, and a hold whose acquire was called after another grant has a greater token.
fn check_tokens(lock: &str, holds: &[Hold], judgement: &mut Judgement) {
    let mut by_token: BTreeMap<u64, &Hold> = BTreeMap::new();
    for hold in holds {
        let Some(token) = hold.token else { continue };
        if let Some(other) = by_token.insert(token, hold) {
            let (one, other) = (&hold.client, &other.client);
            judgement.violation(
                hold.granted,
                format_args!("{lock}: {one} and {other} have token {token}"),
            );
        }
    }
    let tokened = || holds.iter().filter_map(|hold| Some((hold, hold.token?)));
    let mut granted: Vec<_> = tokened().map(|(hold, token)| (hold.granted, token)).collect();
    granted.sort_unstable();
    // The greatest token up to each place.
    let mut greatest = 0;
    for (_, token) in &mut granted {
        greatest = greatest.max(*token);
        *token = greatest;
    }
    for (hold, token) in tokened() {
        let before = granted.partition_point(|(at, _)| *at < hold.called);
        let Some((_, greatest)) = before.checked_sub(1).map(|last| granted[last]) else { continue };
        if token <= greatest {
            let client = &hold.client;
            judgement.violation(
                hold.granted,
                format_args!(
                    "{lock}: {client} has token {token}, but {greatest} was granted before its call"
                ),
            );
        }
    }
}

/// While a hold is proven, no hold with a greater token is granted. A grant is reported after it was made.
fn check_proven(lock: &str, holds: &[Hold], judgement: &mut Judgement) {
    let mut by_grant: Vec<&Hold> = holds.iter().collect();
    by_grant.sort_by_key(|hold| hold.granted);
    for hold in holds {
        let (Some(end), Some(token)) = (hold.proven_end(), hold.token) else { continue };
        let before_end = by_grant.partition_point(|other| other.granted < end);
        // No acquire takes as long as this.
        let first = hold.called.saturating_sub(600_000_000_000);
        let others = by_grant[..before_end].iter().rev().take_while(|other| other.granted >= first);
        for other in others.filter(|other| other.token.is_some_and(|other| other > token)) {
            let early = seconds(end - other.granted);
            let (one, two) = (&hold.client, &other.client);
            judgement.violation(
                other.granted,
                format_args!(
                    "{lock}: granted to {two} {early} before the proven end of the hold of {one}"
                ),
            );
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
    /// Holds that two clients believe in at once. They are counted, unless the wrong client is docent's and no fault of members
    /// explains it: then a bound is wrong.
    fn check(
        &mut self,
        lock: &str,
        holds: &[Hold],
        faults: &[Fault],
        session: u64,
        judgement: &mut Judgement,
    ) {
        let mut held: Vec<_> = holds.iter().filter_map(|hold| Some((hold, hold.held?))).collect();
        held.sort_by_key(|(_, (from, _))| *from);
        for (at, (one, (_, end))) in held.iter().enumerate() {
            for (other, (from, to)) in
                held.iter().skip(at + 1).take_while(|(_, (from, _))| from < end)
            {
                let (until, is_one_stale) = ((*end).min(*to), one.token < other.token);
                let length = until.saturating_sub(*from);
                if length == 0 {
                    continue;
                }
                let (stale, owner) = if is_one_stale { (one, other) } else { (other, one) };
                // A member without the others is noticed by itself after some ticks, and then the session has to end.
                let slack = 2 * session;
                let cause = faults.iter().rev().find(|fault| {
                    fault.is_of_members() && fault.from <= until && fault.until + slack >= *from
                });
                let (wrong, right, long) = (&stale.client, &owner.client, seconds(length));
                let text =
                    format!("{lock}: {wrong} still believed to hold it for {long} beside {right}");
                if stale.is_docent {
                    self.docent += 1;
                    self.longest_docent = self.longest_docent.max(length);
                } else {
                    self.curator += 1;
                    self.longest_curator = self.longest_curator.max(length);
                }
                match cause {
                    Some(fault) => {
                        judgement.counted.push((*from, format!("{text} ({})", fault.kind)))
                    }
                    None if stale.is_docent => {
                        judgement
                            .violation(*from, format_args!("{text}, without a fault of members"));
                    }
                    None => judgement.counted.push((*from, text)),
                }
            }
        }
    }
}
