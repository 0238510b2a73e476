//! SASL mechanisms that block, on the embedded server: DIGEST-MD5 that waits for a gate.

use docent_session::{
    runtime::{BlockingWork, Runtime, Task, Timer},
    sasl::{SaslAction, SaslContext, SaslCredential, SaslError, SaslExchange, SaslMechanism},
};
use docent_testing::server;
use std::{
    fmt,
    pin::Pin,
    sync::{Condvar, atomic::AtomicUsize},
};
use tokio::runtime::Handle;

use super::*;
use crate::support::*;

/// A gate that each step has to pass, and the number of steps that wait at it.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_waiting.fetch_max(waiting, Ordering::SeqCst);
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    async fn reached(&self) {
        eventually("a step", async || self.waiting.load(Ordering::SeqCst) > 0).await;
    }
}

/// DIGEST-MD5 behind a gate.
struct Gated {
    digest: SaslCredential,
    gate: Arc<Gate>,
}

impl fmt::Debug for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").finish_non_exhaustive()
    }
}

impl SaslMechanism for Gated {
    fn name(&self) -> &str {
        "DIGEST-MD5"
    }

    fn is_blocking(&self) -> bool {
        true
    }

    fn exchange(&self, context: &SaslContext<'_>) -> Result<Box<dyn SaslExchange>, SaslError> {
        let (digest, gate) = (self.digest.exchange(context)?, Arc::clone(&self.gate));
        Ok(Box::new(GatedExchange { digest, gate }))
    }
}

struct GatedExchange {
    digest: Box<dyn SaslExchange>,
    gate: Arc<Gate>,
}

impl SaslExchange for GatedExchange {
    fn step(&mut self, token: Option<&[u8]>) -> Result<SaslAction, SaslError> {
        self.gate.pass();
        self.digest.step(token)
    }
}

/// A server that requires SASL, and the configuration of its user bob behind a gate.
async fn gated() -> (TestingServer, Config, Arc<Gate>) {
    let server = TestingServer::start_with(server::Config {
        sasl_users: [("bob".to_owned(), "pw".to_owned())].into(),
        min_session_timeout: Some(ms(100)),
        ..server::Config::default()
    })
    .await
    .unwrap();
    let gate = Arc::new(Gate::default());
    let digest = SaslCredential::new("bob", "pw").unwrap();
    let config = Config::new(&server.connect_string()).unwrap();
    let config = config.with_sasl_mechanism(Gated { digest, gate: Arc::clone(&gate) });
    (server, config, gate)
}

/// The runtime has one thread, which the step must not block.
#[tokio::test]
async fn a_step_that_blocks_holds_up_no_other_client_and_no_ping() {
    let (server, config, gate) = gated().await;
    let bob = config.with_connection_timeout(LONG).start().unwrap();
    gate.reached().await;
    let other = Config::new(&server.connect_string()).unwrap().with_session_timeout(ms(2000));
    let other = within_limit("another client", other.connect()).await.unwrap();
    let session = other.session().unwrap();
    let pings = other.metrics().pings;
    eventually("pings", async || other.metrics().pings >= pings + 5).await;
    assert!(!session.is_lost() && other.session().unwrap().session_id() == session.session_id());
    assert!(!bob.state().get().is_some_and(|state| state.is_connected()));
    gate.open();
    within_limit("bob", bob.wait_until_connected(LONG)).await.unwrap();
    let ids = bob.who_am_i().await.unwrap();
    assert!(ids.iter().any(|id| (&*id.auth_scheme, &*id.user) == ("sasl", "bob")), "{ids:?}");
}

/// Connections come and go while the step runs.
#[tokio::test]
async fn a_step_that_outlives_its_connection_is_the_only_one_until_it_ends() {
    let (server, config, gate) = gated().await;
    let bob = config.with_connection_timeout(ms(200)).start().unwrap();
    gate.reached().await;
    let attempts = bob.metrics().attempts;
    eventually("more attempts", async || bob.metrics().attempts >= attempts + 3).await;
    eventually("an attempt that names the step", async || {
        let error = bob.wait_until_connected(ms(1)).await.unwrap_err();
        error.to_string().contains("DIGEST-MD5 has not computed")
    })
    .await;
    assert_eq!(gate.most_waiting.load(Ordering::SeqCst), 1);
    gate.open();
    within_limit("bob", bob.wait_until_connected(LONG)).await.unwrap();
    assert_eq!(gate.most_waiting.load(Ordering::SeqCst), 1);
    drop(server);
}

/// A runtime that runs no work that blocks.
#[derive(Debug)]
struct NoThreads(Handle);

impl Runtime for NoThreads {
    fn transport(&self) -> Arc<dyn Transport> {
        Runtime::transport(&self.0)
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        Runtime::timer(&self.0, after)
    }

    fn spawn(&self, task: Task) {
        Runtime::spawn(&self.0, task);
    }

    fn spawn_blocking(&self, work: BlockingWork) {
        drop(work);
    }
}

#[tokio::test]
async fn work_that_is_dropped_is_an_error_and_not_a_hang() {
    let (_server, config, gate) = gated().await;
    gate.open();
    let config =
        config.with_connection_timeout(ms(2000)).with_runtime(NoThreads(Handle::current()));
    let error = within_limit("an error", config.connect()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    assert!(error.to_string().contains("there is no thread"), "{error}");
}
