//! Every knob of the server.

use std::time::Duration;

use super::version::Version;

/// How a server is to be. [`Config::default`] is one that tests like: short ticks, long sessions allowed, TTL
/// nodes on; the rest as a real server's.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which ZooKeeper to imitate. Default 3.9.
    pub version: Version,
    /// `tickTime`: sessions expire in steps of it. Default 500 ms.
    pub tick_time: Duration,
    /// `minSessionTimeout`: a shorter one asked for becomes this. Default 2 ticks.
    pub min_session_timeout: Option<Duration>,
    /// `maxSessionTimeout`: a longer one asked for becomes this. Default 60 s.
    pub max_session_timeout: Duration,
    /// `jute.maxbuffer`: a longer frame from a client ends its connection. In bytes, default 1,048,575.
    pub max_buffer: usize,
    /// `extendedTypesEnabled`: whether there are TTL nodes. Default true.
    pub extended_types_enabled: bool,
    /// `zookeeper.DigestAuthenticationProvider.superDigest`: who may do everything.
    pub super_digest: Option<String>,
    /// Who may prove to be whom by SASL DIGEST-MD5, and their passwords. Empty: no SASL.
    #[cfg(feature = "sasl")]
    pub sasl_users: std::collections::BTreeMap<String, String>,
    /// `sessionRequireClientSASLAuth`: a client that has not proved who it is by SASL is refused its first
    /// request, a ping included, and closed. 3.4 does not know it.
    #[cfg(feature = "sasl")]
    pub sasl_required: bool,
    /// `znode.container.checkIntervalMs`: how often empty containers and old TTL nodes are looked for.
    /// Default 60 s, as there.
    pub container_check_interval: Duration,
    /// Serves reads only, as a member of an ensemble without a quorum does. Default false.
    pub read_only: bool,
    /// `readonlymode.enabled`: whether members without a quorum serve reads. Default true.
    pub read_only_mode_enabled: bool,
    /// `localSessionsEnabled`: whether a read-only server of 3.7 or later grants sessions. Default true.
    pub local_sessions_enabled: bool,
    /// How many servers the ensemble has. 1 is a stand-alone server.
    pub servers: usize,
    /// What is not given from outside follows from it: session ids, and the choices of faults.
    pub seed: u64,
    /// The wall clock at the instant zero, in milliseconds since 1970. `None`: a fixed instant for a
    /// machine, and the time of its start for a server that listens.
    pub epoch_ms: Option<i64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: Version::default(),
            tick_time: Duration::from_millis(500),
            min_session_timeout: None,
            max_session_timeout: Duration::from_secs(60),
            max_buffer: docent_protocol::frame::DEFAULT_LIMIT,
            extended_types_enabled: true,
            super_digest: None,
            #[cfg(feature = "sasl")]
            sasl_users: std::collections::BTreeMap::new(),
            #[cfg(feature = "sasl")]
            sasl_required: false,
            container_check_interval: Duration::from_secs(60),
            read_only: false,
            read_only_mode_enabled: true,
            local_sessions_enabled: true,
            servers: 1,
            seed: 0,
            epoch_ms: None,
        }
    }
}

impl Config {
    pub(crate) fn epoch(&self) -> i64 {
        self.epoch_ms.unwrap_or(1_700_000_000_000)
    }

    /// Whether `sasl` is a scheme of ACLs: only when there is somebody who could prove it.
    #[cfg_attr(
        not(feature = "sasl"),
        expect(clippy::unused_self, reason = "has it with the feature")
    )]
    pub(crate) fn has_sasl(&self) -> bool {
        #[cfg(feature = "sasl")]
        return !self.sasl_users.is_empty();
        #[cfg(not(feature = "sasl"))]
        false
    }

    /// The timeout a client gets for the one it asks for, both in milliseconds.
    pub(crate) fn negotiate(&self, asked_ms: i32) -> u64 {
        let min = self.min_session_timeout.unwrap_or(self.tick_time * 2);
        let asked = u64::try_from(asked_ms).unwrap_or(0);
        asked.min(millis(self.max_session_timeout)).max(millis(min)).min(i32::MAX as u64)
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
