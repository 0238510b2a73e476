//! The workloads, written once for all clients. Each client implements [`Peer`].

use std::{
    collections::VecDeque,
    future::Future,
    hint::black_box,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join, stream::FuturesUnordered};

use crate::measure::{Arguments, SAMPLED, Timed, fail, must, sample};

pub(crate) const DATA: &[u8] = &[7; 100];
const NODE: &str = "/bench/node";
const KIDS: &str = "/bench/kids";
const CHILDREN: usize = 10_000;
const CONTENDERS: usize = 8;

/// A client.
#[allow(async_fn_in_trait)]
pub(crate) trait Peer: Sized + 'static {
    const NAME: &'static str;
    /// Whether a call queues its request. If not, the request is queued when the future is polled.
    const EAGER: bool;
    type Watch;
    type Guard;

    async fn connect(address: &str) -> Self;
    fn get(&self, path: &'static str) -> impl Future<Output = usize>;
    fn set(&self, path: &str) -> impl Future<Output = ()>;
    /// Creates a node. Returns whether it did not exist.
    fn create<'a>(&'a self, path: &'a str) -> impl Future<Output = bool> + 'a;
    fn delete<'a>(&'a self, path: &'a str) -> impl Future<Output = ()> + 'a;
    async fn children(&self, path: &str) -> Vec<String>;
    async fn watch(&self, path: &str) -> Self::Watch;
    async fn fired(watch: Self::Watch);
    async fn acquire(&self, path: &str) -> Self::Guard;
    async fn release(&self, guard: Self::Guard);
}

pub(crate) fn main<P: Peer>() {
    let arguments = Arguments::read();
    let mut builder = match std::env::var_os("MT") {
        Some(value) if value == "1" => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = must(builder.worker_threads(2).enable_all().build());
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(run::<P>(arguments)));
    // The shutdown of a client is not measured, and some clients never end it.
    runtime.shutdown_background();
}

async fn run<P: Peer>(arguments: Arguments) {
    let client = P::connect(&arguments.address).await;
    client.create("/bench").await;
    client.create(NODE).await;
    match arguments.workload.as_str() {
        "get-seq" => {
            sequential::<P>(&arguments, async || {
                black_box(client.get(NODE).await);
            })
            .await;
        }
        "get-pipe" => pipelined::<P, _>(&arguments, |_| client.get(NODE)).await,
        "set-pipe" => pipelined::<P, _>(&arguments, |_| client.set(NODE)).await,
        "create-delete-pipe" => {
            let window = arguments.window();
            let names: Vec<_> =
                (0..=window).map(|number| format!("/bench/pair-{number}")).collect();
            let names = &names;
            let pair = |index: usize| {
                let name = names[index % names.len()].as_str();
                join(client.create(name), client.delete(name))
            };
            let pairs = |n: usize| n.div_ceil(2);
            keep_window(pairs(arguments.warm_up()), window, P::EAGER, &pair, None).await;
            let mut timed = Timed::begin(arguments.n / SAMPLED + 1);
            keep_window(pairs(arguments.n), window, P::EAGER, &pair, Some(&mut timed)).await;
            timed.finish(P::NAME, &arguments.workload, 2 * pairs(arguments.n));
        }
        "children-10k" => {
            client.create(KIDS).await;
            if client.children(KIDS).await.len() != CHILDREN {
                for number in 0..CHILDREN {
                    client.create(&format!("{KIDS}/child-{number:010}")).await;
                }
            }
            sequential::<P>(&arguments, async || {
                let children = client.children(KIDS).await;
                let bytes: usize = children.iter().map(|name| black_box(name).len()).sum();
                black_box(bytes);
            })
            .await;
        }
        "watch-fanout" => watch_fanout(&client, &arguments).await,
        "lock-uncontended" => {
            sequential::<P>(&arguments, async || {
                let guard = client.acquire("/bench/lock").await;
                client.release(guard).await;
            })
            .await;
        }
        "lock-handoff" => lock_handoff::<P>(&arguments).await,
        other => fail(format_args!("no workload {other}")),
    }
}

async fn sequential<P: Peer>(arguments: &Arguments, operation: impl AsyncFn()) {
    for _ in 0..arguments.warm_up() {
        operation().await;
    }
    let mut timed = Timed::begin(arguments.n);
    for _ in 0..arguments.n {
        let from = Instant::now();
        operation().await;
        timed.ended(from);
    }
    timed.finish(P::NAME, &arguments.workload, arguments.n);
}

async fn pipelined<P: Peer, F: Future>(arguments: &Arguments, call: impl Fn(usize) -> F) {
    keep_window(arguments.warm_up(), arguments.window(), P::EAGER, &call, None).await;
    let mut timed = Timed::begin(arguments.n / SAMPLED + 1);
    keep_window(arguments.n, arguments.window(), P::EAGER, &call, Some(&mut timed)).await;
    timed.finish(P::NAME, &arguments.workload, arguments.n);
}

/// Keeps a window of requests in flight, at the lowest cost that the client allows.
async fn keep_window<F: Future>(
    n: usize,
    window: usize,
    eager: bool,
    call: impl Fn(usize) -> F,
    mut timed: Option<&mut Timed>,
) {
    let mut next = 0;
    let mut ended = |from: Option<Instant>| {
        if let (Some(from), Some(timed)) = (from, timed.as_deref_mut()) {
            timed.ended(from);
        }
    };
    if eager {
        let mut waiting: VecDeque<(Option<Instant>, Pin<Box<F>>)> = VecDeque::with_capacity(window);
        loop {
            while next < n && waiting.len() < window {
                waiting.push_back((sample(next), Box::pin(call(next))));
                next += 1;
            }
            let Some((from, future)) = waiting.pop_front() else { return };
            black_box(future.await);
            ended(from);
        }
    }
    let mut waiting = FuturesUnordered::new();
    loop {
        while next < n && waiting.len() < window {
            let (from, future) = (sample(next), call(next));
            waiting.push(async move {
                black_box(future.await);
                from
            });
            next += 1;
        }
        let Some(from) = waiting.next().await else { return };
        ended(from);
    }
}

fn watched(index: usize) -> String {
    format!("/bench/watched/w-{index:010}")
}

async fn watch_fanout<P: Peer>(client: &P, arguments: &Arguments) {
    client.create("/bench/watched").await;
    for index in 0..arguments.n {
        client.create(&watched(index)).await;
    }
    for (n, last) in [(arguments.warm_up(), false), (arguments.n, true)] {
        let paths: Vec<_> = (0..n).map(watched).collect();
        let mut watches = Vec::with_capacity(n);
        for path in &paths {
            watches.push(client.watch(path).await);
        }
        let mut timed = Timed::begin(n / SAMPLED + 1);
        let set = |index: usize| client.set(&paths[index]);
        keep_window(n, arguments.window(), P::EAGER, set, Some(&mut timed)).await;
        for watch in watches {
            P::fired(watch).await;
        }
        if last {
            timed.finish(P::NAME, &arguments.workload, n);
        }
    }
}

async fn lock_handoff<P: Peer>(arguments: &Arguments) {
    let mut contenders = Vec::new();
    for _ in 0..CONTENDERS {
        contenders.push(std::rc::Rc::new(P::connect(&arguments.address).await));
    }
    hand_off(&contenders, arguments.warm_up()).await;
    let mut timed = Timed::begin(arguments.n);
    let latencies = hand_off(&contenders, arguments.n).await;
    timed.add(latencies);
    timed.finish(P::NAME, &arguments.workload, arguments.n);
}

async fn hand_off<P: Peer>(contenders: &[std::rc::Rc<P>], acquires: usize) -> Vec<Duration> {
    let left = Arc::new(AtomicUsize::new(acquires));
    let released: Arc<Mutex<Option<Instant>>> = Arc::default();
    let mut tasks = Vec::new();
    for client in contenders {
        let (left, released, client) = (Arc::clone(&left), Arc::clone(&released), client.clone());
        tasks.push(tokio::task::spawn_local(async move {
            let mut latencies = Vec::new();
            let one_less = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                let guard = client.acquire("/bench/handoff").await;
                let from = released.lock().unwrap_or_else(PoisonError::into_inner).take();
                latencies.extend(from.map(|from| from.elapsed()));
                *released.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                client.release(guard).await;
            }
            latencies
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(must(task.await));
    }
    all
}
