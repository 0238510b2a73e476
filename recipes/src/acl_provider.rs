//! Which ACL a node gets.

use std::fmt;

use docent_protocol::{Acl, acl};

/// Decides the ACL of each node that a recipe makes, its parents included.
///
/// ```
/// use docent_protocol::{Acl, acl};
/// use docent_recipes::AclProvider;
///
/// /// Lock nodes for everybody, the parent for those who made it.
/// #[derive(Debug)]
/// struct Mine;
///
/// impl AclProvider for Mine {
///     fn acl_for_path(&self, path: &str) -> Option<&[Acl<'_>]> {
///         (path == "/locks").then_some(acl::CREATOR_ALL_ACL)
///     }
/// }
/// ```
///
/// Source: Curator's `ACLProvider`.
pub trait AclProvider: fmt::Debug + Send + Sync + 'static {
    /// What a path gets for which [`acl_for_path`](Self::acl_for_path) has no answer.
    ///
    /// Source: `ACLProvider.getDefaultAcl`.
    fn default_acl(&self) -> &[Acl<'_>] {
        acl::OPEN_ACL_UNSAFE
    }

    /// What a node at this path gets. The path of a lock node is asked for as it is requested: with its GUID,
    /// without the digits of the server.
    ///
    /// Source: `ACLProvider.getAclForPath`.
    fn acl_for_path(&self, path: &str) -> Option<&[Acl<'_>]>;
}

/// Everybody may do everything.
///
/// Source: Curator's `DefaultACLProvider`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultAclProvider;

impl AclProvider for DefaultAclProvider {
    fn acl_for_path(&self, _path: &str) -> Option<&[Acl<'_>]> {
        None
    }
}

/// The provider's answer for a path.
pub(crate) fn acl_of<'a>(provider: &'a dyn AclProvider, path: &str) -> &'a [Acl<'a>] {
    provider.acl_for_path(path).unwrap_or_else(|| provider.default_acl())
}
