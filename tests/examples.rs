//! The examples do what they say, run as a user runs them.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, not what they call")]

mod support;

use std::{path::PathBuf, process::Stdio};

use docent::{Client, ErrorKind};
use support::{real::server, within_deadline};
use tokio::process::Command;

/// Where cargo puts the example: beside the directory of the test programs.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

#[tokio::test]
async fn lock_holds_25_times_without_an_overlap_and_leaves_nothing() {
    let server = server();
    // A chroot of its own: the example's path is fixed, and another run may be using it.
    let chroot = support::real::unique_path("example").replace('/', "-").replacen('-', "/", 1);
    let client = Client::connect(&server).await.unwrap();
    client.create(&chroot, b"", docent::CreateMode::Container).await.unwrap();
    let output = Command::new(example("lock"))
        .env("DOCENT_CONNECT", format!("{server}{chroot}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within_deadline("the example", output).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().last(), Some("25 holds, 0 overlaps"));
    assert_eq!(text.lines().filter(|line| line.contains(" holds /examples/lock/_c_")).count(), 25);
    match client.get_children(&format!("{chroot}/examples/lock")).await {
        Ok(children) => assert_eq!(children.to_vec(), [""; 0]),
        // The server has removed the empty container already.
        Err(error) => assert_eq!(error.kind(), ErrorKind::NoNode),
    }
}

#[tokio::test]
async fn lock_needs_no_server() {
    let output = Command::new(example("lock")).env_remove("DOCENT_CONNECT").output();
    let output = within_deadline("the example", output).await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().last(), Some("25 holds, 0 overlaps"));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("embedded server"), "{told}");
}

#[tokio::test]
async fn lock_says_what_is_wrong_with_a_server_that_is_not_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (connect, part) in [
        ("nonsense:port".to_owned(), "\"nonsense:port\" has a port that is not a number"),
        (format!("127.0.0.1:{port}"), "refused"),
    ] {
        let output = Command::new(example("lock")).env("DOCENT_CONNECT", &connect).output();
        let output = within_deadline("the example", output).await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part), "{connect}: {text}");
    }
}

#[tokio::test]
async fn lock_peer_refuses_bad_arguments_with_one_line() {
    for (arguments, part) in [
        (vec![], "usage: lock_peer CONNECT"),
        (vec!["a:b"], "\"a:b\" has a port that is not a number"),
        (vec!["127.0.0.1:1", "soon"], "SESSION_MS"),
    ] {
        let output = Command::new(example("lock_peer")).args(&arguments).output();
        let output = within_deadline("the example", output).await.unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}
