//! Runs the workloads of all services in interleaved rounds, so that a disturbance affects all of them.

use std::{collections::HashMap, fs, time::Duration};

use serde_json::{Value, json};

use xtask::{Arguments, Result};

use super::{
    random, results,
    servers::{Kind, Servers},
    services::{ENTRIES, Entry, entry},
    this_program,
};
use crate::process;

/// A workload with its options, and whether it is repeated.
struct Plan {
    workload: &'static str,
    options: &'static [&'static str],
    /// Counted values need no second round and do not depend on the disk.
    once: bool,
}

const PLANS: [Plan; 8] = [
    Plan { workload: "cycle", options: &["--seconds", "1"], once: false },
    Plan { workload: "handoff", options: &["--contenders", "8", "--seconds", "1.5"], once: false },
    Plan { workload: "handoff", options: &["--contenders", "64", "--seconds", "2"], once: false },
    Plan { workload: "throughput", options: &["--locks", "1", "--seconds", "1"], once: false },
    Plan { workload: "throughput", options: &["--locks", "10", "--seconds", "1"], once: false },
    Plan { workload: "throughput", options: &["--locks", "100", "--seconds", "1"], once: false },
    Plan { workload: "count", options: &[], once: true },
    Plan { workload: "waiters", options: &["--contenders", "8", "--seconds", "4"], once: true },
];

/// The number of locks held on each service while its memory is measured.
const MEMORY_LOCKS: usize = 2000;

const LIMIT: Duration = Duration::from_secs(120);

/// The services of a run: the named ones, or all.
pub(crate) fn selected(names: &[&str]) -> Result<Vec<&'static Entry>> {
    if names.is_empty() {
        Ok(ENTRIES.iter().collect())
    } else {
        names.iter().map(|name| entry(name)).collect()
    }
}

pub(crate) fn run(arguments: &Arguments, names: &[&str]) -> Result<()> {
    let services = selected(names)?;
    let quick = arguments.flag("quick");
    let rounds = if quick { 1 } else { arguments.number("rounds", 3)? };
    let only = arguments.text("only");
    let is_wanted = |workload: &str| only.is_none_or(|only| only == workload);
    let chosen = |line: &Value| {
        services.iter().any(|service| line["service"] == service.name)
            && line["workload"].as_str().is_none_or(is_wanted)
    };
    results::retain("speed", |line| !chosen(line))?;
    let mut running: HashMap<(Kind, bool), Servers> = HashMap::new();
    for service in &services {
        for fsync in [true, false] {
            let key = (service.kind, fsync);
            if running.contains_key(&key) {
                continue;
            }
            match Servers::start(service.kind, fsync) {
                Ok(servers) => drop(running.insert(key, servers)),
                Err(error) => eprintln!("bench: {}, fsync {fsync}: {error}", service.name),
            }
        }
    }
    for service in &services {
        if !running.contains_key(&(service.kind, true)) {
            let line = json!({ "service": service.name, "missing": true });
            results::append("speed", &line)?;
        }
    }
    for round in 0..rounds {
        let plans = PLANS.iter().filter(|plan| is_wanted(plan.workload));
        for plan in plans.filter(|plan| round == 0 || !plan.once) {
            for fsync in [true, false] {
                for service in &services {
                    let servers = running.get(&(service.kind, fsync));
                    // The file lock uses no network and no disk.
                    let skipped = if service.kind == Kind::File {
                        !fsync || plan.once
                    } else {
                        !fsync && plan.once
                    };
                    let Some(servers) = servers.filter(|_| !skipped) else { continue };
                    measure(service, servers, fsync, round, plan.workload, plan.options)?;
                }
            }
        }
        eprintln!("bench: round {} of {rounds} has ended", round + 1);
    }
    // Measured last, because the held locks stay until their sessions expire.
    let locks = MEMORY_LOCKS.to_string();
    let with_memory = services.iter().filter(|service| service.kind != Kind::File);
    for service in with_memory.filter(|_| is_wanted("memory")) {
        if let Some(servers) = running.get(&(service.kind, false)) {
            let mut options = vec!["--locks", &locks, "--lease-ms", "60000"];
            options.extend((service.kind == Kind::ZooKeeper).then_some("--java"));
            measure(service, servers, false, 0, "memory", &options)?;
        }
    }
    Ok(())
}

/// Runs one client process and stores its line. An error is stored as a line too.
fn measure(
    service: &Entry,
    servers: &Servers,
    fsync: bool,
    round: usize,
    workload: &str,
    options: &[&str],
) -> Result<()> {
    let ids: Vec<_> = servers.ids().iter().map(u32::to_string).collect();
    let mut command = this_program()?;
    command.args(["client", service.name, workload, "--addresses", &servers.addresses().join(",")]);
    command.args(["--pids", &ids.join(","), "--name", &format!("{workload}-{:x}", random())]);
    command.args(options);
    let mut line = match process::json(&mut command, LIMIT) {
        Ok(line) => line,
        Err(error) => {
            eprintln!("bench: {} {workload}: {error}", service.name);
            json!({ "error": error.to_string() })
        }
    };
    if let Some(line) = line.as_object_mut() {
        line.insert("service".into(), service.name.into());
        line.insert("workload".into(), workload.into());
        line.insert("options".into(), options.join(" ").into());
        line.insert("fsync".into(), fsync.into());
        line.insert("round".into(), round.into());
        line.insert("date".into(), results::date().into());
        line.insert("load".into(), load().into());
    }
    results::append("speed", &line)
}

/// The load average of the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
