//! Calls inside and beside runtimes.

use docent::{Revoker, retry::RetryForever};
use std::sync::mpsc;
use tokio::runtime::{Builder, Handle};

use super::*;

blocking_on_both_servers! {
    calls_inside_a_runtime_are_refused
    calls_on_threads_for_blocking_work
    a_guard_may_be_dropped_inside_a_runtime
    a_listener_may_not_wait
    a_client_runs_in_the_runtime_of_its_settings
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::WouldBlock, Outcome::NotApplied));
    assert!(error.to_string().contains("spawn_blocking"), "{error}");
}

/// Runs a future in each place where tokio polls one.
fn in_each_runtime<F: Future<Output = ()> + Send + 'static>(body: impl Fn() -> F) {
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    let many = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for runtime in [one, many] {
        runtime.block_on(body());
        runtime.block_on(runtime.spawn(body())).unwrap();
        let local = tokio::task::LocalSet::new();
        let task = body();
        runtime.block_on(local.run_until(async { tokio::task::spawn_local(task).await.unwrap() }));
        // A task that has used its time slice.
        let task = body();
        runtime.block_on(async {
            for _ in 0..10 {
                tokio::task::consume_budget().await;
            }
            task.await;
        });
    }
}

// Case (Programs without async): a call inside a runtime: refused, nothing is sent; also in
// `LocalSet`, and in a task that has used its time slice.
fn calls_inside_a_runtime_are_refused(server: Server) {
    let client = server.client();
    let path = server.path("refused");
    client.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    let discovery = ServiceDiscovery::new(&client, &server.fixture.path).unwrap();
    in_each_runtime(|| {
        let (client, path, mutex) = (client.clone(), path.clone(), mutex.clone());
        let discovery = discovery.clone();
        let config = server.config();
        async move {
            assert_refused(client.create(&path, b"", CreateMode::Persistent));
            assert_refused(client.get_data_and_watch("/"));
            assert_refused(wait(|| {
                client.transaction().create(&path, b"", CreateMode::Persistent).commit()
            }));
            assert_refused(wait_timeout(DEADLINE, || client.as_async().delete(&path, None)));
            assert_refused(client.retry(&RetryForever { retry_interval: DEADLINE }, || Ok(())));
            assert_refused(client.states().next().unwrap());
            assert_refused(client.states().next_timeout(DEADLINE).unwrap());
            assert_refused(client.states().timeout_iter(DEADLINE).next().unwrap());
            assert_refused(wait(|| discovery.register(ServiceInstance::new("web", "a"))));
            assert_refused(mutex.acquire());
            assert_refused(mutex.acquire_timeout(DEADLINE));
            assert_refused(client.close());
            assert_refused(Client::connect_with(config));
            // Methods that do not wait are allowed.
            assert!(client.session().is_some() && client.ended().is_none());
        }
    });
    // Nothing was sent, and all values still work.
    assert_eq!(client.exists(&path).unwrap(), None);
    assert!(discovery.instance("web", "a").is_none());
    mutex.acquire().unwrap().release().unwrap();
}

// Case (Programs without async): a call in `spawn_blocking`, in `block_in_place`, or with an
// entered runtime works.
fn calls_on_threads_for_blocking_work(server: Server) {
    let client = server.client();
    let call = |client: &Client| {
        let client = client.clone();
        move || client.exists("/").map(|stat| stat.is_some())
    };
    // A runtime is entered on this thread, but it does not poll this code.
    let _entered = server.runtime.enter();
    assert!(call(&client)().unwrap());
    assert!(server.block_on(tokio::task::spawn_blocking(call(&client))).unwrap().unwrap());
    let in_place = call(&client);
    let task = server.runtime.spawn(async move { tokio::task::block_in_place(in_place) });
    assert!(server.block_on(task).unwrap().unwrap());
    let nested = call(&client);
    let threads = server.runtime.spawn(async move { thread::spawn(nested) });
    assert!(server.block_on(threads).unwrap().join().unwrap().unwrap());
    // A whole program in `spawn_blocking`, with its own client.
    let config = server.config();
    let own = tokio::task::spawn_blocking(move || {
        Client::connect_with(config)?
            .run(|client| client.get_children("/").map(|names| names.len()))
    });
    assert!(server.block_on(own).unwrap().unwrap() > 0);
}

fn a_guard_may_be_dropped_inside_a_runtime(server: Server) {
    let client = server.client();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    for releases in [true, false] {
        let guard = mutex.acquire().unwrap();
        server.block_on(async move {
            if releases {
                // Refused, and released in the background.
                assert_refused(guard.release());
            }
        });
        mutex.acquire_timeout(DEADLINE).unwrap().expect("the dropped lock").release().unwrap();
    }
    // The last drop of a client inside a runtime does not wait, but still closes the session.
    let path = server.path("ephemeral");
    let last = server.client();
    last.create(&path, b"", CreateMode::Ephemeral).unwrap();
    server.block_on(async move { drop(last) });
    let gone = || client.exists(&path).unwrap().is_none();
    until_blocking("the end of the session", gone);
    let last = server.client();
    last.create(&path, b"", CreateMode::Ephemeral).unwrap();
    server.block_on(async move { last.run(|client| assert_refused(client.exists("/"))) });
    until_blocking("the end of the session", gone);
}

/// A listener runs on the client's thread, which delivers the events that a call waits for.
// Case (Programs without async): a call in a listener, on the client's own thread, which would wait
// for itself.
fn a_listener_may_not_wait(server: Server) {
    let client = server.client();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    let (called, results) = mpsc::channel();
    mutex.make_revocable({
        let client = client.clone();
        move || called.send(client.exists("/")).unwrap()
    });
    let guard = mutex.acquire().unwrap();
    let policy = RetryForever { retry_interval: DEADLINE };
    wait(|| Revoker::attempt_revoke(&client, &policy, guard.path())).unwrap();
    assert_refused(results.recv_timeout(DEADLINE).unwrap());
    guard.release().unwrap();
}

fn a_client_runs_in_the_runtime_of_its_settings(server: Server) {
    let handle: Handle = server.runtime.handle().clone();
    let config = Config::new(&server.fixture.server).unwrap().with_runtime(handle);
    let client = Client::start_with(config).unwrap();
    wait(|| client.wait_until_connected(DEADLINE)).unwrap();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    mutex.acquire().unwrap().release().unwrap();
    client.close().unwrap();
}
