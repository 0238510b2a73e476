//! Holds of locks, as their holders believe in them: compared with the other holders and with the servers, whenever
//! time goes on.
//!
//! Only running processes count: a stopped one does nothing with its belief, and when it continues, its clock has gone
//! on.

use std::collections::BTreeMap;

use docent::locks::REVOKE_MESSAGE;

use super::{
    belief::{Belief, Mode, Part, conflict},
    strict::{self, StrictHolds},
    waits::Waits,
};
use crate::{
    checks::{
        END_NOTICED_WITHIN, EVENT_SEEN_WITHIN,
        causes::{self, RestsOn},
        excuses::{Believed, Conflicts},
    },
    recipes::common::HoldWatch,
    world::{
        check::{Check, Findings, Leftovers, View},
        core::Core,
        history::Bounds,
        process::Death,
        time::{Nanos, Pid},
    },
};

/// All holds that processes may believe in, and the tokens granted so far.
#[derive(Default)]
pub(super) struct Holds {
    pub(super) held: BTreeMap<u64, Belief>,
    conflicts: Conflicts,
    /// By lock, the greatest token of an exclusive hold, and that of any hold.
    granted: BTreeMap<String, (i64, i64)>,
    pub(super) strict: StrictHolds,
    pub(super) waits: Waits,
}

impl Holds {
    /// Notes a token that is granted with a lock. Returns an error text if it is too small. `is_continued`: a reader
    /// that downgrades has the token of its write lock.
    pub(super) fn grant(&mut self, part: &Part, token: i64, is_continued: bool) -> Option<String> {
        let (exclusive, any) = self.granted.entry(part.lock.clone()).or_default();
        // An equal token is right: a hold that is entered again has the token of its node.
        let greatest = match part.mode {
            Mode::Exclusive | Mode::Strict => *any,
            Mode::Shared if is_continued => return None,
            Mode::Shared => *exclusive,
            Mode::Lease(_) => return None,
        };
        *any = token.max(*any);
        if part.mode == Mode::Exclusive {
            *exclusive = token.max(*exclusive);
        }
        (token < greatest).then(|| format!("token {token} < {greatest}"))
    }
}

impl Check for Holds {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        let mut conflicts = Vec::new();
        for (id, belief) in &mut self.held {
            check_end(view, belief, found);
            show(view, belief, found);
            // Others wait for the bound of a strict hold, whatever becomes of its session.
            if belief.ended_at.is_some() && !belief.is_strict() && !belief.is_unasked {
                let hold = belief.believed(view);
                self.conflicts.judge_bound(view, *id, &hold, || belief.name(), found);
            }
            self.strict.note(view, *id, belief, found);
        }
        self.waits.look(view, &self.held, found);
        let believed: Vec<_> =
            self.held.iter().filter(|(_, belief)| belief.is_believed(view)).collect();
        for (at, (id, belief)) in believed.iter().enumerate() {
            for (other_id, other) in believed.iter().skip(at + 1) {
                let pair = (**id, **other_id);
                if !self.conflicts.is_reported(pair)
                    && let Some(lock) = conflict(belief, other)
                    && belief.guard.is_held()
                    && other.guard.is_held()
                {
                    let text = format!("{lock}: {} and {} hold it", belief.who(), other.who());
                    conflicts.push((pair, vec![*belief, *other], 1, text));
                }
            }
            for part in &belief.parts {
                let Mode::Lease(_) = part.mode else { continue };
                let all: Vec<_> = believed
                    .iter()
                    .filter_map(|(id, belief)| Some((*id, *belief, belief.leases(&part.lock)?)))
                    .collect();
                let limit = all.iter().map(|(.., limit)| *limit).max().unwrap_or(0);
                let newest = all.iter().map(|(id, ..)| **id).max().unwrap_or(0);
                let key = (u64::MAX, newest);
                if all.len() > limit && !self.conflicts.is_reported(key) {
                    let text = format!("{}: {} leases of {limit}", part.lock, all.len());
                    let all = all.into_iter().map(|(_, belief, _)| belief);
                    let all: Vec<_> = all.filter(|belief| belief.guard.is_held()).collect();
                    if all.len() > limit {
                        conflicts.push((key, all, limit, text));
                    }
                }
            }
            let single = (**id, **id);
            if belief.missing_since.is_some()
                && !belief.is_strict()
                && !self.conflicts.is_reported(single)
                && belief.guard.is_held()
            {
                let text = format!("{} holds it, but its node is gone", belief.name());
                conflicts.push((single, vec![*belief], 0, text));
            }
        }
        for (key, concerned, limit, text) in conflicts {
            let holds: Vec<_> = concerned.iter().map(|belief| belief.believed(view)).collect();
            self.conflicts.judge(view, key, (&holds, limit), &text, found);
        }
    }

    fn process_ends(&mut self, pid: Pid, death: Death) -> Leftovers {
        if death == Death::ShutDown {
            self.strict.end_all(pid);
        }
        Box::new(self.held.extract_if(.., |_, belief| belief.pid == pid).collect::<Vec<_>>())
    }
}

impl Belief {
    /// The nodes that a hold depends on: its own, and the record of a strict one, since it names the hold.
    fn depends_on(&self, core: &Core) -> impl Iterator<Item = (&str, Nanos)> {
        let records = self.parts.iter().filter(|_| self.is_strict());
        let since = |lock| strict::granted_at(core, lock, self.guard.path());
        let locks = records.map(|part| part.lock.as_str());
        let locks: Vec<_> = locks.map(|lock| (lock, since(lock))).collect();
        self.paths.iter().map(|path| (path.as_str(), 0)).chain(locks)
    }

    /// Why the hold has ended.
    fn cause_of_end(&self, core: &Core, now: Nanos) -> Option<&'static str> {
        // Without a write that is permitted, it is not renewed.
        if self.is_strict() && self.depends_on(core).any(|(path, _)| core.may_be_denied(path, now))
        {
            return Some("a refusal");
        }
        let rests_on = if self.is_strict() { RestsOn::Connection } else { RestsOn::Session };
        let (of, session) = ((self.pid, &self.client), (self.session, rests_on));
        causes::cause_of_end(core, now, of, session, self.depends_on(core))
    }

    /// Why its node is gone.
    fn cause_of_deletion(&self, core: &Core) -> Option<&'static str> {
        if !core.ensemble().session_ids().contains(&self.session) {
            return Some("the end of the session");
        }
        causes::cause_of_deletion(
            core,
            (self.pid, &self.client),
            self.session,
            self.depends_on(core),
        )
    }

    fn believed(&self, view: &View<'_>) -> Believed<'_> {
        let strict_excuse =
            |part: &Part| strict::excuse(&view.core(), &part.lock, self.guard.path());
        Believed {
            pid: self.pid,
            client: &self.client,
            proven_until: self.guard.proven_until(),
            session: self.session,
            paths: self.paths.iter().map(String::as_str).collect(),
            gone_at: self.missing_since.map(|_| self.gone_at),
            only_excuse: self.is_strict().then(|| self.parts.first().and_then(strict_excuse)),
        }
    }
}

/// Adds a changed belief to a history that shows the wire. A stopped process believes what it believed.
fn show(view: &View<'_>, belief: &mut Belief, found: &mut Findings) {
    if !view.core().shows_wire || !view.is_running(belief.pid) {
        return;
    }
    let lease = belief.lease.as_ref().filter(|_| belief.over_since.is_none());
    let shown = lease.map(|lease| (lease.deadline(), belief.guard.proven_until()));
    if shown == belief.shown {
        return;
    }
    belief.shown = shown;
    let bounds = shown.map(|(believed, proven)| Bounds {
        believed: view.true_time(&belief.client, believed),
        proven: view.true_time(&belief.client, proven),
    });
    found.belief(belief.pid, belief.guard.path(), bounds);
}

/// Checks that a hold ends only for a cause, and that its holder notices the end in time.
fn check_end(view: &View<'_>, belief: &mut Belief, found: &mut Findings) {
    let now = view.now;
    let core = view.core();
    let is_there = |path: &String| {
        let node = core.ensemble().node(path);
        node.is_some_and(|(_, stat)| stat.ephemeral_owner == belief.session)
    };
    let is_missing = !belief.paths.iter().all(is_there);
    if is_missing && belief.missing_since.is_none() && belief.cause_of_deletion(&core).is_none() {
        found.violation(format!("{}: its node was deleted without a cause", belief.name()));
    }
    if is_missing && belief.missing_since.is_none() {
        let gone = belief.paths.iter().filter(|path| !is_there(path));
        let deletions = gone.filter_map(|path| core.servers.truth.of(path).next_back());
        belief.gone_at = deletions.map(|deletion| deletion.at).max().unwrap_or(0);
    }
    if is_missing && belief.ended_at.is_none() {
        let is_open = core.ensemble().session_ids().contains(&belief.session);
        let last = |path: &String| core.servers.truth.of(path).next_back().map(|last| last.at);
        belief.ended_at = belief.paths.iter().filter_map(last).max().filter(|_| !is_open);
    }
    let disturbed_until = core.disturbed_until(belief.pid);
    let starved_until = core.process(belief.pid).starved_until;
    // A call of `is_held` wakes the tasks that wait for the end. Without it, they wait for timers, which may be late.
    let over_unasked = belief.over_since.filter(|_| belief.is_unasked);
    let timers_late_by = over_unasked.map_or(0, |at| core.process(belief.pid).timers_late_at(at));
    let revocation = belief.revocable_since.and_then(|since| {
        let (data, stat) = core.ensemble().node(belief.paths.first()?)?;
        (stat.mzxid > since && data == REVOKE_MESSAGE).then_some(now)
    });
    drop(core);
    belief.revoked_since = belief.revoked_since.or(revocation);
    if !is_missing {
        belief.missing_since = None;
    }
    if !view.is_running(belief.pid) {
        // No task of a stopped process could call `is_held`, or notice the end.
        belief.over_since = belief.over_since.map(|_| now);
        return;
    }
    if is_missing {
        belief.missing_since.get_or_insert(now);
    }
    if !belief.is_unasked {
        let is_ahead = belief.client.now() < belief.guard.proven_until();
        if belief.proof.is_revived(is_ahead) {
            let text = format!("{}: its proven bound had passed, and lies ahead", belief.name());
            found.violation(text);
        }
    }
    let is_over = if belief.is_unasked { belief.time_is_up() } else { !belief.guard.is_held() };
    if belief.over_since.is_some() && !belief.is_unasked && !is_over {
        found.violation(format!("{} holds it again", belief.name()));
    }
    if is_over && belief.over_since.is_none() {
        belief.over_since = Some(now);
        if belief.cause_of_end(&view.core(), now).is_none() {
            found.violation(format!("{} is lost without a cause", belief.name()));
        }
    }
    let Some(watching) = belief.watching_since else { return };
    // A holder that has noticed the end does not watch any more.
    if let Some(since) = belief.revoked_since
        && belief.over_since.is_none()
        && now > since.max(watching).max(disturbed_until) + EVENT_SEEN_WITHIN
    {
        found.violation(format!("{} hears of no revocation", belief.name()));
        belief.revocable_since = None;
        belief.revoked_since = None;
    }
    let is_watched = match (belief.watch, &belief.token) {
        (HoldWatch::Nothing, _) => false,
        (HoldWatch::Token, Some(token)) => !token.is_cancelled(),
        _ => true,
    };
    if !is_watched {
        return;
    }
    if let Some(since) = belief.over_since
        && now > since.max(watching).max(starved_until) + timers_late_by + END_NOTICED_WITHIN
    {
        found.violation(format!("{} does not notice the end", belief.name()));
        belief.watching_since = None;
    } else if let Some(since) = belief.missing_since
        && now > since.max(watching).max(disturbed_until) + EVENT_SEEN_WITHIN
    {
        let text = format!("{} does not notice that its node is gone", belief.name());
        found.violation(text);
        belief.watching_since = None;
    }
}
