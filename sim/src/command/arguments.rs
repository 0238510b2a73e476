//! The command line: runs seeds, scenarios and histories, and prints the results.

use std::{
    ffi::OsString,
    fs,
    num::NonZeroUsize,
    ops::{ControlFlow, RangeInclusive},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use docent_sim::{
    Plan,
    run::{
        batch::{self, Options, Planner},
        diagram,
    },
    world::{catch_panics, history::History},
};

use crate::{
    output::{conclude, line, print, progress},
    plants::{self, planner},
    shrink, usage,
};

const COMMAND: &str = "cargo xtask sim";

/// The seeds of a run without options.
const DEFAULT_SEEDS: RangeInclusive<u64> = 1..=2_000;

/// The number of records of a hanging seed that are printed on standard error.
const LAST_RECORDS: usize = 20;

#[derive(Debug, Parser)]
#[command(
    name = COMMAND,
    about = "Simulates clients, servers and a network in virtual time, with faults. A seed decides everything.\n\
             Without an option: seeds 1..2000. The guide is docs/SIMULATION.md.",
    after_help = "Exit codes:\n  0   no rule was broken\n  1   a rule was broken, a task panicked or hung\n  \
                  64  wrong usage: an option, a number, a scenario that does not parse",
    max_term_width = 100
)]
struct Arguments {
    /// Run these seeds, both ends included
    #[arg(long, value_name = "FIRST..LAST", value_parser = usage::seeds, group = "subject")]
    seeds: Option<RangeInclusive<u64>>,
    /// Run one seed
    #[arg(long, value_name = "N", group = "subject")]
    seed: Option<u64>,
    /// Run a plan from a file
    #[arg(long, value_name = "FILE", group = "subject")]
    scenario: Option<PathBuf>,
    /// Print the shortest plan that breaks the same rule as this seed, as a scenario
    #[arg(long, value_name = "N", group = "subject", conflicts_with = "trace")]
    shrink: Option<u64>,
    /// Run every planted fault until it is found; fails if one is not
    #[arg(long, group = "subject", conflicts_with_all = ["trace", "plant"])]
    plants: bool,
    /// List the planted faults
    #[arg(long, group = "subject", conflicts_with_all = ["trace", "plant", "threads"])]
    list_plants: bool,
    /// Judge the history of a run on real servers, which `cargo xtask chaos` has written
    #[arg(long, value_name = "FILE", group = "subject", conflicts_with_all = ["trace", "plant", "threads"])]
    judge: Option<PathBuf>,
    /// Print the history of each seed
    #[arg(long)]
    trace: bool,
    /// Stop behind the first seed that breaks a rule
    #[arg(long, conflicts_with_all = ["shrink", "plants", "list_plants", "judge"])]
    until_broken: bool,
    /// Print requests, replies and events too
    #[arg(long, requires = "trace")]
    frames: bool,
    /// Print a sequence diagram of each seed, in Mermaid's language
    #[arg(long, conflicts_with_all = ["trace", "shrink", "plants", "list_plants"])]
    diagram: bool,
    /// Plant a fault into docent, which the simulator must find
    #[arg(long, value_name = "NAME", value_parser = usage::plant)]
    plant: Option<&'static str>,
    /// Give all servers this version, such as 3.5
    #[arg(long, value_name = "VERSION", value_parser = usage::version, conflicts_with = "plants")]
    servers: Option<String>,
    /// The number of threads [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Real time after which a seed counts as hanging, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    hang_after: u64,
}

impl Arguments {
    fn options(&self) -> Options {
        let mut options = Options {
            hang_after: Duration::from_secs(self.hang_after),
            keeps_histories: self.trace || self.diagram,
            shows_frames: self.frames || self.diagram,
            ..Options::default()
        };
        if let Some(threads) = self.threads {
            options.threads = threads.get();
        }
        options
    }

    fn planner(&self) -> Planner {
        planner(self.plant, self.servers.clone())
    }
}

/// Runs the command.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return usage::report(COMMAND, &error),
    };
    catch_panics();
    let done = if arguments.list_plants {
        Ok(plants::list())
    } else if let Some(file) = &arguments.judge {
        judge_file(file)
    } else if arguments.plants {
        Ok(plants::find_all(arguments.options()))
    } else if let Some(seed) = arguments.shrink {
        shrink::run(seed, &arguments.planner(), arguments.options())
    } else {
        simulate(&arguments)
    };
    done.unwrap_or_else(|text| usage::refuse(COMMAND, &text))
}

/// Judges a history and prints the judgement.
fn judge_file(file: &std::path::Path) -> Result<ExitCode, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let judgement = docent_judge::judge(&text).map_err(|error| format!("{name}: {error}"))?;
    print(&judgement);
    Ok(ExitCode::from(u8::from(!judgement.violations.is_empty())))
}

/// Runs seeds or a scenario.
fn simulate(arguments: &Arguments) -> Result<ExitCode, String> {
    let plant = arguments.plant;
    let (seeds, planner, replay): (_, Planner, _) = match &arguments.scenario {
        Some(file) => {
            let mut plan = read(file)?;
            if let Some(plant) = plant {
                plan.plant = Some(plant.to_owned());
            }
            if arguments.servers.is_some() {
                plan.servers.version.clone_from(&arguments.servers);
            }
            let replay = format!("--scenario {}", file.display());
            (plan.seed..=plan.seed, Arc::new(move |_| plan.clone()), Some(replay))
        }
        None => {
            let of_seed = arguments.seed.map(|seed| seed..=seed);
            let seeds = of_seed.or_else(|| arguments.seeds.clone()).unwrap_or(DEFAULT_SEEDS);
            (seeds, arguments.planner(), None)
        }
    };
    let progress = progress(seeds.end().saturating_sub(*seeds.start()).saturating_add(1));
    let totals = batch::run(seeds, &planner, arguments.options(), |seed, outcome| {
        progress.inc(1);
        progress.suspend(|| {
            if arguments.diagram {
                let plan = planner(seed);
                let (processes, servers) = (plan.processes.len(), plan.servers.count);
                print(diagram::draw(&outcome.history, processes, servers));
            }
            if arguments.trace {
                print(&outcome.history);
            }
            let mut replay = replay.clone().unwrap_or_else(|| format!("--seed {seed}"));
            replay.extend(plant.map(|plant| format!(" --plant {plant}")));
            replay.extend(arguments.servers.iter().map(|version| format!(" --servers {version}")));
            for text in outcome.history.violations() {
                line(format_args!(
                    "seed {seed}: {text} (replay: cargo xtask sim {replay} --trace)"
                ));
                if text.starts_with("hang: ") && !arguments.trace {
                    print_end(&outcome.history);
                }
            }
        });
        if arguments.until_broken && outcome.history.violations().next().is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    progress.finish_and_clear();
    for (excuse, seeds) in &totals.excuses {
        eprintln!("cargo xtask sim: excused in {seeds} seeds by {excuse}");
    }
    Ok(conclude(totals))
}

/// A hanging seed cannot be replayed to its end, so the end of its history is shown at once.
fn print_end(history: &History) {
    let skipped = history.records.len().saturating_sub(LAST_RECORDS);
    history.records.iter().skip(skipped).for_each(|record| eprintln!("{record}"));
}

fn read(file: &std::path::Path) -> Result<Plan, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    Plan::from_ron(&text).map_err(|error| format!("{name}:{error}"))
}
