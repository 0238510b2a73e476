//! The commands for nodes: each command, exit code and invalid argument. Runs on the server of
//! `DOCENT_TEST_CONNECT`, or on an embedded one.

use tokio::io::AsyncWriteExt as _;

use xtask::TemporaryDirectory;

use super::*;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// Servers before 3.5.0 return no Stat for a created node.
// Case (Found in docent itself): `docent create` failed on ZooKeeper 3.4: it sent create2, although
// it prints no Stat.
#[tokio::test]
async fn nodes_are_created_on_old_servers() {
    let version = docent_testing::server::Version::V3_4;
    let config = docent_testing::server::Config { version, ..Default::default() };
    let server = TestingServer::start_with(config).await.unwrap();
    let connect = server.connect_string();
    assert_eq!(run(&connect, &["create", "-p", "/a/b", "one"]).await.ok(), "/a/b\n");
    assert_eq!(run(&connect, &["get", "/a/b"]).await.ok(), "one");
    assert_eq!(run(&connect, &["create", "-s", "/a/s-"]).await.ok(), "/a/s-0000000001\n");
    run(&connect, &["create", "--json", "/c"]).await.failed(65, "it requires ZooKeeper 3.5.0");
    run(&connect, &["create", "-c", "/c"]).await.failed(65, "it requires ZooKeeper 3.5.1");
}

#[tokio::test]
async fn data_is_written_and_read_byte_for_byte() {
    let chroot = new_chroot().await;
    assert_eq!(run(&chroot, &["create", "/a", "one"]).await.ok(), "/a\n");
    assert_eq!(run(&chroot, &["get", "/a"]).await.ok(), "one");
    run(&chroot, &["set", "/a", "two\n"]).await.ok();
    assert_eq!(run(&chroot, &["get", "/a"]).await.ok(), "two\n");
    run(&chroot, &["set", "/a", "-1"]).await.ok();
    run(&chroot, &["set", "/a", "--", "--json"]).await.ok();
    assert_eq!(run(&chroot, &["get", "/a"]).await.ok(), "--json");
    let bytes = [0, 255, 254, 10, 0];
    run_with_input(&chroot, &["set", "/a", "-"], bytes).await.ok();
    let read = client(&chroot).await.get_data("/a").await.unwrap();
    assert_eq!(read.data, &bytes[..]);
    let output = docent(&chroot, &["get", "/a"]).output().await.unwrap();
    assert_eq!(output.stdout, bytes);
    let object = json(&run(&chroot, &["get", "--json", "/a"]).await.ok());
    assert_eq!(object["data_base64"], "AP/+CgA=");
    assert_eq!(object["stat"]["version"], 4);
    run_with_input(&chroot, &["create", "/b", "-"], b"piped").await.ok();
    assert_eq!(run(&chroot, &["get", "/b"]).await.ok(), "piped");
}

/// A tree that needs more than one transaction.
#[tokio::test]
async fn a_large_tree_is_deleted_in_several_transactions() {
    let chroot = new_chroot().await;
    let client = client(&chroot).await;
    let mode = CreateMode::Persistent;
    client.create("/t", b"", mode).await.unwrap();
    let name = "n".repeat(150);
    let created: Vec<_> =
        (0..4000).map(|n| client.create(&format!("/t/{name}{n}"), b"", mode)).collect();
    for reply in created {
        reply.await.unwrap();
    }
    run(&chroot, &["delete", "-r", "/t"]).await.ok();
    assert_eq!(client.exists("/t").await.unwrap(), None);
}

#[tokio::test]
async fn stat_prints_the_fields_or_that_there_is_no_node() {
    let chroot = new_chroot().await;
    run(&chroot, &["create", "/a", "12345"]).await.ok();
    let text = run(&chroot, &["stat", "/a"]).await.ok();
    assert!(text.contains("dataLength = 5\n") && text.contains("ephemeralOwner = 0x0\n"), "{text}");
    let object = json(&run(&chroot, &["stat", "--json", "/a"]).await.ok());
    assert_eq!(object["dataLength"], 5);
    let czxid = object["czxid"].as_i64().unwrap();
    let [ctime, mtime] = ["ctime", "mtime"].map(|name| object[name].as_i64().unwrap());
    let lines: Vec<_> = text.lines().map(|line| line.split_once(" = ").unwrap()).collect();
    let (names, values): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
    let of_zkcli = "cZxid ctime mZxid mtime pZxid cversion dataVersion aclVersion ephemeralOwner \
                    dataLength numChildren";
    assert_eq!((names.join(" ").as_str(), values[0]), (of_zkcli, &*format!("{czxid:#x}")));
    for (shown, millis) in [(values[1], ctime), (values[3], mtime)] {
        let mut date = tokio::process::Command::new("date");
        date.args(["-u", "-d", &format!("@{}", millis / 1000), "+%a %b %d %H:%M:%S UTC %Y"])
            .env("LC_ALL", "C");
        assert_eq!(format!("{shown}\n").as_bytes(), date.output().await.unwrap().stdout);
    }
    // Like zkCli: the data, a line break, the fields.
    assert_eq!(run(&chroot, &["get", "-s", "/a"]).await.ok(), format!("12345\n{text}"));
}

// Case (Found in docent itself): the errors of `docent multi` counted operations from 1 or from 0.
#[tokio::test]
async fn the_errors_of_a_transaction_count_from_one() {
    let chroot = new_chroot().await;
    run(&chroot, &["create", "/a", "0"]).await.ok();
    let ran = run(&chroot, &["multi", "set /a 'a b'", "check /nope"]).await;
    ran.failed(1, "multi: operation 2: check /nope");
    let ran = run_with_input(&chroot, &["multi"], b"# comment\ncheck /a\n\ncheck /nope\n").await;
    ran.failed(1, "multi: line 4: check /nope");
    run(&chroot, &["multi", "set /a 'a b'"]).await.ok();
    assert_eq!(run(&chroot, &["get", "-r", "/a"]).await.ok(), "/a\ta b\n");
}

#[tokio::test]
async fn events_are_printed_as_they_arrive() {
    let chroot = new_chroot().await;
    let mut one = Watching::start(&chroot, &["watch", "--count", "4", "/w"]);
    let mut all = Watching::start(&chroot, &["watch", "-r", "--json", "/w"]);
    for watching in [&mut one, &mut all] {
        let first = watching.line().await;
        assert!(first.contains("watching"), "{first}");
    }
    run(&chroot, &["create", "/w"]).await.ok();
    run(&chroot, &["create", "/w/c"]).await.ok();
    run(&chroot, &["set", "/w", "x"]).await.ok();
    run(&chroot, &["delete", "-r", "/w"]).await.ok();
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
}

#[tokio::test]
async fn an_acl_error_suggests_credentials() {
    let chroot = new_chroot().await;
    let auth = ["--auth", "digest:me:secret"];
    let create = ["create", "--acl", "auth::cdrwa", auth[0], auth[1], "/mine", "x"];
    run(&chroot, &create).await.ok();
    let remedy = "--auth digest:USER:PASSWORD";
    run(&chroot, &["get", "/mine"]).await.failed(77, remedy);
    let other = run(&chroot, &["get", "--auth", "digest:me:wrong", "/mine"]).await;
    assert!(!other.err.contains("authenticate with"), "{other:?}");
    other.failed(77, "a wrong password is not reported otherwise");
    let hash = docent_protocol::acl::digest_id("me:secret");
    run(&chroot, &["create", "--acl", &format!("digest:{hash}:r"), "/hashed", "y"]).await.ok();
    assert_eq!(run(&chroot, &["get", auth[0], auth[1], "/hashed"]).await.ok(), "y");
    run(&chroot, &["set", "/mine", "y"]).await.failed(77, "not allowed");
    assert_eq!(run(&chroot, &["get", auth[0], auth[1], "/mine"]).await.ok(), "x");
    let by_variable = docent(&chroot, &["get", "/mine"]).env("DOCENT_AUTH", auth[1]).output().await;
    assert_eq!(by_variable.unwrap().stdout, b"x");
    run(&chroot, &["create", "--acl", "world:anyone:r,auth::cdrwa", auth[0], auth[1], "/read"])
        .await
        .ok();
    run(&chroot, &["get", "/read"]).await.ok();
    run(&chroot, &["get", "--auth", "nosuchscheme:x", "/read"])
        .await
        .failed(77, "SCHEME:CREDENTIALS");
}

#[tokio::test]
async fn settings_come_from_options_then_variables_then_the_file() {
    let (chroot, nowhere) = (new_chroot().await, "127.0.0.1:1");
    let directory = TemporaryDirectory::new("settings").unwrap();
    fs::create_dir_all(directory.path().join("docent")).unwrap();
    let file = directory.path().join("docent/config.toml");
    let by_file = async |text: &str, arguments: &[&str], connect: &str| -> Ran {
        fs::write(&file, text).unwrap();
        let output = docent(connect, arguments).env("XDG_CONFIG_HOME", directory.path()).output();
        output.await.unwrap().into()
    };
    let fast = "connect-timeout = '4s'\n";
    by_file(&format!("connect = '{chroot}'"), &["stat", "/"], "").await;
    let good = format!("connect = '{chroot}'\nsession-timeout = '4s'\n");
    assert_eq!(by_file(&good, &["stat", "/"], "").await.code, Some(0));
    let wrong = format!("connect = '{nowhere}'\n{fast}");
    by_file(&wrong, &["stat", "/"], "").await.failed(69, nowhere);
    assert_eq!(by_file(&wrong, &["stat", "/"], &chroot).await.code, Some(0));
    let with_option = ["stat", "--connect", &chroot, "/"];
    assert_eq!(by_file(&wrong, &with_option, "127.0.0.1:2").await.code, Some(0));
    // An error in the file is reported with its line number.
    for (text, part) in [
        ("\nconect = 'x'\n", "config.toml:2: unknown field `conect`"),
        ("session-timeout = 'soon'", "session-timeout is not a duration"),
        ("connect = ", "config.toml:1:"),
        ("[tls]\ncertificate = 'x'", "unknown field `certificate`"),
    ] {
        by_file(text, &["stat", "/"], &chroot).await.failed(78, part);
    }
    by_file("auth = ['secret']", &["stat", "/"], &chroot).await.failed(64, "SCHEME:CREDENTIALS");
}

#[tokio::test]
async fn commands_leave_no_session_behind() {
    let server = TestingServer::start().await.unwrap();
    run(&server.connect_string(), &["create", "/a"]).await.ok();
    run(&server.connect_string(), &["get", "/nope"]).await.failed(1, "no such node");
    until("no session", async || server.session_ids().is_empty()).await;
}

// Help, manual pages and completions of all commands.

const COMMANDS: &str = "lock locks revoke get set create delete ls stat tree watch sync multi \
                        decode serve tap completions man";

#[tokio::test]
async fn every_command_has_help_a_manual_page_and_completions() {
    let directory = TemporaryDirectory::new("man").unwrap();
    run("", &["man", directory.path().to_str().unwrap()]).await.ok();
    let mut shells = Vec::new();
    for shell in ["bash", "zsh", "fish"] {
        shells.push(run("", &["completions", shell]).await.ok());
    }
    let all = run("", &["--help"]).await.ok();
    for command in COMMANDS.split(' ') {
        assert!(all.contains(&format!("\n  {command} ")), "{command} in {all}");
        let help = run("", &[command, "--help"]).await.ok();
        let has_no_examples = ["decode", "serve", "tap"].contains(&command);
        assert!(has_no_examples || help.contains("Examples:\n  docent "), "{help}");
        let page = directory.path().join(format!("docent-{command}.1"));
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{page}");
        for shell in &shells {
            assert!(shell.contains(command), "{command}");
        }
    }
    assert!(!all.contains("__lock"), "{all}");
}

/// The scripts can be parsed by the shells that are installed.
#[tokio::test]
async fn completion_scripts_are_valid() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run("", &["completions", shell]).await.ok();
        let check = tokio::process::Command::new(shell)
            .args(["-n"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut check) = check else {
            // The shell is not installed: check how the script begins.
            let beginning = if shell == "zsh" { "#compdef docent\n" } else { "# Print an optspec" };
            assert!(script.starts_with(beginning), "{script}");
            continue;
        };
        check.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
        ended(check).await.exited(0);
    }
}
