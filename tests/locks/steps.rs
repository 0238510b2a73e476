//! An acquire emits an event at level TRACE for each of its steps, as the documentation of `lock_internals` lists them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{eventually, within_deadline};
use docent::{
    Client,
    protocol::OpCode,
    recipes::locks::{InterProcessMutex, LockOptions},
    session::retry::RetryNTimes,
};
use docent_testing::{TestingServer, fault::Fault};
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Collects the number and message of each step, in order.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<(u64, String)>>>);

impl Steps {
    /// Returns the numbers of the steps since the last call.
    fn take(&self) -> Vec<u64> {
        self.0.lock().unwrap().drain(..).map(|(step, _)| step).collect()
    }
}

impl Subscriber for Steps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("docent_recipes") && *metadata.level() == Level::TRACE
    }

    fn event(&self, event: &Event<'_>) {
        let mut step = Step::default();
        event.record(&mut step);
        if let Some(number) = step.number {
            assert!(step.has_path, "{number}. {}", step.message);
            self.0.lock().unwrap().push((number, step.message));
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The fields of an event.
#[derive(Default)]
struct Step {
    number: Option<u64>,
    message: String,
    has_path: bool,
}

impl Visit for Step {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "step" {
            self.number = value.try_into().ok();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "path" => self.has_path = true,
            _ => {}
        }
    }
}

/// The number and first words of each step in the documentation.
fn documented() -> BTreeMap<u64, String> {
    let source = include_str!("../../recipes/src/locks/lock_internals.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    rows.filter_map(|row| row.split_once(". "))
        .filter_map(|(number, text)| {
            let words = text.split([',', ':', '|']).next()?;
            Some((number.parse().ok()?, words.trim().to_owned()))
        })
        .collect()
}

#[tokio::test]
async fn every_step_is_traced_in_the_words_of_its_documentation() {
    let steps = Steps::default();
    // While there is only one subscriber, tracing asks the thread that comes to a callsite first: that of another test has
    // none, and would disable the callsite here too.
    let _second = Dispatch::new(steps.clone());
    let _guard = tracing::subscriber::set_default(steps.clone());
    let server = TestingServer::start().await.unwrap();
    let tap = server.tap().await.unwrap();
    let client = Client::connect(&tap.connect_string()).await.unwrap();
    let policy = RetryNTimes::new(5, Duration::from_millis(10));
    let options = LockOptions::default().with_retry_policy(policy);
    let mutex = InterProcessMutex::with_options(&client, "/steps", options).unwrap();
    let mut all = Vec::new();
    let mut assert_steps = |expected: &[u64]| {
        all.extend(steps.0.lock().unwrap().iter().cloned());
        assert_eq!(steps.take(), expected);
    };

    // Parents are missing.
    mutex.acquire().await.unwrap().release().await.unwrap();
    assert_steps(&[1, 2, 5, 6, 10]);
    // A reply is lost.
    tap.inject(Fault::drop_reply(OpCode::Create2));
    let holder = mutex.acquire().await.unwrap();
    assert_steps(&[1, 3, 5, 6]);
    // A timeout behind the holder: the queue is listed once more after the deadline.
    let none = mutex.acquire_timeout(Duration::from_secs(2)).await.unwrap();
    assert!(none.is_none());
    assert_steps(&[1, 5, 7, 8, 5, 7, 9]);
    // A revocable waiter that is woken.
    mutex.make_revocable(|| {});
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    // The watches of its own node and of the holder's are set.
    eventually("the waiter", async || {
        let watches = steps.0.lock().unwrap().iter().any(|(step, _)| *step == 7);
        (watches && client.metrics().pending == 0).then_some(())
    })
    .await;
    holder.release().await.unwrap();
    let guard = within_deadline("the waiter", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    assert_steps(&[1, 4, 5, 7, 10, 8, 5, 6, 10]);

    let all: BTreeMap<u64, String> = all.into_iter().collect();
    assert_eq!(all, documented());
}
