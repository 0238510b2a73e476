//! The path in front of every path.
//!
//! Put in front on the way out, taken off on the way in; the session itself only knows the server's
//! paths. Taken off at the border of a component only: under the chroot `/zoo`, an event of
//! `/zookeeper/config` stays what it is (ZOOKEEPER-4565, ZOOKEEPER-4742).

use std::{borrow::Cow, sync::Arc};

/// A chroot, or none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chroot(Option<Arc<str>>);

impl Chroot {
    /// `path` is a valid path and not `/`.
    pub(crate) fn new(path: Option<&str>) -> Self {
        Self(path.map(Into::into))
    }

    /// The server's path of a client's.
    #[inline(always)]
    pub(crate) fn prefix<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(path),
            Some(chroot) if path == "/" => Cow::Owned(chroot.to_string()),
            Some(_) => self.prefix_new(path),
        }
    }

    /// The server's path of a node to create: a sequential one below `/` is below the chroot.
    pub(crate) fn prefix_new<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(path),
            Some(chroot) => Cow::Owned(format!("{chroot}{path}")),
        }
    }

    /// Whether the client can name a server's path.
    pub(crate) fn contains(&self, path: &str) -> bool {
        match &self.0 {
            None => true,
            Some(chroot) => path
                .strip_prefix(&**chroot)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }

    /// The client's path of a server's.
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

    /// pitfall 40.
    #[test]
    fn only_whole_components_are_taken_off() {
        let chroot = Chroot::new(Some("/zoo"));
        assert_eq!(chroot.strip("/zookeeper/config"), "/zookeeper/config");
        assert_eq!(Chroot::default().strip("/zoo"), "/zoo");
    }
}
