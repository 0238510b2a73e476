//! A guard that its holder believes in.

use std::sync::Arc;

use docent::{LockGuard, locks::CancellationToken};

use super::{
    belief::{Belief, Mode, Part, continued_write},
    check::Holds,
    steps::LockStep,
};
use crate::{
    checks::proof::Proof,
    recipes::{common::HoldWatch, worker::Worker},
    world::{Using, World, check::Findings, history::What, time::Nanos},
};

/// A guard, believed in until it is dropped or taken out.
pub(super) struct Held {
    world: World,
    id: u64,
    guard: Option<Arc<LockGuard>>,
    token: Option<CancellationToken>,
    is_reader: bool,
    expected: Option<i64>,
    _using: Using,
}

impl Held {
    pub(super) fn guard(&self) -> &LockGuard {
        self.guard.as_ref().expect("until it is taken out")
    }

    /// The token of the guard, if the hold is watched with one.
    pub(super) const fn token(&self) -> Option<&CancellationToken> {
        self.token.as_ref()
    }

    /// Waits until the token of the guard is cancelled, if the hold is watched with one.
    pub(super) async fn cancelled(&self) {
        match &self.token {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    pub(super) const fn is_reader(&self) -> bool {
        self.is_reader
    }

    /// Whether another client has tried to delete one of its nodes.
    pub(super) fn was_invalidated_by_others(&self) -> bool {
        any_invalidated_by_others(&self.world, self.guard().paths())
    }

    /// Whether its owner has the write lock too.
    pub(super) fn owner_writes(&self) -> bool {
        let holds = self.world.check::<Holds>();
        let Some(ours) = holds.held.get(&self.id) else { return false };
        let mut same_owner = holds.held.values().filter(|belief| belief.owner == ours.owner);
        same_owner.any(|belief| ours.parts.iter().any(|part| belief.writes(&part.lock)))
    }

    /// The expected fencing token, if the node was seen.
    pub(super) const fn expected_token(&self) -> Option<i64> {
        self.expected
    }

    /// The holder waits for the end of the hold.
    pub(super) fn watch(&self) {
        self.set_watching(Some(self.world.now()));
    }

    /// The holder no longer waits for the end of the hold.
    pub(super) fn stop_watching(&self) {
        self.set_watching(None);
    }

    /// The holder has heard of all requests to release so far.
    pub(super) fn hear_of_revocation(&self) {
        let node = self.world.core().ensemble().node(self.guard().path());
        if let Some(belief) = self.world.check::<Holds>().held.get_mut(&self.id) {
            belief.revocable_since = belief.revocable_since.and(node.map(|(_, stat)| stat.mzxid));
            belief.revoked_since = None;
        }
    }

    fn set_watching(&self, since: Option<Nanos>) {
        if let Some(belief) = self.world.check::<Holds>().held.get_mut(&self.id) {
            belief.watching_since = since;
        }
    }

    /// Ends the belief, and returns the guard to be released or dropped; `None` if the process has ended.
    pub(super) fn into_guard(mut self) -> Option<LockGuard> {
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
        let mut holds = self.world.check::<Holds>();
        let belief = holds.held.remove(&self.id)?;
        holds.strict.end(self.id);
        if belief.shown.is_some() {
            let (pid, path) = (belief.pid, belief.guard.path().to_owned());
            self.world.record(What::Belief { pid, path, until: None });
        }
        Some(belief)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let belief = self.end();
        drop(belief);
    }
}

/// Whether another client has, or may have, deleted one of these nodes.
pub(super) fn any_invalidated_by_others<'a>(
    world: &World,
    mut paths: impl Iterator<Item = &'a str>,
) -> bool {
    let core = world.core();
    paths.any(|path| core.disturbances.is_invalidated_by_others(path))
}

/// Begins a belief in a hold of a step. `parts`: the locks, in the order of the paths of the guard.
pub(super) fn believe(
    holder: &Worker,
    step: &LockStep,
    parts: Vec<Part>,
    is_revocable: bool,
    guard: LockGuard,
) -> Held {
    let LockStep { owner, watch, unasked: is_unasked, .. } = *step;
    let (pid, worker, client) = holder.of();
    let world = &holder.world;
    let guard = Arc::new(guard);
    let token = (watch == HoldWatch::Token).then(|| guard.cancellation_token());
    let session = guard.session_id();
    let paths: Vec<_> = guard.paths().map(str::to_owned).collect();
    let using = world.use_paths(pid, paths.clone());
    let stats: Vec<_> = {
        let core = world.core();
        let stat = |path| core.ensemble().node(path).map(|(_, stat)| stat);
        paths.iter().map(|path| stat(path).filter(|s| s.ephemeral_owner == session)).collect()
    };
    let continued: Vec<_> = {
        let truth = &world.core().servers.truth;
        parts.iter().zip(&paths).map(|(part, path)| continued_write(truth, part, path)).collect()
    };
    // Of several locks, the first one has the token.
    let of_node = stats.first().and_then(|stat| Some(stat.as_ref()?.czxid));
    let expected = of_node.map(|of_node| continued.first().copied().flatten().unwrap_or(of_node));
    let id = world.next_number();
    // A hold without an owner gets a number that no owner has.
    let owner = (pid, owner.map_or((1 << 32) + id, u64::from));
    let mut holds = world.check::<Holds>();
    let mut found = Findings::default();
    for ((part, stat), continued) in parts.iter().zip(&stats).zip(&continued) {
        let Some(token) = stat.as_ref().map(|stat| stat.czxid) else { continue };
        if let Some(wrong) = holds.grant(part, token, continued.is_some()) {
            found.violation(format!("{} p{pid}.{worker}: {wrong}", part.lock));
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
        shown: None,
        ended_at: None,
        client: client.clone(),
        lease: client.session().filter(|lease| lease.session_id() == session),
        guard: Arc::clone(&guard),
    };
    holds.strict.note(&world.view(), id, &belief, &mut found);
    holds.held.insert(id, belief);
    drop(holds);
    world.record_all(found);
    Held { world: world.clone(), id, guard: Some(guard), token, is_reader, expected, _using: using }
}
