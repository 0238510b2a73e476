//! The tree watching of a data-movement tool: copies a tree to another ZooKeeper, and each change as soon as it happens.
//!
//! From the ZooKeeper in `DOCENT_CONNECT` (host:port,…) to that in `DOCENT_TARGET`, or else to another tree of the same
//! one. Without `DOCENT_CONNECT`, an embedded server stands in.

use std::{collections::BTreeSet, env, error::Error, time::Duration};

use docent::{CacheEvent, Client, CreateMode::Persistent, CuratorCache, ErrorKind};
use docent::{cache::CachedNode, retry::ExponentialBackoffRetry};
use docent_testing::TestingServer;

const SOURCE: &str = "/examples/source";
const COPY: &str = "/examples/copy";

/// Copies the tree below `SOURCE`.
struct Mover {
    source: Client,
    target: Client,
    retry: ExponentialBackoffRetry,
}

impl Mover {
    /// Repeated after a lost reply: the same data twice is once.
    async fn write(&self, node: &CachedNode) -> Result<(), docent::Error> {
        let (path, data) = (copy_of(node.path()), node.data().cloned().unwrap_or_default());
        let write = || async { self.target.create_or_set(&path, &data, Persistent).await };
        self.target.retry_idempotent(&self.retry, write).await.map(drop)
    }

    async fn delete(&self, copy: &str) -> Result<(), docent::Error> {
        let delete = || async { self.target.delete_recursive(copy).allow(ErrorKind::NoNode).await };
        self.target.retry_idempotent(&self.retry, delete).await.map(drop)
    }

    /// Deletes the nodes of the copy that the source no longer has: their deletion was missed.
    async fn prune(&self, source: &[CachedNode]) -> Result<(), docent::Error> {
        let wanted: BTreeSet<_> = source.iter().map(|node| copy_of(node.path())).collect();
        let copy = CuratorCache::start(&self.target, COPY)?;
        copy.initialized().await?;
        for node in copy.snapshot().iter().filter(|node| !wanted.contains(node.path())) {
            self.delete(node.path()).await?;
        }
        Ok(())
    }

    /// Runs until an error, or until it is dropped.
    async fn run(&self) -> Result<(), Box<dyn Error>> {
        let start = || CuratorCache::start_with_events(&self.source, SOURCE, Default::default());
        let (mut cache, mut events) = start()?;
        while let Some(event) = events.next().await {
            match event {
                CacheEvent::Created { node } | CacheEvent::Changed { new: node, .. }
                    if node.stat().ephemeral_owner == 0 =>
                {
                    self.write(&node).await?;
                }
                CacheEvent::Deleted { node } => self.delete(&copy_of(node.path())).await?,
                CacheEvent::Initialized { .. } => self.prune(&cache.snapshot()).await?,
                // The tool was too slow, and begins anew.
                CacheEvent::Lagged { .. } => (cache, events) = start()?,
                CacheEvent::Failed { path, error } => Err(format!("{path} not copied: {error}"))?,
                // Ephemeral nodes belong to the source. After a lost connection, the differences are events.
                _ => {}
            }
        }
        Ok(())
    }
}

fn copy_of(path: &str) -> String {
    path.replacen(SOURCE, COPY, 1)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let embedded = TestingServer::start().await?;
    let connect = env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let source = Client::connect(&connect).await?;
    // The other programs of the source. The cache of the tool costs servers of 3.4 a connection.
    let others = Client::connect(&connect).await?;
    let target = Client::connect(&env::var("DOCENT_TARGET").unwrap_or(connect)).await?;
    target.ensure_path("/examples", Persistent).await?;
    let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 29);
    let mover = Mover { source: source.clone(), target: target.clone(), retry };

    others.ensure_path("/examples/source/app/one", Persistent).await?;
    let application = async {
        target.wait_until_exists("/examples/copy/app/one").await?;
        others.set_data("/examples/source/app/one", b"2", None).await?;
        others.create("/examples/source/app/two", b"2", Persistent).await?;
        target.wait_until_exists("/examples/copy/app/two").await
    };
    tokio::select! { ended = mover.run() => ended?, done = application => drop(done?) }
    println!("one is {:?}", target.get_data("/examples/copy/app/one").await?.data);
    // Deleted while the tool does not run.
    others.delete("/examples/source/app/two", None).await?;
    let copy = target.wait_until_deleted("/examples/copy/app/two");
    tokio::select! { ended = mover.run() => ended?, gone = copy => gone? }
    println!("left: {:?}", target.get_children("/examples/copy/app").await?);
    others.close().await?;
    source.close().await?;
    Ok(target.close().await?)
}
