//! `docent serve` and `docent tap` as other programs use them.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    process::{Child, ChildStdout},
};

use super::*;

/// A running command, killed on drop.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_docent"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn address(&mut self) -> String {
        let line = self.line();
        line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn four_letter_word(addr: &str, word: &str) -> String {
    xtask::four_letter_word(addr.parse().unwrap(), word).unwrap()
}

#[test]
fn serve_prints_its_address_and_follows_its_options() {
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--version", "3.6"]);
    let addr = server.address();
    assert_eq!(
        (four_letter_word(&addr, "ruok"), four_letter_word(&addr, "isro")),
        ("imok".into(), "rw".into())
    );
    assert!(four_letter_word(&addr, "srvr").starts_with("Zookeeper version: 3.6."));
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--read-only"]);
    assert_eq!(four_letter_word(&server.address(), "isro"), "ro");
}

/// The names are those of zoo.cfg and of ZooKeeper's system properties.
#[test]
fn every_setting_of_a_server_can_be_given() {
    let settings = [
        "tickTime=200",
        "maxSessionTimeout=4000",
        "zookeeper.extendedTypesEnabled=false",
        "znode.container.checkIntervalMs=50",
        "jute.maxbuffer=1000",
    ];
    let options = settings.iter().flat_map(|setting| ["--config", setting]);
    let all: Vec<_> = ["serve", "--listen", "localhost:0"].into_iter().chain(options).collect();
    let mut server = Running::start(&all);
    let addr = server.address();
    let conf = four_letter_word(&addr, "conf");
    for line in ["tickTime=200", "minSessionTimeout=400", "maxSessionTimeout=4000"] {
        assert!(conf.lines().any(|shown| shown == line), "{conf}");
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_docent"));
        command.env("DOCENT_CONNECT", &addr).args(arguments).output().unwrap()
    };
    assert_eq!(run(&["create", "--ttl", "1h", "/ttl"]).status.code(), Some(65));
    assert_eq!(run(&["create", "/large", &"x".repeat(2000)]).status.code(), Some(69));
    assert_eq!(run(&["create", "-c", "/c"]).status.code(), Some(0));
    assert_eq!(run(&["create", "/c/child"]).status.code(), Some(0));
    assert_eq!(run(&["delete", "/c/child"]).status.code(), Some(0));
    let deadline = Instant::now() + docent_tests::DEADLINE;
    while run(&["stat", "/c"]).status.code() != Some(1) {
        assert!(Instant::now() < deadline, "the container is still there");
    }
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).unwrap();
    for (name, value) in docent_testing::server::Config::settings() {
        assert!(help.contains(name) && help.contains(value), "{name}");
    }
}

/// Each command replies with one line, so that a script knows when it is done.
#[test]
fn members_of_an_ensemble_are_stopped_cut_and_made_to_lag_by_commands() {
    let mut servers = Running::start(&["serve", "--listen", "127.0.0.1:0", "--servers", "3"]);
    let addresses = servers.address();
    let addresses: Vec<_> = addresses.split(',').collect();
    assert_eq!(addresses.len(), 3);
    let mut send = |command: &str| {
        servers.child.stdin.as_mut().unwrap().write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut line = String::new();
        servers.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
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
        assert_eq!(send(command), reply, "{command}");
    }
    assert!(send("cut 1").starts_with("1 follower (cut from 2 and 3), 2 leader (cut from 1), 3 "));
    assert!(send("cut 2 3").contains("2 leader (cut from 1 and 3)"));
    assert!(!send("heal").contains("cut"));
    assert!(send("stop 2").contains("2 stopped"));
    let refused = TcpStream::connect(addresses[1]);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(four_letter_word(addresses[2], "ruok"), "imok");
    servers.child.stdin.as_mut().unwrap().write_all(b"quit\n").unwrap();
    assert_eq!(servers.child.wait().unwrap().code(), Some(0));
}

/// Service managers and `docent serve < /dev/null &` start it like this.
#[test]
fn a_closed_standard_input_does_not_end_the_server() {
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0"]);
    let addr = server.address();
    server.child.stdin.as_mut().unwrap().write_all(b"stop 1\nstatus\nstart 1\n").unwrap();
    drop(server.child.stdin.take());
    assert_eq!(
        [server.line(), server.line(), server.line()],
        ["1 stopped", "1 stopped", "1 standalone"]
    );
    assert_eq!(four_letter_word(&addr, "ruok"), "imok");
    assert!(server.child.try_wait().unwrap().is_none());
}

#[test]
fn commands_that_cannot_be_executed_are_one_line_of_errors() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_docent"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let commands = ["stop 2", "stop 0", "start 1", "cut 1 1", "expire x", "expire 0x1", "lag", "x"];
    let mut input = server.stdin.take().unwrap();
    for command in commands {
        writeln!(input, "{command}").unwrap();
    }
    writeln!(input, "quit").unwrap();
    let output = server.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let errors: Vec<_> = errors.lines().skip(1).collect();
    assert_eq!(errors.len(), commands.len(), "{errors:?}");
    for (command, error) in commands.iter().zip(errors) {
        assert!(error.starts_with(&format!("{command}: ")), "{error}");
    }
}

/// The bytes are for the owner of the file alone, and `docent decode` reads them.
#[cfg(unix)]
#[test]
fn a_tap_writes_a_capture() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = xtask::TemporaryDirectory::new("capture").unwrap();
    let file = directory.path().join("capture");
    let file_name = file.to_str().unwrap();
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0"]);
    let upstream = server.address();
    let tapped = ["tap", "--upstream", &upstream, "--capture", file_name];
    let mut tap = Running::start(&tapped);
    assert_eq!(four_letter_word(&tap.address(), "ruok"), "imok");
    assert_eq!(tap.line(), " -> RAW 4 bytes \"ruok\"");
    assert_eq!(tap.line(), " <- RAW 4 bytes \"imok\"");
    let lines = || std::fs::read_to_string(&file).unwrap_or_default();
    let start = std::time::Instant::now();
    while lines().lines().count() < 2 {
        assert!(start.elapsed().as_secs() < 20, "{}", lines());
        std::thread::yield_now();
    }
    assert!(lines().lines().all(|line| line.split('\t').count() == 4), "{}", lines());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_docent")).args(arguments).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let (code, text) = run(&["decode", "--stream", file_name]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text == "1 c2s four-letter word ruok\n1 s2c text imok\n", "{text}");
    // A file that exists is not touched.
    let (code, text) = run(&tapped);
    let expected = format!("docent tap: cannot write {file_name}: File exists");
    assert_eq!(code, Some(74), "{text}");
    assert!(text.lines().last().unwrap().starts_with(&expected), "{text}");
}

#[test]
fn an_address_in_use_is_refused_in_one_line() {
    let mut server =
        Running::start(&["serve", "--listen", "127.0.0.1:0", "--session-timeout", "500ms..2m"]);
    let taken = server.address();
    for arguments in [
        &["serve", "--listen", &taken][..],
        &["tap", "--listen", &taken, "--upstream", "127.0.0.1:1"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_docent")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(71), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with(&format!("docent {}: {taken}: ", arguments[0])), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
