//! `docent lock` under everything that can happen to it, while its command writes a file with its token: the
//! tokens in the file never go backwards, so no two commands overlap, and nothing is left running.
//!
//! A few rounds each by default. `DOCENT_CHAOS=1` does fifty, and a minute of shells; `DOCENT_SEED=n` chooses
//! other moments. On the server of `DOCENT_TEST_CONNECT`, or an embedded one; the server that is killed is an
//! embedded one, and with Java a real one too.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use docent_testing::{
    TestingServer,
    server::Config,
    tap::{Tap, TapClient},
};
use support::{
    DEADLINE, client, docent, ended, eventually, kill, processes_with,
    real::{RealServer, server, skip, unique_path},
    until_children, within_deadline,
};
use tokio::process::Child;

/// Long enough for a busy machine to keep alive, short enough to wait for its end.
const SESSION: &str = "2s";

fn at_length() -> bool {
    std::env::var_os("DOCENT_CHAOS").is_some()
}

fn rounds() -> u32 {
    if at_length() { 50 } else { 2 }
}

/// Numbers that look random, the same for each seed.
struct Numbers(u64);

impl Numbers {
    fn new(stream: u64) -> Self {
        let seed = std::env::var("DOCENT_SEED").ok().and_then(|text| text.parse().ok());
        Self(seed.unwrap_or(1u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (stream << 32 | 0x5eed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What the commands write: a line for each thing that any of their processes does.
struct Journal(PathBuf);

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Journal {
    fn new() -> Self {
        let name = unique_path("journal").replace('/', "-");
        Self(std::env::temp_dir().join(format!("docent{name}")))
    }

    fn lines(&self) -> Vec<(i64, String)> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let line = |line: &str| {
            let (token, what) = line.split_once(' ').unwrap();
            (token.parse().unwrap(), what.to_owned())
        };
        text.lines().map(line).collect()
    }

    /// Waits for somebody's line, which tells the token.
    async fn until(&self, wanted: &str) -> i64 {
        eventually(&format!("{wanted:?} in the journal"), async || {
            let lines = self.lines();
            lines.into_iter().find(|(_, what)| what == wanted).map(|(token, _)| token)
        })
        .await
    }

    /// Waits for so many more lines.
    async fn goes_on(&self, by: usize) {
        let before = self.lines().len();
        eventually("more lines", async || (self.lines().len() >= before + by).then_some(())).await;
    }

    #[track_caller]
    fn check(&self) {
        let lines = self.lines();
        for pair in lines.windows(2) {
            let [(before, one), (token, other)] = pair else { unreachable!() };
            assert!(token >= before, "{other} with {token} behind {one} with {before}: {lines:?}");
        }
    }
}

/// Runs until it is ended, in three processes: a shell, its child, and a grandchild in a session of its own. None
/// of them listens to TERM.
const FOR_EVER: &str = "exec 2>/dev/null; trap '' TERM
    work() { while :; do echo $DOCENT_FENCING_TOKEN $1 >> $0; sleep 0.01; done; }
    echo $DOCENT_FENCING_TOKEN $NAME-begins >> $0
    work $NAME-child &
    setsid sh -c 'trap \"\" TERM; while :; do echo $DOCENT_FENCING_TOKEN $NAME-stray >> $0; sleep 0.01; done' $0 &
    work $NAME";

/// The same, for a moment.
const FOR_A_MOMENT: &str = "
    work() { for i in 1 2 3 4 5; do echo $DOCENT_FENCING_TOKEN $1 >> $0; sleep 0.01; done; }
    echo $DOCENT_FENCING_TOKEN $NAME-begins >> $0
    work $NAME-child &
    work $NAME; wait";

/// A lock that two contenders want: A, to whom everything happens, and B.
struct Scene {
    server: String,
    tap: Tap,
    a: TapClient,
    path: String,
    mark: String,
    journal: Journal,
}

impl Scene {
    async fn new(server: &str) -> Self {
        let tap = Tap::start(server).await.unwrap();
        let a = tap.client("A").await.unwrap();
        Self {
            server: server.to_owned(),
            tap,
            a,
            path: unique_path("chaos"),
            mark: unique_path("mark"),
            journal: Journal::new(),
        }
    }

    fn start(&self, name: &str, connect: &str, script: &str) -> Child {
        let arguments = ["lock", "--session-timeout", SESSION, "--connect-timeout", "20s"];
        let rest = [&self.path, "--", "sh", "-c", script, self.journal.0.to_str().unwrap()];
        let arguments: Vec<_> = arguments.iter().chain(&rest).collect();
        docent(connect, &arguments).env("NAME", name).env("MARK", &self.mark).spawn().unwrap()
    }

    /// A holds the lock, and its processes write.
    async fn a_holds(&self) -> Child {
        let a = self.start("a", &self.a.connect_string(), FOR_EVER);
        for who in ["a", "a-child", "a-stray"] {
            self.journal.until(who).await;
        }
        a
    }

    /// B waits behind A.
    async fn b_waits(&self) -> Child {
        let b = self.start("b", &self.server, FOR_A_MOMENT);
        until_children(&client(&self.server).await, &self.path, 2).await;
        b
    }

    /// B is served, nothing of A runs beside or after it, and nothing is left.
    async fn b_is_served(self, b: Child) {
        let ran = ended(b).await;
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        let (first, second) =
            (self.journal.until("a-begins").await, self.journal.until("b-begins").await);
        assert!(first < second, "{first}, {second}");
        eventually("the end of all processes", async || {
            processes_with(&self.mark).is_empty().then_some(())
        })
        .await;
        self.journal.check();
        until_children(&client(&self.server).await, &self.path, 0).await;
        drop(self.tap);
    }
}

/// How long B had to wait after what happened to A.
fn report(what: &str, times: &[Duration]) {
    let (min, max) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
    println!(
        "{what}: {} rounds, B began after {min:.2?} to {max:.2?}, mean {mean:.2?}",
        times.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed() {
    let mut times = Vec::new();
    for _ in 0..rounds() {
        let scene = Scene::new(&server()).await;
        let (mut a, b) = (scene.a_holds().await, scene.b_waits().await);
        let began = Instant::now();
        kill("-9", a.id().unwrap()).await;
        a.wait().await.unwrap();
        scene.journal.until("b-begins").await;
        times.push(began.elapsed());
        scene.b_is_served(b).await;
    }
    report("killed -9", &times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_past_its_session_and_continued() {
    let mut times = Vec::new();
    for _ in 0..rounds() {
        let scene = Scene::new(&server()).await;
        let (a, b) = (scene.a_holds().await, scene.b_waits().await);
        let began = Instant::now();
        let pid = a.id().unwrap();
        kill("-STOP", pid).await;
        scene.journal.until("b-begins").await;
        times.push(began.elapsed());
        kill("-CONT", pid).await;
        ended(a).await.failed(125, "the command was ended");
        scene.b_is_served(b).await;
    }
    report("stopped", &times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_connection_swallows_everything() {
    let mut times = Vec::new();
    for _ in 0..rounds() {
        let scene = Scene::new(&server()).await;
        let (a, b) = (scene.a_holds().await, scene.b_waits().await);
        let began = Instant::now();
        scene.a.hold();
        ended(a).await.failed(125, "the command was ended");
        scene.journal.until("b-begins").await;
        times.push(began.elapsed());
        scene.b_is_served(b).await;
    }
    report("black-holed", &times);
}

/// The servers give the lock away before they tell its holder: what keeps B's command from beginning beside A's is the
/// moment that it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_session_is_killed() {
    let mut times = Vec::new();
    for _ in 0..rounds() {
        let scene = Scene::new(&server()).await;
        let (a, b) = (scene.a_holds().await, scene.b_waits().await);
        let began = Instant::now();
        // Whoever kills a session takes it over first, and A takes it back, if it is fast.
        eventually("the end of the session", async || {
            let killed = scene.a.kill_session(DEADLINE).await.is_ok();
            let lines = scene.journal.lines();
            (killed || lines.iter().any(|(_, what)| what == "b-begins")).then_some(())
        })
        .await;
        scene.journal.until("b-begins").await;
        times.push(began.elapsed());
        ended(a).await.failed(125, "the command was ended");
        scene.b_is_served(b).await;
    }
    report("session killed", &times);
}

/// A server that can go away and come back.
trait Mortal {
    fn connect(&self) -> String;
    async fn kill(&mut self);
    async fn start_again(&mut self);
}

impl Mortal for TestingServer {
    fn connect(&self) -> String {
        self.connect_string()
    }

    async fn kill(&mut self) {
        self.stop();
    }

    async fn start_again(&mut self) {
        self.restart().await.unwrap();
    }
}

impl Mortal for RealServer {
    fn connect(&self) -> String {
        Self::connect(self)
    }

    async fn kill(&mut self) {
        Self::kill(self).await;
    }

    async fn start_again(&mut self) {
        Self::start_again(self).await;
    }
}

async fn its_server_is_killed(server: &mut impl Mortal) {
    let (mut times, mut survived) = (Vec::new(), 0);
    for round in 0..rounds() {
        let scene = Scene::new(&server.connect()).await;
        let (mut a, b) = (scene.a_holds().await, scene.b_waits().await);
        server.kill().await;
        if round % 2 == 0 {
            // It comes back soon: the command has stood still, and goes on, unless that took too long.
            server.start_again().await;
            let mut a_has_ended = false;
            let before = scene.journal.lines().len();
            eventually("A goes on, or has ended", async || {
                a_has_ended = a.try_wait().unwrap().is_some();
                (a_has_ended || scene.journal.lines().len() > before + 3).then_some(())
            })
            .await;
            if !a_has_ended {
                survived += 1;
                scene.journal.goes_on(3).await;
                kill("-9", a.id().unwrap()).await;
            }
            a.wait().await.unwrap();
            let began = Instant::now();
            scene.journal.until("b-begins").await;
            times.push(began.elapsed());
        } else {
            // It stays away for longer than the lock can be believed in.
            ended(a).await.failed(125, "the command was ended");
            server.start_again().await;
            scene.journal.until("b-begins").await;
        }
        scene.b_is_served(b).await;
    }
    report("server killed", &times);
    println!("server killed: in {survived} of {} rounds the command went on", times.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_embedded_server_is_killed() {
    let mut server = TestingServer::start_with(Config::default()).await.unwrap();
    its_server_is_killed(&mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_real_server_is_killed() {
    let Some(mut server) = RealServer::start().await else { return };
    if !at_length() && std::env::var_os("DOCENT_TEST_CONNECT").is_none() {
        return skip("the embedded server stands for it");
    }
    its_server_is_killed(&mut server).await;
}

/// Twenty shells in a loop on one path, some of them killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_shells_in_a_loop() {
    const SHELLS: u64 = 20;
    let time = Duration::from_secs(if at_length() { 60 } else { 6 });
    let (server, path, mark) = (server(), unique_path("chaos"), unique_path("mark"));
    let journal = Arc::new(Journal::new());
    let counts = Arc::new(Mutex::new([0_u32; 4]));
    let script = "echo $DOCENT_FENCING_TOKEN begin >> $0; sleep 0.00$1; echo $DOCENT_FENCING_TOKEN end >> $0";
    let began = Instant::now();
    let shells = (0..SHELLS).map(|number| {
        let (server, path, mark) = (server.clone(), path.clone(), mark.clone());
        let (journal, counts) = (Arc::clone(&journal), Arc::clone(&counts));
        tokio::spawn(async move {
            let mut numbers = Numbers::new(number);
            while began.elapsed() < time {
                let pause = numbers.below(10).to_string();
                let file = journal.0.to_str().unwrap();
                let options = ["lock", "--session-timeout", SESSION, "--timeout", "20s"];
                let rest = [&path, "--", "sh", "-c", script, file, &pause];
                let arguments: Vec<_> = options.iter().chain(&rest).collect();
                let shell = docent(&server, &arguments).env("MARK", &mark).spawn().unwrap();
                // One of ten is killed, one of ten asked to end, some time within its life.
                let fate = numbers.below(10);
                let after = Duration::from_millis(numbers.below(300));
                let pid = shell.id().unwrap();
                let waiting = tokio::spawn(ended(shell));
                if fate < 2 {
                    tokio::time::sleep(after).await;
                    if !waiting.is_finished() {
                        let signal = if fate == 0 { "-KILL" } else { "-TERM" };
                        let _ = tokio::process::Command::new("kill")
                            .args([signal, &pid.to_string()])
                            .stderr(std::process::Stdio::null())
                            .status()
                            .await;
                    }
                }
                let ran = waiting.await.unwrap();
                let which = match (ran.code, fate) {
                    (Some(0), _) => 0,
                    (Some(124), _) => 1,
                    (None | Some(143), 0 | 1) => 2,
                    // The lock was lost on a machine that is too busy for its session.
                    (Some(125), _) => 3,
                    _ => panic!("{fate}: {ran:?}"),
                };
                *counts.lock().unwrap().get_mut(which).unwrap() += 1;
            }
        })
    });
    for shell in shells.collect::<Vec<_>>() {
        within_deadline_of(time, shell).await.unwrap();
    }
    let [served, out_of_time, killed, lost] = *counts.lock().unwrap();
    println!(
        "{SHELLS} shells, {time:?}: {served} served, {out_of_time} out of time, {killed} killed, {lost} lost"
    );
    eventually("the end of all processes", async || processes_with(&mark).is_empty().then_some(()))
        .await;
    journal.check();
    // Each hold by itself: nobody begins between another's begin and end.
    let (mut holder, mut holds) = (None, 0);
    for (token, what) in journal.lines() {
        if what == "begin" {
            assert!(Some(token) > holder, "{token} began after {holder:?}");
            holder = Some(token);
            holds += 1;
        } else {
            assert_eq!(Some(token), holder, "ended while another held");
        }
    }
    assert!(holds >= served && served > 0, "{holds} holds, {served} served");
    until_children(&client(&server).await, &path, 0).await;
}

async fn within_deadline_of<F: Future>(more: Duration, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE + more, future).await {
        Ok(result) => result,
        Err(_) => within_deadline("the shells", std::future::pending()).await,
    }
}
