//! zookeeper-client 0.11.

#[path = "../../../tools/bench_peer/measure.rs"]
mod measure;
mod workloads;

use std::{future::Future, time::Duration};

use measure::{fail, must};
use workloads::{DATA, Peer};
use zookeeper_client::{
    Acls, Client, CreateMode, Error, EventType, LockPrefix, OneshotWatcher, OwnedLockClient,
};

struct Kezhuw(Client);

impl Peer for Kezhuw {
    const NAME: &'static str = "zookeeper-client";
    const EAGER: bool = true;
    type Watch = OneshotWatcher;
    type Guard = OwnedLockClient;

    async fn connect(address: &str) -> Self {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(30));
        Self(must(connector.connect(address).await))
    }

    fn get(&self, path: &'static str) -> impl Future<Output = usize> {
        let answer = self.0.get_data(path);
        async move { must(answer.await).0.len() }
    }

    fn set(&self, path: &str) -> impl Future<Output = ()> {
        let answer = self.0.set_data(path, DATA, None);
        async move {
            must(answer.await);
        }
    }

    fn create<'a>(&'a self, path: &'a str) -> impl Future<Output = bool> + 'a {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let answer = self.0.create(path, DATA, &options);
        async move {
            match answer.await {
                Ok(_) => true,
                Err(Error::NodeExists) => false,
                Err(error) => fail(error),
            }
        }
    }

    fn delete<'a>(&'a self, path: &'a str) -> impl Future<Output = ()> + 'a {
        let answer = self.0.delete(path, None);
        async move { must(answer.await) }
    }

    async fn children(&self, path: &str) -> Vec<String> {
        must(self.0.list_children(path).await)
    }

    async fn watch(&self, path: &str) -> OneshotWatcher {
        must(self.0.get_and_watch_data(path).await).2
    }

    async fn fired(watch: OneshotWatcher) {
        if watch.changed().await.event_type != EventType::NodeDataChanged {
            fail("a watch ended");
        }
    }

    async fn acquire(&self, path: &str) -> OwnedLockClient {
        self.create(path).await;
        let prefix = must(LockPrefix::new_curator(path, "lock-"));
        must(self.0.lock(prefix, b"", Acls::anyone_all()).await).into_owned()
    }

    async fn release(&self, guard: OwnedLockClient) {
        must(self.0.delete(guard.lock_path(), None).await);
        // Dropping it would delete the node once more, in the background.
        std::mem::forget(guard);
    }
}

fn main() {
    workloads::main::<Kezhuw>();
}
