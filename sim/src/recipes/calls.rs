//! The calls of clients, and whether their results agree with the one order of all changes.
//!
//! Checkers such as those of stateright or todc-utils search for *an* order that explains the results, at a cost that
//! grows exponentially with the number of unknown outcomes. Here *the* order is known: each change has a zxid, and the
//! servers show which changes they have applied. So each result is compared with that order:
//!
//! * A write that succeeded was applied once, between its call and its reply, with the Stat of its reply. A write of
//!   unknown outcome was applied at most once, and not before its call. A write that was not applied never was. The
//!   writes of a transaction have one zxid, or none was applied. A delete leaves no value behind: deletes are matched
//!   with calls.
//! * A read returns the state of one zxid, of a change that had been applied when it returned.
//! * The reads and writes of one client in one session, in the order of their calls, see states that never go back.
//! * A read behind a `sync` sees all writes that were acknowledged before the call of the `sync`. A stale one is only
//!   counted while a member may not know that it is cut off, or the leader has commits to apply: a leader treats the
//!   `sync` of its own client as a read, which overtakes commits (`CommitProcessor.needCommit`).
//! * A refusal was true of a state between the call and the reply.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use docent::{Error, ErrorKind, EventType, Outcome, Stat};

use super::worker::{ClientNumber, Worker};
use crate::world::{
    check::{Check, Findings, View},
    core::Core,
    time::{Nanos, SECOND},
    truth::{Applied, State, Truth},
};

/// The nodes below these are written by recorded calls only.
const WRITTEN_BY_CALLS: &[&str] = &["/r/", "/cells/"];

/// All calls of a run.
#[derive(Default)]
pub(super) struct Calls(Vec<Call>);

struct Call {
    by: String,
    client: ClientNumber,
    /// `None`: requests of the client may be sent in another order than their calls.
    session: Option<i64>,
    called_at: Nanos,
    request: CallRequest,
    /// The time and the session of the reply; `None`: the caller did not wait for it.
    result: Option<(Nanos, Option<i64>, CallResult)>,
}

#[derive(Debug, Clone)]
pub(super) enum CallRequest {
    /// A read of a node.
    Read { path: String },
    /// Writes, which are applied as a whole.
    Write(Vec<Write>),
}

/// A write.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) path: String,
    pub(super) kind: WriteKind,
    /// The version that the node must have.
    pub(super) version: Option<i32>,
    /// A value that no other write has.
    pub(super) value: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteKind {
    Set,
    Create,
    /// A create if the node is missing, and a set otherwise.
    Put,
    Delete,
    Check,
}

#[derive(Debug, Clone)]
pub(super) enum CallResult {
    /// A node, with its data if they were read. `synced_since`: when a successful `sync` in front of the read was
    /// called.
    Node {
        node: Option<(Option<Bytes>, Stat)>,
        synced_since: Option<Nanos>,
    },
    /// The Stats of the writes, where the reply has them.
    Written(Vec<Option<Stat>>),
    /// The write has succeeded, and replaced this value.
    Replaced(Option<Bytes>),
    /// The write was not applied.
    NotDone,
    Failed {
        kind: ErrorKind,
        outcome: Outcome,
        index: usize,
    },
}

impl CallResult {
    pub(super) fn failed(error: &Error) -> Self {
        let index = error.index().unwrap_or(0);
        Self::Failed { kind: error.kind(), outcome: error.outcome(), index }
    }

    const fn is_success_of_write(&self) -> bool {
        matches!(self, Self::Written(_) | Self::Replaced(_))
    }
}

impl Call {
    /// The time of the reply, if that acknowledges the writes.
    fn acknowledged_at(&self) -> Option<Nanos> {
        let (done, _, result) = self.result.as_ref()?;
        result.is_success_of_write().then_some(*done)
    }
}

impl Worker {
    /// Records a request that is queued now.
    pub(super) fn record_request(&self, request: CallRequest) -> usize {
        self.begin(request, self.session_id())
    }

    /// Records a call of a recipe, which queues its write at any time until it returns.
    pub(super) fn call(
        &self,
        path: &str,
        kind: WriteKind,
        version: Option<i32>,
        value: Bytes,
    ) -> usize {
        self.begin(
            CallRequest::Write(vec![Write { path: path.to_owned(), kind, version, value }]),
            None,
        )
    }

    fn begin(&self, request: CallRequest, session: Option<i64>) -> usize {
        let (by, client, called_at) = (self.name(), self.client_number, self.world.now());
        let Calls(calls) = &mut *self.world.check::<Calls>();
        calls.push(Call { by, client, session, called_at, request, result: None });
        calls.len() - 1
    }

    /// Records the result of a call.
    pub(super) fn record_result(&self, call: usize, result: CallResult) {
        let (session, now) = (self.session_id(), self.world.now());
        if let CallResult::Failed { kind, .. } = result {
            self.explain(kind);
        }
        let Calls(calls) = &mut *self.world.check::<Calls>();
        let recorded = &mut calls[call].result;
        assert!(recorded.is_none(), "a future completes once");
        *recorded = Some((now, session, result));
    }
}

impl Check for Calls {
    fn finish(&mut self, view: &View<'_>, found: &mut Findings) {
        let core = view.core();
        let mut checker = Checker::new(&core);
        checker.check(self);
        let Checker { violations, counted, .. } = checker;
        counted.into_iter().for_each(|text| found.counted("a sync without its commits", text));
        violations.into_iter().for_each(|text| found.violation(text));
    }
}

struct Checker<'a> {
    /// When a member might not have known that it is cut off from the others, or the leader had not applied all
    /// commits.
    stale_syncs: Vec<(Nanos, Nanos)>,
    states: BTreeMap<String, Vec<State>>,
    values: BTreeMap<Bytes, Vec<&'a Applied>>,
    truth: &'a Truth,
    violations: Vec<String>,
    counted: Vec<String>,
}

impl<'a> Checker<'a> {
    fn new(core: &'a Core) -> Self {
        let truth = &core.servers.truth;
        let stale_syncs = [&*core.disturbances.cuts, &core.servers.leader_lags].concat();
        let mut values: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for applied in &truth.changes {
            if let Some((value, _)) = &applied.change.node {
                values.entry(value.clone()).or_default().push(applied);
            }
        }
        let states = BTreeMap::new();
        Self { stale_syncs, states, values, truth, violations: Vec::new(), counted: Vec::new() }
    }

    fn states(&mut self, path: &str) -> &[State] {
        self.states.entry(path.to_owned()).or_insert_with(|| self.truth.states(path))
    }

    fn bad(&mut self, call: &Call, text: impl std::fmt::Display) {
        let called_at = clock_time(call.called_at);
        let request = match &call.request {
            CallRequest::Read { path } => format!("read of {path}"),
            CallRequest::Write(writes) => writes
                .iter()
                .map(|write| format!("{:?} of {} {}", write.kind, write.path, short(&write.value)))
                .collect::<Vec<_>>()
                .join(", "),
        };
        self.violations.push(format!("{}: {request}, called at {called_at}: {text}", call.by));
    }

    fn check(&mut self, calls: &Calls) {
        let mut fabricated = self.values.clone();
        for call in &calls.0 {
            match &call.request {
                CallRequest::Write(writes) => {
                    self.check_write(call, writes);
                    writes.iter().for_each(|write| drop(fabricated.remove(&write.value)));
                }
                CallRequest::Read { path } => self.check_read(call, path),
            }
        }
        for (value, applied) in &fabricated {
            for Applied { change, .. } in applied.iter().filter(|of| is_written_by_calls(of)) {
                let text = format!("{} of {} was written by no client", short(value), change.path);
                self.violations.push(text);
            }
        }
        self.check_deletes(calls);
        self.check_sessions(calls);
        self.check_syncs(calls);
    }

    fn check_write(&mut self, call: &Call, writes: &[Write]) {
        let mut zxids = Vec::new();
        for (at, write) in writes.iter().enumerate() {
            if matches!(write.kind, WriteKind::Delete | WriteKind::Check) {
                continue;
            }
            let applied = self.values.get(&write.value).cloned().unwrap_or_default();
            zxids.push(applied.first().map(|applied| applied.change.zxid));
            if applied.len() > 1 {
                self.bad(call, format_args!("applied {} times", applied.len()));
            }
            let Some(first) = applied.first() else {
                if call.acknowledged_at().is_some() {
                    self.bad(call, "acknowledged, but not applied");
                }
                continue;
            };
            if first.at < call.called_at {
                self.bad(call, "applied before its call");
            }
            let stat = first.change.node.as_ref().map(|(_, stat)| *stat);
            let is_create = first.change.event_type == EventType::NodeCreated;
            let version = stat.map_or(0, |stat| stat.version);
            let is_expected = match write.kind {
                WriteKind::Put => true,
                kind => is_create == (kind == WriteKind::Create),
            };
            if first.change.path != write.path || !is_expected {
                self.bad(call, format_args!("applied as {:?}", first.change));
            }
            if write.kind == WriteKind::Set && write.version.is_some_and(|v| v + 1 != version) {
                self.bad(call, format_args!("for {:?}, but made {version}", write.version));
            }
            if call.acknowledged_at().is_some_and(|done| first.at > done) {
                self.bad(call, "acknowledged before it was applied");
            }
            match call.result.as_ref().map(|(.., result)| result) {
                Some(CallResult::Written(stats)) => {
                    if let Some(Some(replied)) = stats.get(at)
                        && Some(*replied) != stat
                    {
                        self.bad(call, format_args!("replied {replied:?}, applied {stat:?}"));
                    }
                }
                Some(CallResult::Replaced(before)) => {
                    let mut states = self.states(&write.path).iter();
                    let replaced = states.find(|state| state.end_zxid == first.change.zxid);
                    let replaced = replaced.and_then(|state| Some(state.node.as_ref()?.0.clone()));
                    if replaced != *before {
                        self.bad(call, format_args!("replaced {replaced:?}, not {before:?}"));
                    }
                }
                Some(
                    CallResult::NotDone | CallResult::Failed { outcome: Outcome::NotApplied, .. },
                ) => {
                    self.bad(call, "said to be not applied, but applied");
                }
                _ => {}
            }
        }
        if zxids.windows(2).any(|pair| pair[0] != pair[1]) {
            self.bad(call, format_args!("applied in part: {zxids:?}"));
        }
        if let Some((done, _, CallResult::Failed { kind, index, .. })) = call.result
            && let Some(write) = writes.get(index)
        {
            self.check_refusal(call, write, kind, done);
        }
    }

    /// Checks that a server's refusal was true of a state between the call and the reply.
    fn check_refusal(&mut self, call: &Call, write: &Write, kind: ErrorKind, done: Nanos) {
        let called_at = call.called_at;
        let version = write.version;
        let fits = |state: &State| match kind {
            ErrorKind::NoNode => state.node.is_none(),
            ErrorKind::NodeExists => state.node.is_some(),
            ErrorKind::BadVersion => {
                state.node.as_ref().is_some_and(|(_, stat)| Some(stat.version) != version)
            }
            _ => true,
        };
        let states = self.states(&write.path);
        let mut between =
            states.iter().filter(|state| state.at <= done && state.end_at >= called_at);
        if !between.any(fits) {
            self.bad(call, format_args!("refused with {kind:?}, which was never true"));
        }
    }

    fn check_read(&mut self, call: &Call, path: &str) {
        let Some((done, _, CallResult::Node { node, .. })) = &call.result else { return };
        let ranges = self.ranges(path, node.as_ref());
        if let Some(Some((data, stat))) = ranges.is_empty().then_some(node) {
            let data = data.as_ref().map_or("nothing".to_owned(), |data| short(data));
            self.bad(call, format_args!("{data} with {stat:?} was never there"));
        } else if ranges.iter().all(|(_, at, _)| at > done) {
            self.bad(call, "returned a value that was not applied yet");
        }
    }

    /// The ranges of zxids in which a read could return this: the first zxid, the time of its change, and the zxid
    /// behind the range.
    fn ranges(
        &mut self,
        path: &str,
        node: Option<&(Option<Bytes>, Stat)>,
    ) -> Vec<(i64, Nanos, i64)> {
        let fits = |state: &&State| match (node, &state.node) {
            (None, None) => true,
            (Some((data, stat)), Some((value, of))) => {
                // Other fields change with the children, which are not recorded here.
                let same =
                    (stat.mzxid, stat.czxid, stat.version) == (of.mzxid, of.czxid, of.version);
                same && data.as_ref().is_none_or(|data| data == value)
            }
            _ => false,
        };
        let states = self.states(path).iter().filter(fits);
        states.map(|state| (state.zxid, state.at, state.end_zxid)).collect()
    }

    /// Matches each applied delete with a call that may have made it, and each acknowledged call with an applied
    /// delete. If both matchings exist, so does one that is both (Mendelsohn and Dulmage).
    fn check_deletes(&mut self, calls: &Calls) {
        let mut by_path: BTreeMap<&str, Vec<(&Call, &Write)>> = BTreeMap::new();
        for call in &calls.0 {
            if let CallRequest::Write(writes) = &call.request {
                let deletes = writes.iter().filter(|write| write.kind == WriteKind::Delete);
                deletes
                    .for_each(|write| by_path.entry(&write.path).or_default().push((call, write)));
            }
        }
        let changed = self.truth.changes.iter().filter(|applied| is_written_by_calls(applied));
        let changed = changed.map(|applied| applied.change.path.as_str());
        let paths: BTreeSet<_> = changed.chain(by_path.keys().copied()).collect();
        for path in paths {
            let states = self.states(path).to_vec();
            let points: Vec<_> = states
                .windows(2)
                .filter(|pair| pair[0].node.is_some() && pair[1].node.is_none())
                .map(|pair| (pair[1].at, pair[0].node.as_ref().map_or(0, |(_, stat)| stat.version)))
                .collect();
            let may = by_path.get(path).cloned().unwrap_or_default();
            let edge = |(call, write): &(&Call, &Write), (at, version): &(Nanos, i32)| {
                let until = match (call.acknowledged_at(), &call.result) {
                    (Some(done), _) => done,
                    (
                        None,
                        None | Some((_, _, CallResult::Failed { outcome: Outcome::Unknown, .. })),
                    ) => Nanos::MAX,
                    _ => return false,
                };
                let fits = write.version.is_none_or(|asked| asked == *version);
                fits && (call.called_at..=until).contains(at)
            };
            let is_acked = |(call, _): &&(&Call, &Write)| call.acknowledged_at().is_some();
            let acked: Vec<_> = may.iter().filter(is_acked).copied().collect();
            let fitting_points =
                |call| (0..points.len()).filter(|at| edge(call, &points[*at])).collect();
            let of_acked: Vec<Vec<usize>> = acked.iter().map(fitting_points).collect();
            if let Some(at) = unmatched(&of_acked, points.len()) {
                self.bad(acked[at].0, "acknowledged, but no delete was applied for it");
            }
            let fitting_calls =
                |point| (0..may.len()).filter(|at| edge(&may[*at], point)).collect();
            let of_points: Vec<Vec<usize>> = points.iter().map(fitting_calls).collect();
            if let Some(at) = unmatched(&of_points, may.len()) {
                let (at, version) = points[at];
                let at = clock_time(at);
                self.violations.push(format!(
                    "{path}, version {version}, was deleted at {at} by no client that may have done it"
                ));
            }
        }
    }

    /// The ranges of zxids that the result of a call shows.
    fn seen(&mut self, call: &Call) -> Option<Vec<(i64, Nanos, i64)>> {
        match (&call.request, &call.result) {
            (CallRequest::Read { path }, Some((_, _, CallResult::Node { node, .. }))) => {
                Some(self.ranges(path, node.as_ref()))
            }
            (CallRequest::Write(writes), Some((done, _, result)))
                if result.is_success_of_write() =>
            {
                let valued = writes.iter().find_map(|write| self.values.get(&write.value)?.first());
                if let Some(applied) = valued {
                    return Some(vec![(applied.change.zxid, applied.at, applied.change.zxid + 1)]);
                }
                let delete = writes.iter().find(|write| write.kind == WriteKind::Delete)?;
                let deleted = self.truth.of(&delete.path).filter(|applied| {
                    applied.change.node.is_none() && (call.called_at..=*done).contains(&applied.at)
                });
                Some(deleted.map(|a| (a.change.zxid, a.at, a.change.zxid + 1)).collect())
            }
            _ => None,
        }
    }

    /// The states that a client sees in one session never go back.
    fn check_sessions(&mut self, calls: &Calls) {
        let mut sessions: BTreeMap<_, Vec<&Call>> = BTreeMap::new();
        for call in &calls.0 {
            if let (Some(before), Some((_, after, _))) = (call.session, &call.result)
                && Some(before) == *after
            {
                sessions.entry((call.client, before)).or_default().push(call);
            }
        }
        for ((client, _), calls) in sessions {
            // The zxid that each call has seen, with the time of its reply.
            let mut known: Vec<(Nanos, i64)> = Vec::new();
            for call in calls {
                let before =
                    |(done, _): &&(Nanos, i64)| !client.waits_when_full || *done < call.called_at;
                let floor = known.iter().filter(before).map(|(_, zxid)| *zxid).max().unwrap_or(0);
                let Some(seen) = self.seen(call).filter(|seen| !seen.is_empty()) else { continue };
                let next = seen.iter().filter(|(_, _, end)| *end > floor).map(|seen| seen.0).min();
                match next {
                    None => {
                        self.bad(call, format_args!("went back behind zxid {floor:#x}"));
                    }
                    Some(zxid) => {
                        let done = call.result.as_ref().map_or(Nanos::MAX, |result| result.0);
                        known.push((done, zxid.max(floor)));
                    }
                }
            }
        }
    }

    /// A read behind a sync sees all writes acknowledged before the sync.
    fn check_syncs(&mut self, calls: &Calls) {
        let mut acked: Vec<(Nanos, i64)> = Vec::new();
        for call in &calls.0 {
            if let Some(done) = call.acknowledged_at()
                && let Some(seen) = self.seen(call)
                && let Some(zxid) = seen.iter().map(|seen| seen.0).min()
            {
                acked.push((done, zxid));
            }
        }
        for call in &calls.0 {
            let CallRequest::Read { path } = &call.request else { continue };
            let Some((done, after, CallResult::Node { node, synced_since: Some(since) })) =
                &call.result
            else {
                continue;
            };
            if call.session.is_none() || call.session != *after {
                continue;
            }
            let before = acked.iter().filter(|(done, _)| done < since);
            let floor = before.map(|(_, zxid)| *zxid).max().unwrap_or(0);
            let ranges = self.ranges(path, node.as_ref());
            if ranges.iter().all(|(_, _, end)| *end <= floor) && !ranges.is_empty() {
                if self.stale_syncs.iter().any(|(from, to)| from <= done && since <= to) {
                    self.counted.push(format!("{}: a stale read of {path} behind a sync", call.by));
                } else {
                    self.bad(call, format_args!("behind a sync, but older than zxid {floor:#x}"));
                }
            }
        }
    }
}

fn is_written_by_calls(applied: &Applied) -> bool {
    WRITTEN_BY_CALLS.iter().any(|below| applied.change.path.starts_with(below))
}

fn clock_time(at: Nanos) -> String {
    format!("{}.{:09}", at / SECOND, at % SECOND)
}

fn short(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split(':').next().unwrap_or_default().to_owned()
}

/// The first left element that a maximum matching leaves out, given the right elements of each; `None` if it leaves out
/// none.
fn unmatched(edges: &[Vec<usize>], right: usize) -> Option<usize> {
    fn augment(
        left: usize,
        edges: &[Vec<usize>],
        tried: &mut [bool],
        of: &mut [Option<usize>],
    ) -> bool {
        for &at in &edges[left] {
            if std::mem::replace(&mut tried[at], true) {
                continue;
            }
            if of[at].is_none_or(|other| augment(other, edges, tried, of)) {
                of[at] = Some(left);
                return true;
            }
        }
        false
    }
    let mut of = vec![None; right];
    (0..edges.len()).find(|left| !augment(*left, edges, &mut vec![false; right], &mut of))
}
