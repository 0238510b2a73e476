//! Watches as requests: how they are asked for, told again to each server, and given back.

use std::sync::Arc;

use docent_protocol::{
    AddWatchMode, ErrorCode, EventType, KeeperState, WatcherType,
    call::{AddWatch, Call, RemoveWatches, SetWatches, SetWatches2},
    frame,
    request::{AddWatchRequest, SetWatchesRequest, WatchesRequest},
    xid,
};

use super::{Answers, Effect, Event, Registration, Reply, Session, WatchEffect, WatchedEvent};
use crate::{Error, ErrorKind, WatchKind, time::Instant, watches::Replay};

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
    /// Queues a read that leaves a watch. `make` makes the request, with or without its watch flag: where a
    /// persistent watch tells the events already, the server is not asked for another (ZOOKEEPER-4466).
    pub fn submit_watching<C: Call>(
        &mut self,
        make: impl FnOnce(bool) -> C,
        token: T,
        registration: Registration<W>,
        now: impl FnOnce() -> Instant,
    ) {
        let covered = self.has_persistent(&registration.path);
        let call = make(!covered);
        let effect = WatchEffect::Watch { registration, covered };
        self.enqueue(&call, Some(token), effect.into(), now);
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
                let error = Error::refused(ErrorKind::BadArguments, "the mode of a watch");
                return self.complete(Some(token), Err(error));
            }
        };
        // The widest mode that anybody wants is the one the server keeps.
        let recursive = |kind: WatchKind| kind == WatchKind::PersistentRecursive;
        let mode = if self.watches.has(&path, recursive) || self.is_adding(&path, recursive) {
            AddWatchMode::PersistentRecursive
        } else {
            mode
        };
        let request = AddWatch(AddWatchRequest { path: (&*path).into(), mode });
        let effect =
            WatchEffect::AddWatch { kind, path: Arc::clone(&path), watcher: Some(watcher) };
        self.enqueue(&request, Some(token), effect.into(), now);
    }

    /// Forgets a watcher; the server's watch stays, and its event will find nobody.
    pub fn forget_watch(&mut self, path: &str, watcher: &W) {
        self.watches.remove(path, watcher);
    }

    /// As [`forget_watch`](Self::forget_watch), for a watcher whose request may not be answered yet: its reply
    /// would register what nobody waits for.
    pub fn cancel_watch(&mut self, path: &str, watcher: &W, now: impl FnOnce() -> Instant) {
        if let Some(kind) = self.watches.remove(path, watcher) {
            if kind.is_persistent() {
                self.give_back(kind, path, None, now);
            }
            return;
        }
        for request in self.pending.iter_mut().rev() {
            let Effect::Watches(effect) = &mut request.effect else { continue };
            match &mut **effect {
                WatchEffect::Watch { registration, .. } if registration.watcher == *watcher => {
                    request.effect = Effect::None;
                    return;
                }
                // It would tell nobody of events for ever: given back once it is there.
                WatchEffect::AddWatch { watcher: other, .. } if other.as_ref() == Some(watcher) => {
                    *other = None;
                    return;
                }
                _ => {}
            }
        }
    }

    /// Forgets a watcher, and tells the server when it was the last of its kind on the path. The answer comes
    /// by `token`, at once if there is nothing to tell.
    ///
    /// Removal on servers is by connection, path and kind, never by watcher (ZOOKEEPER-1910): who else
    /// watches the path keeps its watch.
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

    /// Tells the server that nobody here wants watches of that kind on the path, if that is so.
    fn give_back(
        &mut self,
        kind: WatchKind,
        path: &str,
        token: Option<T>,
        now: impl FnOnce() -> Instant,
    ) {
        let wanted: &dyn Fn(WatchKind) -> bool = match kind {
            WatchKind::Data | WatchKind::Exist => {
                &|other| matches!(other, WatchKind::Data | WatchKind::Exist)
            }
            WatchKind::Child => &|other| other == WatchKind::Child,
            WatchKind::Persistent => &WatchKind::is_persistent,
            WatchKind::PersistentRecursive => &|other| other == WatchKind::PersistentRecursive,
        };
        // Without a connection the next server is not told of it. A request on its way would lose its watch.
        let keep = !self.is_connected()
            || self.watches.has(path, wanted)
            || self.is_registering(path)
            || (!kind.is_persistent() && self.has_persistent(path));
        if keep {
            return self.nothing_to_send(token);
        }
        match kind {
            WatchKind::Data | WatchKind::Exist => {
                self.remove_on_server(path, WatcherType::Data, token, now);
            }
            WatchKind::Child => self.remove_on_server(path, WatcherType::Children, token, now),
            WatchKind::PersistentRecursive if self.has_persistent(path) => {
                // Before 3.9 this replaces the recursive mode, and the removal is not known; since 3.9 both
                // modes are there, and the removal takes one.
                let mode = AddWatchMode::Persistent;
                let add = AddWatch(AddWatchRequest { path: path.into(), mode });
                self.enqueue(&add, None, Effect::Internal, || Instant::ZERO);
                self.remove_on_server(path, WatcherType::PersistentRecursive, token, now);
            }
            _ => {
                // The only type that takes persistent watches before 3.9 takes the one-shot ones along.
                self.remove_on_server(path, WatcherType::Any, token, now);
                self.set_one_shots(path);
            }
        }
    }

    fn remove_on_server(
        &mut self,
        path: &str,
        watcher_type: WatcherType,
        token: Option<T>,
        now: impl FnOnce() -> Instant,
    ) {
        let request = RemoveWatches(WatchesRequest { path: path.into(), watcher_type });
        self.enqueue(&request, token, Effect::Internal, now);
    }

    /// Sets the one-shot watches of a path again, with all that changed since the last reply.
    pub(super) fn set_one_shots(&mut self, path: &str) {
        let relative_zxid = self.last_zxid.max(1);
        let start = self.outgoing.len();
        let Some(replay) = self.watches.one_shots_at(path) else { return };
        let xid = xid::next(self.last_xid);
        let request = SetWatches(one_shots(&replay, relative_zxid));
        if frame::put_call(&mut self.outgoing, usize::MAX, xid, &request).is_ok() {
            self.last_xid = xid;
            self.push_pending(xid, start, None, Effect::Internal);
        }
    }

    pub(super) fn nothing_to_send(&mut self, token: Option<T>) {
        self.complete(token, Ok(Reply::empty(self.last_zxid)));
    }

    /// Whether a persistent watch is on the path, or on its way there.
    fn has_persistent(&self, path: &str) -> bool {
        self.watches.has(path, WatchKind::is_persistent)
            || self.is_adding(path, WatchKind::is_persistent)
    }

    /// Whether an addWatch of a path waits for its reply.
    fn is_adding(&self, path: &str, wanted: impl Fn(WatchKind) -> bool) -> bool {
        self.adding > 0
            && self.about_watches().any(|effect| {
                matches!(effect, WatchEffect::AddWatch { kind, path: other, watcher: Some(_) }
                    if **other == *path && wanted(*kind))
            })
    }

    /// Whether any request that leaves a watch on the path waits for its reply.
    fn is_registering(&self, path: &str) -> bool {
        self.about_watches().any(|effect| match effect {
            WatchEffect::Watch { registration, .. } => *registration.path == *path,
            WatchEffect::AddWatch { path: other, .. } => **other == *path,
            WatchEffect::Remove { .. } => false,
        })
    }

    /// Of the requests that wait for their replies.
    fn about_watches(&self) -> impl Iterator<Item = &WatchEffect<W>> {
        self.pending.iter().filter_map(|request| match &request.effect {
            Effect::Watches(effect) => Some(&**effect),
            Effect::None | Effect::Close | Effect::Internal => None,
        })
    }

    /// What a reply means for the watch table.
    pub(super) fn apply(&mut self, effect: WatchEffect<W>, err: ErrorCode) {
        match effect {
            WatchEffect::Watch { registration, covered } => {
                let Some(kind) = registration.kind_after(err) else { return };
                let Registration { path, watcher, .. } = registration;
                self.watches.add(kind, Arc::clone(&path), watcher);
                // What was to tell of its events has gone meanwhile, but for the server's watch, which this
                // read has kept.
                if covered && !self.has_persistent(&path) {
                    if !self.is_registering(&path) {
                        self.remove_on_server(&path, WatcherType::Any, None, || Instant::ZERO);
                    }
                    self.set_one_shots(&path);
                }
            }
            WatchEffect::AddWatch { kind, path, watcher } => match watcher {
                Some(watcher) if err.is_ok() => self.watches.add(kind, path, watcher),
                None if err.is_ok() => self.give_back(kind, &path, None, || Instant::ZERO),
                // It was to tell of the events of others.
                _ if !self.has_persistent(&path) => self.set_one_shots(&path),
                _ => {}
            },
            WatchEffect::Remove { path, watcher_type } if err.is_ok() => {
                self.watches_removed(&path, watcher_type);
            }
            WatchEffect::Remove { .. } => {}
        }
    }

    /// The server removed all watches of a type, as it was asked to.
    fn watches_removed(&mut self, path: &Arc<str>, watcher_type: WatcherType) {
        let removed = self.watches.remove_kinds(path, |kind| match watcher_type {
            WatcherType::Any => true,
            WatcherType::Children => kind == WatchKind::Child,
            WatcherType::Data => matches!(kind, WatchKind::Data | WatchKind::Exist),
            WatcherType::Persistent => kind == WatchKind::Persistent,
            WatcherType::PersistentRecursive => kind == WatchKind::PersistentRecursive,
            _ => false,
        });
        for (kind, watcher) in removed {
            let event_type = match kind {
                WatchKind::Child => EventType::ChildWatchRemoved,
                WatchKind::Data | WatchKind::Exist => EventType::DataWatchRemoved,
                _ => EventType::PersistentWatchRemoved,
            };
            let state = KeeperState::SyncConnected;
            let event = WatchedEvent { event_type, state, path: Arc::clone(path), zxid: None };
            self.events.push_back(Event::Watch { watcher, event });
        }
    }

    /// Tells a new connection of all watches.
    pub(super) fn replay_watches(&mut self) {
        // With zxid 0 every node would seem to have changed; no watch can be older than the first reply.
        let relative_zxid = self.last_zxid.max(1);
        let (control, pending) = (&mut self.control, &mut self.watches_pending);
        self.watches.replay(|replay| {
            let persistent = replay.has_persistent();
            let _ = if persistent {
                let request = SetWatches2(replay.request(relative_zxid));
                frame::put_call(control, usize::MAX, xid::SET_WATCHES, &request)
            } else {
                let request = SetWatches(one_shots(replay, relative_zxid));
                frame::put_call(control, usize::MAX, xid::SET_WATCHES, &request)
            };
            pending.push_back(persistent);
        });
        self.resync = self.watches_pending.iter().any(|persistent| *persistent);
    }

    /// A batch of the replay is answered.
    pub(super) fn watches_replayed(&mut self, err: ErrorCode) {
        match self.watches_pending.pop_front() {
            Some(_) if err.is_ok() => {}
            // A server that supports no persistent watches (WatchManagerOptimized): they are over, and the
            // session goes on.
            Some(true) => {
                for (path, watcher) in self.watches.persistent() {
                    self.watches.remove(&path, &watcher);
                    let event = WatchedEvent {
                        event_type: EventType::PersistentWatchRemoved,
                        state: KeeperState::SyncConnected,
                        path,
                        zxid: None,
                    };
                    self.events.push_back(Event::Watch { watcher, event });
                }
                self.resync = false;
            }
            Some(false) => return self.give_up(format_args!("setWatches failed: {err}")),
            None => return self.give_up("an answer to setWatches that was not sent"),
        }
        if self.watches_pending.is_empty() && std::mem::take(&mut self.resync) {
            for (path, watcher) in self.watches.persistent() {
                let event = WatchedEvent::resync(path);
                self.events.push_back(Event::Watch { watcher, event });
            }
        }
    }

    /// Drops what was queued for the watches of a connection that is no more.
    pub(super) fn drop_internal(&mut self) {
        if !self.pending.iter().skip(self.sent).any(|request| request.is_internal()) {
            return;
        }
        let old = std::mem::take(&mut self.outgoing);
        let mut rest = &old[..];
        let mut dropped = Vec::new();
        let queued = self.pending.split_off(self.sent.min(self.pending.len()));
        for request in queued {
            let Some((frame, tail)) = rest.split_at_checked(request.size as usize) else { break };
            rest = tail;
            if request.is_internal() {
                dropped.push(request);
            } else {
                self.outgoing.extend_from_slice(frame);
                self.pending.push_back(request);
            }
        }
        for request in dropped {
            self.settle(&request.effect, request.size);
            // The watch is gone with its connection, which is what was asked for.
            self.nothing_to_send(request.token);
        }
    }
}

fn one_shots<'a>(replay: &'a Replay<'a>, relative_zxid: i64) -> SetWatchesRequest<'a> {
    let request = replay.request(relative_zxid);
    SetWatchesRequest {
        relative_zxid,
        data_watches: request.data_watches,
        exist_watches: request.exist_watches,
        child_watches: request.child_watches,
    }
}
