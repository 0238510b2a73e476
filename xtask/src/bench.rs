//! `cargo xtask bench`: docent and other clients, in turn, on a server that does nothing and on a real one.
//!
//! What a shared machine says about wall time is noise, so what is told first is what can be counted:
//! instructions, allocations and system calls of an operation, each as the difference of two runs.

mod count;
mod peers;
mod report;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitCode, Stdio},
};

use xtask::{Java, Result, Server, Settings};

use crate::workspace::{cargo, root};
use peers::Peer;
use report::Report;

/// A workload, and how many operations a round of it has.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    /// On the null server, on a real one; 0: not there.
    rounds_of: (usize, usize),
    /// The two numbers whose difference is counted.
    counted: (usize, usize),
    /// How many times less CPU than the best peer docent is to take.
    aim: f64,
}

const WORKLOADS: [Workload; 8] = [
    workload("get-seq", (5_000, 1_500), (300, 1_300), 1.5),
    workload("get-pipe", (150_000, 15_000), (5_000, 15_000), 3.0),
    workload("set-pipe", (100_000, 15_000), (5_000, 15_000), 3.0),
    workload("create-delete-pipe", (100_000, 15_000), (5_000, 15_000), 3.0),
    workload("children-10k", (300, 100), (10, 60), 5.0),
    workload("watch-fanout", (10_000, 3_000), (1_000, 4_000), 3.0),
    workload("lock-uncontended", (2_000, 500), (200, 700), 1.5),
    workload("lock-handoff", (0, 500), (0, 0), 1.5),
];

const fn workload(
    name: &'static str,
    rounds_of: (usize, usize),
    counted: (usize, usize),
    aim: f64,
) -> Workload {
    Workload { name, rounds_of, counted, aim }
}

/// Measures, prints the tables, and puts them into docs/BENCHMARKS.md. Fails when a budget is exceeded.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let quick = match arguments.as_slice() {
        [] => false,
        ["--quick"] => true,
        _ => return Ok(crate::usage()),
    };
    let peers = peers::build()?;
    let null = NullServer::start()?;
    let mut report = Report::new(quick, &peers);

    count::all(&null.address, &peers, quick, &mut report)?;
    rounds(&null.address, &peers, quick, true, &mut report);
    scale(&null.address, &peers, quick, &mut report);
    match Java::find() {
        Ok(java) => {
            let server = Server::start(&java, Settings::default())?;
            rounds(&server.address().to_string(), &peers, quick, false, &mut report);
        }
        Err(missing) => report.note(format!("No real ZooKeeper: {missing}.")),
    }

    let text = report.text();
    println!("{text}");
    report::write(&root().join("docs/BENCHMARKS.md"), &text)?;
    Ok(if report.is_over() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All workloads, the peers of each in turn, several times over: what disturbs one round disturbs all.
fn rounds(address: &str, peers: &[Peer], quick: bool, null: bool, report: &mut Report) {
    let rounds = if quick { 2 } else { 5 };
    let _awake = Awake::new();
    for workload in &WORKLOADS {
        let n = if null { workload.rounds_of.0 } else { workload.rounds_of.1 };
        let n = if quick { n / 5 } else { n };
        if n == 0 {
            continue;
        }
        for _ in 0..rounds {
            for peer in peers.iter().filter(|peer| peer.does(workload.name)) {
                match peer.measure(address, workload.name, n) {
                    Ok(measured) => report.round(null, workload.name, peer.name, measured),
                    Err(error) => {
                        report.note(format!("{} {}: {error}.", peer.name, workload.name));
                    }
                }
            }
        }
    }
}

/// Much of one thing: only docent, and once, for it is no race.
fn scale(address: &str, peers: &[Peer], quick: bool, report: &mut Report) {
    let Some(docent) = peers.first() else { return };
    for (workload, n) in [("reconnect-watches", 100_000), ("idle-sessions", 10_000)] {
        let n = if quick { n / 10 } else { n };
        match docent.measure(address, workload, n) {
            Ok(measured) => report.scale(workload, n, measured),
            Err(error) => report.note(format!("{workload} of {n}: {error}.")),
        }
    }
}

/// A cargo that builds what is measured.
fn build(arguments: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--release", "--quiet"]).args(arguments);
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo build {}: {status}", arguments.join(" ")).into())
    }
}

/// Keeps the processors awake, at the lowest priority: one that sleeps may take longer to wake up than an operation
/// takes, and whether it sleeps is a matter of chance.
struct Awake(Vec<Child>);

impl Awake {
    fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = || {
            let mut command = Command::new("nice");
            // Not for longer than who started it.
            command.args(["-n", "19", "sh", "-c", "while kill -0 $PPID 2>/dev/null; do :; done"]);
            command.spawn().ok()
        };
        Self((0..processors).filter_map(|_| spin()).collect())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The server that answers everything at once; killed with this.
struct NullServer {
    process: Child,
    address: String,
}

impl NullServer {
    fn start() -> Result<Self> {
        let program = peers::target().join("release/examples/null_server");
        let mut process = Command::new(program).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim().strip_prefix("listening on ").unwrap_or_default().to_owned();
        let server = Self { process, address };
        if server.address.is_empty() {
            return Err(format!("the null server said {line:?}").into());
        }
        Ok(server)
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
