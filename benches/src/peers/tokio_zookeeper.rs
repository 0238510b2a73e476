//! tokio-zookeeper 0.4. It has no lock.

#[path = "../../../tools/bench_peer/measure.rs"]
mod measure;
mod workloads;

use std::{future::Future, time::Duration};

use futures::channel::oneshot;
use measure::{fail, must};
use tokio_zookeeper::{Acl, CreateMode, WatchedEvent, ZooKeeper, ZooKeeperBuilder, error};
use workloads::{DATA, Peer};

struct TokioZookeeper(ZooKeeper);

impl Peer for TokioZookeeper {
    const NAME: &'static str = "tokio-zookeeper";
    const EAGER: bool = false;
    type Watch = oneshot::Receiver<WatchedEvent>;
    type Guard = ();

    async fn connect(address: &str) -> Self {
        let mut builder = ZooKeeperBuilder::default();
        builder.set_timeout(Duration::from_secs(30));
        let (client, events) = must(builder.connect(&must(address.parse())).await);
        // The events are not used, but the client fails without their receiver.
        std::mem::forget(events);
        Self(client)
    }

    async fn get(&self, path: &'static str) -> usize {
        must(self.0.get_data(path).await).map_or(0, |(data, _)| data.len())
    }

    fn set(&self, path: &str) -> impl Future<Output = ()> {
        async move {
            if let Err(error) = must(self.0.set_data(path, None, DATA).await) {
                fail(error);
            }
        }
    }

    fn create<'a>(&'a self, path: &'a str) -> impl Future<Output = bool> + 'a {
        async move {
            let created = self.0.create(path, DATA, Acl::open_unsafe(), CreateMode::Persistent);
            match must(created.await) {
                Ok(_) => true,
                Err(error::Create::NodeExists) => false,
                Err(error) => fail(error),
            }
        }
    }

    fn delete<'a>(&'a self, path: &'a str) -> impl Future<Output = ()> + 'a {
        async move {
            if let Err(error) = must(self.0.delete(path, None).await) {
                fail(error);
            }
        }
    }

    async fn children(&self, path: &str) -> Vec<String> {
        must(self.0.get_children(path).await).unwrap_or_default()
    }

    async fn watch(&self, path: &str) -> Self::Watch {
        match must(self.0.with_watcher().get_data(path).await) {
            Some((watch, _, _)) => watch,
            None => fail("no node to watch"),
        }
    }

    async fn fired(watch: Self::Watch) {
        must(watch.await);
    }

    async fn acquire(&self, _: &str) {
        fail("no lock")
    }

    async fn release(&self, (): ()) {}
}

fn main() {
    workloads::main::<TokioZookeeper>();
}
