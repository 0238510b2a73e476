//! A task that waits for a lock that it holds itself is warned, and no other task is.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use crate::support::eventually;
use docent::{
    Client,
    recipes::locks::{InterProcessMutex, InterProcessSemaphoreV2, Owner},
};
use docent_testing::TestingServer;
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Collects the fields `path` and `own` of each warning.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<Warning>>>);

#[derive(Debug, Clone, Default, PartialEq)]
struct Warning {
    path: String,
    own: String,
}

impl Warnings {
    fn all(&self) -> Vec<Warning> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("docent_recipes") && *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut warning = Warning::default();
        event.record(&mut warning);
        self.0.lock().unwrap().push(warning);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Visit for Warning {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "path" => value.clone_into(&mut self.path),
            "own" => value.clone_into(&mut self.own),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

#[tokio::test]
async fn a_task_that_waits_for_itself_is_warned_and_others_are_not() {
    let warnings = Warnings::default();
    // With one subscriber only, the thread that comes to a callsite first decides: another test's has none.
    let _second = Dispatch::new(warnings.clone());
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let server = TestingServer::start().await.unwrap();
    let client = Client::connect(&server.connect_string()).await.unwrap();
    let mutex = InterProcessMutex::new(&client, "/mutex").unwrap();
    let semaphore = InterProcessSemaphoreV2::new(&client, "/semaphore", 2).unwrap();

    let guard = mutex.acquire().await.unwrap();
    let one = semaphore.acquire().await.unwrap();
    // The second lease is another task's: it may return it.
    let shared = InterProcessSemaphoreV2::new(&client, "/shared", 2).unwrap();
    let ours = shared.acquire().await.unwrap();
    let theirs = tokio::spawn({
        let shared = shared.clone();
        async move { shared.acquire().await.unwrap() }
    });
    let theirs = theirs.await.unwrap();
    let two = semaphore.acquire().await.unwrap();
    // Another task that waits for the same mutex, and had acquired and released it before: no warning.
    let other = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await.unwrap().release().await }
    });
    // It is ahead of this task, which waits for it and for itself.
    eventually("the other task waits", async || {
        (mutex.participants().await.unwrap().len() == 2).then_some(())
    })
    .await;

    let again = InterProcessMutex::new(&client, "/mutex").unwrap();
    let owner = Owner::new();
    // First, so that a wrong warning would come first.
    let of_others = shared.acquire();
    let of_itself = async {
        eventually("the wait for another task's lease", async || {
            (shared.participants().await.unwrap().len() == 3).then_some(())
        })
        .await;
        tokio::join!(again.acquire_as(&owner), semaphore.acquire())
    };
    let two_warnings = async || (warnings.all().len() >= 2).then_some(());
    tokio::select! {
        _ = of_others => panic!("no lease was returned"),
        _ = of_itself => panic!("the task holds both"),
        () = eventually("two warnings", two_warnings) => {}
    }
    let mut own: Vec<_> = warnings.all().into_iter().map(|warning| warning.own).collect();
    own.sort();
    assert_eq!(own.len(), 2, "{own:?}");
    assert_eq!(own[0], guard.lock_path());
    assert!([one.lock_path(), two.lock_path()].contains(&&*own[1]), "{own:?}");
    for warning in warnings.all() {
        assert!(warning.path.starts_with("/mutex/") || warning.path.starts_with("/semaphore/"));
    }

    for lease in [one, two, ours, theirs] {
        lease.release().await.unwrap();
    }
    guard.release().await.unwrap();
    other.await.unwrap().unwrap();
    // A released lock is no longer the task's.
    again.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(warnings.all().len(), 2);
}
