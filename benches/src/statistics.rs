//! Quantiles of measured values, and the resources that processes use according to Linux and Java.

use std::{fs, process::Command, time::Duration};

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

/// The unit of CPU time in Linux's /proc, USER_HZ, which does not depend on the tick of the kernel.
const TICKS_PER_SECOND: f64 = 100.0;

/// Parses /proc/PID/stat. Returns the process, its parent, and the CPU ticks of the process and its ended children.
fn parse_stat(text: &str) -> Option<(u32, u32, u64)> {
    let (process, rest) = text.split_once(' ')?;
    // The name of the program is in parentheses, and may contain any character.
    let fields: Vec<_> = rest.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some((process.parse().ok()?, fields.get(1)?.parse().ok()?, ticks))
}

/// The given processes and all their descendants, with their CPU ticks.
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

/// The CPU seconds of processes and their descendants, including those that have ended.
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

/// Every fifth percentile of the durations, in microseconds, followed by the 99th.
pub(crate) fn distribution(durations: &mut [Duration]) -> Vec<f64> {
    durations.sort();
    let sorted: Vec<_> = durations.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    (0..=20)
        .map(|step| quantile(&sorted, f64::from(step) / 20.0))
        .chain([quantile(&sorted, 0.99)])
        .collect()
}

/// The memory of servers: for Java the used heap after a garbage collection, for others the proportional set size.
pub(crate) fn memory(roots: &[u32], java: bool) -> Result<f64> {
    if java {
        let mut used = 0.0;
        for root in roots {
            let jcmd =
                |command: &str| Command::new("jcmd").arg(root.to_string()).arg(command).output();
            jcmd("GC.run")?;
            let output = jcmd("GC.heap_info")?;
            used += used_heap(&String::from_utf8_lossy(&output.stdout)).ok_or("no heap of jcmd")?;
        }
        return Ok(used);
    }
    let mut bytes = 0.0;
    for (process, _) in tree(roots) {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
        // The proportional set size divides a shared page among the processes that map it.
        bytes += kilobytes(&text, "Pss:").unwrap_or(0.0);
    }
    Ok(bytes)
}

/// The used bytes of the generations in the output of `jcmd GC.heap_info`.
fn used_heap(text: &str) -> Option<f64> {
    let generations = text.lines().filter(|line| line.contains("generation"));
    let used = generations.filter_map(|line| {
        let rest = line.split_once("used ")?.1;
        rest.split_once('K')?.0.parse::<f64>().ok()
    });
    let used: Vec<_> = used.collect();
    (!used.is_empty()).then(|| used.iter().sum::<f64>() * 1024.0)
}
