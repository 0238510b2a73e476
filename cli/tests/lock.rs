//! `docent lock`, as shells use it. On the server of `DOCENT_TEST_CONNECT`, or an embedded one.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use docent::recipes::locks::InterProcessMutex;

use support::{
    children, client, docent, ended, eventually, kill, processes_with, run, server, unique_path,
    until_children,
};
use tokio::process::Child;

/// A file that is gone with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = unique_path("scratch").replace('/', "-");
        Self(std::env::temp_dir().join(format!("docent{name}")))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    async fn until(&self, part: &str) {
        eventually(&format!("{part:?} in the file"), async || {
            self.text().contains(part).then_some(())
        })
        .await;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// `docent lock OPTIONS PATH -- sh -c SCRIPT FILE`, where `$0` is the file.
fn lock(connect: &str, options: &[&str], path: &str, script: &str, file: &Scratch) -> Child {
    let rest = [path, "--", "sh", "-c", script, file.path()];
    let arguments: Vec<_> = ["lock"].iter().chain(options).chain(&rest).collect();
    docent(connect, &arguments).spawn().unwrap()
}

// What a command gets, and what becomes of its end.

#[tokio::test]
async fn the_command_has_a_token_and_a_path_and_nothing_is_left_behind() {
    let (server, path) = (server(), unique_path("lock"));
    let script = "echo $DOCENT_FENCING_TOKEN; echo $DOCENT_LOCK_PATH; echo $DOCENT_CONNECT";
    let mut last = 0;
    for _ in 0..2 {
        let out = run(&server, &["lock", &path, "--", "sh", "-c", script]).await.ok();
        let [token, node, connect] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
        let token: i64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(node.starts_with(&format!("{path}/_c_")), "{node}");
        assert_eq!(connect, server);
    }
    assert!(children(&client(&server).await, &path).await.is_empty());
}

#[tokio::test]
async fn the_exit_code_is_the_commands_or_its_signal() {
    let (server, path) = (server(), unique_path("lock"));
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -INT $$", 130),
    ] {
        let ran = run(&server, &["lock", &path, "--", "sh", "-c", script]).await;
        assert_eq!((ran.code, ran.err.as_str()), (Some(code), ""), "{script}");
    }
}

#[tokio::test]
async fn the_command_has_our_standard_input_and_arguments_as_they_are() {
    let (server, path) = (server(), unique_path("lock"));
    let mut command = docent(
        &server,
        &["lock", &path, "--", "sh", "-c", "cat; echo \"$@\"", "-", "--timeout", "a  b"],
    );
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"in\n").await.unwrap();
    drop(stdin);
    assert_eq!(ended(child).await.ok(), "in\n--timeout a  b\n");
}

// Not acquired.

#[tokio::test]
async fn a_lock_that_is_taken_is_not_got_and_says_so() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let holder = lock(&server, &[], &path, "echo held > $0; exec sleep 1000", &file);
    file.until("held").await;
    let touch = ["--", "sh", "-c", "echo ran >> $0", file.path()];
    let with = |options: &[&'static str]| {
        let all = ["lock"].iter().chain(options).copied().chain([path.as_str()]).chain(touch);
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    run(&server, &with(&["--no-wait"])).await.failed(124, "is taken");
    run(&server, &with(&["-n"])).await.failed(124, &format!("docent locks {path}"));
    run(&server, &with(&["--timeout", "100ms"])).await.failed(124, "was not free within 100ms");
    run(&server, &with(&["-w", "0.1", "-E", "1"])).await.failed(1, "was not free");
    run(&server, &with(&["--timeout", "0"])).await.failed(124, "was not free");
    assert_eq!(file.text(), "held\n");
    // They have left the queue, all of them.
    until_children(&client(&server).await, &path, 1).await;
    kill("-TERM", holder.id().unwrap()).await;
    assert_eq!(ended(holder).await.code, Some(143));
    until_children(&client(&server).await, &path, 0).await;
    run(&server, &with(&["--no-wait"])).await.ok();
    assert_eq!(file.text(), "held\nran\n");
}

#[tokio::test]
async fn a_waiter_is_served_when_the_holder_has_ended() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let script = "echo begin >> $0; read line; echo end >> $0";
    let mut first = docent(&server, &["lock", &path, "--", "sh", "-c", script, file.path()]);
    let mut first = first.stdin(std::process::Stdio::piped()).spawn().unwrap();
    file.until("begin").await;
    let second = lock(&server, &[], &path, "echo second >> $0", &file);
    until_children(&client(&server).await, &path, 2).await;
    drop(first.stdin.take());
    assert_eq!(ended(first).await.code, Some(0));
    assert_eq!(ended(second).await.code, Some(0));
    assert_eq!(file.text(), "begin\nend\nsecond\n");
}

// Other kinds.

#[tokio::test]
async fn a_semaphore_has_so_many_leases() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let of_two = ["--semaphore", "2"];
    let one = lock(&server, &of_two, &path, "echo one >> $0; exec sleep 1000", &file);
    let two = lock(&server, &of_two, &path, "echo two >> $0; exec sleep 1000", &file);
    file.until("one").await;
    file.until("two").await;
    let third = run(&server, &["lock", "--semaphore", "2", "--no-wait", &path, "--", "true"]).await;
    third.failed(124, "is taken");
    kill("-TERM", one.id().unwrap()).await;
    assert_eq!(ended(one).await.code, Some(143));
    run(&server, &["lock", "--semaphore", "2", "--timeout", "20s", &path, "--", "true"]).await.ok();
    kill("-TERM", two.id().unwrap()).await;
    assert_eq!(ended(two).await.code, Some(143));
    until_children(&client(&server).await, &format!("{path}/leases"), 0).await;
}

#[tokio::test]
async fn readers_are_together_and_a_writer_is_alone() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let reader = lock(&server, &["--read"], &path, "echo reads >> $0; exec sleep 1000", &file);
    file.until("reads").await;
    run(&server, &["lock", "--read", "--no-wait", &path, "--", "true"]).await.ok();
    run(&server, &["lock", "--write", "--no-wait", &path, "--", "true"]).await.failed(124, "taken");
    kill("-TERM", reader.id().unwrap()).await;
    assert_eq!(ended(reader).await.code, Some(143));
    run(&server, &["lock", "--write", "--no-wait", &path, "--", "true"]).await.ok();
}

// Signals, and ends of all kinds.

#[tokio::test]
async fn a_signal_while_waiting_leaves_the_queue_at_once() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let holder = lock(&server, &[], &path, "echo held > $0; exec sleep 1000", &file);
    file.until("held").await;
    let watcher = client(&server).await;
    for (signal, code) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129), ("-USR1", 138)] {
        for options in [&[][..], &["--timeout", "20s"]] {
            let waiter = lock(&server, options, &path, "echo ran >> $0", &file);
            until_children(&watcher, &path, 2).await;
            kill(signal, waiter.id().unwrap()).await;
            let ran = ended(waiter).await;
            // Right away: nothing is left for the session's timeout to remove.
            assert_eq!(children(&watcher, &path).await.len(), 1, "{signal}");
            assert_eq!((ran.code, ran.err.as_str()), (Some(code), ""));
        }
    }
    assert_eq!(file.text(), "held\n");
    kill("-TERM", holder.id().unwrap()).await;
    ended(holder).await;
}

#[tokio::test]
async fn a_signal_while_it_runs_is_passed_on_to_the_whole_group() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let script = "trap 'echo parent >> $0; wait; exit 3' USR1
        sh -c 'trap \"echo child >> $0; exit\" USR1; echo ready >> $0; while :; do sleep 0.01; done' $0 &
        while :; do sleep 0.01; done";
    let running = lock(&server, &[], &path, script, &file);
    file.until("ready").await;
    kill("-USR1", running.id().unwrap()).await;
    assert_eq!(ended(running).await.code, Some(3));
    let mut lines: Vec<_> = file.text().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["child", "parent", "ready"]);
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_before_the_lock_is_given_back() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let mark = format!("MARK={}", unique_path("mark"));
    let script = format!(
        "export {mark}; sleep 1000 & setsid sleep 1000 &
         (trap '' TERM; echo deaf >> $0; while :; do sleep 0.01; done) & 
         until grep -q deaf $0; do sleep 0.01; done; exit 4"
    );
    let running = lock(&server, &["--kill-after", "200ms"], &path, &script, &file);
    assert_eq!(ended(running).await.code, Some(4));
    assert_eq!(processes_with(&mark), [0; 0]);
    assert!(children(&client(&server).await, &path).await.is_empty());
}

#[tokio::test]
async fn a_node_that_somebody_deletes_ends_the_command() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let script = "trap '' TERM; echo held > $0; while :; do sleep 0.01; done";
    let holder = lock(&server, &[], &path, script, &file);
    file.until("held").await;
    let watcher = client(&server).await;
    let node = children(&watcher, &path).await.remove(0);
    watcher.delete(&format!("{path}/{node}"), None).await.unwrap();
    ended(holder).await.failed(125, "node was deleted");
}

#[tokio::test]
async fn a_revocable_lock_is_given_up_when_somebody_asks() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let script = "exec 2>/dev/null; trap 'echo term >> $0; exit 0' TERM; echo held > $0; while :; do sleep 0.01; done";
    let holder = lock(&server, &["--revocable"], &path, script, &file);
    file.until("held").await;
    let watcher = client(&server).await;
    let node = children(&watcher, &path).await.remove(0);
    watcher.set_data(&format!("{path}/{node}"), b"__REVOKE__", None).await.unwrap();
    ended(holder).await.failed(125, "somebody asked for the lock");
    assert_eq!(file.text(), "held\nterm\n");
    assert!(children(&watcher, &path).await.is_empty());
}

/// What our own process had started before it became `docent lock`.
#[tokio::test]
async fn children_of_another_life_are_left_alone() {
    let (server, path) = (server(), unique_path("lock"));
    let script = "sleep 1000 & echo $!; exec \"$@\"";
    let docent_lock = [env!("CARGO_BIN_EXE_docent"), "lock", &path, "--", "sh", "-c", "exit 5"];
    let mut child = tokio::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .args(docent_lock)
        .env("DOCENT_CONNECT", &server)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut line).await.unwrap();
    let stranger: u32 = line.trim().parse().unwrap();
    let status = support::within_deadline("its end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(5));
    let state = fs::read_to_string(format!("/proc/{stranger}/stat")).unwrap();
    assert!(state.contains("(sleep) S"), "{state}");
    kill("-9", stranger).await;
}

// Without a connection.

/// The state of a process, as proc(5) has it: `S` sleeps, `T` is stopped.
fn state_of(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").map(|(_, rest)| rest.get(..1).unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_connection_the_command_stands_still_until_there_is_one() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    let a = tap.client("A").await.unwrap();
    let script = "sh -c 'echo $$ > $0; exec sleep 1000' $0 & wait";
    let options = ["--session-timeout", "20s"];
    let holder = lock(&a.connect_string(), &options, &path, script, &file);
    file.until("\n").await;
    let child = file.text().trim().to_owned();
    for _ in 0..2 {
        a.refuse().await.unwrap();
        a.cut();
        eventually("it stands still", async || (state_of(&child)? == "T").then_some(())).await;
        a.accept().await.unwrap();
        eventually("it goes on", async || (state_of(&child)? == "S").then_some(())).await;
    }
    kill("-TERM", holder.id().unwrap()).await;
    assert_eq!(ended(holder).await.code, Some(143));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_connection_for_too_long_it_is_told_to_end_in_time() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    let a = tap.client("A").await.unwrap();
    let script = "exec 2>/dev/null; trap 'echo term >> $0; exit 0' TERM
        echo $$ > $0; while :; do sleep 0.01; done";
    for options in
        [&["--session-timeout", "4s"][..], &["--session-timeout", "4s", "--run-suspended"]]
    {
        let holder = lock(&a.connect_string(), options, &path, script, &file);
        file.until("\n").await;
        let child = file.text().trim().to_owned();
        a.refuse().await.unwrap();
        a.cut();
        if options.len() == 2 {
            eventually("it stands still", async || (state_of(&child)? == "T").then_some(())).await;
        }
        ended(holder).await.failed(125, "it could not be confirmed in time");
        assert_eq!(file.text(), format!("{child}\nterm\n"));
        until_children(&client(&server).await, &path, 0).await;
        a.accept().await.unwrap();
        fs::remove_file(file.path()).unwrap();
    }
}

// The two processes.

/// The watchdog of a `docent lock`.
fn watchdog_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap_or_else(|_| panic!("one child: {children:?}"))
}

/// A command with a child, a grandchild that has left the group, and deaf ears.
const FAMILY: &str = "trap '' TERM
    setsid sh -c 'trap \"\" TERM; sleep 1000 & wait' &
    sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' &
    echo held > $0; while :; do sleep 0.01; done";

#[tokio::test]
async fn nothing_survives_when_docent_is_killed() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let mark = unique_path("mark");
    let options = ["--kill-after", "100ms", "--session-timeout", "1s"];
    let arguments =
        [&["lock"], &options[..], &[&path, "--", "sh", "-c", FAMILY, file.path()]].concat();
    for stop_first in [false, true] {
        let mut holder = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
        file.until("held").await;
        assert!(processes_with(&mark).len() >= 5);
        let pid = holder.id().unwrap();
        if stop_first {
            kill("-STOP", pid).await;
        }
        kill("-9", pid).await;
        holder.wait().await.unwrap();
        eventually("the end of them all", async || processes_with(&mark).is_empty().then_some(()))
            .await;
        fs::remove_file(file.path()).unwrap();
    }
}

#[tokio::test]
async fn nothing_survives_when_the_watchdog_is_killed_and_the_lock_is_given_back() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let mark = unique_path("mark");
    let mut holder = docent(&server, &["lock", &path, "--", "sh", "-c", FAMILY, file.path()]);
    let holder = holder.env("MARK", &mark).spawn().unwrap();
    file.until("held").await;
    kill("-9", watchdog_of(holder.id().unwrap())).await;
    ended(holder).await.failed(125, "the watchdog was killed");
    assert_eq!(processes_with(&mark), [0; 0]);
    assert!(children(&client(&server).await, &path).await.is_empty());
}

#[tokio::test]
async fn when_both_are_killed_the_command_goes_too() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let mark = unique_path("mark");
    let script = "trap '' TERM; echo held > $0; while :; do read line < /dev/zero; done";
    let mut holder = docent(&server, &["lock", &path, "--", "sh", "-c", script, file.path()]);
    let mut holder = holder.env("MARK", &mark).spawn().unwrap();
    file.until("held").await;
    let (pid, watchdog) = (holder.id().unwrap(), watchdog_of(holder.id().unwrap()));
    // Stopped first, so that neither can do anything about the end of the other.
    kill("-STOP", watchdog).await;
    kill("-9", pid).await;
    kill("-9", watchdog).await;
    holder.wait().await.unwrap();
    eventually("the end of them all", async || processes_with(&mark).is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn who_ends_all_by_name_does_not_hit_the_watchdog() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    let holder = lock(&server, &[], &path, "echo held > $0; exec sleep 1000", &file);
    file.until("held").await;
    let watchdog = watchdog_of(holder.id().unwrap());
    let name = fs::read_to_string(format!("/proc/{watchdog}/comm")).unwrap();
    assert_eq!(name.trim(), "lock-watchdog");
    kill("-TERM", holder.id().unwrap()).await;
    ended(holder).await;
}

// Nonsense.

#[tokio::test]
async fn nonsense_is_refused_in_one_line_before_anything_is_done() {
    let server = server();
    let file = Scratch::new();
    fs::write(file.path(), "no program").unwrap();
    for (arguments, code, text) in [
        (vec!["/l", "--", "true", "--tiemout"], 64, "--tiemout"),
        (vec!["--tiemout", "3", "/l", "--", "true"], 64, "--timeout"),
        (vec!["--timeout", "soon", "/l", "--", "true"], 64, "10s"),
        (vec!["--timeout", "3", "--no-wait", "/l", "--", "true"], 64, "--no-wait"),
        (vec!["--read", "--write", "/l", "--", "true"], 64, "--write"),
        (vec!["--semaphore", "0", "/l", "--", "true"], 64, "--semaphore"),
        (vec!["--semaphore", "2", "--revocable", "/l", "--", "true"], 64, "--revocable"),
        (vec!["/l"], 64, "COMMAND"),
        (vec!["/l", "true"], 64, "--"),
        (vec!["--", "true"], 64, "PATH"),
        (vec!["l", "--", "true"], 64, "begin with a slash"),
        (vec!["/", "--", "true"], 64, "/"),
        (vec!["/a//b", "--", "true"], 64, "/a//b"),
        (vec!["/l", "--", "no-such-command"], 127, "no such command"),
        (vec!["/l", "--", "/no/such/command"], 127, "no such command"),
        (vec!["/l", "--", "/tmp"], 126, "cannot be executed"),
        (vec!["/l", "--", file.path()], 126, "cannot be executed"),
        (vec!["--connect", "host:port", "/l", "--", "true"], 64, "wants HOST:PORT,"),
        (vec!["--connect", ",", "/l", "--", "true"], 64, "names no server"),
        (vec!["--auth", "secret", "/l", "--", "true"], 64, "SCHEME:CREDENTIALS"),
        (vec!["--tls-cert", "x.pem", "/l", "--", "true"], 64, "--tls-ca"),
        (vec!["--tls-ca", "/no/such.pem", "/l", "--", "true"], 74, "/no/such.pem"),
        (vec!["--config", "/no/such.toml", "/l", "--", "true"], 78, "/no/such.toml"),
    ] {
        let is_the_commands = arguments.last() == Some(&"--tiemout");
        let arguments: Vec<_> = ["lock"].into_iter().chain(arguments).collect();
        let ran = run(&server, &arguments).await;
        if is_the_commands {
            ran.ok();
        } else {
            assert!(!ran.err.contains("secret"));
            ran.failed(code, text);
        }
    }
}

#[tokio::test]
async fn a_script_without_its_interpreter_says_so() {
    let (server, path, file) = (server(), unique_path("lock"), Scratch::new());
    // Not written by us: what another test starts meanwhile would inherit the open file for a moment (ETXTBSY).
    let write = "echo '#!/no/such/interpreter' > $0; chmod +x $0";
    let written = support::program("sh").args(["-c", write, file.path()]).status().await.unwrap();
    assert!(written.success());
    run(&server, &["lock", &path, "--", file.path()]).await.failed(127, "the interpreter");
    assert!(children(&client(&server).await, &path).await.is_empty());
}

#[tokio::test]
async fn without_a_server_it_says_where_it_looked() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = format!("127.0.0.1:{port}");
    let arguments = ["lock", "--connect-timeout", "300ms", "/l", "--", "true"];
    run(&nowhere, &arguments).await.failed(69, &nowhere);
    let named = "no-such-host.invalid:2181";
    run(named, &arguments).await.failed(69, named);
}

/// Time for the command of a holder whose session was killed to stand still.
#[tokio::test]
async fn who_waited_begins_a_moment_after_the_one_before() {
    let (server, path) = (server(), unique_path("lock"));
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let file = Scratch::new();
    let options = ["--session-timeout", "4s"];
    let waiting = lock(&server, &options, &path, "echo began >> $0", &file);
    until_children(&client, &path, 2).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    file.until("began").await;
    assert!(released.elapsed() >= Duration::from_millis(250), "{:?}", released.elapsed());
    ended(waiting).await.ok();
}
