//! The examples work as documented, run as a user runs them.

use std::{path::PathBuf, process::Stdio};

use crate::support::{
    peer::Peer,
    real::{server, skip},
    within_deadline,
};
use docent::{Client, OpCode};
use docent_testing::{TestingServer, fault::Fault, tap::Tap};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

fn example(name: &str) -> PathBuf {
    xtask::example(name).unwrap()
}

/// The output of an example, and the nodes it leaves below its chroot: its path is fixed, and another run may be
/// using it.
async fn run(name: &str) -> (String, Vec<String>) {
    let server = server();
    let chroot =
        crate::support::real::unique_path("example").replace('/', "-").replacen('-', "/", 1);
    let client = Client::connect(&server).await.unwrap();
    client.create(&chroot, b"", docent::CreateMode::Container).await.unwrap();
    let text = output(name, Some(format!("{server}{chroot}"))).await;
    let mut left = Vec::new();
    let mut ahead = vec![chroot];
    while let Some(path) = ahead.pop() {
        // The server may have removed an empty container already.
        let Ok(children) = client.get_children(&path).await else { continue };
        let paths = children.iter().map(|child| format!("{path}/{child}"));
        ahead.extend(paths.filter(|path| !path.contains("/_c_")));
        left.extend(children.iter().filter(|child| child.starts_with("_c_")).map(Into::into));
    }
    (text, left)
}

/// What an example prints on a server, or on its own.
async fn output(name: &str, connect: Option<String>) -> String {
    let mut command = Command::new(example(name));
    command.env_remove("DOCENT_CONNECT").stdin(Stdio::null()).kill_on_drop(true);
    command.envs(connect.map(|connect| ("DOCENT_CONNECT", connect)));
    let output = within_deadline("the example", command.output()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

// Case (What broke other clients): panics without a feature.
#[tokio::test]
async fn lock_holds_25_times_without_an_overlap_and_leaves_nothing() {
    let (text, left) = run("lock").await;
    assert_eq!(text.lines().last(), Some("25 holds, 0 overlaps"));
    assert_eq!(text.lines().filter(|line| line.contains(" holds /examples/lock/_c_")).count(), 25);
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn lock_needs_no_server() {
    let output = Command::new(example("lock")).env_remove("DOCENT_CONNECT").output();
    let output = within_deadline("the example", output).await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().last(), Some("25 holds, 0 overlaps"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("embedded server"), "{stderr}");
}

/// The tutorial: an example, and all that it says. Numbers that a server gives out are `N`.
const TUTORIAL: &[(&str, &str)] = &[
    (
        "reentrant",
        "Alice transfers; Bob does not acquire it
Alice withdraws, by the same lock node: true
Alice deposits, by the same lock node: true
Alice has released the inner holds; Bob does not acquire it
Alice is done; Bob acquires it
",
    ),
    (
        "semaphore_mutex",
        "held: true
held twice: false
held after another task has released it: false
held again: true
",
    ),
    (
        "read_write",
        "two readers at once: true
a writer that became a reader: true
20 writes, 0 torn reads
",
    ),
    (
        "semaphore",
        "took 1, 1 of 6 are out
took 1, 2 of 6 are out
took 2, 4 of 6 are out
took 2, 6 of 6 are out
a seventh: false
one was returned, and one that waited has it: 6 of 6 are out
0 are out
",
    ),
    (
        "multi",
        "held together: 2 locks
the printer alone: false
the paper alone: false
both without the paper: false
the printer was released again: true
",
    ),
    (
        "revoke",
        "the night's work has started
the release of the lock was requested; held: true
the urgent work has the lock
",
    ),
    (
        "discovery",
        "laser is there, at Some(\"10.0.0.7\")
matrix is there, at Some(\"10.0.0.8\")
jobs go to laser, matrix, laser, matrix
matrix has failed twice: jobs go to laser, laser, laser, laser
laser has left; usable: 0
",
    ),
    (
        "fencing",
        "Alice believes: true, Bob believes: true
Bob writes: Ok(())
Alice writes: Err(\"token N is stale, N was here\")
the text is by Bob
",
    ),
    ("proven_hold", "page 1\npage 2\npage 3\n"),
    (
        "configuration",
        "workers = 2: 2 workers, rejected: None
workers = 5: 5 workers, rejected: None
workers = many: 5 workers, rejected: Some(\"\\\"many\\\": invalid digit found in string\")
workers = 3: 3 workers, rejected: None
",
    ),
    (
        "blocking",
        "changes: 6
pages by AABBCC
",
    ),
    ("naive_lock", "15 holds, one at a time\n"),
    (
        "sequential_lock",
        "the first holds the lock; it deletes its node
the second holds the lock; its number is greater: true
",
    ),
    (
        "five_waiters",
        "six contenders: A holds B>A C>B D>C E>D F>E
D gives up: A holds B>A C>B E>C F>E
B's session ends: A holds C>A E>C F>E
A releases: C holds E>C F>E
",
    ),
    (
        "stop_when_lost",
        "round 1: the lock was lost, the job was dropped
round 2: done, and still held: true
",
    ),
    (
        "conditional_write",
        "before it opens: false
three at once: true true true
after it has closed: false
3 receipts, 2 pieces left
",
    ),
    ("limited_jobs", "12 jobs done, at most three at once: true\n"),
    (
        "end_well",
        "serving
asked to stop
failed: true
the lock is free at once: true
",
    ),
    ("count_once", "60 deliveries of 20 orders: 20 new ones, count 20\n"),
    (
        "queue",
        "Alice has processed 7
Alice continues: false
Bob has processed 13
results: 20
",
    ),
    ("tree_mover", "one is b\"2\"\nleft: [\"one\"]\n"),
    ("kazoo_lock", "count: 20\n"),
    (
        "rpc_registry",
        "providers: registered: dubbo://10.0.0.7:20880/com.example.Greeter?application=hall&interface=com.example.Greeter&methods=hello,good bye&side=provider&timestamp=1764000000000
the session of the provider ends
providers: gone: dubbo://10.0.0.7:20880/com.example.Greeter?application=hall&interface=com.example.Greeter&methods=hello,good bye&side=provider&timestamp=1764000000000
providers: registered: dubbo://10.0.0.7:20880/com.example.Greeter?application=hall&interface=com.example.Greeter&methods=hello,good bye&side=provider&timestamp=1764000000000
providers: gone: dubbo://10.0.0.7:20880/com.example.Greeter?application=hall&interface=com.example.Greeter&methods=hello,good bye&side=provider&timestamp=1764000000000
",
    ),
];

/// As [`TUTORIAL`]; their connections are broken or speak TLS, so they bring the server along.
const WITH_A_SERVER: &[(&str, &str)] = &[
    (
        "znode_operator",
        "reconciled 1: 2 may use /znode-6e1f7c52
reconciled 2: 2 may use /znode-6e1f7c52
deleted 1: still there: false
deleted 2: still there: false
",
    ),
    (
        "follow_node",
        "one (at first)
two (after a change)
three (after a reconnect)
three (in a new session)
",
    ),
    (
        "retry_call",
        "read, at the third attempt: one
two: applied, without a reply
not applied yet
three: applied, with a reply
",
    ),
    (
        "error_kinds",
        "create: done
create again: NodeExists, an answer: read the tree, and decide
set with an old version: BadVersion, an answer: read the tree, and decide
a path without a slash: InvalidPath, a mistake in the program or its settings: report it
a lost request: ConnectionLoss, perhaps applied: read before a repeat
a lost reply: ConnectionLoss, perhaps applied: read before a repeat
delete: done
after close: Closed, a mistake in the program or its settings: report it
",
    ),
    (
        "cut_connection",
        "lock nodes after a lost reply: 1
the outcome of a plain call is unknown: true
held after an outage: true
held after the end of the session: false
",
    ),
];

#[tokio::test]
async fn the_tutorial_prints_each_step_and_leaves_nothing() {
    for (name, expected) in TUTORIAL {
        let (text, left) = run(name).await;
        assert_eq!(without_tokens(&text), *expected, "{name}");
        assert_eq!(left, [""; 0], "{name}");
    }
}

// Case (Found in docent itself): the example `follow_node` wrote before its client had noticed the
// broken connection.
#[tokio::test]
async fn the_tutorial_needs_no_server() {
    for (name, expected) in TUTORIAL.iter().chain(WITH_A_SERVER) {
        assert_eq!(without_tokens(&output(name, None).await), *expected, "{name}");
    }
}

/// The chapter's promise: orders whose reply was lost are found to be counted.
// Case (Caches): the guide's way to count once: requests and replies of the transactions are lost.
#[tokio::test]
async fn count_once_counts_once_although_replies_are_lost() {
    let server = TestingServer::start().await.unwrap();
    let tap = Tap::start(&server.connect_string()).await.unwrap();
    let example = tap.client("example").await.unwrap();
    tap.seed(3);
    tap.inject(Fault::drop_reply(OpCode::Multi).times(5).one_in(4));
    tap.inject(Fault::drop_before(OpCode::Multi).times(5).one_in(4));
    let text = output("count_once", Some(example.connect_string())).await;
    let trace = tap.trace().text();
    let lost = |mark: &str| trace.matches(mark).count();
    assert_eq!((lost("[[inject DROP_REPLY]]"), lost("[[inject DROP_BEFORE]]")), (5, 5), "{trace}");
    // Five are found to be counted by an attempt whose reply was lost.
    assert_eq!(text, "60 deliveries of 20 orders: 15 new ones, count 20\n");
}

/// What a Java provider and consumer of Dubbo would write: the names are those of `java.net.URLEncoder`, and a provider
/// whose session has ended is there again.
#[tokio::test]
async fn the_registry_has_the_nodes_of_dubbo() {
    let server = TestingServer::start().await.unwrap();
    let tap = Tap::start(&server.connect_string()).await.unwrap();
    output("rpc_registry", Some(tap.connect_string())).await;
    let trace = tap.trace().text();
    for (registered, times) in [
        (
            "/dubbo/com.example.Greeter/providers/dubbo%3A%2F%2F10.0.0.7%3A20880%2Fcom.example.Greeter%3Fapplication%3Dhall%26interface%3Dcom.example.Greeter%26methods%3Dhello%2Cgood+bye%26side%3Dprovider%26timestamp%3D1764000000000",
            2,
        ),
        (
            "/dubbo/com.example.Greeter/consumers/consumer%3A%2F%2F10.0.0.9%2Fcom.example.Greeter%3Fapplication%3Dguest%26category%3Dconsumers%26interface%3Dcom.example.Greeter%26side%3Dconsumer%26timestamp%3D1764000000001",
            1,
        ),
    ] {
        let created = format!("<- create2 OK path={registered} ");
        assert_eq!(trace.matches(&created).count(), times, "{registered}: {trace}");
        // Ephemeral: a flag of 1.
        let requests =
            trace.lines().filter(|line| line.contains(&format!("-> create2(15) {registered} ")));
        assert!(requests.clone().count() >= times, "{trace}");
        requests.for_each(|line| assert!(line.ends_with(" flags=1"), "{line}"));
    }
}

/// kazoo's `Lock`, in its real client, and docent's with the names of the example: each waits for the other one, and no
/// update is lost.
#[tokio::test]
async fn the_lock_excludes_a_program_with_kazoo() {
    let mut python = Command::new("python3");
    python.args(["-c", "import kazoo"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !python.status().await.is_ok_and(|status| status.success()) {
        return skip("python3 has no kazoo (`cargo xtask test` installs it below target)");
    }
    let server = server();
    let chroot = crate::support::real::unique_path("kazoo").replace('/', "-").replacen('-', "/", 1);
    let client = Client::connect(&server).await.unwrap();
    client.create(&chroot, b"", docent::CreateMode::Container).await.unwrap();
    let connect = format!("{server}{chroot}");
    let count = format!("{chroot}/examples/kazoo/count");
    let options = docent::CreateOptions::new(docent::CreateMode::Persistent).with_parents();
    client.create(&count, b"0", options).await.unwrap();

    let script = xtask::workspace::root().join("tests/repository/kazoo_lock.py");
    let mut kazoo = Command::new("python3");
    kazoo.arg(script).arg(&connect).kill_on_drop(true);
    let mut kazoo = kazoo.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(kazoo.stdout.take().unwrap()).lines();
    let held = within_deadline("kazoo", lines.next_line()).await.unwrap();
    assert_eq!(held.as_deref(), Some("held by kazoo"));
    let docent = output("kazoo_lock", Some(connect));
    let ended = within_deadline("kazoo", async { tokio::join!(docent, kazoo.wait()) }).await;
    assert!(ended.1.unwrap().success());
    let waited = within_deadline("kazoo", lines.next_line()).await.unwrap();
    assert_eq!(waited.as_deref(), Some("docent waits"));
    assert_eq!(client.get_data(&count).await.unwrap().data, "40");
    client.delete_recursive(&chroot).await.unwrap();
}

/// The stale token must be the smaller one.
fn without_tokens(text: &str) -> String {
    let Some((before, rest)) = text.split_once("token ") else { return text.to_owned() };
    let (stale, rest) = rest.split_once(" is stale, ").unwrap();
    let (highest, after) = rest.split_once(" was here").unwrap();
    assert!(stale.parse::<i64>().unwrap() < highest.parse::<i64>().unwrap(), "{text}");
    format!("{before}token N is stale, N was here{after}")
}

#[tokio::test]
async fn lock_reports_an_unreachable_server() {
    let nothing = xtask::KeptPort::free().unwrap();
    for (connect, part) in [
        ("nonsense:port".to_owned(), "\"nonsense:port\" has a port that is not a number"),
        (nothing.address().to_string(), "refused"),
    ] {
        let output = Command::new(example("lock")).env("DOCENT_CONNECT", &connect).output();
        let output = within_deadline("the example", output).await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part), "{connect}: {text}");
    }
}

#[tokio::test]
async fn peers_refuse_bad_arguments_with_one_line() {
    for (program, arguments, part) in [
        ("lock_peer", vec![], "CONNECT is missing (usage: lock_peer CONNECT"),
        ("lock_peer", vec!["a:b"], "\"a:b\" has a port that is not a number"),
        ("lock_peer", vec!["h:1", "6000", "5x"], "RETRIES: 5x: invalid digit found in string"),
        ("recipe_peer", vec!["h:1", "6000", "5", "quick"], "quick is no flag"),
        ("recipe_peer", vec!["h:1", "6000", "5", "1", "quiet"], "POLICY is standard or session"),
        ("recipe_peer", vec!["h:1", "lazy", "6000"], "6000 is one argument too many"),
    ] {
        let output = Command::new(example(program)).args(&arguments).output();
        let output = within_deadline("the example", output).await.unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}

/// The words of both programs, for the programs that drive them.
// Case (Found in docent itself): a scene of the trace tests passed without having been played when
// its example was not built, and another test when its server did not start.
#[tokio::test]
async fn peers_answer_commands() {
    let server = TestingServer::start().await.unwrap();
    for (program, dialogue) in [
        (
            "lock_peer",
            &[
                ("acquire mutex:/l", "ok"),
                ("token mutex:/l", "ok "),
                ("held mutex:/l", "ok true"),
                ("acquire mutex:/l#other 50", "false"),
                ("cancel mutex:/l#other", "err BadCommand"),
                ("create /n a", "ok"),
                ("create /n a", "err NodeExists NotApplied"),
                ("set /n b -1", "ok 1 "),
                ("get /n", "ok 1 "),
                ("syncget /n", "ok 1 "),
                ("fencedget /n /l", "ok 1 "),
                ("guarded mutex:/l /n c", "ok"),
                ("release mutex:/l", "ok"),
                ("release mutex:/l", "err NotOwner"),
                ("acquire latch:/e", "ok"),
                ("acquire latch:/e", "err NotOwner"),
                ("release latch:/e", "ok"),
                ("acquire sem=1:/s", "ok _c_"),
                ("multi 1000 /x /y", "ok"),
                ("multirelease", "ok"),
                ("nonsense", "err BadCommand"),
            ][..],
        ),
        (
            "recipe_peer",
            &[
                ("latch start a /latch idA", "ok"),
                ("latch await a 10000", "ok"),
                ("latch participants a", "ok 1 *idA"),
                ("latch close a", "ok"),
                ("pnode start n /kept ephemeral v1", "ok"),
                ("pnode wait n 10000", "ok"),
                ("group join g /g me", "ok"),
                ("group members g", "ok 1 me=10.0.0.1"),
                ("mk /c x", "ok"),
                ("set /c y", "ok 1"),
                ("get /none", "err NoNodeException"),
                ("cstart cache:/c", "ok"),
                ("bset barrier:/b", "ok"),
                ("bwait barrier:/b 50", "false"),
                ("aopen aint:/i 0 0 /lock 1000", "ok"),
                ("ainc aint:/i", "ok true 0 1 1 0"),
                ("atryset avalue:/v 0x00ff", "ok true - 0x00ff 1 0"),
                ("dnames disc:/d", "err IllegalState"),
                ("dopen disc:/d", "ok"),
                ("dnames disc:/d", "ok 0"),
                ("ensemble -", "ok 127.0.0.1:"),
            ][..],
        ),
    ] {
        let mut command = Command::new(example(program));
        command.arg(server.connect_string());
        let peer = Peer::spawn(program, command);
        peer.event("ready").await;
        for (command, answer) in dialogue {
            let actual = peer.ask(command).await.outcome.to_string();
            assert!(actual.starts_with(answer), "{program}: {command}: {actual}");
        }
        peer.close().await;
    }
}

#[tokio::test]
async fn a_users_own_test_works_on_the_testing_server() {
    let text = output("test_with_testing_server", None).await;
    assert_eq!(
        text,
        "alone, it runs\nwhile it runs, it runs nowhere else\na session that ends in the middle is noticed\n"
    );
}

/// Another executor, and no tokio runtime in the process.
#[tokio::test]
async fn smol_runs_the_client_and_the_mutex() {
    let (text, left) = run("smol").await;
    let lines = [
        "the first holds the mutex",
        "another attempt gives up after 100 ms: true",
        "the second held it after the first",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert_eq!(left, [""; 0]);
}
