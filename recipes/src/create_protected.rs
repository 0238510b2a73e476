//! The protected create of the recipes, for everybody.

use docent_protocol::{CreateMode, path as paths};
use docent_session::Client;

use crate::{
    Error, error,
    options::LockOptions,
    protection::{self, NewNode, split},
};

/// As [`create_protected_with`], with the default [`LockOptions`](crate::locks::LockOptions): three retries, and a node
/// that everybody may use.
///
/// # Errors
///
/// As [`create_protected_with`].
///
/// # Cancel safety
///
/// As [`create_protected_with`].
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
pub async fn create_protected(
    client: &Client,
    path: &str,
    data: &[u8],
    mode: CreateMode,
) -> Result<String, Error> {
    create_protected_with(client, path, data, mode, &LockOptions::default()).await
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
/// another GUID. `options` has the retry policy, and the provider of the node's ACL.
///
/// # Errors
///
/// * `InvalidPath` for an invalid path. A sequential node may end with `/`: then its name is only the GUID
///   and the digits.
/// * `NoNode`: the parent does not exist, and is not created.
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
/// use std::time::Duration;
///
/// use docent::{Client, CreateMode, LockOptions, nodes::create_protected_with, retry::RetryNTimes};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = Client::connect(&server.connect_string()).await?;
/// let options =
///     LockOptions::default().with_retry_policy(RetryNTimes::new(10, Duration::from_millis(200)));
/// let mode = CreateMode::Ephemeral;
/// let member = create_protected_with(&client, "/worker", b"host-7", mode, &options).await?;
/// assert!(member.ends_with("-worker"));
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: Curator's `CreateBuilderImpl.withProtection`, which can lose track of its node and sends no sync (N1, N9 in
/// `docs/CURATOR.md`).
pub async fn create_protected_with(
    client: &Client,
    path: &str,
    data: &[u8],
    mode: CreateMode,
    options: &LockOptions,
) -> Result<String, Error> {
    check(path, mode)?;
    let (parent, name) = split(path);
    let parents = options.parents();
    let with_parents = false;
    let search_after_parents = false;
    let node = NewNode {
        parent,
        name,
        data,
        parents,
        with_parents,
        search_after_parents,
        mode,
        closing: None,
    };
    let created = protection::create(client, &*options.retry_policy, &node).await?;
    Ok(protection::keep_only(client, created))
}

/// The name of a sequential node may be empty before the GUID and the digits are added.
fn check(path: &str, mode: CreateMode) -> Result<(), Error> {
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
