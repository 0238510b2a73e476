//! A node that all paths of a lock are below.
//!
//! Source: `NamespaceImpl`. Not mirrored: one of its clean-ups puts the namespace in front twice, and never
//! finds its node (N3). Here a path has its namespace from the beginning, and nothing adds or takes it off.

use docent_session::{Client, Error as SessionError};
use tokio::sync::OnceCell;

use crate::{
    Error,
    locks::LockOptions,
    parents::{Last, Parents, create_parents},
    retry_loop::RetryLoop,
};

/// A namespace, and whether it was made sure of.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// `/NAMESPACE`; empty for none.
    path: String,
    ensured: OnceCell<()>,
}

impl Namespace {
    pub(crate) fn new(namespace: Option<&str>) -> Result<Self, Error> {
        let path = namespace.map(|namespace| format!("/{namespace}")).unwrap_or_default();
        if !path.is_empty()
            && let Err(error) = docent_protocol::path::validate(&path)
        {
            return Err(Error::InvalidPath(format!("{path:?} cannot be a namespace: {error}")));
        }
        Ok(Self { path, ensured: OnceCell::new() })
    }

    /// Source: `ZKPaths.fixForNamespace`.
    pub(crate) fn fix_for_namespace(&self, path: &str) -> String {
        format!("{}{path}", self.path)
    }

    /// Makes it if it is missing: containers, whatever the options say of other parents.
    ///
    /// Source: `NamespaceImpl.fixForNamespace`.
    pub(crate) async fn ensure(
        &self,
        client: &Client,
        options: &LockOptions,
    ) -> Result<(), SessionError> {
        if self.path.is_empty() {
            return Ok(());
        }
        let parents = Parents { as_containers: true, ..options.parents() };
        let make = || async {
            let mut retry = RetryLoop::new(client, &*options.retry_policy);
            while let Err(error) = create_parents(client, &self.path, Last::Itself, parents).await {
                retry.pause(error).await?;
            }
            Ok(())
        };
        self.ensured.get_or_try_init(make).await.copied()
    }
}
