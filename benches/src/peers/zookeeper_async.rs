//! zookeeper-async 5. Its lock panics or hangs under contention, so there is no lock-handoff. It does not
//! await the release of the lock, so lock-uncontended has one round trip less.

#[path = "../../../tools/bench_peer/measure.rs"]
mod measure;
mod workloads;

use std::{future::Future, sync::Arc, time::Duration};

use measure::{fail, must};
use tokio::sync::oneshot;
use workloads::{DATA, Peer};
use zookeeper_async::{
    Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper,
    recipes::shared_lock::{LockGuard, lock},
};

struct ZookeeperAsync(Arc<ZooKeeper>);

impl Peer for ZookeeperAsync {
    const NAME: &'static str = "zookeeper-async";
    const EAGER: bool = false;
    type Watch = oneshot::Receiver<WatchedEvent>;
    type Guard = Arc<LockGuard>;

    async fn connect(address: &str) -> Self {
        let client = ZooKeeper::connect(address, Duration::from_secs(30), |_: WatchedEvent| ());
        Self(Arc::new(must(client.await)))
    }

    async fn get(&self, path: &'static str) -> usize {
        must(self.0.get_data(path, false).await).0.len()
    }

    fn set(&self, path: &str) -> impl Future<Output = ()> {
        async move { drop(must(self.0.set_data(path, DATA.to_vec(), None).await)) }
    }

    fn create<'a>(&'a self, path: &'a str) -> impl Future<Output = bool> + 'a {
        async move {
            let acl = Acl::open_unsafe().clone();
            match self.0.create(path, DATA.to_vec(), acl, CreateMode::Persistent).await {
                Ok(_) => true,
                Err(ZkError::NodeExists) => false,
                Err(error) => fail(error),
            }
        }
    }

    fn delete<'a>(&'a self, path: &'a str) -> impl Future<Output = ()> + 'a {
        async move { must(self.0.delete(path, None).await) }
    }

    async fn children(&self, path: &str) -> Vec<String> {
        must(self.0.get_children(path, false).await)
    }

    async fn watch(&self, path: &str) -> Self::Watch {
        let (sender, receiver) = oneshot::channel();
        must(self.0.get_data_w(path, |event| drop(sender.send(event))).await);
        receiver
    }

    async fn fired(watch: Self::Watch) {
        must(watch.await);
    }

    async fn acquire(&self, path: &str) -> Arc<LockGuard> {
        must(lock(Arc::clone(&self.0), path.to_owned()).await)
    }

    async fn release(&self, guard: Arc<LockGuard>) {
        drop(guard);
    }
}

fn main() {
    workloads::main::<ZookeeperAsync>();
}
