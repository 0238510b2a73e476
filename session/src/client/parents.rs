//! Nodes with their parents.

use docent_protocol::{
    Acl, CreateMode, acl,
    operation::{Create, Operation as _},
    path,
};

use super::{
    client::{Client, check_new},
    response::Call,
};
use crate::{Error, ErrorKind};

/// How often the parents are created again when another client deletes them.
const MAX_ATTEMPTS: u32 = 10;

/// # Several requests in one call
impl Client {
    /// As [`create`](Self::create), and creates the missing parents, as persistent nodes. Everybody may use the nodes
    /// (`OPEN_ACL_UNSAFE`). Returns the path.
    ///
    /// Sends the create; only if it fails with `NoNode`, the requests of [`create_parents`](Self::create_parents), and
    /// the create again. If another client deletes a parent meanwhile, that is repeated, at most ten times.
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create), for the node or one of its parents: the error names the path. Parents created
    /// so far remain, and the outcome is that of the failed request.
    ///
    /// * `NodeExists`: the node exists.
    /// * `NoNode`: other clients deleted the parents again and again.
    /// * `NoAuth`, `NoChildrenForEphemerals`: an ancestor does not allow children.
    /// * `ConnectionLoss` with [`Outcome::Unknown`](crate::Outcome::Unknown): the node or parent of that path may have
    ///   been created. No request is repeated after it. Unless `mode` is sequential, the whole call can be repeated; it
    ///   then fails with `NodeExists` if the node had been created.
    ///
    /// # Cancel safety
    ///
    /// The requests are sent as the future is polled. If it is dropped, the node or some of its parents may have been
    /// created.
    ///
    /// # Example
    ///
    /// ```
    /// # use docent_session::Client;
    /// # use docent_protocol::CreateMode;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = Client::connect(&server.connect_string()).await?;
    /// client.create_with_parents("/app/workers/one", b"", CreateMode::Ephemeral).await?;
    /// assert!(client.exists("/app/workers").await?.is_some());
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: Curator's `creatingParentsIfNeeded`; `CreateBuilderImpl`, `ZKPaths.mkdirs`.
    pub fn create_with_parents<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        mode: CreateMode,
    ) -> Call<'a, String> {
        let (parent_mode, acl) = (CreateMode::Persistent, acl::OPEN_ACL_UNSAFE);
        self.create_with_acl_and_parents(path, data, mode, acl, parent_mode)
    }

    /// As [`create_with_parents`](Self::create_with_parents), with an ACL for the node and the created parents, and
    /// with the mode of the parents: `Persistent`, `Container`, or with a time to live.
    ///
    /// A server deletes a container some time after its last child was deleted.
    ///
    /// # Errors
    ///
    /// As [`create_with_parents`](Self::create_with_parents), `InvalidAcl`, and those of
    /// [`create_parents`](Self::create_parents) for `parent_mode`.
    ///
    /// # Cancel safety
    ///
    /// As [`create_with_parents`](Self::create_with_parents).
    ///
    /// Source: Curator's `creatingParentContainersIfNeeded`, `withACL(acl, true)`.
    pub fn create_with_acl_and_parents<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        mode: CreateMode,
        acl: &'a [Acl<'_>],
        parent_mode: CreateMode,
    ) -> Call<'a, String> {
        Call::new(async move {
            check_parent_mode(path, parent_mode)?;
            check_create(path, mode, mode)?;
            let server_path = self.new_path(path, mode);
            let mut attempt = 1;
            loop {
                match self.create_with_acl(path, data, mode, acl).await {
                    Err(error) if error.kind() == ErrorKind::NoNode && attempt < MAX_ATTEMPTS => {}
                    other => return other,
                }
                attempt += 1;
                self.create_all(path::parent(&server_path), parent_mode, acl).await?;
            }
        })
    }

    /// Creates the missing ancestors of a node, but not the node itself. Everybody may use them (`OPEN_ACL_UNSAFE`).
    /// `mode` is `Persistent`, `Container`, or with a time to live. `/a/` is the path of a node below `/a`, as for a
    /// sequential node whose name consists of its digits.
    ///
    /// Sends an exists for the parent and for each further ancestor, up to the first one that exists. Then sends a
    /// create for each missing one, from the top. So ancestors that exist need no permission, except CREATE for the
    /// lowest of them.
    ///
    /// Under a chroot, the nodes of the chroot are ancestors too, and are created if they are missing. Errors name them
    /// by their whole path.
    ///
    /// # Errors
    ///
    /// Those of [`exists`](Self::exists) (but `NoAuth`) and [`create`](Self::create), of an ancestor: the error names
    /// its path. Ancestors created so far remain. Not `NodeExists`: another client may create the same nodes.
    ///
    /// * `BadArguments`: the mode is ephemeral or sequential. Nothing was sent.
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
    /// The requests are sent as the future is polled. If it is dropped, some of the ancestors may have been created.
    ///
    /// Source: Curator's `ZKPaths.mkdirs` without the last node.
    pub fn create_parents<'a>(&'a self, path: &'a str, mode: CreateMode) -> Call<'a, ()> {
        self.create_parents_with_acl(path, mode, acl::OPEN_ACL_UNSAFE)
    }

    /// As [`create_parents`](Self::create_parents), with an ACL for the created nodes.
    ///
    /// # Errors
    ///
    /// As [`create_parents`](Self::create_parents), and `InvalidAcl`.
    ///
    /// # Cancel safety
    ///
    /// As [`create_parents`](Self::create_parents).
    pub fn create_parents_with_acl<'a>(
        &'a self,
        path: &'a str,
        mode: CreateMode,
        acl: &'a [Acl<'_>],
    ) -> Call<'a, ()> {
        Call::new(async move {
            check_parent_mode(path, mode)?;
            check_create(path, CreateMode::PersistentSequential, mode)?;
            self.create_all(path::parent(&self.chroot.prefix(path)), mode, acl).await
        })
    }

    /// Creates a node without data and its missing parents, all in the same mode, unless they exist. Everybody may use
    /// them (`OPEN_ACL_UNSAFE`). Sends the requests of [`create_parents`](Self::create_parents) for the node and its
    /// ancestors: nothing but an exists if the node is there.
    ///
    /// Under a chroot, `/` creates the chroot.
    ///
    /// # Errors
    ///
    /// As [`create_parents`](Self::create_parents).
    ///
    /// # Cancel safety
    ///
    /// As [`create_parents`](Self::create_parents).
    ///
    /// Source: Curator's `ZKPaths.mkdirs` with the last node, `CuratorFramework.createContainers`; kazoo's
    /// `ensure_path`.
    pub fn ensure_path<'a>(&'a self, path: &'a str, mode: CreateMode) -> Call<'a, ()> {
        Call::new(async move {
            check_parent_mode(path, mode)?;
            check_create(path, CreateMode::Persistent, mode)?;
            self.create_all(Some(&self.chroot.prefix(path)), mode, acl::OPEN_ACL_UNSAFE).await
        })
    }

    /// Creates the node of a server's path and its ancestors, as far as they are missing.
    async fn create_all(
        &self,
        server_path: Option<&str>,
        mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            match self.try_create_all(server_path, mode, acl).await {
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
            server.create_one(path, mode, acl).await?;
        }
        Ok(())
    }

    /// Creates a node, unless another client has done so since: a persistent one instead of a container on servers without
    /// containers.
    async fn create_one(&self, path: &str, mode: CreateMode, acl: &[Acl<'_>]) -> Result<(), Error> {
        let create = |mode| self.create_with_acl(path, b"", mode, acl).allow(ErrorKind::NodeExists);
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

/// Checks the path of a node of this form; the error names the create of `mode`.
fn check_create(path: &str, form: CreateMode, mode: CreateMode) -> Result<(), Error> {
    let op = Create::new("", None, &[], mode).op_code();
    check_new(path, form).map_err(|error| error.with_operation(op, path))
}

fn check_parent_mode(path: &str, mode: CreateMode) -> Result<(), Error> {
    if !mode.is_ephemeral() && !mode.is_sequential() {
        return Ok(());
    }
    let text = format_args!("parents can be neither ephemeral nor sequential, not {mode}");
    let op = Create::new("", None, &[], mode).op_code();
    Err(Error::refused(ErrorKind::BadArguments, text).with_operation(op, path))
}
