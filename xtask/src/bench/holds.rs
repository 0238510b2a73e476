//! `cargo xtask bench holds`: what a proven hold costs beside a plain one.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use xtask::{Java, Result, Server, Settings, workspace::root};

use super::proxy::{Counts, Proxy};
use super::{build, peers, report};

const HEADING: &str = "## holds";

const INTRODUCTION: &str = "\
Written by `cargo xtask bench holds`: `tools/lock_peer.rs`, one process for each column, on one ZooKeeper on the same
machine, behind a proxy that counts frames and connections. The session timeout is 6 s, and `with_proven_renewal` renews
every 2 s. *By a reconnect* is what it does by default; *at the leader* is with `Config::with_direct_servers` and a
connection to the leader, which it asks for its role by `srvr` on a connection of its own. A *cycle* is an acquire and a
release of a free lock. Frames and bytes are those of both directions, with pings and handshakes. CPU time is that of the
client.";

/// The columns: a name, a handle of `lock_peer`, and its `LOCK_PEER_OPTIONS`.
const COLUMNS: [(&str, &str, &str); 4] = [
    ("mutex", "mutex:/holds/plain", ""),
    ("renewed, by a reconnect", "renewed:/holds/reconnect", ""),
    ("renewed, at the leader", "renewed:/holds/leader", "direct"),
    ("StrictMutex", "strict:/holds/strict", ""),
];

const SESSION_MS: &str = "6000";

/// What a number of cycles, or a hold, took.
#[derive(Debug, Clone, Copy)]
struct Cost {
    counts: Counts,
    cpu: Duration,
}

/// Measures, prints the table, and writes it to docs/BENCHMARKS.md, unless the run is a quick one.
pub(super) fn run(quick: bool) -> Result<ExitCode> {
    let (cycles, hold) =
        if quick { (50, Duration::from_secs(10)) } else { (1_000, Duration::from_secs(60)) };
    build(&["--example", "lock_peer"])?;
    let program = peers::target().join("release/examples/lock_peer");
    let server = Server::start(&Java::find()?, Settings::default())?;
    let address = server.address();
    let costs = thread::scope(|scope| -> Result<Vec<[Cost; 2]>> {
        let measured: Vec<_> = COLUMNS
            .into_iter()
            .map(|(_, handle, options)| {
                let program = &program;
                scope.spawn(move || measure(program, address, handle, options, cycles, hold))
            })
            .collect();
        let costs = measured.into_iter().map(|one| one.join().map_err(|_| "a panic")?);
        costs.collect()
    })?;
    let text = text(&costs, cycles, hold);
    println!("{text}");
    if !quick {
        report::write(&root().join("docs/BENCHMARKS.md"), HEADING, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(
    program: &Path,
    server: SocketAddr,
    handle: &str,
    options: &str,
    cycles: u32,
    hold: Duration,
) -> Result<[Cost; 2]> {
    let proxy = Proxy::start(server)?;
    let mut peer = Peer::start(program, &proxy.address.to_string(), options)?;
    let (acquire, release) = (format!("acquire {handle}"), format!("release {handle}"));
    let cycle = |peer: &mut Peer| peer.ask(&acquire).and_then(|_| peer.ask(&release)).map(drop);
    // The first one creates the parents.
    cycle(&mut peer)?;
    let of_cycles = peer.cost(&proxy, |peer| (0..cycles).try_for_each(|_| cycle(peer)))?;
    peer.ask(&acquire)?;
    let of_hold = peer.cost(&proxy, |_| {
        thread::sleep(hold);
        Ok(())
    })?;
    peer.ask(&release)?;
    Ok([of_cycles, of_hold])
}

/// A process of `lock_peer`; killed on drop.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(program: &Path, connect: &str, options: &str) -> Result<Self> {
        let mut child = Command::new(program)
            .args([connect, SESSION_MS])
            .env("LOCK_PEER_OPTIONS", options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, input, output })
    }

    /// Sends a command, and returns what follows `ok`.
    fn ask(&mut self, command: &str) -> Result<String> {
        writeln!(self.input, "1 {command}")?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("{command}: the client has ended").into());
            }
            if line.starts_with('!') {
                continue;
            }
            return match line.trim_end().strip_prefix("1 ok") {
                Some(result) => Ok(result.trim_start().to_owned()),
                None => Err(format!("{command}: {line}").into()),
            };
        }
    }

    fn cost(
        &mut self,
        proxy: &Proxy,
        action: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Cost> {
        let before = self.cpu()?;
        proxy.reset();
        action(self)?;
        let counts = proxy.counts();
        Ok(Cost { counts, cpu: self.cpu()?.saturating_sub(before) })
    }

    fn cpu(&mut self) -> Result<Duration> {
        Ok(Duration::from_nanos(self.ask("cpu")?.parse()?))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The section of docs/BENCHMARKS.md.
#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn text(costs: &[[Cost; 2]], cycles: u32, hold: Duration) -> String {
    let mut text = format!("{HEADING}\n\n{INTRODUCTION}\n\n|");
    for (name, _, _) in COLUMNS {
        // Writing to a string cannot fail.
        let _ = write!(text, " | {name}");
    }
    text.push_str(" |\n|---|---:|---:|---:|---:|\n");
    let mut row = |what: &str, value: &dyn Fn(&[Cost; 2]) -> f64, digits: usize| {
        let values: Vec<_> = costs.iter().map(|cost| format!("{:.digits$}", value(cost))).collect();
        let _ = writeln!(text, "| {what} | {} |", values.join(" | "));
    };
    let cycles = f64::from(cycles);
    let minutes = hold.as_secs_f64() / 60.0;
    row("a cycle: requests", &|[cycle, _]| cycle.counts.requests as f64 / cycles, 2);
    row("a cycle: frames", &|[cycle, _]| cycle.counts.frames as f64 / cycles, 2);
    row("a cycle: bytes", &|[cycle, _]| cycle.counts.bytes as f64 / cycles, 0);
    row("a cycle: CPU time, µs", &|[cycle, _]| cycle.cpu.as_secs_f64() * 1e6 / cycles, 0);
    row(
        "a minute of a hold: connections",
        &|[_, hold]| hold.counts.connections as f64 / minutes,
        0,
    );
    row(
        "a minute of a hold: of these for `srvr`",
        &|[_, hold]| (hold.counts.connections - hold.counts.handshakes) as f64 / minutes,
        0,
    );
    row("a minute of a hold: requests", &|[_, hold]| hold.counts.requests as f64 / minutes, 0);
    row("a minute of a hold: frames", &|[_, hold]| hold.counts.frames as f64 / minutes, 0);
    row("a minute of a hold: bytes", &|[_, hold]| hold.counts.bytes as f64 / minutes, 0);
    row("a minute of a hold: CPU time, ms", &|[_, hold]| hold.cpu.as_secs_f64() * 1e3 / minutes, 1);
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{HEADING, INTRODUCTION};
    use xtask::workspace::root;

    #[test]
    fn the_committed_introduction_is_the_generated_one() {
        let document = fs::read_to_string(root().join("docs/BENCHMARKS.md")).unwrap();
        assert!(document.contains(&format!("{HEADING}\n\n{INTRODUCTION}\n")));
    }
}
