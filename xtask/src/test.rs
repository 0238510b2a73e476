//! `cargo xtask test`: runs all tests, against a real ZooKeeper and Curator.

use std::ffi::OsString;
use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use xtask::{EXAMPLES_BUILT, Result, Server, Settings, TemporaryDirectory, four_letter_word};

use crate::compose::Container;
use crate::programs::{Background, Priority, Programs, without};
use crate::summary::Summary;
use crate::{chaos, packages, sim, threads};
use xtask::workspace::{cargo, is_ci, root};

/// Runs the tests. Its last lines are the failures, the duration, and `N passed, N failed, N skipped`.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let start = Instant::now();
    let (hermetic, mut arguments) = take_hermetic(arguments);
    // All packages before the first test: fetching them executes this program again.
    if !hermetic && arguments.is_empty() {
        packages::fetch_all();
    }
    let kerberos = packages::kerberos();
    let lacks_kerberos = kerberos.is_err();
    if let Err(reason) = &kerberos {
        println!("xtask: no tests with Kerberos, and no build of docent-gssapi: {reason}");
    }
    if !hermetic {
        // The server says what is missing.
        let _ = packages::java();
    }
    let has_gssapi = kerberos.is_ok();
    let mut summary = Summary::default();
    // Built before the server and chaos start: for processors and disk, their answers would wait too long.
    let simulator =
        arguments.is_empty().then(|| Background::start(Priority::Lowest, build_simulator));
    let mut success = build(&arguments, has_gssapi, &mut summary)?;
    if let Some(simulator) = simulator {
        // What cannot be built fails again when it is tested: the other tests run all the same.
        simulator.end(&mut summary)?;
    }
    let simulator =
        arguments.is_empty().then(|| Background::start(Priority::Lowest, test_simulator));
    let mut no_server = None;
    let server = if hermetic {
        println!("xtask: --hermetic: only tests that need no real ZooKeeper");
        None
    } else {
        match RealServer::start() {
            Ok(server) => Some(server),
            Err(reason) => {
                let text =
                    format!("xtask: no real ZooKeeper, so only the hermetic tests: {reason}");
                println!("{text}");
                no_server = Some(text);
                None
            }
        }
    };

    let directory = TemporaryDirectory::new("test")?;
    let skips = directory.path().join("skips");
    let mut environment =
        vec![("DOCENT_TEST_SKIPS", skips.clone().into_os_string()), (EXAMPLES_BUILT, "1".into())];
    if let Some(server) = &server {
        println!("xtask: real server: {} at {}", server.version(), server.connect);
        environment.push(("DOCENT_TEST_CONNECT", server.connect.clone().into()));
        if let Some(class_path) = &server.class_path {
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

    // Beside the tests: all of them mostly wait.
    let chaos = simulator.is_some().then(|| start_chaos(hermetic));
    let waiting = (success && simulator.is_some()).then(|| {
        arguments.extend(without(WAITING, ""));
        let (environment, embedded) = (environment.clone(), server.as_ref().map(on_embedded));
        Background::start(Priority::Usual, move |programs, summary| {
            let waiting = targets(&WAITING);
            let mut success = cargo_test(programs, &waiting, has_gssapi, environment, summary)?;
            if let Some(environment) = embedded {
                success &= test_on_the_embedded_server(programs, environment, has_gssapi, summary)?;
            }
            Ok(success)
        })
    });
    let tested = if success {
        cargo_test(&Programs::Foreground, &arguments, has_gssapi, environment, &mut summary)
    } else {
        Ok(false)
    };
    let waited = waiting.map_or(Ok(true), |waiting| waiting.end(&mut summary));
    // Before an error of the tests is returned: otherwise chaos would go on.
    let no_chaos = chaos.and_then(|chaos| end_chaos(chaos, &mut summary, &mut success));
    success &= tested? & waited?;
    if let Some(simulator) = simulator {
        success &= simulator.end(&mut summary)? & test_lab_page(&skips, &mut summary)?;
    }
    let lacks_real_server = server.is_none();
    drop(server);

    if !success && summary.failed == 0 {
        println!("xtask: a build failed, or a test process ended early: counted as one failure");
        summary.failed = 1;
    }
    let skips = fs::read_to_string(&skips).unwrap_or_default();
    summary.skip(skips.lines().count());
    if !skips.is_empty() {
        println!("\nskipped:");
        skips.lines().for_each(|skip| println!("  {skip}"));
    }
    print!("{}", summary.failures());
    if let Some(no_server) = no_server {
        println!("{no_server}");
    }
    if let Some(no_chaos) = no_chaos {
        println!("{no_chaos}");
    }
    let incomplete = is_ci() && (summary.skipped > 0 || lacks_real_server || lacks_kerberos);
    if incomplete {
        println!("xtask: CI is set, so a skipped test is a failure");
    }
    println!("xtask: took {}", minutes(start.elapsed()));
    println!("{summary}");
    Ok(if summary.failed > 0 || incomplete { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Formats a duration as `9 s` or `12 min 9 s`.
fn minutes(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// A real server for the tests of one run.
struct RealServer {
    connect: String,
    /// The jars, if they are installed. The tests need them for Curator processes and further servers.
    class_path: Option<OsString>,
    /// Stops the server on drop, if this run has started it.
    _owned: Option<OwnedServer>,
}

/// A server that this run started.
#[expect(dead_code, reason = "held for its drop")]
enum OwnedServer {
    Process(Box<Server>),
    Container(Container),
}

impl RealServer {
    /// Uses the server of `DOCENT_TEST_CONNECT`, or starts one with Java, or else in a container.
    fn start() -> Result<Self> {
        let java = packages::java();
        let class_path = java.as_ref().ok().map(|java| java.class_path().to_os_string());
        if let Ok(connect) = env::var("DOCENT_TEST_CONNECT") {
            if let Err(reason) = &java {
                println!("xtask: no tests with Curator: {reason}");
            }
            return Ok(Self { connect, class_path, _owned: None });
        }
        let reason = match java {
            Ok(java) => {
                let server = Server::start(&java, Settings::default())?;
                let connect = server.address().to_string();
                let server = Some(OwnedServer::Process(Box::new(server)));
                return Ok(Self { connect, class_path, _owned: server });
            }
            Err(reason) => reason,
        };
        let container = Container::start().map_err(|docker| format!("{reason}; {docker}"))?;
        println!("xtask: no tests with Curator: {reason}");
        let connect = container.address().to_string();
        Ok(Self { connect, class_path, _owned: Some(OwnedServer::Container(container)) })
    }

    /// Returns the version that the server reports.
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

/// Runs the tests that run on either server on the embedded one. Those that need a real server are skipped here; they run in
/// the other lane. Of all packages: of one, other features would be built.
fn test_on_the_embedded_server(
    programs: &Programs,
    environment: Vec<(&'static str, OsString)>,
    has_gssapi: bool,
    summary: &mut Summary,
) -> Result<bool> {
    programs.title("the tests that run on either server, now on the embedded one")?;
    let mut arguments = targets(&["locks", "parity", "repository"]);
    let filters = ["--", "interop::", "locks_send_curators_frames", "lock_holds_25_times_without"];
    arguments.extend(filters.map(str::to_owned));
    cargo_test(programs, &arguments, has_gssapi, environment, summary)
}

/// The environment of tests on the embedded server.
fn on_embedded(server: &RealServer) -> Vec<(&'static str, OsString)> {
    let class_path = server.class_path.iter().cloned();
    let class_path = class_path.map(|path| ("DOCENT_TEST_CURATOR_CLASSPATH", path));
    class_path.chain([(EXAMPLES_BUILT, "1".into())]).collect()
}

/// Test programs that wait most of the time. They run beside the others.
const WAITING: [&str; 2] = ["chaos", "ensemble"];

/// The arguments that select test programs.
fn targets(names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| ["--test", name]).map(str::to_owned).collect()
}

/// Builds all that is tested, or for a part of the tests the examples: tests start them as programs, and cargo does not build
/// them for a single test.
fn build(arguments: &[String], has_gssapi: bool, summary: &mut Summary) -> Result<bool> {
    let mut command = cargo();
    if arguments.is_empty() {
        command.args(["test", "--no-run"]);
    } else {
        command.args(["build", "--examples"]);
    }
    command.args(["--quiet", "--workspace"]);
    if !has_gssapi {
        command.args(["--exclude", packages::GSSAPI]);
    }
    if arguments.iter().any(|argument| argument == "--release") {
        command.arg("--release");
    }
    Programs::Foreground.run(command, summary)
}

/// Runs `cargo test`, forwards its output and adds it to the summary.
fn cargo_test(
    programs: &Programs,
    arguments: &[String],
    has_gssapi: bool,
    environment: Vec<(&'static str, OsString)>,
    summary: &mut Summary,
) -> Result<bool> {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast"]);
    if !arguments.iter().any(|argument| argument == "-p" || argument.starts_with("--package")) {
        command.arg("--workspace");
        if !has_gssapi {
            command.args(["--exclude", packages::GSSAPI]);
        }
    }
    // A hermetic run must not use a server from the caller's environment.
    command.env_remove("DOCENT_TEST_CONNECT").env_remove("DOCENT_TEST_CURATOR_CLASSPATH");
    command.args(arguments).envs(environment);
    if env::var_os("RUST_TEST_THREADS").is_none() {
        // Most tests wait for servers and timeouts: with two for each processor, half of its time was idle.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (4 * processors).to_string());
    }
    programs.run(command, summary)
}

/// Runs the TLS test with aws-lc-rs, the crypto provider that the workspace is not built with.
fn test_aws_lc_rs(programs: &Programs, summary: &mut Summary) -> Result<bool> {
    programs.title("TLS by aws-lc-rs")?;
    let options = "test --package docent-session --features tls-aws-lc-rs,docent-testing/tls-aws-lc-rs --test tls_providers";
    let mut command = cargo();
    command.args(options.split(' '));
    programs.run(command, summary)
}

/// Builds what [`test_simulator`] runs, in the profile of development: to optimise more takes minutes, and saves less than a
/// minute of the runs.
fn build_simulator(programs: &Programs, summary: &mut Summary) -> Result<bool> {
    let mut success = true;
    for mut command in [sim::cargo_in_sim(), threads::cargo_in_threads()] {
        command.args(["test", "--workspace", "--locked", "--no-run"]);
        success &= programs.run(command, summary)?;
    }
    Ok(success)
}

/// Runs the tests of the simulator, then its default seeds and the quick scopes; each of these two counts as one test. Then
/// the quick part of the threads, which is a test; then what takes a build of its own.
fn test_simulator(programs: &Programs, summary: &mut Summary) -> Result<bool> {
    programs.title("the simulator: its tests, 2,000 seeds, and the quick scopes in every order")?;
    let mut command = sim::cargo_in_sim();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    let mut success = programs.run(command, summary)?;
    for (name, arguments) in
        [("cargo xtask sim", &[][..]), ("cargo xtask exhaust --quick", &["exhaust", "--quick"])]
    {
        let mut simulator = sim::built_with_the_tests("docent-sim");
        simulator.args(arguments);
        let is_good = programs.run(simulator, summary)?;
        summary.add_run(name, is_good);
        success &= is_good;
    }
    programs.title("the threads of small scenarios, in few orders")?;
    let mut command = threads::cargo_in_threads();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    success &= programs.run(command, summary)? & test_aws_lc_rs(programs, summary)?;
    let mut page = test_of_lab_page();
    page.arg("--no-run");
    Ok(success & programs.run(page, summary)?)
}

/// The test of the lab's page in a browser, with the lab that was built with the simulator.
fn test_of_lab_page() -> Command {
    let mut command = sim::cargo_in("lab/browser");
    // Most of its dependencies are built there.
    command.env("CARGO_TARGET_DIR", root().join("target"));
    command.env("DOCENT_LAB", root().join("sim/target/debug/docent-lab"));
    command.args(["test", "--locked"]);
    command
}

/// Runs the test of the lab's page alone: a browser on a busy machine is slow.
fn test_lab_page(skips: &Path, summary: &mut Summary) -> Result<bool> {
    println!("xtask: the page of the lab in a browser");
    let mut command = test_of_lab_page();
    command.env("DOCENT_TEST_SKIPS", skips);
    Programs::Foreground.run(command, summary)
}

/// Starts two minutes of chaos, or says what this machine lacks for it.
fn start_chaos(hermetic: bool) -> Result<Child> {
    if hermetic {
        return Err("--hermetic".into());
    }
    if cfg!(not(target_os = "linux")) {
        return Err("it needs Linux".into());
    }
    chaos::requirements()?;
    println!("xtask: two minutes of chaos with a real ensemble, beside the tests");
    chaos::start()
}

/// Waits for the run of chaos, which counts as one test. If it was not started, counts it as skipped and returns the
/// reason.
fn end_chaos(chaos: Result<Child>, summary: &mut Summary, success: &mut bool) -> Option<String> {
    match chaos.and_then(|mut run| Ok(run.wait()?.success())) {
        Ok(is_good) => {
            summary.add_run("cargo xtask chaos", is_good);
            *success &= is_good;
            None
        }
        Err(missing) => {
            summary.skip_run();
            Some(format!("xtask: skipped: cargo xtask chaos: {missing}"))
        }
    }
}

/// Separates `--hermetic` from the arguments of `cargo test`.
fn take_hermetic(arguments: &[String]) -> (bool, Vec<String>) {
    let (mut own, rest) = match arguments.iter().position(|argument| argument == "--") {
        Some(end) => (arguments.get(..end).unwrap_or_default().to_vec(), arguments.get(end..)),
        None => (arguments.to_vec(), None),
    };
    let before = own.len();
    own.retain(|argument| argument != "--hermetic");
    let hermetic = own.len() < before;
    own.extend(rest.unwrap_or_default().iter().cloned());
    (hermetic, own)
}
