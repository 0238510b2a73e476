//! `cargo xtask exhaust`: runs scopes in every order.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    thread,
    time::Duration,
};

use clap::Parser;
use docent_sim::{
    exhaust::{Found, Report, Schedule, Scope, search},
    faults::planted::{ENDLESS_LOOP, PLANTS, Plant},
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
    after_help = "Exit codes:\n  0   no rule was broken\n  1   a rule was broken, or a planted fault was not found\n  \
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
    /// Plant a fault into docent, which a scope must find
    #[arg(long, value_name = "NAME", value_parser = usage::plant, conflicts_with = "plants")]
    plant: Option<&'static str>,
    /// Search for each planted fault in one scope after the other, by default the quick ones
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
                find_plants(&scopes, arguments.budget)
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
    let are_quick = arguments.quick || arguments.plants && arguments.scopes.is_empty();
    scopes.retain(|scope| scope.quick || !are_quick);
    for scope in &mut scopes {
        scope.plan.plant = arguments.plant.map(str::to_owned);
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

/// Calls `each` with all items, on all processors.
fn in_parallel<T: Send>(items: Vec<T>, each: impl Fn(T) + Sync) {
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().expect("no panic while it is locked").next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(item) = next() {
                    each(item);
                }
            });
        }
    });
}

/// Searches all scopes, each on one processor.
fn search_all(scopes: Vec<Scope>, arguments: &Arguments) -> ExitCode {
    let (bars, broken) = (MultiProgress::new(), Mutex::new(false));
    let breaks = |rule: &str| breaks(arguments.plant, rule);
    in_parallel(scopes, |scope| {
        let bar = bars.add(ProgressBar::new_spinner());
        let report = search(&scope, arguments.budget, breaks, |report| {
            bar.set_message(report.to_string());
            bar.tick();
        });
        bar.finish_and_clear();
        bars.suspend(|| conclude(&report));
        *broken.lock().expect("no panic while it is locked") |= report.found.is_some();
    });
    ExitCode::from(u8::from(broken.into_inner().expect("no panic while it is locked")))
}

fn breaks(plant: Option<&str>, rule: &str) -> bool {
    PLANTS.iter().find(|known| Some(known.name) == plant).is_none_or(|plant| plant.breaks(rule))
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

/// Searches for each planted fault, in one scope after the other.
fn find_plants(scopes: &[Scope], budget: Option<Duration>) -> ExitCode {
    let plants: Vec<_> = PLANTS.iter().filter(|plant| plant.name != ENDLESS_LOOP).collect();
    let (count, found) = (plants.len(), Mutex::new(0));
    in_parallel(plants, |plant| {
        let text = find_plant(plant, scopes, budget);
        *found.lock().expect("no panic while it is locked") += usize::from(text.is_some());
        let text = text.unwrap_or_else(|| "in no scope".to_owned());
        line(format_args!("{:<26} {text}", plant.name));
    });
    let found = found.into_inner().expect("no panic while it is locked");
    line(format_args!("{count} planted faults, {found} found"));
    ExitCode::from(u8::from(found == 0))
}

/// The first scope that finds a planted fault.
fn find_plant(plant: &Plant, scopes: &[Scope], budget: Option<Duration>) -> Option<String> {
    scopes.iter().find_map(|scope| {
        let mut scope = scope.clone();
        scope.plan.plant = Some(plant.name.to_owned());
        let report = search(&scope, budget, |rule| plant.breaks(rule), |_| {});
        let Found { rule, .. } = report.found?;
        Some(format!("{}, after {} schedules: {rule}", scope.name, report.schedules))
    })
}
