//! The grant: what the first contender of the queue does before it holds the lock.
//!
//! | step | frame |
//! |---|---|
//! | 1. read the record | getData (4) |
//! | 2. the record names a holder: wait until its node is gone | getData (4) with watch |
//! | 3. then wait for its claim, by the own clock | – |
//! | 4. name the own node in the record | multi (14): check of the own node, setData of the record at its version |
//! | 5. the record names the own node already, since the reply to step 4 was lost: renew the claim | multi (14) of two checks |
//!
//! The claim begins at the send time of the write of step 4 or 5.

use std::sync::{Arc, Mutex, PoisonError};

use docent_session::{Client, Error, ErrorKind, Instant, Outcome, SessionClaim, retry::RetryLoop};
use tracing::debug;

use super::{
    StrictClaim,
    claim::waited,
    record::{Holder, Record},
    release,
};
use crate::{
    deadline::Deadline,
    error, guaranteed_delete,
    locks::{LockOptions, hold::Acquired},
    protection::{join, split},
    select::select,
    timer,
};

/// The end of the claim of a lost holder, as one lock object has found out. It outlasts an acquire: calls with a shorter
/// timeout than the claim would otherwise begin to wait again and again.
#[derive(Debug, Default)]
pub(super) struct LostHolder(Mutex<Option<(i64, Instant)>>);

impl LostHolder {
    /// The end of the claim of the holder in the record that was written at `mzxid`, if its node is known to be gone.
    fn until(&self, mzxid: i64) -> Option<Instant> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(known, _)| *known == mzxid).map(|(_, until)| until)
    }

    fn note(&self, mzxid: i64, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((mzxid, until));
    }
}

/// Our node, which is the first of the queue, and the grant that may have been applied. Dropping it gives both back.
pub(super) struct Takeover<'a> {
    client: &'a Client,
    options: &'a LockOptions,
    /// The path of the lock, whose data are the record.
    path: &'a str,
    /// Our node; `None` once it belongs to a hold.
    acquired: Option<Acquired>,
    /// The grant that was sent.
    grant: Option<Arc<StrictClaim>>,
    /// The version of the record whose holder was waited out.
    waited_out: Option<i32>,
    lost: &'a LostHolder,
}

impl<'a> Takeover<'a> {
    pub(super) const fn new(
        client: &'a Client,
        options: &'a LockOptions,
        path: &'a str,
        acquired: Acquired,
        lost: &'a LostHolder,
    ) -> Self {
        Self {
            client,
            options,
            path,
            acquired: Some(acquired),
            grant: None,
            waited_out: None,
            lost,
        }
    }

    /// Takes the lock over; `None` after the deadline.
    pub(super) async fn take(
        mut self,
        deadline: &Deadline<'_>,
    ) -> Result<Option<(Acquired, Arc<StrictClaim>)>, Error> {
        let result = self.granted(deadline).await;
        if let Ok(Some((session, claim))) = result {
            let acquired = self.acquired.take();
            return Ok(acquired.map(|acquired| (Acquired { claim: session, ..acquired }, claim)));
        }
        // The first error is the one that is returned.
        if let Err(error) = self.leave(deadline).await {
            debug!(%error, "lock node not deleted; retrying in the background");
            if result.is_ok() {
                return Err(error);
            }
        }
        result.map(|_| None)
    }

    /// Leaves the queue, and releases the lock if the grant was applied.
    pub(super) async fn leave(mut self, deadline: &Deadline<'_>) -> Result<(), Error> {
        let Some(acquired) = self.acquired.take() else { return Ok(()) };
        let (client, policy, node) =
            (self.client, &*self.options.retry_policy, acquired.node.path.as_str());
        let left = match &self.grant {
            Some(grant) => {
                deadline.bound_by_end(release::release(client, policy, node, grant)).await
            }
            None => deadline.bound_by_end(guaranteed_delete::delete(client, policy, node)).await,
        };
        left.unwrap_or(Ok(()))
    }

    fn node(&self) -> &str {
        self.acquired.as_ref().map_or("", |acquired| &acquired.node.path)
    }

    fn own_node_missing(&self) -> Error {
        error::own_node_missing(split(self.node()).1)
    }

    /// Claims the session that owns our node.
    fn session(&self) -> Result<SessionClaim, Error> {
        if let Some(kind) = self.client.ended() {
            return Err(Error::new(kind, Outcome::NotApplied));
        }
        let owner = self.acquired.as_ref().map_or(0, |acquired| acquired.node.owner);
        let session = self.client.session().filter(|session| session.session_id() == owner);
        session.map(|session| session.claim()).ok_or_else(|| self.own_node_missing())
    }

    async fn granted(
        &mut self,
        deadline: &Deadline<'_>,
    ) -> Result<Option<(SessionClaim, Arc<StrictClaim>)>, Error> {
        let policy = &*self.options.retry_policy;
        let mut retry = RetryLoop::new(self.client, policy);
        let Some(token) = deadline.bound(self.token()).await.transpose()? else { return Ok(None) };
        loop {
            let read = || self.client.get_data(self.path);
            let read = self.client.retry_idempotent(policy, read);
            let Some(node) = deadline.bound(read).await.transpose()? else { return Ok(None) };
            let record = Record::read(&node, self.path)?;
            let ours = split(self.node()).1;
            let is_ours = record.holder.as_ref().is_some_and(|holder| holder.node == ours);
            let version = node.stat.version;
            let is_waited_out = is_ours || self.waited_out == Some(version);
            if let Some(holder) = record.holder.as_ref().filter(|_| !is_waited_out) {
                deadline.note_answer();
                if !self.wait_out(holder, node.stat.mzxid, deadline).await? {
                    return Ok(None);
                }
                self.waited_out = Some(version);
            }
            let session = self.session()?;
            let claim = match record.holder {
                Some(holder) if is_ours => holder.claim,
                // Queues out of order: our node is older than that of the last holder.
                _ if record.token >= token => return Err(self.own_node_missing()),
                _ => self.client.session_timeout(),
            };
            let version = if is_ours { version } else { version.wrapping_add(1) };
            let sent_at = self.client.now();
            let begun = Arc::new(StrictClaim::new(self.path, version, token, claim, sent_at));
            self.grant = Some(Arc::clone(&begun));
            let commit = if is_ours {
                begun.renewal(self.client, self.node()).commit()
            } else {
                begun.grant(self.client, self.node(), session.lease().session_id()).commit()
            };
            let Some(committed) = deadline.bound(commit).await else { return Ok(None) };
            match committed {
                Ok(_) => {
                    let now = self.client.now();
                    if begun.is_valid(now) && session.is_valid(now) {
                        return Ok(Some((session, begun)));
                    }
                    // The reply took longer than the claim lasts.
                    if deadline.has_passed() {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == ErrorKind::NoNode && error.index().is_some() => {
                    return Err(self.own_node_missing());
                }
                // A change since the read, by a contender whose node is gone, or by our own lost grant.
                Err(error) if error.kind() == ErrorKind::BadVersion => {}
                Err(error) => {
                    debug!(path = self.path, %error, "strict lock not taken over; retrying");
                    match deadline.bound_by_end(retry.pause(error)).await {
                        Some(allowed) => allowed?,
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// The fencing token: the `czxid` of our node.
    async fn token(&mut self) -> Result<i64, Error> {
        let Some(acquired) = &mut self.acquired else { return Err(self.own_node_missing()) };
        if let Some(czxid) = acquired.node.czxid {
            return Ok(czxid);
        }
        let path = acquired.node.path.clone();
        let policy = &*self.options.retry_policy;
        let stat = self.client.retry_idempotent(policy, || self.client.exists(&path)).await?;
        match stat.filter(|stat| acquired.node.matches(stat)) {
            Some(stat) => {
                acquired.node.czxid = Some(stat.czxid);
                Ok(stat.czxid)
            }
            None => Err(error::own_node_missing(split(&path).1)),
        }
    }

    /// Waits until the node of the last holder, who has not released the lock, is gone, and then for its claim. Returns
    /// false after the deadline.
    async fn wait_out(
        &self,
        holder: &Holder,
        mzxid: i64,
        deadline: &Deadline<'_>,
    ) -> Result<bool, Error> {
        if let Some(until) = self.lost.until(mzxid) {
            return self.sleep_until(until, deadline).await;
        }
        let path = join(self.path, &holder.node);
        let policy = &*self.options.retry_policy;
        loop {
            let read = || self.client.get_data_and_watch(&path);
            let read = self.client.retry_idempotent(policy, read);
            match deadline.bound(read).await {
                None => return Ok(false),
                Some(Err(error)) if error.kind() == ErrorKind::NoNode => break,
                Some(Err(error)) => return Err(error),
                Some(Ok((_, mut watcher))) => {
                    deadline.wait_for(watcher.changed()).await;
                    if deadline.has_passed() {
                        return Ok(false);
                    }
                    self.session()?;
                }
            }
        }
        let until = self.client.now() + waited(holder.claim);
        // Read in the session of our node, which was created after the record was written.
        self.session()?;
        self.lost.note(mzxid, until);
        let Holder { node, session, claim } = holder;
        debug!(
            path = self.path,
            node,
            session = format_args!("{session:#x}"),
            ?claim,
            "the last holder has not released the strict lock; waiting for its claim"
        );
        self.sleep_until(until, deadline).await
    }

    async fn sleep_until(&self, until: Instant, deadline: &Deadline<'_>) -> Result<bool, Error> {
        let session = self.session()?;
        let mut has_lapsed = false;
        loop {
            let left = until.duration_since(self.client.now());
            if left.is_zero() {
                return Ok(true);
            }
            if deadline.has_passed() {
                return Ok(false);
            }
            // Our own session may end meanwhile: then our node is gone, and the wait was in vain.
            let lapse = async {
                if has_lapsed {
                    std::future::pending::<()>().await;
                }
                session.lost().await;
            };
            let end = select(lapse, timer::ended(self.client));
            deadline.wait_for(select(timer::sleep(self.client, left), end)).await;
            if !session.is_valid(self.client.now()) {
                has_lapsed = true;
                self.session()?;
            }
        }
    }
}

impl Drop for Takeover<'_> {
    fn drop(&mut self) {
        let Some(acquired) = self.acquired.take() else { return };
        let node = &acquired.node.path;
        match &self.grant {
            Some(grant) => release::release_in_background(self.client, node, grant),
            None => guaranteed_delete::delete_in_background(self.client, node),
        }
    }
}
