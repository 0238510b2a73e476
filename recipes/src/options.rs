//! Options of a lock.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use docent_protocol::CreateMode;
use docent_session::retry::{ExponentialBackoffRetry, RetryPolicy};

use crate::{
    acl_provider::{AclProvider, Acls, DefaultAclProvider},
    parents::Parents,
};

/// Options of a lock.
///
/// ```
/// use std::time::Duration;
/// use docent::{LockOptions, retry::RetryNTimes};
///
/// let options = LockOptions::default()
///     .with_retry_policy(RetryNTimes::new(5, Duration::from_millis(100)))
///     .with_data("worker 7: nightly backup");
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
    pub(crate) proven_renewal: Option<Duration>,
}

impl LockOptions {
    /// Sets the policy for retries of operations on a broken connection, and of the whole acquire when the lock node
    /// was deleted. Default: [`ExponentialBackoffRetry`] from one second, three retries, the usual choice of
    /// Curator's documentation (Curator itself has no default).
    #[must_use]
    pub fn with_retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Arc::new(policy);
        self
    }

    /// Sets the data of the lock node (of a semaphore: the lease). Default: the
    /// [default data](Self::with_default_data). The node of a revocable lock is always empty.
    ///
    /// Source: `LockInternals.getLockNodeBytes`, `InterProcessSemaphoreV2.setNodeData`, the `lockData` of
    /// `InterProcessReadWriteLock`.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the data of nodes that have no other. Default: the local address that this host uses to reach the server,
    /// as text; Curator's default is the host's address too.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.defaultData`, `getLocalAddress`.
    #[must_use]
    pub fn with_default_data(mut self, data: impl Into<Bytes>) -> Self {
        self.default_data = Some(data.into());
        self
    }

    /// Sets the provider of each node's ACL, parents included. Default: everyone has every permission.
    ///
    /// Contenders need READ on the parent and on the nodes of the others. A server sends no event of a node that the client
    /// may not read at that moment (CVE-2024-23944; servers since 3.8.4 and 3.9.2). If READ is taken away for a while, a
    /// waiter may miss the deletion it waits for, as in Curator: it looks again after the loss of its connection, or at the
    /// end of its time limit.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.aclProvider`.
    #[must_use]
    pub fn with_acl_provider(mut self, provider: impl AclProvider) -> Self {
        self.acl_provider = Arc::new(provider);
        self
    }

    /// Creates missing parents as persistent nodes, which no server removes. The nodes of the
    /// [namespace](Self::with_namespace) are containers all the same, as with Curator. Servers without containers
    /// (ZooKeeper before 3.5.1, ClickHouse Keeper) do not need this option: their parents are always persistent.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.dontUseContainerParents`.
    #[must_use]
    pub const fn without_container_parents(mut self) -> Self {
        self.container_parents = false;
        self
    }

    /// Places the lock below `/NAMESPACE`, which is created if it is missing. An empty namespace is none. The first
    /// acquire sends exists (3), and createContainer (19) for each missing node.
    ///
    /// Returned paths ([`path`](crate::locks::LockGuard::path), participants) include the namespace: it belongs to
    /// the lock, not to the client. For a namespace of all operations of a client, add a path to its connect string.
    ///
    /// Source: `CuratorFramework.usingNamespace`, `NamespaceImpl.fixForNamespace`.
    #[must_use]
    pub fn with_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Sends the create and the listing in one write, once the lock object has seen its parent: an uncontended acquire
    /// then takes one round trip instead of two, a cycle of acquire and release two instead of three.
    ///
    /// Frames and their order stay Curator's as long as the create succeeds. It is off by default because of the other
    /// cases: when the reply to the create is lost, or the parent was deleted, this sends one listing that Curator
    /// would not have sent, and discards its reply.
    #[must_use]
    pub const fn with_pipelined_listing(mut self) -> Self {
        self.pipelined = true;
        self
    }

    /// Renews [`proven_until`](crate::locks::LockGuard::proven_until) of each hold, and of each leadership, for as long as
    /// it is held: whenever the bound is `every` older than a new one would be. Default: no renewal, and the bound ends
    /// about one session timeout after the creation of the session.
    ///
    /// An `every` of less than a tenth of the session timeout counts as a tenth, and one of more than half as half. A third
    /// leaves time to repeat a renewal that fails. An acquire also waits for the first
    /// renewal, unless the bound is younger than `every`: for half of the session timeout or its own timeout at most. If
    /// the first renewal fails, the lock is held all the same, `proven_until` lies in the past, and it begins with the
    /// first renewal that succeeds; but if it does not find the node, the acquire tries again, as often as the retry policy
    /// allows, and then fails with `LockLost`. From then on, a bound that has expired stays so. A leadership begins without that wait.
    ///
    /// Each renewal sends a multi (14) with a check (13) of the lock node and, unless the client's server is known to
    /// lead the ensemble, first replaces the connection.
    /// [`Client::renew_proof`](docent_session::Client::renew_proof) documents the cost. The holds of one client share
    /// these reconnects.
    ///
    /// Not for a ClickHouse Keeper, which resumes no session: the first of these reconnects ends the session and its locks,
    /// and no bound is renewed after that. A [`StrictMutex`](crate::locks::StrictMutex) needs no reconnect.
    ///
    /// ```
    /// use std::time::Duration;
    /// use docent::LockOptions;
    ///
    /// // With a session timeout of 15 s.
    /// let options = LockOptions::default().with_proven_renewal(Duration::from_secs(5));
    /// # drop(options);
    /// ```
    ///
    /// Curator has no equivalent.
    #[must_use]
    pub const fn with_proven_renewal(mut self, every: Duration) -> Self {
        self.proven_renewal = Some(every);
        self
    }

    /// The policy for retries.
    // Public for docent-discovery, which takes these options too.
    #[doc(hidden)]
    #[must_use]
    pub fn retry_policy(&self) -> &dyn RetryPolicy {
        &*self.retry_policy
    }

    pub(crate) fn parents(&self) -> Parents<'_> {
        let mode =
            if self.container_parents { CreateMode::Container } else { CreateMode::Persistent };
        Parents { acls: Acls::Provider(&*self.acl_provider), mode }
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            retry_policy: default_retry_policy(),
            data: None,
            default_data: None,
            acl_provider: Arc::new(DefaultAclProvider),
            container_parents: true,
            namespace: None,
            pipelined: false,
            proven_renewal: None,
        }
    }
}

/// The retries of recipes without a policy of their own.
pub(crate) fn default_retry_policy() -> Arc<dyn RetryPolicy> {
    Arc::new(ExponentialBackoffRetry::new(Duration::from_secs(1), 3))
}
