//! Clients of a part of the tree.

use std::sync::Arc;

use super::{arguments::check, client::Client};
use crate::Error;

/// # A part of the tree
impl Client {
    /// A handle on the same session whose paths are below `path`: it sends `/a` as `PATH/a`, and takes the prefix off
    /// the paths of replies, events and errors. `path` is below this client's own chroot, if it has one; `/` is a plain
    /// clone. Sends nothing, and the node need not exist: [`ensure_path`](Self::ensure_path) with the path `/` creates
    /// it. Until then, operations fail with `NoNode`; see [`Error::is_missing_chroot`].
    ///
    /// The handle is a clone: it shares session, connection, queue and [`config`](Self::config) with this client, and
    /// the session ends with the last of them. [`close`](Self::close) ends it for all.
    ///
    /// # Errors
    ///
    /// `InvalidPath`: the path is invalid; the text names the rule.
    ///
    /// # Example
    ///
    /// ```
    /// # use docent_session::{Client, CreateOptions};
    /// # use docent_protocol::CreateMode;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = Client::connect(&server.connect_string()).await?;
    /// let app = client.with_chroot("/app")?;
    /// app.create("/config", b"x", CreateOptions::new(CreateMode::Persistent).with_parents()).await?;
    /// assert_eq!(client.get_data("/app/config").await?.data, "x");
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: the chroot of a connect string; Curator's `CuratorFramework.usingNamespace`.
    pub fn with_chroot(&self, path: &str) -> Result<Self, Error> {
        check(path)?;
        Ok(Self { handle: Arc::clone(&self.handle), chroot: self.chroot.nested(path) })
    }

    /// The prefix of this client's paths, from its connect string and from [`with_chroot`](Self::with_chroot); `None`
    /// without one.
    #[must_use]
    pub fn chroot(&self) -> Option<&str> {
        self.chroot.as_deref()
    }
}
