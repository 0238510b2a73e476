//! The settings of a client that the machine does not know: its connections, clock and runtime.

use std::sync::Arc;

use crate::{
    Config,
    driver::{Clock, Runtime, Transport},
};

/// # The client
///
/// With the feature `tokio`.
impl Config {
    /// Sets how connections are made: by TLS, for example. Default: as the [runtime](Runtime::transport) says, which is
    /// [`Tcp`](crate::runtime::Tcp) for tokio's.
    #[must_use]
    pub fn with_transport(mut self, transport: impl Transport) -> Self {
        self.driver.transport = Some(Arc::new(transport));
        self
    }

    /// Sets the clock. Default: that of the [runtime](Runtime::clock), which is [`Clock::system`] for tokio's.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.driver.clock = Some(clock);
        self
    }

    /// Sets the runtime of the client's tasks: the handle of a tokio runtime with IO and time enabled, so that a client
    /// can be started outside it, such as on a thread of a synchronous program; or any other [`Runtime`]. Default: the
    /// tokio runtime in which the client is started.
    ///
    /// ```
    /// # extern crate docent_session as docent;
    /// use docent::{Client, Config};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    /// # let server = runtime.block_on(docent_testing::TestingServer::start())?;
    /// # let connect_string = server.connect_string();
    /// let client = Config::new(&connect_string)?.with_runtime(runtime.handle().clone()).start()?;
    /// let stat = runtime.block_on(client.exists("/"))?;
    /// assert!(stat.is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_runtime(mut self, runtime: impl Runtime) -> Self {
        self.driver.runtime = Some(Arc::new(runtime));
        self
    }

    /// The runtime of the client's tasks, unless it is the one in which the client is started.
    #[must_use]
    pub fn runtime(&self) -> Option<&dyn Runtime> {
        self.driver.runtime.as_deref()
    }

    /// Sets the number of events that a watcher buffers, at least 1. When the buffer is full, its events are dropped and
    /// replaced by one [resync](crate::WatchedEvent::is_resync). Default 1,000.
    #[must_use]
    pub const fn with_max_watch_events(mut self, events: usize) -> Self {
        self.driver.max_watch_events = if events == 0 { 1 } else { events };
        self
    }

    /// Sets the seed of shuffling and jitter. Default `None`: a seed from the operating system.
    #[must_use]
    pub fn with_seed(mut self, seed: impl Into<Option<u64>>) -> Self {
        self.driver.seed = seed.into();
        self
    }
}
