//! Requests about watches: how they are set and removed.
//!
//! An error reply to such a request ends no watch, unless it says that the server does not support the request.

use std::sync::Arc;

use docent_protocol::{
    AddWatchMode, ErrorCode, EventType, KeeperState, WatcherType,
    operation::{AddWatch, ApplicationOperation},
    request::AddWatchRequest,
};

use super::{
    answers::{Answers, Reply},
    effect::{Effect, WatchEffect},
    session::{Event, Session},
    watch_table::{ALL, Mode, Registration, WatchKind, WatchedEvent},
};
use crate::{Error, ErrorKind, planted, time::Instant};

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Queues a read that leaves a watch. `make` builds the request, with or without its watch flag: if a persistent
    /// watch already delivers the events, no second watch is set on the server (ZOOKEEPER-4466).
    pub fn submit_watching<O: ApplicationOperation>(
        &mut self,
        make: impl FnOnce(bool) -> O,
        token: T,
        registration: Registration<W>,
        now: impl FnOnce() -> Instant,
    ) {
        let covered = self.watches.is_covered(&registration.path);
        let operation = make(!covered);
        self.submit_registration(&operation, token, registration, covered, now);
    }

    pub(super) fn submit_registration<O: ApplicationOperation>(
        &mut self,
        operation: &O,
        token: T,
        registration: Registration<W>,
        covered: bool,
        now: impl FnOnce() -> Instant,
    ) {
        let Registration { kind, path, watcher } = &registration;
        let (kind, path, watcher) = (*kind, Arc::clone(path), watcher.clone());
        let effect = WatchEffect::Watch { registration, covered };
        if self.enqueue(operation, Some(token), effect.into(), now) {
            self.watches.request(kind, path, watcher);
        }
    }

    /// Queues an addWatch (106).
    pub fn add_watch(
        &mut self,
        mode: AddWatchMode,
        token: T,
        path: Arc<str>,
        watcher: W,
        now: impl FnOnce() -> Instant,
    ) {
        let kind = match mode {
            AddWatchMode::Persistent => WatchKind::Persistent,
            AddWatchMode::PersistentRecursive => WatchKind::PersistentRecursive,
            _ => {
                let error = Error::refused(ErrorKind::BadArguments, "invalid watch mode");
                return self.complete(Some(token), Err(error));
            }
        };
        // The server keeps the widest mode that any watcher wants.
        let mode = Mode::of(kind).or_wider(self.watches.widest(&path));
        let request = AddWatch(AddWatchRequest { path: (&*path).into(), mode: mode.add_watch() });
        let registration = Registration { kind, path: Arc::clone(&path), watcher: watcher.clone() };
        let effect = WatchEffect::AddWatch { registration, mode };
        if self.enqueue(&request, Some(token), effect.into(), now) {
            self.expect_mode(&path, mode);
            self.watches.request(kind, path, watcher);
        }
    }

    /// Removes a watcher; the server's watch stays, and its event will find no watcher. The server's mode is unchanged,
    /// for the other watchers of the path.
    pub fn forget_watch(&mut self, path: &str, watcher: &W) {
        let Some(kind) = self.watches.remove(path, watcher) else { return };
        if let Some(mode) = self.watches.mode_mut(path) {
            mode.forgotten |= kind.is_persistent();
            self.reconcile(path);
        }
    }

    /// Same as [`forget_watch`](Self::forget_watch), for a watcher whose request may be pending: its reply would
    /// register a watch without a watcher. A persistent watch is removed from the server.
    pub fn cancel_watch(&mut self, path: &str, watcher: &W, now: impl FnOnce() -> Instant) {
        match self.watches.remove(path, watcher) {
            Some(kind) if kind.is_persistent() => self.give_back(kind, path, None, now),
            Some(_) => self.reconcile(path),
            None => {}
        }
    }

    /// Removes a watcher, and removes the server's watch if this was the last watcher of its kind on the path. The
    /// reply is delivered with `token`, immediately if there is nothing to send.
    ///
    /// Servers remove watches by connection, path and kind, never by watcher (ZOOKEEPER-1910): other watchers of the
    /// path keep their watch.
    pub fn remove_watch(
        &mut self,
        path: &str,
        watcher: &W,
        token: Option<T>,
        now: impl FnOnce() -> Instant,
    ) {
        match self.watches.remove(path, watcher) {
            Some(kind) => self.give_back(kind, path, token, now),
            None => self.nothing_to_send(token),
        }
    }

    /// Removes the server's watches of that kind on the path, if no watcher here wants them.
    fn give_back(
        &mut self,
        kind: WatchKind,
        path: &str,
        token: Option<T>,
        now: impl FnOnce() -> Instant,
    ) {
        if let Some(mode) = self.watches.mode_mut(path) {
            mode.forgotten &= !kind.is_persistent();
            return self.reconcile_for(path, token, now);
        }
        let (kinds, watcher_type): (&[WatchKind], _) = match kind {
            WatchKind::Data | WatchKind::Exist => {
                (&[WatchKind::Data, WatchKind::Exist], WatcherType::Data)
            }
            WatchKind::Child => (&[WatchKind::Child], WatcherType::Children),
            WatchKind::Persistent | WatchKind::PersistentRecursive => {
                return self.nothing_to_send(token);
            }
        };
        // Without a connection there is nothing to remove: the next server is not sent this watch. A request in flight
        // would lose its watch.
        if !self.is_connected() || self.watches.has(path, kinds) {
            return self.nothing_to_send(token);
        }
        self.remove_on_server(&path.into(), watcher_type, token, now);
    }

    pub(super) fn nothing_to_send(&mut self, token: Option<T>) {
        self.complete(token, Ok(Reply::empty(self.last_zxid)));
    }

    /// Applies a reply to the watch table.
    pub(super) fn apply(&mut self, effect: WatchEffect<W>, err: ErrorCode) {
        match effect {
            WatchEffect::Watch { registration, covered } => {
                self.read_answered(registration, covered, err);
            }
            WatchEffect::AddWatch { registration: Registration { kind, path, watcher }, mode } => {
                self.mode_answered(&path, err.is_ok().then_some(mode));
                if err.is_ok() {
                    self.watches.set(kind, &path, watcher);
                } else {
                    self.watches.withdraw(&path, &watcher);
                }
                self.reconcile(&path);
            }
            WatchEffect::Remove { path, watcher_type } => {
                self.removal_answered(&path, watcher_type, err);
            }
            WatchEffect::Narrow { path } => {
                self.mode_answered(&path, err.is_ok().then_some(Mode::Persistent));
                self.answered_or_put_off(&path, err.is_ok());
            }
            WatchEffect::GiveBack { path, watcher_type } => {
                self.give_back_answered(&path, watcher_type, err);
            }
            WatchEffect::SetAgain(batch) => self.watches_set(batch, err, true),
        }
    }

    fn read_answered(&mut self, registration: Registration<W>, covered: bool, err: ErrorCode) {
        let kind = registration.kind_after(err);
        let Registration { path, watcher, .. } = registration;
        if !err.is_ok() && planted::is("watch-lost-on-error") {
            self.watches.withdraw(&path, &watcher);
            return;
        }
        let confirmed = self.watches.confirmed(&path);
        match kind {
            Some(kind) => {
                let is_wanted = self.watches.set(kind, &path, watcher);
                if covered && is_wanted && !confirmed.covers() {
                    // The persistent watch that was to deliver its events did not exist when the server processed the
                    // read.
                    self.mark_unset(&path);
                } else if !covered && confirmed.covers() {
                    // The mode was expected to be gone by then. The read's own watch may have replaced it
                    // (ZOOKEEPER-4466).
                    self.mode_lost(&path, Mode::Unknown);
                }
            }
            None => {
                self.watches.withdraw(&path, &watcher);
            }
        }
        self.reconcile(&path);
    }

    /// The server removed all watches of a type, as requested.
    pub(super) fn watches_removed(&mut self, path: &Arc<str>, watcher_type: WatcherType) {
        let kinds: &[WatchKind] = match watcher_type {
            WatcherType::Any => &ALL,
            WatcherType::Children => &[WatchKind::Child],
            WatcherType::Data => &[WatchKind::Data, WatchKind::Exist],
            WatcherType::Persistent => &[WatchKind::Persistent],
            WatcherType::PersistentRecursive => &[WatchKind::PersistentRecursive],
            _ => &[],
        };
        for (kind, watcher) in self.watches.remove_kinds(path, kinds) {
            let event_type = match kind {
                WatchKind::Child => EventType::ChildWatchRemoved,
                WatchKind::Data | WatchKind::Exist => EventType::DataWatchRemoved,
                _ => EventType::PersistentWatchRemoved,
            };
            let (state, path) = (KeeperState::SyncConnected, Arc::clone(path).into());
            let event = WatchedEvent { event_type, state, path, zxid: None };
            self.events.push_back(Event::Watch { watcher, event });
        }
    }

    /// Drops the queued watch requests of a connection that is gone.
    pub(super) fn drop_internal(&mut self) {
        for request in self.requests.fail_internal() {
            if let Effect::Watches(effect) = request.effect {
                self.withdraw(*effect);
            }
            // The watch is gone with its connection, as the caller requested.
            self.nothing_to_send(request.token);
        }
    }
}
