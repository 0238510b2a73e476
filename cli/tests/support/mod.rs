//! What the tests of the commands share: a server, the program, and its processes.

#![allow(dead_code, reason = "every test program includes all of it and uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

#[path = "../../../tests/support/real.rs"]
pub(crate) mod real;

use std::{
    ffi::OsStr,
    fs,
    process::{Output, Stdio},
    time::Duration,
};

use docent::Client;
#[allow(unused_imports, reason = "not all test programs use both")]
pub(crate) use real::{server, unique_path};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// How long a test waits for anything before it fails: far more than a busy machine needs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The result of a future that must end before the deadline.
pub(crate) async fn within_deadline<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(DEADLINE, future).await {
        Ok(result) => result,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// Asks again and again until the answer is `Some`, and returns what is in it.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        // The pause between two questions, for what cannot call us back.
        sleep(Duration::from_millis(10)).await;
    }
}

/// The program, with no setting from outside, to be ended with the test.
pub(crate) fn docent(connect: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_docent"));
    for name in ["CONNECT", "SESSION_TIMEOUT", "CONNECT_TIMEOUT", "AUTH", "CONFIG"] {
        command.env_remove(format!("DOCENT_{name}"));
    }
    for name in ["CA", "CERT", "KEY", "SERVER_NAME"] {
        command.env_remove(format!("DOCENT_TLS_{name}"));
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

/// A program that hears SIGINT. Where the tests run in the background of a script, nobody does: that is inherited,
/// and docent keeps to it.
pub(crate) fn program(name: &str) -> Command {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if mask & 0b110 == 0 {
        return Command::new(name);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT", name]);
    command
}

/// What a run came to.
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
    /// That it went well, and what it printed.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// That it failed with one line.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, text: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "one line: {self:?}");
        assert!(self.err.contains(text), "{text:?} in {self:?}");
        assert!(self.err.starts_with("docent"), "{self:?}");
    }
}

/// Runs it to its end.
pub(crate) async fn run(connect: &str, arguments: &[impl AsRef<OsStr>]) -> Ran {
    let output = docent(connect, arguments).output();
    within_deadline("the program", output).await.unwrap().into()
}

/// The end of a program that was started.
pub(crate) async fn ended(child: Child) -> Ran {
    within_deadline("the end of the program", child.wait_with_output()).await.unwrap().into()
}

/// Sends a signal by number or name (`-9`, `-STOP`) to a process.
pub(crate) async fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().await.unwrap();
    assert!(status.success(), "kill {signal} {pid}");
}

/// The processes with this text in their environment.
pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let is_marked = |pid: &u32| {
        // One that has ended has none, and one that is not ours cannot be read.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_marked).collect()
}

/// A client of the test's own.
pub(crate) async fn client(connect: &str) -> Client {
    Client::connect(connect).await.unwrap()
}

/// The names below a path; none when it is not there.
pub(crate) async fn children(client: &Client, path: &str) -> Vec<String> {
    match client.get_children(path).await {
        Ok(children) => children.to_vec(),
        Err(error) => {
            assert_eq!(error.kind(), docent::ErrorKind::NoNode);
            Vec::new()
        }
    }
}

/// Waits until so many nodes are below a path.
pub(crate) async fn until_children(client: &Client, path: &str, count: usize) {
    eventually(&format!("{count} nodes below {path}"), async || {
        (children(client, path).await.len() == count).then_some(())
    })
    .await;
}
