//! What does not depend on the machine's other work: instructions, allocations, system calls.

use std::{ffi::OsString, process::Command};

use xtask::{Result, TemporaryDirectory};

use super::{WORKLOADS, Workload, peers::Peer, report::Report};
use crate::packages::succeeds;

/// What one operation takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) instructions: Option<f64>,
    pub(super) allocations: Option<f64>,
    pub(super) allocated_bytes: Option<f64>,
    pub(super) syscalls: Option<f64>,
}

/// Every program does a fifth of its operations before the measured ones.
const WITH_WARM_UP: f64 = 1.2;

/// Counts docent's workloads, and unless it is to be quick, the peers' too.
pub(super) fn all(address: &str, peers: &[Peer], quick: bool, report: &mut Report) -> Result<()> {
    let tools = Tools::find(report)?;
    for workload in WORKLOADS.iter().filter(|workload| workload.counted.1 > 0) {
        for peer in peers.iter().filter(|peer| peer.does(workload.name)) {
            if quick && peer.is_rival() {
                continue;
            }
            report.counted(workload.name, peer.name, tools.count(peer, address, workload));
        }
    }
    if let Some(docent) = peers.first().filter(|_| tools.valgrind) {
        // More than what is in flight while they are made, so that only what stays grows.
        let kept = |workload: &str, few: usize, many: usize| {
            let of = |n| tools.heap(docent, address, workload, n).map(|heap| heap.kept);
            Some((of(many)? - of(few)?) / (many - few) as f64)
        };
        report.kept("idle-sessions", kept("idle-sessions", 50, 200));
        report.kept("idle-watches", kept("idle-watches", 4_000, 16_000));
    }
    Ok(())
}

struct Tools {
    valgrind: bool,
    strace: bool,
    directory: TemporaryDirectory,
}

/// What a heap profiler tells.
struct Heap {
    blocks: f64,
    bytes: f64,
    /// In use at the end.
    kept: f64,
}

impl Tools {
    fn find(report: &mut Report) -> Result<Self> {
        let there = |tool: &str| succeeds(Command::new(tool).arg("--version"));
        let tools = Self {
            valgrind: there("valgrind"),
            strace: there("strace"),
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

    fn count(&self, peer: &Peer, address: &str, workload: &Workload) -> Counted {
        let (few, many) = workload.counted;
        let per_op = |few_total: Option<f64>, many_total: Option<f64>| {
            Some((many_total? - few_total?) / (WITH_WARM_UP * (many - few) as f64))
        };
        let instructions = |n| self.instructions(peer, address, workload.name, n);
        let syscalls = |n| self.syscalls(peer, address, workload.name, n);
        let heap = |n| self.heap(peer, address, workload.name, n);
        let (few_heap, many_heap) = (heap(few), heap(many));
        let of = |value: fn(&Heap) -> f64| {
            per_op(few_heap.as_ref().map(value), many_heap.as_ref().map(value))
        };
        Counted {
            instructions: per_op(instructions(few), instructions(many)),
            allocations: of(|heap| heap.blocks),
            allocated_bytes: of(|heap| heap.bytes),
            // More of them, since the ends of a window count too.
            syscalls: per_op(syscalls(few), syscalls(many)),
        }
    }

    fn instructions(&self, peer: &Peer, address: &str, workload: &str, n: usize) -> Option<f64> {
        let tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
        let told = self.valgrind(&tool, peer, address, workload, n)?;
        told.lines().find_map(|line| line.split_once("Collected :")).and_then(|it| figure(it.1))
    }

    fn heap(&self, peer: &Peer, address: &str, workload: &str, n: usize) -> Option<Heap> {
        let tool = ["valgrind", "--tool=dhat", "--dhat-out-file=/dev/null"];
        let told = self.valgrind(&tool, peer, address, workload, n)?;
        let line = |name: &str| {
            let (_, rest) = told.split_once(name)?;
            let (bytes, rest) = rest.split_once("bytes in")?;
            Some((figure(bytes)?, figure(rest.split_once("blocks")?.0)?))
        };
        let ((bytes, blocks), (kept, _)) = (line("Total:")?, line("At t-end:")?);
        Some(Heap { blocks, bytes, kept })
    }

    /// What valgrind says at the end, if the program ended well.
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
        // % time, seconds, usecs/call, calls, then errors if there were any.
        figure(total.split_whitespace().nth(3)?)
    }
}

/// A number with commas between its thousands.
fn figure(text: &str) -> Option<f64> {
    text.replace(',', "").trim().parse().ok()
}
