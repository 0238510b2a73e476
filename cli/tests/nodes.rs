//! The small shell over the client: each command, each exit code, each wrong word. On the server of
//! `DOCENT_TEST_CONNECT`, or an embedded one.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::process::Stdio;

use serde_json::Value;
use support::{DEADLINE, Ran, client, docent, ended, eventually, run, server, unique_path};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Child,
};

/// A connect string with a chroot of the test's own, which is there.
async fn place() -> String {
    let (server, path) = (server(), unique_path("nodes"));
    run(&server, &["create", "-p", &path]).await.ok();
    format!("{server}{path}")
}

/// Runs it with something on its standard input.
async fn fed(connect: &str, arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = docent(connect, arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).await.unwrap();
    drop(stdin);
    ended(child).await
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[tokio::test]
async fn data_are_written_and_read_byte_for_byte() {
    let place = place().await;
    assert_eq!(run(&place, &["create", "/a", "one"]).await.ok(), "/a\n");
    assert_eq!(run(&place, &["get", "/a"]).await.ok(), "one");
    run(&place, &["set", "/a", "two\n"]).await.ok();
    assert_eq!(run(&place, &["get", "/a"]).await.ok(), "two\n");
    run(&place, &["set", "/a", "-1"]).await.ok();
    run(&place, &["set", "/a", "--", "--json"]).await.ok();
    assert_eq!(run(&place, &["get", "/a"]).await.ok(), "--json");
    let bytes = [0, 255, 254, 10, 0];
    fed(&place, &["set", "/a", "-"], &bytes).await.ok();
    let read = client(&place).await.get_data("/a").await.unwrap();
    assert_eq!(read.data, &bytes[..]);
    let output = docent(&place, &["get", "/a"]).output().await.unwrap();
    assert_eq!(output.stdout, bytes);
    let object = json(&run(&place, &["get", "--json", "/a"]).await.ok());
    assert_eq!(object["data_base64"], "AP/+CgA=");
    assert_eq!(object["stat"]["version"], 4);
    fed(&place, &["create", "/b", "-"], b"piped").await.ok();
    assert_eq!(run(&place, &["get", "/b"]).await.ok(), "piped");
}

#[tokio::test]
async fn nodes_of_all_kinds_are_created() {
    let place = place().await;
    run(&place, &["create", "/a/b/c"]).await.failed(1, "-p creates it");
    assert_eq!(run(&place, &["create", "-p", "/a/b/c", "x"]).await.ok(), "/a/b/c\n");
    run(&place, &["create", "-p", "/a/b/c"]).await.failed(65, "exists");
    assert_eq!(run(&place, &["create", "-s", "/s/"]).await.code, Some(1));
    assert_eq!(run(&place, &["create", "-p", "-s", "/s/"]).await.ok(), "/s/0000000000\n");
    let object = json(&run(&place, &["create", "-s", "--json", "/s/n-"]).await.ok());
    assert_eq!(object["path"], "/s/n-0000000001");
    assert_eq!(object["stat"]["ephemeralOwner"], 0);
    run(&place, &["create", "-c", "/container"]).await.ok();
    run(&place, &["create", "--ttl", "1h", "/ttl"]).await.ok();
    run(&place, &["create", "--ttl", "1h", "-s", "/ttl-"]).await.ok();
}

#[tokio::test]
async fn a_tree_is_listed_read_and_deleted() {
    let place = place().await;
    for path in ["/t/b/1", "/t/a", "/t/b-x", "/t/b/2"] {
        run(&place, &["create", "-p", path, "d"]).await.ok();
    }
    assert_eq!(run(&place, &["ls", "/t"]).await.ok(), "a\nb\nb-x\n");
    let all = "/t\n/t/a\n/t/b\n/t/b/1\n/t/b/2\n/t/b-x\n";
    assert_eq!(run(&place, &["ls", "-r", "/t"]).await.ok(), all);
    let long = run(&place, &["ls", "-l", "/t"]).await.ok();
    assert!(long.lines().nth(1).unwrap().ends_with("2 children                  -  b"), "{long}");
    let objects = run(&place, &["ls", "-l", "--json", "/t"]).await.ok();
    let first = json(objects.lines().next().unwrap());
    assert_eq!((&first["path"], &first["stat"]["dataLength"]), (&"/t/a".into(), &1.into()));
    let data = run(&place, &["get", "-r", "/t"]).await.ok();
    assert_eq!(data, "/t\t\n/t/a\td\n/t/b\t\n/t/b/1\td\n/t/b/2\td\n/t/b-x\td\n");
    run(&place, &["delete", "/t"]).await.failed(65, "-r deletes them too");
    run(&place, &["delete", "-r", "/t"]).await.ok();
    run(&place, &["delete", "-r", "/t"]).await.failed(1, "no such node");
    run(&place, &["delete", "-r", "-f", "/t"]).await.ok();
    run(&place, &["delete", "/t"]).await.failed(1, "no such node");
    run(&place, &["delete", "-f", "/t"]).await.ok();
    run(&place, &["delete", "-r", "/"]).await.failed(64, "cannot be deleted");
}

/// More than one transaction takes.
#[tokio::test]
async fn a_large_tree_is_deleted_too() {
    let place = place().await;
    let client = client(&place).await;
    client.create("/t", b"", docent::CreateMode::Persistent).await.unwrap();
    let name = "n".repeat(150);
    let created: Vec<_> = (0..4000)
        .map(|n| client.create(&format!("/t/{name}{n}"), b"", docent::CreateMode::Persistent))
        .collect();
    for answer in created {
        answer.await.unwrap();
    }
    run(&place, &["delete", "-r", "/t"]).await.ok();
    assert_eq!(client.exists("/t").await.unwrap(), None);
}

#[tokio::test]
async fn a_stat_is_told_or_that_there_is_no_node() {
    let place = place().await;
    run(&place, &["create", "/a", "12345"]).await.ok();
    let text = run(&place, &["stat", "/a"]).await.ok();
    assert!(text.contains("dataLength = 5\n") && text.contains("ephemeralOwner = 0x0\n"), "{text}");
    assert_eq!(text.lines().count(), 11);
    let object = json(&run(&place, &["stat", "--json", "/a"]).await.ok());
    assert_eq!(object["dataLength"], 5);
    let czxid = object["czxid"].as_i64().unwrap();
    assert!(text.starts_with(&format!("czxid = {czxid:#x}\n")), "{text}");
    run(&place, &["stat", "/nope"]).await.failed(1, "/nope: no such node");
    run(&place, &["sync", "/a"]).await.ok();
    run(&place, &["sync"]).await.ok();
}

#[tokio::test]
async fn versions_guard_writes() {
    let place = place().await;
    run(&place, &["create", "/a", "0"]).await.ok();
    let stat = json(&run(&place, &["set", "--json", "--version", "0", "/a", "1"]).await.ok());
    assert_eq!(stat["version"], 1);
    run(&place, &["set", "--version", "0", "/a", "2"]).await.failed(65, "version does not match");
    run(&place, &["delete", "--version", "0", "/a"]).await.failed(65, "version does not match");
    assert_eq!(run(&place, &["get", "/a"]).await.ok(), "1");
    run(&place, &["delete", "--version", "1", "/a"]).await.ok();
}

#[tokio::test]
async fn several_writes_are_all_made_or_none() {
    let place = place().await;
    run(&place, &["create", "/a", "0"]).await.ok();
    let operations = ["multi", "check -v 0 /a", "set /a 'a b'", "create -s /a/n- x", "create /b"];
    let out = run(&place, &operations).await.ok();
    assert_eq!(out, "checked /a\nset /a version 1\ncreated /a/n-0000000000\ncreated /b\n");
    assert_eq!(run(&place, &["get", "/a"]).await.ok(), "a b");
    run(&place, &["multi", "delete /b", "check -v 0 /a"]).await.failed(65, "operation 1: check /a");
    run(&place, &["multi", "delete /b", "check /nope"]).await.failed(1, "operation 1: check /nope");
    run(&place, &["stat", "/b"]).await.ok();
    let lines = b"# comment\n\ndelete /b\nset -v 1 /a \"\"\n";
    let out = fed(&place, &["multi", "--json"], lines).await.ok();
    let out: Vec<_> = out.lines().map(json).collect();
    assert_eq!((&out[0]["op"], &out[1]["op"]), (&"deleted".into(), &"set".into()));
    assert_eq!(out[1]["version"], 2);
    fed(&place, &["multi"], b"delete /a/n-0000000000\nfrobnicate /a\n").await.failed(64, "line 2");
    run(&place, &["stat", "/a/n-0000000000"]).await.ok();
    fed(&place, &["multi"], b"\n").await.failed(64, "no operation");
}

/// A running watch, and what it prints.
struct Watching {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Watching {
    async fn start(connect: &str, arguments: &[&str]) -> Self {
        let mut child = docent(connect, arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut watching = Self { child, lines };
        let first = watching.line().await;
        assert!(first.contains("watching"), "{first}");
        watching
    }

    async fn line(&mut self) -> String {
        tokio::time::timeout(DEADLINE, self.lines.next_line()).await.unwrap().unwrap().unwrap()
    }
}

#[tokio::test]
async fn events_are_told_as_they_come() {
    let place = place().await;
    let mut one = Watching::start(&place, &["watch", "--count", "4", "/w"]).await;
    let mut all = Watching::start(&place, &["watch", "-r", "--json", "/w"]).await;
    run(&place, &["create", "/w"]).await.ok();
    run(&place, &["create", "/w/c"]).await.ok();
    run(&place, &["set", "/w", "x"]).await.ok();
    run(&place, &["delete", "-r", "/w"]).await.ok();
    for event in ["NodeCreated", "NodeChildrenChanged", "NodeDataChanged", "NodeChildrenChanged"] {
        assert_eq!(one.line().await, format!("{event} /w"));
    }
    assert_eq!(ended(one.child).await.code, Some(0));
    for (event, path) in [
        ("NodeCreated", "/w"),
        ("NodeCreated", "/w/c"),
        ("NodeDataChanged", "/w"),
        ("NodeDeleted", "/w/c"),
        ("NodeDeleted", "/w"),
    ] {
        let object = json(&all.line().await);
        assert_eq!((&object["event"], &object["path"]), (&event.into(), &path.into()));
    }
    all.child.kill().await.unwrap();
    let ran = run(&place, &["watch", "--timeout", "50ms", "/w"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(124), "watching /w\n"));
}

#[tokio::test]
async fn what_the_acl_forbids_is_said_with_what_to_do() {
    let place = place().await;
    let auth = ["--auth", "digest:me:secret"];
    let create = ["create", "--acl", "auth::cdrwa", auth[0], auth[1], "/mine", "x"];
    run(&place, &create).await.ok();
    run(&place, &["get", "/mine"]).await.failed(77, "--auth digest:USER:PASSWORD");
    run(&place, &["set", "/mine", "y"]).await.failed(77, "not allowed");
    assert_eq!(run(&place, &["get", auth[0], auth[1], "/mine"]).await.ok(), "x");
    let by_variable = docent(&place, &["get", "/mine"]).env("DOCENT_AUTH", auth[1]).output().await;
    assert_eq!(by_variable.unwrap().stdout, b"x");
    run(&place, &["create", "--acl", "world:anyone:r,auth::cdrwa", auth[0], auth[1], "/read"])
        .await
        .ok();
    run(&place, &["get", "/read"]).await.ok();
    run(&place, &["get", "--auth", "nosuchscheme:x", "/read"])
        .await
        .failed(77, "SCHEME:CREDENTIALS");
}

#[tokio::test]
async fn settings_come_from_options_then_variables_then_the_file() {
    let (place, nowhere) = (place().await, "127.0.0.1:1");
    let directory =
        std::env::temp_dir().join(format!("docent{}", unique_path("x").replace('/', "-")));
    std::fs::create_dir_all(directory.join("docent")).unwrap();
    let file = directory.join("docent/config.toml");
    let by_file = async |text: &str, arguments: &[&str], connect: &str| -> Ran {
        std::fs::write(&file, text).unwrap();
        let output = docent(connect, arguments).env("XDG_CONFIG_HOME", &directory).output();
        output.await.unwrap().into()
    };
    let fast = "connect-timeout = '100ms'\n";
    by_file(&format!("connect = '{place}'"), &["stat", "/"], "").await;
    let good = format!("connect = '{place}'\nsession-timeout = '4s'\n");
    assert_eq!(by_file(&good, &["stat", "/"], "").await.code, Some(0));
    let wrong = format!("connect = '{nowhere}'\n{fast}");
    by_file(&wrong, &["stat", "/"], "").await.failed(69, nowhere);
    assert_eq!(by_file(&wrong, &["stat", "/"], &place).await.code, Some(0));
    assert_eq!(
        by_file(&wrong, &["stat", "--connect", &place, "/"], "127.0.0.1:2").await.code,
        Some(0)
    );
    // What is wrong with it is told with its line.
    for (text, part) in [
        ("\nconect = 'x'\n", "config.toml:2: unknown field `conect`"),
        ("session-timeout = 'soon'", "session-timeout is no time"),
        ("connect = ", "config.toml:1:"),
        ("[tls]\ncertificate = 'x'", "unknown field `certificate`"),
    ] {
        by_file(text, &["stat", "/"], &place).await.failed(78, part);
    }
    by_file("auth = ['secret']", &["stat", "/"], &place).await.failed(64, "SCHEME:CREDENTIALS");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn nonsense_is_refused_in_one_line() {
    let server = server();
    for (arguments, code, text) in [
        (&["frob"][..], 64, "unrecognized subcommand 'frob'; see `docent --help`"),
        (&["lokc"], 64, "'lock'"),
        (&["get"], 64, "<PATH>"),
        (&["get", "a"], 64, "a path looks like /a/b"),
        (&["get", "/a/"], 64, "/a/"),
        (&["get", "/a", "/b"], 64, "'/b'"),
        (&["get", "--jsn", "/a"], 64, "--json"),
        (&["get", "--session-timeout", "0", "/a"], 64, "more than nothing"),
        (&["get", "--connect", "host:99999", "/a"], 64, "host:99999"),
        (&["get", "--connect", "h:1/x/", "/a"], 64, "chroot"),
        (&["set", "/a"], 64, "<DATA>"),
        (&["set", "--version", "-1", "/a", "x"], 64, "--version"),
        (&["create", "--acl", "world", "/a"], 64, "SCHEME:ID:PERMISSIONS"),
        (&["create", "--acl", "world:anyone:z", "/a"], 64, "cdrwa"),
        (&["create", "--ttl", "999999h", "/a"], 64, "must be from 1ms"),
        (&["create", "-e", "/a"], 64, "'-e'"),
        (&["create", "-s", "-c", "/a"], 64, "--container"),
        (&["delete", "-r", "--version", "1", "/a"], 64, "--version"),
        (&["multi", "get /a"], 64, "operation 1: \"get\" is none of"),
        (&["multi", "set /a"], 64, "set wants PATH DATA"),
        (&["multi", "set a x"], 64, "operation 1: \"a\""),
        (&["watch", "--count", "0", "/a"], 64, "--count"),
        (&["locks", "x"], 64, "a path looks like /a/b"),
        (&["revoke"], 64, "<PATH>"),
        (&["completions", "tcsh"], 64, "bash"),
        (&["man", "/dev/null/x"], 74, "/dev/null/x"),
        (&["get", "/no/such/node"], 1, "getData /no/such/node: no such node"),
        (&["ls", "/no/such/node"], 1, "no such node"),
        (&["create", "/no/such/node"], 1, "-p creates it"),
    ] {
        let ran = run(&server, arguments).await;
        assert_eq!(ran.out, "", "{arguments:?}");
        ran.failed(code, text);
    }
}

#[tokio::test]
async fn commands_leave_no_session_behind() {
    let Some(server) = embedded().await else { return };
    run(&server.connect_string(), &["create", "/a"]).await.ok();
    run(&server.connect_string(), &["get", "/nope"]).await.failed(1, "no such node");
    eventually("no session", async || server.session_ids().is_empty().then_some(())).await;
}

async fn embedded() -> Option<docent_testing::TestingServer> {
    docent_testing::TestingServer::start().await.ok()
}

// What is said about all of them.

const COMMANDS: [&str; 17] = [
    "lock",
    "locks",
    "revoke",
    "get",
    "set",
    "create",
    "delete",
    "ls",
    "stat",
    "watch",
    "sync",
    "multi",
    "decode",
    "serve",
    "tap",
    "completions",
    "man",
];

#[tokio::test]
async fn every_command_has_help_a_page_and_completions() {
    let directory =
        std::env::temp_dir().join(format!("docent{}", unique_path("m").replace('/', "-")));
    run("", &["man", directory.to_str().unwrap()]).await.ok();
    let mut shells = Vec::new();
    for shell in ["bash", "zsh", "fish"] {
        shells.push(run("", &["completions", shell]).await.ok());
    }
    let all = run("", &["--help"]).await.ok();
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command} in {all}");
        let help = run("", &[command, "--help"]).await.ok();
        let is_old = ["decode", "serve", "tap"].contains(&command);
        assert!(is_old || help.contains("Examples:\n  docent "), "{help}");
        let page = std::fs::read_to_string(directory.join(format!("docent-{command}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{page}");
        for shell in &shells {
            assert!(shell.contains(command), "{command}");
        }
    }
    assert!(!all.contains("__lock"), "{all}");
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The scripts are read by the shells that are here.
#[tokio::test]
async fn completions_are_scripts_of_their_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run("", &["completions", shell]).await.ok();
        let check = tokio::process::Command::new(shell)
            .args(["-n"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut check) = check else {
            // Not everybody has all shells; by its beginning, at least, it is meant for this one.
            let begins = if shell == "zsh" { "#compdef docent\n" } else { "# Print an optspec" };
            assert!(script.starts_with(begins), "{script}");
            continue;
        };
        check.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
        let ran = ended(check).await;
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{shell}");
    }
}
