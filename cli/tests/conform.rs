//! `docent conform HOST:PORT`: exit codes and reports. `conform/src/tests.rs` tests the cases.

use docent_tests::real::server;
use serde_json::Value;

use crate::support::{TemporaryFile, client, docent, ended, kill, run, until_children};

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
        (&["--report", "json", "/tmp/one", "--report", "html", "/tmp/one"], 64, "given twice"),
    ] {
        let arguments = [&["conform", &address], arguments].concat();
        run("", &arguments).await.failed(code, text);
    }
    run("", &["conform", "matrix", "/tmp/page.html", "/nowhere"]).await.failed(64, "/nowhere: ");
    run("", &["conform"]).await.failed(64, "HOST:PORT");
    run("", &["conform", "127.0.0.1:1"]).await.failed(69, "no connection");
    for servers in ["", "127.0.0.1", ":2181", "127.0.0.1:0", "127.0.0.1:99999", "a:1,", "a:1,b"] {
        run("", &["conform", servers]).await.failed(64, "is not HOST:PORT");
    }
    run("", &["conform", &address, "client"]).await.failed(64, "client");
}

// Case (Found in docent itself): a report that could not be written kept the reports behind it and the counts from being
// written.
#[tokio::test]
async fn a_report_that_cannot_be_written_keeps_none_from_the_others() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let (address, junit) = (server.connect_string(), TemporaryFile::new());
    let reports = ["--report", "json", "/nowhere/report", "--report", "junit", junit.path()];
    let ran =
        run("", &[&["conform", &address, "--only", "create/reply"], &reports[..]].concat()).await;
    assert!(ran.out.contains("1 cases: 1 passed"), "{ran:?}");
    assert!(junit.text().ends_with("</testsuites>\n"), "{}", junit.text());
    ran.failed(74, "/nowhere/report: ");
}

// Case (Found in docent itself): `docent conform matrix *.json`, without a page, wrote its page over the first report.
#[tokio::test]
async fn a_page_is_not_written_over_a_report() {
    let report = TemporaryFile::new();
    std::fs::write(report.path(), "[]").unwrap();
    let arguments = ["conform", "matrix", report.path(), report.path()];
    run("", &arguments).await.failed(64, "is a report, and would be overwritten");
    assert_eq!(report.text(), "[]");
}

// Case (Found in docent itself): SIGTERM ended `docent conform` with its nodes left on the server, and nothing said so.
#[cfg(unix)]
#[tokio::test]
async fn a_signal_ends_the_run_and_its_nodes_are_deleted() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let client = client(&server.connect_string()).await;
    let ran = docent("", &["conform", &server.connect_string()]).spawn().unwrap();
    until_children(&client, "/", 2).await;
    kill("-TERM", ran.id().unwrap()).await;
    let ran = ended(ran).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(143), ""), "{ran:?}");
    until_children(&client, "/", 1).await;
}
