//! Belief: who holds which lock by its own account, looked at whenever time goes on.
//!
//! Of running processes only: a stopped one does nothing with its belief, and when it goes on its clock has gone on.

mod excuse;
mod proof;
mod strict;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use docent::{
    CachedNode, Client, EventType, LockGuard, SessionLease, recipes::locks::REVOKE_MESSAGE,
};
use tokio_util::sync::CancellationToken;

pub(crate) use excuse::{Lapse, naive_limit};
pub(crate) use proof::{BOUND, Proof};

use self::strict::StrictHolds;
use crate::{
    atomics::Atomics,
    history::What,
    kept::Kept,
    leaders::Leaders,
    nodes::Nodes,
    plan::HoldWatch,
    process::Pid,
    services::Services,
    truth::{Applied, Truth},
    world::{Nanos, SECOND, World},
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
    /// By one owner, until its proven bound.
    Strict,
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
    /// Since when a node is missing, as far as the running process could have known.
    missing_since: Option<Nanos>,
    /// When that node was deleted.
    gone_at: Nanos,
    /// Whether its proven bound was seen to lie ahead, and then to have passed.
    proof: Proof,
    /// When the servers deleted the nodes with the session.
    ended_at: Option<Nanos>,
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
    /// When a member may not have applied what the others have, such as the end of a session.
    pub(crate) lags: Vec<(Nanos, Nanos)>,
    /// The lock nodes that another client has tried to delete.
    pub(crate) intruded: BTreeSet<String>,
    /// The greatest tokens that were granted: by lock, to owners that exclude all others, and to any.
    granted: BTreeMap<String, (i64, i64)>,
    pub(crate) nodes: Nodes,
    pub(crate) leaders: Leaders,
    pub(crate) kept: Kept,
    pub(crate) services: Services,
    pub(crate) atomics: Atomics,
    pub(crate) strict: StrictHolds,
    /// The open caches of each process, by their roots.
    pub(crate) cached: BTreeMap<(Pid, String), usize>,
    /// What a cache has seen last: of each root, depth, and whether it keeps data.
    pub(crate) snapshots: BTreeMap<(String, usize, bool), Vec<CachedNode>>,
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
}

/// A guard, believed in until it is dropped or taken out.
pub(crate) struct Held {
    world: World,
    id: u64,
    guard: Option<Arc<LockGuard>>,
    token: Option<CancellationToken>,
    is_reader: bool,
    expected: Option<i64>,
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

    /// Whether another client has tried to delete one of its nodes.
    pub(crate) fn is_intruded(&self) -> bool {
        let intruded = &self.world.beliefs().intruded;
        self.guard().lock_paths().any(|path| intruded.contains(path))
    }

    /// Whether its owner has the write lock too.
    pub(crate) fn owner_writes(&self) -> bool {
        let beliefs = self.world.beliefs();
        let Some(ours) = beliefs.held.get(&self.id) else { return false };
        let mut same_owner = beliefs.held.values().filter(|belief| belief.owner == ours.owner);
        same_owner.any(|belief| ours.parts.iter().any(|part| belief.writes(&part.lock)))
    }

    /// What the fencing token must be, if the node was seen.
    pub(crate) const fn expected_token(&self) -> Option<i64> {
        self.expected
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
        let belief = self.end();
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

    /// Ends the belief; `None` if the process has ended.
    fn end(&self) -> Option<Belief> {
        let mut beliefs = self.world.beliefs();
        let belief = beliefs.held.remove(&self.id)?;
        beliefs.strict.end(self.id);
        Some(belief)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let belief = self.end();
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
        let continued: Vec<_> = {
            let truth = &self.core().servers.truth;
            parts
                .iter()
                .zip(&paths)
                .map(|(part, path)| continued_write(truth, part, path))
                .collect()
        };
        // Of several locks, the first one has the token.
        let of_node = stats.first().and_then(|stat| Some(stat.as_ref()?.czxid));
        let expected =
            of_node.map(|of_node| continued.first().copied().flatten().unwrap_or(of_node));
        let mut beliefs = self.beliefs();
        let id = beliefs.next;
        beliefs.next += 1;
        // An owner of its own must differ from all numbers of owners.
        let owner = (pid, owner.map_or((1 << 32) + id, u64::from));
        let mut wrong = Vec::new();
        for ((part, stat), continued) in parts.iter().zip(&stats).zip(&continued) {
            let Some(token) = stat.as_ref().map(|stat| stat.czxid) else { continue };
            let (exclusive, any) = beliefs.granted.entry(part.lock.clone()).or_default();
            // A hold that is entered again has the token of its node.
            let greatest = match part.mode {
                Mode::Exclusive | Mode::Strict => *any,
                // A reader that downgrades has the token of its write lock.
                Mode::Shared if continued.is_some() => continue,
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
            gone_at: 0,
            proof: Proof::None,
            ended_at: None,
            client: client.clone(),
            lease: client.session().filter(|lease| lease.session_id() == session),
            guard: Arc::clone(&guard),
        };
        let overlap = self.note_strict(&mut beliefs.strict, id, &belief);
        beliefs.held.insert(id, belief);
        drop(beliefs);
        overlap.into_iter().for_each(|overlap| self.record(overlap));
        wrong.into_iter().for_each(|text| self.record(What::Violation(text)));
        Held { world: self.clone(), id, guard: Some(guard), token, is_reader, expected }
    }

    /// Compares all beliefs with each other and with the servers' data.
    pub(crate) fn check_beliefs(&self) {
        let now = self.now();
        let mut beliefs = self.beliefs();
        let mut records = Vec::new();
        self.check_nodes(&mut beliefs, &mut records);
        self.check_leaders(&mut beliefs, &mut records);
        self.check_kept(&mut beliefs, &mut records);
        self.check_services(&mut beliefs, &mut records);
        if beliefs.held.is_empty() {
            drop(beliefs);
            return records.into_iter().for_each(|record| self.record(record));
        }
        let timeout = self.core().longest_timeout;
        let mut held = std::mem::take(&mut beliefs.held);
        let mut found = Vec::new();
        for (id, belief) in &mut held {
            self.check_end(belief, &mut records);
            records.extend(self.check_proof(&mut beliefs, *id, belief));
            self.note_strict(&mut beliefs.strict, *id, belief);
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
                    found.push((pair, vec![*belief, *other], 1, text));
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
                        found.push((key, all, limit, text));
                    }
                }
            }
            let single = (**id, **id);
            if belief.missing_since.is_some()
                && !belief.is_strict()
                && !beliefs.reported.contains(&single)
                && belief.guard.is_held()
            {
                let text = format!("{} holds it, but its node is gone", belief.name());
                found.push((single, vec![*belief], 0, text));
            }
        }
        for (key, concerned, limit, text) in found {
            let is_proven = |belief: &Belief| self.is_proven(belief);
            let excuse = |belief: &&Belief| {
                if belief.is_strict() {
                    return self.is_beyond_drift(belief.pid).then_some("a clock beyond 1 %");
                }
                beliefs.excuse(belief, now, timeout, is_proven(belief))
            };
            let excuses: Vec<_> = concerned.iter().filter_map(excuse).collect();
            let is_excused = concerned.len() - excuses.len() <= limit;
            let is_new =
                if is_excused { beliefs.counted.insert(key) } else { beliefs.reported.insert(key) };
            if !is_new {
                continue;
            }
            let proven =
                concerned.iter().any(|belief| belief.missing_since.is_some() && is_proven(belief));
            records.push(match excuses.first() {
                Some(excuse) if is_excused => {
                    What::Naive { holds: concerned.len(), text: format!("{text} ({excuse})") }
                }
                _ if proven => What::Violation(format!("{text}, within the proven bound")),
                _ => What::Violation(text),
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
        if is_missing && belief.missing_since.is_none() {
            let gone = belief.paths.iter().filter(|path| !is_there(path));
            let deletions = gone.filter_map(|path| core.servers.truth.of(path).next_back());
            belief.gone_at = deletions.map(|deletion| deletion.at).max().unwrap_or(0);
        }
        if is_missing && belief.ended_at.is_none() {
            let is_open = core.servers.ensemble.session_ids().contains(&belief.session);
            let last = |path: &String| core.servers.truth.of(path).next_back().map(|last| last.at);
            belief.ended_at = belief.paths.iter().filter_map(last).max().filter(|_| !is_open);
        }
        let disturbed_until = core.disturbed_until(belief.pid);
        // A holder that asks wakes the tasks that wait for the end.
        let timers_late_until =
            if belief.is_unasked { core.process(belief.pid).timers_late_until } else { 0 };
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
        if !belief.is_unasked {
            let is_ahead = belief.client.now() < belief.guard.proven_until();
            if belief.proof.is_revived(is_ahead) {
                let text =
                    format!("{}: its proven bound had passed, and lies ahead", belief.name());
                records.push(What::Violation(text));
            }
        }
        let is_over = if belief.is_unasked { belief.time_is_up() } else { !belief.guard.is_held() };
        if belief.over_since.is_some() && !belief.is_unasked && !is_over {
            records.push(What::Violation(format!("{} holds it again", belief.name())));
        }
        if is_over {
            belief.over_since.get_or_insert(now);
        }
        let Some(watching) = belief.watching_since else { return };
        // A holder that knows of the end of its hold has stopped watching.
        if let Some(since) = belief.revoked_since
            && belief.over_since.is_none()
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
            && now > since.max(watching).max(timers_late_until) + END_NOTICED_WITHIN
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
        let now = self.client.now();
        let is_lost =
            self.lease.as_ref().is_none_or(|lease| lease.is_lost() || now > lease.deadline());
        is_lost || self.is_strict() && now >= self.guard.proven_until()
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

/// The token of the write node that a read node continues. Both have one number, which no other node of the queue has;
/// after the removal of the queue the numbers begin again.
fn continued_write(truth: &Truth, part: &Part, path: &str) -> Option<i64> {
    let (_, number) = path.rsplit_once("__READ__").filter(|_| part.mode == Mode::Shared)?;
    let (below, end) = (format!("{}/", part.lock), format!("__WRIT__{number}"));
    let is_creation = |applied: &&Applied| applied.change.event_type == EventType::NodeCreated;
    let queue = truth.of(&part.lock).rfind(is_creation)?.change.zxid;
    let later = truth.changes.iter().rev().take_while(|applied| applied.change.zxid > queue);
    let mut later = later.filter(is_creation).map(|applied| &applied.change);
    let write = later.find(|of| of.path.starts_with(&below) && of.path.ends_with(&end));
    write.map(|write| write.zxid)
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
