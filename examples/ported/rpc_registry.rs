//! A registry as Apache Dubbo keeps it in ZooKeeper: providers register their URLs, consumers register and follow them.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{env, error::Error, fmt::Write as _, time::Duration};

use docent::{CacheEvent, CacheOptions, Client, CreateMode, CuratorCache, Events};
use docent::{LockOptions, NodeOptions, PersistentNode};
use docent_testing::{TestingServer, tap};

const SERVICE: &str = "/dubbo/com.example.Greeter";
const PROVIDER: &str = "dubbo://10.0.0.7:20880/com.example.Greeter?application=hall&\
    interface=com.example.Greeter&methods=hello,good bye&side=provider&timestamp=1764000000000";
const CONSUMER: &str = "consumer://10.0.0.9/com.example.Greeter?application=guest&\
    category=consumers&interface=com.example.Greeter&side=consumer&timestamp=1764000000001";

/// The name of a URL's node, which is that of Java's `URLEncoder`.
fn encode(url: &str) -> String {
    let mut name = String::new();
    for byte in url.bytes() {
        match byte {
            b' ' => name.push('+'),
            b'.' | b'-' | b'*' | b'_' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => drop(write!(name, "%{byte:02X}")),
        }
    }
    name
}

/// The URL of a node; `None` for a name that is no encoded URL.
fn decode(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut url = parts.next()?.replace('+', " ").into_bytes();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        url.push(u8::from_str_radix(digits, 16).ok()?);
        url.extend(rest.replace('+', " ").bytes());
    }
    String::from_utf8(url).ok()
}

/// Keeps a URL registered, also over the end of a session, until the node is closed.
fn register(client: &Client, category: &str, url: &str) -> Result<PersistentNode, docent::Error> {
    // The parents are no containers: Java's consumers watch them while they are empty.
    let parents = LockOptions::default().without_container_parents();
    let options = NodeOptions::default().with_lock_options(parents);
    let path = format!("{SERVICE}/{category}/{}", encode(url));
    PersistentNode::start_with(client, &path, CreateMode::Ephemeral, "", options)
}

/// Follows the three categories that concern a consumer: by one watch, and from one session to the next.
async fn subscribe(client: &Client) -> Result<(CuratorCache, Events<CacheEvent>), docent::Error> {
    for category in ["providers", "configurators", "routers"] {
        client.ensure_path(&format!("{SERVICE}/{category}"), CreateMode::Persistent).await?;
    }
    let options = CacheOptions::default().with_max_depth(2).without_data();
    let options = options.with_filter(|path| !path.ends_with("/consumers"));
    CuratorCache::start_with_events(client, SERVICE, options)
}

/// Prints the next URL that has come or gone.
async fn show_change(events: &mut Events<CacheEvent>) -> Result<(), Box<dyn Error>> {
    loop {
        let (what, node) = match events.next().await.ok_or("the client has ended")? {
            CacheEvent::Created { node } => ("registered", node),
            CacheEvent::Deleted { node } => ("gone", node),
            CacheEvent::Failed { path, error } => Err(format!("{path}: {error}"))?,
            _ => continue,
        };
        let below = node.path().strip_prefix(SERVICE).and_then(|rest| rest.strip_prefix('/'));
        if let Some((category, name)) = below.and_then(|rest| rest.split_once('/')) {
            let url = decode(name).ok_or_else(|| format!("{name} is no encoded URL"))?;
            println!("{category}: {what}: {url}");
            return Ok(());
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let embedded = TestingServer::start().await?;
    let connect = env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let (provider, consumer) = (Client::connect(&connect).await?, Client::connect(&connect).await?);
    let (_cache, mut events) = subscribe(&consumer).await?;
    let guest = register(&consumer, "consumers", CONSUMER)?;
    guest.created().await?;
    let hall = register(&provider, "providers", PROVIDER)?;
    show_change(&mut events).await?;
    println!("the session of the provider ends");
    let server = connect.split([',', '/']).next().unwrap_or_default();
    let (session, limit) = (provider.session_token().ok_or("no session")?, Duration::from_secs(10));
    tap::kill_session(server, session.session_id(), session.password(), limit).await?;
    show_change(&mut events).await?;
    show_change(&mut events).await?;
    hall.close().await?;
    show_change(&mut events).await?;
    provider.close().await?;
    Ok(consumer.close().await?)
}
