//! The servers of `dns-srv://name`: looked up before the first attempt to connect, and then every minute.
//!
//! Changed servers are for the next attempt to connect. No connection ends because the record of its server is gone: in
//! Kubernetes, it is gone while the server is not ready.
//!
//! Source: `DnsSrvHostProvider` (ZOOKEEPER-4956).

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::sync::watch;
use tracing::{debug, warn};

use super::{
    runtime::{Runtime, Task, Timer},
    transport::Transport,
};
use crate::config::Host;

/// The time between two lookups, and the limit of each.
///
/// Source: `ZKClientConfig.DNS_SRV_REFRESH_INTERVAL_SECONDS_DEFAULT`.
const PERIOD: Duration = Duration::from_secs(60);

/// Looks up the servers of a name, in a fixed order, each once.
pub(super) async fn lookup(transport: &dyn Transport, name: &str) -> io::Result<Vec<Host>> {
    let mut servers = transport.lookup_servers(name).await?;
    // A name as the answer would be looked up without a pause.
    servers.retain(|server| !server.is_dns_srv());
    servers.sort_by(|one, other| (&one.name, one.port).cmp(&(&other.name, other.port)));
    servers.dedup();
    if servers.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there are no SRV records"));
    }
    Ok(servers)
}

/// The servers of a name, which a task keeps up to date as long as this value lives.
pub(super) struct SrvServers(watch::Receiver<Vec<Host>>);

impl SrvServers {
    /// Starts the task. `servers` are those of the first lookup.
    pub(super) fn follow(
        name: &str,
        servers: Vec<Host>,
        transport: Arc<dyn Transport>,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        let (found, receiver) = watch::channel(servers);
        let timer = runtime.timer(PERIOD);
        runtime.spawn(refresh(name.to_owned(), found, transport, timer));
        Self(receiver)
    }

    /// The servers, if they have changed since the last call.
    pub(super) fn changed(&mut self) -> Option<Vec<Host>> {
        // An error means that the task has ended with its runtime.
        self.0
            .has_changed()
            .is_ok_and(|changed| changed)
            .then(|| self.0.borrow_and_update().clone())
    }
}

fn refresh(
    name: String,
    found: watch::Sender<Vec<Host>>,
    transport: Arc<dyn Transport>,
    mut timer: Pin<Box<dyn Timer>>,
) -> Task {
    Box::pin(async move {
        let mut ended = pin!(found.closed());
        loop {
            let due = poll_fn(|cx| match ended.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| true),
            });
            if !due.await {
                return;
            }
            timer.as_mut().reset(PERIOD);
            let mut lookup = pin!(lookup(&*transport, &name));
            let servers = poll_fn(|cx| {
                if ended.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                match lookup.as_mut().poll(cx) {
                    Poll::Ready(servers) => Poll::Ready(Some(servers)),
                    Poll::Pending => {
                        timer.as_mut().poll(cx).map(|()| Some(Err(io::ErrorKind::TimedOut.into())))
                    }
                }
            });
            match servers.await {
                None => return,
                Some(Ok(servers)) => {
                    if *found.borrow() != servers {
                        debug!(name, servers = servers.len(), "the SRV records have changed");
                        found.send_replace(servers);
                    }
                }
                Some(Err(error)) => {
                    warn!(name, %error, "the SRV records were not found; the servers stay");
                }
            }
        }
    })
}
