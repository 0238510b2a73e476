//! Writes docs/LOCK-SERVICES.md and the guide's chapter on choosing a lock, from `report.md` and `choosing.md`. In
//! these, `{{FIGURE}}` stands for a measured value:
//!
//! | figure | what |
//! |---|---|
//! | `measured` | the time and the machine of the measurement |
//! | `version SERVER` | the version of the installed server |
//! | `speed CELL.FIELD ...` | a row for each service: the medians of these fields, see [`Values::speed`] |
//! | `faults FAULT` | a row for each service that the fault applies to |
//! | `late`, `token`, `next` or `after`, of `FAULT SERVICE` | one value of such a row |
//! | `cycle`, `waiting` or `overtakes`, of `SERVICE` | one value of its speed measurements |

use std::fs;

use serde_json::Value;

use xtask::{Result, workspace::root};

use super::{faults::FAULTS, results, services::ENTRIES};
use crate::{
    markdown::number,
    statistics::{median, quantile},
};

/// The templates, and the documents below `docs` that are written from them.
const DOCUMENTS: [(&str, &str); 2] = [
    (include_str!("report.md"), "LOCK-SERVICES.md"),
    (include_str!("choosing.md"), "guide/src/choosing.md"),
];

/// Writes the documents.
pub(crate) fn run() -> Result<()> {
    let values = Values { speed: results::read("speed")?, faults: results::read("faults")? };
    for (text, document) in DOCUMENTS {
        let path = root().join("docs").join(document);
        fs::write(&path, values.fill(text)?)?;
        println!("{} written", path.display());
    }
    Ok(())
}

#[derive(Default)]
struct Values {
    speed: Vec<Value>,
    faults: Vec<Value>,
}

impl Values {
    /// Replaces the figures in a text by their values.
    fn fill(&self, text: &str) -> Result<String> {
        let mut parts = text.split("{{");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (figure, rest) = part.split_once("}}").ok_or("a figure without an end")?;
            filled.push_str(&self.figure(figure)?);
            filled.push_str(rest);
        }
        Ok(filled)
    }

    fn figure(&self, figure: &str) -> Result<String> {
        let words: Vec<_> = figure.split_whitespace().collect();
        let value = match words.as_slice() {
            ["measured"] => return Ok(self.measured()),
            ["version", server] => return version(server),
            ["speed", columns @ ..] => return Ok(self.speed_rows(columns)),
            ["faults", fault] => return self.fault_rows(fault),
            ["late", fault, service] => self.share(fault, service, "violations"),
            ["token", fault, service] => self.share(fault, service, "violations_despite_token"),
            ["next", fault, service] => self.share(fault, service, "next_acquired"),
            ["after", fault, service] => {
                self.runs(fault, service).last().and_then(|run| run["next_after_ms"].as_f64())
            }
            ["cycle", service] => self.speed(service, "cycle.p5"),
            ["waiting", service] => self.speed(service, "waiters.flights_per_second"),
            ["overtakes", service] => self.speed(service, "handoff-8.grants_that_overtake"),
            _ => return Err(format!("no figure {figure:?}").into()),
        };
        Ok(number(value))
    }

    fn measured(&self) -> String {
        let lines = self.speed.iter().chain(&self.faults);
        let mut dates: Vec<_> = lines.filter_map(|line| line["date"].as_str()).collect();
        dates.sort_unstable();
        dates.dedup();
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let model = model.map_or("unknown processor", |(_, name)| name).trim();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel: Vec<_> = kernel.split(['.', '-']).take(2).collect();
        let mut loads: Vec<_> =
            self.speed.iter().filter_map(|line| line["load"].as_f64()).collect();
        loads.sort_by(f64::total_cmp);
        let middle = (!loads.is_empty()).then(|| quantile(&loads, 0.5));
        let is_loaded = middle.is_some_and(|middle| middle > cores as f64);
        format!(
            "Measured on {}, on a machine with {cores} cores ({model}), Linux {}. {}While the speed was measured, the load \
             average of a minute was {} to {}, {} in the median, with the load of the measurement itself.",
            dates.join(" and "),
            kernel.join("."),
            if is_loaded { "It was shared and loaded. " } else { "" },
            number(loads.first().copied()),
            number(loads.last().copied()),
            number(middle),
        )
    }

    /// One row for each service, which says so if the service is not installed.
    fn speed_rows(&self, columns: &[&str]) -> String {
        let row = |service: &str| {
            let is_of_service = |line: &Value| line["service"] == service;
            if self.speed.iter().any(|line| is_of_service(line) && line["missing"] == true) {
                let missing = "its server, or what builds its client, is not installed";
                return format!("| {service} | {missing} {}|\n", "| ".repeat(columns.len() - 1));
            }
            let values = columns.iter().map(|column| number(self.speed(service, column)));
            format!("| {service} | {} |\n", values.collect::<Vec<_>>().join(" | "))
        };
        ENTRIES.iter().map(|service| row(service.name)).collect()
    }

    /// The median of a cell over its rounds, or `None` if there are none. A column is `WORKLOAD[-N][-off].FIELD`, with
    /// N contenders or locks, and `off` for servers that do not sync to the disk.
    fn speed(&self, service: &str, column: &str) -> Option<f64> {
        let (cell, field) = column.split_once('.')?;
        let (cell, fsync) = cell.strip_suffix("-off").map_or((cell, true), |cell| (cell, false));
        let (workload, n) = cell.split_once('-').map_or((cell, None), |(it, n)| (it, Some(n)));
        let is_of_cell = |line: &&Value| {
            line["service"] == service
                && line["workload"] == workload
                && line["fsync"] == fsync
                // `--contenders N` or `--locks N`.
                && n.is_none_or(|n| line["options"].as_str().and_then(|all| all.split(' ').nth(1)) == Some(n))
                && line.get("error").is_none()
                // A round without a grant, as on an overloaded machine, has no latency.
                && line["grants"] != 0
        };
        let of_cell = self.speed.iter().filter(is_of_cell);
        let values: Vec<_> = of_cell.filter_map(|line| field_of(line, field)).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    fn fault_rows(&self, name: &str) -> Result<String> {
        let fault = FAULTS.iter().find(|fault| fault.name == name);
        let fault = fault.ok_or_else(|| format!("no fault {name:?}"))?;
        let services = ENTRIES.iter().filter(|service| (fault.services)(service));
        Ok(services.map(|service| self.fault_row(name, service.name)).collect())
    }

    fn fault_row(&self, fault: &str, service: &str) -> String {
        let runs = self.runs(fault, service);
        let valid: Vec<_> = runs.iter().filter(|line| line["rounds"] != 0).collect();
        let Some(last) = valid.last() else {
            let error = runs.last().and_then(|line| line["error"].as_str());
            let error = error.unwrap_or("not measured").lines().next().unwrap_or_default();
            return format!("| {fault} | {service} | {error} | | | | |\n");
        };
        let share = |field| self.share(fault, service, field);
        let values = [
            number(share("violations")),
            // Only services with tokens have this value.
            share("violations_despite_token").map_or("none".into(), |share| number(Some(share))),
            number(share("wrong_answers")),
            number(share("next_acquired")),
            number(last["next_after_ms"].as_f64().filter(|_| last["next_acquired"] != 0)),
        ];
        format!("| {fault} | {service} | {} |\n", values.join(" | "))
    }

    /// The runs of a cell; the latest is the last.
    fn runs(&self, fault: &str, service: &str) -> Vec<&Value> {
        let is_of_cell = |line: &&Value| line["fault"] == fault && line["service"] == service;
        self.faults.iter().filter(is_of_cell).collect()
    }

    /// A count in all runs of a cell, as a percentage of their rounds.
    fn share(&self, fault: &str, service: &str, field: &str) -> Option<f64> {
        let mut runs = self.runs(fault, service);
        runs.retain(|run| run.get(field).is_some());
        let sum = |field: &str| runs.iter().filter_map(|run| run[field].as_f64()).sum::<f64>();
        let rounds = sum("rounds");
        (rounds > 0.0).then(|| sum(field) * 100.0 / rounds)
    }
}

/// A field of a measured line, in the unit of the tables.
fn field_of(line: &Value, field: &str) -> Option<f64> {
    // The quantiles are every fifth percentile, followed by the 99th.
    let quantile = |of: &str, index: usize| line[of].get(index)?.as_f64();
    match field {
        "p5" => quantile("quantiles", 1),
        "p50" => quantile("quantiles", 10),
        "p99" => quantile("quantiles", 21),
        "longest_wait" => {
            Some(quantile("wait_quantiles", 20)? / quantile("wait_quantiles", 10)?.max(1.0))
        }
        "grants_that_overtake" => Some(line[field].as_f64()? * 100.0),
        // A file has no server.
        "server_cpu_us" => line[field].as_f64().filter(|_| line["service"] != "file"),
        // A server that already had enough free memory shows no growth.
        "bytes_per_lock" => line[field].as_f64().filter(|bytes| *bytes > 0.0),
        _ => line[field].as_f64(),
    }
}

fn version(server: &str) -> Result<String> {
    let mut kinds = ENTRIES.iter().map(|service| service.kind);
    let kind = kinds.find(|kind| format!("{kind:?}") == server);
    let kind = kind.ok_or_else(|| format!("no server {server:?}"))?;
    Ok(kind.version().unwrap_or_else(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_the_documents_is_known() {
        for (text, _) in DOCUMENTS {
            Values::default().fill(text).unwrap();
        }
        assert!(Values::default().fill("{{other}}").is_err());
    }
}
