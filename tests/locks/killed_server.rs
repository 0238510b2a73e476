//! The server stops and restarts with its nodes and sessions: a real one is killed, the embedded one stopped.
//!
//! Source: `TestInterProcessMutexBase.testWaitingProcessKilledServer`, `TestInterProcessSemaphore`'s
//! `testAcquireAfterLostServer`, `TestFrameworkEdges.testReconnectAfterLoss`, and the outages of `TestFramework`.

use tokio::time::timeout;

use super::*;
use crate::support::{
    LONG_SESSION,
    real::{RealServer, Restartable},
};

on_both_servers! {
    #[tokio::test]
    super::embedded, super::real;
    holder_and_waiter_of_every_lock_outlive_the_server()
    a_semaphore_is_usable_after_its_server_was_lost()
    a_lock_is_usable_after_its_session_was_lost_with_the_server()
}

async fn embedded() -> Restartable {
    let config = server::Config { max_session_timeout: LONG_SESSION, ..Default::default() };
    Restartable::Embedded(TestingServer::start_with(config).await.unwrap())
}

#[track_caller]
fn real() -> impl Future<Output = Option<Restartable>> {
    let server = RealServer::start();
    async move { Some(Restartable::Real(Box::new(server.await?))) }
}

/// Its attempts to connect have the default limit: a server never replies to one that arrives while it starts, and does
/// not close it (ZOOKEEPER-5051).
async fn client(server: &Restartable, session_timeout: Duration) -> Client {
    let config = Config::new(&server.connect()).unwrap();
    config.with_session_timeout(session_timeout).connect().await.unwrap()
}

/// The time for a change of the connection, also on a machine that takes minutes to start a JVM.
const CONNECTION_CHANGE: Duration = ms(300_000);

/// Retries for [`LONG_SESSION`].
fn patient() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(36_000, ms(100)))
}

async fn wait_for_state(client: &Client, wanted: ConnectionState) {
    let mut state = client.state();
    let reached = timeout(CONNECTION_CHANGE, state.wait_for(|state| *state == Some(wanted))).await;
    reached.expect("a state").unwrap();
}

/// testWaitingProcessKilledServer, with every kind of lock at once.
// Case (What broke other clients): a waiter never wakes after a reconnect.
async fn holder_and_waiter_of_every_lock_outlive_the_server(mut server: Restartable) {
    let client = client(&server, LONG_SESSION).await;
    let locks = each_lock(&client, "", &patient());
    let (mut guards, mut waiting) = (Vec::new(), Vec::new());
    for (_, lock) in &locks {
        guards.push(lock.acquire().await.unwrap());
        let lock = Arc::clone(lock);
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
    }
    has_watches(&client, locks.len()).await;
    let session = session_id(&client);
    server.stop().await;
    wait_for_state(&client, ConnectionState::Suspended).await;
    server.restart().await;
    wait_for_state(&client, ConnectionState::Reconnected).await;
    assert_eq!(session_id(&client), session);
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()), "the locks are still held");
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
async fn a_semaphore_is_usable_after_its_server_was_lost(mut server: Restartable) {
    let client = client(&server, LONG_SESSION).await;
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, "/semaphore", 1, no_retries()).unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    server.stop().await;
    wait_for_state(&client, ConnectionState::Suspended).await;
    let result = semaphore.acquire_timeout(ms(100)).await;
    assert!(!matches!(result, Ok(Some(_))), "{result:?}");
    server.restart().await;
    wait_for_state(&client, ConnectionState::Reconnected).await;
    let lease = eventually("a lease", async || {
        // The nodes of the failed acquire may not be deleted yet.
        semaphore.acquire_timeout(ms(1000)).await.ok().flatten()
    })
    .await;
    assert_eq!(semaphore.participants().await.unwrap(), [lease.path()]);
    lease.release().await.unwrap();
}

/// The server is down for longer than the lease of the session.
async fn a_lock_is_usable_after_its_session_was_lost_with_the_server(mut server: Restartable) {
    let client = client(&server, ms(2000)).await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", patient()).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let session = guard.session_id();
    let waiting = spawn_acquire(&mutex);
    has_watches(&client, 1).await;
    server.stop().await;
    wait_for_state(&client, ConnectionState::Lost).await;
    within_deadline("the loss", guard.lost()).await;
    server.restart().await;
    // The server deletes the old nodes with the old session, which it has yet to expire.
    let again = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert!(again.is_held() && !guard.is_held());
    assert_ne!(again.session_id(), session);
    guard.release().await.unwrap();
    assert!(again.is_held(), "the release of a lost lock does not affect it");
    again.release().await.unwrap();
}
