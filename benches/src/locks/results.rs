//! The measured values in `benches/results`, one JSON object per line.

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

/// Adds a line with a single write, because several processes may do so at the same time.
pub(crate) fn append(table: &str, value: &Value) -> Result<()> {
    let path = path(table);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(file.write_all(format!("{value}\n").as_bytes())?)
}

/// All lines of a table; none if it has not been measured.
pub(crate) fn read(table: &str) -> Result<Vec<Value>> {
    let Ok(text) = fs::read_to_string(path(table)) else { return Ok(Vec::new()) };
    let lines = text.lines().filter(|line| !line.is_empty());
    Ok(lines.map(serde_json::from_str).collect::<serde_json::Result<_>>()?)
}

/// Removes the lines of a table that do not satisfy `keep`.
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

/// Today's date, as in 2001-12-31.
pub(crate) fn date() -> String {
    let output = Command::new("date").arg("+%F").output();
    output.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}
