//! The measured part of the section of docs/BENCHMARKS.md.

use std::{collections::BTreeMap, fmt::Write as _};

use xtask::Result;

use super::{
    WORKLOADS,
    peers::{Measurement, Peer},
};
use crate::{
    markdown::{number, table},
    statistics::median,
};

/// The length of the paths of `idle-watches`, in bytes.
const WATCHED_PATH_LENGTH: f64 = 27.0;

/// All measurements of a run.
pub(super) struct Report {
    quick: bool,
    peers: Vec<(&'static str, bool)>,
    notes: Vec<String>,
    /// Failed rounds, shown on the terminal only: the document has the results of the other rounds.
    pub(super) failures: Vec<String>,
    pub(super) counted: BTreeMap<(&'static str, &'static str), Counts>,
    /// The heap memory that each session or watch keeps, in bytes.
    pub(super) kept: BTreeMap<&'static str, Option<f64>>,
    pub(super) scale: Vec<(&'static str, usize, Measurement)>,
    rounds: BTreeMap<(bool, &'static str, &'static str), Vec<Measurement>>,
}

/// The counts per operation.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) instructions: Option<f64>,
    pub(super) allocations: Option<f64>,
    pub(super) allocated_bytes: Option<f64>,
    pub(super) syscalls: Option<f64>,
}

/// An upper limit for a measured value.
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

    /// Adds a note for the readers of the document, unless it has been added before.
    pub(super) fn note(&mut self, note: String) {
        eprintln!("bench: {note}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn round(
        &mut self,
        null: bool,
        workload: &'static str,
        peer: &'static str,
        measured: Result<Measurement>,
    ) {
        match measured {
            Ok(measured) => {
                self.rounds.entry((null, workload, peer)).or_default().push(measured);
            }
            Err(error) => {
                let server = if null { "null" } else { "real" };
                self.failures
                    .push(format!("round failed: {server} {workload} with {peer}: {error}"));
            }
        }
    }

    /// Whether a budget is exceeded.
    pub(super) fn exceeds_budget(&self) -> bool {
        let is_exceeded =
            |budget: &Budget| budget.measured.is_some_and(|value| value > budget.limit);
        self.budgets().iter().any(is_exceeded)
    }

    fn budgets(&self) -> [Budget; 7] {
        let docent = |workload: &'static str| {
            self.counted.get(&(workload, "docent")).copied().unwrap_or_default()
        };
        let (pipe, one) = (docent("get-pipe"), docent("get-seq"));
        let children = self.best_wall(true, "children-10k", "docent");
        let floor = self.best_wall(true, "children-10k", "raw");
        let kept = |what: &str| self.kept.get(what).copied().flatten();
        let budget = |what, measured, limit| Budget { what, measured, limit };
        [
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
            budget("an idle session: bytes of heap", kept("idle-sessions"), 8192.0),
            budget(
                "a watch: bytes of heap without its path",
                kept("idle-watches").map(|bytes| bytes - WATCHED_PATH_LENGTH),
                200.0,
            ),
        ]
    }

    /// Returns the measured part of the section.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if self.quick {
            text += "This was a `--quick` run, with few and short rounds.\n\n";
        }
        for note in &self.notes {
            let _ = write!(text, "{note}\n\n");
        }
        text += "### Budgets\n\n";
        let verdict = |budget: &Budget| match budget.measured {
            None => "not measured",
            Some(measured) if measured > budget.limit => "**exceeded**",
            Some(_) => "met",
        };
        let budgets = self.budgets();
        let rows = budgets.iter().map(|budget| {
            let (measured, limit) = (number(budget.measured), number(Some(budget.limit)));
            [budget.what.to_owned(), measured, limit, verdict(budget).to_owned()]
        });
        text += &table(&["docent", "measured", "budget", ""], 1, rows);
        text += "\n### Counts per operation\n\n";
        let head = [
            "workload",
            "client",
            "instructions",
            "allocations",
            "bytes allocated",
            "system calls",
        ];
        let rows = WORKLOADS.iter().flat_map(|workload| {
            self.peers.iter().filter_map(|(peer, _)| {
                let counts = self.counted.get(&(workload.name, *peer))?;
                let Counts { instructions, allocations, allocated_bytes, syscalls } = *counts;
                let [a, b, c, d] =
                    [instructions, allocations, allocated_bytes, syscalls].map(number);
                Some([workload.name.to_owned(), (*peer).to_owned(), a, b, c, d])
            })
        });
        text += &table(&head, 2, rows);
        text +=
            "\n### CPU time, median of all rounds: µs per operation, and the ratio to docent's\n\n";
        text += &self.ratios(true, |null, workload, peer| {
            self.median(null, workload, peer, |round| round.cpu_us_per_op)
        });
        text += "\n### Wall time, best round: µs per operation, and the ratio to docent's\n\n";
        text += &self.ratios(false, |null, workload, peer| self.best_wall(null, workload, peer));
        text += "\n### docent's latency, median of all rounds\n\n";
        text += &self.latencies();
        text += "\n### At scale, on the null server\n\n";
        text += &self.at_scale();
        text
    }

    fn ratios(&self, aims: bool, value: impl Fn(bool, &str, &str) -> Option<f64>) -> String {
        let mut head = vec!["server, workload"];
        head.extend(self.peers.iter().map(|(peer, _)| *peer));
        head.push("best peer");
        head.extend(aims.then_some("aim"));
        let mut rows = Vec::new();
        for (null, server) in [(true, "null"), (false, "real")] {
            for workload in &WORKLOADS {
                let value_of = |peer: &str| value(null, workload.name, peer);
                let Some(docent) = value_of("docent") else { continue };
                let times = |us: f64| format!("{}x", number(Some(us / docent)));
                let mut row = vec![format!("{server} {}", workload.name)];
                row.extend(self.peers.iter().map(|(peer, _)| match value_of(peer) {
                    None => String::new(),
                    Some(us) if *peer == "docent" => number(Some(us)),
                    Some(us) => format!("{} ({})", number(Some(us)), times(us)),
                }));
                let others = self.peers.iter().filter(|(_, is_other_client)| *is_other_client);
                let best = others.filter_map(|(peer, _)| value_of(peer)).reduce(f64::min);
                row.push(best.map_or_else(String::new, |best| format!("**{}**", times(best))));
                row.extend(aims.then(|| format!("{}x", number(Some(workload.aim)))));
                rows.push(row);
            }
        }
        table(&head, 1, rows)
    }

    fn latencies(&self) -> String {
        let mut rows = Vec::new();
        for (null, server) in [(true, "null"), (false, "real")] {
            for workload in &WORKLOADS {
                let median = |value: fn(&Measurement) -> f64| {
                    self.median(null, workload.name, "docent", value)
                };
                let Some(us) = median(|round| round.us_per_op) else { continue };
                rows.push([
                    format!("{server} {}", workload.name),
                    number(Some(1e6 / us)),
                    number(median(|round| round.p50_us)),
                    number(median(|round| round.p99_us)),
                ]);
            }
        }
        table(&["server, workload", "operations per second", "p50, µs", "p99, µs"], 1, rows)
    }

    fn at_scale(&self) -> String {
        let rows = self.scale.iter().map(|(workload, n, measured)| {
            let description = match *workload {
                "reconnect-watches" => "watches are set again after their connection was lost",
                _ => "sessions are created in one process, and idle",
            };
            [
                format!("{workload}: {} {description}", number(Some(*n as f64))),
                number(Some(measured.cpu_us_per_op * *n as f64 / 1000.0)),
                number(Some(measured.p99_us / 1000.0).filter(|ms| *ms > 0.0)),
                number(measured.max_rss_kib.map(|kib| kib / 1024.0)),
            ]
        });
        table(&["", "CPU, ms", "longest step, ms", "maximum resident size, MiB"], 1, rows)
    }

    fn best_wall(&self, null: bool, workload: &str, peer: &str) -> Option<f64> {
        self.rounds_of(null, workload, peer)?.iter().map(|round| round.us_per_op).reduce(f64::min)
    }

    fn median(
        &self,
        null: bool,
        workload: &str,
        peer: &str,
        value: fn(&Measurement) -> f64,
    ) -> Option<f64> {
        let values: Vec<_> = self.rounds_of(null, workload, peer)?.iter().map(value).collect();
        Some(median(&values))
    }

    fn rounds_of(&self, null: bool, workload: &str, peer: &str) -> Option<&Vec<Measurement>> {
        let mut all = self.rounds.iter();
        all.find(|(key, _)| **key == (null, workload, peer)).map(|(_, rounds)| rounds)
    }
}
