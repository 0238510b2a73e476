//! Curator as another program runs it: `tests/java/CuratorPeer.java`, one command and one reply a line.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use xtask::Java;

use crate::DEADLINE;

/// A client of Curator. It is killed when it is dropped.
pub struct Curator {
    process: Child,
    commands: ChildStdin,
    replies: Receiver<String>,
    number: u32,
}

impl Curator {
    /// Connects one.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn connect(java: &Java, address: &str) -> Self {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/java/CuratorPeer.java");
        let classes = java.compile(&source).expect("the classes");
        let mut command = java.command(&classes).expect("java");
        // A session of 20 seconds, and five retries.
        command.args(["CuratorPeer", address, "20000", "5"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let commands = process.stdin.take().expect("its input");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let (sender, replies) = channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let peer = Self { process, commands, replies, number: 0 };
        let _ = peer.reply("! ready");
        peer
    }

    /// Sends a command. Returns how its reply begins.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub fn send(&mut self, command: &str) -> String {
        self.number += 1;
        writeln!(self.commands, "{} {command}", self.number).expect("a process");
        format!("{} ", self.number)
    }

    /// Waits for a line that begins so, and returns the rest of it.
    ///
    /// # Panics
    ///
    /// If it does not come in time.
    #[must_use]
    pub fn reply(&self, start: &str) -> String {
        loop {
            let line = self.replies.recv_timeout(DEADLINE).expect("a reply of Curator");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    /// Sends a command, and waits for its reply.
    pub fn ask(&mut self, command: &str) -> String {
        let start = self.send(command);
        self.reply(&start)
    }
}

impl Drop for Curator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
