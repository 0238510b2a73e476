//! Shared code of the tests: a server, the program, and its processes.

#![allow(dead_code, reason = "every test program includes all of it and uses a part")]

use std::{
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::{Output, Stdio},
};

use docent::Client;
#[allow(unused_imports, reason = "not all test programs use all of them")]
pub(crate) use docent_tests::{
    DEADLINE, eventually,
    real::{self, server, unique_path},
    until, within_deadline,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// A command that runs the program without settings from the environment. The process is killed on drop.
pub(crate) fn docent(connect: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_docent"));
    let settings = "CONNECT SESSION_TIMEOUT CONNECT_TIMEOUT REQUEST_TIMEOUT AUTH SASL CONFIG \
                    TLS_CA TLS_CERT TLS_KEY TLS_SERVER_NAME";
    for name in settings.split(' ') {
        command.env_remove(format!("DOCENT_{name}"));
    }
    command
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if !connect.is_empty() {
        command.env("DOCENT_CONNECT", connect);
    }
    command
}

/// A command that runs a program with the default action for SIGHUP, SIGINT and SIGQUIT. Tests that run under `nohup`,
/// or in the background of a script, inherit these signals as ignored, and docent does not handle ignored signals.
pub(crate) fn program(name: &str) -> Command {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if mask & 0b111 == 0 {
        return Command::new(name);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", name]);
    command
}

/// The exit code and output of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Asserts success and returns the output.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        self.exited(0);
        self.out
    }

    /// Asserts this exit code, and that no error was printed.
    #[track_caller]
    pub(crate) fn exited(&self, code: i32) {
        assert_eq!((self.code, self.err.as_str()), (Some(code), ""), "{}", self.out);
    }

    /// Asserts this exit code and an error of one line that contains `text`.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, text: &str) {
        self.failed_at("", code, text);
    }

    /// Like [`failed`](Self::failed), with the place of the command for the message.
    #[track_caller]
    pub(crate) fn failed_at(self, place: &str, code: i32, text: &str) {
        assert_eq!(self.code, Some(code), "{place} {self:?}");
        assert_eq!(self.err.lines().count(), 1, "{place} one line: {self:?}");
        assert!(self.err.contains(text), "{place} {text:?} in {self:?}");
        assert!(self.err.starts_with("docent"), "{place} {self:?}");
    }
}

/// Runs the program until it exits.
pub(crate) async fn run(connect: &str, arguments: &[impl AsRef<OsStr>]) -> Ran {
    let output = docent(connect, arguments).output();
    within_deadline("the program", output).await.unwrap().into()
}

/// Like [`run`], with this standard input. A program that refuses its arguments does not read it.
pub(crate) async fn run_with_input(
    connect: &str,
    arguments: &[impl AsRef<OsStr>],
    input: impl AsRef<[u8]>,
) -> Ran {
    let mut child = docent(connect, arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let write = async move {
        let _ = stdin.write_all(input.as_ref()).await;
    };
    // Both at once, because neither pipe buffers everything.
    tokio::join!(write, ended(child)).1
}

/// Waits until a program exits.
pub(crate) async fn ended(child: Child) -> Ran {
    within_deadline("the end of the program", child.wait_with_output()).await.unwrap().into()
}

/// Sends a signal by number or name (`-9`, `-STOP`) to a process.
pub(crate) async fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().await.unwrap();
    assert!(status.success(), "kill {signal} {pid}");
}

/// Ends a program by SIGTERM.
pub(crate) async fn terminate(child: Child) -> Ran {
    kill("-TERM", child.id().unwrap()).await;
    ended(child).await
}

/// Waits until no process has this text in its environment.
pub(crate) async fn until_no_process(mark: &str) {
    until("the end of all processes", async || processes_with(mark).is_empty()).await;
}

/// Creates a new chroot and returns a connect string with it.
pub(crate) async fn new_chroot() -> String {
    let (server, path) = (server(), unique_path("chroot"));
    run(&server, &["create", "-p", &path]).await.ok();
    format!("{server}{path}")
}

/// A running program whose output is read line by line.
pub(crate) struct Watching {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    pub(crate) fn start(connect: &str, arguments: &[impl AsRef<OsStr>]) -> Self {
        let mut child = docent(connect, arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line; `None` at the end of the output.
    pub(crate) async fn next(&mut self) -> Option<String> {
        within_deadline("a line of output", self.lines.next_line()).await.unwrap()
    }

    pub(crate) async fn line(&mut self) -> String {
        self.next().await.expect("a line of output")
    }

    /// Asserts that these lines follow.
    pub(crate) async fn expect(&mut self, wanted: &[&str]) {
        for wanted in wanted {
            assert_eq!(self.line().await, *wanted);
        }
    }
}

/// Returns the processes with this text in their environment.
pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let is_marked = |pid: &u32| {
        // Empty for a zombie; not readable for a process of another user.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_marked).collect()
}

/// Connects a new client.
pub(crate) async fn client(connect: &str) -> Client {
    Client::connect(connect).await.unwrap()
}

/// Returns the names of the children; none if the node does not exist.
pub(crate) async fn children(client: &Client, path: &str) -> Vec<String> {
    match client.get_children(path).await {
        Ok(children) => children.to_vec(),
        Err(error) => {
            assert_eq!(error.kind(), docent::ErrorKind::NoNode);
            Vec::new()
        }
    }
}

/// Waits until a node has `count` children.
pub(crate) async fn until_children(client: &Client, path: &str, count: usize) {
    until(&format!("{count} children of {path}"), async || {
        children(client, path).await.len() == count
    })
    .await;
}

/// A file that is removed after the test.
pub(crate) struct TemporaryFile(PathBuf);

impl TemporaryFile {
    pub(crate) fn new() -> Self {
        let name = unique_path("scratch").replace('/', "-");
        Self(std::env::temp_dir().join(format!("docent{name}")))
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) async fn wait_for(&self, part: &str) {
        until(&format!("{part:?} in the file"), async || self.text().contains(part)).await;
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Waits for the state of a process as in proc(5): `S` is sleeping, `T` is stopped.
pub(crate) async fn until_state(pid: &str, state: &str) {
    until(&format!("{pid} in state {state}"), async || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
    })
    .await;
}

/// The watchdog of a `docent lock` or `docent lead`.
pub(crate) fn watchdog_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap_or_else(|_| panic!("expected one child: {children:?}"))
}

/// A command with a child, and a grandchild that has left the group. All of them ignore TERM.
pub(crate) const PROCESS_TREE: &str = "trap '' TERM
    setsid sh -c 'trap \"\" TERM; sleep 1000 & wait' &
    sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' &
    echo held > $0; while :; do sleep 0.01; done";
