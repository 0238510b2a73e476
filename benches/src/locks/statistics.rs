//! The distribution of durations, and the memory of servers.

use std::{fs, process::Command, time::Duration};

use xtask::Result;

use crate::statistics::{kilobytes, quantile, tree};

/// Every fifth percentile of durations, in microseconds, with the 99th in place of the last but one.
pub(crate) fn distribution(durations: &mut [Duration]) -> Vec<f64> {
    durations.sort();
    let sorted: Vec<_> = durations.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    (0..=20)
        .map(|step| quantile(&sorted, f64::from(step) / 20.0))
        .chain([quantile(&sorted, 0.99)])
        .collect()
}

/// The memory of servers: the used heap after a collection for Java, the resident and unshared memory of others.
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
        // The proportional size counts a shared page once for all the processes that map it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_ends_with_the_maximum_and_the_99th_percentile() {
        let mut durations: Vec<_> = (1..=1000).rev().map(Duration::from_micros).collect();
        let quantiles = distribution(&mut durations);
        assert_eq!(quantiles.len(), 22);
        assert!((quantiles[10] - 500.0).abs() < 1e-6);
        assert!((quantiles[20] - 1000.0).abs() < 1e-6);
        assert!((quantiles[21] - 990.0).abs() < 1e-6);
    }

    #[test]
    fn the_used_heap_is_the_sum_of_the_generations() {
        let text = "1:\n def new generation   total 9K, used 100K [0x0)\n  eden space 8K, 50% used [0x0)\n \
                    tenured generation   total 9K, used 20K [0x0)\n Metaspace used 5K\n";
        assert_eq!(used_heap(text), Some(120.0 * 1024.0));
        assert_eq!(used_heap("nothing"), None);
    }
}
