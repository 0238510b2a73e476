//! Futures of locks that are polled outside a runtime, in another runtime than the client's, and after the end of the
//! client's runtime.

use docent_testing::tap::Tap;
use tokio::runtime::Runtime;

use super::*;
use crate::support::until_blocking;

/// Drives a future on this thread, outside a runtime of tokio.
fn drive<F: Future>(future: F) -> F::Output {
    assert!(tokio::runtime::Handle::try_current().is_err());
    smol::block_on(future)
}

/// A server, a tap and a client in runtimes other than this thread's.
struct OtherRuntime {
    runtime: Runtime,
    servers: Runtime,
    client: Client,
    tap: Tap,
    server: TestingServer,
}

fn other_runtime() -> OtherRuntime {
    other_runtime_on(server::Config::default())
}

fn other_runtime_on(config: server::Config) -> OtherRuntime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all();
    let (runtime, servers) = (builder.build().unwrap(), builder.build().unwrap());
    let (server, tap) = servers.block_on(async {
        let server = TestingServer::start_with(config).await.unwrap();
        let tap = server.tap().await.unwrap();
        (server, tap)
    });
    let config = Config::new(&tap.connect_string()).unwrap();
    let client = runtime.block_on(config.connect()).unwrap();
    OtherRuntime { runtime, servers, client, tap, server }
}

// Case (Found in docent itself): a release panicked at its first pause outside a runtime, an
// acquire at its first step, and `wait_until_connected` at once; so did each of them in a runtime
// without timers.
#[test]
fn locks_are_acquired_and_released_outside_a_runtime() {
    let fixture = other_runtime();
    drive(fixture.client.wait_until_connected(ms(5000))).unwrap();
    for (_, lock) in each_lock(&fixture.client, "", &options()) {
        let guard = drive(lock.acquire()).unwrap();
        // The timeout elapses.
        assert!(drive(lock.acquire_timeout(ms(20))).unwrap().is_none());
        let token = guard.cancellation_token();
        drive(guard.release()).unwrap();
        assert!(token.is_cancelled());
        let guard = drive(lock.acquire_timeout(ms(5000))).unwrap().unwrap();
        poll_once(guard.lost());
    }
    let semaphore =
        InterProcessSemaphoreV2::with_options(&fixture.client, "/semaphore", 2, options()).unwrap();
    let leases = drive(semaphore.acquire_many(2)).unwrap();
    assert!(drive(semaphore.acquire_many_timeout(1, ms(20))).unwrap().is_none());
    drop(leases);
}

/// The read that watches the node, and the wait, need no runtime either.
#[test]
fn a_deleted_node_is_noticed_outside_a_runtime() {
    let fixture = other_runtime();
    for (_, lock) in each_lock(&fixture.client, "", &options()) {
        let guard = drive(lock.acquire()).unwrap();
        let token = guard.cancellation_token();
        let node = guard.paths().last().unwrap().to_owned();
        fixture.servers.block_on(async {
            let operator = Client::connect(&fixture.server.connect_string()).await.unwrap();
            operator.delete(&node, None).await.unwrap();
        });
        drive(guard.lost());
        drive(token.cancelled());
        assert!(!guard.is_held());
        drive(guard.release()).unwrap();
    }
}

/// The refusal of create2 is followed by a wait for the end of the connection.
// Case (Found in docent itself): an acquire on ZooKeeper 3.4 panicked outside a runtime when its
// first create was refused; one that began before there was a connection asked twice, and lost a
// request with the connection.
#[test]
fn locks_of_3_4_are_acquired_outside_a_runtime() {
    for namespace in ["", "apps"] {
        let version = server::Version::V3_4;
        let fixture = other_runtime_on(server::Config { version, ..Default::default() });
        let options = options().with_namespace(namespace);
        let mutex = InterProcessMutex::with_options(&fixture.client, "/lock", options).unwrap();
        drive(drive(mutex.acquire()).unwrap().release()).unwrap();
    }
}

/// The end of the client's runtime ends the client and its holds, and cancels the tokens of workers in other runtimes.
// Case (Found in docent itself): the cancellation token of a guard was not cancelled when the
// client's runtime ended, nor one asked for behind that: a worker in another runtime went on.
#[test]
fn the_end_of_the_clients_runtime_cancels_the_tokens() {
    let OtherRuntime { runtime, servers, client, tap, server } = other_runtime();
    let locks = each_lock(&client, "", &options());
    let guards: Vec<_> = locks.iter().map(|(_, lock)| drive(lock.acquire()).unwrap()).collect();
    let before: Vec<_> = guards.iter().map(LockGuard::cancellation_token).collect();
    assert!(before.iter().all(|token| !token.is_cancelled()));
    let later = drive(InterProcessMutex::new(&client, "/later").unwrap().acquire()).unwrap();
    drop(runtime);
    assert!(before.iter().all(|token| token.is_cancelled()), "a worker continues without the lock");
    assert!(later.cancellation_token().is_cancelled(), "a token created after the end");
    drop((guards, later, client, tap, server, servers));
}

/// The task that watches a value is dropped with its runtime.
#[test]
fn the_end_of_the_clients_runtime_ends_the_receivers_of_values() {
    let OtherRuntime { runtime, servers, client, tap, server } = other_runtime();
    let value = drive(SharedValue::start(&client, "/value", "x")).unwrap();
    let mut values = value.subscribe();
    drop(runtime);
    assert_eq!(drive(values.next()), None);
    assert_eq!(value.value(), "x");
    drop((value, client, tap, server, servers));
}

/// The runtime ends during acquires, waits and a release: their futures complete, and neither polling nor dropping them
/// panics.
#[test]
fn nothing_panics_when_the_clients_runtime_has_ended() {
    for polled in [false, true] {
        let OtherRuntime { runtime, servers, client, tap, server } = other_runtime();
        let mutex = InterProcessMutex::with_options(&client, "/lock", options()).unwrap();
        let other = InterProcessMutex::with_options(&client, "/other", options()).unwrap();
        let (guard, kept) = (drive(mutex.acquire()).unwrap(), drive(other.acquire()).unwrap());
        let token = kept.cancellation_token();
        let multi =
            InterProcessMultiLock::with_options(&client, &["/one", "/lock"], &options()).unwrap();
        let semaphore =
            InterProcessSemaphoreV2::with_options(&client, "/semaphore", 1, options()).unwrap();
        let lease = drive(semaphore.acquire()).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting: Vec<Pin<Box<dyn Future<Output = bool>>>> = vec![
            Box::pin(async { mutex.acquire().await.is_err() }),
            Box::pin(async { mutex.acquire_timeout(ms(60_000)).await.is_err() }),
            Box::pin(async { multi.acquire_timeout(ms(60_000)).await.is_err() }),
            Box::pin(async { semaphore.acquire_many_timeout(1, ms(60_000)).await.is_err() }),
            Box::pin(async {
                kept.lost().await;
                true
            }),
            Box::pin(async {
                client.wait_until_connected(ms(60_000)).await.is_err() || client.ended().is_none()
            }),
        ];
        // Each of them waits: the acquires for the node ahead or for a lease, and `lost` for its own node.
        until_blocking("each of them waits", || {
            for future in &mut waiting[..5] {
                assert!(future.as_mut().poll(&mut cx).is_pending());
            }
            pending_and_watches(&client) == (0, 5)
        });
        // A release that pauses between two retries.
        tap.inject(Fault::drop_before(OpCode::Delete).times(u32::MAX));
        waiting.push(Box::pin(async {
            guard.release().await.is_err_and(|error| error.kind() == ErrorKind::Closed)
        }));
        let release = waiting.last_mut().unwrap();
        until_blocking("the loss of the delete", || {
            assert!(release.as_mut().poll(&mut cx).is_pending());
            tap.trace().iter().any(|record| record.is_request(OpCode::Delete))
        });
        drop(runtime);
        if polled {
            for (at, future) in waiting.into_iter().enumerate() {
                assert!(drive(future), "{at}");
            }
            assert!(token.is_cancelled() || !kept.is_held());
            assert!(drive(mutex.acquire()).is_err());
            assert!(drive(mutex.acquire_timeout(ms(10))).is_err());
        } else {
            drop(waiting);
        }
        drop((lease, kept, client));
        drop((tap, server, servers));
    }
}
