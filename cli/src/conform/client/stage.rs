//! What a case plays on: the embedded server, a tap in front of it that does the one thing, and the driver.

use std::{
    fmt::Display,
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

use docent::{Client, Config, CreateMode};
use docent_protocol::OpCode;
use docent_testing::{
    TestingServer,
    fault::{Action, Fault},
    tap::{Record, Tap, TapClient, What},
};

use super::{
    driver::{Answer, Driver, Task},
    judgement::{Finding, Judged, is_definite},
};

/// The session timeout that drivers ask for, in milliseconds.
pub(super) const SESSION_MS: u32 = 6000;

/// The node that each case has from the beginning, and its data.
pub(super) const NODE: &str = "/node";
pub(super) const DATA: &str = "first";

/// How often a condition is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// What a case plays on.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) server: TestingServer,
    /// Everything that the driver sends passes here.
    pub(super) tap: Tap,
    pub(super) port: TapClient,
    /// Another client, which changes nodes and reads what is true.
    pub(super) other: Client,
    pub(super) driver: Driver,
    /// Whether a fault waits for a request of the driver.
    is_armed: bool,
    /// The number of values that the first node has had from `recovers`.
    values: u32,
}

/// The server of a case failed.
pub(super) fn no_case(error: impl Display) -> Finding {
    Finding::NoCase(format!("the server of the case: {error}"))
}

impl Stage {
    /// Starts a server with one node, and the driver.
    pub(super) async fn new(command: &[String], limit: Duration) -> Result<Self, Finding> {
        let server = TestingServer::start().await.map_err(no_case)?;
        let tap = server.tap().await.map_err(no_case)?;
        let port = tap.client("driver").await.map_err(no_case)?;
        let config = Config::new(&server.connect_string()).map_err(no_case)?;
        let other = config.connect().await.map_err(no_case)?;
        other.create(NODE, DATA.as_bytes(), CreateMode::Persistent).await.map_err(no_case)?;
        let driver = Driver::start(command, &port.connect_string(), limit).map_err(no_case)?;
        Ok(Self { server, tap, port, other, driver, is_armed: false, values: 0 })
    }

    /// Lets the driver connect.
    pub(super) async fn connect(&mut self, session_ms: u32) -> Result<(), Finding> {
        match self.ask(&format!("connect {session_ms}")).await? {
            Answer::Ok(_) if self.port.session_id().is_none() => {
                Err(Finding::Untrue("connected, without a session at the server".to_owned()))
            }
            Answer::Ok(_) => {
                self.driver.forget();
                Ok(())
            }
            Answer::Error(error) => {
                Err(Finding::Untrue(format!("connect: {error}, of a server that serves")))
            }
        }
    }

    /// Starts to connect, without waiting.
    pub(super) fn connecting(&mut self) -> Task {
        self.driver.send(&format!("connect {SESSION_MS}"))
    }

    /// Sends a task, and waits for its answer.
    pub(super) async fn ask(&mut self, task: &str) -> Result<Answer, Finding> {
        let task = self.driver.send(task);
        self.driver.answer(&task).await
    }

    /// Nothing has been reported yet: a notice that comes before its cause would count as one of it.
    pub(super) async fn expect_no_notice(&mut self) -> Result<(), Finding> {
        self.expect("state", "connected").await?;
        let early = ["event", "end", "state suspended", "state expired"];
        match early.into_iter().find(|text| self.driver.has_noticed(text)) {
            None => Ok(()),
            Some(text) => Err(Finding::Untrue(format!("`! {text}`, before anything happened"))),
        }
    }

    /// Lets the driver watch a node.
    pub(super) async fn watch(&mut self, path: &str, exists: bool) -> Result<(), Finding> {
        self.expect(&format!("watch {path}"), &exists.to_string()).await?;
        self.expect_no_notice().await
    }

    /// Sends a task that must succeed with this value.
    pub(super) async fn expect(&mut self, task: &str, expected: &str) -> Result<(), Finding> {
        let answer = self.ask(task).await?;
        if answer == Answer::Ok(expected.to_owned()) {
            return Ok(());
        }
        Err(Finding::Untrue(format!("{}, to `{task}`, instead of ok {expected}", said(&answer))))
    }

    /// Sets a fault for the next request about a path, whatever its operation.
    pub(super) fn fault(&mut self, path: &str, action: Action) {
        self.inject(Fault::new(action, None).below(path));
    }

    /// Sets a fault, which a request of the driver must meet.
    pub(super) fn inject(&mut self, fault: Fault) {
        self.is_armed = true;
        self.tap.inject(fault);
    }

    /// Fails if the driver has answered without the request that a fault waited for.
    pub(super) fn has_met_its_fault(&self) -> Result<(), Finding> {
        let is_met = || self.tap.trace().iter().any(|one| one.injected.is_some());
        if !self.is_armed || is_met() {
            return Ok(());
        }
        Err(Finding::Untrue("an answer, without a request to the server".to_owned()))
    }

    /// Replaces the reply to the next request of this type.
    pub(super) fn rewrite(&mut self, op: OpCode, rewrite: docent_testing::fault::Rewrite) {
        self.inject(Fault::rewrite_reply(op, rewrite));
    }

    /// Whether a node exists.
    pub(super) async fn exists(&self, path: &str) -> Result<bool, Finding> {
        self.other.exists(path).await.map(|stat| stat.is_some()).map_err(no_case)
    }

    /// The data of a node.
    pub(super) async fn data(&self, path: &str) -> Result<Vec<u8>, Finding> {
        let data = self.other.get_data(path).await.map_err(no_case)?;
        Ok(data.data.to_vec())
    }

    /// Changes the data of a node, as another client.
    pub(super) async fn change(&self, path: &str, data: &str) -> Result<(), Finding> {
        self.other.set_data(path, data.as_bytes(), None).await.map(drop).map_err(no_case)
    }

    /// Waits until the driver has the data of the first node again. Its errors may be repeated, its data must be right: they
    /// are new ones, which nobody knows who has not read them. `said` is what it did before.
    pub(super) async fn recovers(&mut self, said: &str) -> Judged {
        let since = Instant::now();
        self.values += 1;
        let data = format!("{:x}", RandomState::new().hash_one(self.values));
        let stat = self.other.set_data(NODE, data.as_bytes(), None).await.map_err(no_case)?;
        let truth = format!("{} {data}", stat.version);
        let mut last = String::new();
        while since.elapsed() < self.driver.limit {
            match self.ask(&format!("get {NODE}")).await? {
                Answer::Ok(value) if value == truth => {
                    return Ok(if said.is_empty() {
                        "recovers".to_owned()
                    } else {
                        format!("{said}, recovers")
                    });
                }
                Answer::Ok(value) => {
                    let text = format!("ok {value}, to `get {NODE}`, instead of {truth}");
                    return Err(Finding::Untrue(text));
                }
                Answer::Error(error) if is_definite(&error) => {
                    return Err(Finding::Untrue(format!("{error}, of a node that exists")));
                }
                Answer::Error(error) => last = error,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Finding::Hangs(format!("no request succeeds again; the last error is {last}")))
    }

    /// Judges the answer to a task whose outcome the client cannot know, or that the server refused: any error but one
    /// that says what is not so, or the truth.
    pub(super) async fn unknown(&mut self, answer: &Answer, is_applied: bool) -> Judged {
        match answer {
            Answer::Ok(_) if !is_applied => {
                Err(Finding::Untrue("ok, of an operation that was not applied".to_owned()))
            }
            Answer::Ok(_) => self.recovers("").await,
            Answer::Error(error) if is_definite(error) => {
                let text = format!(
                    "{error}, of an operation {} applied",
                    if is_applied { "that was" } else { "that would have been" }
                );
                Err(Finding::Untrue(text))
            }
            Answer::Error(error) => self.recovers(&format!("says {error}")).await,
        }
    }

    /// Judges the answer to a reply that is not the protocol's: any error, or what is true.
    pub(super) async fn malformed(&mut self, task: &str, truth: &str) -> Judged {
        match self.ask(task).await? {
            Answer::Error(error) => self.recovers(&format!("says {error}")).await,
            Answer::Ok(value) if value == truth => self.recovers("").await,
            answer => {
                Err(Finding::Untrue(format!("{}, to `{task}`, instead of {truth}", said(&answer))))
            }
        }
    }

    /// Waits until no session but that of the other client is left. A session that is over because of its timeout was not
    /// closed.
    pub(super) async fn has_closed_its_session(&self) -> bool {
        let is_close =
            |one: &Record| matches!(one.what, What::Request { op: OpCode::CloseSession, .. });
        let since = Instant::now();
        while since.elapsed() < self.driver.limit {
            if self.server.session_ids().len() <= 1 {
                return self.tap.trace().iter().any(is_close);
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }
}

/// An answer, for a message.
pub(super) fn said(answer: &Answer) -> String {
    match answer {
        Answer::Ok(value) => format!("ok {}", value.chars().take(60).collect::<String>()),
        Answer::Error(error) => format!("error {error}"),
    }
}
