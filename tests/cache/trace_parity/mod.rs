//! The cache sends the same requests as Curator, and has the same events.
//!
//! `../data/curator-cache-traces.txt` was recorded from Curator behind a proxy. Its commands, changes and cuts are played
//! here on the embedded server behind the tap of `docent-testing`. Scenarios without a defect of Curator are compared
//! request by request; of the others, the requests are the same without repetitions. Everywhere a close sends
//! removeWatches instead of checkWatches (C7). `docs/CURATOR.md` lists all scenarios, also those whose wanted
//! behaviour differs, with their tests.

mod by_design;

use std::collections::BTreeMap;

use docent::{
    Acl, CacheEvent, CacheOptions, CachedNode, Client, Config, CreateMode, CuratorCache, OpCode,
    Perms, acl,
};
use docent_testing::{
    TestingServer,
    server::{self, Version},
    tap::{CompareOptions, Record, Tap, TapClient, compare},
};
use tokio::task::JoinHandle;

use crate::{
    gzip, ms,
    support::{DEADLINE, eventually, recordings::assert_played_and_listed, within_deadline},
};

const TRACES: &str = include_str!("../../data/curator-cache-traces.txt");

/// A scenario, as far as it was played.
struct Player {
    tap: Tap,
    expected: &'static str,
    /// The requests and the events of the recording.
    expected_requests: String,
    expected_events: Vec<String>,
    /// The request whose reply is held back: nothing waits for it.
    held_back: Option<(OpCode, &'static str)>,
    writer: Client,
    client: Option<(Client, TapClient)>,
    caches: BTreeMap<String, CuratorCache>,
    events: Vec<JoinHandle<Vec<String>>>,
    storage: Vec<CachedNode>,
    _server: TestingServer,
}

impl Player {
    /// `nodes` are there at the start: paths and data.
    async fn start(title: &str, version: Version, nodes: &[(&str, &str)]) -> Self {
        let config = server::Config { version, ..Default::default() };
        let server = TestingServer::start_with(config).await.unwrap();
        let start = format!("=== {title}");
        let (_, rest) = TRACES.split_once(&start).unwrap_or_else(|| panic!("no scenario {title}"));
        let expected = rest.split("\n=== ").next().unwrap_or_default();
        let events = expected.lines().filter_map(|line| line.trim().strip_prefix("# A ! cache "));
        let (expected_events, held_back) = (events.map(str::to_owned).collect(), None);
        let writer = Client::connect(&server.connect_string()).await.unwrap();
        for (path, data) in nodes {
            writer.create(path, data.as_bytes(), CreateMode::Persistent).await.unwrap();
        }
        let tap = Tap::start(&server.connect_string()).await.unwrap();
        let (caches, events, storage) = (BTreeMap::new(), Vec::new(), Vec::new());
        let expected_requests = lines(expected);
        Self {
            tap,
            expected,
            expected_requests,
            expected_events,
            held_back,
            writer,
            client: None,
            caches,
            events,
            storage,
            _server: server,
        }
    }

    async fn play(mut self) -> Self {
        let tap = self.tap.client("A").await.unwrap();
        let config = Config::new(&tap.connect_string()).unwrap();
        let config = config.with_session_timeout(ms(20_000)).with_connection_timeout(DEADLINE);
        if !self.expected.contains("client started, server unreachable") {
            let client = config.clone().connect().await.unwrap();
            self.client = Some((client, tap));
        } else {
            tap.refuse().await.unwrap();
            self.client = Some((config.start(), tap));
        }
        for line in self.expected.lines().skip(1).map(str::trim) {
            let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
            let (client, tap) = self.client.as_ref().unwrap();
            if let Some(command) = line.strip_prefix("# elsewhere: ") {
                self.write(&words(command)).await;
                // A refused node is read again after a second.
                for cache in self.caches.values().filter(|_| command.starts_with("acl ")) {
                    let is_read = async || cache.failures().is_empty().then_some(());
                    eventually("the node is read again", is_read).await;
                }
            } else if let Some(command) = line.strip_prefix("# A: c") {
                self.command(&words(command)).await;
            } else if line.starts_with("# A: killsession") {
                tap.kill_session(DEADLINE).await.unwrap();
            } else if line == "# PROXY: refuse new connections on" {
                tap.refuse().await.unwrap();
            } else if line == "# PROXY: refuse new connections off" {
                tap.accept().await.unwrap();
                client.wait_until_connected(DEADLINE).await.unwrap();
            } else if line == "A xx PROXY: connection cut" {
                tap.cut();
            } else {
                continue;
            }
            if self.held_back.is_none() {
                self.settle().await;
            }
        }
        if self.held_back.is_some() {
            self.settle().await;
        }
        let (client, _) = self.client.as_ref().unwrap();
        client.close().await.unwrap();
        self
    }

    async fn write(&self, words: &[String]) {
        let word = |word: &'_ String| if word == "\"\"" { String::new() } else { word.clone() };
        let words: Vec<String> = words.iter().map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let writer = &self.writer;
        match words[..] {
            ["create", path, data] => {
                writer.create(path, data.as_bytes(), CreateMode::Persistent).await.map(drop)
            }
            ["set", path, data] => writer.set_data(path, data.as_bytes(), None).await.map(drop),
            ["createz", path, data] => {
                let data = gzip::compress(data.as_bytes());
                writer.create(path, &data, CreateMode::Persistent).await.map(drop)
            }
            ["setz", path, data] => {
                writer.set_data(path, &gzip::compress(data.as_bytes()), None).await.map(drop)
            }
            ["acl", path, "none"] => {
                let closed = [Acl::new(Perms::from_number(30), "world", "anyone")];
                writer.set_acl(path, &closed, None).await.map(drop)
            }
            ["acl", path, "open"] => {
                writer.set_acl(path, acl::OPEN_ACL_UNSAFE, None).await.map(drop)
            }
            ["delete", path] => writer.delete(path, None).await,
            ["rmr", path] => writer.delete_recursive(path).await,
            _ => Ok(()),
        }
        .unwrap();
    }

    /// `start`, `close` and so on: the commands of caches without their `c`.
    async fn command(&mut self, words: &[String]) {
        let handle = words[1].clone();
        match words[0].as_str() {
            "start" => {
                let has = |option: &str| words.iter().any(|word| word == option);
                let path = handle.strip_prefix("cache:").unwrap().split('#').next().unwrap();
                let mut options = CacheOptions::default();
                if has("single") {
                    options = CacheOptions::single_node();
                }
                if has("pcc") {
                    options = CacheOptions::direct_children();
                }
                if has("nodata") {
                    options = options.without_data();
                }
                if has("keep") {
                    options = options
                        .without_clear_on_close()
                        .with_initial_nodes(std::mem::take(&mut self.storage));
                }
                let (client, _) = self.client.as_ref().unwrap();
                let (cache, mut events) =
                    CuratorCache::start_with_events(client, path, options).unwrap();
                let is_connected =
                    client.state().borrow().is_some_and(|state| state.is_connected());
                if is_connected && let Some((op, path)) = self.held_back {
                    // The server has answered it when the next command changes the tree.
                    let is_it = |r: &Record| r.is_request(op) && r.path() == Some(path);
                    eventually("the request", async || {
                        self.tap.trace().iter().any(is_it).then_some(())
                    })
                    .await;
                } else if is_connected {
                    within_deadline("the load", cache.initialized()).await.unwrap();
                }
                self.caches.insert(handle.clone(), cache);
                let listener = Listener {
                    is_compressed: has("compressed"),
                    wrapper: ["pcc", "tree", "node"].into_iter().find(|name| has(name)),
                    root: path.to_owned(),
                };
                self.events.push(tokio::spawn(async move {
                    let mut lines = Vec::new();
                    while let Some(event) = events.next().await {
                        lines.extend(listener.line(&event).map(|line| format!("{handle} {line}")));
                    }
                    lines
                }));
            }
            "close" => {
                let cache = &self.caches[&handle];
                cache.close().await;
                self.storage = cache.snapshot();
            }
            _ => {}
        }
    }

    /// Waits until the client sends nothing more.
    async fn settle(&self) {
        let (client, _) = self.client.as_ref().unwrap();
        let mut before = (0, 0);
        eventually("no more requests", async || {
            let is_connected = client.state().borrow().is_some_and(|state| state.is_connected());
            if is_connected {
                // Behind all events so far.
                let _ = client.sync("/").await;
            }
            let sent = self.requests().lines().count();
            let same = if before.0 == sent { before.1 + 1 } else { 0 };
            before = (sent, same);
            (same >= 3 && (!is_connected || client.metrics().pending == 0)).then_some(())
        })
        .await;
    }

    fn requests(&self) -> String {
        lines(&self.tap.trace().text())
    }

    /// The requests of the recording for which docent sends others. Each must be there.
    fn differs(&mut self, requests: &str, ours: &str) {
        let (requests, ours) = (lines(requests), lines(ours));
        let expected = &mut self.expected_requests;
        assert!(expected.contains(&requests), "{requests}\nis not in\n{expected}");
        *expected = expected.replacen(&requests, &ours, 1);
    }

    /// The events of the recording that docent does not have, and those that it has instead.
    fn has_events(&mut self, instead_of: &[&str], ours: &[&str]) {
        for event in instead_of {
            let at = self.expected_events.iter().position(|expected| expected == event);
            self.expected_events.remove(at.unwrap_or_else(|| panic!("{event} is not recorded")));
        }
        self.expected_events.extend(ours.iter().map(|&event| event.to_owned()));
    }

    fn assert_equal(&self) {
        let options = CompareOptions::default();
        let expected = &self.expected_requests;
        if let Err(difference) = compare(expected, &self.requests(), &options) {
            panic!("{difference}\n\nactual trace:\n{}", self.tap.trace().text());
        }
    }

    /// The same requests as Curator's, none of them more often; only those whose text contains `of`.
    fn assert_equal_without_repetitions(&self, of: &str) {
        let counts = |text: &str| {
            let mut counts = counts(text);
            counts.retain(|request, _| request.contains(of));
            counts
        };
        let (expected, actual) = (counts(&lines(self.expected)), counts(&self.requests()));
        let keys = |counts: &BTreeMap<String, usize>| counts.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&expected), keys(&actual), "{}", self.tap.trace().text());
        for (request, count) in &actual {
            assert!(*count <= expected[request], "{count} times {request}");
        }
        assert!(actual.values().sum::<usize>() < expected.values().sum::<usize>());
    }

    /// The same events of each cache. Their order differs between the branches of a tree.
    async fn assert_events(self) {
        drop(self.caches);
        let mut actual = Vec::new();
        for events in self.events {
            actual.extend(within_deadline("the end", events).await.unwrap());
        }
        let mut expected = self.expected_events;
        actual.sort_unstable();
        expected.sort_unstable();
        assert_eq!(actual, expected);
    }
}

/// How the events of a cache are reported.
struct Listener {
    is_compressed: bool,
    /// `pcc`, `tree` or `node`.
    wrapper: Option<&'static str>,
    root: String,
}

impl Listener {
    fn value(&self, node: &CachedNode) -> String {
        let data = node.data().map(|data| match gzip::decompress(data) {
            Some(plain) if self.is_compressed => plain,
            _ => data.to_vec(),
        });
        let data = data.map_or_else(|| "-".into(), |data| String::from_utf8(data).unwrap());
        format!("{} {data}", node.stat().version)
    }

    fn line(&self, event: &CacheEvent) -> Option<String> {
        let (verb, node, old) = match event {
            CacheEvent::Created { node } => (0, node, None),
            CacheEvent::Changed { old, new } => (1, new, Some(old)),
            CacheEvent::Deleted { node } => (2, node, None),
            CacheEvent::Initialized { len } => {
                return match self.wrapper {
                    None => Some(format!("initialized {len}")),
                    Some("node") => None,
                    Some(_) => Some("INITIALIZED".to_owned()),
                };
            }
            _ => return None,
        };
        let verbs = match self.wrapper {
            None => ["created", "changed", "deleted"],
            Some("node") => return Some("nodeChanged".to_owned()),
            Some("pcc") if node.path() == self.root => return None,
            Some("pcc") => ["CHILD_ADDED", "CHILD_UPDATED", "CHILD_REMOVED"],
            Some(_) => ["NODE_ADDED", "NODE_UPDATED", "NODE_REMOVED"],
        };
        let line = format!("{} {} {}", verbs[verb], node.path(), self.value(node));
        Some(match old.filter(|_| self.wrapper.is_none()) {
            Some(old) => format!("{line} was {}", self.value(old)),
            None => line,
        })
    }
}

/// The requests of a trace, but those that differ everywhere.
fn lines(text: &str) -> String {
    let is_request = |line: &&str| {
        let left_out = ["checkWatches(", "removeWatches(", "sync(", "connect ", "closeSession("];
        line.contains(" -> ")
            && !line.contains('#')
            && !left_out.iter().any(|op| line.contains(&format!("-> {op}")))
    };
    text.lines().filter(is_request).map(|line| format!("{}\n", line.trim())).collect()
}

/// How often each request was sent, whatever the connection.
fn counts(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let (_, request) = line.split_once(" -> ").unwrap();
        let request = request.split("   [[").next().unwrap();
        // The watches to be set again differ in form.
        if !request.starts_with("setWatches") {
            *counts.entry(request.trim().to_owned()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test]
async fn d01_a_populated_tree() {
    let nodes = [("/d01", "root"), ("/d01/a", "A"), ("/d01/b", "B"), ("/d01/b/c", "C")];
    let player = Player::start("D01", Version::V3_9, &nodes).await.play().await;
    player.assert_equal();
    player.assert_events().await;
}

#[tokio::test]
async fn d02_a_missing_root() {
    let player = Player::start("D02", Version::V3_9, &[]).await.play().await;
    player.assert_equal();
    player.assert_events().await;
}

#[tokio::test]
async fn d03_a_single_node() {
    let player = Player::start("D03", Version::V3_9, &[("/d03", ""), ("/d03/n", "one")]).await;
    let player = player.play().await;
    player.assert_equal();
    player.assert_events().await;
}

/// Children are read once in a round. The kept nodes are listed again: whether the first cache knew all of their children
/// is not kept with them.
#[tokio::test]
async fn d05_a_kept_storage() {
    let nodes = [("/d05", "root"), ("/d05/a", "A"), ("/d05/b", "B")];
    let player = Player::start("D05", Version::V3_9, &nodes).await.play().await;
    player.assert_equal_without_repetitions("getData");
    player.assert_events().await;
}

/// C42: one watch for each connection. Children are read once.
#[tokio::test]
async fn d06_a_reconnect_in_the_same_session() {
    let nodes = [("/d06", "root"), ("/d06/a", "A"), ("/d06/b", "B"), ("/d06/b/c", "C")];
    let player = Player::start("D06", Version::V3_9, &nodes).await.play().await;
    player.assert_equal_without_repetitions("");
    player.assert_events().await;
}

/// Children are read once.
#[tokio::test]
async fn d08_an_expired_session() {
    let nodes = [("/d08", "root"), ("/d08/a", "A"), ("/d08/b", "B")];
    let player = Player::start("D08", Version::V3_9, &nodes).await.play().await;
    player.assert_equal_without_repetitions("");
    player.assert_events().await;
}

/// C42.
#[tokio::test]
async fn d09_started_before_connected() {
    let nodes = [("/d09", "root"), ("/d09/a", "A")];
    let player = Player::start("D09", Version::V3_9, &nodes).await.play().await;
    player.assert_equal_without_repetitions("");
    player.assert_events().await;
}

/// `TreeCache` reads changed nodes two or three times, and sends both watches of a node together. Its close checks each
/// watch.
#[tokio::test]
async fn d39_one_shot_watches_of_a_missing_root() {
    let player = Player::start("D39", Version::V3_4, &[]).await.play().await;
    let sent = counts(&player.requests());
    let reads = |request: &str| request.starts_with("get") || request.starts_with("exists");
    for (request, count) in counts(&lines(player.expected)) {
        if reads(&request) {
            assert!((1..=count).contains(&sent[&request]), "{request}: {sent:?}");
        }
    }
    assert_eq!(player.tap.trace().iter().filter(|r| r.is_request(OpCode::AddWatch)).count(), 1);
    player.assert_events().await;
}

#[test]
fn every_recorded_scenario_is_played_and_listed() {
    assert_played_and_listed(TRACES, &[include_str!("mod.rs"), include_str!("by_design.rs")]);
}
