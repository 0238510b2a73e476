//! The ZooKeeper version that the server imitates, and its effects on the wire.

use docent_protocol::OpCode;

/// A ZooKeeper version that the server imitates.
///
/// The behaviour was measured on 3.4.14, 3.6.3, Debian's 3.8.0 (3.8.0-11+deb12u2, which has the security fixes of
/// 3.8.4) and 3.9.5. 3.5 was not measured: it is 3.6 without the operations and changes that came with 3.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Version {
    /// ClickHouse Keeper 24.8, as its issues describe it: the operations of ZooKeeper 3.4 without setWatches and
    /// SASL, and multiRead. It closes the connection after an unknown operation, without a reply (ClickHouse#48141),
    /// and resumes no session: a client that asks for its session gets a new one (ClickHouse#116690).
    Keeper24,
    /// ClickHouse Keeper 26.1, as its issues describe it: 26.3, except that the reply to addWatch has no body
    /// (ClickHouse#98499).
    Keeper26_1,
    /// ClickHouse Keeper 26.3, as its issues describe it: 24.8 with create2 and the watches of ZooKeeper 3.6. The
    /// events of a recursive watch have the path of the watch (ClickHouse#115475).
    Keeper26,
    /// ClickHouse Keeper 26.6, as its issues describe it: 26.3 with containers (ClickHouse#108908). There, nodes
    /// with a time to live are an option; this server does not have it.
    Keeper26_6,
    /// 3.4.14: no create2, containers, TTLs or persistent watches.
    V3_4,
    /// 3.5.10: no persistent watches, multiRead, getEphemerals or getAllChildrenNumber.
    V3_5,
    /// 3.6.3: no whoAmI; events are not filtered by ACL.
    V3_6,
    /// 3.8.0 as Debian ships it.
    V3_8,
    /// 3.9.5: events carry a zxid, watch modes coexist, exists requires READ.
    #[default]
    V3_9,
    /// 3.10: 3.9.5 with the TLS addresses in the configuration (ZOOKEEPER-4276).
    V3_10,
}

impl Version {
    /// The versions of ZooKeeper, oldest first.
    pub const ALL: [Self; 6] =
        [Self::V3_4, Self::V3_5, Self::V3_6, Self::V3_8, Self::V3_9, Self::V3_10];

    /// The release that is imitated.
    #[must_use]
    pub const fn number(self) -> &'static str {
        match self {
            Self::Keeper24 => "keeper-24.8",
            Self::Keeper26_1 => "keeper-26.1",
            Self::Keeper26 => "keeper-26.3",
            Self::Keeper26_6 => "keeper-26.6",
            Self::V3_4 => "3.4.14",
            Self::V3_5 => "3.5.10",
            Self::V3_6 => "3.6.3",
            Self::V3_8 => "3.8.0",
            Self::V3_9 => "3.9.5",
            Self::V3_10 => "3.10.0",
        }
    }

    /// Parses a version number; only its first two parts matter (`3.8`, `3.8.0`, `keeper-24.8`).
    #[must_use]
    pub fn from_number(number: &str) -> Option<Self> {
        let mut parts = number.split('.');
        match (parts.next()?, parts.next()?) {
            ("keeper-24", _) => Some(Self::Keeper24),
            ("keeper-26", "1") => Some(Self::Keeper26_1),
            ("keeper-26", "6") => Some(Self::Keeper26_6),
            ("keeper-26", _) => Some(Self::Keeper26),
            ("3", "4") => Some(Self::V3_4),
            ("3", "5") => Some(Self::V3_5),
            ("3", "6") => Some(Self::V3_6),
            ("3", "8") => Some(Self::V3_8),
            ("3", "9") => Some(Self::V3_9),
            ("3", "10") => Some(Self::V3_10),
            _ => None,
        }
    }

    /// Whether the version knows the scheme `x509`.
    ///
    /// Source: ZOOKEEPER-2125.
    #[cfg(feature = "tls-no-provider")]
    pub(crate) fn knows_x509(self) -> bool {
        self >= Self::V3_5
    }

    /// Whether the version knows the operation; an unknown one ends the connection.
    pub(crate) const fn knows(self, op: OpCode) -> bool {
        match op {
            OpCode::Check => !matches!(self, Self::V3_9 | Self::V3_10),
            OpCode::SetWatches => !matches!(self, Self::Keeper24),
            OpCode::Sasl => !self.is_keeper(),
            OpCode::Create2 | OpCode::CheckWatches | OpCode::RemoveWatches => {
                !matches!(self, Self::Keeper24 | Self::V3_4)
            }
            OpCode::CreateContainer => self.has_containers(),
            OpCode::Reconfig | OpCode::DeleteContainer | OpCode::CreateTtl => {
                !self.is_keeper() && !matches!(self, Self::V3_4)
            }
            OpCode::MultiRead => !matches!(self, Self::V3_4 | Self::V3_5),
            OpCode::SetWatches2 | OpCode::AddWatch => {
                !matches!(self, Self::Keeper24 | Self::V3_4 | Self::V3_5)
            }
            OpCode::GetEphemerals | OpCode::GetAllChildrenNumber => {
                matches!(self, Self::V3_6 | Self::V3_8 | Self::V3_9 | Self::V3_10)
            }
            OpCode::WhoAmI => matches!(self, Self::V3_8 | Self::V3_9 | Self::V3_10),
            OpCode::Unknown(_) => false,
            op if op.is_of_keeper() => false,
            _ => true,
        }
    }

    /// Whether this is ClickHouse Keeper.
    pub(crate) const fn is_keeper(self) -> bool {
        matches!(self, Self::Keeper24 | Self::Keeper26_1 | Self::Keeper26 | Self::Keeper26_6)
    }

    /// Whether the events of a recursive watch have the path of the watch (ClickHouse#115475).
    pub(crate) const fn events_name_the_watch(self) -> bool {
        matches!(self, Self::Keeper26_1 | Self::Keeper26 | Self::Keeper26_6)
    }

    /// Whether the reply to addWatch repeats the error of its header (ClickHouse#98499).
    pub(crate) const fn add_watch_reply_has_body(self) -> bool {
        !matches!(self, Self::Keeper26_1)
    }

    /// Whether an operation at a follower renews its session. A follower of ClickHouse Keeper passes pings on to the
    /// leader as it does writes, but not reads (ClickHouse#111102).
    pub(crate) const fn renews_at_a_follower(self, op: OpCode) -> bool {
        let is_read = matches!(
            op,
            OpCode::Exists
                | OpCode::GetData
                | OpCode::GetAcl
                | OpCode::GetChildren
                | OpCode::GetChildren2
                | OpCode::MultiRead
        );
        !(is_read && self.is_keeper())
    }

    /// Whether events carry the zxid of their change instead of -1.
    pub(crate) const fn events_have_zxid(self) -> bool {
        matches!(self, Self::V3_9 | Self::V3_10)
    }

    /// Whether an event is dropped if its watcher lacks READ on the node (CVE-2024-23944).
    pub(crate) const fn filters_events(self) -> bool {
        matches!(self, Self::V3_8 | Self::V3_9 | Self::V3_10)
    }

    /// Whether one-shot and persistent watches on one path are kept apart (ZOOKEEPER-4466).
    pub(crate) const fn keeps_watch_modes(self) -> bool {
        matches!(
            self,
            Self::V3_9 | Self::V3_10 | Self::Keeper26_1 | Self::Keeper26 | Self::Keeper26_6
        )
    }

    /// Whether exists requires READ (ZOOKEEPER-2590).
    pub(crate) const fn exists_needs_read(self) -> bool {
        matches!(self, Self::V3_9 | Self::V3_10)
    }

    /// Whether the result of a create2 in a multi has a Stat (ZOOKEEPER-4026).
    pub(crate) const fn multi_keeps_create2(self) -> bool {
        matches!(self, Self::V3_9 | Self::V3_10)
    }

    /// Whether the sequence counter wraps from 2147483647 to negative numbers; in later versions it sticks
    /// (ZOOKEEPER-3249).
    pub(crate) const fn counter_wraps(self) -> bool {
        matches!(self, Self::V3_4 | Self::V3_5)
    }

    /// Whether a node can be a container.
    pub(crate) const fn has_containers(self) -> bool {
        matches!(self, Self::Keeper26_6) || !self.is_keeper() && !matches!(self, Self::V3_4)
    }

    /// Whether a write that cannot be decoded uses up a zxid.
    pub(crate) const fn bad_write_uses_zxid(self) -> bool {
        !matches!(self, Self::V3_9 | Self::V3_10)
    }

    /// Whether sessions can be local (ZOOKEEPER-1147).
    pub(crate) const fn has_local_sessions(self) -> bool {
        !matches!(self, Self::V3_4) && !self.is_keeper()
    }

    /// Whether read-only servers grant only local sessions (ZOOKEEPER-3864).
    pub(crate) const fn read_only_needs_local_sessions(self) -> bool {
        matches!(self, Self::V3_8 | Self::V3_9 | Self::V3_10)
    }

    /// Whether changes over the hard limit of a quota can be refused (ZOOKEEPER-3301).
    pub(crate) const fn enforces_quotas(self) -> bool {
        matches!(self, Self::V3_8 | Self::V3_9 | Self::V3_10)
    }

    /// Whether `/zookeeper/config` exists.
    pub(crate) const fn has_config_node(self) -> bool {
        !self.is_keeper() && !matches!(self, Self::V3_4)
    }

    /// Whether the configuration has the TLS addresses (ZOOKEEPER-4276).
    pub(crate) const fn shows_secure_addresses(self) -> bool {
        matches!(self, Self::V3_10)
    }

    /// Whether the version allows a character in node names that others reject.
    pub(crate) const fn allows_in_names(self, character: char) -> bool {
        matches!((self, character), (Self::V3_4, '\u{1F}' | '\u{7F}' | '\u{F8FF}'))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.number())
    }
}
