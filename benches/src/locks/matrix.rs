//! Runs every fault with every service that it applies to, several at a time, because they mostly wait.

use std::{
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use xtask::{Arguments, Result};

use super::{faults::FAULTS, results, speed::selected, this_program};

pub(crate) fn run(arguments: &Arguments, names: &[&str]) -> Result<()> {
    let services = selected(names)?;
    let rounds = if arguments.flag("quick") { 10 } else { arguments.number("rounds", 200)? };
    let jobs: usize = arguments.number("jobs", 4)?;
    let mut waiting = Vec::new();
    for fault in &FAULTS {
        if arguments
            .text("only")
            .is_some_and(|only| !only.split(',').any(|name| name == fault.name))
        {
            continue;
        }
        let with = services.iter().filter(|service| (fault.services)(service));
        waiting.extend(with.map(|service| (fault.name, service.name)));
    }
    // Removes the earlier values of these faults and services. A single fault, in contrast, adds to the values.
    results::retain("faults", |line| {
        !waiting
            .iter()
            .any(|(fault, service)| line["fault"] == *fault && line["service"] == *service)
    })?;
    waiting.reverse();
    let mut running: Vec<(Child, String)> = Vec::new();
    loop {
        while running.len() < jobs {
            let Some((fault, service)) = waiting.pop() else { break };
            let mut command = this_program()?;
            command.args(["--fault", fault, "--service", service, "--save"]);
            command.args(["--rounds", &rounds.to_string()]);
            let child = command.stdin(Stdio::null()).spawn()?;
            running.push((child, format!("{fault}, {service}")));
        }
        if running.is_empty() {
            return Ok(());
        }
        let mut still = Vec::new();
        for (mut child, name) in running {
            match child.try_wait()? {
                None => still.push((child, name)),
                Some(status) if !status.success() => eprintln!("bench: {name}: {status}"),
                Some(_) => {}
            }
        }
        running = still;
        thread::sleep(Duration::from_millis(50));
    }
}
