//! `docent serve` and `docent tap` as other programs use them.

use std::net::TcpStream;

use super::*;
use crate::sessions::Typed;

/// Starts `docent serve` with these options. Returns its address, too.
pub(crate) async fn serve(options: &[&str]) -> (Typed, String) {
    Typed::listening(&[&["serve", "--listen", "127.0.0.1:0"], options].concat()).await
}

fn four_letter_word(addr: &str, word: &str) -> String {
    xtask::four_letter_word(addr.parse().unwrap(), word).unwrap()
}

#[tokio::test]
async fn serve_prints_its_address_and_follows_its_options() {
    let (_server, addr) = serve(&["--version", "3.6"]).await;
    assert_eq!(
        (four_letter_word(&addr, "ruok"), four_letter_word(&addr, "isro")),
        ("imok".into(), "rw".into())
    );
    assert!(four_letter_word(&addr, "srvr").starts_with("Zookeeper version: 3.6."));
    let (_server, addr) = serve(&["--read-only"]).await;
    assert_eq!(four_letter_word(&addr, "isro"), "ro");
}

/// The names are those of zoo.cfg and of ZooKeeper's system properties.
#[tokio::test]
async fn every_setting_of_a_server_can_be_given() {
    let settings = [
        "tickTime=200",
        "maxSessionTimeout=4000",
        "zookeeper.extendedTypesEnabled=false",
        "znode.container.checkIntervalMs=50",
        "jute.maxbuffer=1000",
    ];
    let options = settings.iter().flat_map(|setting| ["--config", setting]);
    let all: Vec<_> = ["serve", "--listen", "localhost:0"].into_iter().chain(options).collect();
    let (_server, addr) = Typed::listening(&all).await;
    let conf = four_letter_word(&addr, "conf");
    for line in ["tickTime=200", "minSessionTimeout=400", "maxSessionTimeout=4000"] {
        assert!(conf.lines().any(|shown| shown == line), "{conf}");
    }
    for (arguments, code) in [
        (&["create", "--ttl", "1h", "/ttl"][..], 65),
        (&["create", "/large", &"x".repeat(2000)], 69),
        (&["create", "-c", "/c"], 0),
        (&["create", "/c/child"], 0),
        (&["delete", "/c/child"], 0),
    ] {
        assert_eq!(run(&addr, arguments).await.code, Some(code), "{arguments:?}");
    }
    until("no container", async || run(&addr, &["stat", "/c"]).await.code == Some(1)).await;
    let help = run("", &["serve", "--help"]).await.ok();
    for (name, value) in docent_testing::server::Config::settings() {
        assert!(help.contains(name) && help.contains(value), "{name}");
    }
}

/// Each command replies with one line, so that a script knows when it is done.
#[tokio::test]
async fn members_of_an_ensemble_are_stopped_cut_and_made_to_lag_by_commands() {
    let (mut servers, addresses) = serve(&["--servers", "3"]).await;
    let addresses: Vec<_> = addresses.split(',').collect();
    assert_eq!(addresses.len(), 3);
    let mut send = async |command: &str| {
        servers.types(command, &[]).await;
        servers.line().await
    };
    for (command, reply) in [
        ("status", "1 leader, 2 follower, 3 follower"),
        ("stop 1", "1 stopped, 2 leader, 3 follower"),
        ("lag 3", "1 stopped, 2 leader, 3 follower (lags)"),
        ("start 1", "1 follower, 2 leader, 3 follower (lags)"),
        ("catch-up 3", "1 follower, 2 leader, 3 follower"),
        ("pause 3", "1 follower, 2 leader, 3 follower (paused)"),
        ("resume 3", "1 follower, 2 leader, 3 follower"),
        ("sessions", "sessions:"),
        ("disconnect 2", "1 follower, 2 leader, 3 follower"),
    ] {
        assert_eq!(send(command).await, reply, "{command}");
    }
    assert!(
        send("cut 1").await.starts_with("1 follower (cut from 2 and 3), 2 leader (cut from 1), 3 ")
    );
    assert!(send("cut 2 3").await.contains("2 leader (cut from 1 and 3)"));
    assert!(!send("heal").await.contains("cut"));
    assert!(send("stop 2").await.contains("2 stopped"));
    let refused = TcpStream::connect(addresses[1]);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(four_letter_word(addresses[2], "ruok"), "imok");
    servers.types("quit", &[]).await;
    assert_eq!(servers.end().await, (Some(0), vec![]));
}

/// Service managers and `docent serve < /dev/null &` start it like this.
#[tokio::test]
async fn a_closed_standard_input_does_not_end_the_server() {
    let (mut server, addr) = serve(&[]).await;
    server.types("stop 1\nstatus\nstart 1", &[]).await;
    server.close_input();
    for reply in ["1 stopped", "1 stopped", "1 standalone"] {
        assert_eq!(server.line().await, reply);
    }
    assert_eq!(four_letter_word(&addr, "ruok"), "imok");
    assert!(server.child.try_wait().unwrap().is_none());
}

#[tokio::test]
async fn commands_that_cannot_be_executed_are_one_line_of_errors() {
    let commands = ["stop 2", "stop 0", "start 1", "cut 1 1", "expire x", "expire 0x1", "lag", "x"];
    let input = format!("{}\nquit\n", commands.join("\n"));
    let ran = run_with_input("", &["serve", "--listen", "127.0.0.1:0"], input).await;
    let errors: Vec<_> = ran.err.lines().skip(1).collect();
    assert_eq!(errors.len(), commands.len(), "{errors:?}");
    for (command, error) in commands.iter().zip(errors) {
        assert!(error.starts_with(&format!("{command}: ")), "{error}");
    }
}

/// The bytes are for the owner of the file alone, and `docent decode` reads them.
#[cfg(unix)]
#[tokio::test]
async fn a_tap_writes_a_capture() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = xtask::TemporaryDirectory::new("capture").unwrap();
    let file = directory.path().join("capture");
    let file_name = file.to_str().unwrap();
    let (_server, upstream) = serve(&[]).await;
    let tapped = ["tap", "--upstream", &upstream, "--capture", file_name];
    let (mut tap, addr) = Typed::listening(&tapped).await;
    assert_eq!(four_letter_word(&addr, "ruok"), "imok");
    assert_eq!(tap.line().await, " -> RAW 4 bytes \"ruok\"");
    assert_eq!(tap.line().await, " <- RAW 4 bytes \"imok\"");
    let lines = || std::fs::read_to_string(&file).unwrap_or_default();
    until("two lines", async || lines().lines().count() >= 2).await;
    assert!(lines().lines().all(|line| line.split('\t').count() == 4), "{}", lines());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let decoded = run("", &["decode", "--stream", file_name]).await.ok();
    assert_eq!(decoded, "1 c2s four-letter word ruok\n1 s2c text imok\n");
    // A file that exists is not touched.
    let refused = run("", &tapped).await;
    refused.failed(74, &format!("docent tap: cannot write {file_name}: File exists"));
}

#[tokio::test]
async fn an_address_in_use_is_refused_in_one_line() {
    let (_server, taken) = serve(&["--session-timeout", "500ms..2m"]).await;
    for arguments in [
        &["serve", "--listen", &taken][..],
        &["tap", "--listen", &taken, "--upstream", "127.0.0.1:1"],
    ] {
        let ran = run("", arguments).await;
        ran.failed(71, &format!("docent {}: {taken}: ", arguments[0]));
    }
}
