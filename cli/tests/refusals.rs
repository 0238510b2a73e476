//! Settings and trees that make a command fail, or that a command must not mistake for others. The tests
//! run on the server of `DOCENT_TEST_CONNECT`, or on an embedded one.

use docent::{Acl, CreateOptions, Perms, acl};
use docent_testing::fault::Action;
use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::transcripts::words;

/// The commands that run another command. Without a server, or with the wrong one, they would guard nothing.
const GUARDS: [[&str; 4]; 2] = [["lock", "/l", "--", "true"], ["lead", "/l", "--", "true"]];

// Case (Found in docent itself): `--acl digest:bob:secret:r` stored the password in clear, as a
// hash that matches no user; `superDigest` of `docent serve` did, too.
#[tokio::test]
async fn invalid_arguments_are_rejected_in_one_line_before_anything_is_done() {
    let (server, file) = (server(), TemporaryFile::new());
    fs::write(file.path(), "no program").unwrap();
    let lines = include_str!("usage.txt").lines();
    let lines: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(lines.len() > 80, "{}", lines.len());
    for line in lines {
        let [code, command, text] = line.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let command = command.replace("FILE", file.path());
        let ran = run(&server, &words(&command)).await;
        assert_eq!(ran.out, "", "{line}");
        assert!(!command.contains("--auth") || !ran.err.contains("secret"), "{line}: {ran:?}");
        let is_mistyped = command.contains("--tiemout");
        assert!(!is_mistyped || !ran.err.contains("put --"), "{line}: {ran:?}");
        ran.failed(code.parse().unwrap(), text);
    }
    // After `--`, an option belongs to the command.
    run(&server, &["lock", &unique_path("words"), "--", "true", "--tiemout"]).await.ok();
}

async fn with_variable(name: &str, value: &str, arguments: &[&str]) -> Ran {
    let output = docent("", arguments).env(name, value).output().await.unwrap();
    output.into()
}

// Case (Found in docent itself): an empty `--connect` or `DOCENT_CONNECT` was the server of this
// machine, also for `docent lock`, which then guarded nothing.
#[tokio::test]
async fn an_empty_setting_is_refused() {
    for command in [&["get", "/a"][..], &GUARDS[0], &GUARDS[1]] {
        with_variable("DOCENT_CONNECT", "", command).await.failed(64, "DOCENT_CONNECT) is empty");
        let [name, rest @ ..] = command else { panic!("no command") };
        let empty = [&[name, "--connect", ""], rest].concat();
        run("", &empty).await.failed(64, "--connect (or DOCENT_CONNECT) is empty");
        for option in ["--auth", "--tls-server-name", "--tls-ca"] {
            let empty = [&[name, "--connect", "127.0.0.1:1", option, ""], rest].concat();
            run("", &empty).await.failed(64, option);
        }
    }
}

#[tokio::test]
async fn a_guard_has_no_default_server() {
    for command in GUARDS {
        run("", &command).await.failed(64, "no servers given: --connect");
    }
}

// Case (Found in docent itself): settings were validated by the connect only, behind the command to guard.
#[tokio::test]
async fn an_invalid_user_is_refused_before_the_command_is_looked_for() {
    let file = TemporaryFile::new();
    fs::write(file.path(), "bob\u{1}:secret").unwrap();
    for name in ["lock", "lead"] {
        let command = [name, "--sasl", file.path(), "/l", "--", "no-such-program"];
        let ran = run("127.0.0.1:1", &command).await;
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        ran.failed(64, "the SASL user has a control character in it");
    }
}

// Case (Found in docent itself): `docent lock` exited with 1, as its command may, when the chroot
// did not exist.
// Case (Found in docent itself): `docent watch`, `sync` and `delete --force` took a chroot that
// does not exist for one that does.
#[tokio::test]
async fn a_missing_chroot_is_named_by_every_command() {
    let path = unique_path("no-chroot");
    let connect = format!("{}{path}", server());
    let commands = "lock /l -- true; lead /l -- true; lock --semaphore 2 /l -- true; \
        lock --read /l -- true; lock --strict /l -- true; get /a; get -r /; set /a x; create /a; \
        create /a/b; delete /a; delete --force /a; delete --recursive --force /a; ls /; ls -r /a; \
        stat /a; tree /; tree /a; tree --watch /a; watch /; watch /a; watch -r /a; sync; sync /a; \
        multi 'create /a'; multi 'check /a/b'; locks /a; locks --watch /a; revoke /a";
    for command in commands.split("; ") {
        let ran = run(&connect, &words(command)).await;
        ran.failed_at(command, 64, &format!("the chroot {path} does not exist"));
    }
    // This creates the chroot too.
    assert_eq!(run(&connect, &["create", "-p", "/a/b"]).await.ok(), "/a/b\n");
    run(&connect, &["get", "/b"]).await.failed(1, "getData /b: no such node");
    run(&connect, &["tree", "/b"]).await.failed(1, "/b: no such node");
    run(&connect, &["delete", "--force", "/b"]).await.ok();
    run(&connect, &["sync", "/b"]).await.ok();
    let watched = run(&connect, &["watch", "--timeout", "2s", "/b"]).await;
    assert_eq!((watched.code, watched.out.as_str()), (Some(124), "watching /b\n"));
}

/// The server replies only to the handshake and to pings.
// Case (Found in docent itself): every command but `lock` and `lead` waited for ever for a server
// that answers only the handshake and pings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_only_pings_does_not_keep_a_command() {
    let (server, path) = (server(), unique_path("mute"));
    let tap = Tap::start(&server).await.unwrap();
    tap.inject(Fault::new(Action::LoseReply, None).times(u32::MAX));
    let commands = "get PATH; get -r PATH; set PATH x; create PATH; create -p PATH; delete PATH; \
        delete -r PATH; ls PATH; stat PATH; tree PATH; tree --watch PATH; watch PATH; sync; \
        multi 'check /'; locks PATH; locks --watch PATH; revoke PATH";
    for command in commands.replace("PATH", &path).split("; ") {
        let limited = [words(command), vec!["--request-timeout", "100ms"]].concat();
        let ran = run(&tap.connect_string(), &limited).await;
        ran.failed_at(command, 69, "--request-timeout");
    }
}

/// The server sends its first reply, and then no more.
// Case (Found in docent itself): `docent tree` never ended behind a server that hangs after its
// first reply, since a cache repeats its reads for ever.
#[tokio::test]
async fn a_server_that_hangs_while_a_tree_is_read_does_not_keep_the_command() {
    let (server, path) = (server(), unique_path("hangs"));
    run(&server, &["create", "-p", &path]).await.ok();
    for command in [&["tree"][..], &["tree", "--watch"]] {
        let tap = Tap::start(&server).await.unwrap();
        tap.inject(Fault::new(Action::LoseReply, None).nth(2).times(u32::MAX));
        let limited = [command, &[&path, "--request-timeout", "100ms"]].concat();
        run(&tap.connect_string(), &limited).await.failed(69, "--request-timeout");
    }
}

// Case (Found in docent itself): `set PATH -` read all of a larger input before it was refused;
// `get -r` ended at the first node that the ACL hides.
#[tokio::test]
async fn more_than_a_request_can_hold_is_not_read() {
    let server = server();
    let path = unique_path("large");
    run(&server, &["create", "-p", &path]).await.ok();
    let mut child = docent(&server, &["set", &path, "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // The command exits while there is more input, so the pipe is closed.
    let block = vec![b'x'; 1 << 20];
    let mut written = 0_usize;
    while input.write_all(&block).await.is_ok() {
        written += block.len();
        assert!(written < 64 << 20, "it reads on after {written} bytes");
    }
    drop(input);
    ended(child).await.failed(65, "jute.maxbuffer");
}

#[tokio::test]
async fn a_hidden_node_does_not_hide_the_others() {
    let server = server();
    let path = unique_path("hidden");
    let client = client(&server).await;
    for child in ["a", "b", "b/below", "c"] {
        let path = format!("{path}/{child}");
        client
            .create(&path, b"data", CreateOptions::new(CreateMode::Persistent).with_parents())
            .await
            .unwrap();
    }
    let hidden = [Acl { perms: Perms::ADMIN | Perms::DELETE, ..acl::OPEN_ACL_UNSAFE[0] }];
    client.set_acl(&format!("{path}/b"), &hidden, None).await.unwrap();
    let read = run(&server, &["get", "-r", &path]).await;
    assert_eq!(read.out, format!("{path}\t\n{path}/a\tdata\n{path}/c\tdata\n"));
    let node = format!("{path}/b: not allowed by the ACL (and 1 more)");
    read.failed(77, &node);
    let listed = run(&server, &["ls", "-r", &path]).await;
    assert_eq!(listed.out, format!("{path}\n{path}/a\n{path}/b\n{path}/c\n"));
    listed.failed(77, "not all nodes could be read");
}
