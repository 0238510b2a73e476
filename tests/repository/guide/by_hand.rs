//! The naive and the sequential lock of the first chapters. What their clients believe is traced as the recipes do it.

use docent::{Client, CreateMode, Error, ErrorKind, Watcher};
use tracing::trace;

/// The target of the events.
pub(super) const TARGET: &str = "by_hand";

/// A client of a lock that is one node, or a directory.
pub(super) struct ByHand<'a> {
    pub(super) client: &'a Client,
    pub(super) name: &'a str,
    pub(super) lock: &'a str,
}

impl ByHand<'_> {
    /// Creates the node of the naive lock. Returns a watch on it if it is another client's.
    pub(super) async fn create(&self) -> Result<Option<Watcher>, Error> {
        match self.client.create(self.lock, b"", CreateMode::Ephemeral).await {
            Ok(_) => {
                self.holds();
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::NodeExists => {
                let (holder, watcher) = self.client.exists_and_watch(self.lock).await?;
                assert!(holder.is_some(), "it is released later");
                self.waits_for(self.lock);
                Ok(Some(watcher))
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the queue of the sequential lock. Returns a watch on the node ahead, if there is one.
    pub(super) async fn look(&self, ours: &str) -> Result<Option<Watcher>, Error> {
        let children = self.client.get_children(self.lock).await?;
        let nodes = children.iter().map(|name| format!("{}/{name}", self.lock));
        let Some(ahead) = nodes.filter(|node| **node < *ours).max() else {
            self.holds();
            return Ok(None);
        };
        self.waits_for(&ahead);
        self.client.get_data_and_watch(&ahead).await.map(|(_, watcher)| Some(watcher))
    }

    pub(super) async fn release(&self, node: &str) -> Result<(), Error> {
        trace!(target: TARGET, belief = "over", client = self.name, path = self.lock);
        self.client.delete(node, None).await
    }

    fn holds(&self) {
        trace!(target: TARGET, belief = "holds", client = self.name, path = self.lock);
    }

    fn waits_for(&self, ahead: &str) {
        trace!(target: TARGET, belief = "waits", ahead, client = self.name, path = self.lock);
    }
}
