//! The ZooKeeper version that the server imitates, and its effects on the wire.

use docent_protocol::OpCode;

/// A ZooKeeper version that the server imitates.
///
/// The behaviour was measured on 3.4.14, 3.6.3, Debian's 3.8.0 (3.8.0-11+deb12u2, which has the security fixes of
/// 3.8.4) and 3.9.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Version {
    /// 3.4.14: no create2, containers, TTLs or persistent watches.
    V3_4,
    /// 3.6.3: no whoAmI; events are not filtered by ACL.
    V3_6,
    /// 3.8.0 as Debian ships it.
    V3_8,
    /// 3.9.5: events carry a zxid, watch modes coexist, exists requires READ.
    #[default]
    V3_9,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 4] = [Self::V3_4, Self::V3_6, Self::V3_8, Self::V3_9];

    /// The release that the behaviour was measured on.
    #[must_use]
    pub const fn number(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4.14",
            Self::V3_6 => "3.6.3",
            Self::V3_8 => "3.8.0",
            Self::V3_9 => "3.9.5",
        }
    }

    /// Parses a version number; only its first two parts matter (`3.8`, `3.8.0`).
    #[must_use]
    pub fn from_number(number: &str) -> Option<Self> {
        let mut parts = number.split('.');
        match (parts.next()?, parts.next()?) {
            ("3", "4") => Some(Self::V3_4),
            ("3", "6") => Some(Self::V3_6),
            ("3", "8") => Some(Self::V3_8),
            ("3", "9") => Some(Self::V3_9),
            _ => None,
        }
    }

    /// Whether the version knows the operation; an unknown one ends the connection.
    pub(crate) const fn knows(self, op: OpCode) -> bool {
        match op {
            OpCode::Check => !matches!(self, Self::V3_9),
            OpCode::Create2
            | OpCode::Reconfig
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::CreateContainer
            | OpCode::DeleteContainer
            | OpCode::CreateTtl
            | OpCode::MultiRead
            | OpCode::GetEphemerals
            | OpCode::GetAllChildrenNumber
            | OpCode::SetWatches2
            | OpCode::AddWatch => !matches!(self, Self::V3_4),
            OpCode::WhoAmI => matches!(self, Self::V3_8 | Self::V3_9),
            OpCode::Unknown(_) => false,
            _ => true,
        }
    }

    /// Whether events carry the zxid of their change instead of -1.
    pub(crate) const fn events_have_zxid(self) -> bool {
        matches!(self, Self::V3_9)
    }

    /// Whether an event is dropped if its watcher lacks READ on the node (CVE-2024-23944).
    pub(crate) const fn filters_events(self) -> bool {
        matches!(self, Self::V3_8 | Self::V3_9)
    }

    /// Whether one-shot and persistent watches on one path are kept apart (ZOOKEEPER-4466).
    pub(crate) const fn keeps_watch_modes(self) -> bool {
        matches!(self, Self::V3_9)
    }

    /// Whether exists requires READ (ZOOKEEPER-2590).
    pub(crate) const fn exists_needs_read(self) -> bool {
        matches!(self, Self::V3_9)
    }

    /// Whether the result of a create2 in a multi has a Stat (ZOOKEEPER-4026).
    pub(crate) const fn multi_keeps_create2(self) -> bool {
        matches!(self, Self::V3_9)
    }

    /// Whether the sequence counter wraps from 2147483647 to negative numbers; in later versions it sticks.
    pub(crate) const fn counter_wraps(self) -> bool {
        matches!(self, Self::V3_4)
    }

    /// Whether a write that cannot be decoded uses up a zxid.
    pub(crate) const fn bad_write_uses_zxid(self) -> bool {
        !matches!(self, Self::V3_9)
    }

    /// Whether read-only servers grant only local sessions (ZOOKEEPER-3864).
    pub(crate) const fn read_only_needs_local_sessions(self) -> bool {
        matches!(self, Self::V3_8 | Self::V3_9)
    }

    /// Whether changes over the hard limit of a quota can be refused (ZOOKEEPER-3301).
    pub(crate) const fn enforces_quotas(self) -> bool {
        matches!(self, Self::V3_8 | Self::V3_9)
    }

    /// Whether `/zookeeper/config` exists.
    pub(crate) const fn has_config_node(self) -> bool {
        !matches!(self, Self::V3_4)
    }

    /// Whether the version allows a character in node names that others reject.
    pub(crate) const fn allows_in_names(self, character: char) -> bool {
        matches!((self, character), (Self::V3_4, '\u{7F}' | '\u{F8FF}'))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.number())
    }
}
