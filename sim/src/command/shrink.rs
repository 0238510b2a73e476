//! `--shrink`: a scenario of a few lines from a seed that breaks a rule.

use std::{process::ExitCode, time::Duration};

use docent_sim::{
    Plan,
    run::{
        batch::{Options, Planner, Totals},
        diagram,
        shrink::Shrinker,
    },
};
use indicatif::ProgressBar;

use crate::output::{conclude, line};

/// Prints the shortest plan found, as a scenario with its diagram.
pub(super) fn run(seed: u64, planner: &Planner, options: Options) -> Result<ExitCode, String> {
    let plan = planner(seed);
    let mut totals = Totals::default();
    let mut shrinker = Shrinker::new(&plan, options);
    totals.add(shrinker.outcome());
    let Some(rule) = shrinker.violation().map(str::to_owned) else {
        eprintln!("cargo xtask sim: seed {seed} breaks no rule");
        return Ok(conclude(totals));
    };
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(Duration::from_millis(200));
    shrinker.run(|plan, tries| {
        progress.set_message(format!(
            "{tries} runs: {} faults, {} steps",
            plan.faults.len(),
            plan.steps()
        ));
    });
    progress.finish_and_clear();
    let short = shrinker.plan();
    let size = |plan: &Plan| {
        let (faults, steps, processes) = (plan.faults.len(), plan.steps(), plan.processes.len());
        format!("{faults} faults, {steps} steps, {processes} processes")
    };
    line(format_args!("// Seed {seed}: {rule}"));
    line(format_args!("// Before: {}. After: {}.", size(&plan), size(short)));
    line(short.to_ron());
    line("//");
    for row in diagram::of(short).lines() {
        line(format_args!("// {row}"));
    }
    Ok(conclude(totals))
}
