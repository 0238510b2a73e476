//! `bench client`: docent and other clients, on a null server and on a real one.
//!
//! Wall time on a shared machine is noisy. Therefore the report begins with counted values: instructions, allocations
//! and system calls per operation. Each is computed from the difference between two runs.

mod count;
mod peers;
mod report;

use std::process::{Child, Command};

use xtask::{Java, Result, Server, Settings};

use crate::{examples, markdown::write_measured, process::Process};
use peers::Peer;
use report::Report;

/// A workload and its sizes.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    /// The numbers of operations per round on the null server and on a real one; 0 if the workload does not run there.
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

/// Measures, prints the tables, and writes them into docs/BENCHMARKS.md. Fails if a budget is exceeded.
pub(crate) fn run(quick: bool) -> Result<()> {
    let peers = peers::build()?;
    let null_server = examples(&["null_server"])?.join("null_server");
    let mut null = Process::start(&mut Command::new(null_server))?;
    let address = null.expect("listening on ")?;
    let mut report = Report::new(quick, &peers);
    count::all(&address, &peers, quick, &mut report)?;
    measure_rounds(&address, &peers, quick, true, &mut report);
    measure_scale(&address, &peers, quick, &mut report);
    match Java::find() {
        Ok(java) => {
            let server = Server::start(&java, Settings::default())?;
            measure_rounds(&server.address().to_string(), &peers, quick, false, &mut report);
        }
        Err(missing) => report.note(format!("No real ZooKeeper: {missing}.")),
    }
    let text = report.text();
    println!("{text}");
    report.failures.iter().for_each(|failure| eprintln!("bench: {failure}"));
    write_measured("client", &text)?;
    if report.exceeds_budget() { Err("a budget is exceeded".into()) } else { Ok(()) }
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
                let measured = peer.measure(address, workload.name, n);
                report.round(null, workload.name, peer.name, measured);
            }
        }
    }
}

/// Runs the workloads at scale, once and with docent only, because they are not compared.
fn measure_scale(address: &str, peers: &[Peer], quick: bool, report: &mut Report) {
    let Some(docent) = peers.first() else { return };
    for (workload, n) in [("reconnect-watches", 100_000), ("idle-sessions", 10_000)] {
        let n = if quick { n / 10 } else { n };
        match docent.measure(address, workload, n) {
            Ok(measurement) => report.scale.push((workload, n, measurement)),
            Err(error) => report.note(format!("{workload} of {n}: {error}.")),
        }
    }
}

/// Loops at the lowest priority that keep the processors awake. Waking a sleeping processor may take longer than an
/// operation, and whether it sleeps is random.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = || {
            let mut command = Command::new("nice");
            // The loop ends with its parent process.
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
