//! What can be chosen about a lock.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use docent_session::retry::{ExponentialBackoffRetry, RetryPolicy};

use crate::{
    acl_provider::{AclProvider, DefaultAclProvider},
    parents::Parents,
};

/// The choices of a lock.
///
/// ```
/// use std::time::Duration;
/// use docent_recipes::locks::LockOptions;
/// use docent_session::retry::RetryNTimes;
///
/// let options = LockOptions::default()
///     .with_retry_policy(RetryNTimes::new(5, Duration::from_millis(100)))
///     .with_data("who and why");
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct LockOptions {
    pub(crate) retry_policy: Arc<dyn RetryPolicy>,
    pub(crate) data: Option<Bytes>,
    pub(crate) default_data: Option<Bytes>,
    pub(crate) acl_provider: Arc<dyn AclProvider>,
    pub(crate) container_parents: bool,
    pub(crate) namespace: Option<String>,
    pub(crate) pipelined: bool,
}

impl LockOptions {
    /// What is tried again, and when: operations on a broken connection, and the whole attempt when the
    /// lock node has vanished. Default: [`ExponentialBackoffRetry`] from one second, three retries, the
    /// usual choice of Curator's documentation (Curator itself has no default).
    #[must_use]
    pub fn with_retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Arc::new(policy);
        self
    }

    /// What the lock node (of a semaphore: the lease) has as its data. Default: the
    /// [default data](Self::with_default_data). A revocable lock's node is empty, whatever is said here.
    ///
    /// Source: `LockInternals.getLockNodeBytes`, `InterProcessSemaphoreV2.setNodeData`, the `lockData` of
    /// `InterProcessReadWriteLock`.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// What nodes have as their data for which nothing else is said. Default: the address of this host on its
    /// way to the server, as text; Curator's is the host's address too.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.defaultData`, `getLocalAddress`.
    #[must_use]
    pub fn with_default_data(mut self, data: impl Into<Bytes>) -> Self {
        self.default_data = Some(data.into());
        self
    }

    /// Which ACL each node gets, parents included. Default: everybody may do everything.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.aclProvider`.
    #[must_use]
    pub fn with_acl_provider(mut self, provider: impl AclProvider) -> Self {
        self.acl_provider = Arc::new(provider);
        self
    }

    /// Makes missing parents persistent: for servers before 3.5.1, which know no containers. Nobody removes
    /// them then. Those of the [namespace](Self::with_namespace) are containers all the same, as with Curator.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.dontUseContainerParents`.
    #[must_use]
    pub const fn without_container_parents(mut self) -> Self {
        self.container_parents = false;
        self
    }

    /// Puts the lock below `/NAMESPACE`, which is made if it is missing. Before the first acquire, that is asked
    /// for: sends exists (3), and createContainer (19) for what is missing.
    ///
    /// Paths that are told ([`lock_path`](super::LockGuard::lock_path), participants) are those of the client, so
    /// with the namespace in front: it belongs to the lock, not to the client. For all operations of a client,
    /// put a path into its connect string instead.
    ///
    /// Source: `CuratorFramework.usingNamespace`, `NamespaceImpl.fixForNamespace`.
    #[must_use]
    pub fn with_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Sends the listing in one write with the create, once the lock has seen its parent: an uncontended acquire
    /// then takes one round trip instead of two, a cycle of acquire and release two instead of three.
    ///
    /// Frames and their order stay Curator's as long as the create succeeds. Off by default because of the rest:
    /// when the reply to the create is lost, or the parent has gone, the wire shows one listing that Curator
    /// would not have sent. Its answer is thrown away then.
    #[must_use]
    pub const fn with_pipelined_listing(mut self) -> Self {
        self.pipelined = true;
        self
    }

    pub(crate) fn parents(&self) -> Parents<'_> {
        Parents { acl_provider: &*self.acl_provider, as_containers: self.container_parents }
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        let retry_policy = ExponentialBackoffRetry::new(Duration::from_secs(1), 3);
        Self {
            retry_policy: Arc::new(retry_policy),
            data: None,
            default_data: None,
            acl_provider: Arc::new(DefaultAclProvider),
            container_parents: true,
            namespace: None,
            pipelined: false,
        }
    }
}
