//! `cargo xtask bench`: compares docent with other clients, on a null server and on a real one.
//!
//! Wall time on a shared machine is noisy. Therefore the report begins with counted values: instructions, allocations
//! and system calls per operation, each computed from the difference of two runs.

mod cache;
mod count;
mod holds;
mod peers;
mod proxy;
mod report;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitCode, Stdio},
};

use xtask::{Java, Result, Server, Settings};

use peers::Peer;
use report::Report;
use xtask::workspace::{cargo, root};

/// A workload and its sizes.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    /// The number of operations per round on the null server and on a real one; 0 if it does not run there.
    operations: (usize, usize),
    /// The numbers of operations of the two runs whose difference is counted.
    counted: (usize, usize),
    /// The intended ratio of the best peer's CPU time to docent's.
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
    operations: (usize, usize),
    counted: (usize, usize),
    aim: f64,
) -> Workload {
    Workload { name, operations, counted, aim }
}

/// Measures, prints the tables, and writes them to docs/BENCHMARKS.md. Fails if a budget is exceeded.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let quick = match arguments.as_slice() {
        [] => false,
        ["--quick"] => true,
        ["holds"] => return holds::run(false),
        ["holds", "--quick"] => return holds::run(true),
        ["cache"] => return cache::run(false),
        ["cache", "--quick"] => return cache::run(true),
        _ => return Ok(crate::usage()),
    };
    let peers = peers::build()?;
    let null = NullServer::start()?;
    let mut report = Report::new(quick, &peers);

    count::all(&null.address, &peers, quick, &mut report)?;
    measure_rounds(&null.address, &peers, quick, true, &mut report);
    measure_scale(&null.address, &peers, quick, &mut report);
    match Java::find() {
        Ok(java) => {
            let server = Server::start(&java, Settings::default())?;
            measure_rounds(&server.address().to_string(), &peers, quick, false, &mut report);
        }
        Err(missing) => report.note(format!("No real ZooKeeper: {missing}.")),
    }

    let text = report.text();
    println!("{text}");
    report.failures().iter().for_each(|failure| eprintln!("xtask: {failure}"));
    report::write(&root().join("docs/BENCHMARKS.md"), report::HEADING, &text)?;
    Ok(if report.exceeds_budget() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs all workloads. The rounds of the peers alternate, so that a disturbance affects all of them.
fn measure_rounds(address: &str, peers: &[Peer], quick: bool, null: bool, report: &mut Report) {
    let rounds = if quick { 2 } else { 5 };
    let _busy_loops = BusyLoops::start();
    for workload in &WORKLOADS {
        let n = if null { workload.operations.0 } else { workload.operations.1 };
        let n = if quick { n / 5 } else { n };
        if n == 0 {
            continue;
        }
        for _ in 0..rounds {
            for peer in peers.iter().filter(|peer| peer.supports(workload.name)) {
                match peer.measure(address, workload.name, n) {
                    Ok(measurement) => report.round(null, workload.name, peer.name, measurement),
                    Err(error) => report.failed_round(null, workload.name, peer.name, &error),
                }
            }
        }
    }
}

/// Runs the workloads at scale, once and with docent only: they are not compared.
fn measure_scale(address: &str, peers: &[Peer], quick: bool, report: &mut Report) {
    let Some(docent) = peers.first() else { return };
    for (workload, n) in [("reconnect-watches", 100_000), ("idle-sessions", 10_000)] {
        let n = if quick { n / 10 } else { n };
        match docent.measure(address, workload, n) {
            Ok(measurement) => report.scale(workload, n, measurement),
            Err(error) => report.note(format!("{workload} of {n}: {error}.")),
        }
    }
}

/// Builds measured programs with cargo.
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

/// Loops of the lowest priority that keep the processors awake. A wake-up from sleep may take longer than an operation,
/// and whether a processor sleeps is random.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = || {
            let mut command = Command::new("nice");
            // Ends with its parent process.
            command.args(["-n", "19", "sh", "-c", "while kill -0 $PPID 2>/dev/null; do :; done"]);
            command.spawn().ok()
        };
        Self((0..processors).filter_map(|_| spin()).collect())
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The server that replies at once with canned bytes; killed on drop.
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
            return Err(format!("unexpected output of the null server: {line:?}").into());
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
