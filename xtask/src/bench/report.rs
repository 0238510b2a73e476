//! The generated section of docs/BENCHMARKS.md.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use xtask::{Error, Result};

use super::{
    WORKLOADS,
    count::Counts,
    peers::{Measurement, Peer},
};

pub(super) const HEADING: &str = "## client";

const INTRODUCTION: &str = "\
Written by `cargo xtask bench`. All programs have the command line of `tools/bench_peer`; the peers are in
`benches/peers`. The *null* server, `tools/null_server.rs`, replies at once with canned bytes, so it shows the cost of the
client. The *real* server is a ZooKeeper on the same machine, which shares the processors with the clients. Counted values
are the difference of two runs, by callgrind, dhat and strace. `raw` is a lower bound instead of a client: a blocking
socket, one buffer per direction, and a copy of the result. All programs are release builds, those in Rust with `lto =
\"fat\"` and one codegen unit. The only other load is a busy loop of the lowest priority per processor, which keeps it
awake.";

/// The length of the paths of `idle-watches`, in bytes.
const WATCHED_PATH_LENGTH: f64 = 27.0;

/// All measurements of a run.
pub(super) struct Report {
    quick: bool,
    peers: Vec<(&'static str, bool)>,
    notes: Vec<String>,
    failures: Vec<String>,
    counted: BTreeMap<(&'static str, &'static str), Counts>,
    kept: BTreeMap<&'static str, f64>,
    scale: Vec<(&'static str, usize, Measurement)>,
    rounds: BTreeMap<(bool, &'static str, &'static str), Vec<Measurement>>,
}

/// Three builds of `bench_peer`, each counted three times on 2026-11-23.
const SPANS_AND_METRICS: &str = "
Spans and metrics cost nothing while nothing listens. The feature `metrics` without a recorder adds no instruction to a
getData as built by default; with all spans and events compiled out (`release_max_level_off` of `tracing`) it takes 7 more,
because the compiler inlines other functions.
";

/// A limit for a measured value.
struct Budget {
    what: &'static str,
    measured: Option<f64>,
    limit: f64,
}

impl Report {
    pub(super) fn new(quick: bool, peers: &[Peer]) -> Self {
        Self {
            quick,
            peers: peers.iter().map(|peer| (peer.name, peer.is_other_client())).collect(),
            notes: Vec::new(),
            failures: Vec::new(),
            counted: BTreeMap::new(),
            kept: BTreeMap::new(),
            scale: Vec::new(),
            rounds: BTreeMap::new(),
        }
    }

    /// Adds a note for the readers of the document; a repeated one is added once.
    pub(super) fn note(&mut self, note: String) {
        eprintln!("xtask: {note}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn counted(&mut self, workload: &'static str, peer: &'static str, counts: Counts) {
        self.counted.insert((workload, peer), counts);
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
        measurement: Measurement,
    ) {
        self.rounds.entry((null, workload, peer)).or_default().push(measurement);
    }

    /// Adds a failed round, for the terminal only: the document has the results of the others.
    pub(super) fn failed_round(&mut self, null: bool, workload: &str, peer: &str, error: &Error) {
        let server = if null { "null" } else { "real" };
        let failure = format!("round failed: {server} {workload} with {peer}: {error}");
        eprintln!("xtask: {failure}");
        self.failures.push(failure);
    }

    /// Returns the failed rounds.
    pub(super) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Whether a budget is exceeded.
    pub(super) fn exceeds_budget(&self) -> bool {
        self.budgets()
            .iter()
            .any(|budget| budget.measured.is_some_and(|measured| measured > budget.limit))
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
                "getData, 1,000 in flight: allocations, including those of the values (aim 1)",
                pipe.allocations,
                2.0,
            ),
            budget("getData, 1,000 in flight: system calls", pipe.syscalls, 0.05),
            budget("getData, one at a time: system calls", one.syscalls, 5.0),
            budget(
                "getChildren of 10,000: time relative to `raw`, which copies the frame",
                children.zip(floor).map(|(docent, floor)| docent / floor),
                1.5,
            ),
            budget(
                "an idle session: bytes of heap",
                self.kept.get("idle-sessions").copied(),
                8192.0,
            ),
            budget(
                "a watch: bytes of heap without its path",
                self.kept.get("idle-watches").map(|bytes| bytes - WATCHED_PATH_LENGTH),
                200.0,
            ),
        ]
    }

    pub(super) fn scale(&mut self, workload: &'static str, n: usize, measurement: Measurement) {
        self.scale.push((workload, n, measurement));
    }

    fn at_scale(&self) -> String {
        let mut text = "\n### At scale, on the null server\n\n| | CPU, ms | longest step, ms | maximum resident size, MiB |\n|---|---:|---:|---:|\n".to_owned();
        for (workload, n, measurement) in &self.scale {
            let description = match *workload {
                "reconnect-watches" => "watches are set again after their connection was lost",
                _ => "sessions are created in one process, and idle",
            };
            let _ = writeln!(
                text,
                "| {workload}: {} {description} | {} | {} | {} |",
                thousands(*n as f64),
                format_number(measurement.cpu_us_per_op * *n as f64 / 1000.0),
                if measurement.p99_us > 0.0 {
                    format_number(measurement.p99_us / 1000.0)
                } else {
                    "-".to_owned()
                },
                format_or_dash(measurement.max_rss_kib.map(|kib| kib / 1024.0)),
            );
        }
        text
    }

    /// Returns the generated section.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{HEADING}\n\n{INTRODUCTION}\n");
        if self.quick {
            text += "\nThis was a `--quick` run, with few and short rounds.\n";
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text += "\n### Budgets\n\n| docent | measured | budget | |\n|---|---:|---:|---|\n";
        for Budget { what, measured, limit } in self.budgets() {
            let verdict = match measured {
                None => "not measured",
                Some(measured) if measured > limit => "**exceeded**",
                Some(_) => "met",
            };
            let _ = writeln!(
                text,
                "| {what} | {} | {} | {verdict} |",
                format_or_dash(measured),
                format_number(limit)
            );
        }
        text += SPANS_AND_METRICS;
        text += "\n### Counts per operation\n\n| workload | client | instructions | allocations | bytes allocated | system calls |\n|---|---|---:|---:|---:|---:|\n";
        for workload in &WORKLOADS {
            for (peer, _) in &self.peers {
                let Some(counted) = self.counted.get(&(workload.name, *peer)) else { continue };
                let _ = writeln!(
                    text,
                    "| {} | {peer} | {} | {} | {} | {} |",
                    workload.name,
                    format_or_dash(counted.instructions),
                    format_or_dash(counted.allocations),
                    format_or_dash(counted.allocated_bytes),
                    format_or_dash(counted.syscalls),
                );
            }
        }
        text += &self.ratios(
            true,
            "CPU time, median of all rounds: µs per operation, and the ratio to docent's",
            Self::median_cpu,
        );
        text += &self.ratios(
            false,
            "Wall time, best round: µs per operation, and the ratio to docent's",
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
                let value_of = |peer: &str| value(self, null, workload.name, peer);
                let Some(docent) = value_of("docent") else { continue };
                let _ = write!(text, "| {server} {} |", workload.name);
                for (peer, _) in &self.peers {
                    let _ = match value_of(peer) {
                        None => write!(text, " |"),
                        Some(us) if *peer == "docent" => write!(text, " {} |", format_number(us)),
                        Some(us) => write!(
                            text,
                            " {} ({}x) |",
                            format_number(us),
                            format_number(us / docent)
                        ),
                    };
                }
                let others = self.peers.iter().filter(|(_, is_other_client)| *is_other_client);
                let best = others.filter_map(|(peer, _)| value_of(peer)).reduce(f64::min);
                let best = format_or_dash(best.map(|best| best / docent));
                let _ = write!(text, " **{best}x** |");
                if aims {
                    let _ = write!(text, " {}x |", format_number(workload.aim));
                }
                text.push('\n');
            }
        }
        text
    }

    fn latencies(&self) -> String {
        let mut text = "\n### docent's latency, median of all rounds\n\n| server, workload | operations per second | p50, µs | p99, µs |\n|---|---:|---:|---:|\n".to_owned();
        for (null, server) in [(true, "null"), (false, "real")] {
            for workload in &WORKLOADS {
                let median = |value: fn(&Measurement) -> f64| {
                    self.median(null, workload.name, "docent", value)
                };
                let Some(us) = median(|round| round.us_per_op) else { continue };
                let _ = writeln!(
                    text,
                    "| {server} {} | {} | {} | {} |",
                    workload.name,
                    format_number(1e6 / us),
                    format_or_dash(median(|round| round.p50_us)),
                    format_or_dash(median(|round| round.p99_us)),
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
        value: fn(&Measurement) -> f64,
    ) -> Option<f64> {
        let mut values: Vec<_> = self.rounds_of(null, workload, peer)?.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    fn rounds_of(&self, null: bool, workload: &str, peer: &str) -> Option<&Vec<Measurement>> {
        let mut all = self.rounds.iter();
        all.find(|(key, _)| **key == (null, workload, peer)).map(|(_, rounds)| rounds)
    }
}

/// Formats a value, or `-` if there is none.
fn format_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), format_number)
}

/// Formats a number with at least three significant digits.
fn format_number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats an integer with thousands separators.
pub(super) fn thousands(value: f64) -> String {
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

/// Replaces the section of the previous run in the file, or appends it.
pub(super) fn write(file: &Path, heading: &str, section: &str) -> Result<()> {
    let old = fs::read_to_string(file).unwrap_or_else(|_| "# Benchmarks\n".to_owned());
    let (before, rest) = match old.split_once(&format!("\n{heading}\n")) {
        Some((before, rest)) => (before, rest),
        None => (old.trim_end_matches('\n'), ""),
    };
    let after = rest.find("\n## ").and_then(|at| rest.get(at..)).unwrap_or_default();
    let before = before.trim_end_matches('\n');
    let text = format!("{before}\n\n{}\n{after}", section.trim_end_matches('\n'));
    Ok(fs::write(file, format!("{}\n", text.trim_end_matches('\n')))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{HEADING, INTRODUCTION, Report};
    use xtask::workspace::root;

    #[test]
    fn a_failed_round_is_not_in_the_document() {
        let mut report = Report::new(false, &[]);
        let without = report.text();
        report.failed_round(true, "get-seq", "a-peer", &"exit status: 2".into());
        assert_eq!(report.text(), without);
        assert_eq!(report.failures(), ["round failed: null get-seq with a-peer: exit status: 2"]);
    }

    #[test]
    fn the_committed_introduction_is_the_generated_one() {
        let document = fs::read_to_string(root().join("docs/BENCHMARKS.md")).unwrap();
        assert!(document.contains(&format!("{HEADING}\n\n{INTRODUCTION}\n")));
    }
}
