//! `docent lead` as shells use it. Runs on the server of `DOCENT_TEST_CONNECT`, or on an embedded one. `chaos.rs` has
//! more faults.

use docent::LeaderLatch;

use super::*;

/// Starts `docent lead OPTIONS PATH -- sh -c SCRIPT FILE`, where `$0` is the file.
fn lead(connect: &str, options: &[&str], path: &str, script: &str, file: &TemporaryFile) -> Child {
    let rest = [path, "--", "sh", "-c", script, file.path()];
    let arguments: Vec<_> = ["lead"].iter().chain(options).chain(&rest).collect();
    docent(connect, &arguments).spawn().unwrap()
}

/// For each start, writes a line with the token.
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

// Case (Contracts of docent lead): one leads, others wait in order; the queue is visible.
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

    // A participant from another program joins the same queue.
    let library = LeaderLatch::start(&watcher, &path, "three").unwrap();
    until_children(&watcher, &path, 3).await;
    assert_eq!(terminate(first).await.code, Some(143));
    ended(second).await.ok();
    within_deadline("the third leads", library.leadership()).await.unwrap();
    library.close().await.unwrap();
    until_children(&watcher, &path, 0).await;
}

// Case (Found in docent itself): `docent lead` and `docent lock` listed the contenders without a
// limit of time before they took part, and `lead` without looking at signals.
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

// Case (Contracts of docent lead): the leadership is lost, and comes back: `--again`.
#[tokio::test]
async fn with_again_the_command_runs_in_the_next_leadership() {
    let (server, path, file) = (server(), unique_path("lead"), TemporaryFile::new());
    let mark = unique_path("mark");
    let arguments = ["lead", "--again", &path, "--", "sh", "-c", COUNTED, file.path()];
    let leader = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
    starts(&file, 1).await;
    // First without, then with another participant.
    delete_node(&server, &path).await;
    let tokens = starts(&file, 2).await;
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    let watcher = client(&server).await;
    let other = LeaderLatch::start(&watcher, &path, "other").unwrap();
    until_children(&watcher, &path, 2).await;
    delete_node(&server, &path).await;
    within_deadline("the other leads", other.leadership()).await.unwrap();
    until_children(&watcher, &path, 2).await;
    let pid = leader.id().unwrap();
    until("the command is ended", async || processes_with(&mark) == [pid]).await;
    other.close().await.unwrap();
    let tokens = starts(&file, 3).await;
    assert!(tokens[1] < tokens[2], "{tokens:?}");
    let ran = terminate(leader).await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let lines: Vec<_> = ran.err.lines().collect();
    let line = "docent lead: the leader's node was deleted by another client; the command was ended; \
                waiting to lead again";
    assert_eq!(lines, [line, line]);
    until_children(&watcher, &path, 0).await;
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
    until("the command is ended", async || processes_with(&mark) == [pid]).await;
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

// Case (Contracts of docent lead): the election may not be joined.
#[tokio::test]
async fn an_election_that_it_may_not_join_is_an_error() {
    let (server, path) = (server(), unique_path("lead"));
    let owner = client(&server).await;
    let read = [docent::Acl::new(docent::Perms::READ, "world", "anyone")];
    let parent = path.rsplit_once('/').unwrap().0;
    owner.ensure_path(parent, docent::CreateMode::Container).await.unwrap();
    let options = docent::CreateOptions::new(docent::CreateMode::Persistent).with_acl(&read);
    owner.create(&path, b"", options).await.unwrap();
    run(&server, &["lead", "--again", &path, "--", "true"]).await.failed(77, "--auth digest");
    owner.delete(&path, None).await.unwrap();
}
