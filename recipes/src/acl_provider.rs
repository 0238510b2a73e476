//! Chooses the ACL of each created node.

use std::fmt;

use docent_protocol::{Acl, acl};

/// Chooses the ACL of each node that a recipe creates, its parents included.
///
/// ```
/// use docent::{Acl, acl::{self, AclProvider}};
///
/// /// Everyone may use the lock nodes; only their creator may use the parent.
/// #[derive(Debug)]
/// struct CreatorOwnsParent;
///
/// impl AclProvider for CreatorOwnsParent {
///     fn acl_for_path(&self, path: &str) -> Option<&[Acl<'_>]> {
///         (path == "/locks").then_some(acl::CREATOR_ALL_ACL)
///     }
/// }
/// ```
///
/// Source: Curator's `ACLProvider`.
pub trait AclProvider: fmt::Debug + Send + Sync + 'static {
    /// The ACL of a path for which [`acl_for_path`](Self::acl_for_path) returns `None`.
    ///
    /// Source: `ACLProvider.getDefaultAcl`.
    fn default_acl(&self) -> &[Acl<'_>] {
        acl::OPEN_ACL_UNSAFE
    }

    /// The ACL of a node at this path. The path of a lock node is the requested one: with its GUID, without the
    /// digits that the server appends.
    ///
    /// Source: `ACLProvider.getAclForPath`.
    fn acl_for_path(&self, path: &str) -> Option<&[Acl<'_>]>;
}

/// Gives everyone every permission.
///
/// Source: Curator's `DefaultACLProvider`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultAclProvider;

impl AclProvider for DefaultAclProvider {
    fn acl_for_path(&self, _path: &str) -> Option<&[Acl<'_>]> {
        None
    }
}

/// The ACLs of the nodes that one call creates.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Acls<'a> {
    /// Chosen for each path.
    Provider(&'a dyn AclProvider),
    /// The same for all.
    Same(&'a [Acl<'a>]),
}

impl<'a> Acls<'a> {
    /// The ACL of a path.
    pub(crate) fn of(self, path: &str) -> &'a [Acl<'a>] {
        match self {
            Self::Provider(provider) => {
                provider.acl_for_path(path).unwrap_or_else(|| provider.default_acl())
            }
            Self::Same(acl) => acl,
        }
    }
}
