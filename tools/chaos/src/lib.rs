//! Runs a real ensemble and real clients in a network that is really cut. docs/CHAOS.md describes it.
//!
//! `cargo xtask chaos` builds this program and passes its arguments on.

#![cfg(target_os = "linux")]

mod faults;
mod history;
mod hold;
mod janitor;
mod lock;
mod members;
mod network;
mod options;
mod peers;
mod picture;
mod plan;
mod random;
mod report;
mod timeline;
mod workload;
mod world;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use docent_judge::Judgement;
use rustix::process::{Pid, Signal, kill_process};
use xtask::command::succeeds;
use xtask::workspace::root;
use xtask::{Java, Result};

use history::{History, now};
use janitor::Janitor;
use members::Members;
use network::{Host, Network};
use options::Options;
use peers::{Answer, Library, Peer, Programs};
use plan::Plan;
use random::Random;
use report::Report;
use world::World;

/// The session timeout of all clients.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

/// The program that is running, even if its file has been replaced since the start.
const PROGRAM: &str = "/proc/self/exe";

/// A kind of client: its library, its name, the value of `LOCK_PEER_OPTIONS`, and its workloads.
type Kind = (Library, &'static str, &'static str, &'static [workload::Workload]);

const DOCENT: Kind = (Library::Docent, "docent", "", &workload::OF_ALL);
/// It does no proven work: its holds have no proven bound.
const CURATOR: Kind = (Library::Curator, "curator", "", &workload::OF_ALL);
/// Locks whose proven bounds are renewed by a reconnect.
const PROVEN: Kind = (Library::Docent, "proven", "", &workload::OF_PROVEN);
/// The same, but renewed without a reconnect while the client is connected to the leader.
const DIRECT: Kind = (Library::Docent, "proven-direct", "direct", &workload::OF_PROVEN);

/// The long-lived clients.
const CLIENTS: [Kind; 8] = [DOCENT, CURATOR, DOCENT, CURATOR, DOCENT, DIRECT, PROVEN, DIRECT];

/// The number of clients that live for one hold.
const SHORT_LIVED_CLIENTS: usize = 3;

/// With this argument, the program reports whether this machine can run it, and exits.
const REQUIREMENTS: &str = "--requirements";

const USAGE: &str = "\
usage: cargo xtask chaos [--minutes N] [--seed S] [--members 3|5] [--report DIR] [--plan]
       cargo xtask chaos --picture FILE";

/// Runs the program. The last line of a run is `H holds, W guarded writes, F faults, V violations`.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [janitor::ARGUMENT] => janitor::run(),
        [members::ASK, address] => members::ask(address).map(|()| ExitCode::SUCCESS),
        [REQUIREMENTS] => requirements().map(|()| ExitCode::SUCCESS),
        ["--help"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => match Options::parse(&arguments) {
            Ok(options) => run(&options),
            Err(text) => {
                eprintln!("chaos: {text}\n{USAGE}");
                Ok(ExitCode::from(2))
            }
        },
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("chaos: {error}");
        ExitCode::FAILURE
    })
}

fn run(options: &Options) -> Result<ExitCode> {
    let plan = plan::draw(options.seed, options.length, options.members, CLIENTS.len());
    if options.shows_plan {
        // A reader may close the pipe early.
        let _ = write!(io::stdout(), "{plan}");
        return Ok(ExitCode::SUCCESS);
    }
    requirements()?;
    if let Some(file) = &options.picture {
        fs::write(file, draw_picture(options)?)?;
        println!("chaos: wrote {}", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let (judgement, healed) = try_run(options, &plan)?;
    println!("{}", report::last_line(&judgement));
    healed?;
    Ok(if judgement.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks that the process has the rights that a run needs. `cargo xtask chaos` checks for the installed programs.
fn requirements() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root, for network namespaces: `sudo cargo xtask chaos`".into());
    }
    // Root in a container may lack this right.
    if !succeeds(Command::new("unshare").args(["--net", "--mount", "true"])) {
        let text = "this process may not create network namespaces (a container: --privileged)";
        return Err(text.into());
    }
    Ok(())
}

/// Returns the judgement, and whether all members serve after the faults.
fn try_run(options: &Options, plan: &Plan) -> Result<(Judgement, Result<()>)> {
    println!(
        "chaos: seed {}, {} members, {} min: building",
        options.seed,
        options.members,
        options.length.as_secs_f64() / 60.0
    );
    let report = options.report.clone().unwrap_or_else(default_report);
    fs::create_dir_all(&report)?;
    let stage = Stage::new(options.members)?;
    let hosts = CLIENTS.len() + SHORT_LIVED_CLIENTS + 1;
    let mut peers = Vec::new();
    for (number, (library, kind, options, _)) in CLIENTS.into_iter().enumerate() {
        peers.push(stage.peer(number, format!("{kind}-{}", number + 1), library, options)?);
    }
    for number in 0..SHORT_LIVED_CLIENTS {
        let name = format!("short-{}", number + 1);
        peers.push(stage.peer(CLIENTS.len() + number, name, workload::SHORT_LIVED, "")?);
    }
    // The observer creates the nodes and reads them at the end. It has the last host, which no fault cuts off.
    let observer = stage.peer(hosts - 1, "observer".to_owned(), Library::Docent, "")?;

    let history = report.join("history.txt");
    let Stage { janitor, directory, network, members, .. } = stage;
    let records = History::create(&history)?;
    let world = World::new(options.seed, records, network, members, peers, hosts - 1);
    let version = world.members.version().unwrap_or_else(|| "unknown".to_owned());
    println!("chaos: ZooKeeper {version} serves; report in {}", report.display());
    observer.start()?;
    prepare(&world, &observer)?;
    let healed = disturb(&world, plan, options);
    match &healed {
        Ok(()) => {
            world.peers.iter().take(CLIENTS.len()).for_each(|peer| lock_at_the_end(&world, peer));
        }
        // What was done is judged all the same, as far as a majority of the members can be read.
        Err(error) => world.history.note(&error.to_string()),
    }
    let read = read_at_the_end(&world, &observer);
    add_run(&world, options, "all");
    for member in (0..world.members.count()).filter(|index| world.members.has_other_data(*index)) {
        let text = "reported a digest mismatch: the servers lost a committed write";
        world.history.note(&format!("m{} {text}", member + 1));
    }
    world.history.finish()?;
    copy_logs(&directory, &report);
    drop(world);
    drop(janitor);
    read?;
    Ok((report::write(&history, &report)?, healed))
}

/// A serving ensemble and its network.
struct Stage {
    janitor: Janitor,
    directory: PathBuf,
    network: Arc<Network>,
    members: Members,
    programs: Arc<Programs>,
}

impl Stage {
    fn new(members: usize) -> Result<Self> {
        let java = Java::find()?;
        let lock_peer = xtask::example("lock_peer")?;
        let janitor = Janitor::start()?;
        let run = format!("{:x}-{:x}", std::process::id(), now() / 1_000 % 0x100_0000);
        let directory = std::env::temp_dir().join(format!("{}chaos-{run}", janitor::PREFIX));
        janitor.register("directory", &directory.display().to_string())?;
        fs::create_dir(&directory)?;

        let network = Arc::new(Network::new(&janitor, &run)?);
        let members = Members::new(&janitor, &java, &network, &directory, members)?;
        (0..members.count()).try_for_each(|index| members.start(index))?;
        members.wait_until_all_serve()?;
        let connect = members.connect_string();
        let programs = Programs::new(lock_peer, &java, connect, SESSION_TIMEOUT, &directory)?;
        Ok(Self { janitor, directory, network, members, programs: Arc::new(programs) })
    }

    /// Prepares a client without starting it.
    fn peer(
        &self,
        number: usize,
        name: String,
        library: Library,
        options: &'static str,
    ) -> Result<Arc<Peer>> {
        let host = Host::Client(number);
        self.network.add(&self.janitor, host)?;
        Ok(Arc::new(Peer::new(name, library, options, host, &self.network, &self.programs)))
    }
}

/// Makes the picture of a run with one fault.
fn draw_picture(options: &Options) -> Result<String> {
    let stage = Stage::new(options.members)?;
    let history = stage.directory.join("history.txt");
    let mut peers = Vec::new();
    for (number, name) in picture::CLIENTS.into_iter().enumerate() {
        peers.push(stage.peer(number, name.to_owned(), Library::Docent, "")?);
    }
    let Stage { janitor, network, members, .. } = stage;
    let (records, hosts) = (History::create(&history)?, peers.len());
    let world = World::new(options.seed, records, network, members, peers, hosts);
    let finished = picture::run(&world);
    world.peers.iter().for_each(|peer| peer.kill());
    add_run(&world, options, "holds");
    world.history.finish()?;
    let text = fs::read_to_string(&history)?;
    drop(world);
    drop(janitor);
    finished?;
    Ok(Report::new(&text)?.timeline())
}

/// Adds a line about the whole run to the history. `work` names the workloads of its clients.
fn add_run(world: &World, options: &Options, work: &str) {
    let version = world.members.version().unwrap_or_else(|| "unknown".to_owned());
    world.history.add(format_args!(
        "run seed={} members={} version={version} start={} end={} session={} work={work}",
        options.seed,
        options.members,
        world.start,
        now(),
        SESSION_TIMEOUT.as_nanos()
    ));
}

/// Creates the nodes of the workloads.
fn prepare(world: &World, observer: &Peer) -> Result<()> {
    let names = world.peers.iter().map(|peer| format!("/chaos/fence-{}", peer.name));
    let registers = (0..workload::REGISTERS).map(|key| format!("/chaos/r{key}"));
    let others = ["/chaos", workload::SET, "/chaos/fence-observer"].map(str::to_owned);
    for path in others.into_iter().chain(names).chain(registers) {
        eventually(&format!("cannot create {path}"), || {
            match observer.ask(&format!("create {path} -")) {
                Answer::Ok { .. } => Some(()),
                Answer::Failed { kind, .. } => (kind == "NodeExists").then_some(()),
                _ => None,
            }
        })?;
    }
    Ok(())
}

/// Runs the clients and the faults to their end.
fn disturb(world: &World, plan: &Plan, options: &Options) -> Result<()> {
    for peer in world.peers.iter().take(CLIENTS.len()) {
        peer.start()?;
    }
    thread::scope(|scope| {
        // The scope waits for its threads even in a panic, so they must be stopped.
        let _stop = StopOnDrop(world);
        let mut workers = 0..;
        let mut random = || Random::of_part(world.seed, 100 + workers.next().unwrap_or(0));
        for (number, peer) in world.peers.iter().enumerate() {
            if let Some((.., workloads)) = CLIENTS.get(number) {
                for workload in *workloads {
                    let random = random();
                    scope.spawn(move || workload(world, peer, random));
                }
            } else {
                let random = random();
                scope.spawn(move || workload::live_for_one_hold(world, peer, random));
            }
        }
        let end = world.start + u64::try_from(options.length.as_nanos()).unwrap_or(u64::MAX);
        let of_members = scope.spawn(move || faults::run(world, &plan.of_members, 1, end));
        let of_clients = scope.spawn(move || faults::run(world, &plan.of_clients, 1_001, end));
        while now() < end {
            world.sleep_until(end.min(now() + 20_000 * world::MILLISECOND));
            let counters = &world.counters;
            println!(
                "chaos: {:>4} s: {} holds, {} guarded writes, {} operations on registers, {} faults",
                (now() - world.start) / 1_000_000_000,
                counters.holds.get(),
                counters.guarded.get(),
                counters.operations.get(),
                counters.faults.get()
            );
        }
        let failed = |error| format!("a fault panicked: {error:?}");
        let of_members = of_members.join().map_err(failed)?;
        let of_clients = of_clients.join().map_err(failed)?;
        // All faults have ended, so from here on everything must succeed.
        let healed = of_members.and(of_clients).and_then(|()| revive(world));
        world.sleep_until(end.max(now() + 5_000 * world::MILLISECOND));
        world.stop();
        healed
    })
}

/// Stops the threads of a run when it is dropped.
struct StopOnDrop<'a>(&'a World);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Starts members that have ended by themselves, and waits until all serve.
fn revive(world: &World) -> Result<()> {
    for index in 0..world.members.count() {
        if !world.members.is_running(index) {
            world.history.note(&format!("m{} had ended by itself", index + 1));
            world.members.start(index)?;
        }
    }
    // A fault may have filled the disk of the last member.
    let last = world.members.count().saturating_sub(1);
    world.members.start_after_full_disk(last)?;
    world.members.wait_until_all_serve()
}

/// Acquires and releases a lock after all faults. A client that cannot is recorded as stuck.
fn lock_at_the_end(world: &World, peer: &Peer) {
    let deadline = now() + 60_000 * world::MILLISECOND;
    while now() < deadline {
        if let Answer::Ok { .. } = peer.ask("acquire mutex:/chaos/last 30000")
            && let Answer::Ok { .. } = peer.ask("release mutex:/chaos/last")
        {
            return;
        }
        thread::sleep(Duration::from_millis(500));
    }
    hold::stuck(world, peer, "an_acquire_after_all_faults");
}

/// Reads the sets and the registers after all clients have ended.
fn read_at_the_end(world: &World, observer: &Peer) -> Result<()> {
    for peer in &world.peers {
        peer.kill();
    }
    for (name, set) in [("naive", &world.naive_set), ("proven", &world.proven_set)] {
        let elements: Vec<_> = lock::lock(set).iter().map(u64::to_string).collect();
        let elements = elements.join(",");
        world.history.add(format_args!("final set={name} version=- elements={elements}"));
    }
    for key in 0..workload::REGISTERS {
        let read = || workload::use_register(world, observer, key, "fenced", None).map(drop);
        eventually(UNREAD, read)?;
    }
    eventually(UNREAD, || {
        let answer = observer.ask(&format!("fencedget {} /chaos/fence-observer", workload::SET));
        let Answer::Ok { text, .. } = answer else { return None };
        let mut words = text.split(' ');
        let (version, data) = (words.next().unwrap_or("-"), words.nth(2).unwrap_or("-"));
        let elements = data.trim_start_matches('-').trim_start_matches(',');
        world.history.add(format_args!("final set=guarded version={version} elements={elements}"));
        Some(())
    })
}

const UNREAD: &str = "a node cannot be read after all faults have ended";

/// Calls `action` until it succeeds, for at least 30 s.
fn eventually(failure: &str, action: impl Fn() -> Option<()>) -> Result<()> {
    for _ in 0..60 {
        if action().is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(500));
    }
    Err(failure.into())
}

fn default_report() -> PathBuf {
    root().join("target/chaos")
}

/// Copies the logs to the report. An error is ignored: only logs are lost.
fn copy_logs(directory: &Path, report: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let logs = entries.flatten().map(|entry| entry.path());
    for log in logs.filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
        // A member that cannot read its data repeats the error in its log for ever.
        let is_small = fs::metadata(&log).is_ok_and(|of| of.len() < 4 << 20);
        if let Some(name) = log.file_name().filter(|_| is_small) {
            let _ = fs::copy(&log, report.join(name));
        }
    }
}

/// Sends a signal to a process of this run. An error is ignored: the process has ended.
fn signal(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}
