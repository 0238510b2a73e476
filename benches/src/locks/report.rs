//! docs/LOCK-SERVICES.md and the guide's chapter on choosing a lock, from the measured values.

use std::{fmt::Write as _, fs};

use serde_json::Value;

use xtask::Result;

use super::{
    choosing,
    faults::FAULTS,
    results::{self, LONGEST, MEDIAN, P5, P99, at, field, runs, together},
    servers::Kind,
    services::{ENTRIES, Entry},
    speed::{cell, median_of},
};
use crate::{markdown::number, statistics};

/// Writes the document and the guide's chapter.
pub(crate) fn run() -> Result<()> {
    let (speed, faults) = (results::read("speed")?, results::read("faults")?);
    let root = xtask::workspace::root();
    let text = fs::read_to_string(root.join("benches/src/locks/report.md"))?;
    let docs = root.join("docs");
    let text = text
        .replace("{{measured}}", &measured(&speed, &faults))
        .replace("{{services}}", &services(&speed))
        .replace("{{cycle}}", &cycle(&speed))
        .replace("{{handoff}}", &handoff(&speed))
        .replace("{{fairness}}", &fairness(&speed))
        .replace("{{throughput}}", &throughput(&speed))
        .replace("{{cost}}", &cost(&speed))
        .replace("{{faults}}", &fault_tables(&faults));
    let path = docs.join("LOCK-SERVICES.md");
    fs::write(&path, text)?;
    println!("{} written", path.display());
    let template = fs::read_to_string(root.join("benches/src/locks/choosing.md"))?;
    let path = docs.join("guide/src/choosing.md");
    fs::write(&path, choosing::text(&template, &speed, &faults)?)?;
    println!("{} written", path.display());
    Ok(())
}

fn is_missing(speed: &[Value], service: &Entry) -> bool {
    speed.iter().any(|line| line["service"] == service.name && line["missing"] == true)
}

/// One row for each service; a missing one says so.
fn rows(speed: &[Value], columns: usize, row: impl Fn(&Entry) -> String) -> String {
    let mut text = String::new();
    for service in &ENTRIES {
        if is_missing(speed, service) {
            let _ = writeln!(
                text,
                "| {} | its server, or what builds its client, is not installed {}|",
                service.name,
                "| ".repeat(columns - 1)
            );
        } else {
            let _ = writeln!(text, "| {} | {} |", service.name, row(service));
        }
    }
    text
}

fn measured(speed: &[Value], faults: &[Value]) -> String {
    let mut dates: Vec<_> =
        speed.iter().chain(faults).filter_map(|line| line["date"].as_str()).collect();
    dates.sort_unstable();
    dates.dedup();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name).trim().to_owned();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel: Vec<_> = kernel.split(['.', '-']).take(2).collect();
    let loads = speed.iter().filter_map(|line| line["load"].as_f64());
    let mut loads: Vec<_> = loads.collect();
    loads.sort_by(f64::total_cmp);
    let median = (!loads.is_empty()).then(|| statistics::quantile(&loads, 0.5));
    let is_loaded = median.is_some_and(|median| median > cores as f64);
    format!(
        "Measured on {}, on a machine with {cores} cores ({model}), Linux {}. {}While the speed was measured, the load \
         average of a minute was {} to {}, {} in the median, with the load of the measurement itself.",
        dates.join(" and "),
        kernel.join("."),
        if is_loaded { "It was shared and loaded. " } else { "" },
        number(loads.first().copied()),
        number(loads.last().copied()),
        number(median),
    )
}

fn services(speed: &[Value]) -> String {
    let table = rows(speed, 4, |service| {
        let token = service.token.unwrap_or("none");
        format!(
            "{} | {} | {} | {}",
            service.client,
            service.held,
            token,
            if service.has_lease { "time" } else { "its connection or process" }
        )
    });
    let mut text = format!(
        "| service | client, and how it waits | \"do I still hold it?\" is answered by | fencing token | a holder's end is shown by |\n\
         |---|---|---|---|---|\n{table}\n\
         | server | version | fsync on | fsync off |\n|---|---|---|---|\n"
    );
    for kind in [Kind::ZooKeeper, Kind::Etcd, Kind::Redis, Kind::Postgres, Kind::MariaDb] {
        let version = kind.version().unwrap_or_else(|error| error.to_string());
        let (on, off) = kind.durability();
        let _ = writeln!(text, "| {kind:?} | {version} | {on} | {off} |");
    }
    text
}

fn cycle(speed: &[Value]) -> String {
    rows(speed, 11, |service| {
        let on = cell(speed, service.name, "cycle", "", true);
        let off = cell(speed, service.name, "cycle", "", false);
        let count = cell(speed, service.name, "count", "", true);
        let has_server = service.kind != Kind::File;
        let values = [
            median_of(&on, at("quantiles", P5)),
            median_of(&on, at("quantiles", MEDIAN)),
            median_of(&on, at("quantiles", P99)),
            median_of(&off, at("quantiles", P5)),
            median_of(&off, at("quantiles", MEDIAN)),
            median_of(&off, at("quantiles", P99)),
            median_of(&count, field("flights")).filter(|_| has_server),
            median_of(&count, field("bytes")).filter(|_| has_server),
            median_of(&on, field("client_cpu_us")),
            median_of(&on, field("server_cpu_us")).filter(|_| has_server),
            median_of(&off, field("server_cpu_us")).filter(|_| has_server),
        ];
        values.map(number).join(" | ")
    })
}

const CONTENDERS: [(usize, &str); 2] = [(8, "--contenders 8 "), (64, "--contenders 64 ")];

fn handoff(speed: &[Value]) -> String {
    rows(speed, 8, |service| {
        let mut values = Vec::new();
        for (_, options) in CONTENDERS {
            for fsync in [true, false] {
                let cell = cell(speed, service.name, "handoff", options, fsync);
                values.push(number(median_of(&cell, at("quantiles", MEDIAN))));
                values.push(number(median_of(&cell, at("quantiles", P99))));
            }
        }
        values.join(" | ")
    })
}

fn fairness(speed: &[Value]) -> String {
    rows(speed, 6, |service| {
        let mut values = Vec::new();
        for (_, options) in CONTENDERS {
            let cell = cell(speed, service.name, "handoff", options, true);
            let share = median_of(&cell, field("grants_that_overtake"));
            values.push(number(share.map(|share| share * 100.0)));
            values.push(number(median_of(&cell, field("overtakes_per_grant"))));
            let longest = median_of(&cell, |line| {
                let middle = at("wait_quantiles", MEDIAN)(line)?;
                Some(at("wait_quantiles", LONGEST)(line)? / middle.max(1.0))
            });
            values.push(number(longest));
        }
        values.join(" | ")
    })
}

fn throughput(speed: &[Value]) -> String {
    rows(speed, 6, |service| {
        let mut values = Vec::new();
        for fsync in [true, false] {
            for options in ["--locks 1 ", "--locks 10 ", "--locks 100 "] {
                let cell = cell(speed, service.name, "throughput", options, fsync);
                values.push(number(median_of(&cell, field("per_second"))));
            }
        }
        values.join(" | ")
    })
}

fn cost(speed: &[Value]) -> String {
    rows(speed, 4, |service| {
        let waiters = cell(speed, service.name, "waiters", "", true);
        let memory = cell(speed, service.name, "memory", "", false);
        let has_server = service.kind != Kind::File;
        let values = [
            median_of(&waiters, field("flights_per_second")),
            median_of(&waiters, field("bytes_per_second")),
            median_of(&waiters, field("server_cpu_us_per_second")),
            // A server that had enough memory before shows no growth.
            median_of(&memory, field("bytes_per_lock")).filter(|bytes| *bytes > 0.0),
        ];
        values.map(|value| number(value.filter(|_| has_server))).join(" | ")
    })
}

fn fault_tables(faults: &[Value]) -> String {
    let mut text = String::new();
    for fault in &FAULTS {
        let disk = if fault.fsync { "" } else { ", fsync off" };
        let _ = writeln!(
            text,
            "### {}\n\n{}{}{disk}. Command of a cell: \
             `cargo xtask bench-locks --fault {} --service SERVICE --rounds 200`.\n",
            fault.name,
            fault.what.get(..1).unwrap_or_default().to_uppercase(),
            fault.what.get(1..).unwrap_or_default(),
            fault.name
        );
        text.push_str(
            "| service | rounds | late writes, % | with the token, % | wrong \"yes\", % | holder read \"no\", % | \
             next acquired, % | after, ms: median | longest | each run |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        );
        for service in ENTRIES.iter().filter(|service| (fault.services)(service)) {
            let runs = runs(faults, fault.name, service.name);
            let valid: Vec<_> = runs.iter().copied().filter(|line| line["rounds"] != 0).collect();
            let Some(last) = valid.last() else {
                let error = runs.last().and_then(|line| line["error"].as_str());
                let error = error.unwrap_or("not measured").lines().next().unwrap_or_default();
                let _ = writeln!(text, "| {} | {error} | | | | | | | | |", service.name);
                continue;
            };
            let rounds: f64 = valid.iter().filter_map(|line| line["rounds"].as_f64()).sum();
            let each: Vec<_> = valid
                .iter()
                .map(|line| format!("{} of {}", line["violations"], line["rounds"]))
                .collect();
            let token = match (service.token, together(&valid, "violations_despite_token")) {
                (None, _) => "none".to_owned(),
                (Some(_), value) => number(value),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {token} | {} | {} | {} | {} | {} | {} |",
                service.name,
                number(Some(rounds)),
                number(together(&valid, "violations")),
                number(together(&valid, "wrong_answers")),
                number(together(&valid, "said_lost")),
                number(together(&valid, "next_acquired")),
                number(last["next_after_ms"].as_f64().filter(|_| last["next_acquired"] != 0)),
                number(last["next_after_max_ms"].as_f64()),
                each.join(", "),
            );
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_missing_server_is_a_row_that_says_so() {
        let lines = [json!({ "service": "etcd", "missing": true })];
        let table = throughput(&lines);
        assert!(
            table.contains("| etcd | its server, or what builds its client, is not installed"),
            "{table}"
        );
        assert_eq!(table.lines().count(), ENTRIES.len());
        let columns = |line: &str| line.matches('|').count();
        assert!(table.lines().all(|line| columns(line) == 8), "{table}");
    }

    #[test]
    fn a_fault_that_could_not_be_made_is_a_row_with_its_error() {
        let line = json!({ "fault": "pooler", "service": "postgres-advisory", "rounds": 0, "error": "no pgbouncer" });
        assert!(fault_tables(&[line]).contains("| postgres-advisory | no pgbouncer |"));
    }
}
