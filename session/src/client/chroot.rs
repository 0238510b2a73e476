//! The prefix of all paths of a client.
//!
//! The prefix is added to the paths of requests and removed from the paths of replies and events. The session only
//! knows the server's paths. The prefix is removed only at the border of a component: under the chroot `/zoo`, an event
//! of `/zookeeper/config` keeps its path (ZOOKEEPER-4565, ZOOKEEPER-4742).

use std::{borrow::Cow, sync::Arc};

use docent_protocol::{OpCode, path};

use super::client::{Client, check};
use crate::{Error, ErrorKind};

/// A chroot, or none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chroot(Option<Arc<str>>);

impl Chroot {
    /// `path` is a valid path and not `/`.
    pub(crate) fn new(path: Option<&str>) -> Self {
        Self(path.map(Into::into))
    }

    /// The server's path for a client's path.
    #[inline(always)] // 64 more instructions a getData without `unlock`, `prefix`, `Field::take`.
    pub(crate) fn prefix<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(path),
            Some(chroot) if path == "/" => Cow::Owned(chroot.to_string()),
            Some(_) => self.prefix_new(path),
        }
    }

    /// The server's path of a node to create: a sequential node below `/` is created below the chroot.
    pub(crate) fn prefix_new<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(path),
            Some(chroot) => Cow::Owned(format!("{chroot}{path}")),
        }
    }

    /// The chroot of a client's path, which is valid.
    fn nested(&self, path: &str) -> Self {
        match path {
            "/" => self.clone(),
            _ => Self(Some(self.prefix(path).into())),
        }
    }

    /// Whether a server's path is within the chroot.
    pub(crate) fn contains(&self, path: &str) -> bool {
        match &self.0 {
            None => true,
            Some(chroot) => path
                .strip_prefix(&**chroot)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }

    /// Says in a `NoNode` that the chroot does not exist, where that is certain: the operation was on the client's root,
    /// or created one of its children.
    #[cold]
    pub(crate) fn named(&self, error: Error) -> Error {
        let Some(chroot) = &self.0 else { return error };
        if error.kind() != ErrorKind::NoNode || error.is_missing_chroot() {
            return error;
        }
        let is_create = error.operation().is_some_and(|op| {
            matches!(
                op,
                OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl
            )
        });
        let is_certain = error
            .path()
            .is_some_and(|path| path == "/" || (is_create && path::parent(path) == Some("/")));
        if is_certain { error.with_missing_chroot(chroot) } else { error }
    }

    /// The client's path for a server's path.
    pub(crate) fn strip<'a>(&self, path: &'a str) -> &'a str {
        let rest = self.0.as_deref().and_then(|chroot| path.strip_prefix(chroot));
        match rest {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }
}

/// # A part of the tree
impl Client {
    /// A handle on the same session whose paths are below `path`: it sends `/a` as `PATH/a`, and takes the prefix off
    /// the paths of replies, events and errors. `path` is below this client's own chroot, if it has one; `/` is a plain
    /// clone. Sends nothing, and the node need not exist: [`ensure_path`](Self::ensure_path) with the path `/` creates
    /// it. Until then, operations fail with `NoNode`; see [`Error::is_missing_chroot`].
    ///
    /// The handle is a clone: it shares session, connection, queue and [`config`](Self::config) with this client, and
    /// the session ends with the last of them. [`close`](Self::close) ends it for all.
    ///
    /// # Errors
    ///
    /// `InvalidPath`: the path is invalid; the text names the rule.
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
    /// let app = client.with_chroot("/app")?;
    /// app.create_with_parents("/config", b"x", CreateMode::Persistent).await?;
    /// assert_eq!(client.get_data("/app/config").await?.data, "x");
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: the chroot of a connect string; Curator's `CuratorFramework.usingNamespace`.
    pub fn with_chroot(&self, path: &str) -> Result<Self, Error> {
        check(path)?;
        Ok(Self { handle: Arc::clone(&self.handle), chroot: self.chroot.nested(path) })
    }

    /// The prefix of this client's paths, from its connect string and from [`with_chroot`](Self::with_chroot); `None`
    /// without one.
    #[must_use]
    pub fn chroot(&self) -> Option<&str> {
        self.chroot.0.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let chroot = Chroot::new(Some("/app/a"));
        for (client, server) in [("/", "/app/a"), ("/x", "/app/a/x"), ("/x/y", "/app/a/x/y")] {
            assert_eq!(chroot.prefix(client), server);
            assert_eq!(chroot.strip(server), client);
        }
    }

    #[test]
    fn a_chroot_is_nested_in_another() {
        let root = Chroot::default();
        assert_eq!(root.nested("/").0, None);
        let app = root.nested("/app");
        assert_eq!(app.nested("/").prefix("/x"), "/app/x");
        assert_eq!(app.nested("/a/b").prefix("/"), "/app/a/b");
        assert_eq!(app.nested("/a/b").strip("/app/a/b/x"), "/x");
    }

    /// ZOOKEEPER-4565, ZOOKEEPER-4742.
    #[test]
    fn only_whole_components_are_taken_off() {
        let chroot = Chroot::new(Some("/zoo"));
        assert_eq!(chroot.strip("/zookeeper/config"), "/zookeeper/config");
        assert_eq!(Chroot::default().strip("/zoo"), "/zoo");
    }
}
