//! `docent shell`, typed line by line and as a script. Runs on the server of `DOCENT_TEST_CONNECT`, or on an embedded
//! one.

use super::*;
use crate::sessions::Typed;

/// Runs a script.
async fn script(connect: &str, options: &[&str], text: impl AsRef<[u8]>) -> Ran {
    run_with_input(connect, &[&["shell"], options].concat(), text).await
}

#[tokio::test]
async fn the_naive_lock_is_built_by_hand() {
    let chroot = new_chroot().await;
    let mut shell = Typed::shell(&chroot, &[]).await;
    for name in ["B", "C"] {
        shell.types(&format!("client {name}"), &[&format!("{name}: session 0x1")]).await;
    }
    shell.types("create -e /lock", &["/lock"]).await;
    let exists = "create /lock: the node exists already; choose another path, or change the node with `docent set`";
    for name in ["B", "C"] {
        shell.types(&format!("{name} create -e /lock"), &[&format!("{name}: {exists}")]).await;
        shell.types(&format!("{name} get -w /lock"), &[]).await;
    }
    // A watch fires once.
    shell.types("A set /lock x", &["B: NodeDataChanged /lock", "C: NodeDataChanged /lock"]).await;
    shell.types("B stat --json -w /nothing", &["B: /nothing: no such node; check the path: `docent ls` lists the nodes below another one"]).await;
    shell.types("B get -w /lock", &["x"]).await;
    shell.types("A delete /lock", &["B: NodeDeleted /lock"]).await;
    shell.types("B create /nothing", &["/nothing", "B: NodeCreated /nothing"]).await;
    shell.types("C ls -w /", &["nothing"]).await;
    shell.types("A create -s -e /n-", &["/n-0000000002", "C: NodeChildrenChanged /"]).await;
    assert_eq!(shell.end().await, (Some(0), vec![]));
    assert_eq!(run(&chroot, &["ls", "/"]).await.ok(), "nothing\n");
    let ran = script(&chroot, &[], "client B\nB close\nB ls /\n").await;
    ran.failed(64, "line 3: there is no client or command B");
}

/// A killed client sends no closeSession; an expired session is another one afterwards.
#[tokio::test]
async fn a_session_outlives_its_killed_client_and_a_client_its_expired_session() {
    let chroot = new_chroot().await;
    let mut shell = Typed::shell(&chroot, &["--session-timeout", "60s"]).await;
    shell.types("client B", &["B: session 0x1"]).await;
    shell.types("B create -e /b", &["/b"]).await;
    shell.types("A get -w /b", &[]).await;
    shell.types("B kill", &[]).await;
    shell.types("A ls /", &["b"]).await;
    // The name is free again.
    shell.types("client B", &["B: session 0x1"]).await;
    shell.types("B create -e /b2", &["/b2"]).await;
    shell.types("A watch /b2", &["A: watching /b2"]).await;
    let lost = ["A: NodeDeleted /b2", "B: SUSPENDED", "B: LOST", "B: RECONNECTED"];
    shell.types("B expire", &lost).await;
    shell.types("B create -e /b2", &["/b2", "A: NodeCreated /b2"]).await;
    shell.types("A delete /b", &["A: NodeDeleted /b"]).await;
    assert_eq!(shell.end().await, (Some(0), vec![]));
    assert_eq!(run(&chroot, &["ls", "/"]).await.ok(), "");
}

#[tokio::test]
async fn a_script_ends_at_its_first_wrong_line_and_closes_its_sessions() {
    let chroot = new_chroot().await;
    for (wrong, text) in [
        ("craete /x", "no client or command craete"),
        ("A", "client A takes a command"),
        ("A craete /x", "unrecognized subcommand 'craete'"),
        ("create", "the following required arguments were not provided: <PATH>"),
        ("create -e -c /x", "an ephemeral node is no container"),
        ("create x", "a path looks like /a/b"),
        ("create /x -", "standard input has the lines of the shell"),
        ("set /x -", "standard input has the lines of the shell"),
        ("multi", "standard input has the lines of the shell"),
        ("get -w -r /x", "-w is a watch of one node"),
        ("get --data /x", "unexpected argument '--data' found"),
        ("create 'x", "unclosed quote"),
        ("client", "client takes one name"),
        ("client get", "is no command"),
        ("client a/b", "letters and digits"),
        ("client ''", "letters and digits"),
        ("client A", "there is a client A already"),
        ("B ls /", "`client B` connects one"),
    ] {
        let text_of = |rest: &str| format!("create -e /e\n\n{wrong}\n{rest}");
        let ran = script(&chroot, &[], &text_of("create /never\n")).await;
        assert_eq!(ran.out.lines().nth(1), Some("/e"), "{wrong}: {ran:?}");
        assert!(ran.err.starts_with("docent shell: line 3: "), "{wrong}: {ran:?}");
        ran.failed(64, text);
        assert_eq!(run(&chroot, &["ls", "/"]).await.ok(), "", "{wrong}");
        let ran = script(&chroot, &["-k"], &text_of("create -e /more\n")).await;
        assert_eq!(ran.out.lines().nth(2), Some("/more"), "{wrong}: {ran:?}");
        assert_eq!((ran.code, ran.err.lines().count()), (Some(0), 1), "{wrong}: {ran:?}");
    }
}

#[tokio::test]
async fn a_line_that_is_no_text_and_one_without_end_are_wrong() {
    let chroot = new_chroot().await;
    let ran = script(&chroot, &[], b"create -e /e\nls \xff\n").await;
    ran.failed(64, "line 2: ");
    let ran = script(&chroot, &[], [b"ls /".to_vec(), vec![b' '; 64 << 20]].concat()).await;
    ran.failed(64, "line 1: ");
}

/// The sessions of a server that is gone do not end one after the other.
#[tokio::test]
async fn sessions_without_a_server_are_given_up_together() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let mut shell = Typed::shell(&server.connect_string(), &[]).await;
    for n in 0..20 {
        shell.types(&format!("client B{n}"), &[&format!("B{n}: session 0x1")]).await;
    }
    drop(server);
    let start = Instant::now();
    let (code, _) = shell.end().await;
    assert_eq!(code, Some(0));
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[tokio::test]
async fn what_a_server_refuses_ends_no_script() {
    let chroot = new_chroot().await;
    let ran = script(&chroot, &[], "get /a\ncreate /a one # data\nquit\ncreate /b\n").await;
    assert_eq!(ran.out.lines().nth(1), Some("/a"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(ran.err.starts_with("A: getData /a: no such node"), "{ran:?}");
    assert_eq!((ran.code, run(&chroot, &["ls", "/"]).await.ok().as_str()), (Some(0), "a\n"));
}

#[tokio::test]
async fn a_script_waits_for_events() {
    let chroot = new_chroot().await;
    let text = "client B\nB watch --json -r /\nB wait -t 0\ncreate /a\nB wait -t 60s\n\
                get -w /a\nB delete /a\nwait\nB wait\nB wait -t 10ms\n";
    let ran = script(&chroot, &[], text).await;
    let lines: Vec<_> = ran.out.lines().collect();
    assert!(lines.contains(&"A: NodeDeleted /a"), "{ran:?}");
    let created = lines.iter().find(|line| line.contains("NodeCreated")).expect(&ran.out);
    let created: Value = serde_json::from_str(created).unwrap();
    assert_eq!((&created["client"], &created["path"]), (&Value::from("B"), &Value::from("/a")));
    assert_eq!(ran.err, "B: no event came in time\n".repeat(2));
    assert_eq!(ran.code, Some(0));
}

#[tokio::test]
async fn the_servers_of_the_option_are_used() {
    let chroot = new_chroot().await;
    let ran = script("127.0.0.1:1", &["-s", &chroot], "create /a\n").await;
    assert_eq!(ran.ok().lines().nth(1), Some("/a"));
    let timeout = ["--connect-timeout", "100ms"];
    script("127.0.0.1:1", &timeout, "create /a\n").await.failed(69, "127.0.0.1:1");
    script(&chroot, &["--tiemout"], "").await.failed(64, "docent shell --help");
    let missing = format!("{chroot}/missing");
    let text = "/missing does not exist; check --connect";
    script(&missing, &[], "ls /\n").await.failed(64, text);
    let help = script(&chroot, &[], "help\nA create --help\n").await.ok();
    assert!(help.contains("client NAME, help, quit") && help.contains("--ephemeral"), "{help}");
}

#[cfg(unix)]
#[tokio::test]
async fn an_interrupt_closes_all_sessions() {
    let chroot = new_chroot().await;
    let mut shell = Typed::shell(&chroot, &["--session-timeout", "60s"]).await;
    shell.types("create -e /a", &["/a"]).await;
    kill("-INT", shell.child.id().unwrap()).await;
    within_deadline("the end", shell.child.wait()).await.unwrap();
    assert_eq!(shell.end().await, (Some(130), vec![]));
    assert_eq!(run(&chroot, &["ls", "/"]).await.ok(), "");
}
