//! The instructions of encoding and decoding: `cargo bench -p docent-protocol --bench instructions`. Needs
//! valgrind. Unlike times, they are the same on every run and under any load.
//!
//! The program runs itself under callgrind, each workload with two numbers of repetitions, and computes the
//! instructions of one repetition from the difference. The exit code is 1 if a workload exceeds its limit.

#![allow(clippy::indexing_slicing, clippy::panic, missing_docs, reason = "a benchmark")]

use std::{env, hint::black_box, process::Command};

#[expect(unreachable_pub, reason = "shared by two benchmarks")]
mod workloads;

use workloads::{WORKLOADS, Workload};

/// Repetitions: enough for an exact difference, few enough to be fast under callgrind.
const FEW: u64 = 10;
const MANY: u64 = 110;

fn main() {
    let mut arguments = env::args().skip(1);
    if arguments.next().as_deref() == Some("run") {
        let (name, count) = (arguments.next().unwrap_or_default(), arguments.next());
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        return run(&name, count);
    }
    let counts: Vec<_> =
        WORKLOADS.iter().map(|workload| (workload.name, instructions(workload))).collect();
    let of = |name: &str| counts.iter().find(|(which, _)| *which == name).map_or(0, |it| it.1);
    println!("{:<22} {:>12}", "workload", "instructions");
    for (name, count) in &counts {
        println!("{name:<22} {:>12}", count - of("nothing"));
    }
    let mut exceeded = false;
    let mut limit = |what: &str, value: f64, limit: f64| {
        println!("{what}: {value:.2}, limit {limit}");
        exceeded |= value > limit;
    };
    limit("decode-get beyond its bytes", of("decode-get") as f64 - of("bytes-get") as f64, 60.0);
    let ratio = |one: &str, other: &str| of(one) as f64 / of(other).max(1) as f64;
    let checked = ratio("decode-children-10k", "bytes-children-10k");
    limit("decode-children-10k to walking the lengths", checked, 0.5);
    let checked = ratio("decode-mixed-10k", "bytes-mixed-10k");
    limit("decode-mixed-10k to walking the lengths", checked, 1.6);
    if exceeded {
        std::process::exit(1);
    }
}

fn run(name: &str, count: u64) {
    let Some(workload) = WORKLOADS.iter().find(|workload| workload.name == name) else {
        panic!("no workload {name}")
    };
    let input = (workload.input)();
    let mut output = Vec::with_capacity(1 << 20);
    for _ in 0..count {
        output.clear();
        black_box((workload.run)(black_box(&input), black_box(&mut output)));
    }
}

/// The instructions of one repetition.
fn instructions(workload: &Workload) -> u64 {
    (total(workload.name, MANY) - total(workload.name, FEW)) / (MANY - FEW)
}

/// The instructions of a whole process, as counted by callgrind.
fn total(name: &str, count: u64) -> u64 {
    let program =
        env::current_exe().unwrap_or_else(|error| panic!("path of this program: {error}"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", name, &count.to_string()])
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}"));
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : ")).map(|it| it.1);
    collected
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or_else(|| panic!("callgrind reported no count:\n{report}"))
}
