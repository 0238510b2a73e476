//! etcd: the lock of its lock service, with a lease that is kept alive.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use etcd_client::{Client, LockOptions};

use xtask::Result;

use super::{Service, Target};

/// A client and its lease, like Go's `concurrency.Session`.
pub(crate) struct Etcd {
    client: Client,
    lease: i64,
    /// The end of the lease according to the last keep-alive reply.
    deadline: Rc<Cell<Instant>>,
    keeper: tokio::task::JoinHandle<()>,
}

pub(crate) struct Guard {
    key: Vec<u8>,
    revision: Option<i64>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Service for Etcd {
    type Guard = Guard;

    async fn connect(target: &Target) -> Result<Self> {
        let endpoints = [format!("http://{}", target.address())];
        let mut client = Client::connect(endpoints, None).await?;
        let seconds = target.lease.as_secs_f64().ceil() as i64;
        let begin = Instant::now();
        let granted = client.lease_grant(seconds, None).await?;
        let seconds = u64::try_from(granted.ttl()).unwrap_or(0);
        let deadline = Rc::new(Cell::new(begin + Duration::from_secs(seconds)));
        let lease = granted.id();
        let interval = Duration::from_secs(seconds) / 3;
        let (mut of_task, kept) = (client.clone(), Rc::clone(&deadline));
        let keeper = tokio::task::spawn_local(async move {
            // A broken stream is opened again while the lease may still be valid.
            while Instant::now() < kept.get() {
                if let Ok((mut keeper, mut stream)) = of_task.lease_keep_alive(lease).await {
                    loop {
                        tokio::time::sleep(interval).await;
                        let begin = Instant::now();
                        if keeper.keep_alive().await.is_err() {
                            break;
                        }
                        let Ok(Some(reply)) = stream.message().await else { break };
                        if reply.ttl() <= 0 {
                            kept.set(begin);
                            return;
                        }
                        kept.set(begin + Duration::from_secs(reply.ttl().unsigned_abs()));
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Ok(Self { client, lease, deadline, keeper })
    }

    async fn acquire(&self, lock: &str) -> Result<Guard> {
        let options = LockOptions::new().with_lease(self.lease);
        let reply = self.client.clone().lock(lock, Some(options)).await?;
        let revision = reply.header().map(etcd_client::ResponseHeader::revision);
        Ok(Guard { key: reply.key().to_vec(), revision })
    }

    async fn is_held(&self, _guard: &Guard) -> bool {
        Instant::now() < self.deadline.get()
    }

    async fn token(&self, guard: &Guard) -> Option<i64> {
        guard.revision
    }

    async fn release(&self, guard: Guard) -> Result<()> {
        self.client.clone().unlock(guard.key).await?;
        Ok(())
    }

    async fn disturb(&self) -> Result<()> {
        self.client.clone().lease_revoke(self.lease).await?;
        Ok(())
    }
}
