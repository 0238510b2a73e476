//! A client that runs leader recipes, kept nodes, groups, caches, barriers, atomic numbers and service discovery on command,
//! to be driven by a program: so that clients in different languages can take part in one election, and be compared on the wire.
//!
//! `recipe_peer CONNECT [SESSION_MS [RETRIES [FLAGS | SLEEP_MS [POLICY]]]]`: commands `ID VERB ARGS...` on standard input, a
//! line each; `ID ok [RESULT]`, `ID false` (out of time) or `ID err KIND TEXT` on standard output, and events `! ...` at any
//! time. The verbs of one object run in order, those of different objects at the same time; `cancel HANDLE`
//! drops an object, also in the middle of a verb. `-` is an empty text.
//! `command_line.rs` has the defaults.

mod cache;
mod command_line;
mod coordination;
mod discovery;
mod election;
mod ensemble;
mod gzip;
mod kept;
mod node_operations;
mod outsider;

use std::{
    collections::HashMap,
    future::Future,
    io::Write as _,
    pin::Pin,
    process::exit,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use command_line::{CommandLine, Tracking};
use docent::{
    Client, Clock, Config, ConnectionStateErrorPolicy, EnsembleTracker, Error, LeaderOptions,
    LockOptions,
};
use kept::{Kept, NodeObject};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::mpsc,
    task::AbortHandle,
};

/// What a verb answers: a result, or `None` when its time is up.
type Answer = Result<Option<String>, Failure>;

/// Runs later, while the next verbs of the same object run.
type Later = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Why a verb failed: the kind and a text.
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

    fn not_started(name: &str) -> Self {
        Self("IllegalState".to_owned(), format!("{name} is not started"))
    }
}

/// A verb's immediate answer, or one that takes its time.
enum Reply {
    Now(Answer),
    Later(Later),
}

/// One object of the command line.
trait Object: Send + 'static {
    /// Runs a verb.
    fn run(
        &mut self,
        verb: &str,
        args: &[String],
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;
}

/// What all objects are made from.
struct Peer {
    client: Client,
    /// Of leader recipes, kept nodes and groups.
    leader_options: LockOptions,
    /// Of barriers, atomic numbers and service discovery.
    data_options: LockOptions,
    error_policy: ConnectionStateErrorPolicy,
    /// Nanoseconds by which the client's clock is ahead of the system's.
    clock_offset: Arc<AtomicU64>,
    /// Caches report no nodes.
    is_quiet: bool,
    tracker: Mutex<Option<EnsembleTracker>>,
    storages: cache::Storages,
}

impl Peer {
    fn leader_options(&self) -> LeaderOptions {
        LeaderOptions::from(self.leader_options.clone()).with_error_policy(self.error_policy)
    }
}

#[tokio::main]
async fn main() {
    let command_line = match CommandLine::read(std::env::args().skip(1)) {
        Ok(command_line) => command_line,
        Err(error) => usage(&error),
    };
    let config = match Config::new(&command_line.connect_string) {
        Ok(config) => config,
        Err(error) => usage(&error.to_string()),
    };
    let clock_offset = Arc::<AtomicU64>::default();
    let (system, offset) = (Clock::system(), Arc::clone(&clock_offset));
    let now = move || system.now() + Duration::from_nanos(offset.load(Ordering::Acquire));
    let client = config
        .with_clock(Clock::from_fn(now))
        .with_session_timeout(command_line.session_timeout)
        .with_connection_timeout(command_line.connection_timeout)
        .start();
    tokio::spawn(report_states(client.clone(), command_line.is_lazy));
    let tracker = match command_line.tracker {
        Tracking::Off => None,
        Tracking::On => Some(EnsembleTracker::new(&client)),
        Tracking::Kept => {
            let hosts = client.servers();
            Some(EnsembleTracker::with_hosts(&client, move |_| hosts.clone()))
        }
    };
    let options =
        |retries| LockOptions::default().with_retry_policy(retries).with_default_data("10.0.0.1");
    let peer = Arc::new(Peer {
        client,
        leader_options: options(command_line.leader_retries),
        data_options: options(command_line.data_retries),
        error_policy: command_line.error_policy,
        clock_offset,
        is_quiet: command_line.is_quiet,
        tracker: Mutex::new(tracker),
        storages: cache::Storages::default(),
    });
    let mut objects = HashMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.as_slice() {
            [] => {}
            [id] => say(&format!("{id} err BadCommand a verb is missing")),
            [id, verb] if verb == "close" => close(&peer, Some(id)).await,
            [id, verb, handle] if verb == "cancel" => {
                let object: Option<Commands> = objects.remove(handle);
                object.inspect(|object| object.task.abort());
                answer(id, done());
            }
            [id, kind, verb, name, args @ ..]
                if ["latch", "selector", "pnode", "ttlnode", "group"].contains(&kind.as_str()) =>
            {
                let queue = objects
                    .entry(format!("{kind} {name}"))
                    .or_insert_with(|| start(&peer, kind, name));
                // The task of an object ends with the program.
                let _ = queue.sender.send((id.clone(), verb.clone(), args.to_vec()));
            }
            [id, verb, handle, args @ ..] if coordination::is_handle(handle) => {
                let queue = objects.entry(handle.clone()).or_insert_with(|| {
                    let object = coordination::HandleObject::new(Arc::clone(&peer), handle.clone());
                    start_object(object)
                });
                let _ = queue.sender.send((id.clone(), verb.clone(), args.to_vec()));
            }
            [id, verb, handle, args @ ..] if handle.starts_with("cache:") => {
                let queue = objects.entry(handle.clone()).or_insert_with(|| {
                    let object = cache::CacheObject::new(Arc::clone(&peer), handle.clone());
                    start_object(object)
                });
                let _ = queue.sender.send((id.clone(), verb.clone(), args.to_vec()));
            }
            [id, verb, handle, args @ ..] if handle.starts_with("disc:") => {
                let queue = objects.entry(handle.clone()).or_insert_with(|| {
                    let object = discovery::DiscoveryObject::new(Arc::clone(&peer), handle.clone());
                    start_object(object)
                });
                let _ = queue.sender.send((id.clone(), verb.clone(), args.to_vec()));
            }
            [id, verb, args @ ..] if node_operations::VERBS.contains(&verb.as_str()) => {
                let (peer, id, verb, args) =
                    (Arc::clone(&peer), id.clone(), verb.clone(), args.to_vec());
                tokio::spawn(async move {
                    answer(&id, node_operations::command(&peer.client, &verb, &args).await);
                });
            }
            [id, verb, args @ ..] if ensemble::is_verb(verb, args) => {
                let (peer, id, verb, args) =
                    (Arc::clone(&peer), id.clone(), verb.clone(), args.to_vec());
                tokio::spawn(async move {
                    answer(&id, ensemble::command(&peer, &verb, &args).await);
                });
            }
            [id, verb, args @ ..] => {
                let (peer, id, verb, args) =
                    (Arc::clone(&peer), id.clone(), verb.clone(), args.to_vec());
                tokio::spawn(async move {
                    answer(&id, outsider::command(&peer, &verb, &args).await);
                });
            }
        }
    }
    close(&peer, None).await;
}

fn usage(why: &str) -> ! {
    eprintln!("recipe_peer: {why} (usage: {})", command_line::USAGE);
    exit(2);
}

/// The commands of an object, and its task.
struct Commands {
    sender: mpsc::UnboundedSender<(String, String, Vec<String>)>,
    task: AbortHandle,
}

/// Starts the task of an object.
fn start(peer: &Arc<Peer>, kind: &str, name: &str) -> Commands {
    let (peer, name) = (Arc::clone(peer), name.to_owned());
    match kind {
        "latch" => start_object(election::LatchObject::new(peer, name)),
        "selector" => start_object(election::SelectorObject::new(peer, name)),
        "pnode" => start_object(NodeObject::new(peer, name, Kept::start_node)),
        "ttlnode" => start_object(NodeObject::new(peer, name, Kept::start_ttl)),
        _ => start_object(kept::GroupObject::new(peer, name)),
    }
}

/// Runs the verbs of an object in order.
fn start_object(mut object: impl Object) -> Commands {
    let (sender, mut commands) = mpsc::unbounded_channel::<(String, String, Vec<String>)>();
    let task = tokio::spawn(async move {
        while let Some((id, verb, args)) = commands.recv().await {
            match object.run(&verb, &args).await {
                Ok(Reply::Now(result)) => answer(&id, result),
                Ok(Reply::Later(later)) => {
                    tokio::spawn(async move { answer(&id, later.await) });
                }
                Err(failure) => answer(&id, Err(failure)),
            }
        }
    });
    Commands { sender, task: task.abort_handle() }
}

async fn close(peer: &Peer, id: Option<&str>) {
    let result = peer.client.close().await;
    if let Some(id) = id {
        answer(id, result.map(|()| Some(String::new())).map_err(Failure::from));
    }
    say("! closed");
    exit(0);
}

/// One line on standard output, at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Without a reader there is nothing left to do.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        exit(0);
    }
}

fn answer(id: &str, answer: Answer) {
    match answer {
        Ok(Some(text)) if text.is_empty() => say(&format!("{id} ok")),
        Ok(Some(text)) => say(&format!("{id} ok {text}")),
        Ok(None) => say(&format!("{id} false")),
        Err(Failure(kind, text)) => say(&format!("{id} err {kind} {}", text.replace('\n', " "))),
    }
}

const fn done() -> Answer {
    Ok(Some(String::new()))
}

/// The number of milliseconds of an argument.
fn millis(text: &str) -> Result<Duration, Failure> {
    let millis: i64 = text
        .parse()
        .map_err(|_| Failure::command(format!("{text} is no number of milliseconds")))?;
    Ok(Duration::from_millis(millis.try_into().unwrap_or(0)))
}

/// A text of the command line, where `-` is empty.
fn text(argument: &str) -> String {
    if argument == "-" { String::new() } else { argument.to_owned() }
}

/// A text of an answer, where `-` is empty.
fn token(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { String::from_utf8_lossy(bytes).into_owned() }
}

fn has(options: &[String], wanted: &str) -> bool {
    options.iter().any(|option| option == wanted)
}

/// `lazy`: ready at once, without a session.
async fn report_states(client: Client, lazy: bool) {
    let mut states = client.states();
    let mut ready = lazy;
    if lazy {
        say("! ready 0");
    }
    while let Some(state) = states.next().await {
        if let Some(session) = client.session().filter(|_| !ready && state.is_connected()) {
            ready = true;
            say(&format!("! ready {:x}", session.session_id()));
        }
        say(&format!("! state {state}"));
    }
}
