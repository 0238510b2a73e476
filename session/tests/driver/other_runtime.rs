//! Clients that run on the runtime of their configuration, wherever they are started and used.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::support::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn serve() -> (Runtime, TestingServer, Config) {
    let runtime = runtime();
    let server = runtime.block_on(TestingServer::start()).unwrap();
    let config = Config::new(&server.connect_string()).unwrap().with_connection_timeout(LONG);
    (runtime, server, config)
}

/// Polls a future outside every runtime until it is ready.
fn poll_outside<T>(future: impl Future<Output = T>) -> T {
    assert!(tokio::runtime::Handle::try_current().is_err());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_client_is_started_and_used_outside_a_runtime() {
    let (runtime, server, config) = serve();
    let config = config.with_runtime(runtime.handle().clone());
    assert!(config.runtime().is_some());
    let started = config.clone().start().unwrap();
    let connected = poll_outside(config.connect()).unwrap();
    for client in [started, connected] {
        assert!(poll_outside(client.exists("/")).unwrap().is_some());
        poll_outside(client.close()).unwrap();
    }
    assert_eq!(server.session_ids(), []);
}

#[test]
fn the_runtime_of_the_configuration_precedes_the_current_one() {
    let (runtime, _server, config) = serve();
    let config = config.with_runtime(runtime.handle().clone());
    let current = self::runtime();
    let client = current.block_on(config.connect()).unwrap();
    drop(current);
    assert!(poll_outside(client.exists("/")).unwrap().is_some());
}

/// No task is left that could connect: every call fails, and none waits.
#[test]
fn a_client_of_an_ended_runtime_has_ended() {
    let (_runtime, _server, config) = serve();
    let ended = runtime();
    let config = config.with_runtime(ended.handle().clone());
    drop(ended);
    let client = config.clone().start().unwrap();
    assert_eq!(poll_outside(client.exists("/")).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(poll_outside(config.connect()).unwrap_err().kind(), ErrorKind::Closed);
}
