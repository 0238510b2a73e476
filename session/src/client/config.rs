//! The settings of a client that the machine does not know: its connections, clock and runtime.

use std::{sync::Arc, time::Duration};

use crate::{
    Config,
    driver::{Candidate, Clock, Preference, Runtime, Transport},
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

    /// Sets a function that computes the cost of each server, such as a number for its zone: the lower, the better. The
    /// client tries the servers of the lowest cost first, in random order among equals, and falls back to the others. After
    /// a lost connection, the server that was lost comes last. Sets [`failback`](Self::with_failback) to 60 s, unless
    /// `with_failback` was called: within that time the client returns to the best server.
    ///
    /// The function is called for all servers when the client starts, when its server list changes, and when it has opened a
    /// connection, on the thread that does so. It must not block. Costs that depend on
    /// [`connect_time`](Candidate::connect_time) need steps that are larger than its variation, or the client moves back and
    /// forth. It cannot see whether a server is an observer, unless the program knows that by its name.
    ///
    /// A function that panics is named in a log message at ERROR, once, and not called again. The client goes on with the
    /// costs that it had; servers that are added later rank behind those.
    ///
    /// Sends nothing by itself.
    ///
    /// ```
    /// # extern crate docent_session as docent;
    /// use docent::Config;
    ///
    /// let zone = "-b.";
    /// let config = Config::new("zk-a.example:2181,zk-b.example:2181,zk-c.example:2181")?
    ///     .with_server_preference(move |server| u64::from(!server.host().name.contains(zone)));
    /// # drop(config);
    /// # Ok::<(), docent::Error>(())
    /// ```
    #[must_use]
    pub fn with_server_preference(
        mut self,
        cost: impl Fn(&Candidate<'_>) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.driver.preference = Some(Preference::new(cost));
        if !self.driver.failback_is_set {
            self.session.failback = Some(Duration::from_secs(60));
        }
        self
    }

    /// The name of the type of the function that computes the cost of each server, if there is one.
    #[must_use]
    pub fn server_preference(&self) -> Option<&'static str> {
        self.driver.preference.as_ref().map(Preference::name)
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
