//! A client that follows the members of its ensemble.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::{oneshot, watch};
use tracing::{debug, error, info, warn};

use super::{
    client::Client,
    ensemble_config::EnsembleConfig,
    events::{Events, Latest, StateEvent},
    response::Node,
    session::WeakClient,
    watcher::{OnDrop, Watcher},
};
use crate::{ConnectionState, Error, ErrorKind, config::Host, driver::timer, planted};

/// The pause after the first read that the server refused for a while; each further one is twice as long, up to
/// [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause after such a read.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Follows the configuration of the ensemble, `/zookeeper/config`, and moves the client to the servers that it names, as
/// [`Client::update_server_list`] does. A client without a tracker keeps the servers of its connect string.
///
/// The configuration is read once for each connection, and after each of its changes: getData (4) with a watch. A
/// configuration counts if its version is higher than that of every one before it, so a server that lags behind changes
/// nothing. A configuration without an address for clients changes nothing either: neither that of a stand-alone server,
/// which is empty, nor that of an ensemble whose servers have their client ports in `zoo.cfg` only. A text that is no
/// configuration is logged at WARN; the next change is another chance. A read that fails is logged at WARN, too. It is
/// repeated, with growing pauses up to a minute, where the cause may pass: an overloaded server, a full queue of the client,
/// the ACL of the node. Otherwise the next connection is another chance.
///
/// The addresses are those that the servers know. Behind a proxy, a tunnel or a translation of addresses a client does not
/// reach them: [`with_hosts`](Self::with_hosts) replaces them.
///
/// The members take the place of the servers of `dns-srv://name`, as [`Client::update_server_list`] says.
///
/// The tracker keeps no session open. It ends when it is dropped, and with the client; the last servers stay. Its watch is
/// then removed, with removeWatches (18). Several trackers of one client disturb each other.
///
/// # Example
///
/// ```
/// # extern crate docent_session as docent;
/// use docent::{Client, EnsembleTracker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = docent_testing::server::Config { servers: 3, ..Default::default() };
/// # let cluster = docent_testing::TestingCluster::start_with(config).await?;
/// # let connect_string = cluster.connect_string();
/// // One server of three is enough to find the others.
/// let one = connect_string.split(',').next().unwrap_or_default();
/// let client = Client::connect(one).await?;
/// let tracker = EnsembleTracker::new(&client);
/// let mut config = tracker.config();
/// let found = config.wait_for(Option::is_some).await.flatten();
/// println!("{:?}", found.map(|config| config.client_hosts()));
/// assert_eq!(client.servers().len(), 3);
/// # drop(config);
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: Curator's `EnsembleTracker`, which is on by default there.
pub struct EnsembleTracker {
    config: Latest<Option<Arc<EnsembleConfig>>>,
    /// Ends the task when it is dropped.
    _end: oneshot::Sender<Infallible>,
}

/// The servers to use with a configuration.
type HostsOf = Box<dyn Fn(&EnsembleConfig) -> Vec<Host> + Send + Sync>;

impl EnsembleTracker {
    /// Starts to follow the configuration. Its addresses are used as they are: if the client's
    /// [transport](crate::runtime::Transport::is_tls) is TLS, those of TLS, else the others.
    ///
    /// Servers before 3.10 do not say their addresses of TLS. A client with TLS uses the others only if one of them has a port
    /// that the client uses already, as with `client.portUnification`. Otherwise the servers stay.
    #[must_use = "dropping it ends it"]
    pub fn new(client: &Client) -> Self {
        let (is_tls, used_by) = (client.is_tls(), client.downgrade());
        Self::with_hosts(client, move |config| {
            let (plain, secure) = (config.client_hosts(), config.secure_client_hosts());
            if !is_tls {
                return plain;
            }
            if !secure.is_empty() {
                return secure;
            }
            let used = used_by.upgrade().map(|client| client.servers()).unwrap_or_default();
            let is_used = |host: &Host| used.iter().any(|other| other.port == host.port);
            if plain.iter().any(is_used) { plain } else { Vec::new() }
        })
    }

    /// Starts to follow the configuration. `hosts` returns the servers to use with it, such as the addresses of proxies;
    /// an empty list changes nothing. A panic of it is logged at ERROR, and changes nothing either.
    ///
    /// ```
    /// # use docent_session::{Client, EnsembleTracker, config::Host};
    /// # fn example(client: &Client) -> EnsembleTracker {
    /// // Each server is behind a port of the tunnel.
    /// EnsembleTracker::with_hosts(client, |config| {
    ///     let port = |id| u16::try_from(22180 + id).ok();
    ///     let ports = config.servers.iter().filter_map(|server| port(server.id));
    ///     ports.map(|port| Host { name: "localhost".to_owned(), port }).collect()
    /// })
    /// # }
    /// ```
    #[must_use = "dropping it ends it"]
    pub fn with_hosts(
        client: &Client,
        hosts: impl Fn(&EnsembleConfig) -> Vec<Host> + Send + Sync + 'static,
    ) -> Self {
        let (published, config) = watch::channel(None);
        let (end, ended) = oneshot::channel();
        let task = Task {
            client: client.downgrade(),
            states: client.states(),
            hosts: Box::new(hosts),
            published,
            ended,
            watcher: None,
            pause: Duration::ZERO,
            timer: None,
        };
        client.runtime().spawn(Box::pin(task.run()));
        Self { config: Latest::new(config), _end: end }
    }

    /// The configuration in use, to read and to wait for; `None` before the first. Servers are in use before it is
    /// shown. It ends with the tracker.
    #[must_use]
    pub fn config(&self) -> Latest<Option<Arc<EnsembleConfig>>> {
        let mut config = self.config.clone();
        config.get();
        config
    }

    /// Ends the tracker, as dropping it does. The last servers stay.
    pub fn close(self) {}
}

impl fmt::Debug for EnsembleTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnsembleTracker").field("config", &self.config).finish()
    }
}

struct Task {
    client: WeakClient,
    states: Events<StateEvent>,
    hosts: HostsOf,
    published: watch::Sender<Option<Arc<EnsembleConfig>>>,
    ended: oneshot::Receiver<Infallible>,
    watcher: Option<Watcher>,
    /// The last pause after a read that the server refused for a while.
    pause: Duration,
    timer: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
}

impl Task {
    async fn run(mut self) {
        while self.wait().await {
            let Some(client) = self.client.upgrade() else { return };
            let read = client.get_config_and_watch();
            // A waiting task would keep the session open.
            drop(client);
            let mut read = pin!(read);
            let ended = &mut self.ended;
            let result = poll_fn(|cx| match Pin::new(&mut *ended).poll(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => read.as_mut().poll(cx).map(Some),
            });
            match result.await {
                None => break,
                Some(Ok((node, watcher))) => {
                    (self.watcher, self.pause) = (Some(watcher), Duration::ZERO);
                    self.consider(&node);
                }
                Some(Err(error)) => self.refused(&error),
            }
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.set_on_drop(OnDrop::Remove);
        }
    }

    /// Waits until the configuration is to be read: on each connection, after a change, and after a pause. Returns false
    /// at the end.
    async fn wait(&mut self) -> bool {
        poll_fn(|cx| self.poll_due(cx)).await
    }

    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if Pin::new(&mut self.ended).poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        let mut due = false;
        loop {
            match self.states.poll_next(cx) {
                // After a lag, the latest state follows.
                Poll::Ready(Some(event)) => {
                    due |= event.state().is_some_and(ConnectionState::is_connected);
                }
                Poll::Ready(None) => return Poll::Ready(false),
                Poll::Pending => break,
            }
        }
        if let Some(watcher) = &mut self.watcher
            && let Poll::Ready(event) = watcher.poll_next(cx)
        {
            self.watcher = None;
            // After the end of a session, the next one is connected first.
            due |= event.is_some_and(|event| !event.is_end())
                && !planted::is("members-not-read-again");
        }
        if let Some(timer) = &mut self.timer
            && let Poll::Ready(elapsed) = timer.as_mut().poll(cx)
        {
            self.timer = None;
            due |= elapsed;
        }
        if !due {
            return Poll::Pending;
        }
        self.timer = None;
        Poll::Ready(true)
    }

    /// Uses a configuration if it is newer than the last one.
    fn consider(&self, node: &Node) {
        if node.data.is_empty() {
            return debug!("the ensemble has no configuration; the servers stay");
        }
        let text = String::from_utf8_lossy(&node.data);
        let config: EnsembleConfig = match text.parse() {
            Ok(config) => config,
            Err(error) => {
                return warn!(%error, "the configuration of the ensemble is invalid; the servers stay");
            }
        };
        let last = self.published.borrow().as_ref().map(|config| config.version);
        if last.is_some_and(|last| config.version <= last) {
            return debug!(config.version, last, "no newer configuration of the ensemble");
        }
        // The task goes on, and calls the function again with the next configuration.
        let Ok(hosts) = catch_unwind(AssertUnwindSafe(|| (self.hosts)(&config))) else {
            return error!(
                config.version,
                "the function of EnsembleTracker::with_hosts panicked; the servers stay"
            );
        };
        if hosts.is_empty() {
            return debug!(
                config.version,
                "no address for this client in the configuration; the servers stay"
            );
        }
        let Some(client) = self.client.upgrade() else { return };
        info!(config.version, servers = hosts.len(), "the configuration of the ensemble is in use");
        client.use_servers(&hosts);
        self.published.send_replace(Some(Arc::new(config)));
    }

    fn refused(&mut self, error: &Error) {
        self.watcher = None;
        // A lost connection is followed by the next one, the end of the client by its last state.
        if matches!(
            error.kind(),
            ErrorKind::ConnectionLoss | ErrorKind::SessionExpired | ErrorKind::Closed
        ) {
            return debug!(%error, "the configuration of the ensemble was not read");
        }
        warn!(%error, "the configuration of the ensemble was not read; the servers stay");
        // A failed read leaves no watch: nothing else reports the next change on this connection.
        let passes = error.is_retryable()
            || matches!(error.kind(), ErrorKind::TooManyRequests | ErrorKind::NoAuth);
        if let Some(client) = self.client.upgrade().filter(|_| passes) {
            self.pause = (self.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
            self.timer = Some(Box::pin(timer(&**client.runtime(), self.pause)));
        }
    }
}
