//! Options of kept nodes.

use std::{fmt, sync::Arc};

use crate::locks::LockOptions;

/// Options of a [`PersistentNode`](super::PersistentNode).
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub(super) lock: LockOptions,
    pub(super) protected: bool,
    pub(super) parents: bool,
    pub(super) adopts: bool,
    pub(super) data_adoption: Option<DataAdoption>,
    pub(super) deletes: bool,
}

/// Which data of other clients is adopted.
#[derive(Clone)]
pub(super) struct DataAdoption(Arc<Accepts>);

type Accepts = dyn Fn(&[u8]) -> bool + Send + Sync;

impl DataAdoption {
    pub(super) fn accepts(&self, data: &[u8]) -> bool {
        (self.0)(data)
    }
}

impl fmt::Debug for DataAdoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataAdoption")
    }
}

impl NodeOptions {
    /// Puts a GUID into the name of the node, which distinguishes it from nodes of other clients. Sequential nodes always
    /// have one: without it, a lost reply would leave a second node (L14 in `docs/CURATOR.md`).
    ///
    /// Source: the parameter `useProtection`.
    #[must_use]
    pub const fn with_protection(mut self) -> Self {
        self.protected = true;
        self
    }

    /// Creates no missing parents: they are an error.
    ///
    /// Source: the parameter `useParentCreation`.
    #[must_use]
    pub const fn without_parents(mut self) -> Self {
        self.parents = false;
        self
    }

    /// Adopts an existing node that is not ephemeral, such as the one of an earlier run of this process, writes the data
    /// to it, and deletes it at the close. By default it is a [`Conflict`](super::NodeEvent::Conflict). Curator adopts every
    /// node (L16).
    #[must_use]
    pub const fn with_adoption(mut self) -> Self {
        self.adopts = true;
        self
    }

    /// Adopts data that other clients write to the node, if `accepts` returns true for it: it becomes the wanted data, as
    /// if it had been [set](super::PersistentNode::set_data) here, so it is created again with it. It is an event,
    /// [`DataAdopted`](super::NodeEvent::DataAdopted). By default such data stays in the node until it is created again, and
    /// other data than the wanted one is not noticed.
    ///
    /// Sends getData (4) with watch instead of exists (3), so the ACL must allow READ. Data that is set here at the same
    /// time is written over that of the other client.
    ///
    /// ```
    /// # use docent_protocol::CreateMode;
    /// # use docent_recipes::nodes::{NodeEvent, NodeOptions, PersistentNode};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = docent_session::Client::connect(&server.connect_string()).await?;
    /// let options = NodeOptions::default().with_data_adoption(|data| data.len() < 100);
    /// let node = PersistentNode::start_with(&client, "/n", CreateMode::Ephemeral, "ours", options)?;
    /// let mut events = node.events();
    /// node.created().await?;
    /// client.set_data("/n", b"theirs", None).await?;
    /// while let Some(event) = events.next().await {
    ///     if let NodeEvent::DataAdopted { data } = event {
    ///         assert_eq!((&*data, &*node.data()), (&b"theirs"[..], &b"theirs"[..]));
    ///         break;
    ///     }
    /// }
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_data_adoption(
        mut self,
        accepts: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.data_adoption = Some(DataAdoption(Arc::new(accepts)));
        self
    }

    /// Leaves the node on the server when it is closed or dropped.
    /// [`close_and_delete`](super::PersistentNode::close_and_delete) deletes it nevertheless.
    #[must_use]
    pub const fn without_deletion(mut self) -> Self {
        self.deletes = false;
        self
    }

    /// Sets the options that it shares with locks: retry policy, ACLs, mode of the parents.
    #[must_use]
    pub fn with_lock_options(mut self, options: LockOptions) -> Self {
        self.lock = options;
        self
    }
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            lock: LockOptions::default(),
            protected: false,
            parents: true,
            adopts: false,
            data_adoption: None,
            deletes: true,
        }
    }
}
