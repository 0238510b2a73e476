//! Drives a peer: a process that runs locks and other recipes on command, one line each.
//!
//! There are two of them, docent's (`tools/recipe_peer.rs`) and its counterpart with real Curator
//! (`tests/java/CuratorPeer.java`), with the same commands and replies, so a test is written once.
//!
//! ```text
//! to it:    ID VERB ARGS...
//! from it:  ID ok [RESULT]   ID false   ID err KIND TEXT   ! EVENT
//! ```

use std::collections::{HashMap, VecDeque};
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{fixture::Fixture, real, within_deadline};

/// The client library of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Curator,
    Docent,
}

impl Side {
    /// Whether peers of this side can be started here; if not, that is reported and counted as a skip.
    #[track_caller]
    pub fn is_available(self) -> bool {
        match self {
            Self::Curator => real::java().is_some(),
            // Without it, the test fails when it starts one.
            Self::Docent => true,
        }
    }
}

/// How a peer is started.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub session: Duration,
    /// For `RetryNTimes(retries, 100 ms)`.
    pub retries: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { session: Duration::from_secs(6), retries: 5 }
    }
}

/// A running peer. Dropping it kills the process.
pub struct Peer {
    name: String,
    /// Kept because its drop kills the process.
    process: Child,
    commands: mpsc::UnboundedSender<String>,
    next_id: AtomicU64,
    said: watch::Sender<Said>,
}

/// The output of the process that was not read yet.
#[derive(Default)]
struct Said {
    waiting: HashMap<String, oneshot::Sender<Reply>>,
    events: Vec<Event>,
    /// The last lines of standard error, for failures.
    errors: VecDeque<String>,
    /// No line will follow.
    ended: bool,
}

/// A line that began with `! `.
#[derive(Debug, Clone)]
pub struct Event {
    pub text: String,
    pub at: Instant,
}

impl Peer {
    /// A Curator peer.
    pub async fn java(connect: &str, options: Options) -> Self {
        Self::start(Side::Curator, "java", connect, options).await
    }

    /// The real server, and a Curator peer on it; `None` (and a counted skip) if either is missing.
    #[track_caller]
    pub fn beside_curator(options: Options) -> impl Future<Output = Option<(Fixture, Self)>> {
        let (fixture, is_available) = (Fixture::real(), Side::Curator.is_available());
        async move {
            let fixture = fixture.await.filter(|_| is_available)?;
            let peer = Self::java(&fixture.server, options).await;
            Some((fixture, peer))
        }
    }

    /// A docent peer.
    pub async fn docent(connect: &str, options: Options) -> Self {
        Self::start(Side::Docent, "docent", connect, options).await
    }

    /// Starts a peer and waits until it has a session. The name is for messages.
    ///
    /// The side must be [available](Side::is_available).
    pub async fn start(side: Side, name: &str, connect: &str, options: Options) -> Self {
        let command = move || match side {
            Side::Curator => {
                let (command, turn) = java_command();
                (command, Some(turn))
            }
            Side::Docent => (Command::new(docent_program()), None),
        };
        // The compiler may have to run first.
        let (mut command, _turn) = tokio::task::spawn_blocking(command).await.unwrap();
        command
            .arg(connect)
            .arg(options.session.as_millis().to_string())
            .arg(options.retries.to_string());
        let peer = Self::spawn(name, command);
        peer.event("ready").await;
        peer
    }

    /// Drives any program that has this protocol.
    pub fn spawn(name: &str, mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}: {command:?}"));
        let said = watch::Sender::<Said>::default();
        let (commands, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_commands(process.stdin.take().unwrap(), queue));
        let errors = tokio::spawn(read_errors(process.stderr.take().unwrap(), said.clone()));
        let output = process.stdout.take().unwrap();
        tokio::spawn(read_lines(output, errors, said.clone()));
        Self { name: name.to_owned(), process, commands, next_id: AtomicU64::new(1), said }
    }

    /// `None` once it has ended.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a command at once. Its answer can be awaited at any time.
    ///
    /// Commands go out in the order of these calls.
    pub fn send(&self, command: impl fmt::Display) -> Answer {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
        let command = command.to_string();
        let (sender, receiver) = oneshot::channel();
        self.said.send_modify(|said| {
            if !said.ended {
                said.waiting.insert(id.clone(), sender);
            }
        });
        // If the process is gone, the answer reports it.
        let _ = self.commands.send(format!("{id} {command}\n"));
        let question = format!("{}: {command}", self.name);
        Answer { question, receiver, said: self.said.clone() }
    }

    /// Sends a command and waits for its answer.
    pub async fn ask(&self, command: impl fmt::Display) -> Reply {
        self.send(command).reply().await
    }

    /// The fencing token of a hold.
    pub async fn token(&self, handle: &str) -> i64 {
        let reply = self.ask(format!("token {handle}")).await;
        reply.ok().parse().unwrap_or_else(|_| panic!("{}: no number: {reply:?}", self.name))
    }

    /// Whether the peer reports that it holds the lock.
    pub async fn held(&self, handle: &str) -> bool {
        match self.ask(format!("held {handle}")).await.ok() {
            "true" => true,
            "false" => false,
            other => panic!("{}: held {handle}: {other}", self.name),
        }
    }

    /// The participants of a lock, in lock order; empty if there is no such lock.
    pub async fn participants(&self, handle: &str) -> Vec<String> {
        self.ask(format!("participants {handle}")).await.list_or_no_node()
    }

    /// The children of a node; empty if there is no such node.
    pub async fn children(&self, path: &str) -> Vec<String> {
        self.ask(format!("children {path}")).await.list_or_no_node()
    }

    /// The first event since the start whose text begins with these words.
    pub async fn event(&self, words: &str) -> Event {
        self.events().next(words).await
    }

    /// All events, from the first one on.
    pub fn events(&self) -> Events {
        Events { name: self.name.clone(), said: self.said.subscribe(), seen: 0 }
    }

    /// Only the events that follow this call.
    pub fn events_from_now(&self) -> Events {
        let mut events = self.events();
        events.seen = self.said.borrow().events.len();
        events
    }

    /// Ends the session and waits until the process has ended successfully.
    pub async fn close(mut self) {
        self.end().await;
    }

    /// Like [`close`](Self::close), but its events can be read afterwards.
    pub async fn end(&mut self) {
        let _ = self.commands.send("close close\n".to_owned());
        self.event("closed").await;
        let status = self.wait().await;
        assert!(
            status.success(),
            "{}: {status}\n{}",
            self.name,
            self.said.borrow().end_of_errors()
        );
    }

    async fn wait(&mut self) -> ExitStatus {
        within_deadline("the end of a peer", self.process.wait()).await.unwrap()
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The answer to one command; it may not have arrived yet.
pub struct Answer {
    question: String,
    receiver: oneshot::Receiver<Reply>,
    said: watch::Sender<Said>,
}

impl Answer {
    /// Waits for it.
    pub async fn reply(mut self) -> Reply {
        let question = &self.question;
        let answer = within_deadline(question, &mut self.receiver).await;
        answer.unwrap_or_else(|_| {
            let errors = self.said.borrow().end_of_errors();
            panic!("{question}: the peer ended without an answer\n{errors}")
        })
    }

    /// Whether the answer has not arrived yet. Only another condition can prove that it will not arrive: see
    /// [`Peer::participants`].
    pub fn is_pending(&mut self) -> bool {
        self.receiver.is_empty() && !self.receiver.is_terminated()
    }
}

/// The answer of a peer, and the time of its arrival.
#[derive(Debug, Clone)]
pub struct Reply {
    question: String,
    pub outcome: Outcome,
    pub at: Instant,
}

/// The three ways to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with a result or an empty text.
    Ok(String),
    /// The timeout elapsed.
    TimedOut,
    /// Not done.
    Error { kind: String, text: String },
}

/// The line that the peer wrote.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok(result) => write!(f, "ok {result}"),
            Self::TimedOut => f.write_str("false"),
            Self::Error { kind, text } => write!(f, "err {kind} {text}"),
        }
    }
}

impl Reply {
    /// The result of a command that must succeed.
    #[track_caller]
    pub fn ok(&self) -> &str {
        match &self.outcome {
            Outcome::Ok(result) => result,
            other => panic!("{}: {other:?}", self.question),
        }
    }

    /// Whether the command succeeded; false if it timed out.
    #[track_caller]
    pub fn is_ok(&self) -> bool {
        match &self.outcome {
            Outcome::Ok(_) => true,
            Outcome::TimedOut => false,
            other @ Outcome::Error { .. } => panic!("{}: {other:?}", self.question),
        }
    }

    /// The items of a result of the form `N item...`.
    #[track_caller]
    pub fn list(&self) -> Vec<String> {
        let mut words = self.ok().split_whitespace().map(str::to_owned);
        let count = words.next().and_then(|count| count.parse::<usize>().ok());
        let items: Vec<_> = words.collect();
        assert_eq!(count, Some(items.len()), "{}: {self:?}", self.question);
        items
    }

    /// Like [`Reply::list`], but empty if there is no node: the server removes the container of a lock soon after the
    /// last participant has left.
    #[track_caller]
    pub fn list_or_no_node(&self) -> Vec<String> {
        match &self.outcome {
            Outcome::Error { kind, .. } if kind == "NoNode" => Vec::new(),
            _ => self.list(),
        }
    }

    fn parse(id: &str, rest: &str, at: Instant) -> Self {
        let (verdict, result) = rest.split_once(' ').unwrap_or((rest, ""));
        let outcome = match verdict {
            "ok" => Outcome::Ok(result.to_owned()),
            "false" => Outcome::TimedOut,
            "err" => {
                let (kind, text) = result.split_once(' ').unwrap_or((result, ""));
                Outcome::Error { kind: kind.to_owned(), text: text.to_owned() }
            }
            _ => Outcome::Error { kind: "Nonsense".to_owned(), text: rest.to_owned() },
        };
        Self { question: format!("command {id}"), outcome, at }
    }
}

/// The events of one peer, in order, each seen once by this subscription.
pub struct Events {
    name: String,
    said: watch::Receiver<Said>,
    seen: usize,
}

impl Events {
    /// The next event whose text begins with these words; earlier events are skipped.
    pub async fn next(&mut self, words: &str) -> Event {
        let what = format!("{}: event {words}", self.name);
        within_deadline(&what, async {
            loop {
                if let Some(event) = self.take(words, &what) {
                    return event;
                }
                let _ = self.said.changed().await;
            }
        })
        .await
    }

    /// Every event so far that this subscription has not returned or skipped.
    pub fn drain(&mut self) -> Vec<Event> {
        let said = self.said.borrow();
        let events = said.events[self.seen..].to_vec();
        self.seen = said.events.len();
        events
    }

    fn take(&mut self, words: &str, what: &str) -> Option<Event> {
        let said = self.said.borrow_and_update();
        for event in &said.events[self.seen..] {
            self.seen += 1;
            let rest = event.text.strip_prefix(words);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')) {
                return Some(event.clone());
            }
        }
        assert!(!said.ended, "{what}: the peer ended before\n{}", said.end_of_errors());
        None
    }
}

impl Said {
    fn end_of_errors(&self) -> String {
        self.errors.iter().map(|line| format!("  stderr: {line}\n")).collect()
    }

    fn line(&mut self, line: &str, at: Instant) {
        if let Some(text) = line.strip_prefix("! ") {
            self.events.push(Event { text: text.to_owned(), at });
            return;
        }
        let (id, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(waiting) = self.waiting.remove(id) {
            // The test may have dropped the answer.
            let _ = waiting.send(Reply::parse(id, rest, at));
        }
    }
}

async fn write_commands(mut input: ChildStdin, mut queue: mpsc::UnboundedReceiver<String>) {
    while let Some(command) = queue.recv().await {
        if input.write_all(command.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_lines(
    output: impl AsyncRead + Unpin,
    errors: JoinHandle<()>,
    said: watch::Sender<Said>,
) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        said.send_modify(|said| said.line(&line, Instant::now()));
    }
    // A process that died explains it on standard error, which is read by another task.
    let _ = timeout(LAST_WORDS, errors).await;
    // Makes all waits fail.
    said.send_modify(|said| {
        said.ended = true;
        said.waiting.clear();
    });
}

async fn read_errors(errors: impl AsyncRead + Unpin, said: watch::Sender<Said>) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        said.send_modify(|said| {
            said.errors.push_back(line);
            if said.errors.len() > ERROR_LINES {
                said.errors.pop_front();
            }
        });
    }
}

fn java_command() -> (Command, xtask::Turn) {
    let java = real::java().expect("a side that is available");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/CuratorPeer.java");
    let classes = java.compile(&source).unwrap_or_else(|error| panic!("{error}"));
    let mut command = java.command(&classes).unwrap_or_else(|error| panic!("{error}"));
    command.arg("CuratorPeer");
    let turn = java.turn().unwrap_or_else(|error| panic!("{error}"));
    (Command::from(command), turn)
}

/// The example `recipe_peer`.
pub fn docent_program() -> PathBuf {
    xtask::example("recipe_peer").unwrap_or_else(|error| panic!("{error}"))
}

/// A limit, because a child of a dead process may keep its standard error open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Enough of a stack trace to recognise its cause.
const ERROR_LINES: usize = 30;
