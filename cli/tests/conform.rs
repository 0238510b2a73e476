//! `docent conform`: exit codes and reports. `conform/src/tests.rs` tests the cases of servers.

use docent_tests::real::server;
use serde_json::Value;

use crate::support::{TemporaryFile, run};

#[tokio::test]
async fn a_server_conforms() {
    let (server, json) = (server(), TemporaryFile::new());
    let ran = run("", &["conform", &server, "--report", "json", json.path()]).await.ok();
    assert!(ran.contains(" 0 failed (0 MUST, 0 SHOULD, 0 MAY), "), "{ran}");
    let report: Vec<Value> = serde_json::from_str(&json.text()).unwrap();
    for field in ["id", "group", "level", "result", "expected", "actual", "source"] {
        assert!(report.iter().all(|case| case[field].is_string()), "{field}");
    }
    let listed = run("", &["conform", "--list"]).await.ok();
    assert_eq!(listed.lines().count(), report.len());
    let page = TemporaryFile::new();
    run("", &["conform", "matrix", page.path(), json.path(), json.path()]).await.ok();
    assert_eq!(page.text().matches("<tr>").count(), report.len() + 1);
}

#[tokio::test]
async fn a_must_that_fails_is_exit_code_1() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let address = server.connect_string();
    let arguments = ["conform", &address, "--version", "3.4", "--only", "create2-unknown"];
    let ran = run("", &arguments).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("FAIL  MUST   create/create2-unknown"), "{ran:?}");
}

#[tokio::test]
async fn bad_input_is_one_line() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let address = server.connect_string();
    for (arguments, code, text) in [
        (&["--only", "nothing-has-this-name"][..], 64, "no case has a name with"),
        (&["--version", "latest"], 64, "is neither auto nor a version"),
        (&["--report", "xml", "/nowhere"], 64, "is neither json, junit nor html"),
        (&["--with", "/nowhere"], 64, "/nowhere: "),
        (&["--harmful", "another:2181"], 64, "nothing was sent"),
        (&["--parent", "relative"], 64, "--parent"),
        (&["--auth", "nosuch:x"], 69, "AUTHFAILED"),
        (&["--parent", "/missing"], 69, "NONODE"),
    ] {
        let arguments = [&["conform", &address], arguments].concat();
        run("", &arguments).await.failed(code, text);
    }
    run("", &["conform", "matrix", "/tmp/page.html", "/nowhere"]).await.failed(64, "/nowhere: ");
    run("", &["conform"]).await.failed(64, "HOST:PORT");
    run("", &["conform", "127.0.0.1:1"]).await.failed(69, "no connection");
}

#[tokio::test]
async fn docents_client_conforms() {
    let driver = xtask::example("conform_driver").unwrap().to_str().unwrap().to_owned();
    let json = TemporaryFile::new();
    let arguments = ["conform", "client", "--limit", "10s", "--report", "json", json.path()];
    let ran = run("", &[&arguments[..], &["--", &driver, "{connect}"]].concat()).await.ok();
    // A server that never replies is waited for, as ZooKeeper's own client does.
    assert!(ran.contains(" 1 failed (0 MUST, 1 SHOULD, 0 MAY), 0 skipped"), "{ran}");
    assert!(ran.contains("FAIL  SHOULD lost-reply/never"), "{ran}");
    let report: Vec<Value> = serde_json::from_str(&json.text()).unwrap();
    let listed = run("", &["conform", "client", "--list"]).await.ok();
    assert_eq!(listed.lines().count(), report.len());
}

/// What a driver says is judged, whatever it says.
#[cfg(unix)]
#[tokio::test]
async fn a_driver_that_misbehaves_is_the_result_of_its_case() {
    const OK: &str = "while read number task; do echo $number ok; done # {connect}";
    for (driver, case, text) in [
        (
            "read task; exit 3 # {connect}",
            "close/session",
            "ends: exit status: 3 at `connect 6000`",
        ),
        (
            "cat > /dev/null # {connect}",
            "close/session",
            "hangs: no answer to `connect 6000` within 1s",
        ),
        (
            "while read n task; do echo $n hello; done # {connect}",
            "close/session",
            "prints nonsense: `1 hello`",
        ),
        (OK, "lost-request/create", "untrue: ok, of an operation that was not applied"),
        (OK, "close/session", "leaks: its process, after the close"),
        // Each case can fail.
        (OK, "", "cases: 0 passed"),
    ] {
        let arguments =
            ["conform", "client", "--limit", "1s", "--only", case, "--", "sh", "-c", driver];
        let ran = run("", &arguments).await;
        assert_eq!(ran.code, Some(1), "{driver}: {ran:?}");
        assert!(ran.out.contains(text), "{driver}: {ran:?}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_driver_that_cannot_be_started_is_wrong_usage() {
    for (arguments, text) in [
        (&["--", "/nowhere/driver", "{connect}"][..], "/nowhere/driver {connect}: No such file"),
        (&["--", "sh"], "has no {connect}"),
        (&["--only", "nothing-has-this-name", "--", "sh", "{connect}"], "no case has a name with"),
        (&["--limit", "soon", "--", "sh", "{connect}"], "--limit"),
        (&[], "COMMAND"),
    ] {
        run("", &[&["conform", "client"], arguments].concat()).await.failed(64, text);
    }
}

/// Runs a case with a driver in the shell, which does `special` for some verbs, and answers ok to all others.
#[cfg(unix)]
async fn drive(case: &str, special: &str) -> String {
    let driver = format!(
        r#"while read -r number verb path rest; do case $verb in {special} *) echo "$number ok";; esac; done"#
    );
    let arguments =
        ["conform", "client", "--all", "--only", case, "--", "sh", "-c", &driver, "{connect}"];
    run("", &arguments).await.ok()
}

#[cfg(unix)]
#[tokio::test]
async fn a_client_without_transactions_is_not_judged_by_them() {
    let ran = drive("plain/multi", r#"multi) echo "$number skip";;"#).await;
    assert!(ran.contains("skip  MUST   plain/multi"), "{ran}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_watch_may_end_instead_of_its_event() {
    let special =
        r#"watch) echo "$number ok true"; echo "! end $path";; get) echo "$number ok 1 second";;"#;
    let ran = drive("watch/while-disconnected", special).await;
    assert!(ran.contains("says that the watch is over, recovers"), "{ran}");
}
