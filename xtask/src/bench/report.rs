//! The tables, and the section of docs/BENCHMARKS.md that they make.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use xtask::Result;

use super::{
    WORKLOADS,
    count::Counted,
    peers::{Measured, Peer},
};

const HEADING: &str = "## client";

const INTRODUCTION: &str = "\
Written by `cargo xtask bench`. Every program has the command line of `examples/bench_peer`; the peers are
in `benches/peers`. On the *null* server, `examples/null_server`, which answers at once with canned bytes, what a
client costs shows; *real* is ZooKeeper on the same machine, and shares its processors with the clients. Counted
figures are differences of two runs, by callgrind, dhat and strace. `raw` is no client: a blocking socket, one
buffer each way, and a copy of what a caller would get. All are release builds, those in Rust linked as a whole (`lto =
\"fat\"`, one codegen unit); nothing else runs but loops of the lowest priority, which keep the processors awake.";

/// How many bytes the paths of `idle-watches` have.
const WATCHED_PATH: f64 = 27.0;

/// All that was measured.
pub(super) struct Report {
    quick: bool,
    peers: Vec<(&'static str, bool)>,
    notes: Vec<String>,
    counted: BTreeMap<(&'static str, &'static str), Counted>,
    kept: BTreeMap<&'static str, f64>,
    scale: Vec<(&'static str, usize, Measured)>,
    rounds: BTreeMap<(bool, &'static str, &'static str), Vec<Measured>>,
}

/// A promise.
struct Budget {
    what: &'static str,
    measured: Option<f64>,
    limit: f64,
}

impl Report {
    pub(super) fn new(quick: bool, peers: &[Peer]) -> Self {
        Self {
            quick,
            peers: peers.iter().map(|peer| (peer.name, peer.is_rival())).collect(),
            notes: Vec::new(),
            counted: BTreeMap::new(),
            kept: BTreeMap::new(),
            scale: Vec::new(),
            rounds: BTreeMap::new(),
        }
    }

    /// Something the reader should know, once.
    pub(super) fn note(&mut self, note: String) {
        eprintln!("xtask: {note}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn counted(&mut self, workload: &'static str, peer: &'static str, counted: Counted) {
        self.counted.insert((workload, peer), counted);
    }

    pub(super) fn kept(&mut self, what: &'static str, bytes: Option<f64>) {
        if let Some(bytes) = bytes {
            self.kept.insert(what, bytes);
        }
    }

    pub(super) fn round(
        &mut self,
        null: bool,
        workload: &'static str,
        peer: &'static str,
        measured: Measured,
    ) {
        self.rounds.entry((null, workload, peer)).or_default().push(measured);
    }

    /// Whether a budget is exceeded.
    pub(super) fn is_over(&self) -> bool {
        self.budgets().iter().any(|budget| budget.measured.is_some_and(|it| it > budget.limit))
    }

    fn budgets(&self) -> Vec<Budget> {
        let docent = |workload: &'static str| {
            self.counted.get(&(workload, "docent")).copied().unwrap_or_default()
        };
        let (pipe, one) = (docent("get-pipe"), docent("get-seq"));
        let children = self.best_wall(true, "children-10k", "docent");
        let floor = self.best_wall(true, "children-10k", "raw");
        let budget = |what, measured, limit| Budget { what, measured, limit };
        vec![
            budget("getData, 1,000 in flight: instructions (aim 700)", pipe.instructions, 1000.0),
            budget(
                "getData, 1,000 in flight: allocations, those of the values among them (aim 1)",
                pipe.allocations,
                2.0,
            ),
            budget("getData, 1,000 in flight: system calls", pipe.syscalls, 0.05),
            budget("getData, one at a time: system calls", one.syscalls, 5.0),
            budget(
                "getChildren of 10,000: time to that of a reader that copies the frame",
                children.zip(floor).map(|(ours, floor)| ours / floor),
                1.5,
            ),
            budget(
                "an idle session: bytes of heap",
                self.kept.get("idle-sessions").copied(),
                8192.0,
            ),
            budget(
                "a watch: bytes of heap besides its path",
                self.kept.get("idle-watches").map(|bytes| bytes - WATCHED_PATH),
                200.0,
            ),
        ]
    }

    pub(super) fn scale(&mut self, workload: &'static str, n: usize, measured: Measured) {
        self.scale.push((workload, n, measured));
    }

    fn at_scale(&self) -> String {
        let mut text = "\n### At scale, on the null server\n\n| | CPU, ms | longest step, ms | resident at most, MiB |\n|---|---:|---:|---:|\n".to_owned();
        for (workload, n, measured) in &self.scale {
            let what = match *workload {
                "reconnect-watches" => {
                    "a connection with so many watches is lost, and all are set again"
                }
                _ => "so many sessions are made in one process, and idle there",
            };
            let _ = writeln!(
                text,
                "| {workload}, {}: {what} | {} | {} | {} |",
                thousands(*n as f64),
                short(measured.cpu_us_per_op * *n as f64 / 1000.0),
                if measured.p99_us > 0.0 {
                    short(measured.p99_us / 1000.0)
                } else {
                    "-".to_owned()
                },
                show(measured.max_rss_kib.map(|kib| kib / 1024.0)),
            );
        }
        text
    }

    /// The whole section.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{HEADING}\n\n{INTRODUCTION}\n");
        if self.quick {
            text += "\nThis was a `--quick` run: short rounds, and few of them.\n";
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text += "\n### Budgets\n\n| docent | measured | budget | |\n|---|---:|---:|---|\n";
        for Budget { what, measured, limit } in self.budgets() {
            let verdict = match measured {
                None => "not measured",
                Some(measured) if measured > limit => "**over**",
                Some(_) => "kept",
            };
            let _ =
                writeln!(text, "| {what} | {} | {} | {verdict} |", show(measured), short(limit));
        }
        text += "\n### Counted, of one operation\n\n| workload | client | instructions | allocations | bytes allocated | system calls |\n|---|---|---:|---:|---:|---:|\n";
        for workload in &WORKLOADS {
            for (peer, _) in &self.peers {
                let Some(counted) = self.counted.get(&(workload.name, *peer)) else { continue };
                let _ = writeln!(
                    text,
                    "| {} | {peer} | {} | {} | {} | {} |",
                    workload.name,
                    show(counted.instructions),
                    show(counted.allocations),
                    show(counted.allocated_bytes),
                    show(counted.syscalls),
                );
            }
        }
        text += &self.ratios(
            true,
            "CPU time, the median of all rounds: µs of an operation, and how many times docent's it is",
            Self::median_cpu,
        );
        text += &self.ratios(
            false,
            "Wall time, the best round: µs of an operation, and how many times docent's it is",
            Self::best_wall,
        );
        text += &self.latencies();
        text += &self.at_scale();
        text
    }

    fn ratios(
        &self,
        aims: bool,
        title: &str,
        value: fn(&Self, bool, &str, &str) -> Option<f64>,
    ) -> String {
        let mut text = format!("\n### {title}\n\n| server, workload |");
        for (peer, _) in &self.peers {
            let _ = write!(text, " {peer} |");
        }
        let columns = "---:|".repeat(self.peers.len());
        text += if aims { " best peer | aim |\n" } else { " best peer |\n" };
        let _ = writeln!(text, "|---|{columns}---:|{}", if aims { "---:|" } else { "" });
        for (null, server) in [(true, "null"), (false, "real")] {
            for workload in &WORKLOADS {
                let of = |peer: &str| value(self, null, workload.name, peer);
                let Some(ours) = of("docent") else { continue };
                let _ = write!(text, "| {server} {} |", workload.name);
                for (peer, _) in &self.peers {
                    let _ = match of(peer) {
                        None => write!(text, " |"),
                        Some(us) if *peer == "docent" => write!(text, " {} |", short(us)),
                        Some(us) => write!(text, " {} ({}x) |", short(us), short(us / ours)),
                    };
                }
                let rivals = self.peers.iter().filter(|(_, rival)| *rival);
                let best = rivals.filter_map(|(peer, _)| of(peer)).reduce(f64::min);
                let best = show(best.map(|best| best / ours));
                let _ = write!(text, " **{best}x** |");
                if aims {
                    let _ = write!(text, " {}x |", short(workload.aim));
                }
                text.push('\n');
            }
        }
        text
    }

    fn latencies(&self) -> String {
        let mut text = "\n### docent's latency, the median of all rounds\n\n| server, workload | operations a second | p50, µs | p99, µs |\n|---|---:|---:|---:|\n".to_owned();
        for (null, server) in [(true, "null"), (false, "real")] {
            for workload in &WORKLOADS {
                let of =
                    |value: fn(&Measured) -> f64| self.median(null, workload.name, "docent", value);
                let Some(us) = of(|round| round.us_per_op) else { continue };
                let _ = writeln!(
                    text,
                    "| {server} {} | {} | {} | {} |",
                    workload.name,
                    short(1e6 / us),
                    show(of(|round| round.p50_us)),
                    show(of(|round| round.p99_us)),
                );
            }
        }
        text
    }

    fn best_wall(&self, null: bool, workload: &str, peer: &str) -> Option<f64> {
        let rounds = self.rounds_of(null, workload, peer)?;
        rounds.iter().map(|round| round.us_per_op).reduce(f64::min)
    }

    fn median_cpu(&self, null: bool, workload: &str, peer: &str) -> Option<f64> {
        self.median(null, workload, peer, |round| round.cpu_us_per_op)
    }

    fn median(
        &self,
        null: bool,
        workload: &str,
        peer: &str,
        value: fn(&Measured) -> f64,
    ) -> Option<f64> {
        let mut values: Vec<_> = self.rounds_of(null, workload, peer)?.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    fn rounds_of(&self, null: bool, workload: &str, peer: &str) -> Option<&Vec<Measured>> {
        let mut all = self.rounds.iter();
        all.find(|(key, _)| **key == (null, workload, peer)).map(|(_, rounds)| rounds)
    }
}

fn show(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), short)
}

/// Three digits that count, and no more.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Puts the section in the place of the old one, or at the end.
pub(super) fn write(file: &Path, section: &str) -> Result<()> {
    let old = fs::read_to_string(file).unwrap_or_else(|_| "# Benchmarks\n".to_owned());
    let (before, rest) = match old.split_once(&format!("\n{HEADING}\n")) {
        Some((before, rest)) => (before, rest),
        None => (old.trim_end_matches('\n'), ""),
    };
    let after = rest.find("\n## ").and_then(|at| rest.get(at..)).unwrap_or_default();
    let before = before.trim_end_matches('\n');
    let text = format!("{before}\n\n{}\n{after}", section.trim_end_matches('\n'));
    Ok(fs::write(file, format!("{}\n", text.trim_end_matches('\n')))?)
}
