//! `docent locks` and `docent revoke`. On the server of `DOCENT_TEST_CONNECT`, or an embedded one.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use docent::{
    Client,
    recipes::locks::{InterProcessMutex, InterProcessSemaphoreV2, LockOptions},
};
use serde_json::Value;
use support::{client, docent, ended, eventually, kill, run, server, unique_path, until_children};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

/// Starts a `docent lock` that runs until it is ended, and waits until its node is the last of so many.
async fn contender(server: &str, options: &[&str], path: &str, count: usize) -> Child {
    let rest = [path, "--", "sleep", "1000"];
    let arguments: Vec<_> = ["lock"].iter().chain(options).chain(&rest).collect();
    let child = docent(server, &arguments).spawn().unwrap();
    until_children(&client(server).await, path, count).await;
    child
}

async fn end(child: Child) {
    kill("-TERM", child.id().unwrap()).await;
    ended(child).await;
}

async fn view(server: &str, path: &str) -> Vec<Value> {
    let out = run(server, &["locks", "--json", path]).await.ok();
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn states(view: &[Value]) -> Vec<(&str, &str)> {
    view.iter().map(|one| (one["state"].as_str().unwrap(), one["kind"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn a_mutex_shows_its_holder_and_its_queue_in_order() {
    let (server, path) = (server(), unique_path("lock"));
    assert_eq!(run(&server, &["locks", &path]).await.ok(), "");
    let one = contender(&server, &["--data", "the first"], &path, 1).await;
    let two = contender(&server, &["--data", "the\tsecond"], &path, 2).await;
    let three = contender(&server, &[], &path, 3).await;
    let seen = view(&server, &path).await;
    assert_eq!(states(&seen), [("held", "mutex"), ("waiting", "mutex"), ("waiting", "mutex")]);
    assert_eq!(
        (&seen[0]["owner"], &seen[1]["owner"]),
        (&"the first".into(), &"the\tsecond".into())
    );
    let by_default = seen[2]["owner"].as_str().unwrap();
    let pid = format!(" pid {} sleep", three.id().unwrap());
    assert!(by_default.contains('@') && by_default.ends_with(&pid), "{by_default}");
    let tokens: Vec<_> = seen.iter().map(|one| one["token"].as_i64().unwrap()).collect();
    assert!(tokens.is_sorted() && tokens[0] > 0, "{tokens:?}");
    // The node is there, with that session and that token.
    let stat =
        client(&server).await.exists(seen[0]["path"].as_str().unwrap()).await.unwrap().unwrap();
    assert_eq!(stat.czxid, tokens[0]);
    assert_eq!(seen[0]["session"], format!("{:#x}", stat.ephemeral_owner));
    let table = run(&server, &["locks", &path]).await.ok();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("STATE  KIND   TOKEN"), "{table}");
    assert!(lines[1].starts_with("held   mutex  ") && lines[1].ends_with("  the first"), "{table}");
    assert!(
        lines[2].starts_with("1.     mutex  ") && lines[2].ends_with("  the\\tsecond"),
        "{table}"
    );
    assert!(lines[3].starts_with("2. "), "{table}");
    for child in [one, two, three] {
        end(child).await;
    }
    assert_eq!(run(&server, &["locks", &path]).await.ok(), "");
}

#[tokio::test]
async fn readers_and_writers_show_who_holds() {
    let (server, path) = (server(), unique_path("lock"));
    let mut all = Vec::new();
    for (count, kind) in (1..).zip(["--read", "--read", "--write", "--read"]) {
        all.push(contender(&server, &[kind], &path, count).await);
    }
    let seen = view(&server, &path).await;
    assert_eq!(
        states(&seen),
        [("held", "read"), ("held", "read"), ("waiting", "write"), ("waiting", "read")]
    );
    for child in all.drain(..2) {
        end(child).await;
    }
    eventually("the writer holds", async || {
        (states(&view(&server, &path).await) == [("held", "write"), ("waiting", "read")])
            .then_some(())
    })
    .await;
    for child in all {
        end(child).await;
    }
}

#[tokio::test]
async fn a_semaphore_shows_leases_and_who_waits_for_one() {
    let (server, path) = (server(), unique_path("lock"));
    let leases = format!("{path}/leases");
    let of_two = |owner| ["--semaphore", "2", "--data", owner];
    let start = async |owner| {
        let options = of_two(owner);
        let rest = [path.as_str(), "--", "sleep", "1000"];
        let arguments: Vec<_> = ["lock"].iter().chain(&options).chain(&rest).collect();
        docent(&server, &arguments).spawn().unwrap()
    };
    let watcher = client(&server).await;
    let one = start("one").await;
    until_children(&watcher, &leases, 1).await;
    let two = start("two").await;
    until_children(&watcher, &leases, 2).await;
    // The next one puts a lease down, and waits with it.
    let three = start("three").await;
    until_children(&watcher, &leases, 3).await;
    let four = start("four").await;
    until_children(&watcher, &format!("{path}/locks"), 2).await;
    let seen = view(&server, &path).await;
    assert_eq!(
        states(&seen),
        [("held", "lease"), ("held", "lease"), ("waiting", "lease"), ("waiting", "lease")]
    );
    let owners: Vec<_> = seen.iter().map(|one| one["owner"].as_str().unwrap()).collect();
    assert_eq!(owners, ["one", "two", "three", "four"]);
    for child in [one, two, three, four] {
        end(child).await;
    }
}

/// What others make of a lock: another program with the library, as with Curator.
#[tokio::test]
async fn locks_of_other_programs_are_shown_too() {
    let (server, path) = (server(), unique_path("lock"));
    let other = Client::connect(&server).await.unwrap();
    let options = LockOptions::default().with_data(&b"\xff\x1b[2J"[..]);
    let mutex = InterProcessMutex::with_options(&other, &path, options).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let semaphore = InterProcessSemaphoreV2::new(&other, &format!("{path}-s"), 3).unwrap();
    let leases = semaphore.acquire_many(2).await.unwrap();
    // What stands in a node cannot move the cursor.
    let table = run(&server, &["locks", &path]).await.ok();
    assert!(table.ends_with("\u{fffd}\\u{1b}[2J\n"), "{table:?}");
    assert_eq!(states(&view(&server, &format!("{path}-s")).await), [("held", "lease"); 2]);
    drop(leases);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_watched_view_is_kept_current() {
    let (server, path) = (server(), unique_path("lock"));
    let mut watching = docent(&server, &["locks", "--watch", "--json", &path]).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut until = async |wanted: &[&str]| {
        eventually(&format!("{wanted:?}"), async || {
            let line = lines.next_line().await.unwrap().unwrap();
            let seen: Vec<Value> = serde_json::from_str(&line).unwrap();
            (states(&seen).iter().map(|(state, _)| *state).collect::<Vec<_>>() == wanted)
                .then_some(())
        })
        .await;
    };
    // From before there is such a lock, to after.
    until(&[]).await;
    let one = contender(&server, &[], &path, 1).await;
    until(&["held"]).await;
    let two = contender(&server, &[], &path, 2).await;
    until(&["held", "waiting"]).await;
    end(one).await;
    until(&["held"]).await;
    end(two).await;
    until(&[]).await;
    watching.kill().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_listens_is_asked_and_others_are_left_alone() {
    let (server, path) = (server(), unique_path("lock"));
    run(&server, &["revoke", &path]).await.failed(1, "nobody holds");
    let deaf = contender(&server, &[], &path, 1).await;
    run(&server, &["revoke", &path]).await.failed(65, "does not listen");
    let before = view(&server, &path).await;
    assert_ne!(before[0]["owner"], "__REVOKE__");
    let forced = run(&server, &["revoke", "--force", &path]).await.ok();
    assert_eq!(forced.trim(), before[0]["path"].as_str().unwrap());
    assert_eq!(view(&server, &path).await[0]["owner"], "__REVOKE__");
    end(deaf).await;
    let listens = contender(&server, &["--revocable"], &path, 1).await;
    let next = contender(&server, &[], &path, 2).await;
    assert_eq!(view(&server, &path).await[0]["revocable"], true);
    let node = view(&server, &path).await[0]["path"].as_str().unwrap().to_owned();
    let asked = run(&server, &["revoke", "--json", &node]).await.ok();
    assert_eq!(serde_json::from_str::<Value>(&asked).unwrap()["path"], node);
    ended(listens).await.failed(125, "somebody asked");
    end(next).await;
    run(&server, &["revoke", &node]).await.failed(1, "nobody holds");
}
