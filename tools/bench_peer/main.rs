//! docent behind the command line that all measured clients share: `bench_peer HOST:PORT WORKLOAD N EXTRA`
//! does N operations and prints one line of JSON. EXTRA is the number in flight of pipelined workloads;
//! 0 stands for 1,000 for get-pipe and for 200 otherwise.
//!
//! | workload | what |
//! | --- | --- |
//! | get-seq | getData, one in flight |
//! | get-pipe | getData, many in flight on one connection |
//! | set-pipe | setData of 100 bytes |
//! | create-delete-pipe | create, and delete right behind it; each is an operation |
//! | children-10k | getChildren of 10,000, one in flight; every name is read |
//! | watch-fanout | N data watches (not timed), then N setData until the last event was seen |
//! | lock-uncontended | acquire and release of an InterProcessMutex |
//! | lock-handoff | 8 contenders, a connection each; latency from before a release to the next acquire |
//! | idle-sessions | N sessions and nothing else: for heap profilers; ends without closing them |
//! | idle-watches | N watches in one session, likewise |
//! | reconnect-watches | (null server) from the loss of a connection with N watches to the next reply |
//!
//! One thread, or with `MT=1` in the environment a runtime of two workers. Run by `cargo xtask bench`.

mod measure;

use std::{
    collections::VecDeque,
    hint::black_box,
    process::exit,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use docent::{
    Client, Config, CreateMode, ErrorKind, EventType, InterProcessMutex, LockOptions, Watcher,
    client::Response,
};
use measure::{Arguments, SAMPLED, Timed, fail, must, sample};
use tokio::{runtime, task::JoinSet};

const PEER: &str = "docent";
const ROOT: &str = "/bench";
const NODE: &str = "/bench/node";
const KIDS: &str = "/bench/kids";
const CHILDREN: usize = 10_000;
const DATA: [u8; 100] = [7; 100];
const CONTENDERS: usize = 8;
/// The path whose deletion makes the null server drop the connection.
const DROP_CONNECTION: &str = "/bench/drop-connection";
/// Number of requests in flight while nodes are created, which is not timed.
const SETUP_WINDOW: usize = 500;

fn main() {
    let arguments = Arguments::read();
    let mut builder = match std::env::var_os("MT") {
        Some(value) if value == "1" => runtime::Builder::new_multi_thread(),
        _ => runtime::Builder::new_current_thread(),
    };
    let runtime = must(builder.worker_threads(2).enable_all().build());
    if std::env::var_os("MT").is_some_and(|value| value == "1") {
        // Spawned, so that the measured task runs on a worker and not on the thread that waits for it.
        must(runtime.block_on(runtime.spawn(run(arguments))));
    } else {
        runtime.block_on(run(arguments));
    }
}

async fn run(arguments: Arguments) {
    let client = connect(&arguments).await;
    match arguments.workload.as_str() {
        "get-seq" => get_seq(&client, &arguments).await,
        "get-pipe" => get_pipe(&client, &arguments).await,
        "set-pipe" => set_pipe(&client, &arguments).await,
        "create-delete-pipe" => create_delete_pipe(&client, &arguments).await,
        "children-10k" => children(&client, &arguments).await,
        "watch-fanout" => watch_fanout(&client, &arguments).await,
        "lock-uncontended" => lock_uncontended(&client, &arguments).await,
        "lock-handoff" => lock_handoff(&client, &arguments).await,
        "idle-sessions" => idle_sessions(&arguments).await,
        "idle-watches" => idle_watches(&client, &arguments).await,
        "reconnect-watches" => reconnect_watches(&client, &arguments).await,
        other => fail(format_args!("no workload {other}")),
    }
    must(client.close().await);
}

async fn connect(arguments: &Arguments) -> Client {
    let config = must(Config::new(&arguments.address))
        .with_session_timeout(Duration::from_secs(30))
        .with_connection_timeout(Duration::from_secs(30));
    must(config.connect().await)
}

// Nodes.

async fn prepare_node(client: &Client) {
    ensure(client, ROOT).await;
    match client.get_data(NODE).await {
        Ok(node) if node.data.len() == DATA.len() => {}
        Ok(_) => drop(must(client.set_data(NODE, &DATA, None).await)),
        Err(_) => drop(must(client.create(NODE, &DATA, CreateMode::Persistent).await)),
    }
}

async fn prepare_children(client: &Client) {
    ensure(client, ROOT).await;
    ensure(client, KIDS).await;
    if must(client.get_children(KIDS).await).len() == CHILDREN {
        return;
    }
    make(client, (0..CHILDREN).map(|number| format!("{KIDS}/child-{number:010}"))).await;
}

async fn ensure(client: &Client, path: &str) {
    let created = client.create(path, b"", CreateMode::Persistent);
    must(created.allow(ErrorKind::NodeExists).await);
}

async fn make(client: &Client, paths: impl Iterator<Item = String>) {
    let mut waiting = VecDeque::new();
    for path in paths {
        let created = client.create(&path, &DATA, CreateMode::Persistent);
        waiting.push_back(created.allow(ErrorKind::NodeExists));
        if waiting.len() == SETUP_WINDOW
            && let Some(oldest) = waiting.pop_front()
        {
            must(oldest.await);
        }
    }
    for response in waiting {
        must(response.await);
    }
}

// Workloads.

/// Does one operation after the other.
async fn sequential<F: Future>(arguments: &Arguments, operation: impl Fn() -> F) {
    for _ in 0..arguments.warm_up() {
        black_box(operation().await);
    }
    let mut timed = Timed::begin(arguments.n);
    for _ in 0..arguments.n {
        let from = Instant::now();
        black_box(operation().await);
        timed.ended(from);
    }
    timed.finish(PEER, &arguments.workload, arguments.n);
}

async fn get_seq(client: &Client, arguments: &Arguments) {
    prepare_node(client).await;
    sequential(arguments, || async move { must(client.get_data(NODE).await) }).await;
}

async fn get_pipe(client: &Client, arguments: &Arguments) {
    prepare_node(client).await;
    pipelined(arguments, |_| client.get_data(black_box(NODE))).await;
}

async fn set_pipe(client: &Client, arguments: &Arguments) {
    prepare_node(client).await;
    pipelined(arguments, |_| client.set_data(black_box(NODE), &DATA, None)).await;
}

/// Keeps a window of requests in flight. Calls queue them and the server replies in order, so a queue holds them.
async fn pipelined<R>(arguments: &Arguments, call: impl Fn(usize) -> Response<R>) {
    run_window(arguments.warm_up(), arguments.window(), &call, None).await;
    let mut timed = Timed::begin(arguments.n / SAMPLED + 1);
    run_window(arguments.n, arguments.window(), &call, Some(&mut timed)).await;
    timed.finish(PEER, &arguments.workload, arguments.n);
}

async fn run_window<R>(
    n: usize,
    window: usize,
    call: impl Fn(usize) -> Response<R>,
    mut timed: Option<&mut Timed>,
) {
    let mut waiting = VecDeque::with_capacity(window);
    let mut sampled = VecDeque::with_capacity(window / SAMPLED + 1);
    let mut next = 0;
    for index in 0..n {
        while next < n && waiting.len() < window {
            if let Some(from) = sample(next) {
                sampled.push_back(from);
            }
            waiting.push_back(call(next));
            next += 1;
        }
        let Some(response) = waiting.front_mut() else { return };
        match response.await {
            // The future polls through a function pointer, so the compiler cannot optimise any of its work away.
            Ok(value) => drop(value),
            Err(error) => fail(error),
        }
        waiting.pop_front();
        if index.is_multiple_of(SAMPLED)
            && let (Some(from), Some(timed)) = (sampled.pop_front(), timed.as_deref_mut())
        {
            timed.ended(from);
        }
    }
}

async fn create_delete_pipe(client: &Client, arguments: &Arguments) {
    ensure(client, ROOT).await;
    // A window of pairs is in flight, and no two of them use the same name.
    let window = arguments.window();
    let names: Vec<_> = (0..=window).map(|number| format!("/bench/pair-{number}")).collect();
    let name = |index: usize| names.get(index % names.len()).map_or(NODE, String::as_str);
    let pairs = |n: usize| n.div_ceil(2);
    let run = async |pairs: usize, mut timed: Option<&mut Timed>| {
        let mut waiting = VecDeque::with_capacity(window);
        let mut next = 0;
        loop {
            while next < pairs && waiting.len() < window {
                let from = sample(2 * next);
                let create = client.create(name(next), &DATA, CreateMode::Persistent);
                waiting.push_back((from, create, client.delete(name(next), None)));
                next += 1;
            }
            let Some((from, create, delete)) = waiting.pop_front() else { return };
            black_box(must(create.await));
            if let (Some(from), Some(timed)) = (from, timed.as_deref_mut()) {
                timed.ended(from);
            }
            must(delete.await);
        }
    };
    run(pairs(arguments.warm_up()), None).await;
    let mut timed = Timed::begin(arguments.n / SAMPLED + 1);
    run(pairs(arguments.n), Some(&mut timed)).await;
    timed.finish(PEER, &arguments.workload, 2 * pairs(arguments.n));
}

async fn children(client: &Client, arguments: &Arguments) {
    prepare_children(client).await;
    let list = || async move {
        let children = must(client.get_children(KIDS).await);
        children.iter().map(|name| black_box(name).len()).sum::<usize>()
    };
    sequential(arguments, list).await;
}

fn watched(index: usize) -> String {
    format!("/bench/watched/w-{index:010}")
}

/// N nodes, each with a data watch.
async fn watch(client: &Client, n: usize) -> Vec<Watcher> {
    ensure(client, ROOT).await;
    ensure(client, "/bench/watched").await;
    make(client, (0..n).map(watched)).await;
    let mut watchers = Vec::with_capacity(n);
    let mut waiting = VecDeque::with_capacity(SETUP_WINDOW);
    let mut next = 0;
    loop {
        while next < n && waiting.len() < SETUP_WINDOW {
            waiting.push_back(client.get_data_and_watch(&watched(next)));
            next += 1;
        }
        let Some(response) = waiting.pop_front() else { return watchers };
        watchers.push(must(response.await).1);
    }
}

async fn watch_fanout(client: &Client, arguments: &Arguments) {
    let fan_out = async |n: usize, mut timed: Option<&mut Timed>| {
        let mut sent = VecDeque::with_capacity(arguments.window());
        let mut watchers: VecDeque<Watcher> = watch(client, n).await.into();
        let paths: Vec<_> = (0..n).map(watched).collect();
        if let Some(timed) = timed.as_deref_mut() {
            // The creation of the watches is not timed.
            *timed = Timed::begin(n / SAMPLED + 1);
        }
        let (mut next, mut paths) = (0, paths.iter());
        loop {
            while sent.len() < arguments.window()
                && let Some(path) = paths.next()
            {
                sent.push_back((sample(next), client.set_data(path, &DATA, None)));
                next += 1;
            }
            let (Some((from, response)), Some(mut watcher)) =
                (sent.pop_front(), watchers.pop_front())
            else {
                return;
            };
            black_box(must(response.await));
            let event = watcher.next().await;
            if event.is_none_or(|event| event.event_type != EventType::NodeDataChanged) {
                fail("a watch ended");
            }
            if let (Some(from), Some(timed)) = (from, timed.as_deref_mut()) {
                timed.ended(from);
            }
        }
    };
    fan_out(arguments.warm_up(), None).await;
    let mut timed = Timed::begin(0);
    fan_out(arguments.n, Some(&mut timed)).await;
    timed.finish(PEER, &arguments.workload, arguments.n);
}

fn mutex(client: &Client, path: &str) -> InterProcessMutex {
    must(InterProcessMutex::with_options(client, path, LockOptions::default()))
}

async fn lock_uncontended(client: &Client, arguments: &Arguments) {
    ensure(client, ROOT).await;
    let mutex = &mutex(client, "/bench/lock");
    let cycle = || async move { must(must(mutex.acquire().await).release().await) };
    sequential(arguments, cycle).await;
}

async fn lock_handoff(client: &Client, arguments: &Arguments) {
    ensure(client, ROOT).await;
    let mut contenders = Vec::new();
    for _ in 0..CONTENDERS {
        contenders.push(connect(arguments).await);
    }
    hand_off(&contenders, arguments.warm_up()).await;
    let mut timed = Timed::begin(arguments.n);
    let latencies = hand_off(&contenders, arguments.n).await;
    timed.add(latencies);
    timed.finish(PEER, &arguments.workload, arguments.n);
    for contender in contenders {
        must(contender.close().await);
    }
}

/// Acquires the lock this many times in all. Returns the duration of each hand-over.
async fn hand_off(contenders: &[Client], acquires: usize) -> Vec<Duration> {
    let left = Arc::new(AtomicUsize::new(acquires));
    let released: Arc<Mutex<Option<Instant>>> = Arc::default();
    let mut tasks = JoinSet::new();
    for client in contenders {
        let (left, released, client) = (Arc::clone(&left), Arc::clone(&released), client.clone());
        tasks.spawn(async move {
            let mutex = mutex(&client, "/bench/handoff");
            let mut latencies = Vec::new();
            let one_less = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                let guard = must(mutex.acquire().await);
                let from = released.lock().unwrap_or_else(PoisonError::into_inner).take();
                latencies.extend(from.map(|from| from.elapsed()));
                *released.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                must(guard.release().await);
            }
            latencies
        });
    }
    tasks.join_all().await.concat()
}

/// Exits without running destructors, so that a heap profiler sees the memory in use.
fn leave(timed: Timed, arguments: &Arguments) -> ! {
    timed.finish(PEER, &arguments.workload, arguments.n);
    exit(0)
}

async fn idle_sessions(arguments: &Arguments) {
    let timed = Timed::begin(0);
    let mut clients = Vec::with_capacity(arguments.n);
    for _ in 0..arguments.n {
        clients.push(connect(arguments).await);
    }
    leave(timed, arguments)
}

async fn idle_watches(client: &Client, arguments: &Arguments) {
    let timed = Timed::begin(0);
    let _watchers = watch(client, arguments.n).await;
    leave(timed, arguments)
}

async fn reconnect_watches(client: &Client, arguments: &Arguments) {
    let watchers = watch(client, arguments.n).await;
    let mut timed = Timed::begin(1);
    let from = Instant::now();
    // The server drops the connection instead of replying.
    let dropped = client.delete(DROP_CONNECTION, None).await;
    if !dropped.is_err_and(|error| error.kind() == ErrorKind::ConnectionLoss) {
        fail("this server does not drop connections on request");
    }
    black_box(must(client.get_data(NODE).await));
    timed.ended(from);
    timed.finish(PEER, &arguments.workload, arguments.n);
    if client.metrics().watches != watchers.len() {
        fail("watches were lost");
    }
}
