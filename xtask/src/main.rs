//! The development tasks of the project: `cargo xtask COMMAND`. Each command has a module of the same name, except that
//! `bench` has both benchmarks.

mod api;
mod bench;
mod chaos;
mod check;
mod compose;
mod debian;
mod deny;
mod exhaust;
mod faults;
mod guide;
mod mutants;
mod packages;
mod programs;
mod report;
mod semver;
mod server;
mod sim;
mod summary;
mod test;
mod threads;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check [--but-lints]       check format, lints, documentation and dependencies, without tests
                            --but-lints: without the lints of the tests, for a build of them that lints
  test [--hermetic] [ARGS]  run all tests; starts a real ZooKeeper and Curator for them
                            --hermetic: only tests that need neither; ARGS are passed to cargo test
  bench [--quick]           compare docent with other clients and write docs/BENCHMARKS.md; uses
                            valgrind, strace, a real ZooKeeper and libzookeeper-mt-dev if installed
  bench cache [--quick]     compare docent's cache with Curator's, on a real ZooKeeper; writes its
                            section of docs/BENCHMARKS.md (--quick: prints it)
  bench holds [--quick]     compare holds whose end is proven with plain ones, in the same way
  bench-locks [--quick] [SERVICE...]
                            compare lock services, on servers that it fetches and starts, and write
                            docs/LOCK-SERVICES.md; --fault NAME --service SERVICE [--rounds N]: one fault
  api                       write the lists of the public API, docs/api, which a test compares
  guide                     record the diagrams of docs/guide and build the book (with mdbook)
  packages                  fetch the Debian packages that the tests need, without root, into target
  package                   build each published crate from its own archive
  mutants [FILES]           test the tests: run them against changed files, by default those of the
                            core (hours); installs cargo-mutants; exceptions in .cargo/mutants.toml
  faults [NAME...] [--seeds N]
                            plant each fault of sim/faults into a copy, and count which the simulator finds
                            within N seeds, by default 1,000, and which the tests find (hours)
  sim [OPTIONS]             simulate clients, servers and faults in virtual time (docs/SIMULATION.md);
                            without options seeds 1..2000; --help lists the options
  exhaust [SCOPE...] [OPTIONS]
                            run the small scenarios of sim/scopes in every order of messages and faults;
                            --help lists the options
  threads [SCENARIO...] [OPTIONS]
                            run the threads of small scenarios in random orders, and in all with at most three
                            preemptions; --help lists the options
  chaos [--minutes N] [--seed S] [--members 3|5] [--report DIR] [--plan]
                            cut, stop and kill a real ensemble and its clients, and judge what they
                            report (docs/CHAOS.md); needs root; --plan only prints the faults
  chaos --picture FILE      draw belief and truth of plain and proven holds, from a run with one fault
  server [--port N]         run a real ZooKeeper until the end of standard input

environment of test:
  DOCENT_TEST_CONNECT=HOST:PORT   use this server instead of starting one
  DOCENT_JAVA_LIB=DIRECTORY       directory of the jars of ZooKeeper and Curator (default: Debian's)
  DOCENT_CHAOS_SERVER_LIB=DIRECTORY  directory of the jars of other servers, for chaos
  CI=true                         a skipped test is a failure";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(outcome) = xtask::as_wrapper(&arguments) {
        return outcome.unwrap_or(ExitCode::FAILURE);
    }
    if let Err(error) = debian::reexec_with_groups() {
        eprintln!("xtask: {error}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first().map(|(name, rest)| (name.as_str(), rest)) {
        Some(("api", [])) => api::run(),
        Some(("bench", rest)) => bench::run(rest),
        Some(("chaos", rest)) => chaos::run(rest),
        Some(("bench-locks", rest)) => bench::run_locks(rest),
        Some(("check", [])) => check::run(true),
        Some(("check", [option])) if option == "--but-lints" => check::run(false),
        Some(("exhaust", rest)) => exhaust::run(rest),
        Some(("faults", rest)) => faults::run(rest),
        Some(("guide", rest)) => guide::run(rest),
        Some(("packages", [])) => {
            packages::fetch_all();
            Ok(ExitCode::SUCCESS)
        }
        Some(("package", [])) => check::package(),
        Some(("mutants", rest)) => mutants::run(rest),
        Some(("test", rest)) => test::run(rest),
        Some(("threads", rest)) => threads::run(rest),
        Some(("server", rest)) => server::run(rest),
        Some(("sim", rest)) => sim::run(rest),
        _ => Ok(usage()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}

/// Prints the usage and returns the exit code for wrong arguments.
fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
