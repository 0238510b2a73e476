//! The data of nodes that were given none.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use docent_session::Client;
use tokio::sync::OnceCell;

use crate::{
    options::LockOptions,
    select::{Either, select},
    timer::in_runtime,
};

/// The data of the options for a lock node, or the [default data](default_data).
pub(crate) async fn lock_data(
    cache: &OnceCell<Bytes>,
    client: &Client,
    options: &LockOptions,
) -> Bytes {
    match &options.data {
        Some(data) => data.clone(),
        None => default_data(cache, client, options).await,
    }
}

/// The default data of the options, or this host's address, which is looked up once.
///
/// Source: `CuratorFrameworkFactory.Builder.defaultData`, `getLocalAddress`.
pub(crate) async fn default_data(
    cache: &OnceCell<Bytes>,
    client: &Client,
    options: &LockOptions,
) -> Bytes {
    match &options.default_data {
        Some(data) => data.clone(),
        None => cache.get_or_init(|| local_address(client)).await.clone(),
    }
}

/// How long an acquire waits for the local address. It is less than the time of one step after a deadline, so that a
/// zero timeout still acquires a free lock.
const LOOKUP_LIMIT: Duration = Duration::from_millis(500);

/// The local address that this host uses to reach the first server; empty if there is none, or if its lookup takes
/// longer than [`LOOKUP_LIMIT`]. Sends nothing.
async fn local_address(client: &Client) -> Bytes {
    let hosts = client.config().connect_string().hosts();
    let Some(host) = hosts.first().cloned() else { return Bytes::new() };
    let runtime = Arc::clone(client.runtime());
    let limit = runtime.timer(LOOKUP_LIMIT);
    let address = async move {
        let lookup = async { runtime.local_address(&host).await.map(|ip| ip.to_string()) };
        match select(lookup, limit).await {
            Either::Left(address) => address,
            Either::Right(()) => None,
        }
    };
    in_runtime(client, address).await.flatten().map(Bytes::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{pin::Pin, time::Duration};

    use docent_session::{
        Config,
        config::Host,
        runtime::{LocalAddress, Runtime, Task, Timer, Transport},
    };
    use tokio::runtime::Handle;

    use crate::locks::InterProcessMutex;

    /// A runtime whose resolver does not reply.
    #[derive(Debug)]
    struct SilentResolver(Handle);

    impl Runtime for SilentResolver {
        fn transport(&self) -> std::sync::Arc<dyn Transport> {
            self.0.transport()
        }

        fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
            self.0.timer(after)
        }

        fn spawn(&self, task: Task) {
            Runtime::spawn(&self.0, task);
        }

        fn local_address<'a>(&'a self, _server: &'a Host) -> LocalAddress<'a> {
            Box::pin(std::future::pending())
        }
    }

    /// The data of a lock node are only for its readers, so a free lock is acquired without them.
    // Case (Found in docent itself): the default data of a lock node, this host's address, were
    // waited for without a limit: with a silent resolver, a free lock was not acquired.
    #[tokio::test]
    async fn a_silent_resolver_delays_no_acquire_for_long() {
        let server = docent_testing::TestingServer::start().await.unwrap();
        let config = Config::new(&server.connect_string()).unwrap();
        let client =
            config.with_runtime(SilentResolver(Handle::current())).connect().await.unwrap();
        let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
        let acquire = tokio::time::timeout(Duration::from_secs(20), mutex.acquire());
        let guard = acquire.await.expect("the acquire ends").unwrap();
        assert_eq!(client.get_data(guard.path()).await.unwrap().data, "");
        guard.release().await.unwrap();
        let free = mutex.acquire_timeout(Duration::ZERO).await.unwrap();
        assert!(free.is_some(), "a zero timeout acquires a free lock");
    }
}
