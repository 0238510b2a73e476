//! The status of a server: its reply to the four-letter word `srvr`.

/// The part of a reply to `srvr` that a client uses.
///
/// Source: `ServerStats.toString`; ClickHouse Keeper's `ServerStatCommand`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerStatus {
    /// Whether it leads the ensemble, or stands alone.
    pub(crate) leads: bool,
    /// Whether it is a ClickHouse Keeper, which resumes no session.
    pub(crate) is_keeper: bool,
    /// The number of its connections, that of the question included.
    pub(crate) connections: u32,
    /// The zxid of the last change that it has applied, if it says so.
    pub(crate) zxid: Option<i64>,
}

impl ServerStatus {
    /// Reads a reply to `srvr`. `None` unless it comes from a server that serves reads and writes.
    ///
    /// ```
    /// # extern crate docent_session as docent;
    /// use docent::machine::ServerStatus;
    ///
    /// let reply = b"Zookeeper version: 3.9.5-0\nConnections: 12\nMode: follower\n";
    /// assert!(ServerStatus::parse(reply).is_some());
    /// assert!(ServerStatus::parse(b"srvr is not executed because it is not in the whitelist.").is_none());
    /// ```
    #[must_use]
    pub fn parse(reply: &[u8]) -> Option<Self> {
        let reply = std::str::from_utf8(reply).ok()?;
        let field = |name: &str| {
            let mut lines = reply.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let is_keeper = field("Zookeeper version").is_none();
        if is_keeper {
            field("ClickHouse Keeper version")?;
        }
        let mode = field("Mode").filter(|mode| *mode != "read-only")?;
        Some(Self {
            leads: matches!(mode, "leader" | "standalone"),
            is_keeper,
            connections: field("Connections")?.parse().ok()?,
            zxid: field("Zxid")
                .and_then(|zxid| i64::from_str_radix(zxid.strip_prefix("0x")?, 16).ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_that_of_a_server_that_serves() {
        let status = |version: &str, mode: &str| {
            let reply = format!(
                "{version}\nLatency min/avg/max: 0/0.5/17\nReceived: 4\nSent: 3\nConnections: 2\n\
                 Outstanding: 0\nZxid: 0x100000000\nMode: {mode}\nNode count: 5\n"
            );
            ServerStatus::parse(reply.as_bytes())
        };
        let (zookeeper, keeper) =
            ("Zookeeper version: 3.4.14-4c25d480", "ClickHouse Keeper version: v24.8.1.1-lts");
        for (version, mode, expected) in [
            (zookeeper, "leader", Some((true, false))),
            (zookeeper, "standalone", Some((true, false))),
            (zookeeper, "follower", Some((false, false))),
            (zookeeper, "observer", Some((false, false))),
            (zookeeper, "read-only", None),
            (keeper, "leader", Some((true, true))),
            ("Another version: 1", "leader", None),
        ] {
            let status = status(version, mode);
            assert_eq!(status.map(|s| (s.leads, s.is_keeper)), expected, "{version} {mode}");
            assert!(status.is_none_or(|status| status.connections == 2));
            assert!(status.is_none_or(|status| status.zxid == Some(0x1_0000_0000)));
        }
        for reply in [
            &b""[..],
            b"\xff",
            b"This ZooKeeper instance is not currently serving requests\n",
            b"Zookeeper version: 3.9\nConnections: -1\nMode: leader\n",
            b"Zookeeper version: 3.9\nMode: leader\n",
        ] {
            assert_eq!(ServerStatus::parse(reply), None, "{reply:?}");
        }
    }
}
