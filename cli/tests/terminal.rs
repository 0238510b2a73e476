//! `docent lock` and `docent serve` in a terminal, which script(1) provides.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::ChildStdin,
};

use super::*;
use crate::support::{program, real::skip};

/// A program that runs in a new terminal.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    /// Runs a shell command in a new terminal. Returns `None` and records a skip if script(1) is missing.
    #[track_caller]
    fn run(connect: &str, line: &str) -> Option<Self> {
        let spawned = program("script")
            .args(["-qfec", line, "/dev/null"])
            .env("DOCENT_CONNECT", connect)
            .env("DOCENT", env!("CARGO_BIN_EXE_docent"))
            .env("SHELL", "/bin/sh")
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let Ok(mut child) = spawned else {
            skip("no script(1)");
            return None;
        };
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let output = Arc::clone(&screen);
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer).await {
                let text = String::from_utf8_lossy(buffer.get(..count).unwrap()).into_owned();
                output.lock().unwrap().push_str(&text);
            }
        });
        Some(Self { child, keys, screen })
    }

    async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    async fn wait_for(&self, part: &str) {
        until(&format!("{part:?} on the screen"), async || {
            self.screen.lock().unwrap().contains(part)
        })
        .await;
    }

    /// Types text, and waits for other text on the screen.
    async fn press_until(&mut self, text: &str, shown: &str) {
        self.press(text).await;
        self.wait_for(shown).await;
    }

    /// Waits for the exit and returns the exit code.
    async fn exit_code(mut self) -> Option<i32> {
        within_deadline("the exit", self.child.wait()).await.unwrap().code()
    }
}

#[tokio::test]
async fn the_command_gets_the_terminal() {
    let (server, path) = (server(), unique_path("lock"));
    let line = format!("$DOCENT lock {path} -- sh -c 'echo ready; read x; echo got $x; exit 3'");
    let Some(mut terminal) = Terminal::run(&server, &line) else { return };
    terminal.wait_for("ready").await;
    terminal.press_until("hello\n", "got hello").await;
    assert_eq!(terminal.exit_code().await, Some(3));
}

#[tokio::test]
async fn ctrl_c_ends_the_command() {
    let (server, path) = (server(), unique_path("lock"));
    let line = format!("$DOCENT lock {path} -- sh -c 'echo ready; exec sleep 1000'");
    let Some(mut terminal) = Terminal::run(&server, &line) else { return };
    terminal.wait_for("ready").await;
    terminal.press("\u{3}").await;
    assert_eq!(terminal.exit_code().await, Some(130));
    until_children(&client(&server).await, &path, 0).await;
}

#[tokio::test]
async fn a_waiter_shows_its_position_and_leaves_the_queue_on_ctrl_c() {
    let (server, path) = (server(), unique_path("lock"));
    let arguments = ["lock", "--data", "somebody", &path, "--", "sleep", "1000"];
    let holder = docent(&server, &arguments).spawn().unwrap();
    let watcher = client(&server).await;
    until_children(&watcher, &path, 1).await;
    let line = format!("$DOCENT lock {path} -- true");
    let Some(mut terminal) = Terminal::run(&server, &line) else { return };
    terminal.wait_for(&format!("docent lock: waiting for {path}: next, behind somebody")).await;
    terminal.press("\u{3}").await;
    assert_eq!(terminal.exit_code().await, Some(130));
    until_children(&watcher, &path, 1).await;
    terminate(holder).await;
}

/// If it is continued in time, the command continues. If it is continued too late, the command has been ended.
///
/// The command only reads, because a shell that is starting a program (vfork) would not stop before the start is done.
#[tokio::test]
async fn ctrl_z_stops_it_and_returns_to_the_shell() {
    let (server, path) = (server(), unique_path("lock"));
    let Some(mut terminal) = Terminal::run(&server, "bash --norc --noediting -i") else { return };
    let script = "echo rea\"\"dy; read x; echo g\"\"ot $x";
    let line = format!("$DOCENT lock --session-timeout 60s {path} -- sh -c '{script}'\n");
    terminal.press_until(&line, "ready").await;
    terminal.press_until("\u{1a}", "Stopped").await;
    // The lock is held while the command is stopped.
    assert_eq!(crate::support::children(&client(&server).await, &path).await.len(), 1);
    terminal.press("fg\n").await;
    terminal.press_until("hello\n", "got hello").await;
    terminal.press_until("echo co\"\"de $?\n", "code 0").await;

    let path = unique_path("lock");
    let script = "echo ag\"\"ain; read x";
    let line = format!("$DOCENT lock --session-timeout 4s {path} -- sh -c '{script}'\n");
    terminal.press_until(&line, "again").await;
    terminal.press("\u{1a}").await;
    until_children(&client(&server).await, &path, 0).await;
    terminal.press_until("fg\n", "the command was ended").await;
    terminal.press_until("echo co\"\"de $?\n", "code 125").await;
    terminal.press("exit\n").await;
    terminal.exit_code().await;
}

/// In the background, it must not take the terminal from the shell.
#[tokio::test]
async fn in_the_background_it_does_not_take_the_terminal() {
    let (server, path) = (server(), unique_path("lock"));
    let Some(mut terminal) = Terminal::run(&server, "bash --norc --noediting -i") else { return };
    let script = "echo rea\"\"dy; read x; echo g\"\"ot $x";
    terminal.press_until(&format!("$DOCENT lock {path} -- sh -c '{script}' &\n"), "ready").await;
    // The command reads from the terminal and is stopped.
    let line = "until jobs | grep -q Stopped; do sleep 0.05; done; echo still m\"\"ine\n";
    terminal.press_until(line, "still mine").await;
    terminal.press("fg\n").await;
    terminal.press_until("hello\n", "got hello").await;
    terminal.press("exit\n").await;
    terminal.exit_code().await;
}

/// The pager has the terminal until the command reads from it.
#[tokio::test]
async fn in_a_pipeline_the_command_gets_the_terminal_when_it_reads() {
    let (server, path) = (server(), unique_path("lock"));
    let line = format!(
        "$DOCENT lock {path} -- sh -c 'echo ready; read x </dev/tty; echo got $x; exec sleep 1000' | cat; \
         echo over"
    );
    let Some(mut terminal) = Terminal::run(&server, &line) else { return };
    terminal.wait_for("ready").await;
    terminal.press_until("hello\n", "got hello").await;
    terminal.press_until("\u{3}", "over").await;
    terminal.exit_code().await;
    until_children(&client(&server).await, &path, 0).await;
}

#[tokio::test]
async fn ctrl_c_and_ctrl_z_reach_a_command_in_a_pipeline() {
    let (server, path) = (server(), unique_path("lock"));
    let Some(mut terminal) = Terminal::run(&server, "bash --norc --noediting -i") else { return };
    let script =
        "trap \"echo h\"\"eard >/dev/tty; exit 7\" INT; echo rea\"\"dy; while :; do :; done";
    let line = format!("$DOCENT lock --session-timeout 60s {path} -- sh -c '{script}' | cat\n");
    terminal.press_until(&line, "ready").await;
    terminal.press_until("\u{1a}", "Stopped").await;
    assert_eq!(crate::support::children(&client(&server).await, &path).await.len(), 1);
    terminal.press("fg\n").await;
    // The shell prints the command line for the third time when it has put the job into the foreground again. `docent`
    // does not show when it has given the terminal to its command, so Ctrl-C is repeated; at the prompt it has no
    // effect.
    until("the command line again", async || {
        terminal.screen.lock().unwrap().matches("| cat").count() >= 3
    })
    .await;
    let screen = Arc::clone(&terminal.screen);
    until("\"heard\" on the screen", async || {
        terminal.press("\u{3}").await;
        screen.lock().unwrap().contains("heard")
    })
    .await;
    until_children(&client(&server).await, &path, 0).await;
}

/// The prompt reads from the terminal, which would stop a process in the background (SIGTTIN).
#[tokio::test]
async fn serve_continues_in_the_background_and_has_a_prompt_in_the_foreground() {
    let Some(mut terminal) = Terminal::run("", "bash --norc --noediting -i") else { return };
    terminal.press_until("$DOCENT serve --listen 127.0.0.1:0 &\n", "docent> ").await;
    terminal.press_until("sleep 1; jobs -r | sed s/Running/running/\n", "running").await;
    terminal.press("fg; echo en''ded\n").await;
    terminal.press_until("status\n", "1 standalone").await;
    terminal.press_until("quit\n", "ended").await;
    terminal.press("exit 7\n").await;
    assert_eq!(terminal.exit_code().await, Some(7));
}

#[tokio::test]
async fn a_shell_goes_on_after_a_wrong_line_and_closes_its_sessions_on_ctrl_c() {
    let (server, path) = (server(), unique_path("typed"));
    let Some(mut terminal) = Terminal::run(&server, "$DOCENT shell") else { return };
    terminal.wait_for("docent> ").await;
    let error = "docent shell: line 1: there is no client or command craete";
    terminal.press_until("craete /x\n", error).await;
    terminal.press(&format!("create -p {path}/parent\ncreate -e {path}/here\n")).await;
    let other = client(&server).await;
    until_children(&other, &path, 2).await;
    terminal.press(&format!("A get -w {path}/parent\n")).await;
    terminal.press_until(&format!("set {path}/parent x\n"), "A: NodeDataChanged").await;
    terminal.press("\u{3}").await;
    assert_eq!(terminal.exit_code().await, Some(130));
    until_children(&other, &path, 1).await;
}
