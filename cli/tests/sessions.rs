//! Programs that read lines: each line is typed when the output of the one before it has come.

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, Command},
    sync::mpsc,
};

use super::*;

/// A running program.
pub(crate) struct Typed {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

/// Forwards the lines of one output.
fn forward(from: impl AsyncRead + Unpin + Send + 'static, lines: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        let mut from = BufReader::new(from).lines();
        while let Ok(Some(line)) = from.next_line().await {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
}

/// The text with all hexadecimal numbers as `0x…`: sessions and zxids are others in each run.
pub(crate) fn masked(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|char: char| !char.is_ascii_hexdigit() && char != '…');
        out += &format!("0x…{}", &part[end.unwrap_or(part.len())..]);
    }
    out
}

impl Typed {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::unbounded_channel();
        forward(child.stdout.take().unwrap(), send.clone());
        if let Some(errors) = child.stderr.take() {
            forward(errors, send);
        }
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    /// Starts `docent shell`.
    pub(crate) async fn shell(connect: &str, options: &[&str]) -> Self {
        let mut shell = Self::start(docent(connect, &[&["shell"], options].concat()));
        assert_eq!(shell.line().await, "A: session 0x…");
        shell
    }

    /// Starts a program that listens, without its errors. Returns its address, too.
    pub(crate) async fn listening(arguments: &[&str]) -> (Self, String) {
        let mut command = docent("", arguments);
        command.stderr(Stdio::null());
        let mut running = Self::start(command);
        let line = running.line().await;
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}"));
        (running, address.to_owned())
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = within_deadline("a line of output", self.lines.recv()).await;
        masked(&line.expect("the program has ended"))
    }

    /// Types a line, and waits for the lines that it prints.
    #[track_caller]
    pub(crate) fn types<'a>(
        &'a mut self,
        line: &'a str,
        expected: &'a [&str],
    ) -> impl Future<Output = ()> + 'a {
        let place = std::panic::Location::caller();
        async move {
            let text = format!("{line}\n");
            self.input.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
            self.prints(&format!("{place}: {line}"), expected).await;
        }
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for these lines, in any order: those of two clients have none. A line may end with ` …` instead of its rest.
    pub(crate) async fn prints(&mut self, place: &str, expected: &[&str]) {
        let mut missing: Vec<_> = expected.iter().map(|line| masked(line)).collect();
        while !missing.is_empty() {
            let line = self.line().await;
            let is_it = |expected: &String| match expected.strip_suffix(" …") {
                Some(start) => line.starts_with(start),
                None => line == *expected,
            };
            let Some(at) = missing.iter().position(is_it) else {
                panic!("{place}: {line:?} instead of {missing:?}");
            };
            missing.remove(at);
        }
    }

    /// Closes the input, and returns the exit code and the lines that were not expected.
    pub(crate) async fn end(mut self) -> (Option<i32>, Vec<String>) {
        self.close_input();
        let status = within_deadline("the end", self.child.wait()).await.unwrap();
        let mut rest = Vec::new();
        while let Some(line) = self.lines.recv().await {
            rest.push(masked(&line));
        }
        (status.code(), rest)
    }
}
