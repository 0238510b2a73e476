//! `cargo xtask bench cache`: docent's cache and Curator's, on the same server and the same tree.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use xtask::{Java, Result, Server, Settings, workspace::root};

use super::{
    build, peers,
    proxy::{Counts, Proxy},
    report,
};

const HEADING: &str = "## cache";

const INTRODUCTION: &str = "\
Written by `cargo xtask bench cache`: `tools/cache_peer.rs` and Curator's `CuratorCache` (`benches/peers/java`), each in a
process of its own, on one ZooKeeper on the same machine, behind a proxy that counts frames and cuts the connection. Each
node has 100 bytes of data. Curator is 5.4.0: before 5.6, its cache does not load more than 65,535 nodes (CURATOR-690), so
docent is measured alone with the larger tree. Median of all rounds, which alternate. The wall times depend on whatever else
the machine does, and vary by a factor of two on a busy one; counts, memory and CPU times hardly do.

*Load* is the time from the first request to the last reply, and *resync* the time from the handshake after a cut to the last
reply. *Memory* is the growth by the load: for docent of the resident memory of the process, with all that its allocator
keeps; for Curator of the used heap after a garbage collection, without all that Java adds. *Followed* is the number of writes
by another client, divided by the time until the cache has read the last one.";

/// The longest time of a step.
const LIMIT: Duration = Duration::from_secs(300);

/// The number of children of each child of the root.
const CHILDREN: usize = 999;

/// The sizes of a run.
struct Size {
    /// The numbers of the root's children: for both, and for docent alone. Curator's cache before 5.6 does not load more
    /// than 65,535 nodes (CURATOR-690).
    parents: [usize; 2],
    writes: usize,
    idle: Duration,
    rounds: usize,
}

/// What is measured, a column each.
const COLUMNS: [(&str, Side, usize); 3] =
    [("docent", Side::Docent, 0), ("Curator", Side::Curator, 0), ("docent", Side::Docent, 1)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Docent,
    Curator,
}

const fn nodes(parents: usize) -> usize {
    1 + parents * (1 + CHILDREN)
}

/// The measurements of a round.
#[derive(Debug, Default, Clone, Copy)]
struct Round {
    load: Step,
    memory: f64,
    /// Of the whole process, after the load.
    resident_kib: u64,
    idle_bytes: f64,
    reconnect: Duration,
    resync: Step,
    followed: Step,
    events: f64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Step {
    time: Duration,
    cpu: Duration,
    requests: u64,
    most_in_flight: u64,
}

impl Step {
    fn new(since: Instant, cpu: Duration, counts: &Counts) -> Self {
        let time = counts.last.saturating_duration_since(since);
        let Counts { requests, most_in_flight, .. } = *counts;
        Self { time, cpu, requests, most_in_flight }
    }
}

/// Measures, prints the table, and writes it to docs/BENCHMARKS.md, unless the run is a quick one.
pub(super) fn run(quick: bool) -> Result<ExitCode> {
    let size = match quick {
        true => Size { parents: [5, 10], writes: 2_000, idle: secs(5), rounds: 1 },
        false => Size { parents: [50, 100], writes: 20_000, idle: secs(30), rounds: 3 },
    };
    build(&["--example", "cache_peer"])?;
    let program = peers::target().join("release/examples/cache_peer");
    let java = Java::find()?;
    let classes = java.compile(&root().join("benches/peers/java/CacheBench.java"))?;
    let server = Server::start(&java, Settings::default())?;
    let direct = server.address().to_string();

    let mut columns: [Vec<Round>; 3] = Default::default();
    let mut filled = 0;
    for (tree, parents) in size.parents.into_iter().enumerate() {
        let numbers = [filled, parents, CHILDREN].map(|number| number.to_string());
        run_to_end(Command::new(&program).args([&direct, "fill"]).args(numbers))?;
        filled = parents;
        for round in 1..=size.rounds {
            for ((name, side, _), rounds) in
                COLUMNS.iter().zip(&mut columns).filter(|(column, _)| column.2 == tree)
            {
                let proxy = Proxy::start(server.address())?;
                let address = proxy.address.to_string();
                let mut command = match side {
                    Side::Docent => {
                        let mut command = Command::new(&program);
                        command.args([&address, "cache"]);
                        command
                    }
                    Side::Curator => {
                        let mut command = java.command(&classes)?;
                        // The last of two options counts: not the settings of short-lived small programs.
                        command.args(["-XX:TieredStopAtLevel=4", "-Xmx2g", "CacheBench", &address]);
                        command
                    }
                };
                let measured = measure(&mut command, &program, &direct, &proxy, parents, &size)
                    .map_err(|error| format!("{name}: {error}"))?;
                println!("{} nodes, round {round}: {name}: {measured:.1?}", nodes(parents));
                rounds.push(measured);
            }
        }
    }
    let text = text(&size, &columns.map(|rounds| median(&rounds)));
    println!("{text}");
    if !quick {
        report::write(&root().join("docs/BENCHMARKS.md"), HEADING, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn run_to_end(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

fn measure(
    command: &mut Command,
    writer: &PathBuf,
    direct: &str,
    proxy: &Proxy,
    parents: usize,
    size: &Size,
) -> Result<Round> {
    let nodes = nodes(parents);
    let mut process = Process::start(command)?;
    process.read("ready")?;
    let before = process.ask("memory")?;

    proxy.reset();
    let (begun, cpu) = (Instant::now(), process.cpu()?);
    let loaded = process.ask_as("start", "initialized")?;
    let counts = proxy.wait_until_quiet(LIMIT)?;
    let load = Step::new(begun, process.cpu()?.saturating_sub(cpu), &counts);
    if loaded != nodes as f64 {
        return Err(format!("{loaded} nodes instead of {nodes}").into());
    }
    let resident_kib = process.resident_kib()?;
    let memory = (process.ask("memory")? - before) / nodes as f64;

    proxy.reset();
    thread::sleep(size.idle);
    let idle_bytes = proxy.counts().bytes as f64 * 60.0 / size.idle.as_secs_f64();

    proxy.reset();
    let (begun, cpu) = (Instant::now(), process.cpu()?);
    proxy.cut();
    let counts = proxy.wait_until_quiet(LIMIT)?;
    let reconnect = counts.connected.saturating_duration_since(begun);
    let cpu = process.cpu()?.saturating_sub(cpu);
    let resync = Step::new(counts.connected, cpu, &counts);

    let events = process.ask("events")?;
    proxy.reset();
    let (begun, cpu) = (Instant::now(), process.cpu()?);
    let numbers = [parents, CHILDREN, size.writes].map(|number| number.to_string());
    run_to_end(Command::new(writer).args([direct, "write"]).args(numbers))?;
    let counts = proxy.wait_until_quiet(LIMIT)?;
    let followed = Step::new(begun, process.cpu()?.saturating_sub(cpu), &counts);
    let events = process.ask("events")? - events;
    Ok(Round { load, memory, resident_kib, idle_bytes, reconnect, resync, followed, events })
}

/// A measured process; killed on drop.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, input, output })
    }

    /// Reads a line that begins with `word`, and returns the number behind it.
    fn read(&mut self, word: &str) -> Result<Option<f64>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end().strip_prefix(word) {
            Some(rest) => Ok(rest.trim().parse().ok()),
            None => Err(format!("{line:?} instead of {word}").into()),
        }
    }

    fn ask_as(&mut self, command: &str, word: &str) -> Result<f64> {
        writeln!(self.input, "{command}")?;
        self.read(word)?.ok_or_else(|| format!("{word} without a number").into())
    }

    fn ask(&mut self, command: &str) -> Result<f64> {
        self.ask_as(command, command)
    }

    /// The resident memory, from Linux.
    fn resident_kib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("VmRSS is missing")?.parse()?)
    }

    /// The CPU time so far, from Linux.
    fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name in parentheses: the state is the first field, utime and stime are the 12th and 13th.
        let (_, fields) = stat.rsplit_once(')').ok_or("an unexpected /proc/PID/stat")?;
        let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = times.collect::<std::result::Result<Vec<_>, _>>()?.iter().sum();
        // Linux reports in ticks of 10 ms.
        Ok(Duration::from_millis(10 * ticks))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The median of each measurement.
fn median(rounds: &[Round]) -> Round {
    fn of<T: PartialOrd + Copy + Default>(rounds: &[Round], value: impl Fn(&Round) -> T) -> T {
        let mut values: Vec<T> = rounds.iter().map(value).collect();
        values.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
        values.get(values.len() / 2).copied().unwrap_or_default()
    }
    let step = |part: fn(&Round) -> Step| Step {
        time: of(rounds, |round| part(round).time),
        cpu: of(rounds, |round| part(round).cpu),
        requests: of(rounds, |round| part(round).requests),
        most_in_flight: of(rounds, |round| part(round).most_in_flight),
    };
    Round {
        load: step(|round| round.load),
        memory: of(rounds, |round| round.memory),
        resident_kib: of(rounds, |round| round.resident_kib),
        idle_bytes: of(rounds, |round| round.idle_bytes),
        reconnect: of(rounds, |round| round.reconnect),
        resync: step(|round| round.resync),
        followed: step(|round| round.followed),
        events: of(rounds, |round| round.events),
    }
}

/// The section of docs/BENCHMARKS.md.
fn text(size: &Size, columns: &[Round; 3]) -> String {
    let mut text = format!("{HEADING}\n\n{INTRODUCTION}\n\n|");
    for (name, _, tree) in COLUMNS {
        let nodes = size.parents.get(tree).map_or(0, |parents| nodes(*parents));
        // Writing to a string cannot fail.
        let _ = write!(text, " | {name}, {} nodes", report::thousands(nodes as f64));
    }
    text.push_str(" |\n|---|---:|---:|---:|\n");
    let mut row = |what: &str, value: &dyn Fn(&Round) -> String| {
        let values: Vec<_> = columns.iter().map(value).collect();
        let _ = writeln!(text, "| {what} | {} |", values.join(" | "));
    };
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let number = |number: u64| report::thousands(number as f64);
    let rounded = |value: f64| report::thousands(value.round());
    row("load: time", &|round| seconds(round.load.time));
    row("load: CPU time of the client", &|round| seconds(round.load.cpu));
    row("load: requests", &|round| number(round.load.requests));
    row("load: most requests in flight", &|round| number(round.load.most_in_flight));
    row("memory, bytes per node", &|round| rounded(round.memory));
    row("resident memory of the process after the load, MiB", &|round| {
        number(round.resident_kib / 1024)
    });
    row("idle: bytes per minute, both directions", &|round| rounded(round.idle_bytes));
    row("cut: time to the next handshake", &|round| seconds(round.reconnect));
    row("resync: time", &|round| seconds(round.resync.time));
    row("resync: CPU time of the client", &|round| seconds(round.resync.cpu));
    row("resync: requests", &|round| number(round.resync.requests));
    row("resync: most requests in flight", &|round| number(round.resync.most_in_flight));
    let writes = size.writes as f64;
    row("followed, writes per second", &|round| {
        rounded(writes / round.followed.time.as_secs_f64())
    });
    row("followed: CPU time of the client per write, µs", &|round| {
        format!("{:.1}", round.followed.cpu.as_secs_f64() * 1e6 / writes)
    });
    row("followed: requests per write", &|round| {
        format!("{:.2}", round.followed.requests as f64 / writes)
    });
    row("followed: events per write", &|round| format!("{:.2}", round.events / writes));
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{HEADING, INTRODUCTION, Round, Step, median};
    use xtask::workspace::root;

    #[test]
    fn the_committed_introduction_is_the_generated_one() {
        let document = fs::read_to_string(root().join("docs/BENCHMARKS.md")).unwrap();
        assert!(document.contains(&format!("\n{HEADING}\n\n{INTRODUCTION}\n")));
    }

    #[test]
    fn a_median_is_of_each_measurement() {
        let round = |requests, memory| Round {
            load: Step { requests, ..Step::default() },
            memory,
            ..Round::default()
        };
        let median = median(&[round(1, 30.0), round(3, 10.0), round(2, 20.0)]);
        assert_eq!((median.load.requests, median.memory), (2, 20.0));
    }
}
