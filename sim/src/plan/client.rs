//! The settings of a client, as data.

use std::time::Duration;

use docent::{Config, config::WhenFull};
use serde::{Deserialize, Serialize};

use crate::world::{World, time::Pid};

/// The settings of a client that differ between processes.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientPlan {
    /// The session timeout asked for.
    pub session_timeout_ms: u64,
    /// The request timeout; `None`: none.
    pub request_timeout_ms: Option<u64>,
    /// The limit of pending requests; `None`: the default.
    pub max_requests: Option<usize>,
    /// Whether it accepts read-only servers.
    pub read_only: bool,
    /// Whether requests above a limit wait.
    pub waits_when_full: bool,
    /// The largest request; `None`: the default.
    pub max_request_bytes: Option<usize>,
    /// The limit of the bytes of pending requests; `None`: the default.
    pub max_pending_bytes: Option<usize>,
    /// The events kept for a watcher; `None`: the default.
    pub max_watch_events: Option<usize>,
    /// The connection timeout; `None`: the default.
    pub connection_timeout_ms: Option<u64>,
    /// Whether it is dropped in the end, and not closed.
    pub is_dropped: bool,
    /// Whether it asks servers for their roles.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub direct_servers: bool,
    /// The interval at which it looks for a better server to return to; `None`: it does not return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failback_ms: Option<u64>,
    /// The member that it prefers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefers: Option<usize>,
}

impl ClientPlan {
    /// The configuration of a client of a process.
    pub(crate) fn config(&self, world: &World, pid: Pid) -> Config {
        let servers: Vec<_> =
            (0..world.core().servers.count).map(|at| format!("s{at}:2181")).collect();
        let config = Config::new(&servers.join(",")).expect("a valid connect string");
        let mut config = config
            .with_runtime(world.runtime(pid))
            .with_session_timeout(Duration::from_millis(self.session_timeout_ms))
            .with_request_timeout(self.request_timeout_ms.map(Duration::from_millis))
            .with_read_only(self.read_only)
            .with_direct_servers(self.direct_servers);
        macro_rules! set {
            ($($value:expr, $with:ident;)*) => {
                $(if let Some(value) = $value {
                    config = config.$with(value);
                })*
            };
        }
        set! {
            self.max_requests, with_max_requests;
            self.max_pending_bytes, with_max_pending_bytes;
            self.max_request_bytes, with_max_request_bytes;
            self.max_watch_events, with_max_watch_events;
            self.connection_timeout_ms.map(Duration::from_millis), with_connection_timeout;
        }
        if let Some(member) = self.prefers {
            let name = format!("s{member}");
            config = config.with_server_preference(move |of| u64::from(of.host().name != name));
        }
        config = config.with_failback(self.failback_ms.map(Duration::from_millis));
        if self.waits_when_full {
            config = config.with_when_full(WhenFull::Wait);
        }
        config
    }
}
