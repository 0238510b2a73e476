//! Values that do not depend on the load of the machine: instructions, allocations, and system calls.

use std::{ffi::OsString, process::Command};

use xtask::{Result, TemporaryDirectory, command::succeeds};

use super::{
    WORKLOADS, Workload,
    peers::Peer,
    report::{Counts, Report},
};

/// Every program runs a fifth of its operations as warm-up before the measured ones.
const WITH_WARM_UP: f64 = 1.2;

/// Counts docent's workloads and, unless `quick`, those of the peers too.
pub(super) fn all(address: &str, peers: &[Peer], quick: bool, report: &mut Report) -> Result<()> {
    let tools = Tools::find(report)?;
    for workload in WORKLOADS.iter().filter(|workload| workload.counted.1 > 0) {
        for peer in peers.iter().filter(|peer| peer.supports(workload.name)) {
            if quick && peer.is_other_client() {
                continue;
            }
            let counts = tools.count(peer, address, workload);
            report.counted.insert((workload.name, peer.name), counts);
        }
    }
    if let Some(docent) = peers.first().filter(|_| tools.valgrind) {
        // Both numbers exceed the requests in flight at a time, so the difference is the memory that is kept.
        let kept = |workload: &str, few: usize, many: usize| {
            let kept_after = |n| tools.heap(docent, address, workload, n).map(|heap| heap.kept);
            Some((kept_after(many)? - kept_after(few)?) / (many - few) as f64)
        };
        report.kept.insert("idle-sessions", kept("idle-sessions", 50, 200));
        report.kept.insert("idle-watches", kept("idle-watches", 4_000, 16_000));
    }
    Ok(())
}

/// The installed profilers.
struct Tools {
    valgrind: bool,
    strace: bool,
    directory: TemporaryDirectory,
}

/// The output of the heap profiler.
struct Heap {
    blocks: f64,
    bytes: f64,
    /// The bytes in use at the end.
    kept: f64,
}

impl Tools {
    fn find(report: &mut Report) -> Result<Self> {
        let is_installed = |tool: &str| succeeds(Command::new(tool).arg("--version"));
        let tools = Self {
            valgrind: is_installed("valgrind"),
            strace: is_installed("strace"),
            directory: TemporaryDirectory::new("bench")?,
        };
        if !tools.valgrind {
            report.note("No valgrind: instructions and allocations were not counted.".to_owned());
        }
        if !tools.strace {
            report.note("No strace: system calls were not counted.".to_owned());
        }
        Ok(tools)
    }

    fn count(&self, peer: &Peer, address: &str, workload: &Workload) -> Counts {
        let (few, many) = workload.counted;
        let per_op = |few_total: Option<f64>, many_total: Option<f64>| {
            Some((many_total? - few_total?) / (WITH_WARM_UP * (many - few) as f64))
        };
        let instructions = |n| self.instructions(peer, address, workload.name, n);
        let syscalls = |n| self.syscalls(peer, address, workload.name, n);
        let heap = |n| self.heap(peer, address, workload.name, n);
        let (few_heap, many_heap) = (heap(few), heap(many));
        let heap_per_op = |value: fn(&Heap) -> f64| {
            per_op(few_heap.as_ref().map(value), many_heap.as_ref().map(value))
        };
        Counts {
            instructions: per_op(instructions(few), instructions(many)),
            allocations: heap_per_op(|heap| heap.blocks),
            allocated_bytes: heap_per_op(|heap| heap.bytes),
            // Slightly too high, because it includes the system calls at both ends of a window.
            syscalls: per_op(syscalls(few), syscalls(many)),
        }
    }

    fn instructions(&self, peer: &Peer, address: &str, workload: &str, n: usize) -> Option<f64> {
        let tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
        let output = self.valgrind(&tool, peer, address, workload, n)?;
        output
            .lines()
            .find_map(|line| line.split_once("Collected :"))
            .and_then(|parts| number(parts.1))
    }

    fn heap(&self, peer: &Peer, address: &str, workload: &str, n: usize) -> Option<Heap> {
        let tool = ["valgrind", "--tool=dhat", "--dhat-out-file=/dev/null"];
        let output = self.valgrind(&tool, peer, address, workload, n)?;
        let line = |name: &str| {
            let (_, rest) = output.split_once(name)?;
            let (bytes, rest) = rest.split_once("bytes in")?;
            Some((number(bytes)?, number(rest.split_once("blocks")?.0)?))
        };
        let ((bytes, blocks), (kept, _)) = (line("Total:")?, line("At t-end:")?);
        Some(Heap { blocks, bytes, kept })
    }

    /// Runs a program under a tool of valgrind. Returns the tool's output if the program succeeded.
    fn valgrind(
        &self,
        tool: &[&str],
        peer: &Peer,
        address: &str,
        workload: &str,
        n: usize,
    ) -> Option<String> {
        if !self.valgrind {
            return None;
        }
        let tool: Vec<OsString> = tool.iter().map(OsString::from).collect();
        let output = peer.command(&tool, address, workload, n).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn syscalls(&self, peer: &Peer, address: &str, workload: &str, n: usize) -> Option<f64> {
        if !self.strace {
            return None;
        }
        let summary = self.directory.path().join("strace");
        let tool: [OsString; 5] =
            ["strace".into(), "-f".into(), "-c".into(), "-o".into(), summary.clone().into()];
        let output = peer.command(&tool, address, workload, n).output().ok()?;
        if !output.status.success() {
            return None;
        }
        let text = std::fs::read_to_string(summary).ok()?;
        let total = text.lines().rev().find(|line| line.ends_with("total"))?;
        // Columns: % time, seconds, usecs/call, calls, errors (may be empty).
        number(total.split_whitespace().nth(3)?)
    }
}

/// Parses a number with thousands separators.
fn number(text: &str) -> Option<f64> {
    text.replace(',', "").trim().parse().ok()
}
