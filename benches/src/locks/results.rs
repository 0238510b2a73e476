//! The measured values, one JSON object a line, in `benches/results`.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::PathBuf,
    process::Command,
};

use serde_json::Value;

use xtask::Result;

/// The file of a table.
fn path(table: &str) -> PathBuf {
    xtask::workspace::root().join("benches/results").join(format!("{table}.jsonl"))
}

/// Adds a line, in one write: several processes may do so at the same time.
pub(crate) fn append(table: &str, value: &Value) -> Result<()> {
    let path = path(table);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(file.write_all(format!("{value}\n").as_bytes())?)
}

/// All lines of a table; none if it was not measured.
pub(crate) fn read(table: &str) -> Result<Vec<Value>> {
    let Ok(text) = fs::read_to_string(path(table)) else { return Ok(Vec::new()) };
    let lines = text.lines().filter(|line| !line.is_empty());
    Ok(lines.map(serde_json::from_str).collect::<serde_json::Result<_>>()?)
}

/// Removes a table's lines that do not satisfy a condition.
pub(crate) fn retain(table: &str, keep: impl Fn(&Value) -> bool) -> Result<()> {
    let lines = read(table)?;
    let text: String =
        lines.iter().filter(|line| keep(line)).map(|line| format!("{line}\n")).collect();
    let path = path(table);
    if path.exists() {
        fs::write(path, text)?;
    }
    Ok(())
}

/// Today, as 2001-12-31.
pub(crate) fn date() -> String {
    let output = Command::new("date").arg("+%F").output();
    output.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// The number of that name in a line.
pub(super) fn field(name: &'static str) -> impl Fn(&Value) -> Option<f64> {
    move |line| line[name].as_f64()
}

/// A quantile of a distribution: every fifth percentile, and the 99th at the end.
pub(super) fn at(name: &'static str, index: usize) -> impl Fn(&Value) -> Option<f64> {
    move |line| line[name].get(index)?.as_f64()
}

pub(super) const P5: usize = 1;
pub(super) const MEDIAN: usize = 10;
pub(super) const P99: usize = 21;
pub(super) const LONGEST: usize = 20;

/// The runs of a cell, the latest last.
pub(super) fn runs<'a>(faults: &'a [Value], fault: &str, service: &str) -> Vec<&'a Value> {
    let matches = |line: &&Value| line["fault"] == fault && line["service"] == service;
    faults.iter().filter(matches).collect()
}

/// A count in all runs of a cell together, as a share of its rounds, in percent.
pub(super) fn together(runs: &[&Value], name: &str) -> Option<f64> {
    let valid: Vec<_> = runs.iter().filter(|line| line.get(name).is_some()).collect();
    let sum = |name: &str| valid.iter().filter_map(|line| line[name].as_f64()).sum::<f64>();
    let rounds = sum("rounds");
    (rounds > 0.0).then(|| sum(name) * 100.0 / rounds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violations_of_several_runs_are_counted_together() {
        let one = json!({ "fault": "none", "service": "etcd", "rounds": 100, "violations": 10 });
        let two = json!({ "fault": "none", "service": "etcd", "rounds": 300, "violations": 10,
                          "violations_despite_token": 0 });
        let other = json!({ "fault": "none", "service": "file", "rounds": 300, "violations": 300 });
        let lines = [one, two, other];
        let runs = runs(&lines, "none", "etcd");
        assert_eq!(together(&runs, "violations"), Some(5.0));
        assert_eq!(together(&runs, "violations_despite_token"), Some(0.0));
        assert_eq!(together(&runs, "nothing"), None);
    }
}
