//! `docent serve` and `docent tap` as other programs use them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Stdio},
};

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
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
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

#[test]
fn tap_prints_frames_and_executes_commands() {
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0"]);
    let upstream = server.address();
    let mut tap = Running::start(&["tap", "--listen", "127.0.0.1:0", "--upstream", &upstream]);
    let addr = tap.address();
    assert_eq!(four_letter_word(&addr, "ruok"), "imok");
    assert_eq!(tap.line(), " -> RAW 4 bytes \"ruok\"");
    assert_eq!(tap.line(), " <- RAW 4 bytes \"imok\"");
    let stdin = tap.child.stdin.as_mut().unwrap();
    stdin.write_all(b"note that is all\n").unwrap();
    assert_eq!(tap.line(), "   # that is all");
}

#[test]
fn invalid_arguments_are_rejected_before_the_start() {
    for arguments in [
        &["serve", "--version", "2.0"][..],
        &["serve", "--session-timeout", "5s"],
        &["serve", "--session-timeout", "9s..3s"],
        &["serve", "--session-timeout", "1s..never"],
        &["serve", "--listen", "nowhere"],
        &["tap"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_docent")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(output.stderr.starts_with(b"docent ") && output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 1, "{arguments:?}");
    }
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
