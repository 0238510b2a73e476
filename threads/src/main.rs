//! `cargo xtask threads`: docs/SIMULATION.md is its guide.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use docent_threads::{
    Found, Which, quiet,
    scenarios::{PLANTS, SCENARIOS, Scenario},
    search,
};

use parallel::{in_parallel, thousands};

#[path = "../../sim/src/exhaust/parallel.rs"]
mod parallel;

const COMMAND: &str = "cargo xtask threads";

#[derive(Debug, Parser)]
#[command(
    name = COMMAND,
    about = "Runs the threads of small scenarios in random orders, and in all with few preemptions.\n\
             The guide is docs/SIMULATION.md.",
    after_help = "Exit codes:\n  0   no scenario failed\n  1   a scenario failed, or with --plants a fault was not found\n  \
                  64  wrong usage: an option, a scenario, a schedule that does not parse",
    max_term_width = 100
)]
struct Arguments {
    /// The scenarios [default: all]
    #[arg(value_name = "SCENARIO", value_parser = scenario)]
    scenarios: Vec<&'static Scenario>,
    /// The number of random schedules of each scenario
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    random: u64,
    /// Run all schedules with at most this number of preemptions [default: that of the scenario]
    #[arg(long, value_name = "N")]
    preemptions: Option<u8>,
    /// The part that belongs to the tests: seconds
    #[arg(long, conflicts_with_all = ["random", "preemptions"])]
    quick: bool,
    /// End each of the two searches of each scenario after this time
    #[arg(long, value_name = "MINUTES")]
    budget: Option<f64>,
    /// Plant a fault into docent, which a scenario must find
    #[arg(long, value_name = "NAME", value_parser = plant, conflicts_with = "plants")]
    plant: Option<&'static str>,
    /// Search each scenario for the planted faults that it must find
    #[arg(long)]
    plants: bool,
    /// Run one schedule from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenarios", "quick", "budget", "plant", "plants"])]
    schedule: Option<PathBuf>,
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    let names = SCENARIOS.map(|scenario| scenario.name).join(", ");
    found.ok_or_else(|| format!("the scenarios are {names}"))
}

fn plant(name: &str) -> Result<&'static str, String> {
    let found = PLANTS.into_iter().find(|plant| *plant == name);
    found.ok_or_else(|| format!("the planted faults are {}", PLANTS.join(", ")))
}

fn main() -> ExitCode {
    let mut arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    if arguments.scenarios.is_empty() {
        arguments.scenarios = SCENARIOS.iter().collect();
    }
    quiet();
    if let Some(file) = &arguments.schedule {
        return replay(file).unwrap_or_else(|error| {
            eprintln!("{COMMAND}: {}: {error}", file.display());
            ExitCode::from(64)
        });
    }
    let failures = if arguments.plants { find_plants(&arguments) } else { search_all(&arguments) };
    ExitCode::from(u8::from(failures > 0))
}

/// Searches the scenarios, each on one processor. Returns how many have failed.
fn search_all(arguments: &Arguments) -> usize {
    in_parallel(arguments.scenarios.clone(), |scenario| {
        let start = Instant::now();
        let until = || {
            arguments.budget.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0))
        };
        let random = if arguments.quick { 2_000 } else { arguments.random };
        let bound = if arguments.quick { scenario.quick } else { scenario.full };
        let bound = arguments.preemptions.unwrap_or(bound);
        let mut line = format!("{:<26}", format!("{}:", scenario.name));
        let mut has_failed = false;
        for (which, how) in [
            (Which::Random(random), "random".to_owned()),
            (Which::Bounded(bound), format!("bounded by {bound} preemptions")),
        ] {
            let report = search(scenario, arguments.plant, which.clone(), until());
            let complete = match (report.complete, &which) {
                (false, _) => " not complete,",
                (true, Which::Bounded(_)) => " complete,",
                (true, _) => "",
            };
            let _ = write!(line, " {} {how},{complete}", thousands(report.schedules));
            if let Some(found) = &report.found {
                println!(
                    "{}: {} ({})",
                    scenario.name,
                    found.failure,
                    keep(scenario, arguments.plant, found)
                );
                has_failed = true;
                break;
            }
        }
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        println!("{line} {} failures, {minutes:.1} min", u8::from(has_failed));
        has_failed
    })
}

/// Searches each scenario for the planted faults that it must find. Returns how many it has not.
fn find_plants(arguments: &Arguments) -> usize {
    let scenarios = arguments.scenarios.iter();
    let plants =
        scenarios.flat_map(|scenario| scenario.finds.iter().map(move |plant| (*scenario, *plant)));
    let missed = in_parallel(plants.collect(), |(scenario, plant)| {
        // Schedules with fewer preemptions first.
        let reports = (0..=scenario.full)
            .map(|bound| (bound, search(scenario, Some(plant), Which::Bounded(bound), None)));
        let found = reports.into_iter().find(|(_, report)| report.found.is_some());
        let text = match &found {
            Some((bound, report)) => {
                let found = report.found.as_ref().map_or("", |found| &found.failure);
                format!(
                    "after {} schedules with {bound} preemptions: {found}",
                    thousands(report.schedules)
                )
            }
            None => "NOT FOUND".to_owned(),
        };
        println!("{:<26} {plant:<20} {text}", scenario.name);
        found.is_none()
    });
    println!("{missed} planted faults were not found");
    missed
}

/// Keeps a schedule that fails, and says how to run it again.
fn keep(scenario: &Scenario, plant: Option<&str>, found: &Found) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/threads");
    let file = directory.join(format!("{}.txt", scenario.name));
    let schedule = found.schedule.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    let text =
        format!("{}\n{}\n{schedule}\n{}\n", scenario.name, plant.unwrap_or("-"), found.failure);
    match fs::create_dir_all(directory).and_then(|()| fs::write(&file, &text)) {
        Ok(()) => format!("replay: {COMMAND} --schedule {}", file.display()),
        Err(error) => format!("its schedule is not kept: {error}; it is {schedule}"),
    }
}

/// Runs one schedule: a file with a line each for the scenario, the planted fault or `-`, and the threads in turn.
fn replay(file: &Path) -> Result<ExitCode, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    let mut next = || lines.next().ok_or("a line is missing");
    let scenario = scenario(next()?)?;
    let plant = Some(next()?).filter(|name| *name != "-").map(plant).transpose()?;
    let schedule = next()?.split(' ').map(str::parse).collect::<Result<_, _>>();
    let schedule = schedule.map_err(|error| format!("the schedule: {error}"))?;
    let report = search(scenario, plant, Which::One(schedule), None);
    let failure = report.found.as_ref().map_or("no failure", |found| &found.failure);
    println!("{}: {failure}", scenario.name);
    Ok(ExitCode::from(u8::from(report.found.is_some())))
}
