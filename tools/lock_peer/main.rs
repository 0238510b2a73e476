//! A client that locks on command, to be driven by a program: so that clients in different languages can
//! contend for one lock, and be compared on the wire.
//!
//! `lock_peer CONNECT [SESSION_MS [RETRIES]]`: commands `ID VERB ARGS...` on standard input, a line each;
//! `ID ok [RESULT]`, `ID false` (out of time) or `ID err KIND TEXT` on standard output, and events `! ...` at
//! any time. Commands for one handle run in order, those for different handles at the same time.
//!
//! A handle is `KIND:PATH`, KIND one of `mutex`, `semmutex`, `read`, `write`, `sem=N`, `strict`, and `renewed`, a mutex
//! whose proven bound is renewed every two seconds. Handles that differ by a
//! suffix `#x` are different owners of one lock object, and `read:P#x` and `write:P#x` are one owner. A handle
//! `latch:PATH` is a part in an election. `proven HANDLE` says until when a hold is proven, `guarded HANDLE PATH DATA`
//! writes a node while it is held, and `lock_peer/nodes.rs` has commands of single nodes; an error of a write is
//! `ID err KIND OUTCOME TEXT`, OUTCOME one of `NotApplied` and `Unknown`. `cpu` answers with the CPU time, in nanoseconds.
//!
//! From the environment: `LOCK_PEER_DATA`, what nodes say by default; `LOCK_PEER_LOCK_DATA`, what lock nodes
//! say; `LOCK_PEER_NAMESPACE`, that of locks; `LOCK_PEER_CONNECTION_MS`, the
//! connection timeout; `LOCK_PEER_OPTIONS`, a list of `no-containers`, `pipelined`, and `direct`: each address is one server. With `LOCK_PEER_TIMES` each line begins with
//! `@NANOS`, of the machine's monotonic clock when it was written, and the answer to `held` ends with the time at which
//! the question was taken up.

mod latch;
mod lock;
mod nodes;

use std::{
    collections::HashMap,
    io::Write as _,
    process::exit,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use self::lock::Lock;
use docent::{
    Client, Config, Error, Instant, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, Leadership,
    LockGuard, LockOptions, Owner, Revoker, StrictMutex, Transaction, retry::RetryNTimes,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::{Notify, mpsc},
};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let Some(connect_string) = args.next() else {
        eprintln!("usage: lock_peer CONNECT [SESSION_MS [RETRIES]]");
        exit(2);
    };
    let mut number = |name: &str, default: u32| match args.next().map(|text| text.parse()) {
        None => default,
        Some(Ok(number)) => number,
        Some(Err(error)) => {
            eprintln!("lock_peer: {name}: {error}");
            exit(2);
        }
    };
    let session_ms = number("SESSION_MS", 6000);
    let retries = number("RETRIES", 5);
    let connection_ms = std::env::var("LOCK_PEER_CONNECTION_MS").ok();
    let connection_ms = connection_ms.and_then(|text| text.parse().ok()).unwrap_or(3000);
    let config = match Config::new(&connect_string) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("lock_peer: {error}");
            exit(2);
        }
    };
    let client = config
        .with_direct_servers(has_option("direct"))
        .with_session_timeout(Duration::from_millis(session_ms.into()))
        .with_connection_timeout(Duration::from_millis(connection_ms))
        .start();
    tokio::spawn(report_states(client.clone()));
    let policy = RetryNTimes::new(retries, Duration::from_millis(100));
    let mut peer = Peer {
        client,
        policy,
        options: options(policy),
        locks: HashMap::new(),
        read_write: HashMap::new(),
        owners: HashMap::new(),
        handles: HashMap::new(),
        multi: Arc::default(),
    };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.as_slice() {
            [] => {}
            [id, verb] if verb == "close" => {
                peer.close(Some(id)).await;
            }
            [id, verb, args @ ..] => peer.command(id, verb, args),
            [id] => say(&format!("{id} err BadCommand a verb is missing")),
        }
    }
    peer.close(None).await;
}

fn options(policy: RetryNTimes) -> LockOptions {
    let mut options = LockOptions::default().with_retry_policy(policy);
    if let Ok(data) = std::env::var("LOCK_PEER_DATA") {
        options = options.with_default_data(data);
    }
    if let Ok(data) = std::env::var("LOCK_PEER_LOCK_DATA") {
        options = options.with_data(data);
    }
    if let Ok(namespace) = std::env::var("LOCK_PEER_NAMESPACE") {
        options = options.with_namespace(&namespace);
    }
    if has_option("no-containers") {
        options = options.without_container_parents();
    }
    if has_option("pipelined") {
        options = options.with_pipelined_listing();
    }
    options
}

fn has_option(name: &str) -> bool {
    std::env::var("LOCK_PEER_OPTIONS").is_ok_and(|list| list.split(',').any(|one| one == name))
}

/// One line on standard output, at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let time = if *HAS_TIMES { format!("@{} ", monotonic_nanos()) } else { String::new() };
    // The reader has gone, so there is no one to report to.
    if writeln!(out, "{time}{line}").and_then(|()| out.flush()).is_err() {
        exit(0);
    }
}

fn answer(id: &str, result: Result<Option<String>, Error>) {
    match result {
        Ok(Some(text)) if text.is_empty() => say(&format!("{id} ok")),
        Ok(Some(text)) => say(&format!("{id} ok {text}")),
        Ok(None) => say(&format!("{id} false")),
        Err(error) => say(&format!("{id} err {:?} {error}", error.kind())),
    }
}

/// As [`answer`], for a write: an error says whether it may have been applied.
fn answer_write(id: &str, result: Result<String, Error>) {
    match result {
        Ok(text) => answer(id, Ok(Some(text))),
        Err(error) => say(&format!("{id} err {:?} {:?} {error}", error.kind(), error.outcome())),
    }
}

/// Of `renewed` handles.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// Whether lines have times: `LOCK_PEER_TIMES`.
static HAS_TIMES: LazyLock<bool> = LazyLock::new(|| std::env::var_os("LOCK_PEER_TIMES").is_some());

/// The machine's monotonic clock, which `System.nanoTime` of a JVM reads too.
fn monotonic_nanos() -> u64 {
    #[cfg(unix)]
    return nanos_of(rustix::time::ClockId::Monotonic);
    #[cfg(not(unix))]
    return 0;
}

/// The CPU time of this process.
fn cpu_nanos() -> u64 {
    #[cfg(unix)]
    return nanos_of(rustix::time::ClockId::ProcessCPUTime);
    #[cfg(not(unix))]
    return 0;
}

#[cfg(unix)]
fn nanos_of(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds * 1_000_000_000 + nanos
}

/// Answers when the future has the answer.
fn spawn_answer(
    id: &str,
    result: impl Future<Output = Result<Option<String>, Error>> + Send + 'static,
) {
    let id = id.to_owned();
    tokio::spawn(async move { answer(&id, result.await) });
}

async fn report_states(client: Client) {
    let mut states = client.states();
    let mut ready = false;
    while let Some(state) = states.next().await {
        if let Some(session) = client.session().filter(|_| !ready && state.is_connected()) {
            ready = true;
            say(&format!("! ready {:x}", session.session_id()));
        }
        say(&format!("! state {state}"));
    }
}

struct Peer {
    client: Client,
    policy: RetryNTimes,
    options: LockOptions,
    /// By kind and path: handles that differ by their suffix share the lock object.
    locks: HashMap<String, Lock>,
    /// By path: of both kinds of handles.
    read_write: HashMap<String, InterProcessReadWriteLock>,
    /// By lock and suffix.
    owners: HashMap<String, Owner>,
    handles: HashMap<String, Handle>,
    /// The guard of the multi lock, once it is held.
    multi: Arc<tokio::sync::Mutex<Option<LockGuard>>>,
}

/// Where the commands of one handle are queued.
struct Handle {
    commands: mpsc::UnboundedSender<(String, String, Vec<String>)>,
    cancel: Arc<Cancel>,
}

/// What drops the acquire that is running, if one is.
type Cancel = Mutex<Option<Arc<Notify>>>;

impl Peer {
    fn command(&mut self, id: &str, verb: &str, args: &[String]) {
        let bad = |text: &str| say(&format!("{id} err BadCommand {text}"));
        match (verb, args) {
            ("session", []) => match self.client.session() {
                Some(session) => say(&format!("{id} ok {:x}", session.session_id())),
                None => say(&format!("{id} err ConnectionLoss there is no session")),
            },
            ("cpu", []) => answer(id, Ok(Some(cpu_nanos().to_string()))),
            ("children", [path]) => {
                let (path, client) = (path.clone(), self.client.clone());
                spawn_answer(id, async move {
                    let (children, _) = client.get_children_with_stat(&path).await?;
                    Ok(Some(list(&children.to_vec())))
                });
            }
            ("revoke", [path]) => {
                let (path, client, policy) = (path.clone(), self.client.clone(), self.policy);
                spawn_answer(id, async move {
                    Revoker::attempt_revoke(&client, &policy, &path).await?;
                    Ok(Some(String::new()))
                });
            }
            ("multi", [wait, paths @ ..]) if !paths.is_empty() => {
                if let Err(error) = self.multi(id, wait, paths) {
                    bad(&error);
                }
            }
            ("multirelease", []) => {
                let multi = Arc::clone(&self.multi);
                let id = id.to_owned();
                tokio::spawn(async move {
                    match multi.lock().await.take() {
                        Some(guard) => {
                            answer(&id, guard.release().await.map(|()| Some(String::new())));
                        }
                        None => say(&format!("{id} err NotOwner no multi lock is held")),
                    }
                });
            }
            ("cancel", [handle]) => {
                let running =
                    self.handles.get(handle).and_then(|handle| lock(&handle.cancel).take());
                let cancelled = running.map(|running| running.notify_one()).is_some();
                let text = if cancelled { "ok" } else { "err BadCommand no acquire is running" };
                say(&format!("{id} {text}"));
            }
            (
                "acquire" | "release" | "held" | "token" | "participants" | "drop" | "revocable"
                | "proven" | "guarded",
                [handle, rest @ ..],
            ) => match self.handle(handle) {
                Ok(handle) => {
                    let command = (id.to_owned(), verb.to_owned(), rest.to_vec());
                    if handle.commands.send(command).is_err() {
                        bad("the handle is gone");
                    }
                }
                Err(error) => bad(&error),
            },
            _ if nodes::command(&self.client, id, verb, args) => {}
            _ => bad(&format!("{verb} with {} arguments is not known", args.len())),
        }
    }

    fn multi(&self, id: &str, wait: &str, paths: &[String]) -> Result<(), String> {
        let wait: i64 = wait.parse().map_err(|_| format!("{wait} is no number"))?;
        let wait = Duration::from_millis(wait.try_into().unwrap_or(0));
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let lock = InterProcessMultiLock::with_options(&self.client, &paths, &self.options)
            .map_err(|error| error.to_string())?;
        let held = Arc::clone(&self.multi);
        spawn_answer(id, async move {
            let mut held = held.lock().await;
            let Some(guard) = lock.acquire_timeout(wait).await? else { return Ok(None) };
            *held = Some(guard);
            Ok(Some(String::new()))
        });
        Ok(())
    }

    fn handle(&mut self, name: &str) -> Result<&Handle, String> {
        if !self.handles.contains_key(name) {
            let (lock_name, suffix) = name.split_once('#').unwrap_or((name, ""));
            let Some((kind, path)) = lock_name.split_once(':') else {
                return Err(format!("{name} is no handle: KIND:PATH"));
            };
            let (commands, receiver) = mpsc::unbounded_channel();
            let cancel = Arc::new(Cancel::default());
            if kind == "latch" {
                let (client, options) = (self.client.clone(), self.options.clone());
                tokio::spawn(latch::run(client, path.to_owned(), options, receiver));
                let handle = Handle { commands, cancel };
                return Ok(self.handles.entry(name.to_owned()).or_insert(handle));
            }
            let lock = match self.locks.get(lock_name) {
                Some(lock) => lock.clone(),
                None => self.new_lock(kind, path)?,
            };
            self.locks.insert(lock_name.to_owned(), lock.clone());
            let family = if matches!(kind, "read" | "write") { "readwrite" } else { kind };
            let owner = self.owners.entry(format!("{family}:{path}#{suffix}")).or_default().clone();
            let (client, handle) = (self.client.clone(), name.to_owned());
            tokio::spawn(run(client, handle, lock, owner, receiver, Arc::clone(&cancel)));
            self.handles.insert(name.to_owned(), Handle { commands, cancel });
        }
        self.handles.get(name).ok_or_else(|| "no such handle".to_owned())
    }

    fn new_lock(&mut self, kind: &str, path: &str) -> Result<Lock, String> {
        let (client, options) = (&self.client, self.options.clone());
        let lock = match kind {
            "mutex" => InterProcessMutex::with_options(client, path, options).map(Lock::Mutex),
            "renewed" => {
                let options = options.with_proven_renewal(RENEWAL_INTERVAL);
                InterProcessMutex::with_options(client, path, options).map(Lock::Mutex)
            }
            "strict" => StrictMutex::with_options(client, path, options).map(Lock::Strict),
            "semmutex" => InterProcessSemaphoreMutex::with_options(client, path, options)
                .map(Lock::SemaphoreMutex),
            "read" | "write" => {
                let pair = match self.read_write.get(path) {
                    Some(pair) => pair.clone(),
                    None => InterProcessReadWriteLock::with_options(client, path, options)
                        .map_err(|error| error.to_string())?,
                };
                let one = if kind == "read" { pair.read_lock() } else { pair.write_lock() };
                let one = one.clone();
                self.read_write.insert(path.to_owned(), pair);
                Ok(Lock::Mutex(one))
            }
            _ => {
                let leases = kind.strip_prefix("sem=").and_then(|leases| leases.parse().ok());
                let Some(leases) = leases else { return Err(format!("unknown kind {kind}")) };
                InterProcessSemaphoreV2::with_options(client, path, leases, options)
                    .map(Lock::Semaphore)
            }
        };
        lock.map_err(|error| error.to_string())
    }

    async fn close(&self, id: Option<&str>) {
        let result = self.client.close().await;
        if let Some(id) = id {
            answer(id, result.map(|()| Some(String::new())));
        }
        say("! closed");
        exit(0);
    }
}

/// Runs the commands of one handle, in order.
async fn run(
    client: Client,
    handle: String,
    lock: Lock,
    owner: Owner,
    mut commands: mpsc::UnboundedReceiver<(String, String, Vec<String>)>,
    cancel: Arc<Cancel>,
) {
    let mut guards: Vec<LockGuard> = Vec::new();
    let mut released = Arc::<Released>::default();
    while let Some((id, verb, args)) = commands.recv().await {
        let nothing = || Ok(Some(String::new()));
        match verb.as_str() {
            "acquire" => {
                let wait = args.first().filter(|text| *text != "-");
                let Ok(wait) = wait.map(|text| text.parse::<i64>()).transpose() else {
                    say(&format!("{id} err BadCommand {args:?} is no number of milliseconds"));
                    continue;
                };
                let leases = args.get(1).and_then(|text| text.parse().ok()).unwrap_or(1);
                let Some(result) = acquire(&lock, &owner, wait, leases, &cancel).await else {
                    say(&format!("{id} err Cancelled the acquire was dropped"));
                    continue;
                };
                answer(
                    &id,
                    result.map(|acquired| {
                        acquired.map(|acquired| {
                            let mut text = String::new();
                            // The first lease is the first to be released.
                            for guard in acquired.into_iter().rev() {
                                if guards.is_empty() {
                                    released = report_loss(&client, &handle, &guard);
                                }
                                text = lock.result(&guard);
                                guards.push(guard);
                            }
                            text
                        })
                    }),
                );
            }
            "release" => match last_of(&mut guards, &released) {
                Some(guard) => answer(&id, guard.release().await.map(|()| Some(String::new()))),
                None => say(&format!("{id} err NotOwner the lock is not held by this handle")),
            },
            "drop" => match last_of(&mut guards, &released) {
                Some(guard) => {
                    drop(guard);
                    answer(&id, nothing());
                }
                None => say(&format!("{id} err NotOwner the lock is not held by this handle")),
            },
            "held" | "token" | "proven" | "guarded" => {
                ask(&client, &id, &verb, &args, guards.last().map(Held::Lock)).await;
            }
            "revocable" => match &lock {
                Lock::Mutex(mutex) => {
                    let handle = handle.clone();
                    mutex.make_revocable(move || say(&format!("! revoke {handle}")));
                    answer(&id, nothing());
                }
                _ => say(&format!("{id} err BadCommand a semaphore is not revocable")),
            },
            _ => answer(&id, lock.participants().await.map(|paths| Some(list(&paths)))),
        }
    }
}

/// A lock's guard or a leadership.
#[derive(Clone, Copy)]
enum Held<'a> {
    Lock(&'a LockGuard),
    Leadership(&'a Leadership),
}

impl Held<'_> {
    fn is_held(self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_held(),
            Self::Leadership(leadership) => leadership.is_held(),
        }
    }

    fn proven_until(self) -> Instant {
        match self {
            Self::Lock(guard) => guard.proven_until(),
            Self::Leadership(leadership) => leadership.proven_until(),
        }
    }

    async fn fencing_token(self) -> Result<i64, Error> {
        match self {
            Self::Lock(guard) => guard.fencing_token().await,
            Self::Leadership(leadership) => leadership.fencing_token().await,
        }
    }

    fn guarded(&self) -> Result<Transaction<'_>, Error> {
        match self {
            Self::Lock(guard) => guard.guarded(),
            Self::Leadership(leadership) => leadership.guarded(),
        }
    }
}

/// Answers a question about a hold, or writes under it.
async fn ask(client: &Client, id: &str, verb: &str, args: &[String], held: Option<Held<'_>>) {
    // Read first: a process that is stopped behind the question answers late.
    let now = monotonic_nanos();
    match (verb, args, held) {
        ("held", [], held) => {
            let held = held.is_some_and(Held::is_held);
            let time = if *HAS_TIMES { format!(" {now}") } else { String::new() };
            answer(id, Ok(Some(format!("{held}{time}"))));
        }
        ("token", [], Some(held)) => {
            answer(id, held.fencing_token().await.map(|token| Some(token.to_string())));
        }
        ("proven", [], Some(held)) => {
            let (bound, at) = (held.proven_until(), client.now());
            let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let left = nanos(bound.saturating_duration_since(at));
            let past = nanos(at.saturating_duration_since(bound));
            let bound = now.saturating_add(left).saturating_sub(past);
            answer(id, Ok(Some(bound.to_string())));
        }
        ("guarded", [path, data], Some(held)) => {
            let written = match held.guarded() {
                Ok(mut transaction) => {
                    transaction.set_data(path, data.as_bytes(), None).commit().await
                }
                Err(error) => Err(error),
            };
            answer_write(id, written.map(|_| String::new()));
        }
        (_, _, None) => say(&format!("{id} err NotOwner the lock is not held by this handle")),
        _ => say(&format!("{id} err BadCommand {verb} of a hold with {} arguments", args.len())),
    }
}

/// `None` when it was cancelled.
async fn acquire(
    lock_object: &Lock,
    owner: &Owner,
    wait: Option<i64>,
    leases: usize,
    cancel: &Cancel,
) -> Option<Result<Option<Vec<LockGuard>>, Error>> {
    let wait = wait.map(|wait| Duration::from_millis(wait.try_into().unwrap_or(0)));
    let acquire = lock_object.acquire(owner, wait, leases);
    let revoked = Arc::new(Notify::new());
    *lock(cancel) = Some(Arc::clone(&revoked));
    let result = tokio::select! {
        result = acquire => Some(result),
        () = revoked.notified() => None,
    };
    *lock(cancel) = None;
    result
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether a hold was released while it was still there: that is no loss.
#[derive(Default)]
struct Released {
    while_held: AtomicBool,
    over: Notify,
}

/// The guard to be released. When it is the first one of its hold, the hold ends.
fn last_of(guards: &mut Vec<LockGuard>, released: &Released) -> Option<LockGuard> {
    let guard = guards.pop()?;
    if guards.is_empty() {
        released.while_held.store(guard.is_held(), Ordering::Release);
        released.over.notify_one();
    }
    Some(guard)
}

/// Reports the loss of a hold, by the claim on its session: `LockGuard::lost` would watch the lock node, and Curator,
/// whose frames are compared with these, does not.
fn report_loss(client: &Client, handle: &str, guard: &LockGuard) -> Arc<Released> {
    let session = client.session().filter(|lease| lease.session_id() == guard.session_id());
    let claim = session.map(|lease| lease.claim()).filter(|_| guard.is_held());
    let released = Arc::<Released>::default();
    let (handle, over) = (handle.to_owned(), Arc::clone(&released));
    tokio::spawn(async move {
        if let Some(claim) = claim {
            tokio::select! {
                () = claim.lost() => {}
                () = over.over.notified() => {}
            }
        }
        if !over.while_held.load(Ordering::Acquire) {
            say(&format!("! lost {handle}"));
        }
    });
    released
}

fn list(names: &[String]) -> String {
    [vec![names.len().to_string()], names.to_vec()].concat().join(" ")
}
