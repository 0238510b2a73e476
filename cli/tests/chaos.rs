//! `docent lock` and `docent lead` under faults. The processes of their command write their fencing token to a file.
//! The tokens in the file must never decrease, so no two commands overlap, and no process may be left.
//!
//! By default, each test has two rounds. `DOCENT_CHAOS=1` runs fifty, and the shells for a minute; `DOCENT_SEED=n`
//! selects other times, and `DOCENT_CHAOS_COMMAND='lock --strict'` selects one command. The tests run on the server of
//! `DOCENT_TEST_CONNECT`, or on an embedded one. The server that is killed is an embedded one, and with Java also a
//! real one.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use docent_testing::{
    TestingServer,
    server::Config,
    tap::{Tap, TapClient},
};
use support::{
    DEADLINE, TemporaryFile, client, docent, ended, eventually, kill,
    real::{RealServer, Restartable, server, skip, unique_path},
    until, until_children, until_no_process,
};
use tokio::{process::Child, sync::RwLock};

/// Long enough that a busy machine keeps the session alive, short enough to wait for its expiry.
const SESSION: &str = "6s";

/// The twenty shells run alone: beside them, a process of another test might not keep its session.
static PROCESSORS: RwLock<()> = RwLock::const_new(());

fn is_long_run() -> bool {
    std::env::var_os("DOCENT_CHAOS").is_some()
}

/// Each round with each command, or only with that of `DOCENT_CHAOS_COMMAND`.
fn rounds() -> impl Iterator<Item = (u32, &'static str)> {
    let rounds = if is_long_run() { 50 } else { 2 };
    let only = std::env::var("DOCENT_CHAOS_COMMAND").ok();
    let commands = ["lock", "lead", "lock --strict"];
    let is_wanted =
        move |(_, command): &(u32, &str)| only.as_deref().is_none_or(|it| it == *command);
    (0..rounds).flat_map(move |round| commands.map(|command| (round, command))).filter(is_wanted)
}

/// Pseudo-random numbers (xorshift64), reproducible by the seed.
struct Random(u64);

impl Random {
    fn new(stream: u64) -> Self {
        let seed = std::env::var("DOCENT_SEED").ok().and_then(|text| text.parse().ok());
        Self(seed.unwrap_or(1u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (stream << 32 | 0x5eed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The file to which the commands write. Each line has a token and the name of a process.
struct Journal(TemporaryFile);

impl Journal {
    fn lines(&self) -> Vec<(i64, String)> {
        let text = self.0.text();
        let parse = |line: &str| {
            let (token, name) = line.split_once(' ').unwrap();
            (token.parse().unwrap(), name.to_owned())
        };
        // A line that crosses a page of the file can be read before it is completely written.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        complete.lines().map(parse).collect()
    }

    /// Waits for the first line of a process and returns its token.
    async fn wait_for(&self, process: &str) -> i64 {
        eventually(&format!("{process:?} in the journal"), async || {
            let lines = self.lines();
            lines.into_iter().find(|(_, name)| name == process).map(|(token, _)| token)
        })
        .await
    }

    /// Waits for `count` more lines.
    async fn wait_for_more(&self, count: usize) {
        let before = self.lines().len();
        until("more lines", async || self.lines().len() >= before + count).await;
    }

    /// Asserts that tokens never decrease.
    #[track_caller]
    fn check(&self) {
        let lines = self.lines();
        for pair in lines.windows(2) {
            let [(before, one), (token, other)] = pair else { unreachable!() };
            assert!(token >= before, "{other} with {token} after {one} with {before}: {lines:?}");
        }
    }
}

/// Runs until it is killed, as three processes: a shell, its child, and a child in a new session (setsid). All of
/// them ignore TERM.
const ENDLESS: &str = "exec 2>/dev/null; trap '' TERM
    work() { while :; do echo $DOCENT_FENCING_TOKEN $1 >> $0; sleep 0.01; done; }
    echo $DOCENT_FENCING_TOKEN $NAME-starts >> $0
    work $NAME-child &
    setsid sh -c 'trap \"\" TERM; while :; do echo $DOCENT_FENCING_TOKEN $NAME-stray >> $0; sleep 0.01; done' $0 &
    work $NAME";

/// The same processes, but for about 50 ms.
const SHORT: &str = "
    work() { for i in 1 2 3 4 5; do echo $DOCENT_FENCING_TOKEN $1 >> $0; sleep 0.01; done; }
    echo $DOCENT_FENCING_TOKEN $NAME-starts >> $0
    work $NAME-child &
    work $NAME; wait";

/// A lock or an election with two contenders: A, which the faults hit, and B.
struct Fixture {
    command: &'static str,
    server: String,
    tap: Tap,
    a: TapClient,
    path: String,
    mark: String,
    journal: Journal,
}

impl Fixture {
    async fn new(command: &'static str, server: &str) -> Self {
        let tap = Tap::start(server).await.unwrap();
        let a = tap.client("A").await.unwrap();
        Self {
            command,
            server: server.to_owned(),
            tap,
            a,
            path: unique_path("chaos"),
            mark: unique_path("mark"),
            journal: Journal(TemporaryFile::new()),
        }
    }

    fn start(&self, name: &str, connect: &str, script: &str) -> Child {
        let command = self.command.split(' ');
        let arguments = ["--session-timeout", SESSION, "--connect-timeout", "20s"];
        let rest = [&self.path, "--", "sh", "-c", script, self.journal.0.path()];
        let arguments: Vec<_> = command.chain(arguments).chain(rest).collect();
        docent(connect, &arguments).env("NAME", name).env("MARK", &self.mark).spawn().unwrap()
    }

    /// Starts A, and waits until it has acquired the lock and its processes write.
    async fn start_holder(&self) -> Child {
        let a = self.start("a", &self.a.connect_string(), ENDLESS);
        for process in ["a", "a-child", "a-stray"] {
            self.journal.wait_for(process).await;
        }
        a
    }

    /// Starts B, which waits for A.
    async fn start_waiter(&self) -> Child {
        let b = self.start("b", &self.server, SHORT);
        until_children(&client(&self.server).await, &self.path, 2).await;
        b
    }

    /// Asserts that B acquired the lock and exited, that no process of A ran at the same time or later, and that no
    /// process is left.
    async fn finish(self, b: Child) {
        ended(b).await.exited(0);
        let (first, second) =
            (self.journal.wait_for("a-starts").await, self.journal.wait_for("b-starts").await);
        assert!(first < second, "{first}, {second}");
        until_no_process(&self.mark).await;
        self.journal.check();
        until_children(&client(&self.server).await, &self.path, 0).await;
        drop(self.tap);
    }
}

/// Prints the times from the fault of A to the start of the command of B.
fn report(fault: &str, times: &[Duration]) {
    let (min, max) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
    println!(
        "{fault}: {} rounds, B started after {min:.2?} to {max:.2?}, mean {mean:.2?}",
        times.len()
    );
}

/// In each round, A holds the lock and B waits for it. The fault returns once A has ended.
async fn each_round(name: &str, fault: impl AsyncFn(&Fixture, Child)) {
    let mut times = Vec::new();
    for (_, command) in rounds() {
        let _shared = PROCESSORS.read().await;
        let fixture = Fixture::new(command, &server()).await;
        let (a, b) = (fixture.start_holder().await, fixture.start_waiter().await);
        let start = Instant::now();
        let b_starts = async {
            fixture.journal.wait_for("b-starts").await;
            times.push(start.elapsed());
        };
        tokio::join!(b_starts, fault(&fixture, a));
        fixture.finish(b).await;
    }
    report(name, &times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docent_is_killed() {
    each_round("killed -9", async |_, mut a| {
        kill("-9", a.id().unwrap()).await;
        a.wait().await.unwrap();
    })
    .await;
}

// Case (Contracts of docent lock): it is stopped, and continued too late.
// Case (Found in docent itself): a test of the command line read the last line of a file before its
// end was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docent_is_stopped_past_its_session_and_continued() {
    each_round("stopped", async |fixture, a| {
        let pid = a.id().unwrap();
        kill("-STOP", pid).await;
        fixture.journal.wait_for("b-starts").await;
        kill("-CONT", pid).await;
        ended(a).await.failed(125, "the command was ended");
    })
    .await;
}

// Case (Contracts of docent lock): no server replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_drops_everything() {
    each_round("black-holed", async |fixture, a| {
        fixture.a.stall();
        ended(a).await.failed(125, "the command was ended");
    })
    .await;
}

/// Servers delete the lock node before they notify the holder: only the delay of B's command keeps it from running
/// beside A's.
// Case (Contracts of docent lock): the session is lost while the command runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_is_killed() {
    each_round("session killed", async |fixture, a| {
        // The killer takes the session over first, and A may take it back before it is closed.
        until("the end of the session", async || {
            let killed = fixture.a.kill_session(DEADLINE).await.is_ok();
            killed || fixture.journal.lines().iter().any(|(_, name)| name == "b-starts")
        })
        .await;
        ended(a).await.failed(125, "the command was ended");
    })
    .await;
}

async fn kill_server(server: &mut Restartable, rounds: impl Iterator<Item = (u32, &'static str)>) {
    let (mut times, mut continued) = (Vec::new(), 0);
    for (round, command) in rounds {
        let _shared = PROCESSORS.read().await;
        let fixture = Fixture::new(command, &server.connect()).await;
        let (mut a, b) = (fixture.start_holder().await, fixture.start_waiter().await);
        server.stop().await;
        if round % 2 == 0 {
            // The server restarts soon, so the stopped command continues, unless the restart took too long.
            server.restart().await;
            let mut a_has_exited = false;
            let before = fixture.journal.lines().len();
            until("A continues or exits", async || {
                a_has_exited = a.try_wait().unwrap().is_some();
                a_has_exited || fixture.journal.lines().len() > before + 3
            })
            .await;
            if !a_has_exited {
                continued += 1;
                fixture.journal.wait_for_more(3).await;
                kill("-9", a.id().unwrap()).await;
            }
            a.wait().await.unwrap();
            let start = Instant::now();
            fixture.journal.wait_for("b-starts").await;
            times.push(start.elapsed());
        } else {
            // The server stays down until the lock's lease ends.
            ended(a).await.failed(125, "the command was ended");
            server.restart().await;
            fixture.journal.wait_for("b-starts").await;
        }
        fixture.finish(b).await;
    }
    report("server killed", &times);
    println!("server killed: the command continued in {continued} of {} rounds", times.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_server_is_killed() {
    let server = TestingServer::start_with(Config::default()).await.unwrap();
    kill_server(&mut Restartable::Embedded(server), rounds()).await;
}

/// Runs only one command, unless it is a long run, because a real server takes seconds to start again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_server_is_killed() {
    let Some(server) = RealServer::start().await else { return };
    if !is_long_run() && std::env::var_os("DOCENT_TEST_CONNECT").is_none() {
        return skip("short run: only the embedded server is killed");
    }
    let rounds = rounds().filter(|(_, command)| is_long_run() || *command == "lock");
    kill_server(&mut Restartable::Real(Box::new(server)), rounds).await;
}

// Case (Contracts of docent lock): twenty shells in a loop, some killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_shells_lock_in_a_loop() {
    twenty_shells("lock").await;
}

// Case (Contracts of docent lead): twenty shells in a loop, some killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_shells_lead_in_a_loop() {
    twenty_shells("lead").await;
}

// Case (Found in docent itself): `docent lock` exited with 71, "the command could not be started",
// when the time of its hold was up before its watchdog had started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_shells_lock_strictly_in_a_loop() {
    twenty_shells("lock --strict").await;
}

/// Twenty shells acquire one lock, or lead, in a loop. Some are killed.
async fn twenty_shells(command: &'static str) {
    const SHELLS: u64 = 20;
    let _alone = PROCESSORS.write().await;
    let time = Duration::from_secs(if is_long_run() { 60 } else { 6 });
    let (server, path, mark) = (server(), unique_path("chaos"), unique_path("mark"));
    let journal = Arc::new(Journal(TemporaryFile::new()));
    let counts = Arc::new(Mutex::new([0_u32; 4]));
    let script = "echo $DOCENT_FENCING_TOKEN begin >> $0; sleep 0.00$1; echo $DOCENT_FENCING_TOKEN end >> $0";
    let start = Instant::now();
    let shells = (0..SHELLS).map(|number| {
        let (server, path, mark) = (server.clone(), path.clone(), mark.clone());
        let (journal, counts) = (Arc::clone(&journal), Arc::clone(&counts));
        tokio::spawn(async move {
            let mut random = Random::new(number);
            while start.elapsed() < time {
                let pause = random.below(10).to_string();
                let file = journal.0.path();
                let options = ["--session-timeout", SESSION, "--timeout", "20s"];
                let rest = [&path, "--", "sh", "-c", script, file, &pause];
                let arguments: Vec<_> = command.split(' ').chain(options).chain(rest).collect();
                let shell = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
                // One in ten is sent KILL and one in ten TERM, after up to 300 ms.
                let choice = random.below(10);
                let after = Duration::from_millis(random.below(300));
                let pid = shell.id().unwrap();
                let waiting = tokio::spawn(ended(shell));
                if choice < 2 {
                    tokio::time::sleep(after).await;
                    if !waiting.is_finished() {
                        let signal = if choice == 0 { "-KILL" } else { "-TERM" };
                        let _ = tokio::process::Command::new("kill")
                            .args([signal, &pid.to_string()])
                            .stderr(std::process::Stdio::null())
                            .status()
                            .await;
                    }
                }
                let ran = waiting.await.unwrap();
                let index = match (ran.code, choice) {
                    (Some(0), _) => 0,
                    (Some(124), _) => 1,
                    (None | Some(143), 0 | 1) => 2,
                    // The lock was lost because the machine is too busy to keep the session alive.
                    (Some(125), _) => 3,
                    _ => panic!("{choice}: {ran:?}"),
                };
                *counts.lock().unwrap().get_mut(index).unwrap() += 1;
            }
        })
    });
    for shell in shells.collect::<Vec<_>>() {
        tokio::time::timeout(DEADLINE + time, shell).await.expect("the shells end").unwrap();
    }
    let [completed, timed_out, killed, lost] = *counts.lock().unwrap();
    println!(
        "{SHELLS} shells, docent {command}, {time:?}: {completed} completed, {timed_out} timed out, {killed} killed, {lost} lost"
    );
    until_no_process(&mark).await;
    journal.check();
    // Holds must not overlap: between the begin and the end of a hold there is no other token.
    let (mut holder, mut holds) = (None, 0);
    for (token, event) in journal.lines() {
        if event == "begin" {
            assert!(Some(token) > holder, "{token} began after {holder:?}");
            holder = Some(token);
            holds += 1;
        } else {
            assert_eq!(Some(token), holder, "{token} ended during the hold of {holder:?}");
        }
    }
    assert!(holds >= completed && completed > 0, "{holds} holds, {completed} completed");
    until_children(&client(&server).await, &path, 0).await;
}
