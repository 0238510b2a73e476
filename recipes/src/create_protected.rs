//! The protected create of the recipes, for everybody.

use std::sync::Arc;

use docent_protocol::{CreateMode, path as paths};
use docent_session::{Client, CreateOptions, retry::RetryPolicy};

use crate::{
    Error, ErrorKind,
    acl_provider::Acls,
    error,
    options::default_retry_policy,
    parents::Parents,
    path::split,
    protection::{self, NewNode},
};

/// How a [`create_protected`] creates its node. A [`CreateMode`] or [`CreateOptions`] alone stand for the default retries.
///
/// ```
/// use std::time::Duration;
/// use docent::{CreateMode, CreateOptions, nodes::ProtectedOptions, acl::CREATOR_ALL_ACL, retry::RetryNTimes};
///
/// let node = CreateOptions::new(CreateMode::Ephemeral).with_acl(CREATOR_ALL_ACL);
/// let options =
///     ProtectedOptions::new(node).with_retry_policy(RetryNTimes::new(10, Duration::from_millis(200)));
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct ProtectedOptions<'a> {
    create: CreateOptions<'a>,
    retry_policy: Arc<dyn RetryPolicy>,
}

impl<'a> ProtectedOptions<'a> {
    /// Options for a node like this, with the default retries.
    #[must_use]
    pub fn new(create: impl Into<CreateOptions<'a>>) -> Self {
        Self { create: create.into(), retry_policy: default_retry_policy() }
    }

    /// Sets the policy for retries on a broken connection. Default: that of
    /// [`LockOptions`](crate::locks::LockOptions::with_retry_policy), three retries.
    #[must_use]
    pub fn with_retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Arc::new(policy);
        self
    }
}

impl<'a> From<CreateOptions<'a>> for ProtectedOptions<'a> {
    fn from(create: CreateOptions<'a>) -> Self {
        Self::new(create)
    }
}

impl From<CreateMode> for ProtectedOptions<'_> {
    fn from(mode: CreateMode) -> Self {
        Self::new(mode)
    }
}

/// Creates a node exactly once, also when the connection breaks, and returns its path.
///
/// When the reply to a create is lost, it is unknown whether there is a node. So the server is sent another name than
/// `path`: `_c_`, a random GUID and `-` before the last part, as with Curator's `withProtection`. Before each retry, the
/// children of the parent are searched for the GUID. **A lost reply leaves no second node.** Only the returned path
/// names the node; sort sequential nodes by their last ten digits, not by name.
///
/// Sends create2 (15; 19 and 21 for containers and TTL nodes; create (1) to servers before 3.5, which get persistent
/// nodes for containers). After a lost reply it sends sync (9) and getChildren (8), and create2 again if the search has
/// found no node. A found ephemeral node of an earlier session is deleted, and created again in this session, under
/// another GUID. `options` is a [`CreateMode`], [`CreateOptions`] with an ACL or with parents, or [`ProtectedOptions`] with
/// a retry policy too. Missing parents below the client's chroot are created.
///
/// # Errors
///
/// * `InvalidPath` for an invalid path. A sequential node may end with `/`: then its name is only the GUID
///   and the digits.
/// * `NoNode`: the parent does not exist.
/// * `BadArguments`: parents that could have no children.
/// * `ConnectionLoss` or `SessionExpired`, when the connection or session is lost for longer than the retry policy
///   allows.
/// * `NoAuth`: the ACL of the parent must allow CREATE, and READ for the search.
/// * `NoChildrenForEphemerals`, `InvalidAcl`, and `Unimplemented` for TTL nodes.
///
/// After an error there is no node, whatever its [`outcome`](docent_session::Error::outcome): one that may have been
/// created is searched for and deleted in the background.
///
/// # Cancel safety
///
/// If the future is dropped, no node is left behind: the background searches for it, and deletes it.
///
/// **The background works until the client ends**, after which a persistent node is not deleted. An ephemeral one ends
/// with the session. It repeats a delete that fails, also with `NotEmpty` when another client has created children.
///
/// # Example
///
/// ```
/// use docent::{Client, CreateMode, create_protected};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = Client::connect(&server.connect_string()).await?;
/// client.create("/queue", b"", CreateMode::Persistent).await?;
/// let mode = CreateMode::PersistentSequential;
/// let path = create_protected(&client, "/queue/item-", b"paint it", mode).await?;
/// // /queue/_c_f8a9eae5-4fd1-4a4a-9cc9-3dd9e0a3f6a1-item-0000000000
/// assert!(path.starts_with("/queue/_c_") && path.ends_with("-item-0000000000"));
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: Curator's `CreateBuilderImpl.withProtection`, which can lose track of its node and sends no sync (N1, N9 in
/// `docs/CURATOR.md`).
pub async fn create_protected<'a>(
    client: &Client,
    path: &str,
    data: &[u8],
    options: impl Into<ProtectedOptions<'a>>,
) -> Result<String, Error> {
    let ProtectedOptions { create, retry_policy } = options.into();
    check(path, create)?;
    let (parent, name) = split(path);
    let (mode, parents) = (create.mode(), create.parents());
    let node = NewNode {
        parent,
        name,
        data,
        with_parents: parents.is_some(),
        parents: Parents { acls: Acls::Same(create.acl()), mode: parents.unwrap_or(mode) },
        search_after_parents: false,
        mode,
        closing: None,
    };
    let created = protection::create(client, &*retry_policy, &node).await?;
    Ok(protection::keep_only(client, created))
}

/// The name of a sequential node may be empty before the GUID and the digits are added.
fn check(path: &str, create: CreateOptions<'_>) -> Result<(), Error> {
    let mode = create.mode();
    if create.parents().is_some_and(|mode| mode.is_ephemeral() || mode.is_sequential()) {
        let text = "parents can be neither ephemeral nor sequential";
        return Err(Error::refused(ErrorKind::BadArguments, text).with_path(path));
    }
    let refused = |why: &dyn std::fmt::Display| {
        error::invalid_path(format_args!("{path:?} cannot be the path of a new node: {why}"))
    };
    let checked = match path {
        "/" if !mode.is_sequential() => return Err(refused(&"the root exists")),
        _ if mode.is_sequential() => paths::validate_sequential(path),
        _ => paths::validate(path),
    };
    checked.map_err(|error| refused(&error).caused_by(error))
}
