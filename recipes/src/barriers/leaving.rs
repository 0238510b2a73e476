//! Leaving a double barrier.

use std::{collections::HashSet, time::Duration};

use docent_session::{Error, ErrorKind, Watcher};

use super::{
    distributed_double_barrier::{DistributedDoubleBarrier, Inside},
    member::{Member, READY, list, list_settled, members},
    persistently::{persistently, removed_on_drop},
};
use crate::{
    deadline::{Deadline, in_time},
    error::{self, default_if_missing},
    path::join,
    select::select,
    state_changes::session_id,
};

/// What a member that leaves sees.
enum Step {
    /// All members have left.
    Done,
    /// Others are inside. The watch fires when one of them has left.
    Wait(Watcher),
}

impl DistributedDoubleBarrier {
    /// Waits until all members have left that were there at the first look. The member with the lowest id leaves last. The
    /// member that finds no other one deletes `ready` together with its own node.
    ///
    /// Sends getChildren2 (12) and exists (3) with watch, after each event again; delete (2) for the node of this member,
    /// or one transaction (14) for it and `ready`.
    ///
    /// # Errors
    ///
    /// `BadArguments` if this object is not inside; `Closed` when the client has ended; `NoAuth`, and other errors of
    /// requests that a repetition does not mend. After an error, this member is outside, and its node is deleted in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, this member is outside, and its node is deleted in the background.
    ///
    /// Source: `DistributedDoubleBarrier.leave`. Not mirrored: C15, C17, C18, C19, C40 in `docs/CURATOR.md`.
    pub async fn leave(&mut self) -> Result<(), Error> {
        self.leave_within(None).await.map(drop)
    }

    /// As [`leave`](Self::leave), but returns false when not all members have left within `wait`. This member is outside
    /// then, and its node is deleted.
    ///
    /// The timeout bounds the whole call, also without a connection; the steps in progress at the deadline may take one
    /// second more, all together.
    ///
    /// # Errors
    ///
    /// As [`leave`](Self::leave).
    ///
    /// # Cancel safety
    ///
    /// As [`leave`](Self::leave).
    ///
    /// Source: `DistributedDoubleBarrier.leave(long, TimeUnit)`.
    pub async fn leave_timeout(&mut self, wait: Duration) -> Result<bool, Error> {
        self.leave_within(Some(wait)).await
    }

    async fn leave_within(&mut self, wait: Option<Duration>) -> Result<bool, Error> {
        let Some(Inside { member: mut own }) = self.inside.take() else {
            return Err(error::bad_arguments("this member is not inside the barrier"));
        };
        let client = self.client.clone();
        let deadline = Deadline::after(&client, wait);
        let mut round = None;
        // Its reads have seen `ready`, and so the members.
        let mut session = own.as_ref().map(|own| own.owner);
        loop {
            let mut changes = client.state();
            let step = self.step(&mut own, &mut round, &mut session);
            let Some(step) = in_time(deadline.bound(step).await)? else { return Ok(false) };
            let Step::Wait(mut watcher) = step else { return Ok(true) };
            if deadline.has_passed() {
                if let Some(own) = own {
                    // In the background, if it takes longer.
                    in_time(deadline.bound_by_end(own.delete()).await)?;
                }
                return Ok(false);
            }
            deadline.wait_for(select(watcher.next(), changes.next())).await;
            #[cfg(docent_sim)]
            crate::planted::delay("double-left-late", &client, 9).await;
        }
    }

    /// `round` has the members of the first look. Later ones are not waited for: they may have left already and entered
    /// the next round, where they wait for this member.
    ///
    /// Source: `DistributedDoubleBarrier.internalLeave`, which waits for all children.
    async fn step(
        &self,
        own: &mut Option<Member>,
        round: &mut Option<HashSet<String>>,
        session: &mut Option<i64>,
    ) -> Result<Step, Error> {
        loop {
            let current = session_id(&self.client);
            let has_read = current.is_some() && *session == current;
            let children = if has_read {
                list(&self.client, &self.path).await?
            } else {
                // A new session may be on a server that lags behind, and does not show the members yet.
                list_settled(&self.client, &self.path).await?
            };
            *session = session_id(&self.client);
            if *session != current {
                continue;
            }
            let members = members(&children);
            let is_own = |name: &str| own.as_ref().is_some_and(|own| own.name() == name);
            if !members.iter().any(|name| is_own(name))
                && let Some(own) = own.take()
            {
                // Deleted by others, or with its session.
                own.forget();
            }
            let round = match round {
                Some(round) => round,
                // Without this member's node, the others may have left. The last one has deleted `ready`.
                None if own.is_none() && !children.contains(READY) => return Ok(Step::Done),
                None => round.insert(members.iter().map(|name| (*name).to_owned()).collect()),
            };
            let is_own = |name: &str| own.as_ref().is_some_and(|own| own.name() == name);
            let is_other = |name: &&&str| !is_own(name) && round.contains(**name);
            let others: Vec<_> = members.iter().filter(is_other).copied().collect();
            let (Some(lowest), Some(highest)) = (others.first(), others.last()) else {
                // `ready` stays with members that came late.
                let is_last = members.iter().all(|name| is_own(name));
                self.leave_last(own.take(), is_last && children.contains(READY)).await?;
                return Ok(Step::Done);
            };
            let is_lowest = own.as_ref().is_some_and(|own| own.name() < *lowest);
            let path = join(&self.path, if is_lowest { highest } else { lowest });
            let look = || self.client.exists_and_watch(&path);
            let (found, watcher) = persistently(&self.client, look).await?;
            let watcher = removed_on_drop(&self.client, watcher);
            if !is_lowest && let Some(own) = own.take() {
                own.delete().await?;
            }
            if found.is_some() {
                return Ok(Step::Wait(watcher));
            }
        }
    }

    /// Deletes the node of the last member, and `ready`. In one transaction: after a crash in between, `ready` would
    /// open the next round at once, and a delete that comes late would hit the one of the next round.
    async fn leave_last(&self, own: Option<Member>, has_ready: bool) -> Result<(), Error> {
        let Some(own) = own else {
            if has_ready {
                let delete = || self.client.cleanup().delete(&self.ready_path, None);
                default_if_missing(persistently(&self.client, delete).await)?;
            }
            return Ok(());
        };
        if !has_ready {
            return own.delete().await;
        }
        let mut both = self.client.transaction();
        both.delete(own.path(), None).delete(&self.ready_path, None);
        match persistently(&self.client, || both.commit()).await {
            Ok(_) => own.forget(),
            Err(error) if error.kind() == ErrorKind::NoNode => match error.index() {
                // An earlier attempt has deleted both, or the session ended.
                Some(0) => own.forget(),
                // Another member has deleted it.
                _ => own.delete().await?,
            },
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
