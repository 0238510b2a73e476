//! `--shrink`: a scenario of a few lines from a seed that breaks a rule.

use std::process::ExitCode;

use docent_sim::{
    Plan,
    run::{
        batch::{Options, Planner, Totals},
        diagram,
        shrink::Shrinker,
    },
};

use crate::output::{Output, Progress, conclude};

/// Prints the shortest plan found, as a scenario with its diagram.
pub(super) fn run(seed: u64, planner: &Planner, options: Options) -> Result<ExitCode, String> {
    let plan = planner(seed);
    let output = Output;
    let mut totals = Totals::default();
    let mut shrinker = Shrinker::new(&plan, options);
    totals.add(shrinker.outcome());
    let Some(rule) = shrinker.violation().map(str::to_owned) else {
        eprintln!("cargo xtask sim: seed {seed} breaks no rule");
        return Ok(conclude(&output, totals));
    };
    let progress = Progress::spinner();
    shrinker.run(|plan, tries| {
        progress.say(format!("{tries} runs: {} faults, {} steps", plan.faults.len(), plan.steps()));
    });
    progress.finish();
    let short = shrinker.plan();
    let size = |plan: &Plan| {
        let (faults, steps, processes) = (plan.faults.len(), plan.steps(), plan.processes.len());
        format!("{faults} faults, {steps} steps, {processes} processes")
    };
    output.line(format_args!("// Seed {seed}: {rule}"));
    output.line(format_args!("// Before: {}. After: {}.", size(&plan), size(short)));
    output.line(short.to_ron());
    output.line("//");
    for line in diagram::of(short).lines() {
        output.line(format_args!("// {line}"));
    }
    Ok(conclude(&output, totals))
}
