//! `docent tree`: prints a tree, and follows its changes.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use docent::{CacheEvent, CacheOptions, Client, CuratorCache, Events, cache::CachedNode};
use docent::{Error, ErrorKind, Outcome};
use serde_json::json;

use super::{path_object, stat_json, validate_path, within};
use crate::{
    command::Command,
    connect::ServerArgs,
    duration,
    exit::{self, CommandResult, Failure},
    output::{escape, print, print_json},
};

/// Print a node and its descendants with their versions, and follow their changes
///
/// With --watch, lost connections and sessions are survived: the differences are printed as changes.
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent tree /app                          paths and versions
  docent tree --watch /app                  and then each change
  docent tree -w --depth 1 /workers         the node and its children only
  docent tree -w --json /app | jq -r 'select(.event == \"deleted\").path'

Lines: `node PATH VERSION` for each node, sorted by path. With --watch, then
`watching N`, the number of nodes, and for each change
  created PATH VERSION
  changed PATH VERSION      several writes may be one line
  deleted PATH VERSION      a replaced node is deleted and created
  unreadable PATH REASON    not allowed by its ACL; it is read again later
  stale                     the connection is lost; changes are not seen
  resynced N                the differences are printed; N nodes
With --json, one object per line: event, and path, version and stat of a node,
or nodes.

--watch runs until --count, --timeout (exit code 124), or a signal. Without it,
an unreadable node is an error.

{}", exit::HELP))]
pub(crate) struct Tree {
    /// Follow the changes
    #[arg(short, long)]
    watch: bool,
    /// Descend N levels; 0 is the node alone
    #[arg(short, long, value_name = "N")]
    depth: Option<usize>,
    /// Exit after N changes
    #[arg(short = 'n', long, value_name = "N", requires = "watch",
        value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this time, with code 124
    #[arg(short, long, value_name = "TIME", requires = "watch", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Path of the node
    path: String,
}

impl Command for Tree {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        within(self.timeout, self.follow(client)).await
    }
}

/// The printed nodes, in the order of their paths.
type Printed = BTreeMap<String, CachedNode>;

fn by_path(nodes: Vec<CachedNode>) -> Printed {
    nodes.into_iter().map(|node| (node.path().to_owned(), node)).collect()
}

/// The changes between two states of a tree: first deletions, children before parents; then the others, parents first.
fn differences<'a>(old: &'a Printed, new: &'a Printed) -> Vec<(&'static str, &'a CachedNode)> {
    let is_same = |one: &CachedNode, other: &CachedNode| one.stat().czxid == other.stat().czxid;
    let mut changes = Vec::new();
    for (path, node) in old.iter().rev() {
        if new.get(path).is_none_or(|new| !is_same(node, new)) {
            changes.push(("deleted", node));
        }
    }
    for (path, node) in new {
        match old.get(path).filter(|old| is_same(old, node)) {
            None => changes.push(("created", node)),
            Some(old) if old.stat().mzxid != node.stat().mzxid => changes.push(("changed", node)),
            Some(_) => {}
        }
    }
    changes
}

impl Tree {
    async fn follow(&self, client: &Client) -> CommandResult {
        let mut options = CacheOptions::default().without_data();
        if let Some(depth) = self.depth {
            options = options.with_max_depth(depth);
        }
        client.exists(&self.path).await?;
        let cache = CuratorCache::start_with(client, &self.path, options)?;
        self.load(client, &cache).await?;
        let (nodes, events) = cache.snapshot_and_events();
        let failures = cache.failures();
        if let Some((_, error)) = failures.iter().find(|(path, _)| **path == *self.path) {
            return Err(error.clone().into());
        }
        if nodes.is_empty() {
            let missing = Error::new(ErrorKind::NoNode, Outcome::NotApplied);
            return Err(missing.with_path(&self.path).into());
        }
        for node in &nodes {
            self.print_node("node", node)?;
        }
        if !self.watch {
            return match failures.into_iter().next() {
                Some((_, error)) => Err(error.into()),
                None => Ok(0),
            };
        }
        for (path, error) in &failures {
            self.print_unreadable(path, error)?;
        }
        self.print_state("watching", Some(nodes.len()))?;
        self.print_changes(client, events, by_path(nodes)).await
    }

    /// Waits until the cache has read the tree. The time limit begins again with each node that is read. Without it,
    /// the cache would repeat requests for ever if a server does not reply.
    async fn load(&self, client: &Client, cache: &CuratorCache) -> Result<(), Error> {
        let limit = client.config().request_timeout().unwrap_or(Duration::MAX);
        let mut events = cache.events();
        let read_nodes = async {
            loop {
                let node = async {
                    while !matches!(events.next().await, None | Some(CacheEvent::Created { .. })) {}
                };
                if tokio::time::timeout(limit, node).await.is_err() {
                    let error = Error::new(ErrorKind::OperationTimeout, Outcome::NotApplied);
                    return error.with_detail(format_args!("no node was read within {limit:?}"));
                }
            }
        };
        tokio::select! {
            biased;
            loaded = cache.initialized() => loaded,
            error = read_nodes => Err(error.with_path(&self.path)),
        }
    }

    async fn print_changes(
        &self,
        client: &Client,
        mut events: Events<CacheEvent>,
        mut printed: Printed,
    ) -> CommandResult {
        let mut changes = 0;
        while let Some(event) = events.next().await {
            match event {
                CacheEvent::Created { node } => {
                    changes += self.print_node("created", &node)?;
                    printed.insert(node.path().to_owned(), node);
                }
                CacheEvent::Changed { new, .. } => {
                    changes += self.print_node("changed", &new)?;
                    printed.insert(new.path().to_owned(), new);
                }
                CacheEvent::Deleted { node } => {
                    changes += self.print_node("deleted", &node)?;
                    printed.remove(node.path());
                }
                // The output is read slowly.
                CacheEvent::Lagged { nodes, .. } => {
                    let nodes = by_path(nodes);
                    for (event, node) in differences(&printed, &nodes) {
                        changes += self.print_node(event, node)?;
                    }
                    printed = nodes;
                }
                CacheEvent::Failed { path, error } => self.print_unreadable(&path, &error)?,
                CacheEvent::Stale => self.print_state("stale", None)?,
                CacheEvent::Resynced { len } => self.print_state("resynced", Some(len))?,
                _ => {}
            }
            if self.count.is_some_and(|count| changes >= count) {
                return Ok(0);
            }
        }
        // This command has not closed the cache, so the client has ended.
        let kind = client.ended().unwrap_or(ErrorKind::Closed);
        Err(Error::new(kind, Outcome::NotApplied).with_path(&self.path).into())
    }

    /// Prints a line about a node. Returns 1, the number of changes.
    fn print_node(&self, event: &str, node: &CachedNode) -> Result<u64, Failure> {
        let version = node.stat().version;
        if self.json {
            let mut object = path_object(node.path());
            object.insert("event".to_owned(), json!(event));
            object.insert("version".to_owned(), json!(version));
            object.insert("stat".to_owned(), stat_json(node.stat()));
            print_json(object)?;
        } else {
            print(&format!("{event} {} {version}\n", escape(node.path())))?;
        }
        Ok(1)
    }

    fn print_unreadable(&self, path: &str, error: &Error) -> Result<(), Failure> {
        let reason = format!("{:?}", error.kind());
        if self.json {
            let mut object = path_object(path);
            object.insert("event".to_owned(), json!("unreadable"));
            object.insert("reason".to_owned(), json!(reason));
            return print_json(object);
        }
        print(&format!("unreadable {} {reason}\n", escape(path)))
    }

    fn print_state(&self, event: &str, nodes: Option<usize>) -> Result<(), Failure> {
        if self.json {
            let mut object = json!({ "event": event });
            if let (Some(nodes), Some(object)) = (nodes, object.as_object_mut()) {
                object.insert("nodes".to_owned(), json!(nodes));
            }
            return print_json(object);
        }
        print(&nodes.map_or_else(|| format!("{event}\n"), |nodes| format!("{event} {nodes}\n")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use docent::CreateMode;
    use docent_testing::TestingServer;

    use super::*;

    #[tokio::test]
    async fn differences_are_deletions_before_creations() {
        let server = TestingServer::start().await.unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let load = async || {
            let cache = CuratorCache::start(&client, "/t").unwrap();
            cache.initialized().await.unwrap();
            by_path(cache.snapshot())
        };
        let create = |path| client.create(path, b"", CreateMode::Persistent);
        for path in ["/t", "/t/gone", "/t/gone/below", "/t/kept", "/t/replaced", "/t/written"] {
            create(path).await.unwrap();
        }
        let old = load().await;
        assert!(differences(&old, &old).is_empty());
        client.delete_recursive("/t/gone").await.unwrap();
        client.delete("/t/replaced", None).await.unwrap();
        client.set_data("/t/written", b"x", None).await.unwrap();
        for path in ["/t/replaced", "/t/new", "/t/new/below"] {
            create(path).await.unwrap();
        }
        let new = load().await;
        let lines: Vec<_> = differences(&old, &new)
            .into_iter()
            .map(|(event, node)| format!("{event} {}", node.path()))
            .collect();
        let wanted = [
            "deleted /t/replaced",
            "deleted /t/gone/below",
            "deleted /t/gone",
            "created /t/new",
            "created /t/new/below",
            "created /t/replaced",
            "changed /t/written",
        ];
        assert_eq!(lines, wanted);
    }
}
