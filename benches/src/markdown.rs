//! Tables in the documents, and the numbers in them.

use std::fs;

use xtask::{Result, workspace::root};

/// A number with at least three significant digits and separated thousands; `-` for `None`.
pub(crate) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    let digits = match value.abs() {
        value if value >= 100.0 || value == 0.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(w, r)| (w, Some(r)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or_else(|| grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

/// A table. The first `names` columns have words, the others numbers. A row may be shorter than the head.
pub(crate) fn table<Row: AsRef<[String]>>(
    head: &[&str],
    names: usize,
    rows: impl IntoIterator<Item = Row>,
) -> String {
    let (words, numbers) = ("---|".repeat(names), "---:|".repeat(head.len() - names));
    let line = |row: &[String]| {
        let filled =
            |cell: &String| if cell.is_empty() { " |".into() } else { format!(" {cell} |") };
        let missing = " |".repeat(head.len() - row.len());
        format!("|{}{missing}\n", row.iter().map(filled).collect::<String>())
    };
    let head: Vec<_> = head.iter().map(|name| (*name).to_owned()).collect();
    let rows: String = rows.into_iter().map(|row| line(row.as_ref())).collect();
    format!("{}|{words}{numbers}\n{rows}", line(&head))
}

/// Replaces the text that an earlier run wrote between the marks of this name in docs/BENCHMARKS.md.
pub(crate) fn write_measured(name: &str, measured: &str) -> Result<()> {
    let file = root().join("docs/BENCHMARKS.md");
    let old = fs::read_to_string(&file)?;
    Ok(fs::write(file, with_measured(&old, name, measured)?)?)
}

fn with_measured(document: &str, name: &str, measured: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- measured: {name} -->\n"), "<!-- end -->\n");
    let parts = document.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| format!("docs/BENCHMARKS.md has no {begin}"))?;
    Ok(format!("{before}{begin}{}\n{end}{after}", measured.trim_end()))
}
