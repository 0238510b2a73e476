//! Nodes with their parents.

use docent_protocol::{
    Acl, CreateMode,
    operation::{Create, Operation as _},
    path,
};

use super::{
    arguments::check,
    client::Client,
    create_options::{CreateOptions, check_parents},
    response::{AclEntries, Call, Response},
};
use crate::{Error, ErrorKind};

/// How often the parents are created again when another client deletes them.
const MAX_ATTEMPTS: u32 = 10;

/// # Several requests in one call
impl Client {
    /// Creates a node without data and its missing parents, unless they exist: the way to have a path before its
    /// children are created. The parents have the mode of the node, unless the options
    /// [say otherwise](CreateOptions::with_parents_mode): `Persistent`, `Container`, or with a time to live.
    ///
    /// Sends an exists for the node and for each ancestor, up to the first one that exists. Then sends a create for each
    /// missing one, from the top. So nothing but an exists is sent if the node is there, and ancestors that exist need
    /// no permission, except CREATE for the lowest of them.
    ///
    /// Under a chroot, the nodes of the chroot are ancestors too, and are created if they are missing; `/` creates the
    /// chroot alone. Errors name them by their whole path.
    ///
    /// # Errors
    ///
    /// Those of [`exists`](Self::exists) (but `NoAuth`) and [`create`](Self::create), of the node or an ancestor: the
    /// error names its path. Nodes created so far remain. Not `NodeExists`: another client may create the same nodes.
    ///
    /// * `BadArguments`: a mode is ephemeral or sequential. Nothing was sent.
    /// * `NoNode`: other clients deleted ancestors again and again.
    /// * `Unimplemented`: nodes with a time to live on a server before 3.5.3, or where they are disabled.
    ///
    /// Servers before 3.5.1 have no containers: they get persistent nodes instead, as Curator gives to clients without
    /// containers (`ZKPaths.getContainerCreateMode`).
    ///
    /// The call can be repeated after any error.
    ///
    /// # Cancel safety
    ///
    /// The requests are sent as the future is polled. If it is dropped, some of the nodes may have been created.
    ///
    /// Source: Curator's `ZKPaths.mkdirs`, `CuratorFramework.createContainers`; kazoo's `ensure_path`.
    pub fn ensure_path<'a>(
        &'a self,
        path: &'a str,
        options: impl Into<CreateOptions<'a>>,
    ) -> Call<'a, ()> {
        let options = options.into();
        let op = Create::new("", None, &[], options.mode()).op_code();
        Call::new(self.runtime(), op, path, async move {
            let (mode, acl) = (options.mode(), options.acl());
            let parent_mode = options.parents().unwrap_or(mode);
            check_parents(path, mode)?;
            check_parents(path, parent_mode)?;
            check(path).map_err(|error| error.with_operation(op, path))?;
            self.create_all(Some(&self.chroot.prefix(path)), mode, parent_mode, acl).await
        })
    }

    /// The response to a create whose first request is queued, with the requests for missing parents if the options
    /// want them. The copies of the arguments are made only then.
    #[inline]
    pub(super) fn with_missing_parents<R: Send + 'static>(
        &self,
        first: Response<R>,
        path: &str,
        data: &[u8],
        options: CreateOptions<'_>,
        again: fn(&Self, &str, &[u8], CreateOptions<'_>) -> Response<R>,
    ) -> Response<R> {
        match options.parents() {
            None => first,
            Some(mode) => self.create_below(first, (path, data, options), mode, again),
        }
    }

    #[cold]
    fn create_below<R: Send + 'static>(
        &self,
        first: Response<R>,
        (path, data, options): (&str, &[u8], CreateOptions<'_>),
        parent_mode: CreateMode,
        again: fn(&Self, &str, &[u8], CreateOptions<'_>) -> Response<R>,
    ) -> Response<R> {
        let (client, path, data) = (self.clone(), path.to_owned(), data.to_vec());
        let (mode, acl) = (options.mode(), AclEntries::copy_of(options.acl()));
        first.followed_by(self.runtime(), |mut first| async move {
            let server_path = client.new_path(&path, mode);
            let acl = acl.to_vec();
            let options = CreateOptions::new(mode).with_acl(&acl);
            let mut attempt = 1;
            loop {
                match (&mut first).await {
                    Err(error) if error.kind() == ErrorKind::NoNode && attempt < MAX_ATTEMPTS => {}
                    other => return other,
                }
                attempt += 1;
                let parent = path::parent(&server_path);
                client.create_all(parent, parent_mode, parent_mode, &acl).await?;
                first = again(&client, &path, &data, options);
            }
        })
    }

    /// Creates the node of a server's path and its ancestors, as far as they are missing.
    async fn create_all(
        &self,
        server_path: Option<&str>,
        mode: CreateMode,
        parent_mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            match self.try_create_all(server_path, mode, parent_mode, acl).await {
                // Another client has deleted an ancestor since.
                Err(error) if error.kind() == ErrorKind::NoNode && attempt < MAX_ATTEMPTS => {}
                other => return other.map_err(|error| self.localize(error)),
            }
            attempt += 1;
        }
    }

    async fn try_create_all(
        &self,
        server_path: Option<&str>,
        mode: CreateMode,
        parent_mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Result<(), Error> {
        let server = self.without_chroot();
        let mut missing = Vec::new();
        let mut next = server_path;
        while let Some(path) = next.filter(|path| *path != "/") {
            match server.exists(path).await {
                Ok(None) => missing.push(path),
                // Servers since 3.9.2 refuse to show a node without READ, but not that it is missing.
                Err(error) if error.kind() != ErrorKind::NoAuth => return Err(error),
                _ => break,
            }
            next = path::parent(path);
        }
        for path in missing.into_iter().rev() {
            let mode = if Some(path) == server_path { mode } else { parent_mode };
            server.create_one(path, mode, acl).await?;
        }
        Ok(())
    }

    /// Creates a node, unless another client has done so since: a persistent one instead of a container on servers without
    /// containers.
    async fn create_one(&self, path: &str, mode: CreateMode, acl: &[Acl<'_>]) -> Result<(), Error> {
        let create = |mode| {
            let options = CreateOptions::new(mode).with_acl(acl);
            self.create(path, b"", options).allow(ErrorKind::NodeExists)
        };
        let error = match create(mode).await {
            Err(error) if mode == CreateMode::Container => error,
            other => return other.map(drop),
        };
        if error.kind() != ErrorKind::Unimplemented {
            return Err(error);
        }
        match create(CreateMode::Persistent).await {
            // It was sent on the connection that the server closes behind its refusal.
            Err(error) if error.kind() == ErrorKind::ConnectionLoss => {
                create(CreateMode::Persistent).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Names the path of a server's error as the client knows it.
    fn localize(&self, error: Error) -> Error {
        let Some((op, path)) = error.operation().zip(error.path()) else { return error };
        let path = self.chroot.strip(path).to_owned();
        error.with_operation(op, &path)
    }
}
