//! The configuration of a server.

use std::time::Duration;

use super::{acl::Schemes, version::Version};

/// The configuration of a server. [`Config::default`] suits tests: short ticks, long sessions, and TTL nodes enabled.
/// The other settings have the defaults of a real server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The ZooKeeper version to imitate. Default: 3.9.
    pub version: Version,
    /// `tickTime`: the granularity of session expiry. The members of an ensemble ping each other every half tick.
    /// Default: 500 ms.
    pub tick_time: Duration,
    /// `syncLimit`: the number of ticks after which a leader and a follower that do not hear from each other give each
    /// other up. Default: 5, as in ZooKeeper's sample configuration.
    pub sync_limit: u32,
    /// How long a member that has lost its leader takes to vote for another one. Default: 0, so that members elect a
    /// leader at once.
    pub election_time: Duration,
    /// `minSessionTimeout`: the lower limit of the negotiated session timeout. Default: 2 ticks.
    pub min_session_timeout: Option<Duration>,
    /// `maxSessionTimeout`: the upper limit of the negotiated session timeout. Default: 60 s.
    pub max_session_timeout: Duration,
    /// `jute.maxbuffer`: the maximum size of a client's frame, in bytes; a larger one ends its connection. Default:
    /// 1,048,575.
    pub max_buffer: usize,
    /// `extendedTypesEnabled`: whether TTL nodes are allowed. Default: true.
    pub extended_types_enabled: bool,
    /// `zookeeper.DigestAuthenticationProvider.superDigest`: the digest of the user that passes every ACL check.
    pub super_digest: Option<String>,
    /// `reconfigEnabled`: whether clients may change the members of the ensemble. Default: false.
    pub reconfig_enabled: bool,
    /// `standaloneEnabled`: whether a single server runs without an ensemble. If false, it is an ensemble of one
    /// member, whose members can be changed. Default: true.
    pub standalone_enabled: bool,
    /// `enforceQuota`: whether changes over the hard limit of a quota are refused, by 3.8 and 3.9. Default: false.
    pub enforce_quota: bool,
    /// The users of SASL DIGEST-MD5, with their passwords. Empty: SASL is disabled.
    #[cfg(feature = "sasl")]
    pub sasl_users: std::collections::BTreeMap<String, String>,
    /// `sessionRequireClientSASLAuth`: whether clients must authenticate by SASL. The first request of a client that
    /// has not is refused, even a ping, and its connection is closed. 3.4 does not have this setting.
    #[cfg(feature = "sasl")]
    pub sasl_required: bool,
    /// The certificates for TLS, as on `secureClientPort`; `None`: without TLS. Only sockets use it: the in-memory
    /// connections of [`TestingServer::connect`](super::TestingServer::connect) have no TLS. With roots for client
    /// certificates, each connection has the identity `x509:<subject>`, and `x509` is a valid ACL scheme.
    #[cfg(feature = "tls-no-provider")]
    pub tls: Option<super::Tls>,
    /// `znode.container.checkIntervalMs`: the interval between searches for empty containers and expired TTL nodes.
    /// Default: 60 s, as in ZooKeeper.
    pub container_check_interval: Duration,
    /// Whether the server is read-only, like a member of an ensemble without a quorum. Since 3.7 it serves only
    /// [local sessions](Self::local_sessions_enabled). Default: false.
    pub read_only: bool,
    /// `readonlymode.enabled`: whether members without a quorum serve reads. Default: true.
    pub read_only_mode_enabled: bool,
    /// `localSessionsEnabled`: whether a new session is known only to its server, and ends with a move to another one. Without
    /// it, a read-only server of 3.7 or later grants no session. Default: false.
    pub local_sessions_enabled: bool,
    /// `localSessionsUpgradingEnabled`: whether a local session becomes one that all servers know when it creates an ephemeral
    /// node; it is refused otherwise. Default: false.
    pub local_sessions_upgrading_enabled: bool,
    /// The number of servers in the ensemble. 1: a stand-alone server, unless
    /// [`standalone_enabled`](Self::standalone_enabled) is false.
    pub servers: usize,
    /// The seed of all generated values: session ids, and the choices of faults.
    pub seed: u64,
    /// The wall clock at instant zero, in milliseconds since 1970. `None`: a fixed instant for an
    /// [`Ensemble`](super::Ensemble); a listening server follows the system's wall clock. In a test that pauses
    /// tokio's clock, the server is ahead of the wall clock by as much as tokio's clock is.
    pub epoch_ms: Option<i64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: Version::default(),
            tick_time: Duration::from_millis(500),
            sync_limit: 5,
            election_time: Duration::ZERO,
            min_session_timeout: None,
            max_session_timeout: Duration::from_secs(60),
            max_buffer: docent_protocol::frame::DEFAULT_LIMIT,
            extended_types_enabled: true,
            super_digest: None,
            reconfig_enabled: false,
            standalone_enabled: true,
            enforce_quota: false,
            #[cfg(feature = "sasl")]
            sasl_users: std::collections::BTreeMap::new(),
            #[cfg(feature = "sasl")]
            sasl_required: false,
            #[cfg(feature = "tls-no-provider")]
            tls: None,
            container_check_interval: Duration::from_secs(60),
            read_only: false,
            read_only_mode_enabled: true,
            local_sessions_enabled: false,
            local_sessions_upgrading_enabled: false,
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

    /// The valid ACL schemes: `sasl` only if there are SASL users, `x509` only if clients have certificates.
    pub(crate) fn schemes(&self) -> Schemes {
        Schemes { sasl: self.has_sasl(), x509: self.has_x509() }
    }

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

    #[cfg_attr(
        not(feature = "tls-no-provider"),
        expect(
            clippy::unused_self,
            clippy::missing_const_for_fn,
            reason = "has it with the feature"
        )
    )]
    pub(crate) fn has_tls(&self) -> bool {
        #[cfg(feature = "tls-no-provider")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls-no-provider"))]
        false
    }

    #[cfg_attr(
        not(feature = "tls-no-provider"),
        expect(clippy::unused_self, reason = "has it with the feature")
    )]
    fn has_x509(&self) -> bool {
        #[cfg(feature = "tls-no-provider")]
        return self.version.knows_x509()
            && self.tls.as_ref().is_some_and(super::Tls::requires_client_certificates);
        #[cfg(not(feature = "tls-no-provider"))]
        false
    }

    /// Whether the servers are an ensemble.
    pub(crate) fn is_ensemble(&self) -> bool {
        self.servers > 1 || !self.standalone_enabled
    }

    /// The negotiated session timeout for a requested one, both in milliseconds, of a member that grants no longer one than
    /// `max`.
    pub(crate) fn negotiate(&self, asked_ms: i32, max: Duration) -> u64 {
        let min = self.min_session_timeout.unwrap_or(self.tick_time * 2);
        let asked = u64::try_from(asked_ms).unwrap_or(0);
        asked.min(millis(max)).max(millis(min)).min(i32::MAX as u64)
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
