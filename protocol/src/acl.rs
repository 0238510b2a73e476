//! Who may do what with a node.

use core::{fmt, ops::BitOr};

use bytes::BufMut;

use crate::{
    DecodeError, List, Text,
    jute::{Decode, Encode, Field as _, Reader},
    macros::record,
};

/// What an [`Acl`] allows, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Perms(i32);

impl Perms {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// getData, getChildren.
    pub const READ: Self = Self(1);
    /// setData.
    pub const WRITE: Self = Self(2);
    /// create, of children.
    pub const CREATE: Self = Self(4);
    /// delete, of children.
    pub const DELETE: Self = Self(8);
    /// setACL.
    pub const ADMIN: Self = Self(16);
    /// All five.
    pub const ALL: Self = Self(31);

    /// The bits on the wire. Servers keep any number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// These bits, whatever they are.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// Whether all of `other` are in it.
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

/// As zkCli writes them: `cdrwa`, in that order; the number when there are other bits.
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

/// Somebody: `world:anyone`, `digest:user:hash`, `ip:10.0.0.0/8`, `sasl:name`, `x509:DN`.
///
/// A record, but declared by hand: its serialized form leaves out what stands behind the user's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id<'a> {
    /// How it is proved.
    pub scheme: Text<'a>,
    /// Who, in the scheme's own form.
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
    /// What somebody may do with a node.
    #[derive(Hash)]
    pub struct Acl<'a> {
        /// What.
        pub perms: Perms = "perms",
        /// Who.
        pub id: Id<'a> = "id",
    }
}

impl<'a> Acl<'a> {
    /// `scheme:id` may do `perms`.
    #[must_use]
    pub const fn new(perms: Perms, scheme: &'a str, id: &'a str) -> Self {
        Self { perms, id: Id { scheme: Text::new(scheme), id: Text::new(id) } }
    }
}

/// Everybody may do everything.
///
/// Source: `ZooDefs.Ids.OPEN_ACL_UNSAFE`.
pub const OPEN_ACL_UNSAFE: &[Acl<'static>] = &[Acl::new(Perms::ALL, "world", "anyone")];

/// Everybody may read.
///
/// Source: `ZooDefs.Ids.READ_ACL_UNSAFE`.
pub const READ_ACL_UNSAFE: &[Acl<'static>] = &[Acl::new(Perms::READ, "world", "anyone")];

/// All ids of the creator's connection may do everything.
///
/// Source: `ZooDefs.Ids.CREATOR_ALL_ACL`.
pub const CREATOR_ALL_ACL: &[Acl<'static>] = &[Acl::new(Perms::ALL, "auth", "")];

/// The ACL of a node, on the wire.
pub type AclList<'a> = List<'a, Acl<'a>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_read_as_zkcli_writes_them() {
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
