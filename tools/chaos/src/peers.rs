//! The clients: processes of docent's `lock_peer` and of its Java twin, which take commands and reply with times.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use xtask::{Java, Result, workspace::root};

use crate::lock::lock;
use crate::network::{Host, Network};
use crate::{Signal, signal};

/// The time limit of a command. The longest commands are acquires of a client that a fault has stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// The library that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    Docent,
    Curator,
}

impl Library {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Docent => "docent",
            Self::Curator => "curator",
        }
    }
}

/// How clients are started.
pub(crate) struct Programs {
    pub(crate) lock_peer: PathBuf,
    java: Java,
    classes: PathBuf,
    connect: String,
    session: Duration,
    directory: PathBuf,
}

impl Programs {
    pub(crate) fn new(
        lock_peer: PathBuf,
        java: &Java,
        connect: String,
        session: Duration,
        directory: &Path,
    ) -> Result<Self> {
        let classes = java.compile(&root().join("tests/java/CuratorPeer.java"))?;
        let (java, directory) = (java.clone(), directory.to_path_buf());
        Ok(Self { lock_peer, java, classes, connect, session, directory })
    }

    fn add(&self, command: &mut Command, library: Library) -> Result<()> {
        match library {
            Library::Docent => {
                command.arg(&self.lock_peer);
            }
            Library::Curator => {
                let java = self.java.command(&self.classes)?;
                command.arg(java.get_program()).args(java.get_args());
                command.args(["-Xmx128m", "CuratorPeer"]);
            }
        }
        command.arg(&self.connect).arg(self.session.as_millis().to_string()).arg("3");
        Ok(())
    }
}

/// The reply to a command. `at` is the time at which the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok {
        text: String,
        at: u64,
    },
    /// The acquire has timed out.
    False,
    /// An error, with its kind; for a write, also with its outcome.
    Failed {
        kind: String,
        outcome: String,
    },
    /// The process has ended.
    Gone,
    /// No reply within the limit.
    Stuck,
}

/// A client. A restart gives it a new process.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) library: Library,
    /// The value of `LOCK_PEER_OPTIONS`.
    options: &'static str,
    host: Host,
    network: Arc<Network>,
    programs: Arc<Programs>,
    running: Mutex<Option<Arc<Running>>>,
}

struct Running {
    process: Mutex<Child>,
    input: Mutex<ChildStdin>,
    next: AtomicU64,
    answers: Arc<Mutex<Waiting>>,
}

/// The senders of replies, by the number of the command; `None` once the process has ended.
type Waiting = Option<HashMap<u64, mpsc::Sender<Answer>>>;

impl Peer {
    pub(crate) fn new(
        name: String,
        library: Library,
        options: &'static str,
        host: Host,
        network: &Arc<Network>,
        programs: &Arc<Programs>,
    ) -> Self {
        let (network, programs) = (Arc::clone(network), Arc::clone(programs));
        Self { name, library, options, host, network, programs, running: Mutex::default() }
    }

    /// Starts the process unless it runs.
    pub(crate) fn start(&self) -> Result<()> {
        let mut running = lock(&self.running);
        if running.is_some() {
            return Ok(());
        }
        let log = self.programs.directory.join(format!("{}.log", self.name));
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = self.network.command(self.host);
        self.programs.add(&mut command, self.library)?;
        command.env("LOCK_PEER_TIMES", "1").env("LOCK_PEER_OPTIONS", self.options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut process = command.spawn()?;
        let input = process.stdin.take().ok_or("a client without standard input")?;
        let output = process.stdout.take().ok_or("a client without standard output")?;
        let answers: Arc<Mutex<Waiting>> = Arc::new(Mutex::new(Some(HashMap::new())));
        let waiting = Arc::clone(&answers);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if let Some((number, answer)) = parse(&line)
                    && let Some(waiting) = lock(&waiting).as_mut()
                    && let Some(sender) = waiting.remove(&number)
                {
                    // The caller may have stopped waiting.
                    let _ = sender.send(answer);
                }
            }
            // Drops the senders, which ends every wait for a reply.
            lock(&waiting).take();
        });
        let (process, input) = (Mutex::new(process), Mutex::new(input));
        *running = Some(Arc::new(Running { process, input, next: AtomicU64::new(1), answers }));
        Ok(())
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn ask(&self, command: &str) -> Answer {
        let Some(running) = lock(&self.running).clone() else { return Answer::Gone };
        let number = running.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        match lock(&running.answers).as_mut() {
            Some(waiting) => waiting.insert(number, sender),
            None => return Answer::Gone,
        };
        if writeln!(lock(&running.input), "{number} {command}").is_err() {
            return Answer::Gone;
        }
        match receiver.recv_timeout(ANSWER_TIMEOUT) {
            Ok(answer) => answer,
            Err(mpsc::RecvTimeoutError::Disconnected) => Answer::Gone,
            Err(mpsc::RecvTimeoutError::Timeout) => Answer::Stuck,
        }
    }

    /// Kills the process (`kill -9`) and waits until it has ended.
    pub(crate) fn kill(&self) {
        if let Some(running) = lock(&self.running).take() {
            let mut process = lock(&running.process);
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.running).as_ref().is_none_or(|running| lock(&running.answers).is_none())
    }

    pub(crate) fn signal(&self, number: Signal) {
        if let Some(running) = lock(&self.running).as_ref() {
            signal(lock(&running.process).id(), number);
        }
    }
}

/// Parses `@NANOS NUMBER RESULT`.
fn parse(line: &str) -> Option<(u64, Answer)> {
    let (at, rest) = line.strip_prefix('@')?.split_once(' ')?;
    let (at, (number, result)) = (at.parse().ok()?, rest.split_once(' ')?);
    let mut words = result.splitn(2, ' ');
    let answer = match (words.next()?, words.next().unwrap_or_default()) {
        ("ok", text) => Answer::Ok { text: text.to_owned(), at },
        ("false", _) => Answer::False,
        (_, text) => {
            let mut words = text.split(' ').map(str::to_owned);
            let kind = words.next().unwrap_or_default();
            Answer::Failed { kind, outcome: words.next().unwrap_or_default() }
        }
    };
    Some((number.parse().ok()?, answer))
}
