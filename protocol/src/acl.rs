//! Access control lists.

use core::{fmt, ops::BitOr};

use bytes::BufMut;

use crate::{
    DecodeError, List, Text,
    jute::{Decode, Encode, Field as _, Reader},
    macros::record,
};

pub use crate::digest::{digest_id, is_digest_id};

/// The permissions of an [`Acl`], as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Perms(i32);

impl Perms {
    /// No permission.
    pub const NONE: Self = Self(0);
    /// getData, getChildren.
    pub const READ: Self = Self(1);
    /// setData.
    pub const WRITE: Self = Self(2);
    /// create, for children.
    pub const CREATE: Self = Self(4);
    /// delete, for children.
    pub const DELETE: Self = Self(8);
    /// setACL.
    pub const ADMIN: Self = Self(16);
    /// All five permissions.
    pub const ALL: Self = Self(31);

    /// The number on the wire. Servers store any number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The permissions of a number on the wire. Unknown bits are kept.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// Whether these permissions include all of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl From<i32> for Perms {
    fn from(number: i32) -> Self {
        Self(number)
    }
}

impl BitOr for Perms {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// zkCli's notation: `cdrwa`, in that order; the number if it has unknown bits.
impl fmt::Display for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & !Self::ALL.0 != 0 {
            return write!(f, "{}", self.0);
        }
        for (bit, letter) in [
            (Self::CREATE, "c"),
            (Self::DELETE, "d"),
            (Self::READ, "r"),
            (Self::WRITE, "w"),
            (Self::ADMIN, "a"),
        ] {
            if self.contains(bit) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Perms({self})")
    }
}

/// An identity: `world:anyone`, `digest:user:hash`, `ip:10.0.0.0/8`, `sasl:name`, `x509:DN`.
///
/// This record is not declared by `record!`, because its serialized form redacts the part after the user's
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id<'a> {
    /// The authentication scheme.
    pub scheme: Text<'a>,
    /// The identity, in the scheme's format.
    pub id: Text<'a>,
}

impl Encode for Id<'_> {
    #[inline]
    fn encode(&self, out: &mut impl BufMut) {
        self.scheme.put(out);
        self.id.put(out);
    }
}

impl<'a> Decode<'a> for Id<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { scheme: reader.text("scheme")?, id: reader.text("id")? })
    }
}

record! {
    /// One entry of an access control list: permissions and the id that has them.
    #[derive(Hash)]
    pub struct Acl<'a> {
        /// The permissions granted.
        pub perms: Perms = "perms",
        /// The id that they are granted to.
        pub id: Id<'a> = "id",
    }
}

impl<'a> Acl<'a> {
    /// Grants `perms` to `scheme:id`.
    #[must_use]
    pub const fn new(perms: Perms, scheme: &'a str, id: &'a str) -> Self {
        Self { perms, id: Id { scheme: Text::new(scheme), id: Text::new(id) } }
    }
}

/// Grants everyone all permissions.
///
/// Source: `ZooDefs.Ids.OPEN_ACL_UNSAFE`.
pub const OPEN_ACL_UNSAFE: &[Acl<'static>] = &[Acl::new(Perms::ALL, "world", "anyone")];

/// Grants everyone the permission to read.
///
/// Source: `ZooDefs.Ids.READ_ACL_UNSAFE`.
pub const READ_ACL_UNSAFE: &[Acl<'static>] = &[Acl::new(Perms::READ, "world", "anyone")];

/// Grants all ids of the creator's connection all permissions.
///
/// Source: `ZooDefs.Ids.CREATOR_ALL_ACL`.
pub const CREATOR_ALL_ACL: &[Acl<'static>] = &[Acl::new(Perms::ALL, "auth", "")];

/// The access control list of a node.
pub type AclList<'a> = List<'a, Acl<'a>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_display_in_zkcli_notation() {
        assert_eq!(alloc::format!("{}", Perms::ALL), "cdrwa");
        assert_eq!(alloc::format!("{}", Perms::READ | Perms::ADMIN), "ra");
        assert_eq!(alloc::format!("{}", Perms::from_number(255)), "255");
    }

    #[test]
    fn permissions_are_bits() {
        assert_eq!(Perms::from(31), Perms::ALL);
        assert_eq!((Perms::READ | Perms::ADMIN).number(), 17);
        assert!(Perms::ALL.contains(Perms::WRITE) && !Perms::READ.contains(Perms::WRITE));
        assert_eq!(alloc::format!("{:?} {}", Perms::READ, Perms::NONE), "Perms(r) ");
    }
}
