//! `docent lead` as shells use it. Runs on the server of `DOCENT_TEST_CONNECT`, or on an embedded one. `chaos.rs` has
//! more faults.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::{fs, time::Duration};

use docent::{LeaderLatch, OpCode};
use docent_testing::fault::Fault;
use support::{
    PROCESS_TREE, TemporaryFile, children, client, docent, ended, eventually, kill, processes_with,
    run, server, state_of, unique_path, until_children, watchdog_of, within_deadline,
};
use tokio::process::Child;

/// Starts `docent lead OPTIONS PATH -- sh -c SCRIPT FILE`, where `$0` is the file.
fn lead(connect: &str, options: &[&str], path: &str, script: &str, file: &TemporaryFile) -> Child {
    let rest = [path, "--", "sh", "-c", script, file.path()];
    let arguments: Vec<_> = ["lead"].iter().chain(options).chain(&rest).collect();
    docent(connect, &arguments).spawn().unwrap()
}

/// Writes a line with its token for each start.
const COUNTED: &str = "echo $DOCENT_FENCING_TOKEN >> $0; exec sleep 1000";

/// Waits until the command was started this number of times, and returns the tokens.
async fn starts(file: &TemporaryFile, count: usize) -> Vec<i64> {
    eventually(&format!("{count} starts"), async || {
        let text = file.text();
        let tokens: Vec<_> = text.lines().map(|line| line.parse().unwrap()).collect();
        (tokens.len() >= count && text.ends_with('\n')).then_some(tokens)
    })
    .await
}

/// Deletes the leader's node, as an operator would.
async fn delete_node(connect: &str, path: &str) {
    let client = client(connect).await;
    let mut nodes = children(&client, path).await;
    nodes.sort_unstable_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    client.delete(&format!("{path}/{}", nodes.first().unwrap()), None).await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn the_command_gets_a_token_and_a_path_and_no_node_is_left() {
    let (server, path) = (server(), unique_path("lead"));
    let script = "echo $DOCENT_FENCING_TOKEN; echo $DOCENT_LEADER_PATH; echo $DOCENT_CONNECT";
    let mut last = 0;
    for _ in 0..2 {
        let out = run(&server, &["lead", &path, "--", "sh", "-c", script]).await.ok();
        let [token, node, connect] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
        let token: i64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(node.starts_with(&format!("{path}/_c_")) && node.contains("-latch-"), "{node}");
        assert_eq!(connect, server);
    }
    assert!(children(&client(&server).await, &path).await.is_empty());
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_command_or_of_its_signal() {
    let (server, path) = (server(), unique_path("lead"));
    for options in [&["lead"][..], &["lead", "--again"]] {
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
            let command = [path.as_str(), "--", "sh", "-c", script];
            let ran = run(&server, &[options, &command].concat()).await;
            assert_eq!((ran.code, ran.err.as_str()), (Some(code), ""), "{script}");
        }
    }
}

#[tokio::test]
async fn one_leads_and_the_others_wait_in_order() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let first = lead(&server, &["--id", "one"], &path, COUNTED, &file);
    starts(&file, 1).await;
    let second = lead(&server, &["--id", "two"], &path, "echo 9000000000000000000 >> $0", &file);
    let watcher = client(&server).await;
    until_children(&watcher, &path, 2).await;
    let options = ["lead", "--timeout", "100ms", &path, "--", "true"];
    run(&server, &options).await.failed(124, &format!("docent locks {path}"));
    let options = ["lead", "-t", "0", "-E", "1", &path, "--", "true"];
    run(&server, &options).await.failed(1, "did not lead within");
    until_children(&watcher, &path, 2).await;

    let table = run(&server, &["locks", &path]).await.ok();
    let rows: Vec<Vec<&str>> =
        table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let shown: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[5])).collect();
    assert_eq!(shown, [("held", "latch", "one"), ("1.", "latch", "two")], "{table}");
    run(&server, &["revoke", &path]).await.failed(1, "has no holder");

    // A participant of another program is one more in the queue.
    let library = LeaderLatch::start(&watcher, &path, "three").unwrap();
    until_children(&watcher, &path, 3).await;
    kill("-TERM", first.id().unwrap()).await;
    assert_eq!(ended(first).await.code, Some(143));
    ended(second).await.ok();
    within_deadline("the third leads", library.leadership()).await.unwrap();
    library.close().await.unwrap();
    until_children(&watcher, &path, 0).await;
}

#[tokio::test]
async fn a_listing_without_a_reply_does_not_outlast_the_timeout() {
    let (server, path) = (server(), unique_path("lead"));
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    let never = Duration::from_secs(24 * 3600);
    tap.inject(Fault::delay_request(OpCode::GetChildren2, never).below(&path).times(u32::MAX));
    tap.inject(Fault::delay_request(OpCode::GetChildren, never).below(&path).times(u32::MAX));
    let arguments = ["lead", "--timeout", "200ms", &path, "--", "true"];
    assert_eq!(run(&tap.connect_string(), &arguments).await.code, Some(124));
}

#[tokio::test]
async fn a_signal_while_waiting_leaves_the_queue_at_once() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let leader = lead(&server, &[], &path, COUNTED, &file);
    starts(&file, 1).await;
    let watcher = client(&server).await;
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let waiter = lead(&server, &["--again"], &path, COUNTED, &file);
        until_children(&watcher, &path, 2).await;
        kill(signal, waiter.id().unwrap()).await;
        let ran = ended(waiter).await;
        assert_eq!(children(&watcher, &path).await.len(), 1, "{signal}");
        assert_eq!((ran.code, ran.err.as_str()), (Some(code), ""));
    }
    kill("-TERM", leader.id().unwrap()).await;
    ended(leader).await;
    assert_eq!(starts(&file, 1).await.len(), 1);
}

#[tokio::test]
async fn a_leader_whose_node_is_deleted_ends_its_command() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let script = "trap '' TERM; echo led > $0; while :; do sleep 0.01; done";
    let leader = lead(&server, &[], &path, script, &file);
    file.wait_for("led").await;
    delete_node(&server, &path).await;
    ended(leader).await.failed(125, "the leader's node was deleted by another client");
    until_children(&client(&server).await, &path, 0).await;
}

#[tokio::test]
async fn with_again_the_command_runs_in_the_next_leadership() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let mark = unique_path("mark");
    let arguments = ["lead", "--again", &path, "--", "sh", "-c", COUNTED, file.path()];
    let leader = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
    starts(&file, 1).await;
    // Alone, and then behind another one.
    delete_node(&server, &path).await;
    let tokens = starts(&file, 2).await;
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    let watcher = client(&server).await;
    let other = LeaderLatch::start(&watcher, &path, "other").unwrap();
    until_children(&watcher, &path, 2).await;
    delete_node(&server, &path).await;
    within_deadline("the other leads", other.leadership()).await.unwrap();
    until_children(&watcher, &path, 2).await;
    eventually("the command is ended", async || {
        let running = processes_with(&mark);
        (running == [leader.id().unwrap()]).then_some(())
    })
    .await;
    other.close().await.unwrap();
    let tokens = starts(&file, 3).await;
    assert!(tokens[1] < tokens[2], "{tokens:?}");
    kill("-TERM", leader.id().unwrap()).await;
    let ran = ended(leader).await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let lines: Vec<_> = ran.err.lines().collect();
    let line = "docent lead: the leader's node was deleted by another client; the command was ended; \
                waiting to lead again";
    assert_eq!(lines, [line, line]);
    until_children(&watcher, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_is_stopped_until_a_reconnect_and_leads_on() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    let a = tap.client("A").await.unwrap();
    let script = "sh -c 'echo $$ > $0; exec sleep 1000' $0 & wait";
    let leader = lead(&a.connect_string(), &["--session-timeout", "20s"], &path, script, &file);
    file.wait_for("\n").await;
    let child = file.text().trim().to_owned();
    for _ in 0..2 {
        a.refuse().await.unwrap();
        a.cut();
        eventually("the command is stopped", async || (state_of(&child)? == "T").then_some(()))
            .await;
        a.accept().await.unwrap();
        eventually("the command continues", async || (state_of(&child)? == "S").then_some(()))
            .await;
    }
    kill("-TERM", leader.id().unwrap()).await;
    let ran = ended(leader).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(143), ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_reconnect_the_command_is_ended_and_runs_again_later() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let tap = docent_testing::tap::Tap::start(&server).await.unwrap();
    let a = tap.client("A").await.unwrap();
    let mark = unique_path("mark");
    let options = ["lead", "--again", "--session-timeout", "4s"];
    let arguments = [&options[..], &[&path, "--", "sh", "-c", COUNTED, file.path()]].concat();
    let leader = docent(&a.connect_string(), &arguments).env("MARK", &mark).spawn().unwrap();
    let pid = leader.id().unwrap();
    starts(&file, 1).await;
    a.refuse().await.unwrap();
    a.cut();
    eventually("the command is ended", async || (processes_with(&mark) == [pid]).then_some(()))
        .await;
    let watcher = client(&server).await;
    until_children(&watcher, &path, 0).await;
    a.accept().await.unwrap();
    let tokens = starts(&file, 2).await;
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    kill("-TERM", pid).await;
    let ran = ended(leader).await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    assert!(ran.err.contains("waiting to lead again"), "{ran:?}");
}

#[tokio::test]
async fn no_process_survives_when_docent_is_killed() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let mark = unique_path("mark");
    let options = ["lead", "--again", "--kill-after", "100ms", "--session-timeout", "1s"];
    let arguments = [&options[..], &[&path, "--", "sh", "-c", PROCESS_TREE, file.path()]].concat();
    let mut leader = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
    file.wait_for("held").await;
    assert!(processes_with(&mark).len() >= 5);
    kill("-9", leader.id().unwrap()).await;
    leader.wait().await.unwrap();
    eventually("the end of all processes", async || processes_with(&mark).is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn without_its_watchdog_it_ends_the_command_and_leaves() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let mark = unique_path("mark");
    let arguments = ["lead", "--again", &path, "--", "sh", "-c", PROCESS_TREE, file.path()];
    let leader = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
    file.wait_for("held").await;
    kill("-9", watchdog_of(leader.id().unwrap())).await;
    ended(leader).await.failed(125, "the watchdog was killed");
    assert_eq!(processes_with(&mark), [0; 0]);
    assert!(children(&client(&server).await, &path).await.is_empty());
}

#[tokio::test]
async fn invalid_arguments_are_rejected_in_one_line_before_anything_is_done() {
    let server = server();
    let file = TemporaryFile::new();
    fs::write(file.path(), "no program").unwrap();
    for (arguments, code, text) in [
        (vec!["--agian", "/l", "--", "true"], 64, "--again"),
        (vec!["--timeout", "soon", "/l", "--", "true"], 64, "10s"),
        (vec!["--semaphore", "2", "/l", "--", "true"], 64, "--semaphore"),
        (vec!["/l"], 64, "COMMAND"),
        (vec!["--", "true"], 64, "PATH"),
        (vec!["l", "--", "true"], 64, "begin with a slash"),
        (vec!["/", "--", "true"], 64, "/"),
        (vec!["/a//b", "--", "true"], 64, "/a//b"),
        (vec!["/l", "--", "no-such-command"], 127, "no such command"),
        (vec!["/l", "--", file.path()], 126, "cannot be executed"),
        (vec!["--connect", "host:port", "/l", "--", "true"], 64, "must be HOST:PORT,"),
    ] {
        let arguments: Vec<_> = ["lead"].into_iter().chain(arguments).collect();
        run(&server, &arguments).await.failed(code, text);
    }
}

#[tokio::test]
async fn an_election_that_it_may_not_join_is_an_error() {
    let (server, path) = (server(), unique_path("lead"));
    let owner = client(&server).await;
    owner.create_parents(&path, docent::CreateMode::Container).await.unwrap();
    let read = [docent::Acl::new(docent::Perms::READ, "world", "anyone")];
    owner.create_with_acl(&path, b"", docent::CreateMode::Persistent, &read).await.unwrap();
    run(&server, &["lead", "--again", &path, "--", "true"]).await.failed(77, "--auth digest");
    owner.delete(&path, None).await.unwrap();
}
