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

use std::sync::{Arc, Mutex};

use docent_protocol::Stat;
use docent_session::{
    Client, Error, ErrorKind, Outcome, Transaction, retry::RetryLoop, runtime::Instant,
    session::SessionClaim,
};
use tracing::debug;

use super::{
    StrictClaim,
    claim::waited,
    record::{Holder, Record},
};
use crate::{
    deadline::{Deadline, Ended},
    error, guaranteed_delete,
    locks::{
        LockOptions,
        hold::{Acquired, delete_request},
    },
    path::{join, split},
    planted,
    select::select,
    sync::lock,
    timer,
};

/// The end of the claim of a lost holder, as one lock object has found out. It outlasts an acquire: calls with a shorter
/// timeout than the claim would otherwise begin to wait again and again.
#[derive(Debug, Default)]
pub(super) struct LostHolder(Mutex<Option<(i64, Instant)>>);

impl LostHolder {
    /// The end of the claim of the holder in the record that was written at `mzxid`, if its node is known to be gone.
    fn until(&self, mzxid: i64) -> Option<Instant> {
        let known = *lock(&self.0);
        known.filter(|(known, _)| *known == mzxid).map(|(_, until)| until)
    }

    fn note(&self, mzxid: i64, until: Instant) {
        *lock(&self.0) = Some((mzxid, until));
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

    /// Takes the lock over.
    pub(super) async fn take(
        mut self,
        deadline: &Deadline<'_>,
    ) -> Result<(Acquired, Arc<StrictClaim>), Ended> {
        let ended = match self.granted(deadline).await {
            Ok((session, claim)) => match self.acquired.take() {
                Some(acquired) => return Ok((Acquired { claim: session, ..acquired }, claim)),
                None => self.own_node_missing().into(),
            },
            Err(ended) => ended,
        };
        Err(ended.after_delete(self.leave(deadline).await))
    }

    /// Leaves the queue, and releases the lock if the grant was applied.
    pub(super) async fn leave(mut self, deadline: &Deadline<'_>) -> Result<(), Ended> {
        let Some(acquired) = self.acquired.take() else { return Ok(()) };
        let (client, policy, node) =
            (self.client, &*self.options.retry_policy, acquired.node.path.as_str());
        match &self.grant {
            Some(grant) => {
                let delete = guaranteed_delete::delete_by(
                    client,
                    policy,
                    node,
                    delete_request(Arc::<StrictClaim>::clone(grant)),
                );
                deadline.bound_by_end(delete).await
            }
            None => deadline.bound_by_end(guaranteed_delete::delete(client, policy, node)).await,
        }
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
    ) -> Result<(SessionClaim, Arc<StrictClaim>), Ended> {
        let mut retry = RetryLoop::new(self.client, &*self.options.retry_policy);
        let token = deadline.bound(self.token()).await?;
        loop {
            let (record, stat) = deadline.bound(self.read_record()).await?;
            let is_waited_out = self.is_named_in(&record) || self.waited_out == Some(stat.version);
            if let Some(holder) = record.holder.as_ref().filter(|_| !is_waited_out) {
                deadline.note_answer();
                self.wait_out(holder, stat.mzxid, deadline).await?;
                self.waited_out = Some(stat.version);
            }
            let session = self.session()?;
            let (begun, write) = self.begin(&record, stat.version, token, &session)?;
            let now = || self.client.now();
            match deadline.bound(write.commit()).await {
                Ok(_) if planted::is("strict-grant-from-reply") && begun.renew(now(), now()) => {
                    return Ok((session, begun));
                }
                Ok(_) if begun.is_valid(now()) && session.is_valid(now()) => {
                    return Ok((session, begun));
                }
                // The reply took longer than the claim lasts.
                Ok(_) => deadline.check()?,
                Err(Ended::Failed(error))
                    if error.kind() == ErrorKind::NoNode && error.index().is_some() =>
                {
                    return Err(self.own_node_missing().into());
                }
                // A change since the read, by a contender whose node is gone, or by our own lost grant.
                Err(Ended::Failed(error)) if error.kind() == ErrorKind::BadVersion => {}
                Err(Ended::Failed(error)) => {
                    debug!(path = self.path, %error, "strict lock not taken over; retrying");
                    deadline.bound_by_end(retry.pause(error)).await?;
                }
                Err(timed_out) => return Err(timed_out),
            }
        }
    }

    async fn read_record(&self) -> Result<(Record, Stat), Error> {
        let read = || self.client.get_data(self.path);
        let node = self.client.retry_idempotent(&*self.options.retry_policy, read).await?;
        Ok((Record::read(&node, self.path)?, node.stat))
    }

    fn is_named_in(&self, record: &Record) -> bool {
        record.holder.as_ref().is_some_and(|holder| holder.node == split(self.node()).1)
    }

    /// Begins the claim of our hold by the write of step 4 or 5 to a record of this version.
    fn begin(
        &mut self,
        record: &Record,
        version: i32,
        token: i64,
        session: &SessionClaim,
    ) -> Result<(Arc<StrictClaim>, Transaction<'a>), Error> {
        let (client, sent_at, is_ours) = (self.client, self.client.now(), self.is_named_in(record));
        let claim = match &record.holder {
            Some(holder) if is_ours => holder.claim,
            // Queues out of order: our node is older than that of the last holder.
            _ if record.token >= token => return Err(self.own_node_missing()),
            _ => client.session_timeout(),
        };
        let version = if is_ours { version } else { version.wrapping_add(1) };
        let begun = Arc::new(StrictClaim::new(self.path, version, token, claim, sent_at));
        self.grant = Some(Arc::clone(&begun));
        let write = if is_ours {
            begun.renewal(client, self.node())
        } else {
            begun.grant(client, self.node(), session.lease().session_id())
        };
        Ok((begun, write))
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

    /// Waits until the node of the last holder, who has not released the lock, is gone, and then for its claim.
    async fn wait_out(
        &self,
        holder: &Holder,
        mzxid: i64,
        deadline: &Deadline<'_>,
    ) -> Result<(), Ended> {
        if let Some(until) = self.lost.until(mzxid) {
            return self.sleep_until(until, deadline).await;
        }
        let path = join(self.path, &holder.node);
        let policy = &*self.options.retry_policy;
        loop {
            let read = || self.client.get_data_and_watch(&path);
            match deadline.bound(self.client.retry_idempotent(policy, read)).await {
                Err(Ended::Failed(error)) if error.kind() == ErrorKind::NoNode => break,
                read => deadline.wait_for(read?.1.next()).await,
            }
            deadline.check()?;
            self.session()?;
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

    async fn sleep_until(&self, until: Instant, deadline: &Deadline<'_>) -> Result<(), Ended> {
        let session = self.session()?;
        let mut has_lapsed = false;
        loop {
            let left = until.duration_since(self.client.now());
            if left.is_zero() {
                return Ok(());
            }
            deadline.check()?;
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
            Some(grant) => {
                guaranteed_delete::delete_in_background_by(
                    self.client,
                    node,
                    delete_request(Arc::<StrictClaim>::clone(grant)),
                );
            }
            None => guaranteed_delete::delete_in_background(self.client, node),
        }
    }
}
