//! The node of a member of a double barrier.

use std::future::Future;

use docent_protocol::CreateMode;
use docent_session::{Children, Client, Error, ErrorKind, Outcome, runtime::Runtime};
use tracing::debug;

use super::persistently::{is_transient, persistently};
use crate::{
    create::create,
    error::default_if_missing,
    guaranteed_delete::{delete_in_background, repeat},
    options::LockOptions,
    parents::{LastNode, create_parents},
    path::{join, split},
    persistent_retry::pause,
    select::select,
    settle::read_settled,
    state_changes::session_id,
    timer,
};

/// The name of the node that says that all members have entered.
///
/// Source: `DistributedDoubleBarrier.READY_NODE`.
pub(super) const READY: &str = "ready";

/// A new member id: a v4 UUID, from the randomness of the client's runtime.
pub(super) fn new_id(runtime: &dyn Runtime) -> Result<String, Error> {
    let mut bytes = [0; 16];
    if !runtime.fill_random(&mut bytes) {
        // Two members with one id would count as one.
        return Err(Error::refused(ErrorKind::InvalidConfig, "no randomness for a member id"));
    }
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().as_hyphenated().to_string())
}

/// Whether a child is a member. Not mirrored: Curator counts all children, [`READY`] included (C18).
pub(super) fn is_member(name: &str) -> bool {
    name.len() == 36 && uuid::Uuid::try_parse(name).is_ok()
}

/// The members among the children, in the order of their names.
pub(super) fn members(children: &Children) -> Vec<&str> {
    let mut names: Vec<_> = children.iter().filter(|name| is_member(name)).collect();
    names.sort_unstable();
    names
}

/// Lists the children of a barrier; none if it is missing. Sends getChildren2 (12).
pub(super) async fn list(client: &Client, path: &str) -> Result<Children, Error> {
    persistently(client, || listing(client, path)).await
}

/// As [`list`], and not older than the call.
pub(super) async fn list_settled(client: &Client, path: &str) -> Result<Children, Error> {
    persistently(client, || read_settled(client, path, || listing(client, path))).await
}

fn listing(client: &Client, path: &str) -> impl Future<Output = Result<Children, Error>> + use<> {
    let listed = client.cleanup().get_children_with_stat(path);
    async { default_if_missing(listed.await).map(|(children, _)| children) }
}

/// The node of a member. Dropping it deletes the node in the background.
#[derive(Debug)]
pub(super) struct Member {
    client: Client,
    path: String,
    /// The session that owns the node, and the zxid of its creation.
    pub(super) owner: i64,
    pub(super) czxid: i64,
    /// Whether the node may exist.
    may_exist: bool,
    /// Whether this member has seen or may have created [`READY`]: without members it is deleted, too.
    pub(super) saw_ready: bool,
}

impl Member {
    /// Creates the node, with parents like a lock node. Sends create2 (15), and exists (3) if that is refused because
    /// the node exists: an earlier request has created it. `None` if that was in an earlier session: the server is
    /// about to delete the node, and the member needs another id.
    pub(super) async fn create(
        client: &Client,
        path: String,
        data: &[u8],
        options: &LockOptions,
    ) -> Result<Option<Self>, Error> {
        let parents = options.parents();
        let acl = parents.acls.of(&path);
        let mut member = Self {
            client: client.clone(),
            path: path.clone(),
            owner: 0,
            czxid: 0,
            may_exist: false,
            saw_ready: false,
        };
        let mut count = 0;
        loop {
            let mut changes = client.state();
            let could_exist = std::mem::replace(&mut member.may_exist, true);
            // Dropped from here on, the member is deleted behind the create.
            let error = match create(client, &path, data, CreateMode::Ephemeral, acl).await {
                Ok(reply) => match (reply.stat, reply.session) {
                    (Some(stat), Some(session)) => {
                        (member.owner, member.czxid) = (session, stat.czxid);
                        return Ok(Some(member));
                    }
                    // A create (1), whose reply has no stat.
                    _ => return member.identified().await,
                },
                Err(error) => error,
            };
            if error.kind() == ErrorKind::NodeExists {
                return member.identified().await;
            }
            member.may_exist = could_exist || error.outcome() == Outcome::Unknown;
            let error = if error.kind() == ErrorKind::NoNode && !error.is_missing_chroot() {
                match create_parents(client, &path, LastNode::Skip, parents).await {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            } else {
                error
            };
            if !is_transient(&error) || client.ended().is_some() {
                return Err(error);
            }
            debug!(path, %error, "member node not created; retrying");
            select(timer::sleep(client, pause(count)), changes.next()).await;
            count += 1;
        }
    }

    /// Reads whose node it is.
    async fn identified(mut self) -> Result<Option<Self>, Error> {
        let stat = persistently(&self.client, || self.client.exists(&self.path)).await?;
        let current = session_id(&self.client);
        match stat {
            Some(stat) if Some(stat.ephemeral_owner) == current => {
                (self.owner, self.czxid) = (stat.ephemeral_owner, stat.czxid);
                Ok(Some(self))
            }
            _ => Ok(None),
        }
    }

    /// Whether the node belongs to the current session.
    pub(super) fn is_current(&self) -> bool {
        self.client.session().is_some_and(|session| session.session_id() == self.owner)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The member id.
    pub(super) fn name(&self) -> &str {
        split(&self.path).1
    }

    /// Deletes the node, and waits for the reply. Dropping the future continues in the background.
    pub(super) async fn delete(mut self) -> Result<(), Error> {
        let deleted = persistently(&self.client, || self.client.cleanup().delete(&self.path, None));
        match deleted.await {
            Err(error) if error.kind() != ErrorKind::NoNode => Err(error),
            _ => {
                self.may_exist = false;
                Ok(())
            }
        }
    }

    /// The node is known to be gone.
    pub(super) fn forget(mut self) {
        self.may_exist = false;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.may_exist {
            return;
        }
        delete_in_background(&self.client, &self.path);
        if self.saw_ready {
            delete_ready_without_members(&self.client, split(&self.path).0);
        }
    }
}

/// Deletes [`READY`] in the background if no member is left. The call itself queues the listing, behind earlier deletes.
fn delete_ready_without_members(client: &Client, path: &str) {
    let first = listing(client, path);
    let (task_client, path) = (client.clone(), path.to_owned());
    client.runtime().spawn(Box::pin(async move {
        let again = |client: &Client| listing(client, &path);
        let Some((children, client)) = repeat(task_client, first, again).await else { return };
        if children.contains(READY) && members(&children).is_empty() {
            delete_in_background(&client, &join(&path, READY));
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uuids_are_members() {
        assert!(is_member("0b2f3f0e-92c2-4f0a-8f7b-bbbbbbbbbbbb"));
        for name in [READY, "foreign", "0b2f3f0e92c24f0a8f7bbbbbbbbbbbbb", "_c_0b2f3f0e-lock-1"] {
            assert!(!is_member(name), "{name}");
        }
    }
}
