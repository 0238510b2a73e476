//! What a kept node does when it is closed.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use docent_protocol::WatcherType;
use docent_session::{Error, ErrorKind, Watcher, retry::RetryLoop};
use tokio_util::sync::CancellationToken;

use super::{Keeper, Memory, Present, connected, is_same, owner::is_ephemeral_owner};
use crate::{create::lacks_3_5_operations, error, persistent_retry::PersistentRetry};

impl Keeper {
    /// Deletes the node, unless the options keep it. Without a reply, it is repeated as long as the node can be ours. Each
    /// retry looks at the node first: the delete may have been applied, and another client may have created the node since.
    pub(super) async fn leave(
        &self,
        present: &Present,
        mut watcher: Option<Watcher>,
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
        let mut is_retry = false;
        loop {
            if self.client.ended().is_some()
                || (present.owner != 0 && Some(present.owner) != self.session())
            {
                return Ok(());
            }
            let mut version = None;
            if std::mem::replace(&mut is_retry, true) {
                match self.client.exists(&present.path).await {
                    Ok(Some(stat)) if is_same(present, &stat) => version = Some(stat.version),
                    Ok(_) => return Ok(()),
                    Err(error) => {
                        retry.pause(error).await?;
                        continue;
                    }
                }
            }
            let mut delete = pin!(self.client.cleanup().delete(&present.path, version));
            match poll_fn(|cx| delete.as_mut().poll(cx)).await {
                // Written since the look.
                Err(error) if error.kind() == ErrorKind::BadVersion => {
                    retry.pause_after_any_error(error).await?;
                }
                Err(error) if error.kind() != ErrorKind::NoNode => retry.pause(error).await?,
                // The event of our own delete has removed the watch.
                _ => return Ok(()),
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
        // No node has this version. The refusal comes behind all creates of this session; see `protection::settled`.
        let settling = cleanup.delete(path, Some(i32::MAX));
        let looked = cleanup.get_children_with_stat(path);
        match settling.await {
            Err(error) if error.kind() == ErrorKind::BadVersion => {}
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
