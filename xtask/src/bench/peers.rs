//! The measured programs, which all have the command line of `tools/bench_peer`.

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use xtask::{Result, workspace::root};

use super::build as cargo_build;
use xtask::command::succeeds;

/// The longest time of a round, which usually takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A measured program.
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// The workloads that it does not support.
    lacks: &'static [&'static str],
    /// The only workloads that it supports, if limited.
    only: Option<&'static [&'static str]>,
}

/// The measurement of a round.
#[derive(Clone, Copy)]
pub(super) struct Measurement {
    pub(super) us_per_op: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) cpu_us_per_op: f64,
    /// The maximum resident set size, if the program prints it.
    pub(super) max_rss_kib: Option<f64>,
}

impl Peer {
    pub(super) fn supports(&self, workload: &str) -> bool {
        !self.lacks.contains(&workload) && self.only.is_none_or(|only| only.contains(&workload))
    }

    /// Whether it is a client other than docent; `raw` is a lower bound, not a client.
    pub(super) fn is_other_client(&self) -> bool {
        self.name != "docent" && self.name != "raw"
    }

    /// Returns the command to run it under `tool`.
    pub(super) fn command(
        &self,
        tool: &[OsString],
        address: &str,
        workload: &str,
        n: usize,
    ) -> Command {
        let mut words = tool.iter().cloned().chain([self.program.clone().into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args([address, workload, &n.to_string(), "0"])
            .envs(self.environment.iter().copied());
        command
    }

    /// Runs a round.
    pub(super) fn measure(&self, address: &str, workload: &str, n: usize) -> Result<Measurement> {
        let mut command = self.command(&[], address, workload, n);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let deadline = Instant::now() + TIMEOUT;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                return Err(format!("still running after {TIMEOUT:?}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output()?;
        let line = String::from_utf8_lossy(&output.stdout);
        let field = |name: &str| {
            number(&line, name).ok_or_else(|| format!("{}, output {line:?}", output.status))
        };
        Ok(Measurement {
            us_per_op: field("us_per_op")?,
            p50_us: field("p50_us")?,
            p99_us: field("p99_us")?,
            max_rss_kib: number(&line, "max_rss_kib"),
            cpu_us_per_op: (field("cpu_user_s")? + field("cpu_sys_s")?) * 1e6 / field("n")?,
        })
    }
}

/// Reads a number from the JSON line.
fn number(line: &str, name: &str) -> Option<f64> {
    let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()?.trim().parse().ok()
}

/// Returns the target directory of the workspace.
pub(super) fn target() -> PathBuf {
    let root = root();
    root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Builds the programs. Reports the ones that cannot be built here and leaves them out.
pub(super) fn build() -> Result<Vec<Peer>> {
    cargo_build(&["--example", "bench_peer", "--example", "null_server", "--example", "raw_peer"])?;
    let example = |name: &str| target().join("release/examples").join(name);
    let mut peers = vec![
        Peer {
            name: "docent",
            program: example("bench_peer"),
            environment: &[],
            lacks: &[],
            only: None,
        },
        Peer {
            name: "raw",
            program: example("raw_peer"),
            environment: &[],
            lacks: &[],
            only: Some(&["get-seq", "get-pipe", "children-10k"]),
        },
    ];
    // The peers have their own target directory, also if CARGO_TARGET_DIR is set.
    let directory = root().join("benches/peers");
    let rust = directory.join("target");
    let (manifest, built) = (directory.join("Cargo.toml"), rust.display().to_string());
    let manifest = manifest.display().to_string();
    match cargo_build(&["--manifest-path", &manifest, "--target-dir", &built]) {
        Ok(()) => peers.extend(rust_peers(&rust.join("release"))),
        Err(error) => eprintln!("xtask: without the clients from crates.io: {error}"),
    }
    match c_client(&directory.join("c/bench_peer.c")) {
        Some(program) => peers.extend(c_peers(&program)),
        None => eprintln!("xtask: without the C client: cc or libzookeeper-mt-dev is missing"),
    }
    Ok(peers)
}

fn rust_peers(directory: &std::path::Path) -> [Peer; 3] {
    let peer = |name, program, lacks| Peer {
        name,
        program: directory.join(program),
        environment: &[],
        lacks,
        only: None,
    };
    [
        peer("zookeeper-client", "zookeeper_client", &[]),
        peer("tokio-zookeeper", "tokio_zookeeper", &["lock-uncontended", "lock-handoff"]),
        // Its lock does not wait for its release, and hangs under contention.
        peer("zookeeper-async", "zookeeper_async", &["lock-uncontended", "lock-handoff"]),
    ]
}

fn c_peers(program: &std::path::Path) -> [Peer; 2] {
    let peer = |name, environment| Peer {
        name,
        program: program.to_path_buf(),
        environment,
        lacks: &["lock-uncontended", "lock-handoff"],
        only: None,
    };
    [peer("c-mt", &[]), peer("c-mt-tuned", &[("TUNED", "1")])]
}

fn c_client(source: &std::path::Path) -> Option<PathBuf> {
    let program = target().join("release/bench_peer_c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-DTHREADED", "-o"]).arg(&program).arg(source);
    compiler.args(["-lzookeeper_mt", "-lpthread"]);
    succeeds(&mut compiler).then_some(program)
}
