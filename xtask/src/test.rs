//! `cargo xtask test`: every test there is, against a real ZooKeeper and Curator.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::ToSocketAddrs as _;
use std::process::{ExitCode, Stdio};
use std::{env, fs};

use xtask::{Result, Server, Settings, TemporaryDirectory, four_letter_word};

use crate::compose::Container;
use crate::packages;
use crate::tally::Tally;
use crate::workspace::{cargo, is_ci, root};

/// Runs the tests; prints `N passed, N failed, N skipped` last.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (hermetic, arguments) = take_hermetic(arguments);
    let real = if hermetic {
        println!("xtask: only the hermetic tests, as asked");
        None
    } else {
        match Real::prepare() {
            Ok(real) => Some(real),
            Err(reason) => {
                println!("xtask: no real ZooKeeper, so only the hermetic tests: {reason}");
                None
            }
        }
    };

    let directory = TemporaryDirectory::new("test")?;
    let skips = directory.path().join("skips");
    let mut environment = vec![("DOCENT_TEST_SKIPS", skips.clone().into_os_string())];
    if let Some(real) = &real {
        println!("xtask: real server: {} at {}", real.version(), real.connect);
        environment.push(("DOCENT_TEST_CONNECT", real.connect.clone().into()));
        if let Some(class_path) = &real.class_path {
            environment.push(("DOCENT_TEST_CURATOR_CLASSPATH", class_path.clone()));
        }
    }
    if !hermetic {
        match packages::kazoo() {
            Ok(Some(directory)) => environment.push(("PYTHONPATH", directory.into())),
            Ok(None) => {}
            Err(reason) => println!("xtask: no tests with kazoo: {reason}"),
        }
    }

    let mut tally = Tally::default();
    let mut success =
        build_examples(&arguments)? && cargo_test(&arguments, environment, &mut tally)?;
    if let (Some(real), true) = (&real, arguments.is_empty()) {
        println!("xtask: the tests that have a choice once more, on the embedded server");
        let class_path = real.class_path.iter().cloned();
        let environment = class_path.map(|path| ("DOCENT_TEST_CURATOR_CLASSPATH", path)).collect();
        success &= cargo_test(&on_the_embedded_server(), environment, &mut tally)?;
    }
    let lacks_real_server = real.is_none();
    drop(real);

    if !success && tally.failed == 0 {
        println!(
            "xtask: a build failed, or a test ended its whole process: counted as one failure"
        );
        tally.failed = 1;
    }
    let skips = fs::read_to_string(&skips).unwrap_or_default();
    tally.skip(skips.lines().count());
    if !skips.is_empty() {
        println!("\nskipped:");
        skips.lines().for_each(|skip| println!("  {skip}"));
    }
    let incomplete = is_ci() && (tally.skipped > 0 || lacks_real_server);
    if incomplete {
        println!("xtask: CI is set, so nothing may be skipped");
    }
    println!("{tally}");
    Ok(if tally.failed > 0 || incomplete { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A real server for the tests of one run.
struct Real {
    connect: String,
    /// The jars, if there are any: with them the tests start Curators and servers of their own.
    class_path: Option<OsString>,
    /// Ends with us.
    _server: Option<Keeper>,
}

/// What runs the server, if we started it.
#[expect(dead_code, reason = "held for its drop")]
enum Keeper {
    Process(Box<Server>),
    Container(Container),
}

impl Real {
    /// Takes the first that can be had: the server we were told of, Java's, the container's.
    fn prepare() -> Result<Self> {
        let java = packages::java();
        let class_path = java.as_ref().ok().map(|java| java.class_path().to_os_string());
        if let Ok(connect) = env::var("DOCENT_TEST_CONNECT") {
            if let Err(reason) = &java {
                println!("xtask: no tests with Curator: {reason}");
            }
            return Ok(Self { connect, class_path, _server: None });
        }
        let reason = match java {
            Ok(java) => {
                let server = Server::start(&java, Settings::default())?;
                let connect = server.address().to_string();
                let server = Some(Keeper::Process(Box::new(server)));
                return Ok(Self { connect, class_path, _server: server });
            }
            Err(reason) => reason,
        };
        let container = Container::start().map_err(|docker| format!("{reason}; {docker}"))?;
        println!("xtask: no tests with Curator: {reason}");
        let connect = container.address().to_string();
        Ok(Self { connect, class_path, _server: Some(Keeper::Container(container)) })
    }

    /// The server's own words, or that it does not say.
    fn version(&self) -> String {
        let first = self.connect.split([',', '/']).next().unwrap_or_default();
        let address = first.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        let answer = address.and_then(|address| four_letter_word(address, "srvr").ok());
        let version = answer.as_deref().and_then(|answer| {
            answer.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))
        });
        let version = version.map_or("of unknown version", |v| v.split('-').next().unwrap_or(v));
        format!("ZooKeeper {version}")
    }
}

/// The tests whose bodies run on either server. What they skip without a real one has run before.
fn on_the_embedded_server() -> Vec<String> {
    let tests = ["interop", "mutex", "trace_parity", "examples"];
    let choice = tests.iter().flat_map(|test| ["--test", test]);
    ["--package", "docent"].into_iter().chain(choice).map(str::to_owned).collect()
}

/// Tests start examples as programs, but cargo builds no example when asked for one test.
fn build_examples(arguments: &[String]) -> Result<bool> {
    if !root().join("examples").is_dir() {
        return Ok(true);
    }
    let mut command = cargo();
    command.args(["build", "--quiet", "--workspace", "--examples"]);
    if arguments.iter().any(|argument| argument == "--release") {
        command.arg("--release");
    }
    Ok(command.status()?.success())
}

/// Runs cargo test with its output passed on and counted.
fn cargo_test(
    arguments: &[String],
    environment: Vec<(&str, OsString)>,
    tally: &mut Tally,
) -> Result<bool> {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast"]);
    if !arguments.iter().any(|argument| argument == "-p" || argument.starts_with("--package")) {
        command.arg("--workspace");
    }
    // Only what this run knows: a hermetic run must not find a server in its own environment.
    command.env_remove("DOCENT_TEST_CONNECT").env_remove("DOCENT_TEST_CURATOR_CLASSPATH");
    command.args(arguments).envs(environment).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let output = child.stdout.take().ok_or("cargo test without an output")?;
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        io::stdout().write_all(&line)?;
        tally.add_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// Takes our own flag out of what goes to cargo test.
fn take_hermetic(arguments: &[String]) -> (bool, Vec<String>) {
    let (mut ours, rest) = match arguments.iter().position(|argument| argument == "--") {
        Some(end) => (arguments.get(..end).unwrap_or_default().to_vec(), arguments.get(end..)),
        None => (arguments.to_vec(), None),
    };
    let before = ours.len();
    ours.retain(|argument| argument != "--hermetic");
    let hermetic = ours.len() < before;
    ours.extend(rest.unwrap_or_default().iter().cloned());
    (hermetic, ours)
}

#[cfg(test)]
mod tests {
    use super::take_hermetic;

    #[test]
    fn only_our_own_flag_is_taken() {
        let arguments = ["--hermetic", "--test", "x", "--", "--hermetic"].map(String::from);
        let (hermetic, rest) = take_hermetic(&arguments);
        assert!(hermetic);
        assert_eq!(rest, ["--test", "x", "--", "--hermetic"]);
    }
}
