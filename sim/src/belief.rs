//! Belief: who holds which lock by its own account, looked at whenever time goes on.
//!
//! Of running processes only: a stopped one does nothing with its belief, and when it goes on its clock has gone on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use docent::{Client, LockGuard, SessionLease, recipes::locks::REVOKE_MESSAGE};
use tokio_util::sync::CancellationToken;

use crate::{
    history::What,
    kept::Kept,
    leaders::Leaders,
    nodes::Nodes,
    plan::HoldWatch,
    process::Pid,
    world::{MILLISECOND, Nanos, SECOND, World},
};

/// How long after the end of a hold a running process may not have noticed: `lost()` and the token need the polls of
/// a few tasks, and a poll is put off by up to 20 ms.
pub(crate) const END_NOTICED_WITHIN: Nanos = SECOND;

/// How long a watched hold may last after the deletion of its node by another client, or a revocable one after the
/// request, if nothing disturbs its client meanwhile: the watch may have to be set again, after a pause of up to 5 s.
pub(crate) const EVENT_SEEN_WITHIN: Nanos = 15 * SECOND;

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "shared modes come with their workloads")]
pub enum Mode {
    /// By one owner.
    Exclusive,
    /// Beside other readers.
    Shared,
    /// Beside other leases, up to this number.
    Lease(usize),
}

/// A lock, and how it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The path of the lock.
    pub lock: String,
    /// How.
    pub mode: Mode,
}

/// A hold that begins.
pub(crate) struct NewBelief<'a> {
    pub(crate) pid: Pid,
    pub(crate) worker: usize,
    pub(crate) client: &'a Client,
    /// The locks, in the order of the paths of the guard.
    pub(crate) parts: Vec<Part>,
    /// Holds of one owner of a process may overlap; `None`: an owner of its own.
    pub(crate) owner: Option<u8>,
    pub(crate) watch: HoldWatch,
    pub(crate) is_unasked: bool,
    pub(crate) is_revocable: bool,
    pub(crate) guard: LockGuard,
}

/// A hold, as its holder sees it.
pub(crate) struct Belief {
    pub(crate) pid: Pid,
    worker: usize,
    parts: Vec<Part>,
    /// The lock nodes, each of which must be `session`'s.
    pub(crate) paths: Vec<String>,
    session: i64,
    owner: (Pid, u64),
    watch: HoldWatch,
    token: Option<CancellationToken>,
    is_unasked: bool,
    /// The last change of a revocable node before the hold began.
    revocable_since: Option<i64>,
    /// Since when a revocation is requested.
    revoked_since: Option<Nanos>,
    /// Whether the holder waits for the end of the hold, and since when.
    watching_since: Option<Nanos>,
    /// Since when the running process could have known that the hold has ended.
    over_since: Option<Nanos>,
    /// Since when a node is missing.
    missing_since: Option<Nanos>,
    client: Client,
    lease: Option<Arc<SessionLease>>,
    pub(crate) guard: Arc<LockGuard>,
}

/// All holds that somebody may believe in, and what they are compared with.
#[derive(Default)]
pub(crate) struct Beliefs {
    next: u64,
    held: BTreeMap<u64, Belief>,
    /// The pairs and single holds that were reported.
    reported: BTreeSet<(u64, u64)>,
    /// Those that were counted.
    counted: BTreeSet<(u64, u64)>,
    /// The sessions that the servers were made to end, with the time.
    pub(crate) expired: BTreeMap<i64, Nanos>,
    /// Until when overlaps are counted only: touches of a session may have been lost between the members.
    pub(crate) excused_until: Nanos,
    /// Until when a member may not have applied the end of a session.
    pub(crate) lags_until: Nanos,
    /// The lock nodes that another client has tried to delete.
    pub(crate) intruded: BTreeSet<String>,
    /// The greatest tokens that were granted: by lock, to owners that exclude all others, and to any.
    granted: BTreeMap<String, (i64, i64)>,
    pub(crate) nodes: Nodes,
    pub(crate) leaders: Leaders,
    pub(crate) kept: Kept,
}

impl Beliefs {
    /// Takes all beliefs of a process that ends. Their guards must be dropped without a lock.
    pub(crate) fn take_all(&mut self, pid: Pid) -> Vec<Belief> {
        let ids: Vec<_> =
            self.held.iter().filter(|(_, belief)| belief.pid == pid).map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| self.held.remove(id)).collect()
    }

    /// All lock nodes that a process has a guard of.
    pub(crate) fn held_paths(&self, pid: Pid) -> impl Iterator<Item = &str> {
        let of_process = self.held.values().filter(move |belief| belief.pid == pid);
        of_process.flat_map(|belief| &belief.paths).map(String::as_str)
    }

    /// Why a hold may be believed in beyond its end.
    fn excuse(&self, belief: &Belief, now: Nanos, timeout: Nanos) -> Option<&'static str> {
        let paths = belief.paths.iter().map(String::as_str);
        self.excuse_of(paths, belief.session, now, timeout)
    }

    /// Why something may be believed to be held beyond its end: by these nodes of a session.
    pub(crate) fn excuse_of<'a>(
        &self,
        mut paths: impl Iterator<Item = &'a str>,
        session: i64,
        now: Nanos,
        timeout: Nanos,
    ) -> Option<&'static str> {
        if paths.any(|path| self.intruded.contains(path)) {
            return Some("a node deleted by another client");
        }
        // No server renews an ended session, but one that has not heard of the end. The slack is the error of the
        // clock, and the time of a request.
        let heard = |at: &Nanos| (*at).max(self.lags_until) + timeout + timeout / 50 + SECOND / 10;
        if self.expired.get(&session).is_some_and(|at| now < heard(at)) {
            return Some("a session ended by force");
        }
        (now < self.excused_until).then_some(BY_MEMBERS)
    }
}

/// The excuse that the proven bound does not need.
pub(crate) const BY_MEMBERS: &str = "members without each other";

/// Of the excuses of several holders, one that excuses a hold within its proven bound too, if there is one.
pub(crate) fn strongest_excuse(
    excuses: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    excuses.max_by_key(|excuse| *excuse != BY_MEMBERS)
}

/// A guard, believed in until it is dropped or taken out.
pub(crate) struct Held {
    world: World,
    id: u64,
    guard: Option<Arc<LockGuard>>,
    token: Option<CancellationToken>,
    is_reader: bool,
    czxid: Option<i64>,
}

impl Held {
    /// The guard.
    pub(crate) fn guard(&self) -> &LockGuard {
        self.guard.as_ref().expect("until it is taken out")
    }

    /// The token of the guard, if the hold is watched with one.
    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        self.token.clone().unwrap_or_default()
    }

    pub(crate) const fn is_reader(&self) -> bool {
        self.is_reader
    }

    /// Whether its owner has the write lock too.
    pub(crate) fn owner_writes(&self) -> bool {
        let beliefs = self.world.beliefs();
        let Some(ours) = beliefs.held.get(&self.id) else { return false };
        let mut same_owner = beliefs.held.values().filter(|belief| belief.owner == ours.owner);
        same_owner.any(|belief| ours.parts.iter().any(|part| belief.writes(&part.lock)))
    }

    /// What the fencing token must be, if the node was seen.
    pub(crate) const fn token(&self) -> Option<i64> {
        self.czxid
    }

    /// The holder waits for the end of the hold.
    pub(crate) fn watch(&self) {
        self.set_watching(Some(self.world.now()));
    }

    /// The holder no longer waits for the end of the hold.
    pub(crate) fn stop_watching(&self) {
        self.set_watching(None);
    }

    fn set_watching(&self, since: Option<Nanos>) {
        if let Some(belief) = self.world.beliefs().held.get_mut(&self.id) {
            belief.watching_since = since;
        }
    }

    /// Ends the belief. The guard remains to be released or dropped; `None` if the process has ended.
    pub(crate) fn into_guard(mut self) -> Option<LockGuard> {
        let belief = self.world.beliefs().held.remove(&self.id);
        if let Some(belief) = &belief
            && belief.over_since.is_some()
            && belief.guard.is_held()
        {
            let text = format!("{} holds it again", belief.name());
            self.world.record(What::Violation(text));
        }
        drop(belief);
        self.guard.take().and_then(Arc::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let belief = self.world.beliefs().held.remove(&self.id);
        drop(belief);
    }
}

impl World {
    /// Whether another client has tried to delete one of these nodes.
    pub(crate) fn are_intruded<'a>(&self, mut paths: impl Iterator<Item = &'a str>) -> bool {
        let beliefs = self.beliefs();
        paths.any(|path| beliefs.intruded.contains(path))
    }

    /// Begins a belief.
    pub(crate) fn believe(&self, new: NewBelief<'_>) -> Held {
        let NewBelief { pid, worker, client, parts, owner, watch, .. } = new;
        let NewBelief { is_unasked, is_revocable, guard, .. } = new;
        let guard = Arc::new(guard);
        let token = (watch == HoldWatch::Token).then(|| guard.cancellation_token());
        let session = guard.session_id();
        let paths: Vec<_> = guard.lock_paths().map(str::to_owned).collect();
        let stats: Vec<_> = {
            let core = self.core();
            let stat = |path| core.servers.ensemble.node(path).map(|(_, stat)| stat);
            paths.iter().map(|path| stat(path).filter(|s| s.ephemeral_owner == session)).collect()
        };
        let czxid = stats.first().and_then(|stat| Some(stat.as_ref()?.czxid));
        let mut beliefs = self.beliefs();
        let id = beliefs.next;
        beliefs.next += 1;
        // An owner of its own must differ from all numbers of owners.
        let owner = (pid, owner.map_or((1 << 32) + id, u64::from));
        let mut wrong = Vec::new();
        for (part, stat) in parts.iter().zip(&stats) {
            let Some(token) = stat.as_ref().map(|stat| stat.czxid) else { continue };
            let mut same_owner = beliefs.held.values().filter(|belief| belief.owner == owner);
            let writes = same_owner.any(|belief| belief.writes(&part.lock));
            let (exclusive, any) = beliefs.granted.entry(part.lock.clone()).or_default();
            // A hold that is entered again has the token of its node.
            let greatest = match part.mode {
                Mode::Exclusive => *any,
                // A reader that downgrades has the token of its write lock.
                Mode::Shared if writes => continue,
                Mode::Shared => *exclusive,
                Mode::Lease(_) => continue,
            };
            if token < greatest {
                wrong.push(format!("{} p{pid}.{worker}: token {token} < {greatest}", part.lock));
            }
            *any = token.max(*any);
            if part.mode == Mode::Exclusive {
                *exclusive = token.max(*exclusive);
            }
        }
        let is_reader = parts.iter().any(|part| part.mode == Mode::Shared);
        let belief = Belief {
            pid,
            worker,
            parts,
            paths,
            session,
            owner,
            watch,
            token: token.clone(),
            is_unasked,
            revocable_since: stats
                .first()
                .and_then(|stat| Some(stat.as_ref()?.mzxid))
                .filter(|_| is_revocable),
            revoked_since: None,
            watching_since: None,
            over_since: None,
            missing_since: None,
            client: client.clone(),
            lease: client.session().filter(|lease| lease.session_id() == session),
            guard: Arc::clone(&guard),
        };
        beliefs.held.insert(id, belief);
        drop(beliefs);
        wrong.into_iter().for_each(|text| self.record(What::Violation(text)));
        Held { world: self.clone(), id, guard: Some(guard), token, is_reader, czxid }
    }

    /// Compares all beliefs with each other and with the servers' data.
    pub(crate) fn check_beliefs(&self) {
        let now = self.now();
        let mut beliefs = self.beliefs();
        let mut records = Vec::new();
        self.check_nodes(&mut beliefs, &mut records);
        self.check_leaders(&mut beliefs, &mut records);
        self.check_kept(&mut beliefs, &mut records);
        if beliefs.held.is_empty() {
            drop(beliefs);
            return records.into_iter().for_each(|record| self.record(record));
        }
        let timeout = self.core().longest_timeout;
        let mut held = std::mem::take(&mut beliefs.held);
        let mut found = Vec::new();
        for belief in held.values_mut() {
            self.check_end(belief, &mut records);
        }
        let believed: Vec<_> = held.iter().filter(|(_, belief)| belief.is_believed(self)).collect();
        for (at, (id, belief)) in believed.iter().enumerate() {
            for (other_id, other) in believed.iter().skip(at + 1) {
                let pair = (**id, **other_id);
                if !beliefs.reported.contains(&pair)
                    && let Some(lock) = conflict(belief, other)
                    && belief.guard.is_held()
                    && other.guard.is_held()
                {
                    let text = format!("{lock}: {} and {} hold it", belief.who(), other.who());
                    found.push((pair, vec![*belief, *other], text));
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
                if all.len() > limit && !beliefs.reported.contains(&key) {
                    let text = format!("{}: {} leases of {limit}", part.lock, all.len());
                    let all = all.into_iter().map(|(_, belief, _)| belief);
                    let all: Vec<_> = all.filter(|belief| belief.guard.is_held()).collect();
                    if all.len() > limit {
                        found.push((key, all, text));
                    }
                }
            }
            let single = (**id, **id);
            if belief.missing_since.is_some()
                && !beliefs.reported.contains(&single)
                && belief.guard.is_held()
            {
                let text = format!("{} holds it, but its node is gone", belief.name());
                found.push((single, vec![*belief], text));
            }
        }
        for (key, concerned, text) in found {
            let excuses = concerned.iter().filter_map(|b| beliefs.excuse(b, now, timeout));
            let excuse = strongest_excuse(excuses);
            let is_new = match excuse {
                Some(_) => beliefs.counted.insert(key),
                None => beliefs.reported.insert(key),
            };
            if !is_new {
                continue;
            }
            let proven =
                concerned.iter().all(|belief| belief.client.now() < belief.guard.proven_until());
            let by_members = excuse == Some(BY_MEMBERS);
            records.push(match excuse {
                Some(_) if by_members && proven => {
                    What::Violation(format!("{text}, within the proven bound"))
                }
                Some(excuse) => What::Naive(format!("{text} ({excuse})")),
                None => What::Violation(text),
            });
        }
        drop(believed);
        beliefs.held = held;
        drop(beliefs);
        records.into_iter().for_each(|record| self.record(record));
    }

    /// Whether a hold ends as it should.
    fn check_end(&self, belief: &mut Belief, records: &mut Vec<What>) {
        let now = self.now();
        let core = self.core();
        let is_there = |path: &String| {
            let node = core.servers.ensemble.node(path);
            node.is_some_and(|(_, stat)| stat.ephemeral_owner == belief.session)
        };
        let is_missing = !belief.paths.iter().all(is_there);
        let disturbed_until = core.disturbed_until(belief.pid);
        // Timers do not know of a jump of the clock: the end is noticed later then.
        let has_jumped = core.process(belief.pid).has_jumped();
        let revocation = belief.revocable_since.and_then(|since| {
            let (data, stat) = core.servers.ensemble.node(belief.paths.first()?)?;
            (stat.mzxid > since && data == REVOKE_MESSAGE).then_some(now)
        });
        drop(core);
        belief.revoked_since = belief.revoked_since.or(revocation);
        if !is_missing {
            belief.missing_since = None;
        }
        if !self.is_running(belief.pid) {
            // No task could ask, or notice.
            belief.over_since = belief.over_since.map(|_| now);
            return;
        }
        if is_missing {
            belief.missing_since.get_or_insert(now);
        }
        let is_over = if belief.is_unasked { belief.time_is_up() } else { !belief.guard.is_held() };
        if belief.over_since.is_some() && !belief.is_unasked && !is_over {
            records.push(What::Violation(format!("{} holds it again", belief.name())));
        }
        if is_over {
            belief.over_since.get_or_insert(now);
        }
        let Some(watching) = belief.watching_since else { return };
        if let Some(since) = belief.revoked_since
            && now > since.max(watching).max(disturbed_until) + EVENT_SEEN_WITHIN
        {
            records.push(What::Violation(format!("{} hears of no revocation", belief.name())));
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
            && !has_jumped
            && now > since.max(watching) + END_NOTICED_WITHIN
        {
            records.push(What::Violation(format!("{} does not notice the end", belief.name())));
            belief.watching_since = None;
        } else if let Some(since) = belief.missing_since
            && now > since.max(watching).max(disturbed_until) + EVENT_SEEN_WITHIN
        {
            let text = format!("{} does not notice that its node is gone", belief.name());
            records.push(What::Violation(text));
            belief.watching_since = None;
        }
    }
}

impl Belief {
    fn who(&self) -> String {
        let modes: Vec<_> = self.parts.iter().map(|part| format!("{:?}", part.mode)).collect();
        format!("p{}.{} ({})", self.pid, self.worker, modes.join(", "))
    }

    fn name(&self) -> String {
        let locks: Vec<_> = self.parts.iter().map(|part| part.lock.as_str()).collect();
        format!("{}: {}", locks.join(", "), self.who())
    }

    /// Whether the process would be answered that it holds the lock.
    fn is_believed(&self, world: &World) -> bool {
        world.is_running(self.pid) && self.over_since.is_none()
    }

    /// Whether the session is lost or its time is up, without asking: that would end the hold.
    fn time_is_up(&self) -> bool {
        self.lease
            .as_ref()
            .is_none_or(|lease| lease.is_lost() || self.client.now() > lease.deadline())
    }

    fn writes(&self, lock: &str) -> bool {
        self.parts.iter().any(|part| part.mode == Mode::Exclusive && part.lock == lock)
    }

    /// The limit of a lease of this semaphore, if the hold is one.
    fn leases(&self, lock: &str) -> Option<usize> {
        self.parts.iter().find_map(|part| match part.mode {
            Mode::Lease(limit) if part.lock == lock => Some(limit),
            _ => None,
        })
    }
}

/// The lock that two holds exclude each other from.
fn conflict<'a>(a: &'a Belief, b: &Belief) -> Option<&'a str> {
    if a.owner == b.owner {
        return None;
    }
    let excludes = |one: &Part, other: &Part| {
        let beside = matches!(
            (one.mode, other.mode),
            (Mode::Shared, Mode::Shared) | (Mode::Lease(_), Mode::Lease(_))
        );
        one.lock == other.lock && !beside
    };
    let part = a.parts.iter().find(|one| b.parts.iter().any(|other| excludes(one, other)));
    part.map(|part| part.lock.as_str())
}

/// The longest time after a fault for which the naive bound of a hold may not suffice: the members have to give each
/// other up, which takes the sync limit and two ticks, and then a session's timeout has to pass.
pub(crate) const fn naive_limit(sync_limit_ms: u64, timeout: Nanos, lasts_ms: u64) -> Nanos {
    let given_up_ms = if lasts_ms < sync_limit_ms { lasts_ms } else { sync_limit_ms };
    given_up_ms * MILLISECOND + timeout + timeout / 50 + SECOND / 10
}
