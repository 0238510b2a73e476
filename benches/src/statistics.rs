//! Quantiles of measured values, and what Linux says about processes.

use std::fs;

use xtask::Result;

/// The quantile `q` of sorted values, by the nearest rank; 0 without values.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied().unwrap_or(0.0)
}

/// The median of values in any order.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The unit of CPU time in /proc on Linux, whatever the kernel's own tick: USER_HZ.
const TICKS_PER_SECOND: f64 = 100.0;

/// Process, parent, and CPU ticks of itself and of its ended children, from the text of /proc/PID/stat.
fn parse_stat(text: &str) -> Option<(u32, u32, u64)> {
    let (process, rest) = text.split_once(' ')?;
    // The name is in parentheses, and may contain any character.
    let fields: Vec<_> = rest.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some((process.parse().ok()?, fields.get(1)?.parse().ok()?, ticks))
}

/// The given processes and all their descendants, with their ticks.
pub(crate) fn tree(roots: &[u32]) -> Vec<(u32, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Ok(text) = fs::read_to_string(entry.path().join("stat")) {
            all.extend(parse_stat(&text));
        }
    }
    let mut found: Vec<u32> = roots.to_vec();
    let mut index = 0;
    while let Some(&parent) = found.get(index) {
        found.extend(all.iter().filter(|process| process.1 == parent).map(|process| process.0));
        index += 1;
    }
    all.into_iter().filter(|process| found.contains(&process.0)).map(|(id, _, t)| (id, t)).collect()
}

/// The CPU seconds of processes and their descendants, ended ones included.
pub(crate) fn cpu_seconds(roots: &[u32]) -> f64 {
    tree(roots).iter().map(|process| process.1 as f64).sum::<f64>() / TICKS_PER_SECOND
}

/// The resident memory of a process.
pub(crate) fn resident_bytes(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(kilobytes(&status, "VmRSS:").ok_or("VmRSS is missing")?)
}

/// The bytes of a line of /proc such as `Pss:  12 kB`.
pub(crate) fn kilobytes(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let values: Vec<_> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 0.99), 99.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 1.0), 100.0);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_is_one_field() {
        let text = "42 (a (b) c) S 7 1 1 0 -1 0 1 2 3 4 10 20 3 4 20 0 1";
        assert_eq!(parse_stat(text), Some((42, 7, 37)));
        assert_eq!(parse_stat("42 (a"), None);
    }
}
