//! The program behind `lock_peer` and `recipe_peer`: a client that runs locks, leader recipes, kept nodes, groups,
//! caches, barriers, atomic numbers and service discovery on command. A test drives it, so that clients in different
//! languages can use the same nodes and be compared on the wire.
//!
//! Standard input has a command `ID VERB ARGS...` on each line. Standard output has the replies `ID ok [RESULT]`,
//! `ID false` (timed out) and `ID err KIND TEXT`, and at any time events `! ...`. The verbs of one object run in order,
//! those of different objects concurrently. `cancel HANDLE` drops the running acquire if the handle is that of a lock;
//! any other object is dropped, even in the middle of a verb. `-` is an empty text. `command_line.rs` has the arguments
//! and their defaults.
//!
//! Environment variables: `LOCK_PEER_DATA` is the default data of nodes, `LOCK_PEER_LOCK_DATA` the data of lock nodes;
//! `LOCK_PEER_NAMESPACE` is the namespace of locks; `LOCK_PEER_CONNECTION_MS` is the connection timeout;
//! `LOCK_PEER_OPTIONS` is a list of `no-containers`, `pipelined`, and `direct`: each address is one server. With
//! `LOCK_PEER_TIMES`, each line begins with `@NANOS`, the machine's monotonic clock when it was written, and the reply
//! to `held` ends with the time at which the command was handled, and with the client's server.

mod cache;
mod command_line;
mod coordination;
mod discovery;
mod election;
mod ensemble;
mod gzip;
mod kept;
mod lock;
mod locks;
mod node_operations;
mod nodes;
mod output;
mod outsider;

use std::{
    collections::HashMap,
    env,
    future::Future,
    pin::Pin,
    process::exit,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use command_line::{CommandLine, Tracking};
use docent::{
    Client, Config, EnsembleTracker, Error, LeaderOptions, LockGuard, LockOptions,
    leader::ConnectionStateErrorPolicy, retry::RetryNTimes,
};
use kept::{Kept, NodeObject};
use output::{answer, say};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::mpsc,
    task::AbortHandle,
};

/// The outcome of a verb: a result, or `None` if it timed out.
type Answer = Result<Option<String>, Failure>;

/// A reply that is computed while the next verbs of the same object run.
type Later = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Why a verb failed: the kind of the error, and a text.
struct Failure(String, String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("{:?}", error.kind()), error.to_string())
    }
}

impl Failure {
    fn command(text: impl Into<String>) -> Self {
        Self("BadCommand".to_owned(), text.into())
    }

    fn unknown(verb: &str, args: &[&str]) -> Self {
        Self::command(format!("{verb} with {args:?}"))
    }

    fn not_started(name: &str) -> Self {
        Self("IllegalState".to_owned(), format!("{name} is not started"))
    }

    /// The error of a write, whose text begins with the outcome.
    fn of_write(error: Error) -> Self {
        Self(format!("{:?}", error.kind()), format!("{:?} {error}", error.outcome()))
    }
}

/// The reply to a verb: at once, or later.
enum Reply {
    Now(Option<String>),
    Later(Later),
}

/// An object that commands name.
trait Object: Send + 'static {
    /// Runs a verb that replies at once.
    fn answer(&mut self, verb: &str, args: &[&str]) -> impl Future<Output = Answer> + Send {
        std::future::ready(Err(Failure::unknown(verb, args)))
    }

    /// Runs a verb.
    fn run(
        &mut self,
        verb: &str,
        args: &[&str],
    ) -> impl Future<Output = Result<Reply, Failure>> + Send {
        async { self.answer(verb, args).await.map(Reply::Now) }
    }
}

/// The state from which objects are made.
struct Peer {
    client: Client,
    tracker: Mutex<Option<EnsembleTracker>>,
    /// The retry policy of locks, leader recipes, kept nodes and groups.
    leader_retries: RetryNTimes,
    /// The options of locks, leader recipes, kept nodes and groups.
    leader_options: LockOptions,
    /// The options of barriers, atomic numbers and service discovery.
    data_options: LockOptions,
    error_policy: ConnectionStateErrorPolicy,
    /// Whether this is `lock_peer`, whose `children`, `create`, `get` and `set` are the verbs of `nodes.rs`.
    is_lock_peer: bool,
    storages: cache::Storages,
    locks: Mutex<locks::Locks>,
    /// The guard of the multi lock, once it is held.
    multi: Arc<tokio::sync::Mutex<Option<LockGuard>>>,
}

impl Peer {
    fn leader_options(&self) -> LeaderOptions {
        LeaderOptions::from(self.leader_options.clone()).with_error_policy(self.error_policy)
    }
}

/// Runs a program, which messages call by this name, until its input ends.
pub(crate) async fn run(program: &str) {
    let peer = match CommandLine::read(env::args().skip(1)).and_then(|line| start(program, &line)) {
        Ok(peer) => Arc::new(peer),
        Err(error) => {
            eprintln!("{program}: {error} (usage: {program} {})", command_line::USAGE);
            exit(2);
        }
    };
    let mut objects = HashMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.as_slice() {
            [] => {}
            [id] => answer(id, Err(Failure::command("a verb is missing"))),
            [id, verb] if verb == "close" => close(&peer, Some(id)).await,
            // Not queued: the object is busy with the verb that is cancelled.
            [id, verb, handle] if verb == "cancel" && is_object(handle) => {
                let object: Option<Commands> = objects.remove(handle);
                object.inspect(|object| object.task.abort());
                answer(id, done());
            }
            [id, verb, handle] if verb == "cancel" => answer(id, locks::cancel(&peer, handle)),
            [id, kind, verb, name, args @ ..] if NAMED.contains(&kind.as_str()) => {
                queue(&peer, &mut objects, format!("{kind} {name}"), (id, verb, args));
            }
            [id, verb, handle, args @ ..]
                if locks::VERBS.contains(&verb.as_str()) || is_object(handle) =>
            {
                queue(&peer, &mut objects, handle.clone(), (id, verb, args));
            }
            [id, verb, args @ ..] => {
                let (peer, id, verb, args) =
                    (Arc::clone(&peer), id.clone(), verb.clone(), args.to_vec());
                tokio::spawn(async move { answer(&id, command(&peer, &verb, &args).await) });
            }
        }
    }
    close(&peer, None).await;
}

fn start(program: &str, command_line: &CommandLine) -> Result<Peer, String> {
    let has_option = |name| {
        env::var("LOCK_PEER_OPTIONS").is_ok_and(|list| list.split(',').any(|one| one == name))
    };
    let config = Config::new(&command_line.connect_string).map_err(|error| error.to_string())?;
    let connection_timeout = match env::var("LOCK_PEER_CONNECTION_MS") {
        Ok(number) => Duration::from_millis(
            number.parse().map_err(|error| format!("LOCK_PEER_CONNECTION_MS: {error}"))?,
        ),
        Err(_) => command_line.connection_timeout,
    };
    let client = config
        .with_direct_servers(has_option("direct"))
        .with_session_timeout(command_line.session_timeout)
        .with_connection_timeout(connection_timeout)
        .start()
        .map_err(|error| error.to_string())?;
    tokio::spawn(report_states(client.clone(), command_line.is_lazy));
    let tracker = match command_line.tracker {
        Tracking::Off => None,
        Tracking::On => Some(EnsembleTracker::new(&client)),
        Tracking::Kept => {
            let hosts = client.servers();
            Some(EnsembleTracker::with_hosts(&client, move |_| hosts.clone()))
        }
    };
    let data = env::var("LOCK_PEER_DATA").unwrap_or_else(|_| "10.0.0.1".to_owned());
    let options =
        |retries| LockOptions::default().with_retry_policy(retries).with_default_data(data.clone());
    let mut leader_options = options(command_line.leader_retries);
    if let Ok(data) = env::var("LOCK_PEER_LOCK_DATA") {
        leader_options = leader_options.with_data(data);
    }
    if let Ok(namespace) = env::var("LOCK_PEER_NAMESPACE") {
        leader_options = leader_options.with_namespace(&namespace);
    }
    if has_option("no-containers") {
        leader_options = leader_options.without_container_parents();
    }
    if has_option("pipelined") {
        leader_options = leader_options.with_pipelined_listing();
    }
    Ok(Peer {
        tracker: Mutex::new(tracker),
        client,
        leader_retries: command_line.leader_retries,
        leader_options,
        data_options: options(command_line.data_retries),
        error_policy: command_line.error_policy,
        is_lock_peer: program == "lock_peer",
        storages: cache::Storages::default(),
        locks: Mutex::default(),
        multi: Arc::default(),
    })
}

/// Objects whose verbs are `KIND VERB NAME`.
const NAMED: [&str; 5] = ["latch", "selector", "pnode", "ttlnode", "group"];

/// The prefixes of handles of objects other than locks. Their verbs are `VERB HANDLE`.
const HANDLES: [&str; 7] =
    ["cache:", "disc:", "barrier:", "dbarrier=", "along:", "aint:", "avalue:"];

/// Whether this is the handle of an object other than a lock.
fn is_object(handle: &str) -> bool {
    HANDLES.iter().any(|kind| handle.starts_with(kind))
}

/// The queue of an object's commands, and the task that runs them.
struct Commands {
    sender: mpsc::UnboundedSender<(String, String, Vec<String>)>,
    task: AbortHandle,
}

/// Queues a command for its object. The first command creates the object.
fn queue(
    peer: &Arc<Peer>,
    objects: &mut HashMap<String, Commands>,
    key: String,
    (id, verb, args): (&str, &str, &[String]),
) {
    if !objects.contains_key(&key) {
        match new_object(peer, &key) {
            Ok(commands) => drop(objects.insert(key.clone(), commands)),
            Err(failure) => answer(id, Err(failure)),
        }
    }
    if let Some(commands) = objects.get(&key) {
        // The task of an object runs until the program ends, so its queue is not closed.
        let _ = commands.sender.send((id.to_owned(), verb.to_owned(), args.to_vec()));
    }
}

/// Starts the task of an object. The key is `KIND NAME`, or a handle.
fn new_object(peer: &Arc<Peer>, key: &str) -> Result<Commands, Failure> {
    let (peer, handle) = (Arc::clone(peer), key.to_owned());
    if let Some((kind, name)) = key.split_once(' ') {
        let name = name.to_owned();
        return Ok(match kind {
            "latch" => start_object(election::LatchObject::new(peer, name)),
            "selector" => start_object(election::SelectorObject::new(peer, name)),
            "pnode" => start_object(NodeObject::new(peer, name, Kept::start_node)),
            "ttlnode" => start_object(NodeObject::new(peer, name, Kept::start_ttl)),
            _ => start_object(kept::GroupObject::new(peer, name)),
        });
    }
    Ok(match key.split([':', '=']).next() {
        Some("cache") => start_object(cache::CacheObject::new(peer, handle)),
        Some("disc") => start_object(discovery::DiscoveryObject::new(peer, handle)),
        Some("barrier" | "dbarrier" | "along" | "aint" | "avalue") => {
            start_object(coordination::HandleObject::new(peer, handle))
        }
        _ => start_object(locks::LockObject::new(peer, handle)?),
    })
}

/// Runs the verbs of an object in order.
fn start_object(mut object: impl Object) -> Commands {
    let (sender, mut commands) = mpsc::unbounded_channel::<(String, String, Vec<String>)>();
    let task = tokio::spawn(async move {
        while let Some((id, verb, args)) = commands.recv().await {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            match object.run(&verb, &args).await {
                Ok(Reply::Now(result)) => answer(&id, Ok(result)),
                Ok(Reply::Later(later)) => {
                    tokio::spawn(async move { answer(&id, later.await) });
                }
                Err(failure) => answer(&id, Err(failure)),
            }
        }
    });
    Commands { sender, task: task.abort_handle() }
}

/// Runs a verb that has no object.
async fn command(peer: &Peer, verb: &str, args: &[String]) -> Answer {
    let args: &[&str] = &args.iter().map(String::as_str).collect::<Vec<_>>();
    if peer.is_lock_peer && nodes::VERBS.contains(&verb) {
        nodes::command(&peer.client, verb, args).await
    } else if locks::OTHER_VERBS.contains(&verb) {
        locks::command(peer, verb, args).await
    } else if node_operations::VERBS.contains(&verb) {
        node_operations::command(&peer.client, verb, args).await
    } else if ensemble::VERBS.contains(&verb) {
        ensemble::command(peer, verb, args).await
    } else {
        outsider::command(&peer.client, verb, args).await
    }
}

async fn close(peer: &Peer, id: Option<&str>) {
    let result = peer.client.close().await;
    if let Some(id) = id {
        answer(id, result.map(|()| Some(String::new())).map_err(Failure::from));
    }
    say("! closed");
    exit(0);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn done() -> Answer {
    Ok(Some(String::new()))
}

/// `N word...`.
fn list(words: impl IntoIterator<Item = String>) -> String {
    let words: Vec<String> = words.into_iter().collect();
    [vec![words.len().to_string()], words].concat().join(" ")
}

/// The kind and the path of a handle `KIND:PATH[#SUFFIX]`.
fn parts(handle: &str) -> (&str, &str) {
    let (kind, rest) = handle.split_once(':').unwrap_or((handle, ""));
    (kind, rest.split('#').next().unwrap_or_default())
}

/// Parses an argument in milliseconds.
fn millis(text: &str) -> Result<Duration, Failure> {
    let millis: i64 = text
        .parse()
        .map_err(|_| Failure::command(format!("{text} is no number of milliseconds")))?;
    Ok(Duration::from_millis(millis.try_into().unwrap_or(0)))
}

/// A text from the command line, where `-` is the empty text.
fn text(argument: &str) -> String {
    if argument == "-" { String::new() } else { argument.to_owned() }
}

/// A text of a reply, where `-` is the empty text.
fn token(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { String::from_utf8_lossy(bytes).into_owned() }
}

fn has(options: &[&str], wanted: &str) -> bool {
    options.contains(&wanted)
}

/// Reports the states of the client. If `lazy`, it is ready at once, without a session.
async fn report_states(client: Client, lazy: bool) {
    let mut states = client.states();
    let mut ready = lazy;
    if lazy {
        say("! ready 0");
    }
    while let Some(event) = states.next().await {
        let Some(state) = event.state() else { continue };
        if let Some(session) = client.session().filter(|_| !ready && state.is_connected()) {
            ready = true;
            say(&format!("! ready {:x}", session.session_id()));
        }
        say(&format!("! state {state}"));
    }
}
