//! Registers: whether one order of the operations explains all results, and whether each session follows that order.
//!
//! A search for an order takes time exponential in the number of concurrent operations (Wing and Gong). ZooKeeper's
//! versions make it unnecessary: the write that made version 7 was the seventh. Two questions remain: within which
//! time, bounded by calls and replies, each version was made; and which write of unknown outcome made a version that no
//! reply names.

use std::collections::{BTreeMap, BTreeSet};

use super::{Excuses, Judgement, Line, Wrong, seconds};

/// An operation on one register.
struct Operation<'a> {
    key: u64,
    client: &'a str,
    op: &'a str,
    result: &'a str,
    value: &'a str,
    /// The version that a compare-and-set expects.
    expected: Option<u64>,
    /// The version that was read or made, and the zxid of the write that made it.
    state: Option<(u64, u64)>,
    session: Option<&'a str>,
    called: u64,
    returned: u64,
}

/// The value of version 0.
const FIRST: &str = "-";

impl<'a> Operation<'a> {
    fn parse(line: &Line<'a>) -> Result<Self, String> {
        let op = line.one_of("op", &["plain", "synced", "fenced", "set", "cas"])?;
        let results: &[_] = match op {
            "set" => &["ok", "not", "unknown"],
            "cas" => &["ok", "refused", "not", "unknown"],
            _ => &["ok"],
        };
        let result = line.one_of("result", results)?;
        let number = |name: &str, is_there| match line.optional(name)? {
            number if number.is_some() == is_there => Ok(number),
            _ => Err(line.wrong(name)),
        };
        let is_ok = result == "ok";
        let (version, mzxid) = (number("version", is_ok)?, number("mzxid", is_ok)?);
        Ok(Self {
            key: line.number("key")?,
            client: line.text("client"),
            op,
            result,
            value: line.text("value"),
            expected: number("expected", op == "cas")?,
            state: version.zip(mzxid),
            session: Some(line.text("session")).filter(|session| *session != "-"),
            called: line.number("called")?,
            returned: line.number("returned")?,
        })
    }

    fn is_write(&self) -> bool {
        matches!(self.op, "set" | "cas")
    }

    /// Checks that this write can have made a version.
    fn can_make(&self, version: u64) -> Result<(), String> {
        let made = match (self.result, self.expected) {
            ("ok", _) => self.state.map(|(made, _)| made),
            ("unknown", None) => Some(version),
            ("unknown", Some(expected)) => expected.checked_add(1),
            _ => return Err("whose write was refused".to_owned()),
        };
        match made {
            Some(made) if made != version => Err(format!("whose write made version {made}")),
            _ => Ok(()),
        }
    }
}

/// A version of a register.
#[derive(Clone, Copy)]
struct Version<'a> {
    value: &'a str,
    mzxid: u64,
    /// The times of a call before it was made, and of a reply after that.
    window: (u64, u64),
}

type Versions<'a> = BTreeMap<u64, Version<'a>>;

pub(super) fn judge<'a>(
    lines: impl Iterator<Item = &'a Line<'a>>,
    excuses: &Excuses<'_>,
    judgement: &mut Judgement,
) -> Result<(), String> {
    let operations = lines.map(Operation::parse).collect::<Result<Vec<_>, _>>()?;
    let mut registers: BTreeMap<u64, Vec<&Operation<'_>>> = BTreeMap::new();
    for operation in &operations {
        registers.entry(operation.key).or_default().push(operation);
    }
    let mut versions = BTreeMap::new();
    for (key, operations) in &registers {
        let mut register = Register { key: *key, operations, judgement };
        versions.insert(*key, register.explain());
        register.check_last();
    }
    check_zxids(&versions, judgement);
    check_sessions(&operations, &versions, judgement);
    let count = |is: &dyn Fn(&Operation<'_>) -> bool| operations.iter().filter(|of| is(of)).count();
    let answered = |of: &Operation<'_>| of.result == "ok";
    judgement.check_lacking(
        "operations on registers have no session",
        count(&|of| answered(of) && of.session.is_none()),
        count(&answered),
    );
    judgement.figure("registers", registers.len());
    judgement.figure("operations on registers", operations.len());
    judgement.figure("writes of registers", count(&|of| of.is_write() && answered(of)));
    judgement.figure("fenced reads of registers", count(&|of| of.op == "fenced"));
    judgement.figure("plain reads of registers", count(&|of| of.op == "plain"));
    judgement.figure("reads of registers behind a sync", count(&|of| of.op == "synced"));
    judgement
        .figure("writes of registers with an unknown outcome", count(&|of| of.result == "unknown"));
    for (op, figure) in [("plain", "stale plain reads"), ("synced", "stale reads behind a sync")] {
        let stale =
            registers.values().map(|of| stale_reads(op, of, excuses, judgement)).sum::<usize>();
        judgement.figure(figure, stale);
    }
    Ok(())
}

/// A register that is judged.
struct Register<'a, 'b> {
    key: u64,
    operations: &'b [&'b Operation<'a>],
    judgement: &'b mut Judgement,
}

impl<'a> Register<'a, '_> {
    fn wrong(&mut self, at: u64, text: impl std::fmt::Display) {
        self.judgement.violation("register", at, format_args!("register {}: {text}", self.key));
    }

    /// Checks that an order exists. Returns the versions that replies name.
    fn explain(&mut self) -> Versions<'a> {
        let (operations, before) = (self.operations, self.judgement.violations.len());
        let writes = || operations.iter().filter(|operation| operation.is_write());
        let mut writers: BTreeMap<&str, &Operation<'_>> = BTreeMap::new();
        for write in writes() {
            if writers.insert(write.value, write).is_some() || write.value == FIRST {
                self.wrong(write.called, format_args!("{} is written twice", write.value));
            }
        }
        let mut versions = Versions::new();
        let mut places = BTreeMap::new();
        for operation in operations {
            self.add_state(&mut versions, &mut places, &writers, operation);
        }
        if self.judgement.violations.len() > before {
            return versions;
        }
        let applied = writes().filter(|of| matches!(of.result, "ok" | "unknown")).count();
        let last = versions.last_key_value().map_or(0, |(last, _)| *last);
        if last > applied as u64 {
            self.wrong(0, format_args!("version {last} after {applied} writes"));
            return versions;
        }
        let window = |version| versions.get(&version).map_or((0, u64::MAX), |of| of.window);
        let mut windows = vec![(0, 0)];
        windows.extend((1..=last).map(window));
        lower_ends_to_later(&mut windows);
        for refusal in operations.iter().filter(|of| of.result == "refused") {
            self.add_refusal(&mut windows, last, refusal);
        }
        for read in operations.iter().filter(|of| of.op == "fenced") {
            // The read shows that the next version was made after its call.
            if let Some(next) =
                read.state.and_then(|(version, _)| windows.get_mut(index_of(version) + 1))
            {
                next.0 = next.0.max(read.called);
            }
        }
        lower_ends_to_later(&mut windows);
        // The order of all registers is judged by these times too.
        let mut now = 0;
        for (version, (from, until)) in (0..).zip(&windows).skip(1) {
            now = now.max(*from);
            if let Some(of) = versions.get_mut(&version) {
                of.window = (now, *until);
            }
        }
        let used: BTreeSet<_> = versions.values().map(|version| version.value).collect();
        let free = writes().filter(|of| of.result == "unknown" && !used.contains(of.value));
        self.fill(&mut windows, &versions, free.copied().collect());
        versions
    }

    /// Adds the version that an operation has read or made.
    fn add_state(
        &mut self,
        versions: &mut Versions<'a>,
        places: &mut BTreeMap<&'a str, u64>,
        writers: &BTreeMap<&str, &Operation<'_>>,
        operation: &Operation<'a>,
    ) {
        let Some((version, mzxid)) = operation.state else { return };
        let Operation { value, client, called, returned, .. } = *operation;
        let called_write = match writers.get(value) {
            _ if version == 0 && (value != FIRST || operation.is_write()) => {
                Err("at which there is no write".to_owned())
            }
            _ if version == 0 => Ok(0),
            None => Err("which no client wrote".to_owned()),
            Some(writer) => writer.can_make(version).map(|()| writer.called),
        };
        let from = match called_write {
            Ok(from) => from,
            Err(text) => {
                let text = format_args!("{client} read {value} at version {version}, {text}");
                return self.wrong(called, text);
            }
        };
        if operation.expected.is_some_and(|of| of.checked_add(1) != Some(version)) {
            let text = format_args!("the compare-and-set of {client} made version {version}");
            self.wrong(called, text);
        }
        let place = *places.entry(value).or_insert(version);
        if place != version {
            self.wrong(called, format_args!("{value} is version {place} and {version}"));
        }
        let fresh = Version { value, mzxid, window: (from, u64::MAX) };
        let known = versions.entry(version).or_insert(fresh);
        known.window.1 = known.window.1.min(returned);
        if (known.value, known.mzxid) != (value, mzxid) {
            let text =
                format_args!("version {version} is {value} of {client}, and {}", known.value);
            self.wrong(called, text);
        }
    }

    /// Adds a refused compare-and-set. At some time between its call and its reply, the version was not the expected
    /// one. Somebody had seen the expected one before, so it was a later one, which perhaps no reply names.
    fn add_refusal(&mut self, windows: &mut Vec<(u64, u64)>, last: u64, refusal: &Operation<'_>) {
        let expected = refusal.expected.filter(|of| *of <= last).map(index_of);
        let seen = expected
            .filter(|of| windows.get(*of).is_some_and(|(_, until)| *until <= refusal.called));
        let Some(expected) = seen else {
            let text = format_args!("{} expected a version that nobody had seen", refusal.client);
            return self.wrong(refusal.called, text);
        };
        if expected + 1 == windows.len() {
            windows.push((0, u64::MAX));
        }
        if let Some((_, until)) = windows.get_mut(expected + 1) {
            *until = refusal.returned.min(*until);
        }
    }

    /// Assigns the writes of unknown outcome to the versions that no reply names, and gives each version the earliest
    /// possible time. This misses no order: the earliest call is used first, so the calls left for later versions are
    /// later ones.
    fn fill(
        &mut self,
        windows: &mut [(u64, u64)],
        versions: &Versions<'_>,
        mut free: Vec<&Operation<'_>>,
    ) {
        free.sort_by_key(|write| std::cmp::Reverse(write.called));
        let (mut sets, mut conditional) = (Vec::new(), BTreeMap::new());
        for write in free {
            match write.expected.map(|expected| expected.saturating_add(1)) {
                None => sets.push(write.called),
                // Later calls come first, so the earliest one remains.
                Some(version) => drop(conditional.insert(version, write.called)),
            }
        }
        let mut now = 0;
        for (version, (from, until)) in (0..).zip(windows).skip(1) {
            if !versions.contains_key(&version) {
                let of_version =
                    conditional.get(&version).copied().filter(|called| called <= until);
                let Some(called) = of_version.or_else(|| sets.pop()) else {
                    return self.wrong(*from, format_args!("no write explains version {version}"));
                };
                *from = (*from).max(called);
            }
            now = now.max(*from);
            if now > *until {
                let early = seconds(now - *until);
                return self.wrong(
                    *until,
                    format_args!(
                        "no order explains version {version}: it was seen {early} too early"
                    ),
                );
            }
        }
    }

    /// Checks that a fenced read was called after the last reply to a write.
    fn check_last(&mut self) {
        let writes = self.operations.iter().filter(|of| of.is_write() && of.result == "ok");
        let Some(last) = writes.map(|write| write.returned).max() else { return };
        if !self.operations.iter().any(|of| of.op == "fenced" && of.called >= last) {
            self.wrong(last, "it was not read at the end");
        }
    }
}

/// The index of a version. It saturates far above the number of versions of any history.
fn index_of(version: u64) -> usize {
    usize::try_from(version).unwrap_or(usize::MAX - 1)
}

/// Lowers each second number to the smallest one behind it, because a version is made before all later ones.
fn lower_ends_to_later(windows: &mut [(u64, u64)]) {
    let mut next = u64::MAX;
    for (_, until) in windows.iter_mut().rev() {
        next = next.min(*until);
        *until = next;
    }
}

/// Checks that the zxids rise with the versions of each register, and that their order agrees with the calls and
/// replies of all registers.
fn check_zxids(registers: &BTreeMap<u64, Versions<'_>>, judgement: &mut Judgement) {
    let mut writes = Vec::new();
    for (key, versions) in registers {
        let mut last = (0, 0);
        for (version, of) in versions {
            if of.window.0 <= of.window.1 {
                writes.push((of.mzxid, of.window, *key, *version));
            }
            // The versions in between have zxids too.
            if of.mzxid < u64::saturating_add(last.1, (*version - last.0).max(1)) {
                judgement.violation("register", of.window.0, format_args!("register {key}: the zxid of version {version} is not above that of the one before"));
            }
            last = (*version, of.mzxid);
        }
    }
    writes.sort_unstable();
    let (mut now, mut before) = (0, (0, 0));
    for (mzxid, (from, until), key, version) in writes {
        now = now.max(from);
        // One transaction may have created several registers.
        if (mzxid == before.0 && version.max(before.1) > 0) || now > until {
            judgement.violation(
                "register",
                until,
                format_args!(
                    "register {key}: the zxid of version {version} is that of a later write"
                ),
            );
        }
        before = (mzxid, version);
    }
}

/// Checks that no session goes back: what a client has seen in it, of any register, all its later reads see too. Each
/// client makes one request at a time. The write of a fenced read comes after all that had a reply before its call.
fn check_sessions(
    operations: &[Operation<'_>],
    registers: &BTreeMap<u64, Versions<'_>>,
    judgement: &mut Judgement,
) {
    let calls = operations.iter().map(|of| (of.called, false, of));
    let mut events: Vec<_> =
        calls.chain(operations.iter().map(|of| (of.returned, true, of))).collect();
    events.sort_by_key(|(at, is_reply, _)| (*at, *is_reply));
    // The greatest zxid of all replies, and those that each session has seen: with a reply, or by one client.
    let mut greatest = 0;
    let mut seen: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
    for (_, is_reply, operation) in events {
        let Operation { client, session, state: Some((version, mzxid)), key, .. } = *operation
        else {
            continue;
        };
        if is_reply {
            greatest = mzxid.max(greatest);
        }
        let Some(session) = session else { continue };
        let by_all = seen.get(&(session, None)).copied().unwrap_or(0);
        if is_reply {
            seen.insert((session, None), mzxid.max(by_all));
            continue;
        }
        let seen = seen.entry((session, Some(client))).or_default();
        let before = by_all.max(*seen);
        let next = registers.get(&key).and_then(|of| of.range(version.saturating_add(1)..).next());
        if let Some((next, _)) = next.filter(|(_, of)| !operation.is_write() && of.mzxid <= before)
        {
            judgement.violation(
                "session",
                operation.called,
                format_args!("register {key}: {client} read version {version} in a session that had seen a state with version {next}"),
            );
        }
        let fence = if operation.op == "fenced" { greatest } else { 0 };
        *seen = mzxid.max(fence).max(*seen);
    }
}

/// Counts the reads that miss a write which a reply had shown before their call. A follower may lag, but not for longer
/// than the slack; a stale read after a sync is excused only by a fault of members.
fn stale_reads(
    op: &str,
    operations: &[&Operation<'_>],
    excuses: &Excuses<'_>,
    judgement: &mut Judgement,
) -> usize {
    let mut shown: Vec<_> =
        operations.iter().filter_map(|of| Some((of.state?.0, of.returned))).collect();
    shown.sort_unstable();
    lower_ends_to_later(&mut shown);
    let mut stale = 0;
    for read in operations.iter().filter(|of| of.op == op) {
        let Some((version, _)) = read.state else { continue };
        let missed = shown.get(shown.partition_point(|(shown, _)| *shown <= version));
        let Some((shown, from)) = missed.copied().filter(|(_, at)| *at < read.called) else {
            continue;
        };
        stale += 1;
        let lag = read.called - from;
        // Any member may be at fault, but no client.
        let (is_docent, member, until) = (false, None, read.called);
        let wrong = Wrong { client: "", is_docent, member, from, until };
        let is_good =
            if op == "plain" { lag <= excuses.slack } else { excuses.find(wrong).is_some() };
        if !is_good {
            let (key, client, lag) = (read.key, read.client, seconds(lag));
            judgement.violation("stale", read.called, format_args!("register {key}: {client} read version {version} {lag} after a reply with version {shown}"));
        }
    }
    stale
}
