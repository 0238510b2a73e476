//! The measured programs, which all have the command line of `tools/bench_peer`.

use std::{ffi::OsString, path::PathBuf, process::Command, time::Duration};

use xtask::{
    Result,
    command::succeeds,
    workspace::{build as cargo_build, root},
};

use crate::{examples, process::json};

/// The time limit of a round, which usually takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A measured program.
pub(super) struct Peer {
    pub(super) name: &'static str,
    program: PathBuf,
    environment: &'static [(&'static str, &'static str)],
    supports: fn(&str) -> bool,
}

/// The measurement of a round.
#[derive(Debug, Clone, Copy)]
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
        (self.supports)(workload)
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
        let line = json(&mut self.command(&[], address, workload, n), TIMEOUT)?;
        let field = |name: &str| {
            line[name].as_f64().ok_or_else(|| format!("no {name} in the output {line}"))
        };
        Ok(Measurement {
            us_per_op: field("us_per_op")?,
            p50_us: field("p50_us")?,
            p99_us: field("p99_us")?,
            max_rss_kib: line["max_rss_kib"].as_f64(),
            cpu_us_per_op: (field("cpu_user_s")? + field("cpu_sys_s")?) * 1e6 / field("n")?,
        })
    }
}

/// Builds the programs. Reports those that cannot be built on this machine and leaves them out.
pub(super) fn build() -> Result<Vec<Peer>> {
    let examples = examples(&["bench_peer", "raw_peer"])?;
    let peer = |name, program, supports| Peer { name, program, environment: &[], supports };
    let mut peers = vec![
        peer("docent", examples.join("bench_peer"), |_| true),
        peer("raw", examples.join("raw_peer"), |workload| {
            ["get-seq", "get-pipe", "children-10k"].contains(&workload)
        }),
    ];
    let without_locks = |workload: &str| !workload.starts_with("lock-");
    let benches = root().join("benches");
    // A separate target directory, even if CARGO_TARGET_DIR is set.
    let (manifest, target) = (benches.join("Cargo.toml"), benches.join("target"));
    let (manifest, built) = (manifest.display().to_string(), target.display().to_string());
    let programs = ["zookeeper_client", "tokio_zookeeper", "zookeeper_async"];
    let bins = programs.map(|name| ["--bin", name]);
    let options = [
        "--manifest-path",
        &manifest,
        "--target-dir",
        &built,
        "--profile",
        "peers",
        "--features",
        "peers",
    ];
    match cargo_build(&[&options, bins.as_flattened()].concat()) {
        Ok(()) => {
            let program = |name| target.join("peers").join(name);
            peers.push(peer("zookeeper-client", program("zookeeper_client"), |_| true));
            peers.push(peer("tokio-zookeeper", program("tokio_zookeeper"), without_locks));
            // zookeeper-async does not await the release of its lock, and hangs under contention.
            peers.push(peer("zookeeper-async", program("zookeeper_async"), without_locks));
        }
        Err(error) => eprintln!("bench: without the clients from crates.io: {error}"),
    }
    let program = examples.join("bench_peer_c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-DTHREADED", "-o"]).arg(&program).arg(benches.join("c/bench_peer.c"));
    if succeeds(compiler.args(["-lzookeeper_mt", "-lpthread"])) {
        let tuned = peer("c-mt-tuned", program.clone(), without_locks);
        peers.push(peer("c-mt", program, without_locks));
        peers.push(Peer { environment: &[("TUNED", "1")], ..tuned });
    } else {
        eprintln!("bench: without the C client: cc or libzookeeper-mt-dev is missing");
    }
    Ok(peers)
}
