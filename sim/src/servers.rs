//! The servers: the embedded ensemble, driven by the world's time.

use std::time::Duration;

use docent_testing::server::{Config, Ensemble};

use crate::{
    truth::Truth,
    world::{Core, Nanos},
};

/// The ensemble, and when it wants the time next.
pub struct Servers {
    pub(crate) ensemble: Ensemble,
    /// The number of members.
    pub(crate) count: usize,
    /// The changes that were applied so far.
    pub(crate) truth: Truth,
}

impl Servers {
    /// Running servers without data.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let count = config.servers.max(1);
        let mut ensemble = Ensemble::new(config);
        ensemble.start_recording();
        Self { ensemble, count, truth: Truth::default() }
    }

    /// The next instant at which time must be passed to the servers.
    pub(crate) fn alarm(&self) -> Option<Nanos> {
        let due = self.ensemble.poll_timeout()?;
        Some(Nanos::try_from(due.as_nanos()).unwrap_or(Nanos::MAX))
    }
}

impl Core {
    pub(crate) fn pass_time(&mut self, now: Duration) {
        self.servers.ensemble.handle_timeout(now);
        self.flush(now);
    }

    /// Calls the servers, and sends what they reply.
    pub(crate) fn with_servers<R>(
        &mut self,
        now: Duration,
        call: impl FnOnce(&mut Ensemble, Duration) -> R,
    ) -> R {
        let result = call(&mut self.servers.ensemble, now);
        self.flush(now);
        result
    }
}
