//! Queries: reads of the instances of others.

use docent_recipes::read_nodes;
use docent_session::{Children, Error, ErrorKind, Node};
use tracing::debug;

use super::{ServiceDiscovery, join};
use crate::{ServiceInstance, error};

impl<T: Send + Sync + 'static> ServiceDiscovery<T> {
    /// The names of the services, sorted. A service whose instances are gone stays until the server removes its node.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. A base path that does not exist has no services.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `queryForNames`.
    pub async fn query_for_names(&self) -> Result<Vec<String>, Error> {
        self.list(&self.inner.base_path).await
    }

    /// The names of the nodes of a service, sorted: the ids of its instances, sequential ones with their number. No
    /// instance is read.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn query_for_ids(&self, name: &str) -> Result<Vec<String>, Error> {
        self.list(&self.service_path(name)?).await
    }

    /// The instances of a service, in the order of the names of their nodes. A node whose data is not an instance is left
    /// out.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `queryForInstances`.
    pub async fn query_for_instances(&self, name: &str) -> Result<Vec<ServiceInstance<T>>, Error> {
        let service = self.service_path(name)?;
        let (client, policy) = (&self.inner.client, self.inner.options.lock.retry_policy());
        let ids = self.list(&service).await?;
        let paths: Vec<String> = ids.iter().map(|id| join(&service, id)).collect();
        // A missing one has left since the listing.
        let nodes = read_nodes(client, policy, &paths).await?;
        let nodes =
            paths.iter().zip(&nodes).filter_map(|(path, node)| Some((path, node.as_ref()?)));
        let instance = |(path, node): (&String, &Node)| {
            let read = self.read(path, node);
            read.inspect_err(|error| debug!(path, %error, "node left out of a query")).ok()
        };
        Ok(nodes.filter_map(instance).collect())
    }

    /// One instance; `None` if there is none. `id` is the name of its node, for a sequential one with its number.
    ///
    /// # Errors
    ///
    /// `BadReply` with [`Outcome::NotApplied`](docent_session::Outcome::NotApplied) if the data of the node is not an
    /// instance: its detail says why, its path is that of the node. `InvalidPath`; those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `queryForInstance`.
    pub async fn query_for_instance(
        &self,
        name: &str,
        id: &str,
    ) -> Result<Option<ServiceInstance<T>>, Error> {
        let path = self.instance_path(name, id)?;
        let policy = self.inner.options.lock.retry_policy();
        let read = || self.inner.client.get_data(&path);
        match self.inner.client.retry_idempotent(policy, read).await {
            Ok(node) => self.read(&path, &node).map(Some),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &str, node: &Node) -> Result<ServiceInstance<T>, Error> {
        let instance = self.inner.options.serializer.deserialize(&node.data);
        instance.map_err(|error| error::unreadable(path, &error))
    }

    /// The sorted names of the children.
    async fn list(&self, path: &str) -> Result<Vec<String>, Error> {
        let policy = self.inner.options.lock.retry_policy();
        let list = || self.inner.client.get_children_with_stat(path);
        let children = match self.inner.client.retry_idempotent(policy, list).await {
            Ok((children, _)) => children,
            Err(error) if error.kind() == ErrorKind::NoNode => Children::default(),
            Err(error) => return Err(error),
        };
        let mut names: Vec<String> = children.iter().map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }
}
