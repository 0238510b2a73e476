//! `docent lock` as shells use it, and what `docent lead` has in common with it. The tests run on the server of
//! `DOCENT_TEST_CONNECT`, or on an embedded one.

use docent::locks::StrictMutex;
use docent_testing::tap::Record;

use super::*;
use crate::support::{PROCESS_TREE, until_state, watchdog_of};

/// Starts `docent lock OPTIONS PATH -- sh -c SCRIPT FILE`, where `$0` is the file.
fn lock(connect: &str, options: &[&str], path: &str, script: &str, file: &TemporaryFile) -> Child {
    guard(connect, &[&["lock"], options].concat(), path, script, file)
}

/// Like [`lock`], but `lock` or `lead` is the first of the words.
fn guard(connect: &str, words: &[&str], path: &str, script: &str, file: &TemporaryFile) -> Child {
    let rest = [path, "--", "sh", "-c", script, file.path()];
    docent(connect, &[words, &rest].concat()).spawn().unwrap()
}

// The environment and the exit code of the command.

#[tokio::test]
async fn the_command_gets_a_token_and_a_path_and_no_node_is_left() {
    for (command, variable, name) in
        [("lock", "LOCK_PATH", "-lock-"), ("lead", "LEADER_PATH", "-latch-")]
    {
        let (server, path) = (server(), unique_path(command));
        let script =
            format!("echo $DOCENT_FENCING_TOKEN; echo $DOCENT_{variable}; echo $DOCENT_CONNECT");
        let mut last = 0;
        for _ in 0..2 {
            let out = run(&server, &[command, &path, "--", "sh", "-c", &script]).await.ok();
            let lines: Vec<_> = out.lines().collect();
            let [token, node, connect] = lines[..] else { panic!("{out}") };
            let token: i64 = token.parse().unwrap();
            assert!(token > last, "{token} after {last}");
            last = token;
            assert!(node.starts_with(&format!("{path}/_c_")) && node.contains(name), "{node}");
            assert_eq!(connect, server);
        }
        assert!(children(&client(&server).await, &path).await.is_empty());
    }
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_command_or_of_its_signal() {
    for words in [&["lock"][..], &["lead"], &["lead", "--again"]] {
        let (server, path) = (server(), unique_path(words[0]));
        for (script, code) in [
            ("exit 0", 0),
            ("exit 7", 7),
            ("exit 255", 255),
            ("kill -9 $$", 137),
            ("kill -INT $$", 130),
        ] {
            run(&server, &[words, &[&path, "--", "sh", "-c", script]].concat()).await.exited(code);
        }
    }
}

#[tokio::test]
async fn the_command_gets_standard_input_and_unchanged_arguments() {
    let (server, path) = (server(), unique_path("lock"));
    let script = ["sh", "-c", "cat; echo \"$@\"", "-", "--timeout", "a  b"];
    let arguments = [&["lock", &path, "--"][..], &script].concat();
    let ran = run_with_input(&server, &arguments, "in\n").await;
    assert_eq!(ran.ok(), "in\n--timeout a  b\n");
}

// A lock that is not acquired.

// Case (Found in docent itself): `-E 1` of `docent lock` and `docent lead` gave exit code 70.
#[tokio::test]
async fn a_held_lock_is_not_acquired_and_the_error_says_so() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let holder = lock(&server, &[], &path, "echo held > $0; exec sleep 1000", &file);
    file.wait_for("held").await;
    let touch = ["--", "sh", "-c", "echo ran >> $0", file.path()];
    let with = |options: &[&'static str]| {
        let all = ["lock"].iter().chain(options).copied().chain([path.as_str()]).chain(touch);
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    run(&server, &with(&["--no-wait"])).await.failed(124, "is held by another client");
    run(&server, &with(&["-n"])).await.failed(124, &format!("docent locks {path}"));
    run(&server, &with(&["--timeout", "100ms"])).await.failed(124, "was not acquired within 100ms");
    run(&server, &with(&["-w", "0.1", "-E", "1"])).await.failed(1, "was not acquired");
    run(&server, &with(&["--timeout", "0"])).await.failed(124, "was not acquired");
    assert_eq!(file.text(), "held\n");
    // All waiters have left the queue.
    until_children(&client(&server).await, &path, 1).await;
    assert_eq!(terminate(holder).await.code, Some(143));
    until_children(&client(&server).await, &path, 0).await;
    run(&server, &with(&["--no-wait"])).await.ok();
    assert_eq!(file.text(), "held\nran\n");
}

/// An outage has another exit code than a busy lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_reply_in_time_is_not_a_held_lock() {
    let (server, path) = (server(), unique_path("lock"));
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    let slow = Duration::from_secs(20);
    tap.inject(Fault::delay_request(OpCode::Create2, slow).below(&path).times(u32::MAX));
    for wait in [&["--no-wait"][..], &["--timeout", "200ms", "-E", "1"]] {
        let arguments = [&["lock"], wait, &[&path, "--", "true"]].concat();
        let ran = run(&tap.connect_string(), &arguments).await;
        ran.failed(69, "it is unknown whether the lock is free");
    }
}

#[tokio::test]
async fn a_waiter_acquires_after_the_holder_has_exited() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let script = "echo begin >> $0; read line; echo end >> $0";
    let mut first = docent(&server, &["lock", &path, "--", "sh", "-c", script, file.path()]);
    let mut first = first.stdin(std::process::Stdio::piped()).spawn().unwrap();
    file.wait_for("begin").await;
    let second = lock(&server, &[], &path, "echo second >> $0", &file);
    until_children(&client(&server).await, &path, 2).await;
    drop(first.stdin.take());
    assert_eq!(ended(first).await.code, Some(0));
    assert_eq!(ended(second).await.code, Some(0));
    assert_eq!(file.text(), "begin\nend\nsecond\n");
}

/// A machine whose clock is later must not run the command again after that of the first machine has exited.
// Case (Found in docent itself): a job of many machines under `docent lock --no-wait` ran again on
// each whose clock was later than the job was long.
// Case (Found in docent itself): `docent lock --at-least` exited with the code of its command, 0,
// when the lock was lost before the time was over.
#[tokio::test]
async fn a_lock_is_held_at_least_as_long_as_asked() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let watcher = client(&server).await;
    let cron = |time| {
        lock(&server, &["--no-wait", "--at-least", time], &path, "echo ran >> $0; exit 3", &file)
    };
    // The hold ends by itself, but not before its time.
    let start = Instant::now();
    assert_eq!(ended(cron("300ms")).await.code, Some(3));
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    let first = cron("1h");
    file.wait_for("ran\nran\n").await;
    until_watchdog_is_gone(&first).await;
    for _ in 0..3 {
        ended(cron("1h")).await.failed(124, "is held by another client");
    }
    // A signal ends the hold and leaves no node.
    assert_eq!(terminate(first).await.code, Some(143));
    assert!(children(&watcher, &path).await.is_empty());
    assert_eq!(file.text(), "ran\nran\n");
    // A loss has its exit code even after the command has exited.
    let third = cron("1h");
    file.wait_for("ran\nran\nran\n").await;
    until_watchdog_is_gone(&third).await;
    let nodes = children(&watcher, &path).await;
    let [node] = &nodes[..] else { panic!("{nodes:?}") };
    watcher.delete(&format!("{path}/{node}"), None).await.unwrap();
    ended(third)
        .await
        .failed(125, "lost before --at-least was over, after the command had exited with 3");
}

/// Waits until the watchdog of a `docent lock` has exited. It exits after the command.
async fn until_watchdog_is_gone(lock: &Child) {
    let pid = lock.id().unwrap();
    let children = format!("/proc/{pid}/task/{pid}/children");
    until("no watchdog", async || fs::read_to_string(&children).unwrap().trim().is_empty()).await;
}

// Other kinds of lock.

/// Holders with these options, and whether another contender can acquire at the same time.
#[tokio::test]
async fn each_kind_of_lock_excludes_those_that_it_should() {
    for (holders, contender, is_free) in [
        (&["--semaphore 2"][..], "--semaphore 2", true),
        (&["--semaphore 2", "--semaphore 2"], "--semaphore 2", false),
        (&["--read"], "--read", true),
        (&["--read"], "--write", false),
        (&["--write"], "--read", false),
        (&["--strict"], "--strict", false),
    ] {
        let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
        let mut running = Vec::new();
        for options in holders {
            let options: Vec<_> = options.split(' ').collect();
            let script = "echo held >> $0; exec sleep 1000";
            running.push(lock(&server, &options, &path, script, &file));
            file.wait_for(&"held\n".repeat(running.len())).await;
        }
        let contender: Vec<_> = contender.split(' ').collect();
        let with = |wait: &'static [&str]| {
            [&["lock"], wait, &contender[..], &[&path, "--", "true"]].concat()
        };
        if is_free {
            // The holders hold it for longer.
            run(&server, &with(&["--timeout", "100s"])).await.ok();
        } else {
            run(&server, &with(&["--no-wait"])).await.failed(124, "is held by another client");
        }
        for holder in running {
            assert_eq!(terminate(holder).await.code, Some(143));
        }
        run(&server, &with(&["--timeout", "100s"])).await.ok();
    }
}

// Signals, and the end of the command.

// Case (Contracts of docent lock): a signal while waiting leaves the queue at once, and no node
// (consul#4439).
#[tokio::test]
async fn a_signal_during_the_acquire_leaves_the_queue_at_once() {
    for words in [&["lock"][..], &["lock", "--timeout", "20s"], &["lead", "--again"]] {
        let (server, path, file) = (server(), unique_path(words[0]), TemporaryFile::new());
        let script = "echo held > $0; exec sleep 1000";
        let holder = guard(&server, &words[..1], &path, script, &file);
        file.wait_for("held").await;
        let watcher = client(&server).await;
        for (signal, code) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129), ("-USR1", 138)] {
            let waiter = guard(&server, words, &path, "echo ran >> $0", &file);
            until_children(&watcher, &path, 2).await;
            kill(signal, waiter.id().unwrap()).await;
            let ran = ended(waiter).await;
            // At once: the node must not stay until the session expires.
            assert_eq!(children(&watcher, &path).await.len(), 1, "{signal}");
            ran.exited(code);
        }
        assert_eq!(file.text(), "held\n");
        terminate(holder).await;
    }
}

// Case (Contracts of docent lock): a signal while it runs.
#[tokio::test]
async fn a_signal_while_it_runs_is_forwarded_to_the_process_group() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let script = "trap 'echo parent >> $0; wait; exit 3' USR1
        sh -c 'trap \"echo child >> $0; exit\" USR1; echo ready >> $0; while :; do sleep 0.01; done' $0 &
        while :; do sleep 0.01; done";
    let running = lock(&server, &[], &path, script, &file);
    file.wait_for("ready").await;
    kill("-USR1", running.id().unwrap()).await;
    assert_eq!(ended(running).await.code, Some(3));
    let mut lines: Vec<_> = file.text().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["child", "parent", "ready"]);
}

// Case (Contracts of docent lock): the command leaves processes behind.
#[tokio::test]
async fn processes_that_the_command_leaves_end_before_the_release() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
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

// Case (Contracts of docent lock): the lock's node is deleted.
#[tokio::test]
async fn deleting_the_lock_node_ends_the_command() {
    for (command, text) in
        [("lock", "node was deleted"), ("lead", "the leader's node was deleted by another client")]
    {
        let (server, path, file) = (server(), unique_path(command), TemporaryFile::new());
        let script = "trap '' TERM; echo held > $0; while :; do sleep 0.01; done";
        let holder = guard(&server, &[command], &path, script, &file);
        file.wait_for("held").await;
        let watcher = client(&server).await;
        let node = children(&watcher, &path).await.remove(0);
        watcher.delete(&format!("{path}/{node}"), None).await.unwrap();
        ended(holder).await.failed(125, text);
        until_children(&watcher, &path, 0).await;
    }
}

// Case (Contracts of docent lock): another client revokes the lock.
#[tokio::test]
async fn a_revocable_lock_is_released_when_it_is_revoked() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let script = "exec 2>/dev/null; trap 'echo term >> $0; exit 0' TERM; echo held > $0; while :; do sleep 0.01; done";
    let holder = lock(&server, &["--revocable"], &path, script, &file);
    file.wait_for("held").await;
    let watcher = client(&server).await;
    let node = children(&watcher, &path).await.remove(0);
    watcher.set_data(&format!("{path}/{node}"), b"__REVOKE__", None).await.unwrap();
    ended(holder).await.failed(125, "the lock was revoked");
    assert_eq!(file.text(), "held\nterm\n");
    assert!(children(&watcher, &path).await.is_empty());
}

/// The process has children from before it became `docent lock` by exec.
// Case (Contracts of docent lock): processes that are not the command's.
#[tokio::test]
async fn preexisting_children_are_not_signalled() {
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
    let preexisting: u32 = line.trim().parse().unwrap();
    let status = crate::support::within_deadline("the exit", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(5));
    let state = fs::read_to_string(format!("/proc/{preexisting}/stat")).unwrap();
    assert!(state.contains("(sleep) S"), "{state}");
    kill("-9", preexisting).await;
}

// Without a connection.

// Case (Contracts of docent lock): the connection breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_is_stopped_until_a_reconnect() {
    for command in ["lock", "lead"] {
        let (server, path, file) = (server(), unique_path(command), TemporaryFile::new());
        let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
        let a = tap.client("A").await.unwrap();
        let script = "sh -c 'echo $$ > $0; exec sleep 1000' $0 & wait";
        let words = [command, "--session-timeout", "20s"];
        let holder = guard(&a.connect_string(), &words, &path, script, &file);
        file.wait_for("\n").await;
        let child = file.text().trim().to_owned();
        for _ in 0..2 {
            a.refuse().await.unwrap();
            a.cut();
            until_state(&child, "T").await;
            a.accept().await.unwrap();
            until_state(&child, "S").await;
        }
        terminate(holder).await.exited(143);
    }
}

// Case (Found in docent itself): the test of a stopped command under `docent lock` expected state
// T; a shell that is stopped while it starts a program (vfork) is in state D.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_is_ended_in_time_without_a_reconnect() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    let a = tap.client("A").await.unwrap();
    // Not in a loop: a shell that is stopped in the middle of starting a program (vfork) is in state D, not T.
    let script = "exec 2>/dev/null; trap 'echo term >> $0; exit 0' TERM
        sh -c 'echo $$ > $0; exec sleep 1000' $0 & wait";
    for options in
        [&["--session-timeout", "8s"][..], &["--session-timeout", "8s", "--run-suspended"]]
    {
        let holder = lock(&a.connect_string(), options, &path, script, &file);
        file.wait_for("\n").await;
        let child = file.text().trim().to_owned();
        a.refuse().await.unwrap();
        a.cut();
        if options.len() == 2 {
            until_state(&child, "T").await;
        }
        ended(holder).await.failed(125, "no server confirmed in time");
        assert_eq!(file.text(), format!("{child}\nterm\n"));
        until_children(&client(&server).await, &path, 0).await;
        a.accept().await.unwrap();
        fs::remove_file(file.path()).unwrap();
    }
}

// `docent lock` and its watchdog.

// Case (Contracts of docent lock): it is killed.
#[tokio::test]
async fn no_process_survives_when_docent_is_killed() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let mark = unique_path("mark");
    let options = ["--kill-after", "100ms", "--session-timeout", "4s"];
    let rest = [&path, "--", "sh", "-c", PROCESS_TREE, file.path()];
    for (words, stop_first) in
        [(&["lock"][..], false), (&["lock"], true), (&["lead", "--again"], false)]
    {
        let arguments = [words, &options, &rest].concat();
        let mut holder = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
        file.wait_for("held").await;
        assert!(processes_with(&mark).len() >= 5);
        let pid = holder.id().unwrap();
        if stop_first {
            kill("-STOP", pid).await;
        }
        kill("-9", pid).await;
        holder.wait().await.unwrap();
        until_no_process(&mark).await;
        fs::remove_file(file.path()).unwrap();
    }
}

// Case (Contracts of docent lock): its watchdog is killed, or both are.
#[tokio::test]
async fn no_process_survives_when_the_watchdog_is_killed_and_the_lock_is_released() {
    for words in [&["lock"][..], &["lead", "--again"]] {
        let (server, path, file) = (server(), unique_path(words[0]), TemporaryFile::new());
        let mark = unique_path("mark");
        let rest = [&path, "--", "sh", "-c", PROCESS_TREE, file.path()];
        let mut holder = docent(&server, &[words, &rest].concat());
        let holder = holder.env("MARK", &mark).spawn().unwrap();
        file.wait_for("held").await;
        let watchdog = watchdog_of(holder.id().unwrap());
        // A name that `pkill docent` does not find.
        let name = fs::read_to_string(format!("/proc/{watchdog}/comm")).unwrap();
        assert_eq!(name.trim(), "lock-watchdog");
        kill("-9", watchdog).await;
        ended(holder).await.failed(125, "the watchdog was killed");
        assert_eq!(processes_with(&mark), [0; 0]);
        assert!(children(&client(&server).await, &path).await.is_empty());
    }
}

#[tokio::test]
async fn when_both_are_killed_the_command_is_killed_too() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let mark = unique_path("mark");
    let script = "trap '' TERM; echo held > $0; while :; do read line < /dev/zero; done";
    let mut holder = docent(&server, &["lock", &path, "--", "sh", "-c", script, file.path()]);
    let mut holder = holder.env("MARK", &mark).spawn().unwrap();
    file.wait_for("held").await;
    let (pid, watchdog) = (holder.id().unwrap(), watchdog_of(holder.id().unwrap()));
    // The watchdog is stopped first, so that it cannot react when `docent` is killed.
    kill("-STOP", watchdog).await;
    kill("-9", pid).await;
    kill("-9", watchdog).await;
    holder.wait().await.unwrap();
    until_no_process(&mark).await;
}

// Commands and servers that cannot be reached.

#[tokio::test]
async fn a_script_without_its_interpreter_is_reported() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    // A shell writes the file: if this process did, a program started by another test could inherit the open
    // file for a moment (ETXTBSY).
    let write = "echo '#!/no/such/interpreter' > $0; chmod +x $0";
    let written =
        crate::support::program("sh").args(["-c", write, file.path()]).status().await.unwrap();
    assert!(written.success());
    run(&server, &["lock", &path, "--", file.path()]).await.failed(127, "the interpreter");
    assert!(children(&client(&server).await, &path).await.is_empty());
}

#[tokio::test]
async fn the_error_names_the_unreachable_server() {
    let nothing = xtask::KeptPort::free().unwrap();
    let nowhere = nothing.address().to_string();
    let arguments = ["lock", "--connect-timeout", "300ms", "/l", "--", "true"];
    run(&nowhere, &arguments).await.failed(69, &nowhere);
    let named = "no-such-host.invalid:2181";
    run(named, &arguments).await.failed(69, named);
}

/// The delay gives the command of a previous holder time to stop if its session was killed.
#[tokio::test]
async fn a_waiter_starts_its_command_after_a_delay() {
    let (server, path) = (server(), unique_path("lock"));
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let file = TemporaryFile::new();
    let options = ["--session-timeout", "4s"];
    let waiting = lock(&server, &options, &path, "echo started >> $0", &file);
    until_children(&client, &path, 2).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    file.wait_for("started").await;
    assert!(released.elapsed() >= Duration::from_millis(250), "{:?}", released.elapsed());
    ended(waiting).await.ok();
}

// Strict locks.

#[tokio::test]
async fn a_strict_lock_is_refused_beside_a_plain_one() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    let strict = lock(&server, &["--strict"], &path, "echo held > $0; exec sleep 1000", &file);
    file.wait_for("held").await;
    // A plain lock queues behind the strict one.
    let plain = ["lock", "--timeout", "100ms", &path, "--", "true"];
    run(&server, &plain).await.failed(124, "was not acquired");
    assert!(run(&server, &["locks", &path]).await.ok().contains("strict"));
    terminate(strict).await;
    let plain = lock(&server, &[], &path, "echo plain > $0; exec sleep 1000", &file);
    file.wait_for("plain").await;
    let refused = run(&server, &["lock", "--strict", &path, "--", "true"]).await;
    refused.failed(65, "all clients of a strict lock use --strict");
    terminate(plain).await;
}

/// The command is not started yet, so a signal has the same effect as during the acquire.
// Case (Found in docent itself): a signal to `docent lock` or `lead` was not looked at while no
// server replied whether its new node is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_a_lock_whose_server_does_not_say_that_its_node_is_there() {
    let (server, path, file) = (server(), unique_path("lock"), TemporaryFile::new());
    // Otherwise the acquire would look for the parents with the same request.
    run(&server, &["create", "-p", &path]).await.ok();
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    tap.inject(Fault::lose_reply(OpCode::Exists).below(&path).times(u32::MAX));
    let holder = lock(&tap.connect_string(), &[], &path, "echo ran > $0", &file);
    let is_asked = |record: &Record| record.is_request(OpCode::Exists);
    tap.wait_for(crate::support::DEADLINE, is_asked).await.unwrap();
    assert_eq!(terminate(holder).await.code, Some(143));
    assert!(children(&client(&server).await, &path).await.is_empty());
    assert_eq!(file.text(), "");
}

/// A command that only polls never waits until the claim has ended.
// Case (Found in docent itself): `docent lock --strict --no-wait` called a lock held whose holder
// was lost, and no process that polls so ever acquires it.
#[tokio::test]
async fn a_strict_lock_whose_holder_was_lost_is_not_called_held() {
    let (server, path) = (server(), unique_path("lock"));
    let client = client(&server).await;
    let mutex = StrictMutex::new(&client, &path).unwrap();
    let guard = mutex.acquire().await.unwrap();
    client.delete(guard.path(), None).await.unwrap();
    let poll = |wait: &[&'static str]| {
        let all = ["lock", "--strict"].iter().chain(wait).copied();
        all.chain([path.as_str(), "--", "true"]).map(str::to_owned).collect::<Vec<_>>()
    };
    let until = format!("; wait for it with --timeout {}", advised(client.session_timeout()));
    run(&server, &poll(&["--no-wait"])).await.failed(124, &until);
    run(&server, &poll(&["--timeout", "100ms", "-E", "9"])).await.failed(9, "a lost holder");
}

/// The session timeout plus 1 %, rounded up to seconds, plus a second.
fn advised(claim: Duration) -> String {
    format!("{}s", (claim + claim / 100).as_millis().div_ceil(1000) + 1)
}
