//! The project's chores: `cargo xtask COMMAND`. One file a command.

mod bench;
mod check;
mod compose;
mod guide;
mod packages;
mod server;
mod tally;
mod test;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check                     format, lints, documentation: what needs no test to run
  test [--hermetic] [ARGS]  every test, against a real ZooKeeper and Curator that this starts;
                            --hermetic: only those that need neither; ARGS go to cargo test
  bench [--quick]           docent beside other clients: budgets, ratios, docs/BENCHMARKS.md; also uses
                            valgrind, strace, a real ZooKeeper and libzookeeper-mt-dev, if there
  guide                     plays the scenes of docs/guide, writes their diagrams, builds the book (mdbook)
  server [--port N]         a real ZooKeeper until the end of standard input

environment of test:
  DOCENT_TEST_CONNECT=HOST:PORT   use this server instead of starting one
  DOCENT_JAVA_LIB=DIRECTORY       the jars of ZooKeeper and Curator (default: where Debian has them)
  CI=true                         a skipped test is a failure";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first().map(|(name, rest)| (name.as_str(), rest)) {
        Some(("bench", rest)) => bench::run(rest),
        Some(("check", [])) => check::run(),
        Some(("guide", rest)) => guide::run(rest),
        Some(("test", rest)) => test::run(rest),
        Some(("server", rest)) => server::run(rest),
        _ => Ok(usage()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}

/// What a command answers that does not understand its arguments.
fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
