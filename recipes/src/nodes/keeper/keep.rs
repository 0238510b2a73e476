//! The states of a kept node that is there: to be looked at, to be written, at rest.

use bytes::Bytes;
use docent_protocol::{EventType, Stat};
use docent_session::{Error, ErrorKind, Watcher, retry::RetryLoop};

use super::{Keeper, NodeEvent, Present, Wanted};
use crate::{
    node_task::{NodeTask, Stop},
    planted,
    select::{Either, select},
    settle,
    state_changes::{Connection, is_read_write, is_unchanged},
};

/// A node that is there.
pub(super) struct Kept {
    pub(super) present: Present,
    /// The watch of the last look, until its event.
    pub(super) watcher: Option<Watcher>,
    /// The connection on which the node was created or looked at, unless an event has arrived since.
    seen: Option<Connection>,
}

impl Kept {
    /// Whether the node is known to be there: seen on this connection, and no event since.
    pub(super) fn is_seen(&mut self) -> bool {
        if self.watcher.as_mut().is_some_and(|watcher| watcher.try_next().is_some()) {
            (self.watcher, self.seen) = (None, None);
        }
        self.seen.as_ref().is_some_and(|seen| is_unchanged(seen, is_read_write))
    }
}

impl Keeper {
    /// Watches the node and writes to it until it is lost: then `None`. Some with the result once it is closed.
    pub(super) async fn keep(&mut self, present: Present) -> Option<Result<(), Error>> {
        self.connection.get();
        let mut kept = Kept { present, watcher: None, seen: Some(self.connection.clone()) };
        let closing = self.task.closing.clone();
        loop {
            match select(closing.cancelled(), self.turn(&mut kept)).await {
                Either::Right(Ok(())) => {}
                Either::Right(Err(Stop::Lost)) => {
                    self.lose();
                    return None;
                }
                // The client has ended.
                Either::Right(Err(_)) if !closing.is_cancelled() => return Some(Ok(())),
                Either::Left(()) | Either::Right(Err(_)) => return Some(self.leave(kept).await),
            }
        }
    }

    /// One request, or the wait for a reason to send one.
    async fn turn(&mut self, kept: &mut Kept) -> Result<(), Stop> {
        let was_reconnected = self.connection.has_changed();
        self.task.connected(&mut self.connection).await?;
        if !self.is_of_session(&kept.present) {
            return Err(Stop::Lost);
        }
        // An error of the look is one of this version, too.
        let wanted = self.see_wanted();
        let is_written = wanted.version == self.status.borrow().written;
        if was_reconnected {
            // The watch is set again by the client; what happened in between is looked at.
            kept.watcher = None;
            if planted::is("kept-node-rewritten") {
                let _ = self.task.client.set_data(&kept.present.path, &wanted.data, None).await;
            }
        }
        let turned = match &mut kept.watcher {
            None => self.look_at(kept).await,
            Some(_) if !is_written => self.write(kept, wanted).await,
            Some(_) => self.rest(kept).await,
        };
        match turned {
            Err(Stop::Failed(error)) if error.kind() == ErrorKind::NoNode => {
                self.memory.node = None;
                Err(Stop::Lost)
            }
            Err(Stop::Failed(error)) => self.park(error).await,
            turned => turned,
        }
    }

    async fn look_at(&mut self, kept: &mut Kept) -> Result<(), Stop> {
        let Kept { present, watcher, seen } = kept;
        match self.look(&present.path).await? {
            Some((stat, data, new)) if present.is_same(&stat) => {
                if present.czxid.is_none() {
                    present.czxid = Some(stat.czxid);
                    self.memory.node = present.czxid.filter(|_| present.owner == 0);
                    self.status.send_modify(|status| status.czxid = present.czxid);
                }
                if let Some(data) = data {
                    self.adopt_data(&data);
                }
                (*watcher, *seen) = (Some(new), Some(self.connection.clone()));
                Ok(())
            }
            // Deleted, and possibly created by another client.
            _ => Err(Stop::Lost),
        }
    }

    /// Waits until the node has changed, or the connection, or the wanted data.
    async fn rest(&mut self, kept: &mut Kept) -> Result<(), Stop> {
        let Some(watcher) = &mut kept.watcher else { return Ok(()) };
        // A clone: the next turn has to find the change.
        let mut connection = self.connection.clone();
        let changed = select(connection.next(), self.wanted.changed());
        if let Either::Left(event) = select(watcher.next(), changed).await {
            (kept.watcher, kept.seen) = (None, None);
            if event.is_some_and(|event| event.event_type == EventType::NodeDeleted) {
                self.memory.node = None;
                return Err(Stop::Lost);
            }
        }
        Ok(())
    }

    /// Writes the wanted data. A newer value takes the place of one whose write has failed. setData has no check of the
    /// owner, so each retry looks at the node first: only the time between that look and the write remains, in which another
    /// client can replace the node.
    async fn write(&self, kept: &mut Kept, mut wanted: Wanted) -> Result<(), Stop> {
        let Kept { present, watcher, .. } = kept;
        let NodeTask { client, policy, .. } = &self.task;
        let mut retry = RetryLoop::new(client, policy);
        loop {
            match client.set_data(&present.path, &wanted.data, None).await {
                Ok(stat) if present.is_same(&stat) => {
                    self.status.send_modify(|status| {
                        status.written = wanted.version;
                        status.failed = None;
                    });
                    return Ok(());
                }
                // Written to another client's node.
                Ok(_) => return Err(Stop::Lost),
                Err(_) if planted::is("kept-write-unchecked") => {
                    self.status.send_modify(|status| status.written = wanted.version);
                    return Ok(());
                }
                Err(error) => retry.pause(error).await?,
            }
            if !self.is_of_session(present) {
                return Err(Stop::Lost);
            }
            // A server that lags shows a node that is gone; a leader does so behind a `sync`, too, but not behind a write.
            let look = || {
                let settling = settle::refused_delete(&self.task.client, &present.path);
                let look = client.exists_and_watch(&present.path);
                async {
                    match settling.await {
                        Err(error) if error.kind() == ErrorKind::NoNode => {}
                        settled => settled?,
                    }
                    look.await
                }
            };
            match client.retry_idempotent(policy, look).await? {
                (Some(stat), new) if present.is_same(&stat) => *watcher = Some(new),
                _ => return Err(Stop::Lost),
            }
            wanted = self.wanted.borrow().clone();
        }
    }

    /// Looks at the node, and watches it. The data is read only if that of other clients is adopted.
    async fn look(&self, path: &str) -> Result<Option<(Stat, Option<Bytes>, Watcher)>, Error> {
        let NodeTask { client, policy, .. } = &self.task;
        if self.options.data_adoption.is_none() {
            let look = || client.exists_and_watch(path);
            let (stat, watcher) = client.retry_idempotent(policy, look).await?;
            return Ok(stat.map(|stat| (stat, None, watcher)));
        }
        let read = || client.get_data_and_watch(path);
        match client.retry_idempotent(policy, read).await {
            Ok((node, watcher)) => Ok(Some((node.stat, Some(node.data), watcher))),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps data that another client has written from now on, unless our own is to be written.
    fn adopt_data(&self, data: &Bytes) {
        let written = self.status.borrow().written;
        let (Some(adoption), Some(adopted)) = (&self.options.data_adoption, self.adopted.upgrade())
        else {
            return;
        };
        if *data == self.wanted.borrow().data || !adoption.accepts(data) {
            return;
        }
        // A slice of a larger reply would keep that in memory.
        let data = Bytes::copy_from_slice(data);
        let is_adopted = adopted.send_if_modified(|wanted| {
            let is_foreign = wanted.version == written;
            if is_foreign {
                *wanted = Wanted { data: data.clone(), version: written + 1 };
            }
            is_foreign
        });
        if is_adopted {
            self.status.send_modify(|status| status.written = written + 1);
            self.report(NodeEvent::DataAdopted { data });
        }
    }
}
