//! `cargo xtask exhaust`: runs scopes in every order.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use docent_sim::{
    exhaust::{Found, Report, Schedule, Scope, in_parallel, search},
    run::specification,
    world::catch_panics,
};
use indicatif::{MultiProgress, ProgressBar};

use crate::{
    output::{line, print},
    usage,
};

const COMMAND: &str = "cargo xtask exhaust";

#[derive(Debug, Parser)]
#[command(
    name = COMMAND,
    about = "Runs small scenarios in every order of messages and faults that their scopes allow.\n\
             Without an option: all scopes of sim/scopes. The guide is docs/SIMULATION.md.",
    after_help = "Exit codes:\n  0   no rule was broken\n  1   a rule was broken, or with --plants a fault was not found\n  \
                  64  wrong usage: an option, a scope, a schedule that does not parse",
    max_term_width = 100
)]
struct Arguments {
    /// The scopes: names of files in sim/scopes [default: all]
    #[arg(value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Only the scopes that belong to the tests
    #[arg(long, conflicts_with = "scopes")]
    quick: bool,
    /// End the search of each scope after this time
    #[arg(long, value_name = "MINUTES", value_parser = usage::minutes)]
    budget: Option<Duration>,
    /// Compare the traces with the specifications of LockInternals and StrictMutex, and with no other rule
    #[arg(long)]
    specification: bool,
    /// Plant a fault into docent, which a scope must find
    #[arg(long, value_name = "NAME", value_parser = usage::plant, conflicts_with = "plants")]
    plant: Option<&'static str>,
    /// Search each scope for the planted faults that it must find
    #[arg(long)]
    plants: bool,
    /// Run one schedule from a file, and draw its diagram
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scopes", "quick", "budget", "plant", "plants"])]
    schedule: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return usage::report(COMMAND, &error),
    };
    catch_panics();
    let done = match &arguments.schedule {
        Some(file) => replay(file),
        None => scopes(&arguments).map(|scopes| {
            if arguments.plants {
                find_plants(scopes, arguments.budget)
            } else {
                search_all(scopes, &arguments)
            }
        }),
    };
    done.unwrap_or_else(|text| usage::refuse(COMMAND, &text))
}

fn scopes(arguments: &Arguments) -> Result<Vec<Scope>, String> {
    let mut names = arguments.scopes.clone();
    if names.is_empty() {
        names = Scope::names()?;
    }
    let mut scopes = names.iter().map(|name| Scope::named(name)).collect::<Result<Vec<_>, _>>()?;
    scopes.retain(|scope| scope.quick || !arguments.quick);
    scopes.retain(|scope| !arguments.specification || specification::covers(&scope.plan));
    for scope in &mut scopes {
        scope.plan.plant = arguments.plant.map(str::to_owned);
        scope.mistake = arguments.specification.then_some("");
    }
    Ok(scopes)
}

/// Runs one schedule.
fn replay(file: &Path) -> Result<ExitCode, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let schedule = Schedule::from_ron(&text).map_err(|error| format!("{name}:{error}"))?;
    let (outcome, diagram) = schedule.run().map_err(|error| format!("{name}: {error}"))?;
    print(&outcome.history);
    print(diagram);
    outcome.history.violations().for_each(line);
    Ok(ExitCode::from(u8::from(!outcome.is_good())))
}

/// Searches all scopes, each on one processor.
fn search_all(scopes: Vec<Scope>, arguments: &Arguments) -> ExitCode {
    let bars = MultiProgress::new();
    let broken = in_parallel(scopes, |scope| {
        let bar = bars.add(ProgressBar::new_spinner());
        let report = search(&scope, arguments.budget, |report| {
            bar.set_message(report.to_string());
            bar.tick();
        });
        bar.finish_and_clear();
        bars.suspend(|| conclude(&report));
        report.found.is_some()
    });
    ExitCode::from(u8::from(broken > 0))
}

/// Prints the result of a search, and keeps the schedule that breaks a rule.
fn conclude(report: &Report) {
    if let Some(Found { rule, schedule }) = &report.found {
        let kept = match keep(rule, schedule) {
            Ok(file) => format!("replay: {COMMAND} --schedule {}", file.display()),
            Err(error) => format!("its schedule is not kept: {error}; it is {schedule:?}"),
        };
        line(format_args!("{}: {rule} ({kept})", report.scope));
    }
    line(report);
}

fn keep(rule: &str, schedule: &Schedule) -> Result<PathBuf, String> {
    let (_, diagram) = schedule.run()?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/exhaust");
    let plant = schedule.plant.iter().map(|plant| format!("-{plant}"));
    let file = directory.join(schedule.scope.clone() + &plant.collect::<String>() + ".ron");
    let written = fs::create_dir_all(&directory)
        .and_then(|()| fs::write(&file, schedule.to_ron(rule, &diagram)));
    written.map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

/// Searches each scope for the planted faults that it must find.
fn find_plants(scopes: Vec<Scope>, budget: Option<Duration>) -> ExitCode {
    let with_plant = |scope: Scope| {
        let finds = scope.finds.clone().into_iter();
        finds.map(move |plant| {
            let mut scope = scope.clone();
            scope.plan.plant = Some(plant);
            scope
        })
    };
    let missed = in_parallel(scopes.into_iter().flat_map(with_plant).collect(), |scope| {
        let report = search(&scope, budget, |_| {});
        let text = match &report.found {
            Some(Found { rule, .. }) => format!("after {} schedules: {rule}", report.schedules),
            None => format!("not found: {report}"),
        };
        let plant = scope.plan.plant.as_deref().unwrap_or_default();
        line(format_args!("{:<26} {plant:<26} {text}", scope.name));
        report.found.is_none()
    });
    line(format_args!("{missed} planted faults were not found"));
    ExitCode::from(u8::from(missed > 0))
}
