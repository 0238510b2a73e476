//! A driver: the process of the client under test. It gets its tasks as lines, and answers with lines.

use std::{
    collections::BTreeSet,
    io,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
    time::{sleep, timeout},
};

use super::judgement::Finding;
#[cfg(unix)]
use crate::supervisor::{ProcessTree, adopt_orphans};

/// The most that is read from a driver, in bytes, with some for each line. The longest right answer has a million.
const MAX_OUTPUT: usize = 16 << 20;

/// What a line counts in addition to its bytes.
const LINE_COST: usize = 64;

/// The number of lines that may wait to be read.
const MAX_LINES: usize = 1_000;

/// How often it is looked whether the process has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// How long processes are killed that start others.
#[cfg(unix)]
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// What a driver says to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Ok(String),
    /// ZooKeeper's name of the error, such as `NONODE`, or another word.
    Error(String),
}

/// A task that was sent.
#[derive(Debug)]
pub(super) struct Task {
    number: usize,
    text: String,
}

/// The processes of all drivers, also those that leave their process groups, which only Linux finds. They are killed when
/// this is dropped.
pub(super) struct Processes {
    #[cfg(unix)]
    tree: ProcessTree,
}

impl Processes {
    /// Before the first driver is started.
    pub(super) fn adopt() -> Self {
        Self {
            #[cfg(unix)]
            tree: ProcessTree::new(None, adopt_orphans()),
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        #[cfg(unix)]
        self.tree.kill_all(KILL_LIMIT);
    }
}

/// A running driver. Its process group is killed when it is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    child: Child,
    /// What is written to standard input, as soon as the driver reads it.
    to_driver: mpsc::UnboundedSender<String>,
    /// The lines of standard output; `None` if there are too many.
    from_driver: mpsc::Receiver<Option<String>>,
    /// How long an answer may take.
    pub(super) limit: Duration,
    /// All lines since [`forget`](Self::forget).
    lines: Vec<String>,
    sent: usize,
    /// The numbers of the tasks that have an answer.
    answered: BTreeSet<usize>,
    /// The first line that is no answer to a task.
    nonsense: Option<String>,
}

impl Driver {
    /// Starts a command, with `{connect}` replaced in each argument.
    pub(super) fn start(command: &[String], connect: &str, limit: Duration) -> io::Result<Self> {
        let mut words = command.iter().map(|word| word.replace("{connect}", connect));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own, because the command may be a script that starts the client.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.kill_on_drop(true).spawn()?;
        let missing = || io::Error::other("the command has no standard input or output");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let (to_us, from_driver) = mpsc::channel(MAX_LINES);
        tokio::spawn(read(stdout, to_us));
        let (to_driver, tasks) = mpsc::unbounded_channel();
        tokio::spawn(write(stdin, tasks));
        Ok(Self {
            child,
            to_driver,
            from_driver,
            limit,
            lines: Vec::new(),
            sent: 0,
            answered: BTreeSet::new(),
            nonsense: None,
        })
    }

    /// Sends a task.
    pub(super) fn send(&mut self, text: &str) -> Task {
        self.receive_all();
        self.sent += 1;
        let task = Task { number: self.sent, text: text.to_owned() };
        // If it fails, the process has ended, which the answer tells.
        let _ = self.to_driver.send(format!("{} {text}\n", task.number));
        task
    }

    /// Takes the lines that have come.
    fn receive_all(&mut self) {
        while let Ok(Some(line)) = self.from_driver.try_recv() {
            self.accept(line);
        }
    }

    /// Keeps a line. An answer must be the only one to a task that was sent before.
    fn accept(&mut self, line: String) {
        let number = line.split(' ').next().and_then(|word| word.parse().ok());
        let is_of_task = |number: &usize| (1..=self.sent).contains(number);
        if let Some(number) = number
            && (!is_of_task(&number) || !self.answered.insert(number))
        {
            let why = if is_of_task(&number) { "a second answer" } else { "before its task" };
            self.nonsense.get_or_insert_with(|| format!("`{}`, {why}", shortened(&line)));
        }
        self.lines.push(line);
    }

    /// Forgets what the driver has said: notices of how it connected.
    pub(super) fn forget(&mut self) {
        self.receive_all();
        self.lines.clear();
    }

    /// Fails if a line was no answer to a task.
    pub(super) fn has_sense(&mut self) -> Result<(), Finding> {
        self.receive_all();
        self.nonsense.clone().map_or(Ok(()), |line| Err(Finding::Nonsense(line)))
    }

    /// Waits for the answer to a task.
    pub(super) async fn answer(&mut self, task: &Task) -> Result<Answer, Finding> {
        let limit = self.limit;
        let (number, text) = (task.number.to_string(), shortened(&task.text));
        let line = self.line(limit, |line| line.split(' ').next() == Some(&number)).await;
        self.has_sense()?;
        let line = line.map_err(|end| match end {
            NoLine::Ended(how) => Finding::Ends(format!("{how} at `{text}`")),
            NoLine::TooMuch => Finding::Nonsense(format!("more than {} MiB", MAX_OUTPUT >> 20)),
            NoLine::Silent => Finding::Hangs(format!("no answer to `{text}` within {limit:?}")),
        })?;
        let mut parts = line.splitn(3, ' ').skip(1);
        let (kind, value) = (parts.next(), parts.next().unwrap_or_default().to_owned());
        match kind {
            Some("ok") => Ok(Answer::Ok(value)),
            Some("skip") => Err(Finding::NoCase(format!("the client has nothing for `{text}`"))),
            Some("error") => Ok(Answer::Error(value)),
            _ => Err(Finding::Nonsense(format!("`{}`, to `{text}`", shortened(&line)))),
        }
    }

    /// Whether a notice that begins with this text has come, or comes within the limit.
    pub(super) async fn notices(&mut self, text: &str, limit: Duration) -> bool {
        self.notices_one_of(&[text], limit).await.is_some()
    }

    /// Which of these texts the first notice begins with that has come, or comes within the limit, and begins with one.
    pub(super) async fn notices_one_of(
        &mut self,
        texts: &[&str],
        limit: Duration,
    ) -> Option<usize> {
        let begun = |line: &str| {
            let notice = line.strip_prefix("! ")?;
            texts.iter().position(|text| notice.starts_with(text))
        };
        begun(&self.line(limit, |line| begun(line).is_some()).await.ok()?)
    }

    /// Whether a notice came before the answer to a task, both of which have come.
    pub(super) fn is_before(&self, notice: &str, task: &Task) -> bool {
        let at = |start: String| self.lines.iter().position(|line| line.starts_with(&start));
        at(format!("! {notice}"))
            .is_some_and(|notice| Some(notice) < at(format!("{} ", task.number)))
    }

    /// Whether a notice that begins with this text has come.
    pub(super) fn has_noticed(&mut self, text: &str) -> bool {
        self.receive_all();
        self.lines.iter().any(|line| line.strip_prefix("! ").is_some_and(|it| it.starts_with(text)))
    }

    /// Waits until the process ends by itself.
    pub(super) async fn ends(&mut self, limit: Duration) -> Option<ExitStatus> {
        // The group is killed before its leader is waited for: after that, its number may be another one's.
        timeout(limit, async {
            while !self.has_ended() {
                sleep(PAUSE).await;
            }
        })
        .await
        .ok()?;
        self.kill_group();
        timeout(limit, self.child.wait()).await.ok()?.ok()
    }

    /// Whether the process has ended, or the system tells only those that wait for it.
    #[cfg_attr(not(unix), allow(clippy::unused_self, reason = "only Unix tells"))]
    fn has_ended(&self) -> bool {
        #[cfg(unix)]
        if let Some(id) = self.id() {
            use rustix::process::{WaitId, WaitIdOptions, waitid};
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            return !matches!(waitid(WaitId::Pid(id), options), Ok(None));
        }
        true
    }

    #[cfg(unix)]
    fn id(&self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(self.child.id()?.cast_signed())
    }

    /// Kills what the process has started, too.
    fn kill_group(&self) {
        #[cfg(unix)]
        if let Some(id) = self.id() {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }

    /// The most memory that the process has had, in bytes, if the system tells.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
    }

    /// Returns the first line that is wanted, of those that have come and those to come.
    async fn line(
        &mut self,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String, NoLine> {
        let deadline = Instant::now() + limit;
        let mut read = 0;
        loop {
            while let Some(line) = self.lines.get(read) {
                if wanted(line) {
                    return Ok(line.clone());
                }
                read += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match timeout(left, self.from_driver.recv()).await {
                Ok(Some(Some(line))) => self.accept(line),
                Ok(Some(None)) => return Err(NoLine::TooMuch),
                Ok(None) => {
                    let closed = || "standard output was closed".to_owned();
                    let status = self.ends(self.limit).await;
                    return Err(NoLine::Ended(status.map_or_else(closed, |it| it.to_string())));
                }
                Err(_) => return Err(NoLine::Silent),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// Why a line did not come.
enum NoLine {
    Ended(String),
    TooMuch,
    Silent,
}

/// Writes tasks to a driver. One that does not read keeps only this task waiting.
async fn write(mut stdin: ChildStdin, mut tasks: mpsc::UnboundedReceiver<String>) {
    while let Some(task) = tasks.recv().await {
        if stdin.write_all(task.as_bytes()).await.is_err() {
            break;
        }
    }
}

/// Reads lines without their ends. Bytes that are no UTF-8 are replaced.
async fn read(stdout: ChildStdout, to: mpsc::Sender<Option<String>>) {
    let (mut stdout, mut total, mut line) = (BufReader::new(stdout), 0, Vec::new());
    while let Ok(bytes) = stdout.fill_buf().await
        && !bytes.is_empty()
    {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        line.extend_from_slice(taken);
        let len = taken.len();
        stdout.consume(len + usize::from(end.is_some()));
        total += len + if end.is_some() { LINE_COST } else { 0 };
        let received = if total > MAX_OUTPUT {
            None
        } else if end.is_some() {
            let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
            Some(text.trim_end_matches('\r').to_owned())
        } else {
            continue;
        };
        let is_too_much = received.is_none();
        if to.send(received).await.is_err() || is_too_much {
            break;
        }
    }
}

/// The start of a text, for a message.
fn shortened(text: &str) -> String {
    let start: String = text.chars().take(60).collect();
    if start.len() < text.len() { format!("{start}...") } else { start }
}
