//! The watch modes on the server: kept in agreement with the watches wanted here, whatever happens to requests.
//!
//! For each path with a persistent watch, [`PathMode`](super::watch_table::PathMode) records the mode on the server as
//! of the last reply, and the mode after the replies to all queued requests. When no request about the path is pending,
//! both are the same. Then they are compared with the wanted mode, and [`Session::reconcile`] sends the missing
//! requests. Except for callers' own requests, no other function sends requests about a mode. So a request that fails,
//! for whatever reason, leaves a difference that is detected and sent again, and nothing is sent twice at the same
//! time.
//!
//! addWatch turns a recursive mode into a persistent one by replacing it in one step. If a server may have lost a mode,
//! setWatches2 sets it again, together with the one-shot watches of the path, so that changes in the meantime are
//! reported. Persistent watchers then receive a resync event.

use std::sync::Arc;

use docent_protocol::{
    ErrorCode, EventType, KeeperState, OpCode, WatcherType, frame,
    operation::{AddWatch, RemoveWatches, SetWatches, SetWatches2},
    path::parent,
    request::{AddWatchRequest, SetWatches2Request, SetWatchesRequest, WatchesRequest},
    xid,
};

use super::{
    answers::Answers,
    effect::{Effect, WatchEffect},
    session::{Closing, Event, Session},
    watch_table::{Mode, ONE_SHOT, PERSISTENT, WatchBatch, WatchKind, WatchedEvent},
};
use crate::{planted, time::Instant};

/// The next step from the server's mode of a path to the wanted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    /// Turns a recursive mode into a persistent one.
    Narrow,
    /// Removes a recursive mode that exists beside the persistent one.
    RemoveRecursive,
    RemoveAny,
    /// Sets this mode again, together with the one-shot watches.
    SetAgain(Mode),
}

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Records that a request that changes the mode of a path was queued.
    pub(super) fn expect_mode(&mut self, path: &Arc<str>, queued: Mode) {
        let mode = self.watches.mode_entry(path);
        mode.queued = queued;
        mode.unanswered += 1;
    }

    /// Records the reply to such a request. `confirmed` is the mode that the server has now; `None` if it is unchanged.
    pub(super) fn mode_answered(&mut self, path: &str, confirmed: Option<Mode>) {
        let Some(mode) = self.watches.mode_mut(path) else { return };
        mode.unanswered = mode.unanswered.saturating_sub(1);
        mode.confirmed = confirmed.unwrap_or(mode.confirmed);
    }

    /// Marks the watches of a path as possibly missing on the server from now on.
    pub(super) fn mark_unset(&mut self, path: &Arc<str>) {
        self.mark_unset_since(path, self.last_zxid);
        // When they are set again, the server reports the changes. But it does not know of a node that was created and
        // deleted in the meantime.
        for (_, watcher) in self.watches.remove_kinds(path, &[WatchKind::Exist]) {
            let event = WatchedEvent::resync(Arc::clone(path));
            self.events.push_back(Event::Watch { watcher, event });
        }
    }

    fn mark_unset_since(&mut self, path: &Arc<str>, since: i64) {
        let mode = self.watches.mode_entry(path);
        mode.unset = Some(mode.unset.unwrap_or(since).min(since));
    }

    /// Called after an event: a watcher that it ended may have been the last to rely on the mode.
    pub(super) fn event_dispatched(&mut self, path: &str) {
        self.reconcile(path);
        if let Some(parent) = parent(path) {
            self.reconcile(parent);
        }
    }

    /// Sends the next request that brings the server's mode of a path closer to the wanted one, if any.
    pub(super) fn reconcile(&mut self, path: &str) {
        if self.watches.has_modes() {
            self.reconcile_for(path, None, || Instant::ZERO);
        }
    }

    /// Same as [`reconcile`](Self::reconcile), for a caller that waits for the reply.
    pub(super) fn reconcile_for(
        &mut self,
        path: &str,
        token: Option<T>,
        now: impl FnOnce() -> Instant,
    ) {
        let step = self.next_step(path);
        let Some(path) = self.watches.mode_path(path) else { return self.nothing_to_send(token) };
        match step {
            Step::None => self.nothing_to_send(token),
            Step::Narrow => {
                let mode = Mode::Persistent.add_watch();
                let add = AddWatch(AddWatchRequest { path: (&*path).into(), mode });
                let effect = WatchEffect::Narrow { path: Arc::clone(&path) };
                if self.enqueue(&add, token, effect.into(), now) {
                    self.expect_mode(&path, Mode::Persistent);
                    self.watches.mode_entry(&path).beside = true;
                }
            }
            // Before 3.9 the mode was replaced, and this removal is unknown. Since 3.9 both modes exist, and this
            // removes one of them. The other has to be confirmed first: if it was refused, none would be left.
            Step::RemoveRecursive => {
                self.remove_on_server(&path, WatcherType::PersistentRecursive, token, now);
            }
            // The only type that removes persistent watches before 3.9.
            Step::RemoveAny => self.remove_on_server(&path, WatcherType::Any, token, now),
            Step::SetAgain(mode) => {
                self.set_again(&[(path, mode)]);
                self.nothing_to_send(token);
            }
        }
    }

    fn next_step(&mut self, path: &str) -> Step {
        let is_connected = self.is_connected();
        let wanted = self.watches.widest_set(path);
        let is_watched = self.watches.is_watched(path);
        let has_one_shots = self.watches.has_set(path, &ONE_SHOT);
        let Some(mode) = self.watches.mode_mut(path) else { return Step::None };
        if mode.unanswered > 0 {
            return Step::None;
        }
        if !is_connected {
            // The mode to set on the next server.
            mode.queued = wanted;
            if wanted == Mode::None {
                self.watches.drop_mode(path);
            }
            return Step::None;
        }
        if mode.put_off || !matches!(self.closing, Closing::No) {
            return Step::None;
        }
        mode.queued = mode.confirmed;
        if mode.unset.is_some() && (wanted != Mode::None || has_one_shots) {
            return Step::SetAgain(match mode.confirmed {
                Mode::Persistent | Mode::Recursive => wanted.or_wider(mode.confirmed),
                Mode::None | Mode::Unknown => wanted,
            });
        }
        mode.unset = None;
        match (wanted, mode.confirmed) {
            // Also when there are only one-shot watches: the mode they rely on stays until the last of them has gone.
            (Mode::Persistent | Mode::None, confirmed)
                if is_watched && !mode.forgotten && confirmed.covers() =>
            {
                match (confirmed, mode.beside) {
                    (Mode::Recursive, _) => Step::Narrow,
                    (_, true) => Step::RemoveRecursive,
                    _ => Step::None,
                }
            }
            (Mode::Persistent, Mode::Persistent | Mode::Recursive)
            | (Mode::Recursive, Mode::Recursive) => Step::None,
            (Mode::Persistent | Mode::Recursive, _) => Step::SetAgain(wanted),
            (_, Mode::None) => {
                self.watches.drop_mode(path);
                Step::None
            }
            _ if is_watched || mode.forgotten => Step::None,
            _ => Step::RemoveAny,
        }
    }

    pub(super) fn remove_on_server(
        &mut self,
        path: &Arc<str>,
        watcher_type: WatcherType,
        token: Option<T>,
        now: impl FnOnce() -> Instant,
    ) {
        if self.is_missing(OpCode::RemoveWatches) {
            // The watch stays; its events find no watcher.
            if let Some(mode) = self.watches.mode_mut(path) {
                mode.forgotten = true;
            }
            return self.nothing_to_send(token);
        }
        let request = RemoveWatches(WatchesRequest { path: (&**path).into(), watcher_type });
        let effect = WatchEffect::GiveBack { path: Arc::clone(path), watcher_type };
        if self.enqueue(&request, token, effect.into(), now) {
            match watcher_type {
                WatcherType::Any => self.expect_mode(path, Mode::None),
                WatcherType::PersistentRecursive => self.expect_mode(path, Mode::Persistent),
                _ => {}
            }
        }
    }

    pub(super) fn give_back_answered(
        &mut self,
        path: &Arc<str>,
        watcher_type: WatcherType,
        err: ErrorCode,
    ) {
        // An event may have come before the removal.
        let is_gone = matches!(err, ErrorCode::Ok | ErrorCode::NoWatcher);
        let is_done = match watcher_type {
            WatcherType::Any => {
                self.mode_answered(path, is_gone.then_some(Mode::None));
                is_gone
            }
            WatcherType::PersistentRecursive => {
                self.mode_answered(path, None);
                is_gone || is_not_supported(err)
            }
            // One-shot watches, which end by themselves.
            _ => return,
        };
        if is_done && let Some(mode) = self.watches.mode_mut(path) {
            mode.beside = false;
        }
        self.answered_or_put_off(path, is_done);
    }

    /// Handles the reply to a caller's own removeWatches.
    pub(super) fn removal_answered(
        &mut self,
        path: &Arc<str>,
        watcher_type: WatcherType,
        err: ErrorCode,
    ) {
        self.mode_answered(path, None);
        if err.is_ok() {
            self.watches_removed(path, watcher_type);
            let confirmed = self.watches.confirmed(path);
            let left = match (watcher_type, confirmed) {
                // The recursive one exists beside it.
                (WatcherType::Persistent, Mode::Recursive)
                | (WatcherType::PersistentRecursive, Mode::Persistent) => confirmed,
                _ => confirmed.once_removed(watcher_type),
            };
            if left != confirmed {
                self.mode_lost(path, left);
            }
        }
        self.reconcile(path);
    }

    /// Records that the server has at most `left` of a mode that other watchers may rely on.
    pub(super) fn mode_lost(&mut self, path: &Arc<str>, left: Mode) {
        self.watches.mode_entry(path).confirmed = left;
        self.mark_unset(path);
    }

    /// Handles the reply to the machine's own request about a path. A failed request is sent again after a pause.
    pub(super) fn answered_or_put_off(&mut self, path: &Arc<str>, is_done: bool) {
        if is_done {
            self.unset.reset_pause();
        } else {
            self.put_off(path);
        }
        self.reconcile(path);
    }

    /// Suspends requests about a path until the pause is over.
    fn put_off(&mut self, path: &Arc<str>) {
        self.watches.mode_entry(path).put_off = true;
        self.unset.put_off(path);
    }

    /// Reconciles the paths about which a request was refused.
    pub(super) fn retry_watches(&mut self, now: Instant) {
        let Some(paths) = self.unset.take_due(now) else { return };
        let mut again = Vec::new();
        for path in paths {
            if let Some(mode) = self.watches.mode_mut(&path) {
                mode.put_off = false;
            }
            match self.next_step(&path) {
                Step::SetAgain(mode) => again.push((path, mode)),
                _ => self.reconcile(&path),
            }
        }
        self.set_again(&again);
    }

    /// Handles a request that will not be answered: it leaves no watch on the server.
    pub(super) fn withdraw(&mut self, effect: WatchEffect<W>) {
        match effect {
            WatchEffect::Watch { registration, .. } => {
                self.watches.withdraw(&registration.path, &registration.watcher);
            }
            WatchEffect::AddWatch { registration, .. } => {
                self.watches.withdraw(&registration.path, &registration.watcher);
                self.mode_answered(&registration.path, None);
            }
            WatchEffect::Remove { path, .. }
            | WatchEffect::Narrow { path }
            | WatchEffect::GiveBack {
                path,
                watcher_type: WatcherType::Any | WatcherType::PersistentRecursive,
            } => self.mode_answered(&path, None),
            WatchEffect::GiveBack { .. } => {}
            WatchEffect::SetAgain(batch) => {
                for (path, _) in batch.paths {
                    self.mode_answered(&path, None);
                    self.mark_unset_since(&path, batch.relative_zxid);
                }
            }
        }
    }

    // setWatches.

    /// Handles the loss of the connection, and with it of all watches on the server. `watches_pending` holds the
    /// setWatches without a reply.
    pub(super) fn forget_server_watches(&mut self) {
        let unanswered = self.watches_pending.drain(..).map(|batch| batch.relative_zxid).min();
        let known = [self.watches.unset_since(), unanswered];
        let since = known.into_iter().flatten().fold(self.last_zxid, i64::min);
        let since = since + i64::from(planted::is("watches-since-later"));
        self.unset.forget();
        self.unset.set_since(since);
        self.watches.reset_modes();
        // The modes of requests queued for the next connection.
        let mut queued = Vec::new();
        for request in self.requests.iter() {
            let Effect::Watches(effect) = &request.effect else { continue };
            match &**effect {
                WatchEffect::AddWatch { registration, mode } => {
                    queued.push((Arc::clone(&registration.path), *mode));
                }
                WatchEffect::Remove { path, .. } => queued.push((Arc::clone(path), Mode::None)),
                _ => {}
            }
        }
        for (path, mode) in queued {
            self.expect_mode(&path, mode);
        }
    }

    /// Sets all watches on a new connection.
    pub(super) fn replay_watches(&mut self) {
        let paths = self.watches.set_paths();
        let since = self.unset.take_since();
        if planted::one_in("watches-not-replayed", 8) {
            return;
        }
        self.send_set_watches(&paths, since, false);
    }

    /// Sets the watches of these paths again; the server reports all changes since they were lost.
    fn set_again(&mut self, paths: &[(Arc<str>, Mode)]) {
        if paths.is_empty() {
            return;
        }
        let mut since = self.last_zxid;
        for (path, _) in paths {
            since = since.min(self.watches.mode_entry(path).unset.take().unwrap_or(since));
        }
        self.send_set_watches(paths, Some(since), true);
    }

    /// Sends setWatches requests. `is_queued`: among the requests; otherwise in front of them.
    fn send_set_watches(
        &mut self,
        paths: &[(Arc<str>, Mode)],
        since: Option<i64>,
        is_queued: bool,
    ) {
        // With zxid 0 every node would appear changed; no watch can be older than the first reply.
        let relative_zxid = since.unwrap_or(self.last_zxid).max(1);
        let mut batches = Vec::new();
        let limit = self.config.max_request_bytes;
        let mut last_xid = self.last_xid;
        let out =
            if is_queued { self.requests.outgoing_mut() } else { self.connection.control_mut() };
        let too_long = self.watches.batches(paths, relative_zxid, limit, |replay, batch| {
            let start = out.len();
            let number = if is_queued { xid::next(last_xid) } else { xid::SET_WATCHES };
            let request = replay.request(relative_zxid);
            let put = if batch.has_persistent() {
                frame::put_operation(out, usize::MAX, number, &SetWatches2(request))
            } else {
                frame::put_operation(out, usize::MAX, number, &SetWatches(one_shots(&request)))
            };
            if put.is_ok() {
                last_xid = if is_queued { number } else { last_xid };
                batches.push((number, out.len() - start, batch));
            }
        });
        self.last_xid = last_xid;
        for (number, size, batch) in batches {
            for (path, mode) in &batch.paths {
                // For a path with only one-shot watches, the server has no mode: nothing changes.
                if is_queued || *mode != Mode::None {
                    let queued = self.watches.mode_entry(path).queued;
                    self.expect_mode(path, if mode.covers() { *mode } else { queued });
                }
            }
            if is_queued {
                let effect = WatchEffect::SetAgain(batch).into();
                self.push_request(number, size, None, effect);
            } else {
                self.watches_pending.push_back(batch);
            }
        }
        for path in too_long {
            self.watches_removed(&path, WatcherType::Any);
        }
    }

    /// Handles the reply to a setWatches.
    pub(super) fn watches_set(&mut self, batch: WatchBatch, err: ErrorCode, is_queued: bool) {
        let is_done = err.is_ok();
        let has_persistent = batch.has_persistent();
        for (path, mode) in &batch.paths {
            if is_queued || *mode != Mode::None {
                self.mode_answered(path, Some(*mode).filter(|mode| is_done && mode.covers()));
            }
            if !is_done {
                self.mark_unset_since(path, batch.relative_zxid);
            }
        }
        if !is_done && has_persistent && is_not_supported(err) {
            self.end_persistent();
        } else if !is_done {
            for (path, _) in &batch.paths {
                self.put_off(path);
            }
            return;
        }
        self.unset.reset_pause();
        for (path, mode) in &batch.paths {
            if is_done && mode.covers() && !planted::is("resync-lost") {
                for watcher in self.watches.persistent_at(path) {
                    let event = WatchedEvent::resync(Arc::clone(path));
                    self.events.push_back(Event::Watch { watcher, event });
                }
            }
            self.reconcile(path);
        }
    }

    /// The server supports no persistent watches (`WatchManagerOptimized`, or before 3.6): they end, and the session
    /// continues.
    fn end_persistent(&mut self) {
        for path in self.watches.persistent_paths() {
            for (_, watcher) in self.watches.remove_kinds(&path, &PERSISTENT) {
                let event = WatchedEvent {
                    event_type: EventType::PersistentWatchRemoved,
                    state: KeeperState::SyncConnected,
                    path: Arc::clone(&path).into(),
                    zxid: None,
                };
                self.events.push_back(Event::Watch { watcher, event });
            }
        }
    }
}

/// Whether an error means that the server does not support the operation.
const fn is_not_supported(err: ErrorCode) -> bool {
    matches!(err, ErrorCode::Unimplemented | ErrorCode::MarshallingError)
}

const fn one_shots<'a>(request: &SetWatches2Request<'a>) -> SetWatchesRequest<'a> {
    SetWatchesRequest {
        relative_zxid: request.relative_zxid,
        data_watches: request.data_watches,
        exist_watches: request.exist_watches,
        child_watches: request.child_watches,
    }
}
