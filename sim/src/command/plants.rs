//! `--plants` and `--list-plants`.

use std::{ops::ControlFlow, process::ExitCode, sync::Arc};

use docent_sim::{
    Plan,
    faults::planted::{ENDLESS_LOOP, PLANTS},
    recipes::draw,
    run::batch::{self, Options, Planner},
};

use crate::output::{line, progress};

/// Prints the planted faults.
pub(super) fn list() -> ExitCode {
    for plant in PLANTS {
        line(format_args!("{:<26} {}", plant.name, plant.defect));
    }
    ExitCode::SUCCESS
}

/// Runs each planted fault until it is found or its number of seeds is over.
pub(super) fn find_all(options: Options) -> ExitCode {
    let mut missed = 0;
    // The threads of an endless loop would be left behind; a test of the command runs that fault instead.
    let plants = || PLANTS.iter().filter(|plant| plant.name != ENDLESS_LOOP);
    for plant in plants() {
        let progress = progress(plant.within).with_message(plant.name);
        let mut found = None;
        batch::run(1..=plant.within, &planner(Some(plant.name), None), options, |seed, outcome| {
            progress.inc(1);
            let Some(text) = outcome.history.violations().find(|text| plant.breaks(text)) else {
                return ControlFlow::Continue(());
            };
            found = Some((seed, text.to_owned()));
            ControlFlow::Break(())
        });
        progress.finish_and_clear();
        match found {
            Some((seed, text)) => {
                line(format_args!("{:<26} seed {seed} of {}: {text}", plant.name, plant.within));
            }
            None => {
                missed += 1;
                line(format_args!("{:<26} NOT FOUND in {} seeds", plant.name, plant.within));
            }
        }
    }
    line(format_args!("{} planted faults, {missed} not found", plants().count()));
    ExitCode::from(u8::from(missed > 0))
}

/// The planner of seeds, with a planted fault and a version of the servers, if given.
pub(super) fn planner(plant: Option<&'static str>, version: Option<String>) -> Planner {
    Arc::new(move |seed| {
        let mut plan = Plan { plant: plant.map(str::to_owned), ..draw::plan(seed) };
        if version.is_some() {
            plan.servers.version.clone_from(&version);
        }
        plan
    })
}
