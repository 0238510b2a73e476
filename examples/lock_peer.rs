//! A client that locks on command, to be driven by a program: so that clients in different languages can
//! contend for one lock, and be compared on the wire.
//!
//! `lock_peer CONNECT [SESSION_MS [RETRIES]]`: commands `ID VERB ARGS...` on standard input, a line each;
//! `ID ok [RESULT]`, `ID false` (out of time) or `ID err KIND TEXT` on standard output, and events `! ...` at
//! any time. Commands for one handle run in order, those for different handles at the same time.
//!
//! A handle is `mutex:PATH`; handles that differ by a suffix `#x` are different owners of one lock object.
//! The data of lock nodes is taken from `LOCK_PEER_DATA`, if that is set.

use std::{
    collections::HashMap,
    io::Write as _,
    process::exit,
    sync::{Arc, Mutex},
    time::Duration,
};

use docent::{
    Client, Config,
    recipes::{
        Error,
        locks::{InterProcessMutex, LockGuard, LockOptions, Owner},
    },
    session::retry::RetryNTimes,
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
    let config = match Config::new(&connect_string) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("lock_peer: {error}");
            exit(2);
        }
    };
    let client = Client::start(
        config
            .with_session_timeout(Duration::from_millis(session_ms.into()))
            .with_connection_timeout(Duration::from_millis(3000)),
    );
    tokio::spawn(tell_states(client.clone()));
    let mut options = LockOptions::default()
        .with_retry_policy(RetryNTimes::new(retries, Duration::from_millis(100)));
    if let Ok(data) = std::env::var("LOCK_PEER_DATA") {
        options = options.with_data(data);
    }
    let mut peer = Peer { client, options, mutexes: HashMap::new(), handles: HashMap::new() };
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

/// One line on standard output, at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: there is nobody to tell, either.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        exit(0);
    }
}

fn answer(id: &str, result: Result<Option<String>, Error>) {
    match result {
        Ok(Some(text)) if text.is_empty() => say(&format!("{id} ok")),
        Ok(Some(text)) => say(&format!("{id} ok {text}")),
        Ok(None) => say(&format!("{id} false")),
        Err(error) => say(&format!("{id} err {} {error}", kind(&error))),
    }
}

fn kind(error: &Error) -> String {
    match error {
        Error::Session(error) => format!("{:?}", error.kind()),
        Error::SequenceExhausted { .. } => "SequenceExhausted".to_owned(),
        Error::LockLost { .. } => "LockLost".to_owned(),
        Error::InvalidPath(_) => "InvalidPath".to_owned(),
        _ => "Error".to_owned(),
    }
}

async fn tell_states(client: Client) {
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
    options: LockOptions,
    /// By path: handles that differ by their suffix share the lock object.
    mutexes: HashMap<String, InterProcessMutex>,
    handles: HashMap<String, Handle>,
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
            ("children", [path]) => {
                let (id, path, client) = (id.to_owned(), path.clone(), self.client.clone());
                tokio::spawn(async move {
                    let children = client.get_children(&path).await.map_err(Error::from);
                    answer(&id, children.map(|children| Some(list(&children.to_vec()))));
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
                "acquire" | "release" | "held" | "token" | "participants" | "drop",
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
            _ => bad(&format!("{verb} with {} arguments is not known", args.len())),
        }
    }

    fn handle(&mut self, name: &str) -> Result<&Handle, String> {
        if !self.handles.contains_key(name) {
            let Some((kind, rest)) = name.split_once(':') else {
                return Err(format!("{name} is no handle: KIND:PATH"));
            };
            if kind != "mutex" {
                return Err(format!("the kind {kind} is not known"));
            }
            let path = rest.split_once('#').map_or(rest, |(path, _)| path);
            let mutex = match self.mutexes.get(path) {
                Some(mutex) => mutex.clone(),
                None => InterProcessMutex::with_options(&self.client, path, self.options.clone())
                    .map_err(|error| error.to_string())?,
            };
            self.mutexes.insert(path.to_owned(), mutex.clone());
            let (commands, receiver) = mpsc::unbounded_channel();
            let cancel = Arc::new(Cancel::default());
            tokio::spawn(run(name.to_owned(), mutex, receiver, Arc::clone(&cancel)));
            self.handles.insert(name.to_owned(), Handle { commands, cancel });
        }
        self.handles.get(name).ok_or_else(|| "no such handle".to_owned())
    }

    async fn close(&self, id: Option<&str>) {
        let result = self.client.close().await;
        if let Some(id) = id {
            answer(id, result.map(|()| Some(String::new())).map_err(Error::from));
        }
        say("! closed");
        exit(0);
    }
}

/// Runs the commands of one handle, in order.
async fn run(
    handle: String,
    mutex: InterProcessMutex,
    mut commands: mpsc::UnboundedReceiver<(String, String, Vec<String>)>,
    cancel: Arc<Cancel>,
) {
    let owner = Owner::new();
    let mut guards: Vec<LockGuard> = Vec::new();
    while let Some((id, verb, args)) = commands.recv().await {
        let nothing = || Ok(Some(String::new()));
        match verb.as_str() {
            "acquire" => {
                let Ok(wait) = args.first().map(|text| text.parse::<i64>()).transpose() else {
                    say(&format!("{id} err BadCommand {args:?} is no number of milliseconds"));
                    continue;
                };
                let Some(result) = acquire(&mutex, &owner, wait, &cancel).await else {
                    say(&format!("{id} err Cancelled the acquire was dropped"));
                    continue;
                };
                answer(
                    &id,
                    result.map(|guard| {
                        guard.map(|guard| {
                            if guards.is_empty() {
                                tell_loss(&handle, &guard);
                            }
                            guards.push(guard);
                            String::new()
                        })
                    }),
                );
            }
            "release" => match guards.pop() {
                Some(guard) => answer(&id, guard.release().await.map(|()| Some(String::new()))),
                None => say(&format!("{id} err NotOwner the lock is not held by this handle")),
            },
            "drop" => match guards.pop() {
                Some(guard) => {
                    drop(guard);
                    answer(&id, nothing());
                }
                None => say(&format!("{id} err NotOwner the lock is not held by this handle")),
            },
            "held" => {
                let held = guards.last().is_some_and(LockGuard::is_held);
                answer(&id, Ok(Some(held.to_string())));
            }
            "token" => match guards.last() {
                Some(guard) => {
                    answer(&id, guard.fencing_token().await.map(|token| Some(token.to_string())));
                }
                None => say(&format!("{id} err NotOwner the lock is not held by this handle")),
            },
            _ => answer(&id, mutex.participants().await.map(|paths| Some(list(&paths)))),
        }
    }
}

/// `None` when it was cancelled.
async fn acquire(
    mutex: &InterProcessMutex,
    owner: &Owner,
    wait: Option<i64>,
    cancel: &Cancel,
) -> Option<Result<Option<LockGuard>, Error>> {
    let acquire = async {
        match wait {
            None => mutex.acquire_as(owner).await.map(Some),
            Some(wait) => {
                let wait = Duration::from_millis(wait.try_into().unwrap_or(0));
                mutex.acquire_as_timeout(owner, wait).await
            }
        }
    };
    let asked = Arc::new(Notify::new());
    *lock(cancel) = Some(Arc::clone(&asked));
    let result = tokio::select! {
        result = acquire => Some(result),
        () = asked.notified() => None,
    };
    *lock(cancel) = None;
    result
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn tell_loss(handle: &str, guard: &LockGuard) {
    let (handle, lost) = (handle.to_owned(), guard.cancellation_token());
    tokio::spawn(async move {
        lost.cancelled().await;
        say(&format!("! lost {handle}"));
    });
}

fn list(names: &[String]) -> String {
    [vec![names.len().to_string()], names.to_vec()].concat().join(" ")
}
