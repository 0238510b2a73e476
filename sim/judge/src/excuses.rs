//! Excuses: which fault explains that a client was wrong, and until when.

use std::collections::BTreeMap;

use super::{Line, seconds};

/// Faults that separate, kill or pause members: meanwhile a member may not know what the others have decided.
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
    members: Vec<u64>,
    clients: Vec<&'a str>,
}

impl<'a> Fault<'a> {
    fn parse(line: &Line<'a>) -> Result<Self, String> {
        let kind = line.text("kind");
        let (is_of_members, is_of_clients) =
            (OF_MEMBERS.contains(&kind), OF_CLIENTS.contains(&kind));
        let names = line.text("clients").split(',').filter(|name| !name.is_empty());
        let (members, clients): (Vec<_>, Vec<_>) = (line.list("members")?, names.collect());
        if (is_of_members && members.is_empty()) || (is_of_clients && clients.is_empty()) {
            return Err(line.wrong(if is_of_members { "members" } else { "clients" }));
        }
        if !is_of_members && !is_of_clients {
            return Err(line.wrong("kind"));
        }
        let (from, until) = (line.number("from")?, line.number("until")?);
        Ok(Self { number: line.number("number")?, kind, from, until, members, clients })
    }

    /// Whether the fault may be the cause. A docent client computes its claims from the clock, so only a fault of the
    /// member that it was connected to can make it wrong: that member may reply without knowing what the others have
    /// decided.
    fn concerns(&self, wrong: Wrong<'_>) -> bool {
        if OF_MEMBERS.contains(&self.kind) {
            wrong.member.map_or(!wrong.is_docent, |member| self.members.contains(&member))
        } else {
            !wrong.is_docent && self.clients.contains(&wrong.client)
        }
    }
}

/// A client, and the time in which it was wrong.
#[derive(Clone, Copy)]
pub(super) struct Wrong<'a> {
    pub(super) client: &'a str,
    pub(super) is_docent: bool,
    /// The member that it was connected to, if that is known.
    pub(super) member: Option<u64>,
    pub(super) from: u64,
    pub(super) until: u64,
}

/// The faults of a run, with what they excuse.
pub(super) struct Excuses<'a> {
    faults: Vec<Fault<'a>>,
    start: u64,
    /// How long a fault excuses after its end: two session timeouts. A member that is cut off notices it after some
    /// ticks, and then the session still has to expire.
    pub(super) slack: u64,
}

impl<'a> Excuses<'a> {
    pub(super) fn new(
        lines: impl Iterator<Item = &'a Line<'a>>,
        start: u64,
        session: u64,
    ) -> Result<Self, String> {
        let faults = lines.map(Fault::parse).collect::<Result<_, _>>()?;
        Ok(Self { faults, start, slack: session.saturating_mul(2) })
    }

    /// The number of faults of each kind.
    pub(super) fn kinds(&self) -> BTreeMap<&'a str, usize> {
        let mut kinds = BTreeMap::new();
        for fault in &self.faults {
            *kinds.entry(fault.kind).or_default() += 1;
        }
        kinds
    }

    /// Finds the excuse of a client: a fault that began before the client was wrong, and that ended at most the slack
    /// before the client was right again. No client is excused for longer than the slack.
    pub(super) fn find(&self, wrong: Wrong<'_>) -> Option<String> {
        let Wrong { client, member, from, until, .. } = wrong;
        let fault = self.faults.iter().rev().find(|fault| {
            fault.concerns(wrong)
                && fault.from <= from
                && until <= fault.until.saturating_add(self.slack)
        });
        let fault = fault.filter(|_| until.saturating_sub(from) <= self.slack)?;
        let end = seconds(fault.until.saturating_add(self.slack).saturating_sub(self.start));
        let at =
            member.map_or(String::new(), |member| format!(" at m{}", member.saturating_add(1)));
        Some(format!(
            "{client}{at} is excused by fault {}, {}, until {end}",
            fault.number, fault.kind
        ))
    }
}
