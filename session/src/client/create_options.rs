//! The options of a create.

use docent_protocol::{
    Acl, CreateMode, acl,
    operation::{Create, Operation as _},
};

use super::arguments::check_new;
use crate::{Error, ErrorKind};

/// How a node is created: its mode, its ACL, and whether its missing parents are created too.
///
/// A [`CreateMode`] alone stands for the defaults: `client.create("/a", b"", CreateMode::Ephemeral)`.
///
/// ```
/// # mod docent { pub use docent_protocol::*; pub use docent_session::*; }
/// use docent::{Client, CreateMode, CreateOptions, acl::CREATOR_ALL_ACL};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = Client::connect(&server.connect_string()).await?;
/// client.add_auth("digest", b"app:secret").await?;
/// let options = CreateOptions::new(CreateMode::Ephemeral)
///     .with_acl(CREATOR_ALL_ACL)
///     .with_parents_mode(CreateMode::Container);
/// client.create("/app/workers/one", b"host-7", options).await?;
/// assert!(client.exists("/app/workers").await?.is_some());
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: the arguments of `ZooKeeper.create`; Curator's `CreateBuilder`.
#[derive(Debug, Clone, Copy)]
pub struct CreateOptions<'a> {
    mode: CreateMode,
    acl: &'a [Acl<'a>],
    parents: Option<CreateMode>,
}

impl<'a> CreateOptions<'a> {
    /// A node in this mode that everybody may use (`OPEN_ACL_UNSAFE`), below a parent that exists.
    #[must_use]
    pub const fn new(mode: CreateMode) -> Self {
        Self { mode, acl: acl::OPEN_ACL_UNSAFE, parents: None }
    }

    /// Sets the ACL of the node, and of the parents that are created. Default: everybody may use them
    /// (`OPEN_ACL_UNSAFE`).
    ///
    /// Source: Curator's `withACL(acl, true)`.
    #[must_use]
    pub const fn with_acl(mut self, acl: &'a [Acl<'a>]) -> Self {
        self.acl = acl;
        self
    }

    /// Creates the missing parents, as persistent nodes. Default: a missing parent is an error, `NoNode`.
    ///
    /// Source: Curator's `creatingParentsIfNeeded`.
    #[must_use]
    pub const fn with_parents(self) -> Self {
        self.with_parents_mode(CreateMode::Persistent)
    }

    /// As [`with_parents`](Self::with_parents), in this mode: `Persistent`, `Container`, or with a time to live.
    ///
    /// A server deletes a container some time after its last child was deleted. Servers before 3.5.1 have no containers:
    /// they get persistent parents, as Curator gives to clients without containers (`ZKPaths.getContainerCreateMode`).
    ///
    /// Source: Curator's `creatingParentContainersIfNeeded`.
    #[must_use]
    pub const fn with_parents_mode(mut self, mode: CreateMode) -> Self {
        self.parents = Some(mode);
        self
    }

    /// The mode of the node.
    #[must_use]
    pub const fn mode(&self) -> CreateMode {
        self.mode
    }

    /// The ACL of the node, and of the parents that are created.
    #[must_use]
    pub const fn acl(&self) -> &'a [Acl<'a>] {
        self.acl
    }

    /// The mode of the parents that are created; `None` if a missing parent is an error.
    #[must_use]
    pub const fn parents(&self) -> Option<CreateMode> {
        self.parents
    }

    /// Refuses an invalid path, and parents that can have no children.
    #[inline]
    pub(super) fn check(&self, path: &str) -> Result<(), Error> {
        self.parents.map_or(Ok(()), |mode| check_parents(path, mode))?;
        check_new(path, self.mode)
    }
}

/// The defaults, for this mode.
impl From<CreateMode> for CreateOptions<'_> {
    fn from(mode: CreateMode) -> Self {
        Self::new(mode)
    }
}

/// Refuses a mode in which no parent can be created. The error names the create of a node in that mode.
pub(super) fn check_parents(path: &str, mode: CreateMode) -> Result<(), Error> {
    if !mode.is_ephemeral() && !mode.is_sequential() {
        return Ok(());
    }
    let text = format_args!("parents can be neither ephemeral nor sequential, not {mode}");
    let op = Create::new("", None, &[], mode).op_code();
    Err(Error::refused(ErrorKind::BadArguments, text).with_operation(op, path))
}
