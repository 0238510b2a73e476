//! The workloads of a client process: one or several contenders for one service.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};
use tokio::{runtime::Builder, sync::Notify, task::LocalSet, time::timeout};

use xtask::{Arguments, Result};

use super::services::{Service, Target};
use crate::{
    proxy::Proxy,
    statistics::{cpu_seconds, distribution, memory as memory_of},
    with_service,
};

/// Cycles before anything is measured.
const WARM_UP: usize = 20;

/// How long a contender in a hand-off holds the lock, while others queue.
const HOLD: Duration = Duration::from_millis(2);

/// The time limit of a connect, and of the warm-up.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(service: &str, workload: &str, arguments: &Arguments) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let work = async {
        let outcome: Result<Value> = with_service!(service, dispatch(workload, arguments));
        println!("{}", outcome?);
        // Waiting contenders are neither awaited nor dropped, because dropping them makes some clients send requests.
        std::process::exit(0)
    };
    LocalSet::new().block_on(&runtime, work)
}

async fn dispatch<S: Service>(workload: &str, arguments: &Arguments) -> Result<Value> {
    match workload {
        "cycle" => cycle::<S>(arguments).await,
        "count" => count::<S>(arguments).await,
        "handoff" => handoff::<S>(arguments).await,
        "throughput" => throughput::<S>(arguments).await,
        "waiters" => waiters::<S>(arguments).await,
        "memory" => memory::<S>(arguments).await,
        other => Err(format!("no workload {other:?}").into()),
    }
}

/// CPU time of this process and of the servers since the start of a measurement.
struct Cpu {
    pids: Vec<u32>,
    client: f64,
    server: f64,
}

impl Cpu {
    fn start(arguments: &Arguments) -> Self {
        let pids = pids(arguments);
        let server = cpu_seconds(&pids);
        Self { pids, client: own_cpu_seconds(), server }
    }

    /// The CPU seconds of the client and of the servers.
    fn end(&self) -> (f64, f64) {
        let client = own_cpu_seconds() - self.client;
        (client, cpu_seconds(&self.pids) - self.server)
    }
}

fn own_cpu_seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0.0 };
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// The name of the lock, or a prefix of the names.
fn name(arguments: &Arguments) -> &str {
    arguments.text("name").unwrap_or("bench")
}

/// The processes of the servers.
fn pids(arguments: &Arguments) -> Vec<u32> {
    let ids = arguments.text("pids").unwrap_or_default();
    ids.split(',').filter_map(|id| id.parse().ok()).collect()
}

fn duration(arguments: &Arguments) -> Result<Duration> {
    Ok(Duration::from_secs_f64(arguments.number("seconds", 1.0)?))
}

async fn one_cycle<S: Service>(service: &S, lock: &str) -> Result<()> {
    let guard = service.acquire(lock).await?;
    service.release(guard).await
}

/// Acquires and releases a lock without contention, in a loop.
async fn cycle<S: Service>(arguments: &Arguments) -> Result<Value> {
    let (length, lock) = (duration(arguments)?, name(arguments));
    let service = S::connect(&Target::new(arguments)?).await?;
    service.prepare(lock).await?;
    for _ in 0..WARM_UP {
        one_cycle(&service, lock).await?;
    }
    let cpu = Cpu::start(arguments);
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < length {
        let from = Instant::now();
        one_cycle(&service, lock).await?;
        times.push(from.elapsed());
    }
    let (client, server) = cpu.end();
    let n = times.len() as f64;
    Ok(json!({
        "cycles": times.len(),
        "quantiles": distribution(&mut times),
        "client_cpu_us": client * 1e6 / n,
        "server_cpu_us": server * 1e6 / n,
    }))
}

/// A target that reaches the servers through counting proxies.
fn proxied(target: &Target) -> Result<(Target, Vec<Proxy>)> {
    let proxies: Result<Vec<_>> = target.addresses.iter().map(|to| Proxy::start(to)).collect();
    let proxies = proxies?;
    let addresses = proxies.iter().map(Proxy::address).collect();
    Ok((Target { addresses, lease: target.lease }, proxies))
}

/// The round trips and the bytes through all proxies.
fn counted(proxies: &[Proxy]) -> (f64, f64) {
    let counts = || proxies.iter().map(Proxy::counts);
    let client_turns: u64 = counts().map(|counts| counts.client_turns).sum();
    (client_turns as f64, counts().map(|counts| counts.bytes).sum::<u64>() as f64)
}

/// Counts the round trips and bytes of a cycle.
async fn count<S: Service>(arguments: &Arguments) -> Result<Value> {
    const CYCLES: usize = 100;
    let (target, proxies) = proxied(&Target::new(arguments)?)?;
    let (service, lock) = (S::connect(&target).await?, name(arguments));
    service.prepare(lock).await?;
    for _ in 0..WARM_UP {
        one_cycle(&service, lock).await?;
    }
    let before = counted(&proxies);
    for _ in 0..CYCLES {
        one_cycle(&service, lock).await?;
    }
    let after = counted(&proxies);
    Ok(json!({
        "flights": (after.0 - before.0) / CYCLES as f64,
        "bytes": (after.1 - before.1) / CYCLES as f64,
    }))
}

/// The contenders of one lock, and the order in which they acquire it.
#[derive(Default)]
struct Queue {
    next: Cell<u64>,
    waiting: RefCell<BTreeSet<u64>>,
    released: Cell<Option<Instant>>,
    latencies: RefCell<Vec<Duration>>,
    waits: RefCell<Vec<Duration>>,
    overtaken: RefCell<Vec<u64>>,
    warm_up: Cell<usize>,
    grants: Cell<u64>,
    changed: Notify,
    stop: Cell<bool>,
    error: RefCell<Option<xtask::Error>>,
}

impl Queue {
    fn ask(&self) -> u64 {
        let ticket = self.next.replace(self.next.get() + 1);
        self.waiting.borrow_mut().insert(ticket);
        ticket
    }

    /// Counts a grant with its latency, and the contenders that asked earlier and are still waiting.
    fn granted(&self, ticket: u64, waited: Duration) {
        self.grants.set(self.grants.get() + 1);
        self.changed.notify_waiters();
        let mut waiting = self.waiting.borrow_mut();
        waiting.remove(&ticket);
        if self.warm_up.get() > 0 {
            // At the start, all contenders ask at the same time, so their order means nothing.
            self.warm_up.set(self.warm_up.get() - 1);
            return;
        }
        self.overtaken.borrow_mut().push(waiting.range(..ticket).count() as u64);
        self.waits.borrow_mut().push(waited);
        if let Some(released) = self.released.get() {
            self.latencies.borrow_mut().push(released.elapsed());
        }
    }
}

/// Runs contenders that pass one lock around, each with its own connection.
async fn handoff<S: Service>(arguments: &Arguments) -> Result<Value> {
    let (length, lock) = (duration(arguments)?, name(arguments).to_owned());
    let contenders: usize = arguments.number("contenders", 8)?;
    let target = Target::new(arguments)?;
    let queue = Rc::new(Queue::default());
    queue.warm_up.set(2 * contenders);
    let mut services = Vec::new();
    for _ in 0..contenders {
        services.push(timeout(LIMIT, S::connect(&target)).await??);
    }
    if let Some(service) = services.first() {
        service.prepare(&lock).await?;
    }
    let cpu = Cpu::start(arguments);
    for service in services {
        let (queue, lock) = (Rc::clone(&queue), lock.clone());
        tokio::task::spawn_local(async move {
            if let Err(error) = contend(&service, &queue, &lock).await {
                *queue.error.borrow_mut() = Some(error);
            }
            std::mem::forget(service);
        });
    }
    let warm = Instant::now();
    while queue.warm_up.get() > 0 && warm.elapsed() < LIMIT {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let begin = Instant::now();
    tokio::time::sleep(length).await;
    let elapsed = begin.elapsed().as_secs_f64();
    queue.stop.set(true);
    queue.changed.notify_waiters();
    if let Some(error) = queue.error.borrow_mut().take() {
        return Err(error);
    }
    let (client, server) = cpu.end();
    let overtaken = queue.overtaken.borrow();
    let grants = overtaken.len().max(1) as f64;
    let some = overtaken.iter().filter(|count| **count > 0).count() as f64;
    Ok(json!({
        "grants": overtaken.len(),
        "per_second": overtaken.len() as f64 / elapsed,
        "quantiles": distribution(&mut queue.latencies.borrow_mut()),
        "wait_quantiles": distribution(&mut queue.waits.borrow_mut()),
        "overtakes_per_grant": overtaken.iter().sum::<u64>() as f64 / grants,
        "grants_that_overtake": some / grants,
        "client_cpu_us": client * 1e6 / grants,
        "server_cpu_us": server * 1e6 / grants,
    }))
}

async fn contend<S: Service>(service: &S, queue: &Queue, lock: &str) -> Result<()> {
    while !queue.stop.get() {
        let (asked, ticket) = (Instant::now(), queue.ask());
        let guard = service.acquire(lock).await?;
        queue.granted(ticket, asked.elapsed());
        let grants = queue.grants.get();
        tokio::time::sleep(HOLD).await;
        queue.released.set(Some(Instant::now()));
        service.release(guard).await?;
        // Waits until another contender has the lock: otherwise, a client that polls would acquire it again before
        // all others.
        loop {
            let changed = queue.changed.notified();
            if queue.grants.get() > grants || queue.stop.get() {
                break;
            }
            changed.await;
        }
    }
    Ok(())
}

/// Runs the cycles of several clients, each with its own lock.
async fn throughput<S: Service>(arguments: &Arguments) -> Result<Value> {
    let length = duration(arguments)?;
    let locks: usize = arguments.number("locks", 1)?;
    let target = Target::new(arguments)?;
    let cycles = Rc::new(Cell::new(0_u64));
    let counting = Rc::new(Cell::new(false));
    let failure = Rc::new(RefCell::new(None));
    let mut services = Vec::new();
    for number in 0..locks {
        let lock = format!("{}-{number}", name(arguments));
        let service = timeout(LIMIT, S::connect(&target)).await??;
        service.prepare(&lock).await?;
        services.push((service, lock));
    }
    for (service, lock) in services {
        let (cycles, counting) = (Rc::clone(&cycles), Rc::clone(&counting));
        let failure = Rc::clone(&failure);
        tokio::task::spawn_local(async move {
            loop {
                if let Err(error) = one_cycle(&service, &lock).await {
                    *failure.borrow_mut() = Some(error);
                    return;
                }
                cycles.set(cycles.get() + u64::from(counting.get()));
                // A client that does not wait for a network, such as the file lock, must yield too.
                tokio::task::yield_now().await;
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cpu = Cpu::start(arguments);
    counting.set(true);
    let begin = Instant::now();
    tokio::time::sleep(length).await;
    let elapsed = begin.elapsed().as_secs_f64();
    let n = cycles.get() as f64;
    let (client, server) = cpu.end();
    if let Some(error) = failure.borrow_mut().take() {
        return Err(error);
    }
    Ok(json!({
        "per_second": n / elapsed,
        "client_cpu_us": client * 1e6 / n.max(1.0),
        "server_cpu_us": server * 1e6 / n.max(1.0),
    }))
}

/// Measures the cost of waiting: all contenders except the holder use counting proxies.
async fn waiters<S: Service>(arguments: &Arguments) -> Result<Value> {
    let (length, lock) = (duration(arguments)?, name(arguments).to_owned());
    let count: usize = arguments.number("contenders", 8)?;
    let target = Target::new(arguments)?;
    let holder = S::connect(&target).await?;
    holder.prepare(&lock).await?;
    let guard = holder.acquire(&lock).await?;
    let (target, proxies) = proxied(&target)?;
    for _ in 0..count {
        let service = timeout(LIMIT, S::connect(&target)).await??;
        let lock = lock.clone();
        tokio::task::spawn_local(async move {
            // Not granted during the measurement.
            let guard = service.acquire(&lock).await;
            std::mem::forget((guard, service));
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cpu = Cpu::start(arguments);
    let (begin, before) = (Instant::now(), counted(&proxies));
    tokio::time::sleep(length).await;
    let (elapsed, after) = (begin.elapsed().as_secs_f64(), counted(&proxies));
    let (_, server) = cpu.end();
    std::mem::forget(guard);
    let per_waiter = |all: f64| all / elapsed / count as f64;
    Ok(json!({
        "flights_per_second": per_waiter(after.0 - before.0),
        "bytes_per_second": per_waiter(after.1 - before.1),
        "server_cpu_us_per_second": per_waiter(server * 1e6),
    }))
}

/// Measures the memory that servers use per held lock, including the parent node or row that it needs.
async fn memory<S: Service>(arguments: &Arguments) -> Result<Value> {
    let locks: usize = arguments.number("locks", 1000)?;
    let (pids, java) = (pids(arguments), arguments.flag("java"));
    let service = S::connect(&Target::new(arguments)?).await?;
    let warm_up = format!("{}-warm-up", name(arguments));
    service.prepare(&warm_up).await?;
    one_cycle(&service, &warm_up).await?;
    let before = memory_of(&pids, java)?;
    let mut guards = Vec::new();
    for number in 0..locks {
        let lock = format!("{}-{number}", name(arguments));
        service.prepare(&lock).await?;
        guards.push(service.acquire(&lock).await?);
    }
    let after = memory_of(&pids, java)?;
    std::mem::forget(guards);
    Ok(json!({ "locks": locks, "bytes_per_lock": (after - before) / locks as f64 }))
}
