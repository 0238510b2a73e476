//! What a kept node does when it is closed.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
};

use docent_protocol::WatcherType;
use docent_session::{Error, ErrorKind, Watcher, retry::RetryLoop};
use tokio_util::sync::CancellationToken;

use super::{Keeper, Memory, Present, connected, is_same, owner::is_ephemeral_owner};
use crate::{create::lacks_3_5_operations, error, persistent_retry::PersistentRetry};

impl Keeper {
    /// Deletes the node, unless the options keep it. Without a reply, it is repeated as long as the node can be ours. delete
    /// has no check of the owner, so each retry looks at the node first: the first delete may have made room for the node of
    /// another client. So does a first delete of a node that was not seen on this connection: in an outage, another client
    /// may have replaced it.
    pub(super) async fn leave(
        &self,
        present: &Present,
        mut watcher: Option<Watcher>,
        is_seen: bool,
    ) -> Result<(), Error> {
        if !self.deletes.load(Ordering::Acquire) {
            self.remove_watch(&mut watcher);
            return Ok(());
        }
        let policy = PersistentRetry::new(
            Arc::clone(&self.options.lock.retry_policy),
            CancellationToken::new(),
        );
        let mut retry = RetryLoop::new(&self.client, &policy);
        let mut is_blind = is_seen;
        loop {
            if self.client.ended().is_some()
                || (present.owner != 0 && Some(present.owner) != self.session())
            {
                return Ok(());
            }
            let deleted = if std::mem::take(&mut is_blind) {
                self.client.cleanup().delete(&present.path, None).await
            } else {
                self.delete_again(present).await
            };
            match deleted {
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
                // Written since the look.
                Err(error) if error.kind() == ErrorKind::BadVersion => {
                    retry.pause_after_any_error(error).await?;
                }
                Err(error) => retry.pause(error).await?,
                // The event of our own delete has removed the watch.
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Deletes the node if it is still ours.
    async fn delete_again(&self, present: &Present) -> Result<(), Error> {
        let settling = self.refused_delete(&present.path);
        let looked = self.client.exists(&present.path);
        settling.await?;
        match looked.await? {
            Some(stat) if is_same(present, &stat) => {
                self.client.cleanup().delete(&present.path, Some(stat.version)).await
            }
            _ => Ok(()),
        }
    }

    /// A delete that deletes nothing, because no node has this version. Its reply comes behind all earlier requests of this
    /// session; see `protection::settled`. `NoNode` if there is no node.
    pub(super) fn refused_delete(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let refused = self.client.cleanup().delete(path, Some(i32::MAX));
        async {
            match refused.await {
                Err(error) if error.kind() == ErrorKind::BadVersion => Ok(()),
                result => result,
            }
        }
    }

    /// After a close, deletes the node of a create that has no reply, and one that only a server that lags did not show.
    pub(super) async fn leave_unknown(&self, memory: &Memory) -> Result<(), Error> {
        if !self.deletes.load(Ordering::Acquire)
            || (memory.unknown_creates.is_empty() && memory.node.is_none())
            || self.client.ended().is_some()
        {
            return Ok(());
        }
        if self.is_protected() && memory.path.is_none() {
            return Err(error::not_yet_deleted(&self.path));
        }
        let path = memory.path.as_ref().unwrap_or(&self.path);
        let policy = PersistentRetry::new(
            Arc::clone(&self.options.lock.retry_policy),
            CancellationToken::new(),
        );
        let mut retry = RetryLoop::new(&self.client, &policy);
        let mut connection = self.client.state();
        while connected(&self.client, &mut connection).await {
            match self.delete_unknown(&policy, path, memory).await {
                // Written since the look.
                Err(error) if error.kind() == ErrorKind::BadVersion => {
                    retry.pause_after_any_error(error).await?;
                }
                Err(error) => retry.pause(error).await?,
                Ok(()) => return Ok(()),
            }
        }
        Ok(())
    }

    async fn delete_unknown(
        &self,
        policy: &PersistentRetry,
        path: &str,
        memory: &Memory,
    ) -> Result<(), Error> {
        let cleanup = self.client.cleanup();
        let settling = self.refused_delete(path);
        let looked = cleanup.get_children_with_stat(path);
        match settling.await {
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
            result => result?,
        }
        let stat = match looked.await {
            Ok((_, stat)) => stat,
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
            Err(error) => return Err(error),
        };
        let owner = if is_ephemeral_owner(stat.ephemeral_owner) { stat.ephemeral_owner } else { 0 };
        match self.is_ours(policy, memory, &stat, owner).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
            Err(error) => return Err(error),
        }
        match cleanup.delete(path, Some(stat.version)).await {
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(()),
            deleted => deleted,
        }
    }

    /// Source: `WatcherRemovalManager.removeWatchers`.
    fn remove_watch(&self, watcher: &mut Option<Watcher>) {
        if let Some(mut watcher) = watcher.take()
            && watcher.try_changed().is_none()
            && !lacks_3_5_operations(&self.client)
        {
            drop(self.client.check_watches(watcher.path(), WatcherType::Any));
        }
    }
}
