//! The servers of `dns-srv://name`: looked up before the first attempt to connect, and then every minute.
//!
//! Changed servers are for the next attempt to connect, and for a return to a better server. No connection ends because the
//! record of its server is gone: in Kubernetes, it is gone while the server is not ready. A list that the program sets counts
//! until it sets the name again; the lookups go on meanwhile, and change nothing.
//!
//! Source: `DnsSrvHostProvider` (ZOOKEEPER-4956).

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::{
    runtime::{Runtime, Task, Timer},
    shared::Shared,
    transport::Transport,
};
use crate::config::Host;

/// The time between two lookups, and the limit of each.
///
/// Source: `ZKClientConfig.DNS_SRV_REFRESH_INTERVAL_SECONDS_DEFAULT`.
const PERIOD: Duration = Duration::from_secs(60);

/// A limit of the servers of one name. No ensemble has as many, and all are asked for their status at once.
const MAX_SERVERS: usize = 64;

/// Looks up the servers of a name, in a fixed order, each once.
pub(super) async fn lookup(transport: &dyn Transport, name: &str) -> io::Result<Vec<Host>> {
    let mut servers = transport.lookup_servers(name).await?;
    // A name as the answer would be looked up without a pause.
    servers.retain(|server| !server.is_dns_srv());
    servers.sort_by(|one, other| (&one.name, one.port).cmp(&(&other.name, other.port)));
    servers.dedup();
    // Behind the order, so that the same ones are left out each time.
    servers.truncate(MAX_SERVERS);
    if servers.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there are no SRV records"));
    }
    Ok(servers)
}

/// The servers of a name, which a task keeps up to date as long as this value lives.
pub(super) struct SrvServers {
    /// Ends the task when it is dropped.
    _end: oneshot::Sender<Infallible>,
}

impl SrvServers {
    /// Starts the task.
    pub(super) fn follow(
        name: String,
        shared: Arc<Shared>,
        transport: Arc<dyn Transport>,
        runtime: &dyn Runtime,
    ) -> Self {
        let (end, ended) = oneshot::channel();
        runtime.spawn(refresh(name, shared, transport, runtime.timer(PERIOD), ended));
        Self { _end: end }
    }
}

fn refresh(
    name: String,
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    mut timer: Pin<Box<dyn Timer>>,
    mut ended: oneshot::Receiver<Infallible>,
) -> Task {
    Box::pin(async move {
        loop {
            let mut wanted = pin!(shared.look_up.notified());
            let due = poll_fn(|cx| {
                if Pin::new(&mut ended).poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                if wanted.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                timer.as_mut().poll(cx).map(|()| true)
            });
            if !due.await {
                return;
            }
            timer.as_mut().reset(PERIOD);
            let mut lookup = pin!(lookup(&*transport, &name));
            let servers = poll_fn(|cx| {
                if Pin::new(&mut ended).poll(cx).is_ready() {
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
                    if shared.follow_servers(&servers) {
                        debug!(name, servers = servers.len(), "the SRV records have changed");
                    }
                }
                Some(Err(error)) => {
                    warn!(name, %error, "the SRV records were not found; the servers stay");
                }
            }
        }
    })
}
