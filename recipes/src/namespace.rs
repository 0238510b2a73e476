//! A node that is the parent of all paths of a lock.
//!
//! Source: `NamespaceImpl`. Not mirrored: one of Curator's clean-ups prepends the namespace twice and never finds
//! its node (N3 in `docs/CURATOR.md`). Here the namespace is prepended once, when the lock object is created.

use docent_protocol::CreateMode;
use docent_session::{Client, Error, retry::RetryLoop};
use tokio::sync::OnceCell;

use crate::{
    error,
    options::LockOptions,
    parents::{LastNode, Parents, create_parents},
};

/// A namespace, and whether it is known to exist.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// `/NAMESPACE`; empty for none.
    path: String,
    ensured: OnceCell<()>,
}

impl Namespace {
    pub(crate) fn new(namespace: Option<&str>) -> Result<Self, Error> {
        // As in `ZKPaths.makePath`, an empty namespace is no namespace.
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let path = namespace.map(|namespace| format!("/{namespace}")).unwrap_or_default();
        if !path.is_empty()
            && let Err(error) = docent_protocol::path::validate(&path)
        {
            let why = format_args!("{path:?} cannot be a namespace: {error}");
            return Err(error::invalid_path(why).caused_by(error));
        }
        Ok(Self { path, ensured: OnceCell::new() })
    }

    /// Source: `ZKPaths.fixForNamespace`.
    pub(crate) fn fix_for_namespace(&self, path: &str) -> String {
        format!("{}{path}", self.path)
    }

    /// Creates the namespace if it is missing, always as containers.
    ///
    /// Source: `NamespaceImpl.fixForNamespace`.
    pub(crate) async fn ensure(&self, client: &Client, options: &LockOptions) -> Result<(), Error> {
        if self.path.is_empty() {
            return Ok(());
        }
        let parents = Parents { mode: CreateMode::Container, ..options.parents() };
        let create = || async {
            let mut retry = RetryLoop::new(client, &*options.retry_policy);
            while let Err(error) =
                create_parents(client, &self.path, LastNode::Create, parents).await
            {
                retry.pause(error).await?;
            }
            Ok(())
        };
        self.ensured.get_or_try_init(create).await.copied()
    }
}
