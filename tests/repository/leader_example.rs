//! The example `leader` while its leader is killed, stopped and cut off.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
};

use docent_testing::{
    TestingServer,
    tap::{Tap, TapClient},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::support::{eventually, until, within_deadline};

/// A line `report VERSION with token TOKEN by NAME`: the server has accepted a report.
#[derive(Debug, Clone)]
struct Report {
    version: i32,
    token: i64,
    name: String,
}

impl Report {
    fn parse(line: &str) -> Option<Self> {
        let (version, rest) = line.strip_prefix("report ")?.split_once(" with token ")?;
        let (token, name) = rest.split_once(" by ")?;
        let (version, token) = (version.parse().unwrap(), token.parse().unwrap());
        Some(Self { version, token, name: name.to_owned() })
    }
}

/// Several workers, each behind its own tap, and all that they print.
struct Workers {
    tap: Tap,
    printed: Arc<Mutex<Vec<String>>>,
    running: Vec<(String, Child, TapClient)>,
}

impl Workers {
    async fn start(&mut self, name: &str) {
        let tap = self.tap.client(name).await.unwrap();
        let program = xtask::example("leader").unwrap();
        let mut command = Command::new(program);
        command.args([name, "1000000"]).env("DOCENT_CONNECT", tap.connect_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut worker = command.spawn().unwrap();
        let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
        let printed = Arc::clone(&self.printed);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                printed.lock().unwrap().push(line);
            }
        });
        self.running.push((name.to_owned(), worker, tap));
    }

    fn reports(&self) -> Vec<Report> {
        self.printed.lock().unwrap().iter().filter_map(|line| Report::parse(line)).collect()
    }

    /// Waits for a report with a greater token, by a worker that `is_one`.
    async fn next_leader(&self, token: i64, is_one: impl Fn(&str) -> bool) -> Report {
        let found = async || {
            let reports = self.reports();
            reports.into_iter().find(|report| report.token > token && is_one(&report.name))
        };
        eventually("a report of the next leader", found).await
    }

    async fn signal(&self, name: &str, signal: &str) {
        let pid = self.running.iter().find(|(one, ..)| one == name).unwrap().1.id().unwrap();
        let mut kill = Command::new("kill");
        assert!(kill.args([signal, &pid.to_string()]).status().await.unwrap().success());
    }

    fn tap(&self, name: &str) -> &TapClient {
        &self.running.iter().find(|(one, ..)| one == name).unwrap().2
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_killed_stopped_and_cut_off_and_the_work_goes_on() {
    let server = TestingServer::start().await.unwrap();
    let tap = server.tap().await.unwrap();
    let mut workers = Workers { tap, printed: Arc::default(), running: Vec::new() };
    workers.start("a").await;
    let first = workers.next_leader(0, |name| name == "a").await;
    for name in ["b", "c", "d"] {
        workers.start(name).await;
    }

    // kill -9: the session expires.
    workers.signal("a", "-9").await;
    let second = workers.next_leader(first.token, |_| true).await;

    // kill -STOP: the session expires, and the stopped leader continues with its next write.
    workers.signal(&second.name, "-STOP").await;
    let third = workers.next_leader(second.token, |_| true).await;
    workers.signal(&second.name, "-CONT").await;
    let stopped = format!("{} has stopped; still leading: false", second.name);
    let noticed = async || workers.printed.lock().unwrap().contains(&stopped);
    until("the former leader has noticed", noticed).await;

    // A broken connection: by the standard policy the work stops at once, and the same leader continues.
    workers.tap(&third.name).cut();
    let again = format!("{} leads, for the 2. time", third.name);
    until("it leads again", async || workers.printed.lock().unwrap().contains(&again)).await;
    let reports = workers.reports().len();
    until("more reports", async || workers.reports().len() > reports).await;

    // Cut off for longer than its session.
    workers.tap(&third.name).refuse().await.unwrap();
    workers.tap(&third.name).cut();
    let fourth = workers.next_leader(third.token, |name| name != third.name).await;
    workers.tap(&third.name).accept().await.unwrap();

    // The former leaders have queued again, behind the others.
    workers.signal(&fourth.name, "-9").await;
    let fifth = workers.next_leader(fourth.token, |name| name != fourth.name).await;
    workers.signal(&fifth.name, "-9").await;
    workers.next_leader(fifth.token, |_| true).await;

    for (_, worker, _) in &mut workers.running {
        let _ = worker.start_kill();
        within_deadline("its end", worker.wait()).await.unwrap();
    }
    let mut reports = workers.reports();
    reports.sort_by_key(|report| report.version);
    for pair in reports.windows(2) {
        let [before, after] = pair else { unreachable!() };
        assert!(before.version < after.version, "{before:?}, {after:?}");
        assert!(before.token <= after.token, "a former leader has written: {before:?}, {after:?}");
        assert!(before.token < after.token || before.name == after.name, "{before:?}, {after:?}");
    }
}
