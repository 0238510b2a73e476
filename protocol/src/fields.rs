//! The fields of a record, in order, with their names and values: lines and JSON are both written from them.

use alloc::vec::Vec;

use crate::{
    AddWatchMode, ErrorCode, EventType, Id, KeeperState, List, OpCode, Perms, Stat, Text,
    WatcherType, acl::AclList, client_info::ClientInfo,
};

/// A field: its name in zookeeper.jute, and its value.
pub type Field<'a> = (&'static str, Value<'a>);

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is what its name says")]
pub enum Value<'a> {
    Bool(bool),
    Int(i64),
    /// A number with ZooKeeper's name for it; `None` for a number without one.
    Named(i32, Option<&'static str>),
    Text(Text<'a>),
    Data(Option<&'a [u8]>),
    /// A password, credentials or a token.
    Secret(Secret<'a>),
    Texts(List<'a, Text<'a>>),
    /// May hold a secret.
    Id(Id<'a>),
    Acl(AclList<'a>),
    Stat(Stat),
    ClientInfos(List<'a, ClientInfo<'a>>),
}

/// Secret bytes. `Debug` shows only their size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret<'a>(pub Option<&'a [u8]>);

/// A record that can list its fields.
pub(crate) trait Record {
    fn fields(&self) -> Vec<Field<'_>>;
}

macro_rules! values {
    ($($ty:ty => |$value:ident| $to:expr;)+) => {
        $(impl<'a> From<$ty> for Value<'a> {
            fn from($value: $ty) -> Self {
                $to
            }
        })+
    };
}

values! {
    bool => |value| Self::Bool(value);
    i32 => |value| Self::Int(value.into());
    i64 => |value| Self::Int(value);
    Perms => |value| Self::Int(value.number().into());
    OpCode => |value| Self::Named(value.number(), value.name());
    ErrorCode => |value| Self::Named(value.number(), value.name());
    EventType => |value| Self::Named(value.number(), value.name());
    KeeperState => |value| Self::Named(value.number(), value.name());
    AddWatchMode => |value| Self::Named(value.number(), value.name());
    WatcherType => |value| Self::Named(value.number(), value.name());
    Text<'a> => |value| Self::Text(value);
    Option<&'a [u8]> => |value| Self::Data(value);
    Secret<'a> => |value| Self::Secret(value);
    List<'a, Text<'a>> => |value| Self::Texts(value);
    Id<'a> => |value| Self::Id(value);
    AclList<'a> => |value| Self::Acl(value);
    Stat => |value| Self::Stat(value);
    List<'a, ClientInfo<'a>> => |value| Self::ClientInfos(value);
}
