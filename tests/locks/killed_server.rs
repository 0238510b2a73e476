//! The server goes away and comes back, with its nodes and sessions: a real one is killed, the embedded one
//! stopped.
//!
//! Source: `TestInterProcessMutexBase.testWaitingProcessKilledServer`, `TestInterProcessSemaphore`'s
//! `testAcquireAfterLostServer`, `TestFrameworkEdges.testReconnectAfterLoss`, `TestFramework` as far as outages go.

use std::{sync::Arc, time::Duration};

use docent::{
    Client, Config, ConnectionState,
    recipes::locks::{
        InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
        InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockOptions,
    },
    session::retry::RetryNTimes,
};
use docent_testing::TestingServer;

use crate::{
    ms, no_retries,
    support::{DEADLINE, eventually, real::RealServer, within_deadline},
};

macro_rules! on_servers_that_go {
    ($($story:ident)*) => {
        mod embedded {
            $(
                #[tokio::test]
                async fn $story() {
                    super::$story(super::Going::embedded().await).await;
                }
            )*
        }
        mod real {
            $(
                #[tokio::test]
                async fn $story() {
                    if let Some(server) = super::Going::real().await {
                        super::$story(server).await;
                    }
                }
            )*
        }
    };
}

on_servers_that_go! {
    holder_and_waiter_of_every_lock_outlive_the_server
    a_semaphore_is_usable_after_its_server_was_lost
    a_lock_is_usable_after_its_session_was_lost_with_the_server
}

/// A server that can go and come back.
enum Going {
    Embedded(TestingServer),
    Real(RealServer),
}

impl Going {
    async fn embedded() -> Self {
        Self::Embedded(TestingServer::start().await.unwrap())
    }

    #[track_caller]
    fn real() -> impl Future<Output = Option<Self>> {
        let server = RealServer::start();
        async move { Some(Self::Real(server.await?)) }
    }

    fn connect_string(&self) -> String {
        match self {
            Self::Embedded(server) => server.connect_string(),
            Self::Real(server) => server.connect(),
        }
    }

    async fn client(&self, session_timeout: Duration) -> Client {
        let config = Config::new(&self.connect_string())
            .unwrap()
            .with_session_timeout(session_timeout)
            .with_connection_timeout(DEADLINE);
        Client::connect_with(config).await.unwrap()
    }

    async fn goes(&mut self) {
        match self {
            Self::Embedded(server) => server.stop(),
            Self::Real(server) => server.kill().await,
        }
    }

    async fn comes_back(&mut self) {
        match self {
            Self::Embedded(server) => server.restart().await.unwrap(),
            Self::Real(server) => server.start_again().await,
        }
    }
}

/// Longer than a slow machine takes to start a server.
const LONG: Duration = ms(60_000);

/// Patient for as long.
fn patient() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(600, ms(100)))
}

async fn in_state(client: &Client, wanted: ConnectionState) {
    let mut state = client.state();
    within_deadline("a state", state.wait_for(|state| *state == Some(wanted))).await.unwrap();
}

/// testWaitingProcessKilledServer, with every kind of lock at once.
async fn holder_and_waiter_of_every_lock_outlive_the_server(mut server: Going) {
    let client = server.client(LONG).await;
    let mutex = |path: &str| InterProcessMutex::with_options(&client, path, patient()).unwrap();
    let semaphore_mutex =
        |path: &str| InterProcessSemaphoreMutex::with_options(&client, path, patient()).unwrap();
    let pair = InterProcessReadWriteLock::with_options(&client, "/pair", patient()).unwrap();
    let multi: Vec<Arc<dyn InterProcessLock>> =
        vec![Arc::new(mutex("/multi/a")), Arc::new(semaphore_mutex("/multi/b"))];
    let locks: Vec<Arc<dyn InterProcessLock>> = vec![
        Arc::new(mutex("/mutex")),
        Arc::new(semaphore_mutex("/semaphore-mutex")),
        Arc::new(pair.write_lock().clone()),
        Arc::new(InterProcessMultiLock::of(multi)),
    ];
    let (mut guards, mut waiting) = (Vec::new(), Vec::new());
    for lock in &locks {
        guards.push(lock.acquire().await.unwrap());
        let lock = Arc::clone(lock);
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
    }
    eventually("all wait", async || (client.load() == (0, locks.len())).then_some(())).await;
    let session = client.session().unwrap().session_id();
    server.goes().await;
    in_state(&client, ConnectionState::Suspended).await;
    server.comes_back().await;
    in_state(&client, ConnectionState::Reconnected).await;
    assert_eq!(client.session().unwrap().session_id(), session);
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()), "their holders hold");
    for guard in guards {
        assert!(guard.is_held(), "{guard:?}");
        guard.release().await.unwrap();
    }
    for waiter in waiting {
        let guard = within_deadline("a waiter", waiter).await.unwrap().unwrap();
        assert!(guard.is_held() && guard.session_id() == session);
        guard.release().await.unwrap();
    }
}

/// testAcquireAfterLostServer, CURATOR-335: an acquire fails while the server is away, and leaves nothing behind.
async fn a_semaphore_is_usable_after_its_server_was_lost(mut server: Going) {
    let client = server.client(LONG).await;
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, "/semaphore", 1, no_retries()).unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    server.goes().await;
    in_state(&client, ConnectionState::Suspended).await;
    let got = semaphore.acquire_timeout(ms(100)).await;
    assert!(!matches!(got, Ok(Some(_))), "{got:?}");
    server.comes_back().await;
    in_state(&client, ConnectionState::Reconnected).await;
    let lease = eventually("a lease", async || {
        // What was given up while the server was away may still be on its way out.
        semaphore.acquire_timeout(ms(1000)).await.ok().flatten()
    })
    .await;
    assert_eq!(semaphore.participants().await.unwrap(), [lease.lock_path()]);
    lease.release().await.unwrap();
}

/// The server stays away for longer than the client believes in the session.
async fn a_lock_is_usable_after_its_session_was_lost_with_the_server(mut server: Going) {
    let client = server.client(ms(2000)).await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", patient()).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let session = guard.session_id();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    eventually("it waits", async || (client.load() == (0, 1)).then_some(())).await;
    server.goes().await;
    in_state(&client, ConnectionState::Lost).await;
    within_deadline("told", guard.lost()).await;
    server.comes_back().await;
    // The old nodes go with the old session, which the server has still to end.
    let again = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert!(again.is_held() && !guard.is_held());
    assert_ne!(again.session_id(), session);
    guard.release().await.unwrap();
    assert!(again.is_held(), "the release of what was lost does not touch it");
    again.release().await.unwrap();
}
