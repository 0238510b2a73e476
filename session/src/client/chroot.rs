//! The prefix of all paths of a client.
//!
//! The prefix is added to the paths of requests and removed from the paths of replies and events. The session only
//! knows the server's paths. The prefix is removed only at the border of a component: under the chroot `/zoo`, an event
//! of `/zookeeper/config` keeps its path (ZOOKEEPER-4565, ZOOKEEPER-4742).

use std::{borrow::Cow, sync::Arc};

use docent_protocol::{OpCode, path};

use crate::{Error, ErrorKind};

/// A chroot, or none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chroot(Option<Arc<str>>);

impl Chroot {
    /// `path` is a valid path and not `/`.
    pub(crate) fn new(path: Option<&str>) -> Self {
        Self(path.map(Into::into))
    }

    pub(super) fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
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
    pub(super) fn nested(&self, path: &str) -> Self {
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
    // Case (Pitfalls of the wire, 40): chroots.
    #[test]
    fn only_whole_components_are_taken_off() {
        let chroot = Chroot::new(Some("/zoo"));
        assert_eq!(chroot.strip("/zookeeper/config"), "/zookeeper/config");
        assert_eq!(Chroot::default().strip("/zoo"), "/zoo");
        for (path, is_within) in [("/zoo", true), ("/zoo/a", true), ("/zookeeper", false)] {
            assert_eq!(chroot.contains(path), is_within, "{path}");
        }
    }
}
