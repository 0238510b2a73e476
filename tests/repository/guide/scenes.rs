//! The scenes of the chapters.

use std::{future::Future, pin::Pin};

use docent::{
    AddWatchMode, CacheEvent, CacheOptions, ConnectionState, CreateMode, CuratorCache, ErrorKind,
    EventType, Events, LeaderLatch, OpCode,
    locks::{
        InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
        InterProcessSemaphoreV2, LockGuard,
    },
};
use docent_testing::{
    fault::Fault,
    tap::{Field, Record, Value, What},
};

use super::{
    by_hand::ByHand,
    diagram::Diagram,
    lock_scenes::{five_waiters, revocation},
    stage::{DEADLINE, Stage, options},
};

type Scene = Pin<Box<dyn Future<Output = Diagram>>>;

macro_rules! scenes {
    ($($name:ident)*) => {
        /// The scenes. On the heap, one at a time: a future with all of them would exceed the stack of a test.
        const SCENES: &[fn() -> Scene] = &[$(|| Box::pin($name())),*];
    };
}

// In the order of the guide.
scenes! {
    session persistent_watch
    naive_lock sequential_lock first_lock contended_lock timed_out_lock protected_create guaranteed_delete fencing
    read_write semaphore multi
    election deposed_leader reconnected_leader
    cache_load cache_changes cache_resync
    five_waiters revocation late_release
}

/// Plays a scene, by its place in the guide.
pub(crate) async fn play(number: usize) -> Option<Diagram> {
    Some(SCENES.get(number)?().await)
}

async fn session() -> Diagram {
    let mut stage =
        Stage::new("session", "A session, an ephemeral node and a one-shot watch").await;
    let a = stage.client_seen("A", "A connects: a session begins").await;
    let b = stage.client_seen("B", "B connects").await;
    let create = a.create("/here", b"", CreateMode::Ephemeral);
    stage.step("A", "A creates a node that lives as long as A's session", create).await;
    let (_, mut watcher) =
        stage.step("B", "B reads it, and leaves a watch", b.get_data_and_watch("/here")).await;
    stage.step("A", "A writes: B receives one event", a.set_data("/here", b"1", None)).await;
    assert_eq!(watcher.next().await.unwrap().event_type, EventType::NodeDataChanged);
    stage.step("A", "A writes again: B receives no event", a.set_data("/here", b"2", None)).await;
    stage.step("B", "B looks, and leaves another watch", b.exists_and_watch("/here")).await;
    let session = a.session().unwrap().session_id();
    stage.diagram.pause("A is silent for its whole session timeout");
    stage.vanish("A");
    assert!(stage.server.expire_session(session));
    let note =
        "A's process dies, and its session expires: the node is deleted, and B receives an event";
    stage.until("B", note, |record| record.is_event(EventType::NodeDeleted, "/here")).await;
    stage.diagram
}

async fn persistent_watch() -> Diagram {
    let mut stage = Stage::new("persistent-watch", "A persistent recursive watch").await;
    let [a, b] = stage.clients().await;
    stage.unrecorded(a.create("/tree", b"", CreateMode::Persistent)).await.unwrap();
    let add = b.add_watch("/tree", AddWatchMode::PersistentRecursive);
    let mut watcher = stage.step("B", "B watches a node and all below it, for good", add).await;
    stage.step("A", "A creates a child", a.create("/tree/x", b"", CreateMode::Persistent)).await;
    stage.step("A", "A writes it", a.set_data("/tree/x", b"1", None)).await;
    stage.step("A", "A deletes it", a.delete("/tree/x", None)).await;
    for expected in [EventType::NodeCreated, EventType::NodeDataChanged, EventType::NodeDeleted] {
        assert_eq!(watcher.next().await.unwrap().event_type, expected);
    }
    stage.diagram
}

fn by_hand<'a>(client: &'a docent::Client, name: &'a str) -> ByHand<'a> {
    ByHand { client, name, lock: "/lock" }
}

async fn naive_lock() -> Diagram {
    let mut stage = Stage::new("naive-lock", "The naive lock and its herd").await;
    let [a, b, c] = stage.clients().await;
    let [a, b, c] = [by_hand(&a, "A"), by_hand(&b, "B"), by_hand(&c, "C")];
    stage.step("A", "A creates the node: it holds the lock", a.create()).await;
    let mut waiting = Vec::new();
    for waiter in [&b, &c] {
        let note = format!("{} fails, and waits for the node to go", waiter.name);
        waiting.extend(stage.step(waiter.name, &note, waiter.create()).await);
    }
    stage.diagram.pause("A works; B and C wait");
    stage.step("A", "A deletes it: everybody is woken", a.release("/lock")).await;
    for watcher in &mut waiting {
        watcher.next().await;
    }
    stage.step("B", "B is the faster one", b.create()).await;
    stage.step("C", "C was woken for nothing", c.create()).await;
    stage.diagram
}

async fn late_release() -> Diagram {
    let title = "A late release deletes the node of the next holder";
    let mut stage = Stage::new("late-release", title).await;
    let [a, b, c] = stage.clients().await;
    let [first, second, third] = [by_hand(&a, "A"), by_hand(&b, "B"), by_hand(&c, "C")];
    stage.step("A", "A creates the node: it holds the lock", first.create()).await;
    stage.diagram.pause("A stands still for longer than its session timeout");
    let (mut states, session) = (a.states(), a.session().unwrap().session_id());
    assert!(stage.server.expire_session(session));
    let renewed = async {
        while states.next().await.unwrap() != ConnectionState::Lost.into() {}
        a.wait_until_connected(DEADLINE).await
    };
    stage.unrecorded(renewed).await.unwrap();
    let note = "A's session has expired, and its node is gone: B holds the lock";
    stage.step("B", note, second.create()).await;
    let note = "A continues, with a new session, and releases";
    stage.step("A", note, first.release("/lock")).await;
    stage.step("C", "The node was B's: now C holds the lock, too", third.create()).await;
    stage.diagram
}

async fn sequential_lock() -> Diagram {
    let mut stage = Stage::new("sequential-lock", "Each waits for the one before it").await;
    let [a, b, c] = stage.clients().await;
    stage.unrecorded(a.create("/lock", b"", CreateMode::Persistent)).await.unwrap();
    let clients = [by_hand(&a, "A"), by_hand(&b, "B"), by_hand(&c, "C")];
    let mut nodes: Vec<String> = Vec::new();
    let mut watchers = Vec::new();
    for contender in &clients {
        let enter = async {
            let mode = CreateMode::EphemeralSequential;
            let node = contender.client.create("/lock/n-", b"", mode).await?;
            let watcher = contender.look(&node).await?;
            nodes.push(node);
            Ok::<_, docent::Error>(watcher)
        };
        let note = match contender.name {
            "A" => "A's number is the lowest: it holds the lock",
            "B" => "B waits for A's node alone",
            _ => "C waits for B's node alone",
        };
        watchers.extend(stage.step(contender.name, note, enter).await);
    }
    stage.diagram.pause("A works; B and C wait");
    stage.step("A", "A leaves: only B is woken", clients[0].release(&nodes[0])).await;
    watchers[0].next().await;
    let ahead = stage.step("B", "B looks, and holds it", clients[1].look(&nodes[1])).await;
    assert!(ahead.is_none());
    assert_eq!(watchers[1].try_next(), None);
    stage.diagram
}

async fn first_lock() -> Diagram {
    let mut stage =
        Stage::new("first-lock", "The first acquire of a mutex whose parents are missing").await;
    let a = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&a, "/locks/printer", options()).unwrap();
    let guard = stage.step("A", "acquire(), the first ever", mutex.acquire()).await;
    stage.diagram.pause("A works");
    stage.step("A", "release()", guard.release()).await;
    let guard = stage.step("A", "acquire() again: two round trips", mutex.acquire()).await;
    stage.diagram.pause("A works");
    stage.step("A", "release()", guard.release()).await;
    stage.diagram
}

pub(super) fn mutex(client: &docent::Client) -> InterProcessMutex {
    InterProcessMutex::with_options(client, "/lock", options()).unwrap()
}

async fn contended_lock() -> Diagram {
    let mut stage = Stage::new("contended-lock", "A waits, B releases").await;
    let [a, b] = stage.clients_and(&["/lock"]).await;
    let (first, second) = (mutex(&a), mutex(&b));
    let guard = stage.step("A", "A acquires", first.acquire()).await;
    let waits = tokio::spawn(async move { second.acquire().await });
    stage
        .until("B", "B acquires: it is second, and watches the first", |record| {
            &*record.client == "B" && record.is_reply(OpCode::GetData)
        })
        .await;
    stage.diagram.pause("A works; B waits, and sends nothing but pings");
    let hand_over = async {
        guard.release().await?;
        waits.await.unwrap()
    };
    let guard =
        stage.step("A", "A releases: B is woken, looks, and holds the lock", hand_over).await;
    stage.diagram.pause("B works");
    stage.step("B", "B releases", guard.release()).await;
    stage.diagram
}

async fn timed_out_lock() -> Diagram {
    let mut stage =
        Stage::new("timed-out-lock", "A contender that gives up leaves nothing behind").await;
    let [a, b] = stage.clients_and(&["/lock"]).await;
    let (first, second) = (mutex(&a), mutex(&b));
    let guard = stage.step("A", "A acquires", first.acquire()).await;
    let wait = second.acquire_timeout(std::time::Duration::from_secs(1));
    let none = stage.step("B", "B waits for a second and no longer", wait).await;
    assert!(none.is_none());
    stage.diagram.pause_before_last_request("B", "one second");
    stage.diagram.pause("A works");
    let remark =
        "(B no longer waits. A watch stays on the server until it fires; B drops the event.)";
    stage.diagram.remark("B", "NodeDeleted", remark);
    stage.step("A", "A releases", guard.release()).await;
    stage.diagram
}

async fn protected_create() -> Diagram {
    let mut stage = Stage::new("protected-create", "The reply of a create is lost").await;
    let [a] = stage.clients_and(&["/lock"]).await;
    stage.tap.inject(Fault::drop_reply(OpCode::Create2));
    let mutex = mutex(&a);
    let note = "A acquires; the connection breaks after the server has made the node";
    let _guard = stage.step("A", note, mutex.acquire()).await;
    stage.diagram.pause("A works");
    let children = stage.unrecorded(a.get_children("/lock")).await.unwrap();
    assert_eq!(children.len(), 1, "one node, not two");
    stage.diagram
}

async fn guaranteed_delete() -> Diagram {
    let mut stage = Stage::new("guaranteed-delete", "A delete is lost").await;
    let [a] = stage.clients_and(&["/lock"]).await;
    let mutex = mutex(&a);
    let guard = stage.step("A", "A acquires", mutex.acquire()).await;
    stage.diagram.pause("A works");
    stage.tap.inject(Fault::drop_before(OpCode::Delete));
    let note = "A releases; the connection breaks before the server has read the delete";
    stage.step("A", note, guard.release()).await;
    let children = stage.unrecorded(a.get_children("/lock")).await.unwrap();
    assert_eq!(children.len(), 0, "nothing is left");
    stage.diagram
}

/// Two clients believe that they hold one lock; the server refuses the write of the one that does not.
async fn fencing() -> Diagram {
    let mut stage =
        Stage::new("fencing", "Two clients believe in their lock, and one may write").await;
    let [a, b] = stage.clients_and(&["/lock"]).await;
    stage.unrecorded(a.create("/account", b"100", CreateMode::Persistent)).await.unwrap();
    let (first, second) = (mutex(&a), mutex(&b));
    let write = |guard: &LockGuard, data: &'static [u8]| {
        guard.guarded().unwrap().set_data("/account", data, None).commit()
    };
    let old = stage.step("A", "A acquires", first.acquire()).await;
    stage.step("A", "A writes, on condition that its lock node is there", write(&old, b"90")).await;
    let note = "A's node goes: deleted by hand here, by an expired session more often. A receives no event";
    stage.step("B", note, b.delete(old.path(), None)).await;
    let new = stage.step("B", "B acquires: now both believe", second.acquire()).await;
    assert!(old.is_held() && new.is_held());
    let tokens =
        stage.unrecorded(async { (old.fencing_token().await, new.fencing_token().await) }).await;
    assert!(tokens.0.unwrap() < tokens.1.unwrap());
    stage.diagram.pause("A does not notice");
    stage.step("B", "B writes, on condition that its own node is there", write(&new, b"70")).await;
    stage.diagram.pause("A continues, and still believes");
    let refused = async {
        let error = write(&old, b"80").await.expect_err("its node is gone");
        assert_eq!((error.kind(), error.index()), (ErrorKind::NoNode, Some(0)));
        Ok::<_, docent::Error>(())
    };
    stage.step("A", "A writes on the same condition: refused, all of it", refused).await;
    let account = stage.unrecorded(b.get_data("/account")).await.unwrap();
    assert_eq!(account.data, "70");
    stage.diagram
}

async fn read_write() -> Diagram {
    let mut stage = Stage::new("read-write", "Two readers and a writer").await;
    let lock = |client: &docent::Client| {
        InterProcessReadWriteLock::with_options(client, "/lock", options()).unwrap()
    };
    let [a, b, c] = stage.clients_and(&["/lock"]).await;
    let (first, second, third) = (lock(&a), lock(&b), lock(&c));
    let one = stage.step("A", "A reads", first.read_lock().acquire()).await;
    let two = stage.step("B", "B reads beside it", second.read_lock().acquire()).await;
    let waits = tokio::spawn(async move { third.write_lock().acquire().await });
    stage
        .until(
            "C",
            "C writes, when those before it are gone: it watches the last of them",
            |record| &*record.client == "C" && record.is_reply(OpCode::GetData),
        )
        .await;
    stage.diagram.pause("A and B read; C waits");
    stage.step("A", "A releases: no waiter is woken", one.release()).await;
    let hand_over = async {
        two.release().await?;
        waits.await.unwrap()
    };
    let _writing = stage.step("B", "B releases: C is woken, and writes", hand_over).await;
    stage.diagram
}

async fn semaphore() -> Diagram {
    let mut stage = Stage::new("semaphore", "One lease for two").await;
    let semaphore = |client: &docent::Client| {
        InterProcessSemaphoreV2::with_options(client, "/semaphore", 1, options()).unwrap()
    };
    let nodes = ["/semaphore", "/semaphore/locks", "/semaphore/leases"];
    let [a, b] = stage.clients_and(&nodes).await;
    let (first, second) = (semaphore(&a), semaphore(&b));
    let lease = stage.step("A", "A takes the lease", first.acquire()).await;
    let waits = tokio::spawn(async move { second.acquire().await });
    let remark = "(A has its lease. checkWatches has removed the watch from A's table, not from the server; A drops the event.)";
    stage.diagram.remark("A", "NodeChildrenChanged", remark);
    stage
        .until("B", "B holds the inner mutex while it waits for a lease", |record| {
            &*record.client == "B"
                && record.is_reply(OpCode::GetChildren2)
                && matches!(&record.what, What::Reply { fields, .. } if has_leases(fields))
        })
        .await;
    stage.diagram.pause("A uses its lease; B waits");
    let hand_over = async {
        lease.release().await?;
        waits.await.unwrap()
    };
    let _lease = stage.step("A", "A gives its lease back: B is woken, and has it", hand_over).await;
    stage.diagram
}

/// Whether the fields are those of a listing of two leases.
fn has_leases(fields: &[Field]) -> bool {
    let names = fields.iter().find_map(|field| match &field.value {
        Value::List(names) => Some(names),
        _ => None,
    });
    names.is_some_and(|names| names.iter().filter(|name| name.contains("-lease-")).count() == 2)
}

async fn multi() -> Diagram {
    let mut stage = Stage::new("multi-lock", "Two locks or none").await;
    let [a, b] = stage.clients_and(&["/one", "/two"]).await;
    let other = InterProcessMutex::with_options(&b, "/two", options()).unwrap();
    let _held = stage.step("B", "B holds the second lock", other.acquire()).await;
    let both = InterProcessMultiLock::with_options(&a, &["/one", "/two"], &options()).unwrap();
    let wait = both.acquire_timeout(std::time::Duration::from_secs(1));
    let none =
        stage.step("A", "A gets the first, not the second, and gives the first back", wait).await;
    assert!(none.is_none());
    stage.diagram.pause_before_delete_of("A", "/two", "one second");
    stage.diagram
}

fn latch(client: &docent::Client, id: &str) -> LeaderLatch {
    LeaderLatch::start_with(client, "/election", id, options()).unwrap()
}

/// Whether a client has the reply to a watching read: it then leads, or waits.
pub(super) fn has_read(label: &'static str) -> impl FnMut(&Record) -> bool {
    move |record| &*record.client == label && record.is_reply(OpCode::GetData)
}

async fn election() -> Diagram {
    let mut stage = Stage::new("election", "Three participants, one leader").await;
    let [a, b, c] = stage.clients_and(&["/election"]).await;
    let first = latch(&a, "a");
    let leads = first.leadership();
    stage.step("A", "A joins, is first, and leads; it watches its own node", leads).await;
    let second = latch(&b, "b");
    stage.until("B", "B joins, and watches A's node", has_read("B")).await;
    let third = latch(&c, "c");
    stage.until("C", "C joins, and watches B's node", has_read("C")).await;
    let hand_over = async {
        first.close().await?;
        second.leadership().await
    };
    stage.diagram.pause("A leads; B and C wait");
    let remark =
        "(A has left. Its watch on its own node fires at its own delete; A drops the event.)";
    stage.diagram.remark("A", "NodeDeleted", remark);
    let note = "A leaves: only B is woken, looks, and leads";
    let leadership = stage.step("A", note, hand_over).await;
    assert!(leadership.is_held() && third.current_leadership().is_none());
    stage.diagram
}

async fn deposed_leader() -> Diagram {
    let mut stage = Stage::new("deposed-leader", "The leader's node is deleted").await;
    let [a, b] = stage.clients_and(&["/election"]).await;
    let first = latch(&a, "a");
    let leadership = stage.step("A", "A leads", first.leadership()).await;
    let second = latch(&b, "b");
    stage.until("B", "B waits", has_read("B")).await;
    stage.diagram.pause("A leads; B waits");
    // Otherwise B's listing may or may not contain A's second node.
    let delay = std::time::Duration::from_secs(1);
    stage.tap.inject(Fault::delay_request(OpCode::Create2, delay).of("A"));
    b.delete(leadership.path(), None).await.unwrap();
    leadership.lost().await;
    let next = second.leadership().await.unwrap();
    let note = "an operator deletes A's node (here by B's connection): B leads, and A queues again";
    stage.until("B", note, has_read("A")).await;
    assert!(!leadership.is_held() && next.is_held());
    stage.diagram
}

async fn reconnected_leader() -> Diagram {
    let mut stage = Stage::new("reconnected-leader", "The leader's connection breaks").await;
    let [a] = stage.clients_and(&["/election"]).await;
    let latch = latch(&a, "a");
    let first = stage.step("A", "A leads", latch.leadership()).await;
    let again = async {
        stage.tap_client("A").cut();
        first.lost().await;
        latch.leadership().await
    };
    let second = again.await.unwrap();
    stage.diagram.pause("A leads");
    let note = "the connection breaks: the leadership ends at once. With the next connection, A looks, and leads again";
    stage.step("A", note, async { Ok::<_, docent::Error>(()) }).await;
    assert_eq!(first.path(), second.path());
    assert_eq!((first.epoch(), second.epoch()), (1, 2));
    stage.diagram
}

/// A tree of three nodes, and the cache of client A, loaded.
async fn cached(stage: &mut Stage, a: &docent::Client) -> (CuratorCache, Events<CacheEvent>) {
    for (path, data) in [("/app", "one"), ("/app/x", "X"), ("/app/y", "Y")] {
        stage.unrecorded(a.create(path, data.as_bytes(), CreateMode::Persistent)).await.unwrap();
    }
    let options = CacheOptions::default();
    CuratorCache::start_with_events(a, "/app", options).unwrap()
}

/// Waits for an event of the cache.
async fn until(
    events: &mut Events<CacheEvent>,
    is_it: impl Fn(&CacheEvent) -> bool,
) -> Result<(), docent::Error> {
    while !events.next().await.is_some_and(|event| is_it(&event)) {}
    Ok(())
}

async fn cache_load() -> Diagram {
    let mut stage = Stage::new("cache-load", "A cache loads a tree").await;
    let a = stage.client("A").await;
    let (cache, _events) = cached(&mut stage, &a).await;
    let note = "A starts a cache: first the watch, then the nodes, each with its children";
    stage.step("A", note, cache.initialized()).await;
    assert_eq!(cache.len(), 3);
    stage.diagram
}

async fn cache_changes() -> Diagram {
    let mut stage = Stage::new("cache-changes", "A cache follows changes").await;
    let [a, b] = stage.clients().await;
    let (cache, mut events) = cached(&mut stage, &a).await;
    stage.unrecorded(cache.initialized()).await.unwrap();
    let write = async {
        b.set_data("/app/x", b"X2", None).await?;
        until(&mut events, |event| matches!(event, CacheEvent::Changed { .. })).await
    };
    stage.step("B", "B writes a node: A receives an event, and reads", write).await;
    b.create("/app/z", b"Z", CreateMode::Persistent).await.unwrap();
    // The cache reports the node before it has listed the children.
    let note = "B creates a node: A reads it, and lists its children";
    let listed = |record: &Record| &*record.client == "A" && record.is_reply(OpCode::GetChildren2);
    stage.until("B", note, listed).await;
    let is_z = |event: &CacheEvent| matches!(event, CacheEvent::Created { node } if node.path() == "/app/z");
    until(&mut events, is_z).await.unwrap();
    let delete = async {
        b.delete("/app/y", None).await?;
        until(&mut events, |event| matches!(event, CacheEvent::Deleted { .. })).await
    };
    stage.step("B", "B deletes a node: the event says everything", delete).await;
    stage
        .step("A", "A closes the cache: the watch is removed", async {
            cache.close().await;
            Ok::<_, docent::Error>(())
        })
        .await;
    stage.diagram
}

async fn cache_resync() -> Diagram {
    let mut stage = Stage::new("cache-resync", "A cache after an outage").await;
    let [a, b] = stage.clients().await;
    let (cache, mut events) = cached(&mut stage, &a).await;
    stage.unrecorded(cache.initialized()).await.unwrap();
    stage.tap_client("A").refuse().await.unwrap();
    stage.tap_client("A").cut();
    let is_stale = |event: &CacheEvent| matches!(event, CacheEvent::Stale);
    until(&mut events, is_stale).await.unwrap();
    b.delete("/app/x", None).await.unwrap();
    b.create("/app/x", b"another", CreateMode::Persistent).await.unwrap();
    stage.tap_client("A").accept().await.unwrap();
    let is_resynced = |event: &CacheEvent| matches!(event, CacheEvent::Resynced { .. });
    until(&mut events, is_resynced).await.unwrap();
    stage.diagram.pause("A's connection breaks; A sees nothing");
    let note = "A is cut off, and B replaces a node meanwhile. With the next connection the watch is set again; it \
        reports nothing that was missed, so A reads every node";
    stage.step("B", note, async { Ok::<_, docent::Error>(()) }).await;
    stage.diagram.pause_before_first_frame("A", "A reconnects");
    assert_eq!(cache.get("/app/x").unwrap().data().map(|data| &**data), Some(&b"another"[..]));
    stage.diagram
}
