//! Excuses for a client that believes in a hold whose node is gone. A hold whose node exists is never excused: any
//! contender that is granted its lock is wrong.

use std::collections::BTreeSet;

use docent::{Client, runtime::Instant};
use docent_session::planted;

use super::proof;
use crate::world::{
    check::{Findings, View},
    disturbances::Apart,
    time::{Nanos, Pid},
};

/// The members that answer the client are cut off from the others, which have ended the session.
const APART: &str = "members without each other";

/// The member that answers the client has not applied the end of the session.
const LAGS: &str = "a member that lags";

/// The key of a conflict: the numbers of a pair of holds, or twice the number of a single one.
pub(crate) type Key = (u64, u64);

/// The second number of a key that stands for the proven bound of one hold.
const BOUND: u64 = u64::MAX - 1;

/// The part of a believed hold or leadership that a conflict depends on.
pub(crate) struct Believed<'a> {
    pub(crate) pid: Pid,
    pub(crate) client: &'a Client,
    pub(crate) proven_until: Instant,
    pub(crate) session: i64,
    pub(crate) paths: Vec<&'a str>,
    /// When one of its nodes was deleted; `None`: all exist.
    pub(crate) gone_at: Option<Nanos>,
    /// `Some` for strict holds: the only excuse, if there is one, whatever happens to the nodes.
    pub(crate) only_excuse: Option<Option<&'static str>>,
}

impl Believed<'_> {
    fn is_proven(&self, view: &View<'_>) -> bool {
        proof::is_ahead(view, self.pid, self.client, self.proven_until)
    }

    /// Why the client may believe in it although one of its nodes is gone.
    fn excuse(&self, view: &View<'_>) -> Option<&'static str> {
        if let Some(excuse) = self.only_excuse {
            return excuse;
        }
        let (gone_at, now, is_proven) = (self.gone_at?, view.now, self.is_proven(view));
        let pid = self.pid;
        let core = view.core();
        let of = &core.disturbances;
        let is_invalidated = self.paths.iter().any(|path| of.is_invalidated_by_others(path));
        if is_invalidated && !planted::is("node-deleted-by-hand") {
            return Some("a node deleted by another client");
        }
        // An ended session is renewed only by a server that has not heard of its end. Without a leader, the next one
        // ends the session, perhaps long after the request to end it.
        let lagging = core.answered_at(pid, &of.lags).unwrap_or(0);
        let heard_of = |at: &Nanos| of.session_over_for_client_at(gone_at.max(lagging).max(*at));
        let by_force = of.expired.get(&self.session).is_some_and(|at| now < heard_of(at));
        if by_force && !planted::is("session-ended-by-hand") {
            return Some("a session ended by force");
        }
        if is_proven {
            return None;
        }
        let granted = of.granted_timeout(self.session);
        if granted.is_some_and(|granted| granted < self.client.session_timeout()) {
            return Some("a shorter timeout in a reply that was lost");
        }
        let is_excused = |apart: &[Apart]| {
            core.answered_at(pid, apart)
                .is_some_and(|answered| now < of.session_over_for_client_at(answered))
        };
        let lagged = of.lags.iter().filter(|lag| (lag.from..=lag.until).contains(&gone_at));
        if is_excused(&lagged.copied().collect::<Vec<_>>()) {
            return Some(LAGS);
        }
        is_excused(&of.apart).then_some(APART)
    }
}

/// The conflicts of a run: holds or leaderships that must not be believed in at once.
#[derive(Default)]
pub(crate) struct Conflicts {
    reported: BTreeSet<Key>,
    counted: BTreeSet<Key>,
}

impl Conflicts {
    pub(crate) fn is_reported(&self, key: Key) -> bool {
        self.reported.contains(&key)
    }

    /// Reports more than `limit` holds, or counts them if the excuses leave no more than the limit.
    pub(crate) fn judge(
        &mut self,
        view: &View<'_>,
        key: Key,
        (holds, limit): (&[Believed<'_>], usize),
        text: &str,
        found: &mut Findings,
    ) {
        let excuses: Vec<_> = holds.iter().filter_map(|hold| hold.excuse(view)).collect();
        let holds_left = holds.len() - excuses.len();
        if let Some(excuse) = excuses.first().filter(|_| holds_left <= limit) {
            if self.counted.insert(key) {
                found.counted(excuse, text);
            }
        } else if self.reported.insert(key) {
            let is_within = |hold: &Believed<'_>| hold.gone_at.is_some() && hold.is_proven(view);
            let within = if holds.iter().any(is_within) { ", within the proven bound" } else { "" };
            found.violation(format!("{text}{within}"));
        }
    }

    /// Reports a session that the servers have ended while the proven bound of its hold lies ahead.
    pub(crate) fn judge_bound(
        &mut self,
        view: &View<'_>,
        number: u64,
        hold: &Believed<'_>,
        name: impl FnOnce() -> String,
        found: &mut Findings,
    ) {
        if hold.gone_at.is_some()
            && view.is_running(hold.pid)
            && hold.is_proven(view)
            && proof::has_expired(&view.core(), hold.session)
            && self.reported.insert((number, BOUND))
        {
            let name = name();
            found.violation(format!("{name}: its session has ended within the proven bound"));
        }
    }
}
