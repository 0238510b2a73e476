//! `bench holds`: the cost of a proven hold compared with a plain one.

use std::{path::Path, process::Command, thread, time::Duration};

use xtask::{Java, Result, Server, Settings};

use crate::{
    examples,
    markdown::{number, table, write_measured},
    process::Process,
    proxy::Proxy,
};

/// The columns: the name, the handle of `lock_peer`, and the value of `LOCK_PEER_OPTIONS`.
const COLUMNS: [(&str, &str, &str); 4] = [
    ("mutex", "mutex:/holds/plain", ""),
    ("renewed, by a reconnect", "renewed:/holds/reconnect", ""),
    ("renewed, at the leader", "renewed:/holds/leader", "direct"),
    ("StrictMutex", "strict:/holds/strict", ""),
];

/// The rows.
const ROWS: [&str; 10] = [
    "a cycle: requests",
    "a cycle: frames",
    "a cycle: bytes",
    "a cycle: CPU time, µs",
    "a minute of a hold: connections",
    "a minute of a hold: of these for `srvr`",
    "a minute of a hold: requests",
    "a minute of a hold: frames",
    "a minute of a hold: bytes",
    "a minute of a hold: CPU time, ms",
];

const SESSION_MS: &str = "6000";

/// Measures, prints the table, and writes it into docs/BENCHMARKS.md, unless the run is a quick one.
pub(crate) fn run(quick: bool) -> Result<()> {
    let (cycles, hold) =
        if quick { (50, Duration::from_secs(10)) } else { (1_000, Duration::from_secs(60)) };
    let program = examples(&["lock_peer"])?.join("lock_peer");
    let server = Server::start(&Java::find()?, Settings::default())?;
    let address = server.address().to_string();
    let columns = thread::scope(|scope| -> Result<Vec<[f64; ROWS.len()]>> {
        let measured = COLUMNS.map(|(_, handle, options)| {
            let (program, address) = (&program, &address);
            scope.spawn(move || measure(program, address, handle, options, cycles, hold))
        });
        measured.into_iter().map(|one| one.join().map_err(|_| "a panic")?).collect()
    })?;
    let head: Vec<_> = [""].into_iter().chain(COLUMNS.map(|(name, ..)| name)).collect();
    let rows = ROWS.iter().enumerate().map(|(row, what)| {
        let values = columns.iter().map(|column| number(column.get(row).copied()));
        [(*what).to_owned()].into_iter().chain(values).collect::<Vec<_>>()
    });
    let text = table(&head, 1, rows);
    println!("{text}");
    if quick { Ok(()) } else { write_measured("holds", &text) }
}

fn measure(
    program: &Path,
    server: &str,
    handle: &str,
    options: &str,
    cycles: u32,
    hold: Duration,
) -> Result<[f64; ROWS.len()]> {
    let proxy = Proxy::start(server)?;
    let mut command = Command::new(program);
    command.args([&proxy.address(), SESSION_MS]).env("LOCK_PEER_OPTIONS", options);
    let mut peer = Process::start(&mut command)?;
    let (acquire, release) = (format!("acquire {handle}"), format!("release {handle}"));
    // The first cycle creates the parents.
    ask(&mut peer, &acquire)?;
    ask(&mut peer, &release)?;
    let before = cpu_ns(&mut peer)?;
    proxy.reset();
    for _ in 0..cycles {
        ask(&mut peer, &acquire)?;
        ask(&mut peer, &release)?;
    }
    let (of_cycles, cpu) = (proxy.counts(), cpu_ns(&mut peer)? - before);
    let per_cycle = |count: u64| count as f64 / f64::from(cycles);
    ask(&mut peer, &acquire)?;
    let before = cpu_ns(&mut peer)?;
    proxy.reset();
    thread::sleep(hold);
    let (of_hold, cpu_of_hold) = (proxy.counts(), cpu_ns(&mut peer)? - before);
    let minutes = hold.as_secs_f64() / 60.0;
    let per_minute = |count: u64| count as f64 / minutes;
    ask(&mut peer, &release)?;
    Ok([
        per_cycle(of_cycles.requests),
        per_cycle(of_cycles.frames),
        per_cycle(of_cycles.bytes),
        cpu / 1e3 / f64::from(cycles),
        per_minute(of_hold.connections),
        per_minute(of_hold.connections - of_hold.handshakes),
        per_minute(of_hold.requests),
        per_minute(of_hold.frames),
        per_minute(of_hold.bytes),
        cpu_of_hold / 1e6 / minutes,
    ])
}

/// The CPU time of the process so far.
fn cpu_ns(peer: &mut Process) -> Result<f64> {
    Ok(ask(peer, "cpu")?.parse()?)
}

/// Sends a command. Returns the text that follows `ok` in the reply.
fn ask(peer: &mut Process, command: &str) -> Result<String> {
    peer.send(&format!("1 {command}"))?;
    loop {
        let line = peer.line()?;
        if line.starts_with('!') {
            continue;
        }
        let result = line.strip_prefix("1 ok").ok_or_else(|| format!("{command}: {line}"))?;
        return Ok(result.trim_start().to_owned());
    }
}
