//! Configuration that reloads: all settings in one node, followed by a cache. Settings that cannot be used change nothing.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{
    CacheEvent, CacheOptions, Client, CreateMode, CreateOptions, CuratorCache, Events,
    cache::CachedNode,
};
use docent_testing::TestingServer;
use tokio::sync::watch;

const PATH: &str = "/examples/configuration";

/// The settings in force, and why a later version is not.
#[derive(Debug, Clone, Default, PartialEq)]
struct Settings {
    workers: usize,
    rejected: Option<String>,
}

fn parse(node: &CachedNode) -> Result<Settings, String> {
    let text = String::from_utf8_lossy(node.data().map_or(&[][..], |data| data));
    let workers = text.strip_prefix("workers = ").ok_or("`workers = N` is missing")?;
    let workers = workers.parse().map_err(|error| format!("{workers:?}: {error}"))?;
    Ok(Settings { workers, rejected: None })
}

/// Follows the node until the cache is closed. An event says that it is time to look; an outage and a deleted node leave
/// the last settings in force.
async fn reload(cache: CuratorCache, mut events: Events<CacheEvent>, to: watch::Sender<Settings>) {
    while events.next().await.is_some() {
        let Some(node) = cache.get(PATH) else { continue };
        to.send_if_modified(|current| {
            let new = parse(&node)
                .unwrap_or_else(|why| Settings { rejected: Some(why), ..current.clone() });
            std::mem::replace(current, new.clone()) != new
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect_string).await?;
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    let (cache, events) =
        CuratorCache::start_with_events(&client, PATH, CacheOptions::single_node())?;
    let (sender, mut settings) = watch::channel(Settings::default());
    tokio::spawn(reload(cache.clone(), events, sender));
    for text in ["workers = 2", "workers = 5", "workers = many", "workers = 3"] {
        client.create_or_set(PATH, text.as_bytes(), options).await?;
        settings.changed().await?;
        let Settings { workers, rejected } = settings.borrow_and_update().clone();
        println!("{text}: {workers} workers, rejected: {rejected:?}");
    }
    cache.close().await;
    Ok(client.close().await?)
}
