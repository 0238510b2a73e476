//! A driver: the process of the client under test. It gets its tasks as lines, and answers with lines.

use std::{
    io,
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::timeout,
};

use super::judgement::Finding;

/// The longest line that is read from a driver, in bytes.
const MAX_LINE: usize = 4 << 20;

/// The number of lines that may wait to be read.
const MAX_LINES: usize = 10_000;

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

/// A running driver. Its process group is killed when it is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    child: Child,
    stdin: ChildStdin,
    from_driver: mpsc::Receiver<String>,
    /// How long an answer may take.
    pub(super) limit: Duration,
    /// All lines so far.
    lines: Vec<String>,
    sent: usize,
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
        tokio::spawn(async move {
            let mut stdout = BufReader::new(stdout);
            while let Some(line) = next_line(&mut stdout).await {
                if to_us.send(line).await.is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, stdin, from_driver, limit, lines: Vec::new(), sent: 0 })
    }

    /// Sends a task.
    pub(super) async fn send(&mut self, text: &str) -> Task {
        self.sent += 1;
        let task = Task { number: self.sent, text: text.to_owned() };
        // If it fails, the process has ended, which the answer tells.
        let _ = self.stdin.write_all(format!("{} {text}\n", task.number).as_bytes()).await;
        task
    }

    /// Waits for the answer to a task.
    pub(super) async fn answer(&mut self, task: &Task) -> Result<Answer, Finding> {
        let limit = self.limit;
        let (number, text) = (task.number.to_string(), shortened(&task.text));
        let line = self.line(limit, |line| line.split(' ').next() == Some(&number)).await;
        let line = line.map_err(|end| match end {
            NoLine::Ended(how) => Finding::Ends(format!("{how} at `{text}`")),
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

    /// Waits until the process ends by itself.
    pub(super) async fn ends(&mut self, limit: Duration) -> bool {
        timeout(limit, self.child.wait()).await.is_ok()
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
                Ok(Some(line)) => self.lines.push(line),
                Ok(None) => {
                    let status = timeout(self.limit, self.child.wait()).await;
                    let how = match status {
                        Ok(Ok(status)) => format!("{status}"),
                        _ => "standard output was closed".to_owned(),
                    };
                    return Err(NoLine::Ended(how));
                }
                Err(_) => return Err(NoLine::Silent),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(id) =
            self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
        {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

/// Why a line did not come.
enum NoLine {
    Ended(String),
    Silent,
}

/// Reads a line without its end. Bytes that are no UTF-8 are replaced; a longer line than [`MAX_LINE`] ends the reading.
async fn next_line(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let bytes = from.fill_buf().await.ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        line.extend_from_slice(taken);
        let (len, is_over) = (taken.len(), bytes.is_empty() || line.len() > MAX_LINE);
        from.consume(len + usize::from(end.is_some()));
        if end.is_some() {
            return Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned());
        }
        if is_over {
            return None;
        }
    }
}

/// The start of a text, for a message.
fn shortened(text: &str) -> String {
    let start: String = text.chars().take(60).collect();
    if start.len() < text.len() { format!("{start}...") } else { start }
}
