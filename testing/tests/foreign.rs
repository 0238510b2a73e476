//! Unchanged third-party clients on the embedded server: Java's command line, Curator's recipes,
//! kazoo's.
//!
//! They need Debian's `libzookeeper-java` and `libcurator-*-java` with a JDK, and a Python with kazoo
//! (`DOCENT_TEST_KAZOO` names the interpreter; `python3` is tried). Missing ones are reported and skipped.

use docent_testing::TestingCluster;
use std::process::Stdio;
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::*;
use crate::support::skip;

/// The time limit of a program.
const DEADLINE: Duration = Duration::from_secs(120);

const JARS: &str = "curator-client curator-framework curator-recipes zookeeper zookeeper-jute \
                    guava commons-cli slf4j-api slf4j-nop";

/// The class path of the jars; without them, the test is skipped.
fn class_path() -> Option<String> {
    // The directory of fetched jars lacks those that are installed.
    let fetched = std::env::var("DOCENT_JAVA_LIB").unwrap_or_default();
    let find = |jar| {
        let places = [&*fetched, "/usr/share/java"].map(|place| format!("{place}/{jar}.jar"));
        places.into_iter().find(|path| Path::new(path).exists())
    };
    let jars: Option<Vec<_>> = JARS.split(' ').map(find).collect();
    if jars.is_none() {
        skip("Debian's Curator and ZooKeeper jars are not there");
    }
    Some(jars?.join(":"))
}

/// Runs a program to its end. Returns whether it succeeded, and its output.
async fn run(command: &mut Command, input: &str) -> (bool, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that reads nothing may have exited already.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = timeout(DEADLINE, child.wait_with_output()).await.unwrap().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), text.concat())
}

fn temp_dir(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(crate::support::unique(name).trim_start_matches('/'));
    std::fs::create_dir(&dir).unwrap();
    dir
}

async fn servers() -> Vec<TestingServer> {
    let mut servers = Vec::new();
    for version in [Version::V3_6, Version::V3_8, Version::V3_9] {
        let config = Config { version, ..Config::default() };
        servers.push(TestingServer::start_with(config).await.unwrap());
    }
    servers
}

#[tokio::test]
async fn curators_recipes_work() {
    let Some(class_path) = class_path() else { return };
    let dir = temp_dir("docent-curator");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/Recipes.java");
    let mut javac = Command::new("javac");
    javac.arg("-cp").arg(&class_path).arg("-d").arg(&dir).arg(source);
    let (compiled, text) = run(&mut javac, "").await;
    assert!(compiled, "{text}");
    let class_path = format!("{class_path}:{}", dir.display());
    for server in servers().await {
        let mut java = Command::new("java");
        java.args(["-cp", &class_path, "Recipes", &server.connect_string()]);
        let (content, text) = run(&mut java, "").await;
        assert!(content && text.contains("nothing is left: true"), "{text}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// An interpreter that has kazoo; without one, the test is skipped.
async fn python_with_kazoo() -> Option<String> {
    let python = std::env::var("DOCENT_TEST_KAZOO").unwrap_or_else(|_| "python3".to_owned());
    let mut import = Command::new(&python);
    import.args(["-c", "import kazoo"]).stdout(Stdio::null()).stderr(Stdio::null());
    let has_kazoo = import.status().await.is_ok_and(|status| status.success());
    if !has_kazoo {
        skip(&format!("{python} has no kazoo (DOCENT_TEST_KAZOO names an interpreter)"));
    }
    has_kazoo.then_some(python)
}

/// kazoo's own tests: the permission to change the members, a server that joins and leaves, wrong arguments.
#[tokio::test]
async fn kazoos_tests_of_reconfig_pass() {
    let Some(python) = python_with_kazoo().await else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/reconfig.py");
    for version in [Version::V3_6, Version::V3_8, Version::V3_9] {
        let config = Config {
            version,
            servers: 3,
            reconfig_enabled: true,
            // `super:test`, which the tests use.
            super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
            ..Config::default()
        };
        let cluster = TestingCluster::start_with(config).await.unwrap();
        let mut command = Command::new(&python);
        command.arg(&source).arg(cluster.connect_string());
        let (content, text) = run(&mut command, "").await;
        assert!(content && text.contains("3 run, ok: True"), "{text}");
    }
}

#[tokio::test]
async fn kazoos_client_and_recipes_work() {
    let Some(python) = python_with_kazoo().await else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/recipes.py");
    for server in servers().await {
        let mut command = Command::new(&python);
        command.arg(&source).arg(server.connect_string());
        let (content, text) = run(&mut command, "").await;
        assert!(content && text.contains("gone with its session: True"), "{text}");
    }
}

/// Each line of input, and a part of the output that it causes.
const ZK_CLI: &[(&str, &str)] = &[
    ("create /a hello", "Created /a"),
    ("create -e /a/e x", "Created /a/e"),
    ("create -s /a/s- x", "Created /a/s-0000000001"),
    ("create -c /c", "Created /c"),
    ("create -t 100000 /t x", "Created /t"),
    ("ls -R /", "/zookeeper/quota"),
    ("get -s /a", "cversion = 2"),
    ("set -v 7 /a x", "version No is not valid"),
    ("addauth digest u:p", ""),
    ("setAcl /a auth::cdrwa", ""),
    ("getAcl /a", "'digest,'u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
    ("getEphemerals /", "[/a/e]"),
    ("getAllChildrenNumber /a", "2"),
    ("whoami", "digest: u"),
    ("addWatch /a", ""),
    ("set /a world", "NodeDataChanged path:/a"),
    ("removewatches /a", "PersistentWatchRemoved"),
    ("sync /", "Sync is OK"),
    ("delete /a", "Node not empty: /a"),
    ("deleteall /a", ""),
    ("ls /a", "Node does not exist: /a"),
    ("quit", ""),
];

#[tokio::test]
async fn javas_command_line_works() {
    let Some(class_path) = class_path() else { return };
    let server = TestingServer::start().await.unwrap();
    let mut java = Command::new("java");
    let main = "org.apache.zookeeper.ZooKeeperMain";
    java.args(["-cp", &class_path, main, "-server", &server.connect_string()]);
    let input: String = ZK_CLI.iter().map(|(line, _)| format!("{line}\n")).collect();
    let (_, text) = run(&mut java, &input).await;
    for (line, expected) in ZK_CLI {
        assert!(text.contains(expected), "{line}: {expected:?} is not in\n{text}");
    }
}

/// With the right password, the client is `sasl:bob`. With a wrong one, a server that requires SASL refuses it.
#[cfg(feature = "sasl")]
#[tokio::test]
async fn javas_client_proves_itself_by_sasl() {
    let Some(class_path) = class_path() else { return };
    let dir = temp_dir("docent-sasl");
    let sasl_users = [("bob".to_owned(), "bobpw".to_owned())].into();
    let config = Config { sasl_users, sasl_required: true, ..Config::default() };
    let server = TestingServer::start_with(config).await.unwrap();
    for (passwd, proved) in [("bobpw", true), ("wrong", false)] {
        let jaas = dir.join(passwd);
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        let text =
            format!("Client {{ {module} required username=\"bob\" password=\"{passwd}\"; }};");
        std::fs::write(&jaas, text).unwrap();
        let mut java = Command::new("java");
        java.arg(format!("-Djava.security.auth.login.config={}", jaas.display()));
        let main = "org.apache.zookeeper.ZooKeeperMain";
        java.args(["-cp", &class_path, main, "-server", &server.connect_string()]);
        let input = format!("create /{passwd} x\nsetAcl /{passwd} sasl:bob:cdrwa\nwhoami\nquit\n");
        let (_, text) = run(&mut java, &input).await;
        assert_eq!(text.contains("sasl: bob"), proved, "{text}");
        assert_eq!(text.contains(&format!("Created /{passwd}")), proved, "{text}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}
