//! Excuses: which fault explains that a client was wrong, and until when.

use super::{Line, seconds};

/// The faults that separate, end or stop members, so that one may not know the decisions of the others.
const OF_MEMBERS: [&str; 11] = [
    "halves",
    "leader-alone",
    "follower-alone",
    "alone-with-clients",
    "one-way-out",
    "one-way-in",
    "bridge",
    "kill",
    "pause",
    "rolling-restart",
    "full-disk",
];

const OF_CLIENTS: [&str; 4] = ["pause-client", "kill-client", "cut-client", "one-server"];

/// A fault that was carried out.
struct Fault<'a> {
    number: u64,
    kind: &'a str,
    from: u64,
    until: u64,
    /// Of a fault of clients.
    clients: Vec<&'a str>,
}

impl<'a> Fault<'a> {
    fn parse(line: &Line<'a>) -> Result<Self, String> {
        let kind = line.text("kind");
        let (is_of_members, is_of_clients) =
            (OF_MEMBERS.contains(&kind), OF_CLIENTS.contains(&kind));
        let names = |field| line.text(field).split(',').filter(|name| !name.is_empty()).collect();
        let (members, clients): (Vec<_>, Vec<_>) = (names("members"), names("clients"));
        if (is_of_members && members.is_empty()) || (is_of_clients && clients.is_empty()) {
            return Err(line.wrong(if is_of_members { "members" } else { "clients" }));
        }
        if !is_of_members && !is_of_clients {
            return Err(line.wrong("kind"));
        }
        let (from, until) = (line.number("from")?, line.number("until")?);
        Ok(Self { number: line.number("number")?, kind, from, until, clients })
    }
}

/// A client, and the time in which it was wrong.
#[derive(Clone, Copy)]
pub(super) struct Wrong<'a> {
    pub(super) client: &'a str,
    pub(super) is_docent: bool,
    pub(super) from: u64,
    pub(super) until: u64,
}

/// The faults of a run, with what they excuse.
pub(super) struct Excuses<'a> {
    faults: Vec<Fault<'a>>,
    start: u64,
    /// Two session timeouts: a member without the others notices it after some ticks, and then the session has to end.
    pub(super) slack: u64,
}

impl<'a> Excuses<'a> {
    pub(super) fn new(
        lines: impl Iterator<Item = &'a Line<'a>>,
        start: u64,
        session: u64,
    ) -> Result<Self, String> {
        let faults = lines.map(Fault::parse).collect::<Result<_, _>>()?;
        Ok(Self { faults, start, slack: 2 * session })
    }

    /// The number of faults of each kind.
    pub(super) fn kinds(&self) -> Vec<(&'a str, usize)> {
        let count = |kind| self.faults.iter().filter(|fault| fault.kind == kind).count();
        let kinds = OF_MEMBERS.iter().chain(&OF_CLIENTS).map(|kind| (*kind, count(*kind)));
        kinds.filter(|(_, count)| *count > 0).collect()
    }

    /// The excuse of a client: one fault that had begun before the client was wrong, and whose end was no more than
    /// the slack ago when that ended. A client is excused for no longer than the slack. A client of docent computes its
    /// claims from the clock, so that faults of clients excuse Curator's only.
    pub(super) fn find(&self, wrong: Wrong<'_>) -> Option<String> {
        let Wrong { client, is_docent, from, until } = wrong;
        let fault = self.faults.iter().rev().find(|fault| {
            let concerns = if fault.clients.is_empty() {
                true
            } else {
                !is_docent && fault.clients.contains(&client)
            };
            concerns && fault.from <= from && until <= fault.until.saturating_add(self.slack)
        });
        let fault = fault.filter(|_| until.saturating_sub(from) <= self.slack)?;
        let end = seconds((fault.until + self.slack).saturating_sub(self.start));
        Some(format!("{client} is excused by fault {}, {}, until {end}", fault.number, fault.kind))
    }
}
