//! Tests of the cache, on the embedded server in all versions and, where possible, on a real one. Cn: a defect of
//! Curator in `docs/CURATOR.md`.

#[macro_use]
extern crate docent_tests as support;

mod curator_cache;
mod faults;
mod initial;

use docent::{
    CacheEvent, CacheOptions, Client, CreateMode, CuratorCache, ErrorKind, Events, OpCode,
    cache::CachedNode,
};
use docent_testing::{
    TestingServer,
    server::{self, Version},
};
use std::{sync::Arc, time::Duration};
use support::{eventually, fixture::Fixture, has_watches, ms, until, within_deadline};

async fn next(events: &mut Events<CacheEvent>) -> CacheEvent {
    within_deadline("an event", events.next()).await.expect("the cache is open")
}

async fn initialized(cache: &CuratorCache) {
    within_deadline("the load", cache.initialized()).await.unwrap();
}

/// A node as text: its version and data.
fn value(node: &CachedNode) -> String {
    let data = node.data().map_or_else(|| "-".into(), |data| String::from_utf8_lossy(data));
    format!("{} {data}", node.stat().version)
}

/// An event as text: its kind, the path below `root`, the version and the data.
fn short(event: &CacheEvent, root: &str) -> String {
    let node =
        |node: &CachedNode| format!("{} {}", node.path().strip_prefix(root).unwrap(), value(node));
    match event {
        CacheEvent::Created { node: new } => format!("created {}", node(new)),
        CacheEvent::Changed { old, new } => format!("changed {} was {}", node(new), value(old)),
        CacheEvent::Deleted { node: old } => format!("deleted {}", node(old)),
        CacheEvent::Initialized { len } => format!("initialized {len}"),
        CacheEvent::Resynced { len } => format!("resynced {len}"),
        CacheEvent::Stale => "stale".to_owned(),
        CacheEvent::Failed { path, error } => {
            format!("failed {} {:?}", path.strip_prefix(root).unwrap(), error.kind())
        }
        other => panic!("{other:?}"),
    }
}

/// Waits for these events, in this order.
async fn expect(events: &mut Events<CacheEvent>, root: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert_eq!(short(&next(events).await, root), *wanted);
    }
}

/// Waits for these events, in any order, and up to the last one.
async fn expect_all(events: &mut Events<CacheEvent>, root: &str, wanted: &[&str], last: &str) {
    let mut seen = Vec::new();
    loop {
        let event = short(&next(events).await, root);
        if event == last {
            break;
        }
        seen.push(event);
    }
    seen.sort_unstable();
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}

/// `path version data` of all nodes.
fn list(cache: &CuratorCache, root: &str) -> Vec<String> {
    let text =
        |node: &CachedNode| format!("{} {}", node.path().strip_prefix(root).unwrap(), value(node));
    cache.snapshot().iter().map(text).collect()
}
