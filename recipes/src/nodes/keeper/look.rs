//! The look at a kept node, and the data of other clients that it finds.

use bytes::Bytes;
use docent_protocol::Stat;
use docent_session::{Error, ErrorKind, Watcher};

use super::{Keeper, NodeEvent, Wanted};
use crate::persistent_retry::PersistentRetry;

impl Keeper {
    /// Looks at the node, and watches it. The data is read only if that of other clients is adopted.
    pub(super) async fn look(
        &self,
        policy: &PersistentRetry,
        path: &str,
    ) -> Result<Option<(Stat, Option<Bytes>, Watcher)>, Error> {
        if self.options.data_adoption.is_none() {
            let look = || self.client.exists_and_watch(path);
            let (stat, watcher) = self.client.retry_idempotent(policy, look).await?;
            return Ok(stat.map(|stat| (stat, None, watcher)));
        }
        let read = || self.client.get_data_and_watch(path);
        match self.client.retry_idempotent(policy, read).await {
            Ok((node, watcher)) => Ok(Some((node.stat, Some(node.data), watcher))),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps data that another client has written from now on, unless our own is to be written.
    pub(super) fn adopt_data(&self, data: &Bytes) {
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
