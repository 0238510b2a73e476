//! What a kept node does when it is closed.

use std::sync::{Arc, atomic::Ordering};

use docent_session::{Client, Error, ErrorKind, retry::RetryLoop};
use tokio_util::sync::CancellationToken;

use super::{Keeper, Present, keep::Kept};
use crate::{
    create::remove_unfired, error, guaranteed_delete::delete_in_background_by,
    persistent_retry::PersistentRetry, settle,
};

impl Keeper {
    /// Deletes the node, unless the options keep it. Without a reply, it is repeated as long as the node can be ours. delete
    /// has no check of the owner, so each retry looks at the node first: the first delete may have made room for the node of
    /// another client. So does a first delete of a node that was not seen on this connection: in an outage, another client
    /// may have replaced it. And so does that of a node whose `czxid` is not known, which a delete in the background needs.
    pub(super) async fn leave(&self, mut kept: Kept) -> Result<(), Error> {
        if !self.deletes.load(Ordering::Acquire) {
            if let Some(watcher) = kept.watcher {
                remove_unfired(&self.task.client, watcher);
            }
            return Ok(());
        }
        let mut is_blind = kept.is_seen() && kept.present.czxid.is_some();
        let present = &mut kept.present;
        let policy = self.policy_of_close();
        let mut retry = RetryLoop::new(&self.task.client, &policy);
        loop {
            if self.task.client.ended().is_some() || !self.is_of_session(present) {
                return Ok(());
            }
            let deleted = if std::mem::take(&mut is_blind) {
                self.task.client.cleanup().delete(&present.path, None).await
            } else {
                delete_again(&self.task.client, present).await
            };
            self.repeat_if_refused(&deleted, present);
            // The event of our own delete has removed the watch.
            if is_gone(deleted, &mut retry).await? {
                return Ok(());
            }
        }
    }

    /// Leaves a delete that the ACL does not allow to the background: an ACL can change.
    fn repeat_if_refused(&self, deleted: &Result<(), Error>, present: &Present) {
        let is_refused = deleted.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoAuth);
        // Without its `czxid`, a later node of the path would be taken for ours.
        if !is_refused || present.czxid.is_none() {
            return;
        }
        let present = present.clone();
        delete_in_background_by(&self.task.client, &present.path.clone(), move |client, _| {
            let (client, mut present) = (client.clone(), present.clone());
            async move { error::default_if_missing(delete_again(&client, &mut present).await) }
        });
    }

    /// After a close, deletes the node of a create that has no reply, and one that only a server that lags did not show.
    pub(super) async fn leave_unknown(&self) -> Result<(), Error> {
        if !self.deletes.load(Ordering::Acquire)
            || (self.memory.unknown_creates.is_empty() && self.memory.node.is_none())
            || self.task.client.ended().is_some()
        {
            return Ok(());
        }
        if self.is_protected() && self.memory.path.is_none() {
            return Err(error::not_yet_deleted(&self.path));
        }
        let policy = self.policy_of_close();
        let mut retry = RetryLoop::new(&self.task.client, &policy);
        let mut connection = self.task.client.state();
        while self.task.connected(&mut connection).await.is_ok() {
            if is_gone(self.delete_unknown(&policy).await, &mut retry).await? {
                break;
            }
        }
        Ok(())
    }

    /// Deletes the node at our path if it is ours.
    async fn delete_unknown(&self, policy: &PersistentRetry) -> Result<(), Error> {
        let path = self.node_path();
        let cleanup = self.task.client.cleanup();
        let settling = settle::refused_delete(&self.task.client, path);
        let looked = cleanup.get_children_with_stat(path);
        settling.await?;
        let (_, stat) = looked.await?;
        if self.is_ours(policy, &stat).await? {
            let deleted = cleanup.delete(path, Some(stat.version)).await;
            let (owner, czxid) = (stat.ephemeral_owner, Some(stat.czxid));
            self.repeat_if_refused(&deleted, &Present { path: path.to_owned(), owner, czxid });
            return deleted;
        }
        Ok(())
    }

    /// The policy of the requests after a close.
    fn policy_of_close(&self) -> PersistentRetry {
        PersistentRetry::new(Arc::clone(&self.options.lock.retry_policy), CancellationToken::new())
    }
}

/// Deletes the node if it is still ours.
async fn delete_again(client: &Client, present: &mut Present) -> Result<(), Error> {
    let settling = settle::refused_delete(client, &present.path);
    let looked = client.exists(&present.path);
    settling.await?;
    match looked.await? {
        Some(stat) if present.is_same(&stat) => {
            present.czxid = Some(stat.czxid);
            client.cleanup().delete(&present.path, Some(stat.version)).await
        }
        _ => Ok(()),
    }
}

/// Whether the node is gone after a delete; otherwise waits for the pause of a retry.
async fn is_gone(deleted: Result<(), Error>, retry: &mut RetryLoop<'_>) -> Result<bool, Error> {
    match deleted {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() == ErrorKind::NoNode => return Ok(true),
        // Written since the look.
        Err(error) if error.kind() == ErrorKind::BadVersion => {
            retry.pause_after_any_error(error).await?;
        }
        Err(error) => retry.pause(error).await?,
    }
    Ok(false)
}
