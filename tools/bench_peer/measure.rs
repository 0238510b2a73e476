//! The shared part of all programs of the bench-peer convention: the command line, the measurement, and the
//! line that it prints. The peers under `benches/src/peers` include this file.

use std::{
    fmt,
    process::exit,
    time::{Duration, Instant},
};

/// The command line: `HOST:PORT WORKLOAD N EXTRA`.
pub(crate) struct Arguments {
    /// The server, `HOST:PORT`.
    pub(crate) address: String,
    /// The name of the workload.
    pub(crate) workload: String,
    /// The number of measured operations.
    pub(crate) n: usize,
    extra: usize,
}

impl Arguments {
    /// Reads the command line. If it is wrong, prints the usage and ends the process.
    pub(crate) fn read() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [address, workload, n, extra] = arguments.as_slice() else { fail(USAGE) };
        let (Ok(n), Ok(extra)) = (n.parse(), extra.parse()) else { fail(USAGE) };
        if n == 0 {
            fail("N is 0: nothing to measure");
        }
        Self { address: address.clone(), workload: workload.clone(), n, extra }
    }

    /// The number of requests in flight of a pipelined workload.
    pub(crate) fn window(&self) -> usize {
        match (self.extra, self.workload.as_str()) {
            (0, "get-pipe") => 1000,
            // Pairs of requests in create-delete-pipe.
            (0, _) => 200,
            (extra, _) => extra,
        }
    }

    /// The number of operations before the measured ones.
    pub(crate) fn warm_up(&self) -> usize {
        self.n / 5
    }
}

const USAGE: &str = "usage: bench_peer HOST:PORT WORKLOAD N EXTRA";

/// Ends the process without a result, because a measurement has failed.
pub(crate) fn fail(why: impl fmt::Display) -> ! {
    eprintln!("bench_peer: {why}");
    exit(2)
}

/// Returns the value, or ends the process.
pub(crate) fn must<T, E: fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| fail(error))
}

/// The timed part of a run.
pub(crate) struct Timed {
    cpu: (Duration, Duration),
    began: Instant,
    latencies: Vec<Duration>,
}

impl Timed {
    /// Begins, with space for this number of latencies.
    pub(crate) fn begin(latencies: usize) -> Self {
        let latencies = Vec::with_capacity(latencies);
        Self { cpu: cpu_time(), began: Instant::now(), latencies }
    }

    /// Records an operation that began at `from` and has ended.
    pub(crate) fn ended(&mut self, from: Instant) {
        self.latencies.push(from.elapsed());
    }

    /// Adds latencies that were measured elsewhere.
    pub(crate) fn add(&mut self, latencies: impl IntoIterator<Item = Duration>) {
        self.latencies.extend(latencies);
    }

    /// Ends, and prints the line.
    pub(crate) fn finish(mut self, peer: &str, workload: &str, n: usize) {
        let elapsed = self.began.elapsed().as_secs_f64();
        let (user, system) = cpu_time();
        self.latencies.sort_unstable();
        println!(
            "{{\"peer\":\"{peer}\",\"workload\":\"{workload}\",\"n\":{n},\"ops_per_s\":{:.0},\"us_per_op\":{:.4},\
             \"p50_us\":{:.1},\"p99_us\":{:.1},\"cpu_user_s\":{:.6},\"cpu_sys_s\":{:.6}{}}}",
            n as f64 / elapsed,
            elapsed * 1e6 / n as f64,
            self.percentile(50),
            self.percentile(99),
            user.saturating_sub(self.cpu.0).as_secs_f64(),
            system.saturating_sub(self.cpu.1).as_secs_f64(),
            if CONVENTION.contains(&workload) {
                String::new()
            } else {
                format!(",\"max_rss_kib\":{}", max_rss_kib())
            },
        );
    }

    fn percentile(&self, percent: usize) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let latency = self.latencies.get(last * percent / 100);
        latency.map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// In pipelined workloads, the latency of one in this many operations is recorded.
pub(crate) const SAMPLED: usize = 16;

/// The current time if the latency of operation number `index` is to be recorded.
pub(crate) fn sample(index: usize) -> Option<Instant> {
    index.is_multiple_of(SAMPLED).then(Instant::now)
}

/// The workloads whose line has only the fields of the convention.
const CONVENTION: [&str; 8] = [
    "get-seq",
    "get-pipe",
    "set-pipe",
    "create-delete-pipe",
    "children-10k",
    "watch-fanout",
    "lock-uncontended",
    "lock-handoff",
];

/// The maximum resident set size of this process.
fn max_rss_kib() -> i64 {
    #[cfg(unix)]
    {
        use nix::sys::resource::{UsageWho, getrusage};
        must(getrusage(UsageWho::RUSAGE_SELF)).max_rss()
    }
    #[cfg(not(unix))]
    0
}

/// User and system time of this process so far.
#[cfg(unix)]
fn cpu_time() -> (Duration, Duration) {
    use nix::sys::{
        resource::{UsageWho, getrusage},
        time::{TimeVal, TimeValLike as _},
    };
    let of =
        |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0));
    let usage = must(getrusage(UsageWho::RUSAGE_SELF));
    (of(usage.user_time()), of(usage.system_time()))
}

/// Not measured on this system.
#[cfg(not(unix))]
fn cpu_time() -> (Duration, Duration) {
    (Duration::ZERO, Duration::ZERO)
}
